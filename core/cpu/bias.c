/* A bias along one axis and its gradient; x is seen as [outer, C, inner] in memory order, which
 * serves row-major tensors and NHWC alike. */
#include "cpu/plain.h"

enum { CHANNELS = 32 }; /* of one chunk of bias_bwd: whole cache lines of a row */

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltBias *attr = call->node->attr;
    DltSplitAxis s = dlt_split_channels(call->node->in[0], attr->axis);
    const DltReal *x = call->in[0], *b = call->in[1];
    DltReal *y = call->out[0];
    int64_t row = s.inner == 1 ? s.axis : s.inner;
    for (int64_t r = begin; r < end; r++) {
        const DltReal *from = x + r * row;
        DltReal *to = y + r * row;
        if (s.inner == 1) {
            for (int64_t i = 0; i < row; i++)
                to[i] = from[i] + b[i];
        } else {
            DltReal value = b[r % s.axis];
            for (int64_t i = 0; i < row; i++)
                to[i] = from[i] + value;
        }
    }
}

/* y[o,c,i] = x[o,c,i] + b[c].  x, y f32, PLAIN or NHWC; b f32[C].  elementwise.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltBias *attr = call->node->attr;
    DltSplitAxis s = dlt_split_channels(call->node->in[0], attr->axis);
    int64_t rows = s.inner == 1 ? s.outer : s.outer * s.axis;
    int64_t width = s.inner == 1 ? s.axis : s.inner;
    dlt_pool_for(call->stream, rows, dlt_grain(width), forward_task, (void *)call);
    return DLT_OK;
}

/* sum[0, end - begin) += dy[begin, end), or the sums of these channels' inner elements */
static void add_row(const DltReal *dy, int64_t inner, int64_t begin, int64_t end, double *sum)
{
    if (inner == 1) {
        for (int64_t i = 0; i < end - begin; i++)
            sum[i] += (double)dy[begin + i];
        return;
    }
    for (int64_t c = begin; c < end; c++)
        sum[c - begin] += dlt_sum(dy + c * inner, inner);
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltBias *attr = call->node->attr;
    DltSplitAxis s = dlt_split_channels(call->node->in[0], attr->axis);
    const DltReal *dy = call->in[0];
    DltReal *db = call->out[0];
    double sum[CHANNELS] = {0};
    for (int64_t o = 0; o < s.outer; o++) {
        add_row(dy + o * s.axis * s.inner, s.inner, begin, end, sum);
    }
    for (int64_t c = begin; c < end; c++)
        db[c] = (DltReal)sum[c - begin];
}

/* db[c] = sum over o, i of dy[o,c,i].  dy f32, PLAIN or NHWC; db f32[C].  elementwise.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltBias *attr = call->node->attr;
    DltSplitAxis s = dlt_split_channels(call->node->in[0], attr->axis);
    int64_t grain = dlt_grain(s.outer * s.inner);
    dlt_pool_for(call->stream, s.axis, grain < CHANNELS ? grain : CHANNELS, backward_task,
                 (void *)call);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltBias *attr = n->attr;
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (x->layout != DLT_NHWC || attr->axis != 1) return dlt_kernel_accepts_plain(n, why_not);
    if (y->shape.rank == 4 && y->layout != x->layout) {
        return dlt_cpu_refuse(why_not, "input and output differ in layout");
    }
    (void)dev;
    return (x->dtype == DLT_F32 && y->dtype == DLT_F32) ||
           dlt_cpu_refuse(why_not, "NHWC wants f32");
}

static const DltKernel plain_forward = {
    .name = "bias_fwd.cpu.plain", .accepts = accepts, .launch = forward};
const DltKernel *const dlt_cpu_bias_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {
    .name = "bias_bwd.cpu.plain", .accepts = accepts, .launch = backward};
const DltKernel *const dlt_cpu_bias_bwd[] = {&plain_backward, NULL};
