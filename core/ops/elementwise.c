/* Shape and gradient rules of the elementwise ops (ops/elementwise.h). */
#include "ops/elementwise.h"
#include "ops/infer.h"
#include "ops/shape_ops.h"

static const struct {
    const char *name;
    bool saves_y;
} unary_row[DLT_N_FN] = {[DLT_FN_NONE] = {"none", false},
#define F(id, text, y) [DLT_FN_##id] = {text, y},
                         DLT_UNARY_TABLE(F)
#undef F
};

bool dlt_unary_saves_y(DltUnaryFn fn)
{
    return unary_row[fn].saves_y;
}

const char *dlt_unary_name(DltUnaryFn fn)
{
    return unary_row[fn].name;
}

/* ---- unary ---- */

static void unary_text(const void *attr, char *buf, size_t size)
{
    const DltUnary *a = attr;
    dlt_attr_text(buf, size, "%s", dlt_unary_name(a->fn));
    if (a->alpha != 0) dlt_attr_text(buf, size, "alpha=%g", a->alpha);
}

DltTensor *dlt_unary(DltBuild *b, DltTensor *x, DltUnaryFn fn, double alpha)
{
    DltUnary a = {fn, alpha};
    return dlt_build_op(b, DLT_OP_unary_fwd, &a, &x, 1);
}

DltTensor *dlt_unary_grad(DltBuild *b, DltTensor *dy, DltTensor *saved, DltUnaryFn fn, double alpha)
{
    DltUnary a = {fn, alpha};
    return dlt_build_op(b, DLT_OP_unary_bwd, &a, (DltTensor *const[]){dy, saved}, 2);
}

static void unary_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltUnary *a = n->attr;
    din[0] = dlt_unary_grad(b, dout[0], dlt_unary_saves_y(a->fn) ? n->out[0] : n->in[0], a->fn,
                            a->alpha);
}

const DltOpDef dlt_op_unary_fwd = {.name = "unary_fwd",
                                   .n_in = 1,
                                   .n_out = 1,
                                   .attr_size = sizeof(DltUnary),
                                   .infer = dlt_infer_like,
                                   .grad = unary_grad,
                                   .flops = dlt_flops_1,
                                   .inplace = 1,
                                   .prec = DLT_PREC_KEEP,
                                   .any_layout = true,
                                   .text = unary_text};

static DltStatus unary_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    if (!dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return dlt_infer_misfit(n, n->in[0], n->in[1], err, "shapes must be equal");
    return dlt_infer_like(n, out, dtype, err);
}

const DltOpDef dlt_op_unary_bwd = {.name = "unary_bwd",
                                   .n_in = 2,
                                   .n_out = 1,
                                   .attr_size = sizeof(DltUnary),
                                   .infer = unary_bwd_infer,
                                   .flops = dlt_flops_1,
                                   .inplace = 3,
                                   .prec = DLT_PREC_KEEP,
                                   .any_layout = true,
                                   .text = unary_text};

void dlt_act_bwd_text(const void *attr, char *buf, size_t size)
{
    const DltActBwd *a = attr;
    unary_text(&a->unary, buf, size);
    if (a->remake) dlt_attr_text(buf, size, "remake");
    if (a->sums) dlt_attr_text(buf, size, "sums");
}

static DltStatus act_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltActBwd *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], 1, err));
    DLT_TRY(unary_bwd_infer(n, out, dtype, err));
    out[1] = out[0];
    dtype[1] = dtype[0];
    out[2] = dlt_shape1(dlt_shape_dim(&out[0], -1));
    dtype[2] = DLT_F32;
    if (!a->remake) out[1].rank = -1;
    if (!a->sums) out[2].rank = -1;
    return DLT_OK;
}

const DltOpDef dlt_op_act_bwd = {.name = "act_bwd",
                                 .n_in = 2,
                                 .n_out = 3,
                                 .attr_size = sizeof(DltActBwd),
                                 .infer = act_bwd_infer,
                                 .flops = dlt_flops_1,
                                 .inplace = 1,
                                 .prec = DLT_PREC_KEEP,
                                 .text = dlt_act_bwd_text};

/* ---- binary ---- */

static void binary_text(const void *attr, char *buf, size_t size)
{
    static const char *const name[DLT_N_BINARY] = {"add", "sub", "mul", "div"};
    dlt_attr_text(buf, size, "%s", name[((const DltBinary *)attr)->fn]);
}

DltTensor *dlt_binary(DltBuild *b, DltTensor *x, DltTensor *y, DltBinaryFn fn)
{
    DltBinary a = {fn};
    return dlt_build_op(b, DLT_OP_binary, &a, (DltTensor *const[]){x, y}, 2);
}

DltTensor *dlt_add(DltBuild *b, DltTensor *x, DltTensor *y)
{
    return dlt_binary(b, x, y, DLT_ADD);
}

DltTensor *dlt_mul(DltBuild *b, DltTensor *x, DltTensor *y)
{
    return dlt_binary(b, x, y, DLT_MUL);
}

static DltStatus binary_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltShape *a = &n->in[0]->shape, *b = &n->in[1]->shape;
    bool fits = a->rank == b->rank;
    for (int i = 0; fits && i < a->rank; i++)
        fits = b->dim[i] == a->dim[i] || b->dim[i] == 1;
    if (!fits)
        return dlt_infer_misfit(n, n->in[0], n->in[1], err,
                                "shapes must be equal (or 1 in the second)");
    return dlt_infer_like(n, out, dtype, err);
}

/* Sums a gradient down to the shape of a broadcast operand. */
static DltTensor *sum_to(DltBuild *b, DltTensor *d, const DltTensor *like)
{
    uint32_t axes = 0;
    if (d->id < 0) return d;
    for (int i = 0; i < d->shape.rank; i++)
        if (like->shape.dim[i] == 1 && d->shape.dim[i] != 1) axes |= 1u << i;
    return axes ? dlt_reduce(b, d, axes, false) : d;
}

static void binary_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltBinary *a = n->attr;
    DltTensor *x = n->in[0], *y = n->in[1], *d = dout[0], *dy = NULL;
    if (dlt_needs_grad(b, x)) din[0] = a->fn <= DLT_SUB ? d : dlt_binary(b, d, y, a->fn);
    if (!dlt_needs_grad(b, y)) return;
    if (a->fn == DLT_ADD)
        dy = d;
    else if (a->fn == DLT_SUB)
        dy = dlt_unary(b, d, DLT_FN_SCALE, -1.0f);
    else if (a->fn == DLT_MUL)
        dy = dlt_mul(b, d, x);
    else /* -(d * out) / y */
        dy = dlt_unary(b, dlt_binary(b, dlt_mul(b, d, n->out[0]), y, DLT_DIV), DLT_FN_SCALE, -1.0f);
    din[1] = sum_to(b, dy, y);
}

const DltOpDef dlt_op_binary = {.name = "binary",
                                .n_in = 2,
                                .n_out = 1,
                                .attr_size = sizeof(DltBinary),
                                .infer = binary_infer,
                                .grad = binary_grad,
                                .flops = dlt_flops_1,
                                .inplace = 1,
                                .prec = DLT_PREC_KEEP,
                                .any_layout = true,
                                .text = binary_text};

/* ---- bias ---- */

static void bias_text(const void *attr, char *buf, size_t size)
{
    dlt_attr_text(buf, size, "axis=%d", ((const DltBias *)attr)->axis);
}

DltTensor *dlt_bias(DltBuild *b, DltTensor *x, DltTensor *bias, int axis)
{
    DltBias a = {.axis = axis, .channels = dlt_dim(bias, 0)};
    return dlt_build_op(b, DLT_OP_bias_fwd, &a, (DltTensor *const[]){x, bias}, 2);
}

static DltStatus bias_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltBias *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], a->axis + 1, err));
    DLT_TRY(dlt_infer_vector(n, n->in[1], dlt_shape_dim(&n->in[0]->shape, a->axis), err));
    return dlt_infer_like(n, out, dtype, err);
}

DltTensor *dlt_bias_grad(DltBuild *b, DltTensor *dy, int axis)
{
    DltBias a = {.axis = axis, .channels = dlt_dim(dy, axis)};
    return dlt_build_op(b, DLT_OP_bias_bwd, &a, &dy, 1);
}

static void bias_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dout[0];
    if (dlt_needs_grad(b, n->in[1]))
        din[1] = dlt_bias_grad(b, dout[0], ((const DltBias *)n->attr)->axis);
}

const DltOpDef dlt_op_bias_fwd = {.name = "bias_fwd",
                                  .n_in = 2,
                                  .n_out = 1,
                                  .attr_size = sizeof(DltBias),
                                  .infer = bias_infer,
                                  .grad = bias_grad,
                                  .flops = dlt_flops_1,
                                  .inplace = 1,
                                  .prec = DLT_PREC_KEEP,
                                  .any_layout = true,
                                  .text = bias_text};

/* The gradient of a parameter is f32 whatever the type of dy. */
static DltStatus bias_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltBias *a = n->attr;
    char s[DLT_SHAPE_TEXT];
    DLT_TRY(dlt_infer_rank(n, n->in[0], a->axis + 1, err));
    if (n->in[0]->shape.dim[a->axis] != a->channels)
        return dlt_infer_error(n, err, "%s %s has not %lld channels on axis %d", n->in[0]->name,
                               dlt_shape_text(&n->in[0]->shape, s), (long long)a->channels,
                               a->axis);
    out[0] = dlt_shape1(a->channels);
    dtype[0] = DLT_F32;
    return DLT_OK;
}

static double flops_in(const DltNode *n)
{
    return (double)dlt_shape_count(&n->in[0]->shape);
}

const DltOpDef dlt_op_bias_bwd = {.name = "bias_bwd",
                                  .n_in = 1,
                                  .n_out = 1,
                                  .attr_size = sizeof(DltBias),
                                  .infer = bias_bwd_infer,
                                  .flops = flops_in,
                                  .prec = DLT_PREC_KEEP,
                                  .any_layout = true,
                                  .text = bias_text};

/* ---- reduce ---- */

static void reduce_text(const void *attr, char *buf, size_t size)
{
    const DltReduce *a = attr;
    dlt_attr_text(buf, size, a->mean ? "mean" : "sum");
    for (int i = 0; i < DLT_MAX_RANK; i++)
        if (a->axes >> i & 1) dlt_attr_text(buf, size, "axis=%d", i);
}

DltTensor *dlt_reduce(DltBuild *b, DltTensor *x, uint32_t axes, bool mean)
{
    DltReduce a = {axes, mean};
    return dlt_build_op(b, DLT_OP_reduce, &a, &x, 1);
}

static DltStatus reduce_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltReduce *a = n->attr;
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    if (a->axes >> out[0].rank)
        return dlt_infer_error(n, err, "reduce names an axis that %s of rank %d does not have",
                               n->in[0]->name, out[0].rank);
    for (int i = 0; i < out[0].rank; i++)
        if (a->axes >> i & 1) out[0].dim[i] = 1;
    return DLT_OK;
}

/* Repeated back, scaled by 1/count for a mean. */
static void reduce_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltReduce *a = n->attr;
    double count =
        (double)dlt_shape_count(&n->in[0]->shape) / (double)dlt_shape_count(&n->out[0]->shape);
    DltTensor *d = a->mean ? dlt_unary(b, dout[0], DLT_FN_SCALE, 1.0 / count) : dout[0];
    din[0] = dlt_expand_axes(b, d, n->in[0]->shape);
}

const DltOpDef dlt_op_reduce = {.name = "reduce",
                                .n_in = 1,
                                .n_out = 1,
                                .attr_size = sizeof(DltReduce),
                                .infer = reduce_infer,
                                .grad = reduce_grad,
                                .flops = flops_in,
                                .prec = DLT_PREC_KEEP,
                                .text = reduce_text};

/* ---- copy, cast, reorder ---- */

DltTensor *dlt_copy(DltBuild *b, DltTensor *x)
{
    return dlt_build_op(b, DLT_OP_copy, NULL, &x, 1);
}

DltTensor *dlt_cast(DltBuild *b, DltTensor *x, DltDtype dtype)
{
    DltCast a = {dtype};
    return dlt_build_op(b, DLT_OP_cast, &a, &x, 1);
}

DltTensor *dlt_reorder(DltBuild *b, DltTensor *x, DltLayout layout)
{
    DltReorder a = {layout};
    DltTensor *y = dlt_build_op(b, DLT_OP_reorder, &a, &x, 1);
    y->layout = layout;
    return y;
}

static void pass_through(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    (void)b;
    (void)n;
    din[0] = dout[0];
}

const DltOpDef dlt_op_copy = {.name = "copy",
                              .n_in = 1,
                              .n_out = 1,
                              .infer = dlt_infer_same,
                              .grad = pass_through,
                              .flops = dlt_flops_1,
                              .prec = DLT_PREC_KEEP,
                              .any_layout = true};

static DltStatus cast_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltCast *a = n->attr;
    DLT_TRY(dlt_infer_same(n, out, dtype, err));
    dtype[0] = a->dtype;
    return DLT_OK;
}

static void cast_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_cast(b, dout[0], n->in[0]->dtype);
}

const DltOpDef dlt_op_cast = {.name = "cast",
                              .n_in = 1,
                              .n_out = 1,
                              .attr_size = sizeof(DltCast),
                              .infer = cast_infer,
                              .grad = cast_grad,
                              .flops = dlt_flops_1,
                              .prec = DLT_PREC_KEEP,
                              .any_layout = true};
const DltOpDef dlt_op_reorder = {.name = "reorder",
                                 .n_in = 1,
                                 .n_out = 1,
                                 .attr_size = sizeof(DltReorder),
                                 .infer = dlt_infer_same,
                                 .flops = dlt_flops_1,
                                 .prec = DLT_PREC_KEEP};
