/* The gradient of an embedding over a long list of ids: ids are sorted by counting (stable, so additions
 * have the order of the tokens), the sorted list is cut into segments of equal length, and each segment adds
 * its runs of equal ids. Ids whose run lies in several segments are completed by a second pass over the
 * table, in order. Frequent ids are so shared by many blocks, and rare ones cost no more than their rows. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/shape_ops.h"

namespace
{

enum { CHUNK = 512, SEGMENT = 32, SCAN = 1024, LEAST_IDS = 256 };

/* Scratch of a call. */
struct Sorting {
    int *before; /* [chunks, V]: occurrences in the chunk, then in the chunks before it */
    int *start;  /* [V + 1]: first place of an id in the sorted list */
    int *order;  /* [T]: positions of the ids, sorted */
    float *
        part; /* [segments, 2, D]: the run that began before the segment, the one that ends behind it */
    int n, vocab, d, chunks, segments;
};

__device__ __forceinline__ bool known(const Sorting &s, int32_t id)
{
    return id >= 0 && id < s.vocab; /* others have no row */
}

__global__ void clear_k(int *p, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        p[i] = 0;
}
/* before[chunk, v] = occurrences of v among the chunk's ids.  Grid: chunks. */
__global__ void __launch_bounds__(CHUNK) count_k(Sorting s, const int32_t *ids)
{
    begin();
    int t = (int)(blockIdx.x * CHUNK + threadIdx.x);
    if (t < s.n && known(s, ids[t]))
        atomicAdd(&s.before[(int64_t)blockIdx.x * s.vocab + ids[t]], 1);
}
/* before[chunk, v] = occurrences in front of the chunk; start[v + 1] = all of them. */
__global__ void column_k(Sorting s)
{
    begin();
    int v = (int)(blockIdx.x * blockDim.x + threadIdx.x), sum = 0;
    if (v >= s.vocab) return;
#pragma unroll 8
    for (int k = 0; k < s.chunks; k++) {
        int *p = &s.before[(int64_t)k * s.vocab + v], own = *p;
        *p = sum;
        sum += own;
    }
    s.start[v + 1] = sum;
}
/* start = running sums of itself. One block: a thread sums a stretch, then adds what lies before. */
__global__ void __launch_bounds__(SCAN) scan_k(Sorting s)
{
    begin();
    __shared__ int part[SCAN];
    int each = (s.vocab + SCAN - 1) / SCAN, first = (int)threadIdx.x * each, sum = 0;
    int last = min(first + each, s.vocab);
#pragma unroll 8
    for (int v = first; v < last; v++)
        sum += s.start[v + 1];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int o = 1; o < SCAN; o *= 2) {
        int other = (int)threadIdx.x >= o ? part[threadIdx.x - o] : 0;
        __syncthreads();
        part[threadIdx.x] += other;
        __syncthreads();
    }
    sum = part[threadIdx.x] - sum;
    for (int v = first; v < last; v++)
        s.start[v + 1] = sum += s.start[v + 1];
    if (threadIdx.x == 0) s.start[0] = 0;
}
/* order: each id's position to its place, in the order of the list. Grid: chunks. */
__global__ void __launch_bounds__(CHUNK) place_k(Sorting s, const int32_t *ids)
{
    begin();
    __shared__ int32_t own[CHUNK];
    int t = (int)(blockIdx.x * CHUNK + threadIdx.x), rank = 0;
    int32_t id = t < s.n ? ids[t] : -1;
    own[threadIdx.x] = id;
    __syncthreads();
    for (int k = 0; k < (int)threadIdx.x; k++)
        rank += own[k] == id;
    if (known(s, id))
        s.order[s.start[id] + s.before[(int64_t)blockIdx.x * s.vocab + id] + rank] = t;
}

/* dw[v, c] = (base +) sum; V neighbours. */
template <int V>
__device__ __forceinline__ void put_row(const float *base, float *dw, int64_t at, float *sum)
{
    if (base) {
        float b[V];
        load_v<float, V>(base + at, b);
        for (int k = 0; k < V; k++)
            sum[k] += b[k];
    }
    store_v<float, V>(dw + at, sum);
}

/* Runs of one segment of the sorted list: whole ones to dw, the others to part. A thread takes V columns.
 * dy [T, D] T.  Grid: segments. */
template <typename T, int V>
__global__ void segment_k(Sorting s, const T *dy, const int32_t *ids, const float *base, float *dw)
{
    begin();
    __shared__ int token[SEGMENT];
    __shared__ int32_t row[SEGMENT];
    int first = (int)blockIdx.x * SEGMENT, last = min(first + (int)SEGMENT, s.start[s.vocab]);
    if ((int)threadIdx.x < last - first) {
        token[threadIdx.x] = s.order[first + threadIdx.x];
        row[threadIdx.x] = ids[token[threadIdx.x]];
    }
    __syncthreads();
    float *part = s.part + (int64_t)blockIdx.x * 2 * s.d;
    for (int c = (int)threadIdx.x * V; c < s.d; c += (int)blockDim.x * V) {
        float sum[V] = {};
        for (int i = first; i < last; i++) {
            float v[V];
            int32_t id = row[i - first];
            load_v<T, V>(dy + (int64_t)token[i - first] * s.d + c, v);
            for (int k = 0; k < V; k++)
                sum[k] += v[k];
            if (i + 1 < last && row[i + 1 - first] == id) continue;
            if (s.start[id] >= first && s.start[id + 1] <= last)
                put_row<V>(base, dw, (int64_t)id * s.d + c, sum);
            else
                store_v<float, V>(part + (s.start[id] < first ? 0 : s.d) + c, sum);
            for (int k = 0; k < V; k++)
                sum[k] = 0;
        }
    }
}

/* Rows that no segment wrote: unused ids, and ids of several segments.  Grid: a warp a row. */
template <int V> __global__ void rest_k(Sorting s, const float *base, float *dw)
{
    begin();
    int v = (int)((blockIdx.x * blockDim.x + threadIdx.x) / WARP), lane = (int)threadIdx.x % WARP;
    if (v >= s.vocab) return;
    int from = s.start[v], to = s.start[v + 1], first = from / SEGMENT;
    int last = to > from ? (to - 1) / SEGMENT : first;
    if (to > from && first == last) return;
    if (to == from && base == dw) return;
    for (int c = lane * V; c < s.d; c += WARP * V) {
        float sum[V] = {};
#pragma unroll 4
        for (int k = first; to > from && k <= last; k++) {
            float p[V];
            load_v<float, V>(s.part + ((int64_t)k * 2 + (k * SEGMENT <= from)) * s.d + c, p);
            for (int j = 0; j < V; j++)
                sum[j] += p[j];
        }
        put_row<V>(base, dw, (int64_t)v * s.d + c, sum);
    }
}

static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}
/* Lays the scratch out; returns its bytes. */
static size_t lay_out(const DltNode *n, char *work, Sorting *s)
{
    const DltTensor *dw = n->out[0];
    s->n = (int)count_of(n->in[1]);
    s->vocab = (int)dw->shape.dim[0];
    s->d = (int)dw->shape.dim[1];
    s->chunks = (int)ceil_div(s->n, CHUNK);
    s->segments = (int)ceil_div(s->n, SEGMENT);
    size_t at[4], bytes = 0;
    const size_t size[4] = {(size_t)s->chunks * (size_t)s->vocab * sizeof(int),
                            ((size_t)s->vocab + 1) * sizeof(int), (size_t)s->n * sizeof(int),
                            (size_t)s->segments * 2 * (size_t)s->d * sizeof(float)};
    for (int i = 0; i < 4; i++) {
        at[i] = bytes;
        bytes += round_up(size[i]);
    }
    s->before = (int *)(work + at[0]);
    s->start = (int *)(work + at[1]);
    s->order = (int *)(work + at[2]);
    s->part = (float *)(work + at[3]);
    return bytes;
}

static DltStatus sort(const DltCall *c, const Sorting &s, const int32_t *ids, DltErr *err)
{
    int64_t counts = (int64_t)s.chunks * s.vocab;
    DLT_TRY(enqueue(c, err, clear_k, blocks_for(c, counts, BLOCK), BLOCK, 0, s.before, counts));
    DLT_TRY(enqueue(c, err, count_k, (unsigned)s.chunks, CHUNK, 0, s, ids));
    DLT_TRY(enqueue(c, err, column_k, (unsigned)ceil_div(s.vocab, BLOCK), BLOCK, 0, s));
    DLT_TRY(enqueue(c, err, scan_k, 1, SCAN, 0, s));
    return enqueue(c, err, place_k, (unsigned)s.chunks, CHUNK, 0, s, ids);
}

template <typename T, int V>
static DltStatus add(const DltCall *c, const Sorting &s, const int32_t *ids, DltErr *err)
{
    const float *base = (const float *)c->in[2];
    float *dw = (float *)c->out[0];
    int64_t threads = ceil_div(ceil_div(s.d, V), WARP) * WARP;
    DLT_TRY(enqueue(c, err, segment_k<T, V>, (unsigned)s.segments,
                    (unsigned)min(threads, (int64_t)BLOCK), 0, s, (const T *)c->in[0], ids, base,
                    dw));
    return enqueue(c, err, rest_k<V>, (unsigned)ceil_div(s.vocab, BLOCK / WARP), BLOCK, 0, s, base,
                   dw);
}

/* dw[v, :] = base[v, :] + sum of dy[t, :] over ids[t] == v, t ascending.  dy [T, D] T, ids i32 [T], base f32
 * [V, D] or NULL, dw f32 [V, D]. */
static DltStatus backward(const DltCall *c, DltErr *err)
{
    Sorting s;
    const int32_t *ids = (const int32_t *)c->in[1];
    lay_out(c->node, (char *)c->work, &s);
    DLT_TRY(sort(c, s, ids, err));
    DltStatus r = DLT_OK;
    bool packed = aligned16(c->in[0], c->in[2], c->out[0]);
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        constexpr int V = Pack<T>::n;
        if (packed && s.d % V == 0)
            r = (add<T, V>(c, s, ids, err));
        else
            r = (add<T, 1>(c, s, ids, err));
    });
    return r;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev, (void)err;
    Sorting s;
    p->work_bytes = lay_out(n, nullptr, &s);
    return DLT_OK;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->out[0]->dtype != DLT_F32 || (n->in[2] && n->in[2]->dtype != DLT_F32))
        return dlt_cuda_refuse(why_not, "the gradient is not f32");
    int64_t ids = count_of(n->in[1]), vocab = n->out[0]->shape.dim[0];
    if (ids < LEAST_IDS) return dlt_cuda_refuse(why_not, "few ids");
    if (ids < INT32_MAX && vocab < INT32_MAX / 2) return true;
    return dlt_cuda_refuse(why_not, "more than 2^31 ids");
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_embedding_bwd_sorted, "embedding_bwd.cuda.sorted", accepts,
                         prepare, backward);
}
