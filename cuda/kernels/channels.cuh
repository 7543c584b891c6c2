/* Sums over everything but one axis: bias gradients, batch statistics, the weight gradients of
 * norms. Memory is seen as [outer, C, inner]; rows are the outer * inner positions of a channel.
 *
 * A block is tx columns wide (V channels a thread) and ty rows high; the grid is (tiles of
 * channels) x (chunks of rows). Threads add their rows, warps add their threads, the block its
 * warps, the last block of a tile the chunks: the order never depends on timing, and one launch
 * does it all. */
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
 * it). per_sm: blocks wanted on a multiprocessor; block: threads of each. */
static ChannelPlan channel_plan(Axis a, int v, int n_sm, int per_sm = 2, int block = BLOCK)
{
    ChannelPlan p = {};
    p.channels = a.c;
    p.inner = a.inner;
    p.rows = a.outer * a.inner;
    p.v = a.inner == 1 && a.c % v == 0 ? v : 1;
    p.tx = 1;
    /* a line of memory is wide enough: narrow tiles leave few sums to each tile's last block */
    while (a.inner == 1 && p.tx < WARP && p.tx * p.v < 64 && p.tx * p.v < a.c)
        p.tx *= 2;
    p.ty = block / p.tx;
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
static size_t channel_bytes(Axis a, int n_sm, int k, int per_sm = 2, int block = BLOCK)
{
    size_t most = 0;
    for (int v = 1; v <= 8; v *= 2) {
        ChannelPlan p = channel_plan(a, v, n_sm, per_sm, block);
        size_t values = p.chunks > 1 ? (size_t)p.chunks * p.tiles * (size_t)(k * p.tx * p.v) : 0;
        most = values > most ? values : most;
    }
    return most * sizeof(float);
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

/* acc[K * V] of all threads of a block, added up: value kv of column x goes to sum[kv * tx + x].
 * shared has room for a set of sums a warp; sum lies behind them. */
template <int N>
__device__ __forceinline__ void block_columns(float *shared, float *sum, float *acc)
{
    int tx = blockDim.x, thread = threadIdx.y * tx + threadIdx.x, n_thread = tx * blockDim.y;
    int lane = thread % WARP, warp = thread / WARP, n_warp = n_thread / WARP;
    for (int o = tx; o < WARP; o *= 2)
#pragma unroll
        for (int k = 0; k < N; k++)
            acc[k] += __shfl_xor_sync(0xffffffffu, acc[k], o);
    if (lane < tx)
#pragma unroll
        for (int k = 0; k < N; k++)
            shared[(warp * N + k) * tx + lane] = acc[k];
    __syncthreads();
    for (int i = thread; i < N * tx; i += n_thread) {
        float s = 0;
        for (int w = 0; w < n_warp; w++)
            s += shared[w * N * tx + i];
        sum[i] = s;
    }
    __syncthreads();
}

/* The tail of every kernel that sums channels: block, then grid, then done(channel, sum[K]) once a
 * channel by one thread of the last block of its tile. part: the plan's scratch. */
template <int K, int V, typename D>
__device__ __forceinline__ void channel_finish(const ChannelPlan &p, float *part, unsigned *ticket,
                                               float *acc, const D &done)
{
    DLT_DYNAMIC_SHARED(float, shared);
    constexpr int N = K * V;
    int tx = blockDim.x, thread = threadIdx.y * tx + threadIdx.x, n_thread = tx * blockDim.y;
    int count = N * tx, spread = max(count * (n_thread / WARP), n_thread);
    float *sum = shared + spread;
    block_columns<N>(shared, sum, acc);
    if (p.chunks > 1) {
        float *mine = part + ((int64_t)blockIdx.y * p.tiles + blockIdx.x) * count;
        for (int i = thread; i < count; i += n_thread)
            mine[i] = sum[i];
        if (!last_block(ticket + blockIdx.x, gridDim.y)) return;
        /* groups of threads take every n_group-th chunk */
        int n_group = n_thread > count ? n_thread / count : 1, group = thread / count;
        const float *first = part + (int64_t)blockIdx.x * count;
        int64_t step = (int64_t)p.tiles * count;
        for (int i = n_group > 1 ? thread % count : thread;
             i < count && group<n_group; i += n_group> 1 ? count : n_thread) {
            float s = 0;
#pragma unroll 16
            for (unsigned j = n_group > 1 ? group : 0; j < p.chunks; j += n_group)
                s += __ldcg(first + j * step + i);
            shared[(n_group > 1 ? group : 0) * count + i] = s;
        }
        __syncthreads();
        for (int i = thread; i < count; i += n_thread) {
            float s = 0;
            for (int g = 0; g < n_group; g++)
                s += shared[g * count + i];
            sum[i] = s;
        }
        __syncthreads();
    }
    for (int i = thread; i < V * tx; i += n_thread) {
        int64_t c = ((int64_t)blockIdx.x * tx + i / V) * V + i % V;
        float total[K];
        if (c >= p.channels) break;
        for (int k = 0; k < K; k++)
            total[k] = sum[(k * V + i % V) * tx + i / V];
        done(c, total);
    }
}

/* load.look(channel): what a thread keeps of its V channels.  load(offset, row, kept, acc): adds
 * the terms of V neighbours from `offset` on to acc[K * V], value k of neighbour v at acc[k * V +
 * v]. done(channel, sum[K]): once a channel, by one thread. */
template <int K, int V, typename L, typename D>
__global__ void channel_k(ChannelPlan p, float *part, unsigned *ticket, L load, D done)
{
    begin();
    int64_t channels = p.channels;
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    uint32_t row = (uint32_t)(blockIdx.y * p.chunk_rows), inner = (uint32_t)p.inner;
    uint32_t end = (uint32_t)min(p.rows, (int64_t)row + p.chunk_rows);
    float acc[K * V] = {};
    if (c < channels) {
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
    channel_finish<K, V>(p, part, ticket, acc, done);
}

/* Shared memory of channel_finish. */
static inline size_t channel_shared(const ChannelPlan &p, int k)
{
    size_t count = (size_t)(k * p.v * p.tx), threads = (size_t)(p.tx * p.ty);
    size_t warps = count * (threads / WARP);
    return ((warps > threads ? warps : threads) + count) * sizeof(float);
}

/* Launches channel_k with V = p.v, which is 1 or N. L<V> is the loader's template. */
template <int K, int N, template <int> class L, typename D, typename... A>
static DltStatus channel_reduce(const DltCall *c, DltErr *err, const ChannelPlan &p, float *part,
                                D done, A... loader)
{
    dim3 grid(p.tiles, p.chunks), block(p.tx, p.ty);
    size_t shared = channel_shared(p, K);
    unsigned *ticket = c->stream->ticket;
    if (p.v == 1)
        return enqueue(c, err, channel_k<K, 1, L<1>, D>, grid, block, shared, p, part, ticket,
                       L<1>{loader...}, done);
    return enqueue(c, err, channel_k<K, N, L<N>, D>, grid, block, shared, p, part, ticket,
                   L<N>{loader...}, done);
}

#endif
