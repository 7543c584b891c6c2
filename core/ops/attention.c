/* Attention and rotary positions: shapes, gradient rules, FLOPs (formulas in ops/attention.h). */
#include "ops/attention.h"
#include "ops/infer.h"

#include <inttypes.h>

static void attention_text(const void *attr, char *buf, size_t size)
{
    const DltAttention *a = attr;
    dlt_attr_text(buf, size, "heads=%" PRId64, a->heads);
    if (a->kv_heads != a->heads) dlt_attr_text(buf, size, "kv_heads=%" PRId64, a->kv_heads);
    if (a->causal) dlt_attr_text(buf, size, "causal");
    if (a->bias) dlt_attr_text(buf, size, "bias");
    if (a->window > 0) dlt_attr_text(buf, size, "window=%" PRId64, a->window);
    if (a->drop.p > 0) dlt_attr_text(buf, size, "p=%g stream=%u", (double)a->drop.p, a->drop.id);
}

static DltStatus check_buffer(const DltNode *n, const DltTensor *qkv, DltErr *err)
{
    const DltAttention *a = n->attr;
    char s[DLT_SHAPE_TEXT];
    if (a->kv_heads < 1 || a->heads < 1 || a->heads % a->kv_heads != 0)
        return dlt_infer_error(n, err, "%" PRId64 " key heads do not divide %" PRId64 " heads",
                               a->kv_heads, a->heads);
    if (a->head_dim < 1 || a->head_dim > DLT_MAX_HEAD_DIM)
        return dlt_infer_error(n, err, "heads of width %" PRId64 "; 1 to %d are possible",
                               a->head_dim, DLT_MAX_HEAD_DIM);
    if (qkv->shape.rank == 3 && qkv->shape.dim[2] == (a->heads + 2 * a->kv_heads) * a->head_dim)
        return DLT_OK;
    return dlt_infer_error(n, err,
                           "%s %s does not hold %" PRId64 " query, key and value heads of width "
                           "%" PRId64 " for [batch, tokens]",
                           qkv->name, dlt_shape_text(&qkv->shape, s), a->heads + 2 * a->kv_heads,
                           a->head_dim);
}

static DltStatus fwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltAttention *a = n->attr;
    const DltShape *s = &n->in[0]->shape;
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    DLT_TRY(check_buffer(n, n->in[0], err));
    out[0] = dlt_shape3(s->dim[0], s->dim[1], a->heads * a->head_dim);
    out[1] = dlt_shape3(s->dim[0], a->heads, s->dim[1]);
    dtype[1] = DLT_F32;
    return DLT_OK;
}

DltTensor *dlt_attention(DltBuild *b, DltTensor *qkv, const DltAttention *attr)
{
    DltAttention a = *attr;
    if (!b->training) a.drop.p = 0;
    if (a.drop.p > 0) a.drop.id = (uint32_t)b->n_random++;
    DltTensor *const in[] = {qkv, a.drop.p > 0 ? b->step : NULL};
    return dlt_build_op(b, DLT_OP_attention_fwd, &a, in, 2);
}

static void fwd_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltTensor *const in[] = {dout[0], n->in[0], n->out[0], n->out[1], n->in[1]};
    din[0] = dlt_build_op(b, DLT_OP_attention_bwd, n->attr, in, 5);
}

/* Pairs of a query and a key that it sees. */
static double pairs(const DltAttention *a, const DltShape *qkv)
{
    int64_t t = qkv->dim[1];
    double sum = 0;
    for (int64_t i = 0; i < t; i++) {
        DltKeys k = dlt_attention_keys(a, i, t);
        sum += (double)(k.hi - k.lo);
    }
    return sum * (double)(qkv->dim[0] * a->heads);
}

/* q k^T and p v. */
static double fwd_flops(const DltNode *n)
{
    const DltAttention *a = n->attr;
    return 4.0 * (double)a->head_dim * pairs(a, &n->in[0]->shape);
}

/* q k^T again, do v^T, and the sums for dq, dk, dv. */
static double bwd_flops(const DltNode *n)
{
    const DltAttention *a = n->attr;
    return 10.0 * (double)a->head_dim * pairs(a, &n->in[1]->shape);
}

const DltOpDef dlt_op_attention_fwd = {.name = "attention_fwd",
                                       .n_in = 2,
                                       .n_out = 2,
                                       .attr_size = sizeof(DltAttention),
                                       .infer = fwd_infer,
                                       .grad = fwd_grad,
                                       .flops = fwd_flops,
                                       .optional = 1u << 1,
                                       .prec = DLT_PREC_LOW,
                                       .text = attention_text};

static DltStatus bwd_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    DLT_TRY(check_buffer(n, n->in[1], err));
    out[0] = n->in[1]->shape;
    dtype[0] = n->in[1]->dtype;
    if (((const DltAttention *)n->attr)->bias) out[1] = dlt_shape1(out[0].dim[2]);
    dtype[1] = DLT_F32;
    return DLT_OK;
}

const DltOpDef dlt_op_attention_bwd = {.name = "attention_bwd",
                                       .n_in = 5,
                                       .n_out = 2,
                                       .attr_size = sizeof(DltAttention),
                                       .infer = bwd_infer,
                                       .flops = bwd_flops,
                                       .optional = 1u << 4,
                                       .prec = DLT_PREC_LOW,
                                       .full_in = 1u << 3,
                                       .text = attention_text};

/* ---- rope ---- */

static void rope_text(const void *attr, char *buf, size_t size)
{
    const DltRope *a = attr;
    dlt_attr_text(buf, size, "heads=%" PRId64 " base=%g", a->heads, a->base);
    if (a->inverse) dlt_attr_text(buf, size, "inverse");
}

static DltStatus rope_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltRope *a = n->attr;
    const DltTensor *x = n->in[0];
    char s[DLT_SHAPE_TEXT];
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    if (a->head_dim < 2 || a->head_dim % 2 != 0 || a->head_dim > DLT_MAX_HEAD_DIM)
        return dlt_infer_error(n, err, "rope turns pairs, but a head has width %" PRId64,
                               a->head_dim);
    if (x->shape.rank == 3 && a->heads * a->head_dim <= x->shape.dim[2]) return DLT_OK;
    return dlt_infer_error(n, err, "%s %s does not hold %" PRId64 " heads of width %" PRId64,
                           x->name, dlt_shape_text(&x->shape, s), a->heads, a->head_dim);
}

DltTensor *dlt_rope(DltBuild *b, DltTensor *x, const DltRope *attr)
{
    return dlt_build_op(b, DLT_OP_rope, attr, (DltTensor *const[]){x, b->place}, 2);
}

static void rope_grad(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[])
{
    DltRope a = *(const DltRope *)n->attr;
    a.inverse = !a.inverse;
    din[0] = dlt_build_op(b, DLT_OP_rope, &a, (DltTensor *const[]){dout[0], n->in[1]}, 2);
}

const DltOpDef dlt_op_rope = {.name = "rope",
                              .n_in = 2,
                              .n_out = 1,
                              .attr_size = sizeof(DltRope),
                              .infer = rope_infer,
                              .grad = rope_grad,
                              .flops = dlt_flops_1,
                              .optional = 1u << 1,
                              .inplace = 1,
                              .prec = DLT_PREC_KEEP,
                              .text = rope_text};
