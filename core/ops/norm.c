/* Normalisations and softmax: shapes and gradient rules (formulas in ops/norm.h). */
#include "ops/norm.h"
#include "ops/infer.h"

static void norm_text(const void *attr, char *buf, size_t size)
{
    const DltNorm *a = attr;
    dlt_attr_text(buf, size, "eps=%g", (double)a->eps);
    if (a->groups > 0) dlt_attr_text(buf, size, "groups=%lld", (long long)a->groups);
    if (a->relu) dlt_attr_text(buf, size, "relu");
    if (a->bits) dlt_attr_text(buf, size, "bits");
    if (a->has_res) dlt_attr_text(buf, size, "res");
    if (a->bias) dlt_attr_text(buf, size, "bias");
}

/* Outputs mean and rstd: f32 statistics of the given shape. */
static void statistics(DltShape out[], DltDtype dtype[], int from, DltShape shape)
{
    for (int i = from; i < from + 2 && i < DLT_MAX_OUT; i++) {
        out[i] = shape;
        dtype[i] = DLT_F32;
    }
}

/* Gradients dx (like x) and of two parameter vectors. */
static void gradients(const DltNode *n, DltShape out[], DltDtype dtype[], const DltTensor *x,
                      int n_param)
{
    out[0] = x->shape;
    dtype[0] = n->in[0]->dtype;
    for (int i = 1; i <= n_param; i++) {
        out[i] = n->in[2]->shape;
        dtype[i] = DLT_F32;
    }
}

static DltStatus check_channels(const DltNode *n, int from, int to, DltErr *err)
{
    char s[DLT_SHAPE_TEXT];
    const DltTensor *x = n->in[0];
    if (x->shape.rank < 2)
        return dlt_infer_error(n, err, "%s %s has no channel axis", x->name,
                               dlt_shape_text(&x->shape, s));
    for (int i = from; i <= to; i++)
        if (n->in[i]) DLT_TRY(dlt_infer_vector(n, n->in[i], x->shape.dim[1], err));
    return DLT_OK;
}

static DltStatus check_residual(const DltNode *n, const DltTensor *r, DltErr *err)
{
    if (!r || dlt_shape_equal(&r->shape, &n->in[0]->shape)) return DLT_OK;
    return dlt_infer_misfit(n, n->in[0], r, err, "the residual needs an equal shape");
}

/* ---- batch norm ---- */

static DltStatus bn_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(check_channels(n, 1, 4, err));
    DLT_TRY(check_residual(n, n->in[5], err));
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    statistics(out, dtype, 1, dlt_shape1(n->in[0]->shape.dim[1]));
    if (!((const DltNorm *)n->attr)->bits) return DLT_OK;
    out[3] = n->in[0]->shape;
    out[3].dim[1] = (out[3].dim[1] + 7) / 8;
    dtype[3] = DLT_U8;
    return DLT_OK;
}

static DltStatus bn_infer_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(check_channels(n, 1, 4, err));
    DLT_TRY(check_residual(n, n->in[5], err));
    return dlt_infer_like(n, out, dtype, err);
}

DltTensor *dlt_batch_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, DltTensor *mean,
                          DltTensor *var, const DltNorm *a)
{
    DltTensor *const in[] = {x, w, bias, mean, var};
    return dlt_build_op(b, b->training ? DLT_OP_batch_norm_fwd : DLT_OP_batch_norm_infer, a, in, 5);
}

static void bn_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltNorm a = *(const DltNorm *)n->attr;
    a.has_res = n->in[5] != NULL;
    DltTensor *saved = a.bits ? n->out[3] : a.relu ? n->out[0] : NULL;
    DltTensor *const in[] = {dout[0], n->in[0], n->in[1], n->out[1], n->out[2], saved};
    DltNode *g = dlt_build_node(b, DLT_OP_batch_norm_bwd, &a, in, 6);
    if (!g) return;
    for (int i = 0; i < 3; i++)
        din[i] = g->out[i];
    din[5] = g->out[3];
}

const DltOpDef dlt_op_batch_norm_fwd = {.name = "batch_norm_fwd",
                                        .n_in = 6,
                                        .n_out = 4,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = bn_infer,
                                        .grad = bn_grad,
                                        .flops = dlt_flops_10,
                                        .mutates = 1u << 3 | 1u << 4,
                                        .prec = DLT_PREC_KEEP,
                                        .any_layout = true,
                                        .optional = 1u << 5,
                                        .full_in = 0x1e,
                                        .image_in = 1u | 1u << 5,
                                        .image_out = 1u | 1u << 3,
                                        .text = norm_text};

static DltStatus bn_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    const DltNorm *a = n->attr;
    gradients(n, out, dtype, n->in[1], 2);
    if (a->has_res) {
        out[3] = n->in[1]->shape;
        dtype[3] = n->in[0]->dtype;
    }
    return DLT_OK;
}

const DltOpDef dlt_op_batch_norm_bwd = {.name = "batch_norm_bwd",
                                        .n_in = 7,
                                        .n_out = 4,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = bn_bwd_infer,
                                        .flops = dlt_flops_10,
                                        .inplace = 1,
                                        .prec = DLT_PREC_KEEP,
                                        .any_layout = true,
                                        .optional = 1u << 5 | 1u << 6,
                                        .full_in = 0x1c,
                                        .image_in = 3u | 1u << 5 | 1u << 6,
                                        .image_out = 1u | 1u << 3,
                                        .text = norm_text};

const DltOpDef dlt_op_batch_norm_infer = {.name = "batch_norm_infer",
                                          .n_in = 6,
                                          .n_out = 1,
                                          .attr_size = sizeof(DltNorm),
                                          .infer = bn_infer_infer,
                                          .flops = dlt_flops_10,
                                          .inplace = 1,
                                          .prec = DLT_PREC_KEEP,
                                          .any_layout = true,
                                          .optional = 1u << 5,
                                          .full_in = 0x1e,
                                          .image_in = 1u | 1u << 5,
                                          .image_out = 1,
                                          .text = norm_text};

/* ---- layer norm and rms norm ---- */

static DltShape rows_of(const DltShape *x)
{
    DltShape r = *x;
    r.rank = x->rank - 1;
    return r;
}

static DltStatus ln_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(dlt_infer_rank(n, n->in[0], 1, err));
    int64_t c = dlt_shape_dim(&n->in[0]->shape, -1);
    DLT_TRY(dlt_infer_vector(n, n->in[1], c, err));
    if (n->in[2]) DLT_TRY(dlt_infer_vector(n, n->in[2], c, err));
    DLT_TRY(check_residual(n, n->in[3], err));
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    statistics(out, dtype, 1, rows_of(&out[0]));
    if (n->in[3]) {
        out[3] = out[0];
        dtype[3] = dtype[0];
    }
    return DLT_OK;
}

DltTensor *dlt_layer_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, float eps)
{
    DltNorm a = {.eps = eps};
    return dlt_build_op(b, DLT_OP_layer_norm_fwd, &a, (DltTensor *const[]){x, w, bias}, 3);
}

/* With a residual, what was normalised is the sum, and its own gradient joins through dsum. */
static void ln_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *x = n->in[3] ? n->out[3] : n->in[0];
    DltTensor *const in[] = {dout[0], x, n->in[1], n->out[1], n->out[2], n->in[3] ? dout[3] : NULL};
    DltNode *g = dlt_build_node(b, DLT_OP_layer_norm_bwd, n->attr, in, 6);
    if (!g) return;
    for (int i = 0; i < 3; i++)
        din[i] = g->out[i];
    if (n->in[3]) din[3] = g->out[0];
}

const DltOpDef dlt_op_layer_norm_fwd = {.name = "layer_norm_fwd",
                                        .n_in = 4,
                                        .n_out = 4,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = ln_infer,
                                        .grad = ln_grad,
                                        .flops = dlt_flops_10,
                                        .prec = DLT_PREC_KEEP,
                                        .optional = 1u << 2 | 1u << 3,
                                        .full_in = 6,
                                        .text = norm_text};

/* Column sums of dx, where the attributes ask for them. */
static void bias_gradient(const DltNode *n, DltShape *out, DltDtype *dtype)
{
    *out = dlt_shape1(dlt_shape_dim(&n->in[1]->shape, -1));
    *dtype = DLT_F32;
    if (!((const DltNorm *)n->attr)->bias) out->rank = -1;
}

static DltStatus ln_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    gradients(n, out, dtype, n->in[1], 2);
    bias_gradient(n, &out[3], &dtype[3]);
    return DLT_OK;
}

const DltOpDef dlt_op_layer_norm_bwd = {.name = "layer_norm_bwd",
                                        .n_in = 6,
                                        .n_out = 4,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = ln_bwd_infer,
                                        .flops = dlt_flops_10,
                                        .inplace = 1,
                                        .prec = DLT_PREC_KEEP,
                                        .optional = 1u << 5,
                                        .full_in = 0x1c,
                                        .text = norm_text};

static DltStatus rms_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(dlt_infer_rank(n, n->in[0], 1, err));
    DLT_TRY(dlt_infer_vector(n, n->in[1], dlt_shape_dim(&n->in[0]->shape, -1), err));
    DLT_TRY(check_residual(n, n->in[2], err));
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    out[1] = rows_of(&out[0]);
    dtype[1] = DLT_F32;
    if (n->in[2]) {
        out[2] = out[0];
        dtype[2] = dtype[0];
    }
    return DLT_OK;
}

DltTensor *dlt_rms_norm(DltBuild *b, DltTensor *x, DltTensor *w, float eps)
{
    DltNorm a = {.eps = eps};
    return dlt_build_op(b, DLT_OP_rms_norm_fwd, &a, (DltTensor *const[]){x, w}, 2);
}

static void rms_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *x = n->in[2] ? n->out[2] : n->in[0];
    DltTensor *const in[] = {dout[0], x, n->in[1], n->out[1], n->in[2] ? dout[2] : NULL};
    DltNode *g = dlt_build_node(b, DLT_OP_rms_norm_bwd, n->attr, in, 5);
    if (!g) return;
    din[0] = g->out[0];
    din[1] = g->out[1];
    if (n->in[2]) din[2] = g->out[0];
}

const DltOpDef dlt_op_rms_norm_fwd = {.name = "rms_norm_fwd",
                                      .n_in = 3,
                                      .n_out = 3,
                                      .attr_size = sizeof(DltNorm),
                                      .infer = rms_infer,
                                      .grad = rms_grad,
                                      .flops = dlt_flops_10,
                                      .prec = DLT_PREC_KEEP,
                                      .optional = 1u << 2,
                                      .full_in = 2,
                                      .text = norm_text};

static DltStatus rms_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    gradients(n, out, dtype, n->in[1], 1);
    bias_gradient(n, &out[2], &dtype[2]);
    return DLT_OK;
}

const DltOpDef dlt_op_rms_norm_bwd = {.name = "rms_norm_bwd",
                                      .n_in = 5,
                                      .n_out = 3,
                                      .attr_size = sizeof(DltNorm),
                                      .infer = rms_bwd_infer,
                                      .flops = dlt_flops_10,
                                      .inplace = 1,
                                      .prec = DLT_PREC_KEEP,
                                      .optional = 1u << 4,
                                      .full_in = 0xc,
                                      .text = norm_text};

/* ---- group norm ---- */

static DltStatus gn_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltNorm *a = n->attr;
    DLT_TRY(check_channels(n, 1, 2, err));
    int64_t c = n->in[0]->shape.dim[1];
    if (a->groups < 1 || c % a->groups != 0)
        return dlt_infer_error(n, err, "groups: %lld does not divide the %lld channels of %s",
                               (long long)a->groups, (long long)c, n->in[0]->name);
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    statistics(out, dtype, 1, dlt_shape2(out[0].dim[0], a->groups));
    return DLT_OK;
}

DltTensor *dlt_group_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, int64_t groups,
                          float eps)
{
    DltNorm a = {.eps = eps, .groups = groups};
    return dlt_build_op(b, DLT_OP_group_norm_fwd, &a, (DltTensor *const[]){x, w, bias}, 3);
}

static void gn_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *const in[] = {dout[0], n->in[0], n->in[1], n->out[1], n->out[2]};
    DltNode *g = dlt_build_node(b, DLT_OP_group_norm_bwd, n->attr, in, 5);
    for (int i = 0; g && i < 3; i++)
        din[i] = g->out[i];
}

const DltOpDef dlt_op_group_norm_fwd = {.name = "group_norm_fwd",
                                        .n_in = 3,
                                        .n_out = 3,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = gn_infer,
                                        .grad = gn_grad,
                                        .flops = dlt_flops_10,
                                        .prec = DLT_PREC_KEEP,
                                        .optional = 1u << 2,
                                        .full_in = 6,
                                        .text = norm_text};
const DltOpDef dlt_op_group_norm_bwd = {.name = "group_norm_bwd",
                                        .n_in = 5,
                                        .n_out = 3,
                                        .attr_size = sizeof(DltNorm),
                                        .infer = ln_bwd_infer,
                                        .flops = dlt_flops_10,
                                        .prec = DLT_PREC_KEEP,
                                        .full_in = 0x1c,
                                        .text = norm_text};

/* ---- softmax ---- */

static DltStatus softmax_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(dlt_infer_rank(n, n->in[0], 1, err));
    if (n->in[1] && !dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return dlt_infer_misfit(n, n->in[0], n->in[1], err, "shapes must be equal");
    return dlt_infer_like(n, out, dtype, err);
}

DltTensor *dlt_softmax(DltBuild *b, DltTensor *x)
{
    return dlt_build_op(b, DLT_OP_softmax_fwd, NULL, &x, 1);
}

static void softmax_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_build_op(b, DLT_OP_softmax_bwd, NULL, (DltTensor *const[]){dout[0], n->out[0]}, 2);
}

const DltOpDef dlt_op_softmax_fwd = {.name = "softmax_fwd",
                                     .n_in = 1,
                                     .n_out = 1,
                                     .infer = softmax_infer,
                                     .grad = softmax_grad,
                                     .flops = dlt_flops_10,
                                     .inplace = 1,
                                     .prec = DLT_PREC_KEEP};
const DltOpDef dlt_op_softmax_bwd = {.name = "softmax_bwd",
                                     .n_in = 2,
                                     .n_out = 1,
                                     .infer = softmax_infer,
                                     .flops = dlt_flops_10,
                                     .inplace = 3,
                                     .prec = DLT_PREC_KEEP};
