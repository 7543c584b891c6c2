/* Softmax over the last axis: largest value, sum, result; a row stays in the cache between the
 * three looks at it. */
#include "cuda/kernels/rows.cuh"

namespace
{

/* y = exp(x - max) / sum exp(x - max).  x, y [rows, V] T. */
template <typename T, int W> __global__ void softmax_k(const T *x, T *y, int64_t rows, int64_t n)
{
    begin();
    using R = Row<W>;
    int64_t r = R::index();
    if (r >= rows) return;
    float m = -INFINITY, s = 0;
    for (int64_t i = R::lane(); i < n; i += W)
        m = fmaxf(m, to_float(x[r * n + i]));
    m = R::max(m);
    for (int64_t i = R::lane(); i < n; i += W)
        s += expf(to_float(x[r * n + i]) - m);
    float k = 1.0f / R::sum(s);
    for (int64_t i = R::lane(); i < n; i += W)
        y[r * n + i] = from_float<T>(expf(to_float(x[r * n + i]) - m) * k);
}

/* dx = y (dy - sum dy y).  dy, y, dx [rows, V] T. */
template <typename T, int W>
__global__ void softmax_grad_k(const T *dy, const T *y, T *dx, int64_t rows, int64_t n)
{
    begin();
    using R = Row<W>;
    int64_t r = R::index();
    if (r >= rows) return;
    float s = 0;
    for (int64_t i = R::lane(); i < n; i += W)
        s += to_float(dy[r * n + i]) * to_float(y[r * n + i]);
    s = R::sum(s);
    for (int64_t i = R::lane(); i < n; i += W)
        dx[r * n + i] = from_float<T>(to_float(y[r * n + i]) * (to_float(dy[r * n + i]) - s));
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        const T *x = (const T *)c->in[0];
        T *y = (T *)c->out[0];
        s = n <= SHORT_ROW ? enqueue(c, err, softmax_k<T, WARP>, row_blocks(rows, WARP), BLOCK, 0,
                                     x, y, rows, n)
                           : enqueue(c, err, softmax_k<T, BLOCK>, row_blocks(rows, BLOCK), BLOCK, 0,
                                     x, y, rows, n);
    });
    return s;
}

static DltStatus backward(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        const T *dy = (const T *)c->in[0], *y = (const T *)c->in[1];
        T *dx = (T *)c->out[0];
        s = n <= SHORT_ROW ? enqueue(c, err, softmax_grad_k<T, WARP>, row_blocks(rows, WARP), BLOCK,
                                     0, dy, y, dx, rows, n)
                           : enqueue(c, err, softmax_grad_k<T, BLOCK>, row_blocks(rows, BLOCK),
                                     BLOCK, 0, dy, y, dx, rows, n);
    });
    return s;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype && (!n->in[1] || n->in[1]->dtype == n->out[0]->dtype))
        return true;
    return dlt_cuda_refuse(why_not, "tensors differ in type");
}

DLT_CUDA_KERNEL(fwd, "softmax_fwd.cuda.row", accepts, nullptr, forward);
DLT_CUDA_KERNEL(bwd, "softmax_bwd.cuda.row", accepts, nullptr, backward);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_softmax_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_softmax_bwd[] = {&bwd, nullptr};
}
