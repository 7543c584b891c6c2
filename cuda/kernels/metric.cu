/* Metrics add to accumulators in doubles on the device, so that a step reads nothing back. Sums of
 * a row's weight (whole numbers) are exact in any order; all others have a fixed one. */
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "ops/loss_ops.h"

namespace
{

/* acc[i] += v[i].  v, acc f64[n]. */
__global__ void add_k(const double *v, double *acc, int64_t n)
{
    begin();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        acc[i] += v[i];
}

/* hits and weight of rows whose label is among the k largest logits; of equal ones the lower index
 * counts first, NaN before every number. Labels outside [0, V) count nothing.  logits [rows, V] T, y
 * i32, w one a sample. */
template <typename T, int W>
__global__ void topk_k(DltMetricTopk a, const T *logits, const int32_t *y, In w, int64_t rows,
                       int64_t n, int64_t per_sample, double *acc, double *part, unsigned *ticket)
{
    begin();
    using R = Row<W>;
    double sum[2] = {};
    for (int64_t r = R::index(); r < rows; r += (int64_t)gridDim.x * (BLOCK / W)) {
        const T *x = logits + r * n;
        int32_t label = y[r];
        float q = w.p ? w[r / per_sample] : 1.0f;
        bool counts = label != a.ignore && label >= 0 && label < n;
        float xy = counts ? to_float(x[label]) : 0.0f;
        int before = 0;
        for (int64_t i = R::lane(); i < n; i += W) {
            float v = to_float(x[i]);
            before += i < label ? !(v < xy) : i > label && !(v <= xy);
        }
        before = R::sum(before);
        if (!counts || R::lane() != 0) continue;
        sum[0] += before < a.k ? (double)q : 0.0;
        sum[1] += (double)q;
    }
    if (grid_sum<2>(sum, part, ticket) && threadIdx.x == 0) {
        acc[0] += sum[0];
        acc[1] += sum[1];
    }
}

/* NaN stands above every number. */
__device__ __forceinline__ bool above(float a, float b)
{
    return a > b || (a != a && b == b);
}
/* acc[y * V + argmax logits] += w; a warp a row. */
template <typename T>
__global__ void confusion_k(const T *logits, const int32_t *y, In w, int64_t rows, int64_t n,
                            int64_t per_sample, double *acc)
{
    begin();
    int lane = threadIdx.x % WARP;
    int64_t r = Row<WARP>::index();
    if (r >= rows) return;
    const T *x = logits + r * n;
    float best = -INFINITY;
    int64_t at = n;
    for (int64_t i = lane; i < n; i += WARP)
        if (at == n || above(to_float(x[i]), best)) best = to_float(x[i]), at = i;
#pragma unroll
    for (int o = WARP / 2; o > 0; o /= 2) {
        float v = __shfl_xor_sync(0xffffffffu, best, o);
        int64_t j = __shfl_xor_sync(0xffffffffu, at, o);
        if (j < n && (at == n || above(v, best) || (!above(best, v) && j < at))) best = v, at = j;
    }
    float q = w.p ? w[r / per_sample] : 1.0f;
    if (lane == 0 && y[r] >= 0 && y[r] < n && q != 0.0f)
        atomicAdd(acc + (int64_t)y[r] * n + at, (double)q); /* whole numbers: order is no matter */
}

/* acc += {w a sample, w |d|, w d^2, w t, w t^2, w an element}, d = p - t. */
__global__ void regression_k(In p, In t, In w, int64_t n, int64_t per_sample, double *acc,
                             double *part, unsigned *ticket)
{
    begin();
    enum { K = 6 };
    double sum[K] = {};
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        double q = w.p ? (double)w[i / per_sample] : 1.0, y = (double)t[i], d = (double)p[i] - y;
        if (q == 0) continue;
        sum[0] += i % per_sample == 0 ? q : 0.0;
        sum[1] += q * fabs(d);
        sum[2] += q * d * d;
        sum[3] += q * y;
        sum[4] += q * y * y;
        sum[5] += q;
    }
    if (grid_sum<K>(sum, part, ticket) && threadIdx.x == 0)
        for (int k = 0; k < K; k++)
            acc[k] += sum[k];
}

static int64_t per_sample(const DltNode *n, int64_t items)
{
    int64_t samples = n->in[2] ? count_of(n->in[2]) : items;
    return samples ? items / samples : 1;
}
static DltStatus launch_add(const DltCall *c, DltErr *err)
{
    return enqueue(c, err, add_k, 1, BLOCK, 0, (const double *)c->in[0], (double *)c->in[1],
                   count_of(c->node->in[0]));
}
static DltStatus launch_topk(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[1]);
    int width = n <= SHORT_ROW ? WARP : BLOCK;
    unsigned blocks = sum_blocks(c->stream->dev->n_sm, rows, BLOCK / width);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        auto kernel = width == WARP ? topk_k<T, WARP> : topk_k<T, BLOCK>;
        s = enqueue(c, err, kernel, blocks, BLOCK, 0, *(const DltMetricTopk *)c->node->attr,
                    (const T *)c->in[0], (const int32_t *)c->in[1], input(c, 2), rows, n,
                    per_sample(c->node, rows), (double *)c->in[3], (double *)c->work,
                    c->stream->ticket);
    });
    return s;
}
static DltStatus launch_confusion(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[1]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, confusion_k<T>, row_blocks(rows, WARP), BLOCK, 0,
                               (const T *)c->in[0], (const int32_t *)c->in[1], input(c, 2), rows, n,
                               per_sample(c->node, rows), (double *)c->in[3]));
    return s;
}
static DltStatus launch_regression(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    return enqueue(c, err, regression_k, sum_blocks(c->stream->dev->n_sm, n, BLOCK), BLOCK, 0,
                   input(c, 0), input(c, 1), input(c, 2), n, per_sample(c->node, n),
                   (double *)c->in[3], (double *)c->work, c->stream->ticket);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)err;
    p->work_bytes = sum_bytes(dev->n_sm, 6);
    return DLT_OK;
}

DLT_CUDA_KERNEL(add, "metric_add.cuda.flat", dlt_cuda_accepts_plain, nullptr, launch_add);
DLT_CUDA_KERNEL(topk, "metric_topk.cuda.row", accepts_labels, prepare, launch_topk);
DLT_CUDA_KERNEL(confusion, "metric_confusion.cuda.row", accepts_labels, nullptr, launch_confusion);
DLT_CUDA_KERNEL(regression, "metric_regression.cuda.flat", dlt_cuda_accepts_plain, prepare,
                launch_regression);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_metric_add[] = {&add, nullptr};
const DltKernel *const dlt_cuda_metric_topk[] = {&topk, nullptr};
const DltKernel *const dlt_cuda_metric_confusion[] = {&confusion, nullptr};
const DltKernel *const dlt_cuda_metric_regression[] = {&regression, nullptr};
}
