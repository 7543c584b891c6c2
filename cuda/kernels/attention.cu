/* Attention and rotary positions, straight from the definition: a warp takes one query (or, for dk and
 * dv, one key) and walks over the tokens on its other side, its lanes holding the columns of a head.
 * Any shape and type; the order of all sums is fixed. Faster kernels stand in front of these. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/attention.h"
#include "ops/step.h"

namespace
{

enum { COLUMNS = DLT_MAX_HEAD_DIM / WARP, WARPS = BLOCK / WARP };

/* A call's sizes; columns of a token in qkv are [queries | keys | values]. */
struct Shape {
    DltAttention a;
    int64_t batch, t, width, group;
};

/* Columns lane, lane + 32, ... of one head; missing ones are 0. */
struct Vector {
    float v[COLUMNS];
};
__device__ __forceinline__ Vector zero_vector()
{
    Vector r;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        r.v[k] = 0;
    return r;
}
template <typename T> __device__ __forceinline__ Vector load(const Shape &s, const T *x)
{
    Vector r;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        int c = (int)(threadIdx.x % WARP) + k * WARP;
        r.v[k] = c < s.a.head_dim ? to_float(x[c]) : 0.0f;
    }
    return r;
}
template <typename T>
__device__ __forceinline__ void store(const Shape &s, T *y, const Vector &r, float scale)
{
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        int c = (int)(threadIdx.x % WARP) + k * WARP;
        if (c < s.a.head_dim) y[c] = from_float<T>(r.v[k] * scale);
    }
}
__device__ __forceinline__ float dot(const Vector &x, const Vector &y)
{
    float sum = 0;
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        sum += x.v[k] * y.v[k];
    return warp_sum(sum);
}
/* sum = sum * keep + x * weight */
__device__ __forceinline__ void add(Vector &sum, float keep, const Vector &x, float weight)
{
#pragma unroll
    for (int k = 0; k < COLUMNS; k++)
        sum.v[k] = sum.v[k] * keep + x.v[k] * weight;
}

__device__ __forceinline__ int64_t in_qkv(const Shape &s, int64_t b, int64_t token, int64_t head)
{
    return (b * s.t + token) * s.width + head * s.a.head_dim;
}
__device__ __forceinline__ int64_t in_o(const Shape &s, int64_t b, int64_t token, int64_t head)
{
    return ((b * s.t + token) * s.a.heads + head) * s.a.head_dim;
}
/* 1 / (1 - p) for elements that are kept, 0 for others, 1 without dropout. */
__device__ __forceinline__ float kept(const Shape &s, const DltStepState *state, int64_t row,
                                      int64_t j)
{
    if (!state) return 1.0f;
    uint64_t e = dlt_attention_draw(row, s.t) + (uint64_t)j;
    DltRand4 r = dlt_dropout_draw(state->seed, s.a.drop.id, state->batch, e / 4);
    return r.v[e % 4] >= dlt_dropout_threshold(s.a.drop.p) ? 1.0f / (1.0f - s.a.drop.p) : 0.0f;
}

/* o[b,i,h] = sum_j softmax(scale q k^T)[i,j] v[j], the running maximum m and sum l corrected as they
 * grow; stats = m + log l.  qkv [B,T,(Hq+2Hkv)D] T, o [B,T,Hq D] T, stats f32 [B,Hq,T].  A warp a
 * row.  ops/attention.h; Milakov & Gimelshein 2018 */
template <typename T>
__global__ void attention_k(Shape s, const T *qkv, const DltStepState *state, T *o, float *stats)
{
    begin();
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= s.batch * s.a.heads * s.t) return;
    int64_t i = row % s.t, h = row / s.t % s.a.heads, b = row / s.t / s.a.heads;
    int64_t kh = s.a.heads + h / s.group, vh = kh + s.a.kv_heads;
    Vector q = load(s, qkv + in_qkv(s, b, i, h)), sum = zero_vector();
    float m = -INFINITY, l = 0;
    DltKeys keys = dlt_attention_keys(&s.a, i, s.t);
    for (int64_t j = keys.lo; j < keys.hi; j++) {
        float x = (float)s.a.scale * dot(q, load(s, qkv + in_qkv(s, b, j, kh)));
        float top = fmaxf(m, x), old = expf(m - top), p = expf(x - top);
        l = l * old + p;
        add(sum, old, load(s, qkv + in_qkv(s, b, j, vh)), p * kept(s, state, row, j));
        m = top;
    }
    store(s, o + in_o(s, b, i, h), sum, 1.0f / l);
    if (threadIdx.x % WARP == 0) stats[row] = m + logf(l);
}

/* What backward knows of one (query, key) pair. */
struct Pair {
    float p, ds, keep;
};
template <typename T> struct Backward {
    const T *d_o, *qkv, *o;
    const float *stats;
    const DltStepState *state;
    T *dqkv;
};
__device__ __forceinline__ Pair pair_of(const Shape &s, const DltStepState *state, int64_t row,
                                        int64_t j, float score, float stats, float dv, float delta)
{
    Pair e;
    e.p = expf((float)s.a.scale * score - stats);
    e.keep = kept(s, state, row, j);
    e.ds = e.p * (e.keep * dv - delta);
    return e;
}

/* dq[i] = scale sum_j ds[i,j] k[j].  A warp a row (b, h, i).  ops/attention.h */
template <typename T> __global__ void attention_dq_k(Shape s, Backward<T> x)
{
    begin();
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (row >= s.batch * s.a.heads * s.t) return;
    int64_t i = row % s.t, h = row / s.t % s.a.heads, b = row / s.t / s.a.heads;
    int64_t kh = s.a.heads + h / s.group, vh = kh + s.a.kv_heads;
    Vector q = load(s, x.qkv + in_qkv(s, b, i, h)), d = load(s, x.d_o + in_o(s, b, i, h));
    float delta = dot(d, load(s, x.o + in_o(s, b, i, h)));
    Vector dq = zero_vector();
    DltKeys keys = dlt_attention_keys(&s.a, i, s.t);
    for (int64_t j = keys.lo; j < keys.hi; j++) {
        Vector k = load(s, x.qkv + in_qkv(s, b, j, kh));
        float dv = dot(d, load(s, x.qkv + in_qkv(s, b, j, vh)));
        add(dq, 1.0f, k, pair_of(s, x.state, row, j, dot(q, k), x.stats[row], dv, delta).ds);
    }
    store(s, x.dqkv + in_qkv(s, b, i, h), dq, (float)s.a.scale);
}

/* dk[j] = scale sum_i ds[i,j] q[i], dv[j] = sum_i drop(p[i,j]) do[i], over the queries of the key's
 * group that see it.  A warp a row (b, key head, j).  ops/attention.h */
template <typename T> __global__ void attention_dkv_k(Shape s, Backward<T> x)
{
    begin();
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (n >= s.batch * s.a.kv_heads * s.t) return;
    int64_t j = n % s.t, head = n / s.t % s.a.kv_heads, b = n / s.t / s.a.kv_heads;
    int64_t kh = s.a.heads + head, vh = kh + s.a.kv_heads;
    Vector k = load(s, x.qkv + in_qkv(s, b, j, kh)), v = load(s, x.qkv + in_qkv(s, b, j, vh));
    Vector dk = zero_vector(), dv = zero_vector();
    DltKeys queries = dlt_attention_queries(&s.a, j, s.t);
    for (int64_t h = head * s.group; h < (head + 1) * s.group; h++)
        for (int64_t i = queries.lo; i < queries.hi; i++) {
            int64_t row = (b * s.a.heads + h) * s.t + i;
            Vector q = load(s, x.qkv + in_qkv(s, b, i, h)), d = load(s, x.d_o + in_o(s, b, i, h));
            float delta = dot(d, load(s, x.o + in_o(s, b, i, h)));
            Pair e = pair_of(s, x.state, row, j, dot(q, k), x.stats[row], dot(d, v), delta);
            add(dk, 1.0f, q, e.ds);
            add(dv, 1.0f, d, e.p * e.keep);
        }
    store(s, x.dqkv + in_qkv(s, b, j, kh), dk, (float)s.a.scale);
    store(s, x.dqkv + in_qkv(s, b, j, vh), dv, 1.0f);
}

static Shape shape_of(const DltNode *n, const DltTensor *qkv)
{
    Shape s;
    s.a = *(const DltAttention *)n->attr;
    s.batch = qkv->shape.dim[0];
    s.t = qkv->shape.dim[1];
    s.width = qkv->shape.dim[2];
    s.group = s.a.heads / s.a.kv_heads;
    return s;
}
static unsigned warp_blocks(int64_t rows)
{
    return (unsigned)ceil_div(rows, WARPS);
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    Shape x = shape_of(c->node, c->node->in[0]);
    const DltStepState *state = x.a.drop.p > 0 ? (const DltStepState *)c->in[1] : nullptr;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, attention_k<T>, warp_blocks(x.batch * x.a.heads * x.t),
                               BLOCK, 0, x, (const T *)c->in[0], state, (T *)c->out[0],
                               (float *)c->out[1]));
    return s;
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    Shape x = shape_of(c->node, c->node->in[1]);
    const DltStepState *state = x.a.drop.p > 0 ? (const DltStepState *)c->in[4] : nullptr;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[1]->dtype, T, {
        Backward<T> y = {(const T *)c->in[0],
                         (const T *)c->in[1],
                         (const T *)c->in[2],
                         (const float *)c->in[3],
                         state,
                         (T *)c->out[0]};
        s = enqueue(c, err, attention_dq_k<T>, warp_blocks(x.batch * x.a.heads * x.t), BLOCK, 0, x,
                    y);
        if (s == DLT_OK)
            s = enqueue(c, err, attention_dkv_k<T>, warp_blocks(x.batch * x.a.kv_heads * x.t),
                        BLOCK, 0, x, y);
    });
    return s;
}

/* All of one type but the statistics, which are f32; the gradient without its column sums. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    bool gradient = n->kind == DLT_OP_attention_bwd;
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (gradient && n->out[1]) return dlt_cuda_refuse(why_not, "column sums with the gradient");
    DltDtype type = n->in[0]->dtype;
    bool same = n->out[0]->dtype == type &&
                (!gradient || (n->in[1]->dtype == type && n->in[2]->dtype == type));
    if (same && (gradient ? n->in[3] : n->out[1])->dtype == DLT_F32) return true;
    return dlt_cuda_refuse(why_not, "tensors differ in type");
}

/* ---- rope ---- */

/* One thread a pair: y[c] = x[c] cos - x[c+D/2] sin, y[c+D/2] = x[c+D/2] cos + x[c] sin; columns behind
 * the turned heads are copied.  x, y [B,T,W] T, may be one; place i32[1] or null: t counts from it.  Angles in double: positions reach 10^5,
 * and a float angle would be off by 10^-2 there.  ops/attention.h; Su et al. 2021 */
template <typename T>
__global__ void rope_k(DltRope a, const T *x, const int32_t *place, T *y, int64_t rows, int64_t t,
                       int64_t width)
{
    begin();
    int64_t before = place ? *place : 0;
    int64_t half = a.head_dim / 2, pairs = a.heads * half, rest = width - 2 * pairs;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; n < rows * (pairs + rest);
         n += step) {
        int64_t row = n / (pairs + rest), p = n % (pairs + rest), at = row * width;
        if (p >= pairs) {
            y[at + pairs + p] = x[at + pairs + p];
            continue;
        }
        int64_t c = p % half, lo = at + p / half * a.head_dim + c;
        double angle =
            (double)(before + row % t) * pow(a.base, -2.0 * (double)c / (double)a.head_dim);
        float k = (float)cos(angle), s = (float)(a.inverse ? -sin(angle) : sin(angle));
        float u = to_float(x[lo]), v = to_float(x[lo + half]);
        y[lo] = from_float<T>(u * k - v * s);
        y[lo + half] = from_float<T>(v * k + u * s);
    }
}

static DltStatus rope_launch(const DltCall *c, DltErr *err)
{
    const DltShape *x = &c->node->in[0]->shape;
    DltRope a = *(const DltRope *)c->node->attr;
    int64_t rows = x->dim[0] * x->dim[1], n = count_of(c->node->in[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, rope_k<T>, blocks_for(c, n, BLOCK), BLOCK, 0, a,
                               (const T *)c->in[0], (const int32_t *)c->in[1], (T *)c->out[0], rows,
                               x->dim[1], x->dim[2]));
    return s;
}
static bool rope_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "x and y differ in type");
}
DLT_CUDA_KERNEL(rope, "rope.cuda.pair", rope_accepts, nullptr, rope_launch);

/* ---- one new token ---- */

/* A token's keys and values go into row `place` of the cache; o = attention of its queries over the
 * rows they see, the running maximum m and sum l corrected as they grow. The new row is read where it
 * comes from, so no head waits for another. qkv f32 [B,1,(Hq+2Hkv)D], cache f32 [B,T,2 Hkv D], place
 * i32[1], o f32 [B,1,Hq D]. A warp a query head.  ops/decode.h */
__global__ void step_k(Shape s, const float *qkv, float *cache, const int32_t *place, float *o)
{
    begin();
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP, i = *place;
    if (row >= s.batch * s.a.heads || i < 0 || i >= s.t) return;
    int64_t h = row % s.a.heads, b = row / s.a.heads, d = s.a.head_dim, kv = h / s.group;
    int64_t pair = 2 * s.a.kv_heads * d;
    const float *token = qkv + b * s.width, *pairs = token + s.a.heads * d;
    float *past = cache + b * s.t * pair;
    int64_t k_at = kv * d, v_at = k_at + s.a.kv_heads * d;
    Vector q = load(s, token + h * d), k = load(s, pairs + k_at), v = load(s, pairs + v_at);
    if (h % s.group == 0) {
        store(s, past + i * pair + k_at, k, 1.0f);
        store(s, past + i * pair + v_at, v, 1.0f);
    }
    float m = (float)s.a.scale * dot(q, k), l = 1;
    Vector sum = v;
    DltKeys keys = dlt_attention_keys(&s.a, i, s.t);
    for (int64_t j = keys.lo; j < i; j++) {
        float x = (float)s.a.scale * dot(q, load(s, past + j * pair + k_at));
        float top = fmaxf(m, x), old = expf(m - top), p = expf(x - top);
        l = l * old + p;
        add(sum, old, load(s, past + j * pair + v_at), p);
        m = top;
    }
    store(s, o + row * d, sum, 1.0f / l);
}

static DltStatus step_launch(const DltCall *c, DltErr *err)
{
    const DltShape *x = &c->node->in[0]->shape, *cache = &c->node->in[1]->shape;
    DltAttention a = *(const DltAttention *)c->node->attr;
    Shape s = {a, x->dim[0], cache->dim[1], x->dim[2], a.heads / a.kv_heads};
    int64_t warps = x->dim[0] * a.heads;
    return enqueue(c, err, step_k, (unsigned)((warps + WARPS - 1) / WARPS), BLOCK, 0, s,
                   (const float *)c->in[0], (float *)c->in[1], (const int32_t *)c->in[2],
                   (float *)c->out[0]);
}
static bool step_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype == DLT_F32) return true;
    return dlt_cuda_refuse(why_not, "qkv is not f32");
}
DLT_CUDA_KERNEL(step, "attention_step.cuda.warp_row", step_accepts, nullptr, step_launch);

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_fwd_plain, "attention_fwd.cuda.warp_row", accepts,
                         nullptr, forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_bwd_plain, "attention_bwd.cuda.warp_row", accepts,
                         nullptr, backward);
const DltKernel *const dlt_cuda_rope[] = {&rope, nullptr};
const DltKernel *const dlt_cuda_attention_step[] = {&step, nullptr};
}
