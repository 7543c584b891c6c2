/* A small output layer with its loss: logits, cross entropy and the gradient that goes on to the layer in front.
 * All of it is a row's own, so one kernel takes the place of three launches that wait for each other. A
 * block works on a row, its warps on classes and then on features: a step of a small network waits for
 * the instructions of one warp, so each has few. The sum of
 * the rows' losses is a node of its own, beside what goes on. Formulas: ops/loss_ops.h. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/shape.cuh"

namespace
{

enum { MOST_CLASSES = WARP, MOST_FEATURES = 8192, WARPS = BLOCK / WARP, BLOCKS_A_SM = 8 };
/* of more rows than these, products on the tensor cores are faster (H200, an update of the multilayer perceptron with
 * 4,096 rows: f32 0.146 against 0.138 ms; bf16 0.096 against 0.101) */
enum { MOST_ROWS_F32 = 2048, MOST_ROWS = 4096 };
/* the warp with the fewest classes works out the row's loss */
enum { JUDGE = WARPS - 1 };

struct Layer {
    Rows d;
    int c; /* features */
    DltUnary act_grad;
};

/* M neighbours, one access: M is 1 or 2. */
template <typename T, int M> __device__ __forceinline__ void load_few(const T *p, float v[M])
{
    T own[M];
    if constexpr (M == 1)
        own[0] = *p;
    else if constexpr (sizeof(T) == 2)
        memcpy(own, reinterpret_cast<const uint32_t *>(p), sizeof own);
    else
        memcpy(own, reinterpret_cast<const float2 *>(p), sizeof own);
    for (int k = 0; k < M; k++)
        v[k] = to_float(own[k]);
}

/* z[v] = x[c] w[v, c] + bias[v], rounded to T. */
template <typename T, int N>
__device__ __forceinline__ void row_logits(const Layer &l, const T *x, const T *w, In bias,
                                           float *z)
{
    int lane = threadIdx.x % WARP;
    for (int v = threadIdx.x / WARP; v < l.d.n; v += WARPS) {
        float dot = 0, add = bias.p ? bias[v] : 0.0f;
        for (int i = lane * N; i < l.c; i += WARP * N) {
            float a[N], b[N];
            load_v<T, N>(x + i, a);
            load_v<T, N>(w + v * l.c + i, b);
#pragma unroll
            for (int k = 0; k < N; k++)
                dot += a[k] * b[k];
        }
        dot = warp_sum(dot);
        if (lane == 0) z[v] = to_float(from_float<T>(dot + add));
    }
}

/* One warp, a lane a class: d[v] = scale q (p_v - [v = y]), rounded to T; the row's loss and weight. A label
 * outside [0, V) that is not `ignore` makes the loss NaN. */
template <typename T>
__device__ __forceinline__ float class_gradient(const Layer &l, float z, int32_t label, float q,
                                                float scale, double pair[2])
{
    int lane = threadIdx.x % WARP;
    bool counts = label != l.d.ignore, bad = counts && (label < 0 || label >= l.d.n);
    float most = warp_max(lane < l.d.n ? z : -INFINITY);
    float lse = most + logf(warp_sum(lane < l.d.n ? expf(z - most) : 0.0f));
    float own = __shfl_sync(0xffffffffu, z, bad || !counts ? 0 : label);
    bool some = counts && q != 0.0f; /* padding rows count nothing, whatever lies in them */
    pair[0] = bad ? (double)NAN : some ? (double)(q * (lse - own)) : 0.0;
    pair[1] = some && !bad ? (double)q : 0.0;
    float factor = counts ? q * scale : 0.0f;
    float g = factor * (expf(z - lse) - (lane == label ? 1.0f : 0.0f));
    return factor == 0.0f ? 0.0f : to_float(from_float<T>(g));
}

/* dx[c] = act_grad'(saved[c]) sum_v d[v] w[v, c], M features a thread. */
template <typename T, int M>
__device__ __forceinline__ void row_data(const Layer &l, const T *saved, const T *w, const float *d,
                                         T *dx)
{
    for (int i = threadIdx.x * M; i < l.c; i += BLOCK * M) {
        float a[M] = {}, b[M], sum[M] = {};
        if (l.act_grad.fn != DLT_FN_NONE) load_few<T, M>(saved + i, a);
#pragma unroll 5
        for (int v = 0; v < l.d.n; v++) {
            load_few<T, M>(w + v * l.c + i, b);
            for (int k = 0; k < M; k++)
                sum[k] += d[v] * b[k];
        }
        with_fn(l.act_grad.fn, [&](auto fn) {
            for (int k = 0; k < M; k++)
                sum[k] *= act_grad<decltype(fn)::value>(a[k], (float)l.act_grad.alpha);
        });
        for (int k = 0; k < M; k++)
            dx[i + k] = from_float<T>(sum[k]);
    }
}

/* x [rows, C] T, w [V, C] T, bias [V] or NULL, y [rows] i32, weights [rows / per_sample], saved [rows, C] T or
 * NULL -> dx [rows, C], dlogits, logits [rows, V] T, pairs f64[rows, 2].  N and M: elements loaded at once.
 * Grid: any; a block a row. */
template <typename T, int N, int M>
__global__ void __launch_bounds__(BLOCK)
    output_layer_k(Layer l, const T *x, const T *w, In bias, const int32_t *y, In weights,
                   const DltStepState *step, const T *saved, T *dx, T *dlogits, T *logits,
                   double *pairs)
{
    begin();
    __shared__ float z[MOST_CLASSES], d[MOST_CLASSES];
    int lane = threadIdx.x % WARP;
    for (int64_t r = blockIdx.x; r < l.d.rows; r += gridDim.x) {
        bool judges = threadIdx.x / WARP == JUDGE;
        int32_t label = 0;
        float q = 0, scale = 0;
        if (judges) { /* read before the logits are waited for */
            label = y[r];
            q = l.d.sample_weight(weights, r);
            scale = gradient_scale(step);
        }
        row_logits<T, N>(l, x + r * l.c, w, bias, z);
        __syncthreads();
        if (judges) {
            double pair[2];
            float own_z = lane < l.d.n ? z[lane] : 0.0f;
            d[lane] = class_gradient<T>(l, own_z, label, q, scale, pair);
            if (lane < l.d.n) {
                logits[r * l.d.n + lane] = from_float<T>(own_z);
                dlogits[r * l.d.n + lane] = from_float<T>(d[lane]);
            }
            if (lane == 0) {
                pairs[2 * r] = pair[0];
                pairs[2 * r + 1] = pair[1];
            }
        }
        __syncthreads();
        row_data<T, M>(l, saved + r * l.c, w, d, dx + r * l.c);
    }
}

/* loss f64[2] = sum of pairs f64[rows, 2].  Grid: 1. */
__global__ void loss_sum_k(const double *pairs, int64_t rows, double *loss)
{
    begin();
    double sum[2] = {};
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum[0] += pairs[2 * r];
        sum[1] += pairs[2 * r + 1];
    }
    for (int k = 0; k < 2; k++) {
        sum[k] = block_sum(sum[k]);
        if (threadIdx.x == 0) loss[k] = sum[k];
    }
}

bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    const DltTensor *x = n->in[0];
    int64_t v = n->in[1]->shape.dim[0], c = last_dim(x);
    for (int i = 0; i < 3; i++)
        if (n->out[i]->dtype != x->dtype || n->in[1]->dtype != x->dtype ||
            (n->in[6] && n->in[6]->dtype != x->dtype))
            return dlt_cuda_refuse(why_not, "features, weights and gradients have several types");
    int64_t rows = count_of(n->in[3]), most = x->dtype == DLT_F32 ? MOST_ROWS_F32 : MOST_ROWS;
    if (rows > most) return dlt_cuda_refuse(why_not, "more than %lld rows", (long long)most);
    if (v > MOST_CLASSES || c > MOST_FEATURES)
        return dlt_cuda_refuse(why_not, "more than %d classes or %d features", MOST_CLASSES,
                               MOST_FEATURES);
    return true;
}

DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltOutputLayer *a = (const DltOutputLayer *)n->attr;
    int64_t rows = count_of(n->in[3]), most = (int64_t)c->stream->dev->n_sm * BLOCKS_A_SM;
    Layer l = {{rows, n->in[1]->shape.dim[0], rows / count_of(n->in[4]), 0, 0.0f, a->ignore, false},
               (int)last_dim(n->in[0]),
               a->act_grad};
    unsigned blocks = (unsigned)(rows < most ? rows : most);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T, {
        bool packed = aligned16(c->in[0], c->in[1], c->in[6]) && l.c % Pack<T>::n == 0;
        auto kernel = packed ? output_layer_k<T, Pack<T>::n, 2> : output_layer_k<T, 1, 1>;
        s = enqueue(c, err, kernel, blocks, BLOCK, 0, l, (const T *)c->in[0], (const T *)c->in[1],
                    input(c, 2), (const int32_t *)c->in[3], input(c, 4),
                    (const DltStepState *)c->in[5], (const T *)c->in[6], (T *)c->out[0],
                    (T *)c->out[1], (T *)c->out[2], (double *)c->out[3]);
    });
    return s;
}

DltStatus launch_sum(const DltCall *c, DltErr *err)
{
    return enqueue(c, err, loss_sum_k, 1, BLOCK, 0, (const double *)c->in[0],
                   count_of(c->node->in[0]) / 2, (double *)c->out[0]);
}

DLT_CUDA_KERNEL(row_kernel, "output_layer.cuda.row", accepts, nullptr, launch);
DLT_CUDA_KERNEL(sum_kernel, "loss_sum.cuda.block", dlt_cuda_accepts_plain, nullptr, launch_sum);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_output_layer[] = {&row_kernel, nullptr};
const DltKernel *const dlt_cuda_loss_sum[] = {&sum_kernel, nullptr};
}
