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

/* "3x3 stride=2x2 pad=1,1,1,1": what a window is, for dumps. */
static void window_text(const int64_t kernel[2], const int64_t stride[2], const int64_t pad[4],
                        char *buf, size_t size)
{
    dlt_attr_text(buf, size, "%lldx%lld", (long long)kernel[0], (long long)kernel[1]);
    if (stride[0] != 1 || stride[1] != 1)
        dlt_attr_text(buf, size, "stride=%lldx%lld", (long long)stride[0], (long long)stride[1]);
    if (pad[0] || pad[1] || pad[2] || pad[3])
        dlt_attr_text(buf, size, "pad=%lld,%lld,%lld,%lld", (long long)pad[0], (long long)pad[1],
                      (long long)pad[2], (long long)pad[3]);
}

static void conv_text(const void *attr, char *buf, size_t size)
{
    const DltConv *a = attr;
    window_text(a->kernel, a->stride, a->pad, buf, size);
    if (a->dilation[0] != 1 || a->dilation[1] != 1)
        dlt_attr_text(buf, size, "dilation=%lldx%lld", (long long)a->dilation[0],
                      (long long)a->dilation[1]);
    if (a->groups != 1) dlt_attr_text(buf, size, "groups=%lld", (long long)a->groups);
    dlt_epilogue_text(&a->ep, buf, size);
}

static void pool_text(const void *attr, char *buf, size_t size)
{
    const DltPool *a = attr;
    dlt_attr_text(buf, size, a->max ? "max" : "average");
    window_text(a->kernel, a->stride, a->pad, buf, size);
    if (a->ceil) dlt_attr_text(buf, size, "ceil");
    if (a->count_pad) dlt_attr_text(buf, size, "count_pad");
    if (a->ep_relu) dlt_attr_text(buf, size, "relu");
}

/* Numbers of a window along one axis that no shape arithmetic stands. */
static DltStatus check_window(const DltNode *n, int64_t kernel, int64_t stride, int64_t low_pad,
                              int64_t high_pad, DltErr *err)
{
    if (kernel < 1)
        return dlt_infer_error(n, err, "kernel: %lld is less than 1", (long long)kernel);
    if (stride < 1)
        return dlt_infer_error(n, err, "stride: %lld is less than 1", (long long)stride);
    int64_t least = low_pad < high_pad ? low_pad : high_pad;
    if (least < 0) return dlt_infer_error(n, err, "pad: %lld is less than 0", (long long)least);
    return DLT_OK;
}

static DltStatus conv_check(const DltNode *n, const DltConv *a, DltErr *err)
{
    const DltTensor *x = n->in[0], *w = n->in[1];
    char s[DLT_SHAPE_TEXT];
    for (int i = 0; i < 2; i++) {
        DLT_TRY(check_window(n, a->kernel[i], a->stride[i], a->pad[2 * i], a->pad[2 * i + 1], err));
        if (a->dilation[i] < 1)
            return dlt_infer_error(n, err, "dilation: %lld is less than 1",
                                   (long long)a->dilation[i]);
    }
    if (a->groups < 1)
        return dlt_infer_error(n, err, "groups: %lld is less than 1", (long long)a->groups);
    if (x->shape.rank != 4)
        return dlt_infer_error(n, err, "a convolution needs images [N, C, H, W], but %s is %s",
                               x->name, dlt_shape_text(&x->shape, s));
    if (w->shape.rank != 4 || w->shape.dim[2] != a->kernel[0] || w->shape.dim[3] != a->kernel[1])
        return dlt_infer_error(n, err, "filters %s are %s, not [filters, channels, %lld, %lld]",
                               w->name, dlt_shape_text(&w->shape, s), (long long)a->kernel[0],
                               (long long)a->kernel[1]);
    if (w->shape.dim[1] * a->groups != x->shape.dim[1] || w->shape.dim[0] % a->groups != 0)
        return dlt_infer_misfit(n, x, w, err, "channels do not fit the filters and groups");
    return DLT_OK;
}

static DltStatus conv_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConv *a = n->attr;
    const DltShape *x = &n->in[0]->shape;
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    DLT_TRY(conv_check(n, a, err));
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
    const DltConv *a = n->attr;
    DLT_BUG_ON(a->ep.act.fn || a->ep.save_pre); /* epilogues are set when gradients exist */
    if (dlt_needs_grad(b, n->in[0]))
        din[0] = dlt_build_op(b, DLT_OP_conv_bwd_data, n->attr,
                              (DltTensor *const[]){dout[0], n->in[1]}, 2);
    if (dlt_needs_grad(b, n->in[1]))
        din[1] = dlt_build_op(b, DLT_OP_conv_bwd_filter, n->attr,
                              (DltTensor *const[]){n->in[0], dout[0]}, 2);
    if (n->in[2] && dlt_needs_grad(b, n->in[2])) din[2] = dlt_bias_grad(b, dout[0], 1);
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
                                  .any_layout = true,
                                  .optional = 1u << 2,
                                  .image_in = 1,
                                  .image_out = 3,
                                  .text = conv_text};

static DltStatus bwd_data_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConv *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], 4, err));
    DLT_TRY(dlt_infer_rank(n, n->in[1], 4, err));
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
                                       .any_layout = true,
                                       .optional = 1u << 2,
                                       .image_in = 1u | 1u << 2,
                                       .image_out = 1,
                                       .text = conv_text};

static DltStatus bwd_filter_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConv *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], 4, err));
    DLT_TRY(dlt_infer_rank(n, n->in[1], 4, err));
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
                                         .any_layout = true,
                                         .image_in = 3,
                                         .text = conv_text};

/* ---- pooling ---- */

static DltStatus pool_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltPool *a = n->attr;
    const DltTensor *x = n->in[0];
    char s[DLT_SHAPE_TEXT];
    if (x->shape.rank != 4)
        return dlt_infer_error(n, err, "pooling needs images [N, C, H, W], but %s is %s", x->name,
                               dlt_shape_text(&x->shape, s));
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    for (int i = 0; i < 2; i++) {
        DLT_TRY(check_window(n, a->kernel[i], a->stride[i], a->pad[2 * i], a->pad[2 * i + 1], err));
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
                                  .any_layout = true,
                                  .image_in = 1,
                                  .image_out = 3,
                                  .text = pool_text};

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
                                  .any_layout = true,
                                  .optional = 1u << 1,
                                  .image_in = 3,
                                  .image_out = 1,
                                  .text = pool_text};

/* ---- convolution and pooling as one ---- */

static void conv_pool_text(const void *attr, char *buf, size_t size)
{
    const DltConvPool *a = attr;
    conv_text(&a->conv, buf, size);
    dlt_attr_text(buf, size, "pool");
    pool_text(&a->pool, buf, size);
}

static DltStatus conv_pool_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConvPool *a = n->attr;
    DltNode conv = *n, pool = *n;
    conv.attr = &a->conv;
    DLT_TRY(conv_infer(&conv, out, dtype, err));
    DltTensor between = *n->in[0];
    between.shape = out[0];
    pool.attr = &a->pool;
    pool.in[0] = &between;
    return pool_infer(&pool, out, dtype, err);
}

static void conv_pool_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *x = n->in[0], *w = n->in[1], *index = n->out[1];
    if (dlt_needs_grad(b, x))
        din[0] = dlt_build_op(b, DLT_OP_conv_pool_bwd_data, n->attr,
                              (DltTensor *const[]){dout[0], index, w}, 3);
    DltConvPool a = *(const DltConvPool *)n->attr;
    a.bias = n->in[2] && dlt_needs_grad(b, n->in[2]);
    if (!a.bias && !dlt_needs_grad(b, w)) return;
    din[1] = dlt_build_op(b, DLT_OP_conv_pool_bwd_filter, &a,
                          (DltTensor *const[]){x, dout[0], index}, 3);
    if (a.bias && !dlt_build_failed(b)) din[2] = din[1]->producer->out[1];
}

/* N K P Q C/groups R S products, P and Q of the image between. */
static double conv_pool_work(const DltConvPool *a, const DltTensor *y, int64_t channels)
{
    DltShape between = y->shape;
    between.dim[2] = a->pool.in_hw[0];
    between.dim[3] = a->pool.in_hw[1];
    return conv_work(&a->conv, &between, channels);
}

static double conv_pool_flops(const DltNode *n)
{
    return conv_pool_work(n->attr, n->out[0], n->in[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_pool_fwd = {.name = "conv_pool_fwd",
                                       .n_in = 3,
                                       .n_out = 2,
                                       .attr_size = sizeof(DltConvPool),
                                       .infer = conv_pool_infer,
                                       .grad = conv_pool_grad,
                                       .flops = conv_pool_flops,
                                       .prec = DLT_PREC_LOW,
                                       .any_layout = true,
                                       .optional = 1u << 2,
                                       .image_in = 1,
                                       .image_out = 3,
                                       .text = conv_pool_text};

static DltStatus conv_pool_data_infer(const DltNode *n, DltShape out[], DltDtype dtype[],
                                      DltErr *err)
{
    const DltConvPool *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], 4, err));
    DLT_TRY(dlt_infer_rank(n, n->in[2], 4, err));
    out[0] = dlt_shape4(n->in[0]->shape.dim[0], n->in[2]->shape.dim[1] * a->conv.groups,
                        a->conv.in_hw[0], a->conv.in_hw[1]);
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

static double conv_pool_data_flops(const DltNode *n)
{
    return conv_pool_work(n->attr, n->in[0], n->out[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_pool_bwd_data = {.name = "conv_pool_bwd_data",
                                            .n_in = 3,
                                            .n_out = 1,
                                            .attr_size = sizeof(DltConvPool),
                                            .infer = conv_pool_data_infer,
                                            .flops = conv_pool_data_flops,
                                            .prec = DLT_PREC_LOW,
                                            .any_layout = true,
                                            .image_in = 3,
                                            .image_out = 1,
                                            .text = conv_pool_text};

static DltStatus conv_pool_filter_infer(const DltNode *n, DltShape out[], DltDtype dtype[],
                                        DltErr *err)
{
    const DltConvPool *a = n->attr;
    DltNode conv = *n;
    conv.attr = &a->conv;
    DLT_TRY(bwd_filter_infer(&conv, out, dtype, err));
    if (a->bias) {
        out[1] = dlt_shape1(n->in[1]->shape.dim[1]);
        dtype[1] = DLT_F32;
    }
    return DLT_OK;
}

static double conv_pool_filter_flops(const DltNode *n)
{
    return conv_pool_work(n->attr, n->in[1], n->in[0]->shape.dim[1]);
}

const DltOpDef dlt_op_conv_pool_bwd_filter = {.name = "conv_pool_bwd_filter",
                                              .n_in = 3,
                                              .n_out = 2,
                                              .attr_size = sizeof(DltConvPool),
                                              .infer = conv_pool_filter_infer,
                                              .flops = conv_pool_filter_flops,
                                              .prec = DLT_PREC_LOW,
                                              .any_layout = true,
                                              .image_in = 7,
                                              .text = conv_pool_text};
