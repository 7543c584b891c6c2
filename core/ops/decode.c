/* attention_step: shapes (formula in ops/decode.h). It is built for generation only and has no gradient. */
#include "ops/decode.h"
#include "ops/infer.h"
#include "ops/shape_ops.h"

#include <inttypes.h>

static void step_text(const void *attr, char *buf, size_t size)
{
    const DltAttention *a = attr;
    dlt_attr_text(buf, size, "heads=%" PRId64, a->heads);
    if (a->kv_heads != a->heads) dlt_attr_text(buf, size, "kv_heads=%" PRId64, a->kv_heads);
    if (a->window > 0) dlt_attr_text(buf, size, "window=%" PRId64, a->window);
}

static DltStatus step_infer(const DltNode *n, DltShape out[], DltDtype dtype[], DltErr *err)
{
    const DltAttention *a = n->attr;
    const DltShape *x = &n->in[0]->shape, *cache = &n->in[1]->shape;
    int64_t pair = 2 * a->kv_heads * a->head_dim;
    char s[DLT_SHAPE_TEXT], c[DLT_SHAPE_TEXT];
    DLT_TRY(dlt_infer_like(n, out, dtype, err));
    bool good = x->rank == 3 && x->dim[1] == 1 && x->dim[2] == a->heads * a->head_dim + pair &&
                cache->rank == 3 && cache->dim[0] == x->dim[0] && cache->dim[2] == pair &&
                a->head_dim <= DLT_MAX_HEAD_DIM;
    if (!good)
        return dlt_infer_error(n, err, "%s %s and %s %s are no token and no cache of its keys",
                               n->in[0]->name, dlt_shape_text(x, s), n->in[1]->name,
                               dlt_shape_text(cache, c));
    out[0] = dlt_shape3(x->dim[0], 1, a->heads * a->head_dim);
    return DLT_OK;
}

DltTensor *dlt_attention_step(DltBuild *b, DltTensor *qkv, const DltAttention *attr)
{
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    if (!attr->causal) return dlt_build_error(b, DLT_NOT_CAUSAL, b->scope);
    DltShape shape = dlt_shape3(qkv->shape.dim[0], b->context, 2 * attr->kv_heads * attr->head_dim);
    DltTensor *cache = dlt_state(b, "cache", shape, DLT_F32, dlt_init_zeros());
    cache->saved = false;
    return dlt_build_op(b, DLT_OP_attention_step, attr, (DltTensor *const[]){qkv, cache, b->place},
                        3);
}

void dlt_attention_pairs(DltBuild *b, DltTensor *qkv, const DltAttention *attr)
{
    if (dlt_build_failed(b)) return;
    if (!attr->causal) {
        (void)dlt_build_error(b, DLT_NOT_CAUSAL, b->scope);
        return;
    }
    int64_t d = attr->head_dim;
    DltTensor *pairs = dlt_slice(b, qkv, 2, attr->heads * d, 2 * attr->kv_heads * d);
    if (dlt_build_failed(b)) return;
    pairs->name = dlt_arena_printf(b->graph->arena, "%s.cache", b->scope);
    pairs->role = DLT_STATE;
}

/* Over a full cache: q k^T and p v. */
static double step_flops(const DltNode *n)
{
    const DltAttention *a = n->attr;
    const DltShape *cache = &n->in[1]->shape;
    return 4.0 * (double)(cache->dim[0] * cache->dim[1] * a->heads * a->head_dim);
}

const DltOpDef dlt_op_attention_step = {.name = "attention_step",
                                        .n_in = 3,
                                        .n_out = 1,
                                        .attr_size = sizeof(DltAttention),
                                        .infer = step_infer,
                                        .flops = step_flops,
                                        .mutates = 1u << 1,
                                        .prec = DLT_PREC_FULL,
                                        .text = step_text};
