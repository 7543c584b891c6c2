/* Convolution and pooling: shape arithmetic (PyTorch's formulas) and gradient rules. */
#include "ops/conv.h"
#include "ops/infer.h"

/* Positions of a window along one axis; 0 or less when it does not fit. */
static int64_t positions(int64_t size, int64_t pad, int64_t span, int64_t stride, bool ceil)
{
    int64_t room = size + pad - span;
    if (room < 0) return 0;
    return (room + (ceil ? stride - 1 : 0)) / stride + 1;
}

static DltStatus conv_check(const DltNode *n, const DltConv *a, DltErr *err)
{
    const DltTensor *x = n->in[0], *w = n->in[1];
    char s[DLT_SHAPE_TEXT];
    if (x->shape.rank != 4)
        return dlt_infer_error(n, err, "a convolution needs images [N, C, H, W], but %s is %s",
                               x->name, dlt_shape_text(&x->shape, s));
    if (w->shape.dim[1] * a->groups != x->shape.dim[1] || w->shape.dim[0] % a->groups != 0)
        return dlt_infer_misfit(n, x, w, err, "channels do not fit the filters and groups");
    return DLT_OK;
}

static DltStatus conv_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConv *a = n->attr;
    const DltShape *x = &n->in[0]->shape;
    DLT_TRY(conv_check(n, a, err));
    out[0] = *x;
    out[0].dim[1] = n->in[1]->shape.dim[0];
    for (int i = 0; i < 2; i++) {
        int64_t span = a->dilation[i] * (a->kernel[i] - 1) + 1;
        out[0].dim[2 + i] =
            positions(x->dim[2 + i], a->pad[2 * i] + a->pad[2 * i + 1], span, a->stride[i], false);
        if (out[0].dim[2 + i] < 1)
            return dlt_infer_error(
                n, err, "the kernel spans %lld %s (dilation included) but %s has %lld with padding",
                (long long)span, i ? "columns" : "rows", n->in[0]->name,
                (long long)(x->dim[2 + i] + a->pad[2 * i] + a->pad[2 * i + 1]));
    }
    if (n->in[2]) DLT_TRY(dlt_infer_vector(n, n->in[2], out[0].dim[1], err));
    dtype[0] = n->in[0]->dtype;
    if (a->ep.save_pre) {
        out[1] = out[0];
        dtype[1] = dtype[0];
    }
    return DLT_OK;
}

DltTensor *dlt_conv(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, const DltConv *attr)
{
    DltConv a = *attr;
    if (x->id >= 0 && x->shape.rank == 4) {
        a.in_hw[0] = x->shape.dim[2];
        a.in_hw[1] = x->shape.dim[3];
    }
    DltTensor *y = dlt_build_op(b, DLT_OP_conv_fwd, &a, (DltTensor *const[]){x, w}, 2);
    return bias ? dlt_bias(b, y, bias, 1) : y;
}

static void conv_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    if (dlt_needs_grad(b, n->in[0]))
        din[0] = dlt_build_op(b, DLT_OP_conv_bwd_data, n->attr,
                              (DltTensor *const[]){dout[0], n->in[1]}, 2);
    if (dlt_needs_grad(b, n->in[1]))
        din[1] = dlt_build_op(b, DLT_OP_conv_bwd_filter, n->attr,
                              (DltTensor *const[]){n->in[0], dout[0]}, 2);
}

/* 2 R S C/groups per output element; the same for both gradients. */
static double conv_work(const DltConv *a, const DltShape *y, int64_t channels)
{
    return 2.0 * (double)dlt_shape_count(y) * (double)(channels / a->groups) *
           (double)(a->kernel[0] * a->kernel[1]);
}

static double conv_flops(const DltNode *n)
{
    return conv_work(n->attr, &n->out[0]->shape, n->in[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_fwd = {.name = "conv_fwd",
                                  .n_in = 3,
                                  .n_out = 2,
                                  .attr_size = sizeof(DltConv),
                                  .infer = conv_infer,
                                  .grad = conv_grad,
                                  .flops = conv_flops,
                                  .prec = DLT_PREC_LOW,
                                  .any_layout = true};

static DltStatus bwd_data_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    const DltConv *a = n->attr;
    const DltShape *dy = &n->in[0]->shape;
    out[0] = dlt_shape4(dy->dim[0], n->in[1]->shape.dim[1] * a->groups, a->in_hw[0], a->in_hw[1]);
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

static double bwd_data_flops(const DltNode *n)
{
    return conv_work(n->attr, &n->in[0]->shape, n->out[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_bwd_data = {.name = "conv_bwd_data",
                                       .n_in = 3,
                                       .n_out = 1,
                                       .attr_size = sizeof(DltConv),
                                       .infer = bwd_data_infer,
                                       .flops = bwd_data_flops,
                                       .prec = DLT_PREC_LOW,
                                       .any_layout = true};

static DltStatus bwd_filter_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    const DltConv *a = n->attr;
    out[0] = dlt_shape4(n->in[1]->shape.dim[1], n->in[0]->shape.dim[1] / a->groups, a->kernel[0],
                        a->kernel[1]);
    dtype[0] = DLT_F32;
    return DLT_OK;
}

static double bwd_filter_flops(const DltNode *n)
{
    return conv_work(n->attr, &n->in[1]->shape, n->in[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_bwd_filter = {.name = "conv_bwd_filter",
                                         .n_in = 2,
                                         .n_out = 1,
                                         .attr_size = sizeof(DltConv),
                                         .infer = bwd_filter_infer,
                                         .flops = bwd_filter_flops,
                                         .prec = DLT_PREC_LOW,
                                         .any_layout = true};

/* ---- pooling ---- */

static DltStatus pool_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltPool *a = n->attr;
    const DltTensor *x = n->in[0];
    char s[DLT_SHAPE_TEXT];
    if (x->shape.rank != 4)
        return dlt_infer_error(n, err, "pooling needs images [N, C, H, W], but %s is %s", x->name,
                               dlt_shape_text(&x->shape, s));
    out[0] = x->shape;
    dtype[0] = x->dtype;
    for (int i = 0; i < 2; i++) {
        int64_t size = x->shape.dim[2 + i], lo = a->pad[2 * i], hi = a->pad[2 * i + 1];
        if (2 * lo > a->kernel[i] || 2 * hi > a->kernel[i])
            return dlt_infer_error(n, err, "padding %lld is more than half of the window %lld",
                                   (long long)(lo > hi ? lo : hi), (long long)a->kernel[i]);
        int64_t p = positions(size, lo + hi, a->kernel[i], a->stride[i], a->ceil);
        if (a->ceil && p > 0 && (p - 1) * a->stride[i] >= size + lo)
            p--; /* no window beyond the image */
        if (p < 1)
            return dlt_infer_error(n, err, "the window of %lld %s does not fit %s %s",
                                   (long long)a->kernel[i], i ? "columns" : "rows", x->name,
                                   dlt_shape_text(&x->shape, s));
        out[0].dim[2 + i] = p;
    }
    if (a->max) {
        out[1] = out[0];
        dtype[1] = a->kernel[0] * a->kernel[1] <= 256 ? DLT_U8 : DLT_I32;
    }
    return DLT_OK;
}

DltTensor *dlt_pool(DltBuild *b, DltTensor *x, const DltPool *attr)
{
    DltPool a = *attr;
    if (x->id >= 0 && x->shape.rank == 4) {
        a.in_hw[0] = x->shape.dim[2];
        a.in_hw[1] = x->shape.dim[3];
    }
    return dlt_build_op(b, DLT_OP_pool_fwd, &a, &x, 1);
}

static void pool_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_build_op(b, DLT_OP_pool_bwd, n->attr, (DltTensor *const[]){dout[0], n->out[1]}, 2);
}

static double pool_flops(const DltNode *n)
{
    const DltPool *a = n->attr;
    const DltTensor *y = n->kind == DLT_OP_pool_fwd ? n->out[0] : n->in[0];
    return (double)dlt_shape_count(&y->shape) * (double)(a->kernel[0] * a->kernel[1]);
}

const DltOpDef dlt_op_pool_fwd = {.name = "pool_fwd",
                                  .n_in = 1,
                                  .n_out = 2,
                                  .attr_size = sizeof(DltPool),
                                  .infer = pool_infer,
                                  .grad = pool_grad,
                                  .flops = pool_flops,
                                  .prec = DLT_PREC_KEEP,
                                  .any_layout = true};

static DltStatus pool_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    (void)err;
    const DltPool *a = n->attr;
    const DltShape *dy = &n->in[0]->shape;
    out[0] = dlt_shape4(dy->dim[0], dy->dim[1], a->in_hw[0], a->in_hw[1]);
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

const DltOpDef dlt_op_pool_bwd = {.name = "pool_bwd",
                                  .n_in = 2,
                                  .n_out = 1,
                                  .attr_size = sizeof(DltPool),
                                  .infer = pool_bwd_infer,
                                  .flops = pool_flops,
                                  .prec = DLT_PREC_KEEP,
                                  .any_layout = true};
