/* Table look-up and its gradient. The gradient adds rows in the order of the ids; chunks are ranges
 * of columns, so no two threads meet and the order never changes. */
#include "cpu/plain.h"
#include "ops/shape_ops.h"

enum { COLUMNS = 64 };

static DltStatus check_ids(const DltTensor *t, const int32_t *ids, int64_t vocab, DltErr *err)
{
    int64_t n = dlt_count(t);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < vocab) continue;
        return dlt_err(err, DLT_E_DATA, "%s: id %d at position %lld is outside the table of %lld",
                       t->name, ids[i], (long long)i, (long long)vocab);
    }
    return DLT_OK;
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltTensor *table = call->node->in[1];
    size_t row = (size_t)table->shape.dim[1] * dlt_dtype_bytes(table->dtype);
    const int32_t *ids = call->in[0];
    const char *w = call->in[1];
    char *y = call->out[0];
    for (int64_t i = begin; i < end; i++)
        memcpy(y + (size_t)i * row, w + (size_t)ids[i] * row, row);
}

/* y[i] = w[ids[i]].  ids i32 [..], w [V,D], y [.., D] of one type. DATA when an id is outside the
 * table. shape_ops.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    const DltTensor *ids = call->node->in[0], *w = call->node->in[1];
    DLT_TRY(check_ids(ids, call->in[0], w->shape.dim[0], err));
    dlt_pool_for(call->stream, dlt_count(ids), dlt_grain(w->shape.dim[1]), forward_task,
                 (void *)call);
    return DLT_OK;
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    int64_t v = call->node->out[0]->shape.dim[0], d = call->node->out[0]->shape.dim[1];
    int64_t n = dlt_count(call->node->in[1]);
    const DltReal *dy = call->in[0];
    const int32_t *ids = call->in[1];
    const DltReal *base = call->in[2];
    DltReal *dw = call->out[0];
    size_t bytes = (size_t)(end - begin) * sizeof *dw;
    for (int64_t i = 0; i < v && base != dw; i++) {
        if (base)
            memcpy(dw + i * d + begin, base + i * d + begin, bytes);
        else
            memset(dw + i * d + begin, 0, bytes);
    }
    for (int64_t i = 0; i < n; i++) {
        DltReal *row = dw + ids[i] * d;
        for (int64_t c = begin; c < end; c++)
            row[c] += dy[i * d + c];
    }
}

/* dw[v] = (base[v] +) sum of dy[i] over the i with ids[i] = v, in order.  dy f32 [.., D], ids i32, base,
 * dw f32 [V,D], may be one. DATA when an id is outside the table.  shape_ops.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    const DltTensor *dw = call->node->out[0], *ids = call->node->in[1];
    DLT_TRY(check_ids(ids, call->in[1], dw->shape.dim[0], err));
    int64_t grain = dlt_grain(dw->shape.dim[0] + dlt_count(ids));
    grain = grain < 16 ? 16 : grain; /* whole cache lines */
    dlt_pool_for(call->stream, dw->shape.dim[1], grain < COLUMNS ? grain : COLUMNS, backward_task,
                 (void *)call);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (n->in[1]->dtype == n->out[0]->dtype) return dlt_cpu_accepts_move(n, dev, why_not);
    return dlt_cpu_refuse(why_not, "the table's type is not the output's");
}

static const DltKernel plain_forward = {
    .name = "embedding_fwd.cpu.plain", .accepts = accepts, .launch = forward};
const DltKernel *const dlt_cpu_embedding_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "embedding_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_embedding_bwd[] = {&plain_backward, NULL};
