/* c = a (op) b, with b broadcast where its dims are 1. Equal shapes are one flat loop in any
 * layout; otherwise b is walked by strides, 0 along its broadcast dims. */
#include "cpu/plain.h"

/* c[i] = a[i] (op) b[i * step], step 0 or 1 */
typedef void (*BinaryRow)(const DltReal *a, const DltReal *b, int64_t step, DltReal *c, int64_t n);

#define ROW(id, expression)                                                                        \
    static void id##_row(const DltReal *pa, const DltReal *pb, int64_t step, DltReal *c,           \
                         int64_t n)                                                                \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            DltReal a = pa[i], b = pb[i * step];                                                   \
            c[i] = (expression);                                                                   \
        }                                                                                          \
    }
ROW(DLT_ADD, a + b)
ROW(DLT_SUB, a - b)
ROW(DLT_MUL, a *b)
ROW(DLT_DIV, a / b)
#undef ROW

static const BinaryRow rows[DLT_N_BINARY] = {
    [DLT_ADD] = DLT_ADD_row,
    [DLT_SUB] = DLT_SUB_row,
    [DLT_MUL] = DLT_MUL_row,
    [DLT_DIV] = DLT_DIV_row,
};

static bool same_shape(const DltNode *n)
{
    return dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape);
}

static void flat_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltBinary *attr = call->node->attr;
    const DltReal *a = call->in[0], *b = call->in[1];
    DltReal *c = call->out[0];
    rows[attr->fn](a + begin, b + begin, 1, c + begin, end - begin);
}

/* Element of b that belongs to row `row` of a. */
static int64_t broadcast_offset(const DltShape *a, const DltShape *b, int64_t row)
{
    int64_t offset = 0, stride = b->dim[b->rank - 1];
    for (int i = a->rank - 2; i >= 0; i--) {
        int64_t at = row % a->dim[i];
        row /= a->dim[i];
        if (b->dim[i] != 1) offset += at * stride;
        stride *= b->dim[i];
    }
    return offset;
}

static void broadcast_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltBinary *attr = call->node->attr;
    const DltShape *sa = &call->node->in[0]->shape, *sb = &call->node->in[1]->shape;
    const DltReal *a = call->in[0], *b = call->in[1];
    DltReal *c = call->out[0];
    int64_t n = sa->dim[sa->rank - 1], step = sb->dim[sb->rank - 1] == 1 ? 0 : 1;
    for (int64_t row = begin; row < end; row++) {
        rows[attr->fn](a + row * n, b + broadcast_offset(sa, sb, row), step, c + row * n, n);
    }
}

/* c = a (op) b.  a, c f32 of one shape; b of the same rank, each dim equal or 1.  elementwise.h */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *a = call->node->in[0];
    if (same_shape(call->node)) {
        dlt_pool_for(call->stream, dlt_count(a), dlt_grain(1), flat_task, (void *)call);
    } else {
        dlt_pool_for(call->stream, dlt_rows(a), dlt_grain(dlt_width(a)), broadcast_task,
                     (void *)call);
    }
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return same_shape(n) ? dlt_cpu_accepts_flat(n, dev, why_not)
                         : dlt_kernel_accepts_plain(n, why_not);
}

static const DltKernel plain = {.name = "binary.cpu.plain", .accepts = accepts, .launch = launch};
const DltKernel *const dlt_cpu_binary[] = {&plain, NULL};
