/* Sums over everything but one axis: bias gradients, batch statistics, the weight gradients of
 * norms. Memory is seen as [outer, C, inner]; rows are the outer * inner positions of a channel.
 *
 * A block is tx columns wide (V channels a thread) and ty rows high; the grid is (tiles of
 * channels) x (chunks of rows). Threads add their rows, the block adds its threads by a tree, the
 * last block of a tile adds the chunks: the order never depends on timing, and one launch does it
 * all. */
#ifndef DLT_CHANNELS_CUH
#define DLT_CHANNELS_CUH

#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"

struct ChannelPlan {
    int64_t channels, inner, rows, chunk_rows;
    int v, tx, ty;
    unsigned tiles, chunks;
};

/* v: channels a thread takes at once (1, or a pack where channels are neighbours and a multiple of
 * it). per_sm: blocks wanted on a multiprocessor. */
static ChannelPlan channel_plan(Axis a, int v, int n_sm, int per_sm = 2)
{
    ChannelPlan p = {};
    p.channels = a.c;
    p.inner = a.inner;
    p.rows = a.outer * a.inner;
    p.v = a.inner == 1 && a.c % v == 0 ? v : 1;
    p.tx = 1;
    while (a.inner == 1 && p.tx < WARP && p.tx * p.v < a.c)
        p.tx *= 2;
    p.ty = BLOCK / p.tx;
    int64_t tiles = ceil_div(a.c, (int64_t)p.tx * p.v);
    /* at least four rows a thread */
    int64_t want = ceil_div(per_sm * (int64_t)n_sm, tiles),
            most = ceil_div(p.rows, 4 * (int64_t)p.ty);
    int64_t chunks = want < most ? want : most;
    if (chunks < 1 || tiles > DLT_CUDA_TICKETS) chunks = 1;
    p.chunk_rows = ceil_div(p.rows, chunks);
    p.chunks = p.rows ? (unsigned)ceil_div(p.rows, p.chunk_rows) : 1;
    p.tiles = (unsigned)tiles;
    return p;
}
/* Bytes of partial sums, k values a channel, whatever v the addresses allow at launch. */
static size_t channel_bytes(Axis a, int n_sm, int k)
{
    unsigned chunks = 0;
    for (int v = 1; v <= 8; v *= 2) {
        ChannelPlan p = channel_plan(a, v, n_sm);
        chunks = p.chunks > chunks ? p.chunks : chunks;
    }
    return chunks > 1 ? (size_t)chunks * (size_t)k * (size_t)a.c * sizeof(float) : 0;
}

/* Adds acc over the block's ty; the result is in the threads of row 0. */
template <int N> __device__ __forceinline__ void column_tree(float *shared, float *acc)
{
    int tx = threadIdx.x, ty = threadIdx.y, w = blockDim.x, h = blockDim.y;
    for (int half = h / 2; half > 0; half /= 2) {
        __syncthreads();
        if (ty >= half && ty < 2 * half)
#pragma unroll
            for (int k = 0; k < N; k++)
                shared[(k * h + ty) * w + tx] = acc[k];
        __syncthreads();
        if (ty < half)
#pragma unroll
            for (int k = 0; k < N; k++)
                acc[k] += shared[(k * h + ty + half) * w + tx];
    }
}

/* Rows are counted in 32 bits; a tensor beyond that has no kernel here. */
static inline bool rows_fit(Axis a, DltWhy *why_not)
{
    if (a.outer * a.inner < INT32_MAX && a.c < INT32_MAX) return true;
    return dlt_cuda_refuse(why_not, "more than 2^31 rows");
}

/* For loaders that need nothing of their channels. */
struct Nothing {
};

/* load.look(channel): what a thread keeps of its V channels.  load(offset, row, kept, acc): adds
 * the terms of V neighbours from `offset` on to acc[K * V], value k of neighbour v at acc[k * V +
 * v]. done(channel, sum[K]): once a channel, by one thread. */
template <int K, int V, typename L, typename D>
__global__ void channel_k(ChannelPlan p, float *part, unsigned *ticket, L load, D done)
{
    begin();
    DLT_DYNAMIC_SHARED(float, shared);
    int64_t channels = p.channels;
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    bool inside = c < channels;
    uint32_t row = (uint32_t)(blockIdx.y * p.chunk_rows), inner = (uint32_t)p.inner;
    uint32_t end = (uint32_t)min(p.rows, (int64_t)row + p.chunk_rows);
    float acc[K * V] = {};
    if (inside) {
        auto kept = load.look(c);
        if (inner == 1) {
#pragma unroll 4
            for (uint32_t r = row + threadIdx.y; r < end; r += blockDim.y)
                load(r * channels + c, (int64_t)r, kept, acc);
        } else {
            for (uint32_t r = row + threadIdx.y; r < end; r += blockDim.y) {
                uint32_t o = r / inner, i = r - o * inner;
                load((o * channels + c) * inner + i, (int64_t)r, kept, acc);
            }
        }
    }
    column_tree<K * V>(shared, acc);
    if (p.chunks > 1) {
        if (threadIdx.y == 0 && inside)
            for (int k = 0; k < K * V; k++)
                part[((int64_t)blockIdx.y * K + k / V) * channels + c + k % V] = acc[k];
        if (!last_block(ticket + blockIdx.x, gridDim.y)) return;
        for (int k = 0; k < K * V; k++)
            acc[k] = 0;
        for (unsigned j = threadIdx.y; inside && j < gridDim.y; j += blockDim.y)
            for (int k = 0; k < K * V; k++)
                acc[k] += __ldcg(part + ((int64_t)j * K + k / V) * channels + c + k % V);
        column_tree<K * V>(shared, acc);
    }
    if (threadIdx.y != 0 || !inside) return;
    for (int v = 0; v < V; v++) {
        float sum[K];
        for (int k = 0; k < K; k++)
            sum[k] = acc[k * V + v];
        done(c + v, sum);
    }
}

/* Launches channel_k with V = p.v, which is 1 or N. L<V> is the loader's template. */
template <int K, int N, template <int> class L, typename D, typename... A>
static DltStatus channel_reduce(const DltCall *c, DltErr *err, const ChannelPlan &p, float *part,
                                D done, A... loader)
{
    dim3 grid(p.tiles, p.chunks), block(p.tx, p.ty);
    size_t shared = (size_t)BLOCK * K * (size_t)p.v * sizeof(float);
    unsigned *ticket = c->stream->ticket;
    if (p.v == 1)
        return enqueue(c, err, channel_k<K, 1, L<1>, D>, grid, block, shared, p, part, ticket,
                       L<1>{loader...}, done);
    return enqueue(c, err, channel_k<K, N, L<N>, D>, grid, block, shared, p, part, ticket,
                   L<N>{loader...}, done);
}

#endif
