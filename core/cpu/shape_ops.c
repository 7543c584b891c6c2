/* Ops that move elements: whole runs of memory where the axes allow it. They take any dtype, since
 * they never look at a value. */
#include "ops/shape_ops.h"
#include "cpu/plain.h"

/* A reshape is a view: no kernel ever runs. */
const DltKernel *const dlt_cpu_reshape[] = {NULL};

static size_t element_bytes(const DltCall *call)
{
    return dlt_dtype_bytes(call->node->in[0]->dtype);
}

static void concat_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltNode *n = call->node;
    const DltConcat *attr = n->attr;
    size_t bytes = element_bytes(call);
    DltSplitAxis whole = dlt_split_axis(&n->out[0]->shape, attr->axis);
    char *y = (char *)call->out[0] + (size_t)(begin * whole.axis * whole.inner) * bytes;
    for (int64_t o = begin; o < end; o++) {
        for (int i = 0; i < DLT_MAX_IN && n->in[i] != NULL; i++) {
            DltSplitAxis part = dlt_split_axis(&n->in[i]->shape, attr->axis);
            size_t run = (size_t)(part.axis * part.inner) * bytes;
            memcpy(y, (const char *)call->in[i] + (size_t)o * run, run);
            y += run;
        }
    }
}

/* y = the inputs one after the other along axis.  up to 8 inputs and y of one dtype.  shape_ops.h
 */
static DltStatus concat(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltConcat *attr = call->node->attr;
    DltSplitAxis s = dlt_split_axis(&call->node->out[0]->shape, attr->axis);
    dlt_pool_for(call->stream, s.outer, dlt_grain(s.axis * s.inner), concat_task, (void *)call);
    return DLT_OK;
}

static void slice_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltSlice *attr = call->node->attr;
    size_t bytes = element_bytes(call);
    DltSplitAxis s = dlt_split_axis(&call->node->in[0]->shape, attr->axis);
    size_t run = (size_t)(attr->size * s.inner) * bytes;
    const char *x = call->in[0];
    char *y = call->out[0];
    for (int64_t o = begin; o < end; o++) {
        int64_t first = (o * s.axis + attr->begin) * s.inner;
        memcpy(y + (size_t)o * run, x + (size_t)first * bytes, run);
    }
}

/* y = x[begin, begin + size) along axis.  x, y of one dtype.  shape_ops.h */
static DltStatus slice(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltSlice *attr = call->node->attr;
    DltSplitAxis s = dlt_split_axis(&call->node->out[0]->shape, attr->axis);
    dlt_pool_for(call->stream, s.outer, dlt_grain(s.axis * s.inner), slice_task, (void *)call);
    return DLT_OK;
}

static void slice_bwd_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltSlice *attr = call->node->attr;
    size_t bytes = element_bytes(call);
    DltSplitAxis s = dlt_split_axis(&call->node->out[0]->shape, attr->axis);
    size_t row = (size_t)(s.axis * s.inner) * bytes, run = (size_t)(attr->size * s.inner) * bytes;
    size_t before = (size_t)(attr->begin * s.inner) * bytes;
    for (int64_t o = begin; o < end; o++) {
        char *dx = (char *)call->out[0] + (size_t)o * row;
        memset(dx, 0, before);
        memcpy(dx + before, (const char *)call->in[0] + (size_t)o * run, run);
        memset(dx + before + run, 0, row - before - run);
    }
}

/* dx = dy in [begin, begin + size) along axis, 0 outside.  dy, dx of one dtype.  shape_ops.h */
static DltStatus slice_bwd(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltSlice *attr = call->node->attr;
    DltSplitAxis s = dlt_split_axis(&call->node->out[0]->shape, attr->axis);
    dlt_pool_for(call->stream, s.outer, dlt_grain(s.axis * s.inner), slice_bwd_task, (void *)call);
    return DLT_OK;
}

/* y[0, n) = x[0], x[stride], ..., in units of the element's size. */
typedef void (*Gather)(const void *x, int64_t stride, void *y, int64_t n);

#define GATHER(bits)                                                                               \
    static void gather_##bits(const void *px, int64_t stride, void *py, int64_t n)                 \
    {                                                                                              \
        const uint##bits##_t *x = px;                                                              \
        uint##bits##_t *y = py;                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[i * stride];                                                                  \
    }
GATHER(8)
GATHER(16)
GATHER(32)
GATHER(64)
#undef GATHER

static const Gather gathers[9] = {
    [1] = gather_8, [2] = gather_16, [4] = gather_32, [8] = gather_64};

static void transpose_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltTranspose *attr = call->node->attr;
    const DltShape *x = &call->node->in[0]->shape, *y = &call->node->out[0]->shape;
    size_t bytes = element_bytes(call);
    int last = y->rank - 1;
    int64_t width = y->dim[last], stride = dlt_shape_span(x, attr->perm[last] + 1, x->rank);
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0;
        for (int i = last - 1; i >= 0; i--) {
            from += rest % y->dim[i] * dlt_shape_span(x, attr->perm[i] + 1, x->rank);
            rest /= y->dim[i];
        }
        const char *px = (const char *)call->in[0] + (size_t)from * bytes;
        char *py = (char *)call->out[0] + (size_t)(row * width) * bytes;
        if (stride == 1) {
            memcpy(py, px, (size_t)width * bytes);
        } else {
            gathers[bytes](px, stride, py, width);
        }
    }
}

/* y[i0, i1, ..] = x with index i_k at axis perm[k].  x, y of one dtype.  shape_ops.h */
static DltStatus transpose(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *y = call->node->out[0];
    if (y->shape.rank == 0) {
        memcpy(call->out[0], call->in[0], element_bytes(call));
        return DLT_OK;
    }
    dlt_pool_for(call->stream, dlt_rows(y), dlt_grain(2 * dlt_width(y)), transpose_task,
                 (void *)call);
    return DLT_OK;
}

static void expand_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltShape *x = &call->node->in[0]->shape, *y = &call->node->out[0]->shape;
    size_t bytes = element_bytes(call);
    int last = y->rank - 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, from = 0;
        for (int i = last - 1; i >= 0; i--) {
            if (x->dim[i] != 1) from += rest % y->dim[i] * dlt_shape_span(x, i + 1, x->rank);
            rest /= y->dim[i];
        }
        gathers[bytes]((const char *)call->in[0] + (size_t)from * bytes, x->dim[last] == 1 ? 0 : 1,
                       (char *)call->out[0] + (size_t)(row * y->dim[last]) * bytes, y->dim[last]);
    }
}

/* y = x with its axes of size 1 repeated.  x, y of one dtype and rank >= 1.  shape_ops.h */
static DltStatus expand(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *y = call->node->out[0];
    dlt_pool_for(call->stream, dlt_rows(y), dlt_grain(dlt_width(y)), expand_task, (void *)call);
    return DLT_OK;
}

static const DltKernel plain_concat = {
    .name = "concat.cpu.plain", .accepts = dlt_cpu_accepts_move, .launch = concat};
const DltKernel *const dlt_cpu_concat[] = {&plain_concat, NULL};

static const DltKernel plain_slice = {
    .name = "slice.cpu.plain", .accepts = dlt_cpu_accepts_move, .launch = slice};
const DltKernel *const dlt_cpu_slice[] = {&plain_slice, NULL};

static const DltKernel plain_slice_bwd = {
    .name = "slice_bwd.cpu.plain", .accepts = dlt_cpu_accepts_move, .launch = slice_bwd};
const DltKernel *const dlt_cpu_slice_bwd[] = {&plain_slice_bwd, NULL};

static const DltKernel plain_transpose = {
    .name = "transpose.cpu.plain", .accepts = dlt_cpu_accepts_move, .launch = transpose};
const DltKernel *const dlt_cpu_transpose[] = {&plain_transpose, NULL};

static const DltKernel plain_expand = {
    .name = "expand.cpu.plain", .accepts = dlt_cpu_accepts_move, .launch = expand};
const DltKernel *const dlt_cpu_expand[] = {&plain_expand, NULL};
