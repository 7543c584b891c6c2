/* loss: the mean loss as trained. bits_per_byte: the mean negative log likelihood to the base 2, of a byte
 * of the text, so that tokenizers can be compared. perplexity: exp of the mean negative log likelihood, without
 * label smoothing or class weights, whatever the loss uses. */
#include "ops/loss_ops.h"
#include "train/metric.h"

#include <math.h>

int64_t dlt_metric_pair(int64_t n_out)
{
    (void)n_out;
    return 2;
}

double dlt_metric_ratio(const double *acc, int64_t n_out)
{
    (void)n_out;
    return acc[1] > 0.0 ? acc[0] / acc[1] : (double)NAN;
}

static const DltNode *cross_entropy_of(const DltTensor *loss)
{
    const DltNode *n = loss->producer;
    return n && n->kind == DLT_OP_cross_entropy_fwd ? n : NULL;
}

int32_t dlt_metric_ignore(const DltTensor *loss)
{
    const DltNode *n = cross_entropy_of(loss);
    return n ? ((const DltCrossEntropy *)n->attr)->ignore : -100;
}

static void build_loss(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w, DltTensor *loss,
                       DltTensor *acc)
{
    (void)out;
    (void)y;
    (void)w;
    dlt_metric_add(b, loss, acc);
}

static void build_perplexity(DltBuild *b, DltTensor *out, DltTensor *y, DltTensor *w,
                             DltTensor *loss, DltTensor *acc)
{
    const DltNode *n = cross_entropy_of(loss);
    bool is_plain = n && !n->in[3] && ((const DltCrossEntropy *)n->attr)->smoothing == 0.0f;
    DltCrossEntropy attr = {.ignore = dlt_metric_ignore(loss)};
    dlt_metric_add(b, is_plain ? loss : dlt_cross_entropy(b, out, y, w, NULL, &attr), acc);
}

/* Bits of a token. */
static double bits(const double *acc, int64_t n_out)
{
    return dlt_metric_ratio(acc, n_out) / log(2.0);
}

static double perplexity(const double *acc, int64_t n_out)
{
    return exp(dlt_metric_ratio(acc, n_out));
}

const DltMetricDef dlt_metric_def_loss = {
    .name = "loss",
    .help = "mean loss",
    .any_target = true,
    .n_acc = dlt_metric_pair,
    .build = build_loss,
    .value = dlt_metric_ratio,
};

const DltMetricDef dlt_metric_def_perplexity = {
    .name = "perplexity",
    .help = "exp of the mean negative log likelihood, without smoothing or class weights",
    .target = DLT_TARGET_CLASS,
    .n_acc = dlt_metric_pair,
    .build = build_perplexity,
    .value = perplexity,
};

const DltMetricDef dlt_metric_def_bits_per_byte = {
    .name = "bits_per_byte",
    .help = "mean negative log likelihood of a byte of text in bits, without smoothing or class "
            "weights",
    .target = DLT_TARGET_CLASS,
    .per_byte = true,
    .n_acc = dlt_metric_pair,
    .build = build_perplexity,
    .value = bits,
};
