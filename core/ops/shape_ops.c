/* Ops that move data, embedding and dropout: shapes and gradient rules. */
#include "ops/shape_ops.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/infer.h"

static double no_flops(const DltNode *n)
{
    (void)n;
    return 0;
}

/* ---- reshape ---- */

DltTensor *dlt_reshape(DltBuild *b, DltTensor *x, DltShape shape)
{
    if (x->id < 0) return x;
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 0)
            open = i;
        else
            known *= shape.dim[i];
    }
    if (open >= 0 && known > 0) shape.dim[open] = dlt_shape_count(&x->shape) / known;
    DltReshape a = {shape};
    return dlt_build_op(b, DLT_OP_reshape, &a, &x, 1);
}

static DltStatus reshape_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltReshape *a = n->attr;
    char from[DLT_SHAPE_TEXT], to[DLT_SHAPE_TEXT];
    if (dlt_shape_count(&a->shape) != dlt_shape_count(&n->in[0]->shape))
        return dlt_infer_error(n, err, "%s %s cannot be reshaped to %s: the counts differ",
                               n->in[0]->name, dlt_shape_text(&n->in[0]->shape, from),
                               dlt_shape_text(&a->shape, to));
    out[0] = a->shape;
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

static void reshape_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_reshape(b, dout[0], n->in[0]->shape);
}

const DltOpDef dlt_op_reshape = {.name = "reshape",
                                 .n_in = 1,
                                 .n_out = 1,
                                 .attr_size = sizeof(DltReshape),
                                 .infer = reshape_infer,
                                 .grad = reshape_grad,
                                 .flops = no_flops,
                                 .prec = DLT_PREC_KEEP,
                                 .view = true};

/* ---- concat, slice ---- */

static void concat_text(const void *attr, char *buf, size_t size)
{
    dlt_attr_text(buf, size, "axis=%d", ((const DltConcat *)attr)->axis);
}

static void slice_text(const void *attr, char *buf, size_t size)
{
    const DltSlice *a = attr;
    dlt_attr_text(buf, size, "axis=%d [%lld, %lld) of %lld", a->axis, (long long)a->begin,
                  (long long)(a->begin + a->size), (long long)a->full);
}

static DltStatus concat_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltConcat *a = n->attr;
    DLT_TRY(dlt_infer_same(n, out, dtype, err));
    if (a->axis < 0 || a->axis >= out[0].rank)
        return dlt_infer_error(n, err, "axis %d is outside the %d axes of %s", a->axis, out[0].rank,
                               n->in[0]->name);
    for (int k = 1; k < DLT_MAX_IN && n->in[k]; k++) {
        const DltShape *s = &n->in[k]->shape;
        bool fits = s->rank == out[0].rank;
        for (int i = 0; fits && i < s->rank; i++)
            fits = i == a->axis || s->dim[i] == out[0].dim[i];
        if (!fits)
            return dlt_infer_misfit(n, n->in[0], n->in[k], err,
                                    "all but the joined axis must be equal");
        out[0].dim[a->axis] += s->dim[a->axis];
    }
    return DLT_OK;
}

/* More than DLT_MAX_IN inputs: joined in a tree from the left. */
DltTensor *dlt_concat(DltBuild *b, DltTensor *const in[], int n_in, int axis)
{
    DltConcat a = {axis};
    if (n_in == 1) return in[0];
    if (n_in <= DLT_MAX_IN) return dlt_build_op(b, DLT_OP_concat, &a, in, n_in);
    DltTensor *first = dlt_build_op(b, DLT_OP_concat, &a, in, DLT_MAX_IN);
    DltTensor *rest = dlt_concat(b, in + DLT_MAX_IN, n_in - DLT_MAX_IN, axis);
    return dlt_build_op(b, DLT_OP_concat, &a, (DltTensor *const[]){first, rest}, 2);
}

static void concat_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltConcat *a = n->attr;
    int64_t begin = 0;
    for (int k = 0; k < DLT_MAX_IN && n->in[k]; k++) {
        int64_t size = n->in[k]->shape.dim[a->axis];
        if (dlt_needs_grad(b, n->in[k])) din[k] = dlt_slice(b, dout[0], a->axis, begin, size);
        begin += size;
    }
}

const DltOpDef dlt_op_concat = {.name = "concat",
                                .n_in = DLT_MAX_IN,
                                .n_out = 1,
                                .attr_size = sizeof(DltConcat),
                                .infer = concat_infer,
                                .grad = concat_grad,
                                .flops = no_flops,
                                .prec = DLT_PREC_KEEP,
                                .optional = 0xfe,
                                .text = concat_text};

DltTensor *dlt_slice(DltBuild *b, DltTensor *x, int axis, int64_t begin, int64_t size)
{
    DltSlice a = {axis, begin, size, dlt_dim(x, axis)};
    return dlt_build_op(b, DLT_OP_slice, &a, &x, 1);
}

static DltStatus slice_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltSlice *a = n->attr;
    DLT_TRY(dlt_infer_rank(n, n->in[0], a->axis + 1, err));
    DLT_TRY(dlt_infer_same(n, out, dtype, err));
    if (a->begin < 0 || a->size < 1 || a->begin + a->size > out[0].dim[a->axis])
        return dlt_infer_error(n, err, "slice [%lld, %lld) is outside axis %d of %s",
                               (long long)a->begin, (long long)(a->begin + a->size), a->axis,
                               n->in[0]->name);
    out[0].dim[a->axis] = a->size;
    return DLT_OK;
}

static void slice_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_build_op(b, DLT_OP_slice_bwd, n->attr, dout, 1);
}

const DltOpDef dlt_op_slice = {.name = "slice",
                               .n_in = 1,
                               .n_out = 1,
                               .attr_size = sizeof(DltSlice),
                               .infer = slice_infer,
                               .grad = slice_grad,
                               .flops = no_flops,
                               .prec = DLT_PREC_KEEP,
                               .text = slice_text};

static DltStatus slice_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltSlice *a = n->attr;
    DLT_TRY(dlt_infer_same(n, out, dtype, err));
    out[0].dim[a->axis] = a->full;
    return DLT_OK;
}

const DltOpDef dlt_op_slice_bwd = {.name = "slice_bwd",
                                   .n_in = 1,
                                   .n_out = 1,
                                   .attr_size = sizeof(DltSlice),
                                   .infer = slice_bwd_infer,
                                   .flops = no_flops,
                                   .prec = DLT_PREC_KEEP,
                                   .text = slice_text};

/* ---- transpose ---- */

static void transpose_text(const void *attr, char *buf, size_t size)
{
    const DltTranspose *a = attr;
    dlt_attr_text(buf, size, "perm=%d%d%d%d%d%d", a->perm[0], a->perm[1], a->perm[2], a->perm[3],
                  a->perm[4], a->perm[5]);
}

DltTensor *dlt_transpose(DltBuild *b, DltTensor *x, const int perm[])
{
    DltTranspose a = {{0}};
    if (x->id < 0) return x;
    for (int i = 0; i < x->shape.rank; i++)
        a.perm[i] = perm[i];
    return dlt_build_op(b, DLT_OP_transpose, &a, &x, 1);
}

static DltStatus transpose_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTranspose *a = n->attr;
    const DltShape *x = &n->in[0]->shape;
    uint32_t seen = 0;
    DLT_TRY(dlt_infer_same(n, out, dtype, err));
    for (int i = 0; i < x->rank; i++) {
        if (a->perm[i] < 0 || a->perm[i] >= x->rank || (seen >> a->perm[i] & 1))
            return dlt_infer_error(n, err, "axes of %s: not a permutation", n->in[0]->name);
        seen |= 1u << a->perm[i];
        out[0].dim[i] = x->dim[a->perm[i]];
    }
    return DLT_OK;
}

static void transpose_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    const DltTranspose *a = n->attr;
    int inverse[DLT_MAX_RANK] = {0};
    for (int i = 0; i < n->in[0]->shape.rank; i++)
        inverse[a->perm[i]] = i;
    din[0] = dlt_transpose(b, dout[0], inverse);
}

const DltOpDef dlt_op_transpose = {.name = "transpose",
                                   .n_in = 1,
                                   .n_out = 1,
                                   .attr_size = sizeof(DltTranspose),
                                   .infer = transpose_infer,
                                   .grad = transpose_grad,
                                   .flops = no_flops,
                                   .prec = DLT_PREC_KEEP,
                                   .text = transpose_text};

/* ---- expand ---- */

DltTensor *dlt_expand_axes(DltBuild *b, DltTensor *x, DltShape shape)
{
    DltReshape a = {shape};
    if (x->id < 0 || dlt_shape_equal(&x->shape, &shape)) return x;
    return dlt_build_op(b, DLT_OP_expand, &a, &x, 1);
}

static DltStatus expand_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltShape *x = &n->in[0]->shape, *y = &((const DltReshape *)n->attr)->shape;
    bool fits = x->rank == y->rank;
    char from[DLT_SHAPE_TEXT], to[DLT_SHAPE_TEXT];
    for (int i = 0; fits && i < x->rank; i++)
        fits = x->dim[i] == y->dim[i] || x->dim[i] == 1;
    if (!fits)
        return dlt_infer_error(n, err, "%s %s cannot be expanded to %s", n->in[0]->name,
                               dlt_shape_text(x, from), dlt_shape_text(y, to));
    out[0] = *y;
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

static void expand_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    uint32_t axes = 0;
    for (int i = 0; i < n->in[0]->shape.rank; i++)
        if (n->in[0]->shape.dim[i] != n->out[0]->shape.dim[i]) axes |= 1u << i;
    din[0] = dlt_reduce(b, dout[0], axes, false);
}

const DltOpDef dlt_op_expand = {.name = "expand",
                                .n_in = 1,
                                .n_out = 1,
                                .attr_size = sizeof(DltReshape),
                                .infer = expand_infer,
                                .grad = expand_grad,
                                .flops = no_flops,
                                .prec = DLT_PREC_KEEP};

/* ---- embedding ---- */

DltTensor *dlt_embedding(DltBuild *b, DltTensor *ids, DltTensor *w)
{
    DltEmbedding a = {dlt_dim(w, 0)};
    return dlt_build_op(b, DLT_OP_embedding_fwd, &a, (DltTensor *const[]){ids, w}, 2);
}

static DltStatus embedding_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltTensor *ids = n->in[0], *w = n->in[1];
    if (ids->dtype != DLT_I32)
        return dlt_infer_error(n, err, "an embedding needs integer ids, but %s is %s", ids->name,
                               dlt_dtype_name(ids->dtype));
    if (ids->shape.rank >= DLT_MAX_RANK || w->shape.rank != 2)
        return dlt_infer_misfit(n, ids, w, err, "needs ids [..] and a table [vocabulary, width]");
    out[0] = ids->shape;
    out[0].dim[out[0].rank++] = w->shape.dim[1];
    dtype[0] = w->dtype;
    return DLT_OK;
}

static void embedding_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    if (dlt_needs_grad(b, n->in[1]))
        din[1] = dlt_build_op(b, DLT_OP_embedding_bwd, n->attr,
                              (DltTensor *const[]){dout[0], n->in[0]}, 2);
}

const DltOpDef dlt_op_embedding_fwd = {.name = "embedding_fwd",
                                       .n_in = 2,
                                       .n_out = 1,
                                       .attr_size = sizeof(DltEmbedding),
                                       .infer = embedding_infer,
                                       .grad = embedding_grad,
                                       .flops = no_flops,
                                       .prec = DLT_PREC_LOW,
                                       .full_in = 0};

static DltStatus embedding_bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[],
                                     DltErr *err)
{
    const DltEmbedding *a = n->attr;
    out[0] = dlt_shape2(a->vocab, dlt_shape_dim(&n->in[0]->shape, -1));
    dtype[0] = DLT_F32;
    if (n->in[2] && !dlt_shape_equal(&n->in[2]->shape, &out[0]))
        return dlt_infer_misfit(n, n->in[2], n->in[0], err,
                                "needs a gradient of the table's shape");
    return DLT_OK;
}

static double embedding_bwd_flops(const DltNode *n)
{
    return (double)dlt_shape_count(&n->in[0]->shape);
}

const DltOpDef dlt_op_embedding_bwd = {.name = "embedding_bwd",
                                       .n_in = 3,
                                       .n_out = 1,
                                       .attr_size = sizeof(DltEmbedding),
                                       .infer = embedding_bwd_infer,
                                       .flops = embedding_bwd_flops,
                                       .optional = 1u << 2,
                                       .inplace = 1u << 2,
                                       .full_in = 1u << 2,
                                       .prec = DLT_PREC_KEEP};

/* ---- dropout ---- */

static void dropout_text(const void *attr, char *buf, size_t size)
{
    const DltDropout *a = attr;
    dlt_attr_text(buf, size, "p=%g stream=%u", (double)a->p, a->id);
}

DltTensor *dlt_dropout(DltBuild *b, DltTensor *x, float p)
{
    if (p < 0 || p >= 1) return dlt_build_error(b, "dropout: %g is outside [0, 1)", (double)p);
    if (!(p > 0) || !b->training) return x;
    DltDropout a = {.p = p, .id = (uint32_t)b->n_random++};
    return dlt_build_op(b, DLT_OP_dropout, &a, (DltTensor *const[]){x, b->step}, 2);
}

static void dropout_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    din[0] = dlt_build_op(b, DLT_OP_dropout, n->attr, (DltTensor *const[]){dout[0], n->in[1]}, 2);
}

/* The element number is that of the layout in memory, so the op keeps to the plain one. */
const DltOpDef dlt_op_dropout = {.name = "dropout",
                                 .n_in = 2,
                                 .n_out = 1,
                                 .attr_size = sizeof(DltDropout),
                                 .infer = dlt_infer_like,
                                 .grad = dropout_grad,
                                 .flops = dlt_flops_1,
                                 .inplace = 1,
                                 .prec = DLT_PREC_KEEP,
                                 .text = dropout_text};
