/* Losses of each value by itself: mse, mae, huber and bce, as PyTorch's MSELoss, L1Loss, HuberLoss
 * and BCEWithLogitsLoss with reduction='mean'. p and t [N, ..] of equally many values. */
#include "api/train.h"
#include "ops/elementwise.h"
#include "ops/loss_ops.h"

typedef struct Huber {
    double delta;
} Huber;

static const DltField huber_fields[] = {
    DLT_FLOAT(Huber, delta, .def = "1", .main = true, .lo = 0, .hi = 1e6, .open_lo = true,
              .help = "where the square turns into a line", .example = "delta: 0.5"),
    DLT_FIELDS_END,
};

static DltTensor *build_mse(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y,
                            DltTensor *w)
{
    (void)o;
    return dlt_pointwise_loss(b, out, y, w, &(DltPointwiseLoss){.kind = DLT_LOSS_MSE});
}

static DltTensor *build_mae(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y,
                            DltTensor *w)
{
    (void)o;
    return dlt_pointwise_loss(b, out, y, w, &(DltPointwiseLoss){.kind = DLT_LOSS_MAE});
}

static DltTensor *build_huber(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y,
                              DltTensor *w)
{
    const Huber *c = o->v;
    DltPointwiseLoss attr = {.kind = DLT_LOSS_HUBER, .delta = (float)c->delta};
    return dlt_pointwise_loss(b, out, y, w, &attr);
}

static bool ends_in_sigmoid(const DltTensor *out)
{
    const DltNode *n = out->producer;
    return n && n->kind == DLT_OP_unary_fwd && ((const DltUnary *)n->attr)->fn == DLT_FN_SIGMOID;
}

static DltTensor *build_bce(DltBuild *b, const DltOpts *o, DltTensor *out, DltTensor *y,
                            DltTensor *w)
{
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    if (ends_in_sigmoid(out))
        return dlt_build_error(b,
                               "%s: takes logits, but the model ends in sigmoid; remove the "
                               "sigmoid (predict applies it)",
                               o->name);
    return dlt_pointwise_loss(b, out, y, w, &(DltPointwiseLoss){.kind = DLT_LOSS_BCE});
}

static const char *const square_metrics[] = {"rmse", "r2", NULL};
static const char *const distance_metrics[] = {"mae", "r2", NULL};
static const char *const no_metrics[] = {NULL};

const DltLossDef dlt_loss_mse = {
    .name = "mse",
    .help = "mean squared error",
    .target = DLT_TARGET_VALUE,
    .metrics = square_metrics,
    .build = build_mse,
};

const DltLossDef dlt_loss_mae = {
    .name = "mae",
    .help = "mean absolute error",
    .target = DLT_TARGET_VALUE,
    .metrics = distance_metrics,
    .build = build_mae,
};

const DltLossDef dlt_loss_huber = {
    .name = "huber",
    .help = "squared error near zero, absolute error beyond delta; Huber 1964",
    .fields = huber_fields,
    .opt_size = sizeof(Huber),
    .target = DLT_TARGET_VALUE,
    .metrics = distance_metrics,
    .build = build_huber,
};

const DltLossDef dlt_loss_bce = {
    .name = "bce",
    .help = "binary cross entropy of each output, on logits",
    .target = DLT_TARGET_VALUE,
    .metrics = no_metrics,
    .build = build_bce,
    .activation = "sigmoid",
};
