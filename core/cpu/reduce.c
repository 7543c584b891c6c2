/* Sum or mean over chosen axes. Each output element walks its own reduced elements, the last
 * reduced axis innermost, and adds them in double. */
#include "cpu/plain.h"

typedef struct Walk {
    int n; /* reduced axes, outermost first */
    int64_t dim[DLT_MAX_RANK], stride[DLT_MAX_RANK];
    int64_t count; /* their product */
} Walk;

static Walk reduced_axes(const DltShape *x, uint32_t axes)
{
    Walk w = {.count = 1};
    for (int i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1)) continue;
        w.dim[w.n] = x->dim[i];
        w.stride[w.n] = dlt_shape_span(x, i + 1, x->rank);
        w.count *= x->dim[i];
        w.n++;
    }
    return w;
}

/* First element of x that output element i reads. */
static int64_t first_element(const DltShape *x, uint32_t axes, int64_t i)
{
    int64_t offset = 0, stride = 1;
    for (int a = x->rank - 1; a >= 0; a--) {
        if (!(axes >> a & 1)) {
            offset += i % x->dim[a] * stride;
            i /= x->dim[a];
        }
        stride *= x->dim[a];
    }
    return offset;
}

/* Sum over the walk's axes, from axis `a` on. */
static double walk_sum(const Walk *w, int a, const DltReal *x)
{
    double sum = 0;
    if (a == w->n) return (double)x[0];
    if (a == w->n - 1 && w->stride[a] == 1) return dlt_sum(x, w->dim[a]);
    for (int64_t i = 0; i < w->dim[a]; i++)
        sum += walk_sum(w, a + 1, x + i * w->stride[a]);
    return sum;
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltReduce *attr = call->node->attr;
    const DltShape *shape = &call->node->in[0]->shape;
    const DltReal *x = call->in[0];
    DltReal *y = call->out[0];
    Walk w = reduced_axes(shape, attr->axes);
    for (int64_t i = begin; i < end; i++) {
        double sum = walk_sum(&w, 0, x + first_element(shape, attr->axes, i));
        y[i] = (DltReal)(attr->mean ? sum / (double)w.count : sum);
    }
}

/* y = sum or mean of x over the axes in attr, kept as size 1.  x, y f32 PLAIN.  elementwise.h */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltReduce *attr = call->node->attr;
    Walk w = reduced_axes(&call->node->in[0]->shape, attr->axes);
    dlt_pool_for(call->stream, dlt_count(call->node->out[0]), dlt_grain(w.count), task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain = {.name = "reduce.cpu.plain", .launch = launch};
const DltKernel *const dlt_cpu_reduce[] = {&plain, NULL};
