/* Losses and metrics: shapes, gradient rules, constructors (formulas in ops/loss_ops.h). */
#include "ops/loss_ops.h"
#include "ops/infer.h"

static void pair_out(DltShape out[], DltDtype dtype[], int i)
{
    out[i] = dlt_shape1(2);
    dtype[i] = DLT_F64;
}

/* Labels are one per row of the logits: y's shape is the logits' without the last axis. */
static DltStatus check_labels(const DltNode *n, const DltTensor *logits, const DltTensor *y,
                              DltErr *err)
{
    bool fits =
        y->dtype == DLT_I32 && dlt_shape_count(&y->shape) * dlt_shape_dim(&logits->shape, -1) ==
                                   dlt_shape_count(&logits->shape);
    return fits ? DLT_OK
                : dlt_infer_misfit(n, logits, y, err,
                                   "one class label for each row of outputs is needed");
}

static DltStatus check_values(const DltNode *n, const DltTensor *p, const DltTensor *t, DltErr *err)
{
    bool fits = dlt_shape_count(&p->shape) == dlt_shape_count(&t->shape);
    return fits ? DLT_OK
                : dlt_infer_misfit(n, p, t, err,
                                   "outputs and targets must have equally many values");
}

/* ---- cross entropy ---- */

static void ce_text(const void *attr, char *buf, size_t size)
{
    const DltCrossEntropy *a = attr;
    if (a->smoothing > 0) dlt_attr_text(buf, size, "smoothing=%g", (double)a->smoothing);
}

DltTensor *dlt_cross_entropy(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w,
                             DltTensor *class_w, const DltCrossEntropy *attr)
{
    DltTensor *const in[] = {logits, y, w, class_w, b->step};
    return dlt_build_op(b, DLT_OP_cross_entropy_fwd, attr, in, 5);
}

static DltStatus ce_check(const DltNode *n, DltErr *err)
{
    DLT_TRY(check_labels(n, n->in[0], n->in[1], err));
    if (n->in[3]) DLT_TRY(dlt_infer_vector(n, n->in[3], dlt_shape_dim(&n->in[0]->shape, -1), err));
    return DLT_OK;
}

static DltStatus ce_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(ce_check(n, err));
    pair_out(out, dtype, 0);
    return DLT_OK;
}

static void ce_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    (void)dout; /* the loss is where backward begins */
    din[0] = dlt_build_op(b, DLT_OP_cross_entropy_bwd, n->attr, n->in, 5);
}

static double flops_in10(const DltNode *n)
{
    return 10.0 * (double)dlt_shape_count(&n->in[0]->shape);
}

const DltOpDef dlt_op_cross_entropy_fwd = {.name = "cross_entropy_fwd",
                                           .n_in = 5,
                                           .n_out = 1,
                                           .attr_size = sizeof(DltCrossEntropy),
                                           .infer = ce_infer,
                                           .grad = ce_grad,
                                           .flops = flops_in10,
                                           .prec = DLT_PREC_KEEP,
                                           .optional = 1u << 3,
                                           .full_in = 0xc,
                                           .text = ce_text};

static DltStatus ce_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(ce_check(n, err));
    return dlt_infer_same(n, out, dtype, err);
}

const DltOpDef dlt_op_cross_entropy_bwd = {.name = "cross_entropy_bwd",
                                           .n_in = 5,
                                           .n_out = 1,
                                           .attr_size = sizeof(DltCrossEntropy),
                                           .infer = ce_bwd_infer,
                                           .flops = flops_in10,
                                           .inplace = 1,
                                           .prec = DLT_PREC_KEEP,
                                           .optional = 1u << 3,
                                           .full_in = 0xc,
                                           .text = ce_text};

static DltStatus ce_both_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(ce_bwd_infer(n, out, dtype, err));
    pair_out(out, dtype, 1);
    return DLT_OK;
}

const DltOpDef dlt_op_cross_entropy_both = {.name = "cross_entropy_both",
                                            .n_in = 5,
                                            .n_out = 2,
                                            .attr_size = sizeof(DltCrossEntropy),
                                            .infer = ce_both_infer,
                                            .flops = flops_in10,
                                            .inplace = 1,
                                            .prec = DLT_PREC_KEEP,
                                            .optional = 1u << 3,
                                            .full_in = 0xc,
                                            .text = ce_text};

/* ---- classifier: linear layer, cross entropy and their gradients ---- */

static void classifier_text(const void *attr, char *buf, size_t size)
{
    dlt_attr_text(buf, size, "rows=%lld", (long long)((const DltClassifier *)attr)->rows);
}

static DltStatus classifier_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTensor *x = n->in[0], *w = n->in[1], *y = n->in[2];
    int64_t c = dlt_shape_dim(&x->shape, -1);
    if (w->shape.rank != 2 || w->shape.dim[1] != c || w->dtype != x->dtype)
        return dlt_infer_misfit(n, x, w, err, "a row of weights for each class is needed");
    if (y->dtype != DLT_I32 || dlt_shape_count(&y->shape) * c != dlt_shape_count(&x->shape))
        return dlt_infer_misfit(n, x, y, err, "one class label for each row is needed");
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    out[1] = w->shape;
    dtype[1] = DLT_F32;
    pair_out(out, dtype, 2);
    return DLT_OK;
}

static double classifier_flops(const DltNode *n)
{
    double v = (double)n->in[1]->shape.dim[0];
    return 6.0 * (double)dlt_shape_count(&n->in[0]->shape) * v +
           10.0 * (double)dlt_shape_count(&n->in[2]->shape) * v;
}

const DltOpDef dlt_op_classifier = {.name = "classifier",
                                    .n_in = 5,
                                    .n_out = 3,
                                    .attr_size = sizeof(DltClassifier),
                                    .infer = classifier_infer,
                                    .flops = classifier_flops,
                                    .prec = DLT_PREC_LOW,
                                    .full_in = 8,
                                    .text = classifier_text};

/* ---- output layer: linear layer, cross entropy and the data gradient ---- */

static DltStatus output_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTensor *x = n->in[0], *w = n->in[1], *y = n->in[3];
    int64_t c = dlt_shape_dim(&x->shape, -1);
    if (w->shape.rank != 2 || w->shape.dim[1] != c || w->dtype != x->dtype)
        return dlt_infer_misfit(n, x, w, err, "a row of weights for each class is needed");
    if (n->in[2]) DLT_TRY(dlt_infer_vector(n, n->in[2], w->shape.dim[0], err));
    if (y->dtype != DLT_I32 || dlt_shape_count(&y->shape) * c != dlt_shape_count(&x->shape))
        return dlt_infer_misfit(n, x, y, err, "one class label for each row is needed");
    if (n->in[6] && !dlt_shape_equal(&n->in[6]->shape, &x->shape))
        return dlt_infer_misfit(n, x, n->in[6], err, "what is saved has the features' shape");
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    out[1] = x->shape;
    out[1].dim[x->shape.rank - 1] = w->shape.dim[0];
    out[2] = out[1];
    dtype[1] = dtype[2] = x->dtype;
    out[3] = dlt_shape2(dlt_shape_count(&y->shape), 2);
    dtype[3] = DLT_F64;
    return DLT_OK;
}

static double output_flops(const DltNode *n)
{
    double v = (double)n->in[1]->shape.dim[0];
    return 4.0 * (double)dlt_shape_count(&n->in[0]->shape) * v +
           10.0 * (double)dlt_shape_count(&n->in[3]->shape) * v;
}

const DltOpDef dlt_op_output_layer = {.name = "output_layer",
                                      .n_in = 7,
                                      .n_out = 4,
                                      .attr_size = sizeof(DltOutputLayer),
                                      .infer = output_infer,
                                      .flops = output_flops,
                                      .prec = DLT_PREC_LOW,
                                      .optional = 1u << 2 | 1u << 6,
                                      .full_in = 16};

static DltStatus loss_sum_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTensor *x = n->in[0];
    if (x->dtype != DLT_F64 || x->shape.rank != 2 || x->shape.dim[1] != 2)
        return dlt_infer_misfit(n, x, x, err, "a sum and a weight for each row are needed");
    pair_out(out, dtype, 0);
    return DLT_OK;
}

const DltOpDef dlt_op_loss_sum = {.name = "loss_sum",
                                  .n_in = 1,
                                  .n_out = 1,
                                  .infer = loss_sum_infer,
                                  .flops = dlt_flops_1,
                                  .prec = DLT_PREC_FULL};

/* ---- pointwise losses ---- */

static void pw_text(const void *attr, char *buf, size_t size)
{
    static const char *const name[DLT_N_POINTWISE] = {"mse", "mae", "huber", "bce"};
    dlt_attr_text(buf, size, "%s", name[((const DltPointwiseLoss *)attr)->kind]);
}

DltTensor *dlt_pointwise_loss(DltBuild *b, DltTensor *p, DltTensor *t, DltTensor *w,
                              const DltPointwiseLoss *attr)
{
    return dlt_build_op(b, DLT_OP_pointwise_loss_fwd, attr, (DltTensor *const[]){p, t, w, b->step},
                        4);
}

static DltStatus pw_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(check_values(n, n->in[0], n->in[1], err));
    pair_out(out, dtype, 0);
    return DLT_OK;
}

static void pw_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    (void)dout;
    din[0] = dlt_build_op(b, DLT_OP_pointwise_loss_bwd, n->attr, n->in, 4);
}

const DltOpDef dlt_op_pointwise_loss_fwd = {.name = "pointwise_loss_fwd",
                                            .n_in = 4,
                                            .n_out = 1,
                                            .attr_size = sizeof(DltPointwiseLoss),
                                            .infer = pw_infer,
                                            .grad = pw_grad,
                                            .flops = flops_in10,
                                            .prec = DLT_PREC_FULL,
                                            .text = pw_text};

static DltStatus pw_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(check_values(n, n->in[0], n->in[1], err));
    return dlt_infer_same(n, out, dtype, err);
}

const DltOpDef dlt_op_pointwise_loss_bwd = {.name = "pointwise_loss_bwd",
                                            .n_in = 4,
                                            .n_out = 1,
                                            .attr_size = sizeof(DltPointwiseLoss),
                                            .infer = pw_bwd_infer,
                                            .flops = flops_in10,
                                            .inplace = 1,
                                            .prec = DLT_PREC_FULL,
                                            .text = pw_text};

/* ---- metrics: nodes without outputs that add to accumulators ---- */

static void metric(DltBuild *b, DltOpKind kind, const void *attr, DltTensor *const in[], int n_in)
{
    (void)dlt_build_node(b, kind, attr, in, n_in);
}

void dlt_metric_add(DltBuild *b, DltTensor *v, DltTensor *acc)
{
    metric(b, DLT_OP_metric_add, NULL, (DltTensor *const[]){v, acc}, 2);
}

void dlt_metric_topk(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w, DltTensor *acc,
                     int k, int ignore)
{
    DltMetricTopk a = {k, ignore};
    metric(b, DLT_OP_metric_topk, &a, (DltTensor *const[]){logits, y, w, acc}, 4);
}

void dlt_metric_confusion(DltBuild *b, DltTensor *logits, DltTensor *y, DltTensor *w,
                          DltTensor *acc)
{
    metric(b, DLT_OP_metric_confusion, NULL, (DltTensor *const[]){logits, y, w, acc}, 4);
}

void dlt_metric_regression(DltBuild *b, DltTensor *p, DltTensor *t, DltTensor *w, DltTensor *acc)
{
    metric(b, DLT_OP_metric_regression, NULL, (DltTensor *const[]){p, t, w, acc}, 4);
}

static void topk_text(const void *attr, char *buf, size_t size)
{
    dlt_attr_text(buf, size, "k=%d", ((const DltMetricTopk *)attr)->k);
}

static DltStatus labels_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)out;
    (void)dtype;
    return check_labels(n, n->in[0], n->in[1], err);
}

static DltStatus values_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)out;
    (void)dtype;
    return check_values(n, n->in[0], n->in[1], err);
}

const DltOpDef dlt_op_metric_add = {.name = "metric_add",
                                    .n_in = 2,
                                    .infer = dlt_infer_none,
                                    .flops = dlt_flops_1,
                                    .mutates = 1u << 1,
                                    .prec = DLT_PREC_FULL};
const DltOpDef dlt_op_metric_topk = {.name = "metric_topk",
                                     .n_in = 4,
                                     .attr_size = sizeof(DltMetricTopk),
                                     .infer = labels_infer,
                                     .flops = dlt_flops_1,
                                     .mutates = 1u << 3,
                                     .prec = DLT_PREC_KEEP,
                                     .full_in = 4,
                                     .text = topk_text};
const DltOpDef dlt_op_metric_confusion = {.name = "metric_confusion",
                                          .n_in = 4,
                                          .infer = labels_infer,
                                          .flops = dlt_flops_1,
                                          .mutates = 1u << 3,
                                          .prec = DLT_PREC_KEEP,
                                          .full_in = 4};
const DltOpDef dlt_op_metric_regression = {.name = "metric_regression",
                                           .n_in = 4,
                                           .infer = values_infer,
                                           .flops = dlt_flops_1,
                                           .mutates = 1u << 3,
                                           .prec = DLT_PREC_FULL};
