/* Ops that only move elements, so they are compiled by size and not by type: concat, slice and its
 * gradient, transpose, reorder. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/elementwise.h"
#include "ops/shape_ops.h"

namespace
{

/* ---- pieces of rows ---- */

/* Rows of `from` elements into rows of `to`: element r of a row comes from r + shift of the source
 * row, or is zero where that is outside [0, from). Only columns [begin, begin + n) are written. */
struct Piece {
    int64_t rows, from, to, shift, begin, n;
};
template <typename T> __global__ void piece_k(Piece p, const T *x, T *y)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x, all = p.rows * p.n;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        int64_t row = i / p.n, r = i - row * p.n + p.begin, q = r + p.shift;
        y[row * p.to + r] = q >= 0 && q < p.from ? x[row * p.from + q] : T();
    }
}
template <> __global__ void piece_k<uint4>(Piece p, const uint4 *x, uint4 *y)
{
    begin();
    uint32_t step = gridDim.x * blockDim.x, all = (uint32_t)(p.rows * p.n);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
        uint32_t row = i / (uint32_t)p.n, r = i - row * (uint32_t)p.n;
        int64_t at = r + p.begin, q = at + p.shift;
        y[row * p.to + at] = q >= 0 && q < p.from ? x[row * p.from + q] : make_uint4(0, 0, 0, 0);
    }
}
static DltStatus move_piece(const DltCall *c, DltErr *err, Piece p, size_t bytes, const void *x,
                            void *y)
{
    if (p.rows * p.n == 0) return DLT_OK;
    int64_t k = 16 / (int64_t)bytes;
    bool wide = aligned16(x, y) && p.from % k == 0 && p.to % k == 0 && p.shift % k == 0 &&
                p.begin % k == 0 && p.n % k == 0 && p.rows * p.n / k < (int64_t)1 << 30;
    if (wide) {
        Piece q = {p.rows, p.from / k, p.to / k, p.shift / k, p.begin / k, p.n / k};
        return enqueue(c, err, piece_k<uint4>, blocks_for(c, q.rows * q.n, BLOCK), BLOCK, 0, q,
                       (const uint4 *)x, (uint4 *)y);
    }
    DltStatus s = DLT_OK;
    DLT_SIZED_TYPE(bytes, T,
                   s = enqueue(c, err, piece_k<T>, blocks_for(c, p.rows * p.n, BLOCK), BLOCK, 0, p,
                               (const T *)x, (T *)y));
    return s;
}

static DltStatus launch_concat(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    int axis = ((const DltConcat *)n->attr)->axis;
    Axis y = axis_of(n->out[0], axis);
    int64_t at = 0;
    for (int i = 0; i < DLT_MAX_IN && n->in[i]; i++) {
        int64_t len = n->in[i]->shape.dim[axis] * y.inner;
        Piece p = {y.outer, len, y.c * y.inner, -at, at, len};
        DLT_TRY(move_piece(c, err, p, dlt_dtype_bytes(n->in[i]->dtype), c->in[i], c->out[0]));
        at += len;
    }
    return DLT_OK;
}
static DltStatus launch_slice(const DltCall *c, DltErr *err)
{
    const DltSlice *a = (const DltSlice *)c->node->attr;
    Axis x = axis_of(c->node->in[0], a->axis);
    int64_t len = a->size * x.inner;
    Piece p = {x.outer, x.c * x.inner, len, a->begin * x.inner, 0, len};
    return move_piece(c, err, p, dlt_dtype_bytes(c->node->in[0]->dtype), c->in[0], c->out[0]);
}
static DltStatus launch_slice_grad(const DltCall *c, DltErr *err)
{
    const DltSlice *a = (const DltSlice *)c->node->attr;
    Axis y = axis_of(c->node->out[0], a->axis);
    int64_t len = y.c * y.inner;
    Piece p = {y.outer, a->size * y.inner, len, -a->begin * y.inner, 0, len};
    return move_piece(c, err, p, dlt_dtype_bytes(c->node->in[0]->dtype), c->in[0], c->out[0]);
}

/* ---- other orders ---- */

/* y[i] = x[walk(i)], i in y's memory order. */
template <typename T, typename I> __global__ void walk_k(Walk w, const T *x, T *y, I n)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        I off[3];
        w.at(i, off, 1);
        y[i] = x[off[0]];
    }
}

/* Two axes change places: y[.., a, b] = x[.., b, a], b innermost in y and a innermost in x. A tile
 * goes through shared memory so that both sides are read and written in whole lines. */
struct Swap {
    Walk other; /* strides: [0] of x, [1] of y */
    int64_t n_other, na, nb, x_b, y_a;
};
enum { TILE = 32, TILE_ROWS = 8 };
template <typename T> __global__ void swap_k(Swap w, const T *x, T *y)
{
    begin();
    __shared__ T tile[TILE][TILE + 1];
    int64_t a0 = (int64_t)blockIdx.y * TILE, b0 = (int64_t)blockIdx.x * TILE;
    for (int64_t o = blockIdx.z; o < w.n_other; o += gridDim.z) {
        uint64_t off[3];
        w.other.at((uint64_t)o, off, 2);
        for (int r = threadIdx.y; r < TILE; r += TILE_ROWS)
            if (a0 + threadIdx.x < w.na && b0 + r < w.nb)
                tile[r][threadIdx.x] = x[off[0] + (uint64_t)((b0 + r) * w.x_b + a0 + threadIdx.x)];
        __syncthreads();
        for (int r = threadIdx.y; r < TILE; r += TILE_ROWS)
            if (b0 + threadIdx.x < w.nb && a0 + r < w.na)
                y[off[1] + (uint64_t)((a0 + r) * w.y_a + b0 + threadIdx.x)] = tile[threadIdx.x][r];
        __syncthreads();
    }
}

/* The walk over y, strides [0] of x and [1] of y, dims of size 1 left out. */
static Walk order_walk(const DltNode *n)
{
    const DltTensor *x = n->in[0], *y = n->out[0];
    bool permute = n->kind == DLT_OP_transpose;
    Walk w = {};
    w.rank = y->shape.rank;
    for (int a = 0; a < w.rank; a++) {
        int m = memory_axis(y, a);
        w.dim[m] = y->shape.dim[a];
        w.stride[0][m] = stride_of(x, permute ? ((const DltTranspose *)n->attr)->perm[a] : a);
        w.stride[1][m] = stride_of(y, a);
    }
    walk_merge(&w, 2);
    return w;
}
/* Splits the walk into the swapped pair and the rest; false when x's innermost axis is y's too. */
static bool swap_of(const Walk &w, Swap *s)
{
    *s = Swap{};
    int a = -1, b = w.rank - 1;
    for (int d = 0; d < b; d++)
        if (w.stride[0][d] == 1) a = d;
    if (a < 0 || w.stride[0][b] == 1) return false;
    s->na = w.dim[a];
    s->nb = w.dim[b];
    s->x_b = w.stride[0][b];
    s->y_a = w.stride[1][a];
    s->n_other = 1;
    for (int d = 0; d < b; d++) {
        if (d == a) continue;
        s->other.dim[s->other.rank] = w.dim[d];
        s->other.stride[0][s->other.rank] = w.stride[0][d];
        s->other.stride[1][s->other.rank++] = w.stride[1][d];
        s->n_other *= w.dim[d];
    }
    return ceil_div(s->na, TILE) <= 65535;
}

static bool accepts_order(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "x and y differ in type");
}
static bool accepts_swap(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    Swap s;
    if (!accepts_order(n, dev, why_not)) return false;
    if (swap_of(order_walk(n), &s)) return true;
    return dlt_cuda_refuse(why_not, "the innermost axis stays where it is");
}
static DltStatus launch_swap(const DltCall *c, DltErr *err)
{
    Swap w;
    (void)swap_of(order_walk(c->node), &w);
    if (w.n_other == 0) return DLT_OK;
    dim3 grid((unsigned)ceil_div(w.nb, TILE), (unsigned)ceil_div(w.na, TILE),
              (unsigned)(w.n_other < 65535 ? w.n_other : 65535));
    DltStatus s = DLT_OK;
    DLT_SIZED_TYPE(dlt_dtype_bytes(c->node->in[0]->dtype), T,
                   s = enqueue(c, err, swap_k<T>, grid, dim3(TILE, TILE_ROWS), 0, w,
                               (const T *)c->in[0], (T *)c->out[0]));
    return s;
}
static DltStatus launch_walk(const DltCall *c, DltErr *err)
{
    Walk w = order_walk(c->node);
    int64_t n = count_of(c->node->out[0]);
    DltStatus s = DLT_OK;
    DLT_SIZED_TYPE(dlt_dtype_bytes(c->node->in[0]->dtype), T,
                   DLT_INDEX_TYPE(n, I,
                                  s = enqueue(c, err, walk_k<T, I>, blocks_for(c, n, BLOCK), BLOCK,
                                              0, w, (const T *)c->in[0], (T *)c->out[0], (I)n)));
    return s;
}

DLT_CUDA_KERNEL(concat, "concat.cuda.rows", dlt_cuda_accepts_same_layout, nullptr, launch_concat);
DLT_CUDA_KERNEL(slice, "slice.cuda.rows", dlt_cuda_accepts_same_layout, nullptr, launch_slice);
DLT_CUDA_KERNEL(slice_grad, "slice_bwd.cuda.rows", dlt_cuda_accepts_same_layout, nullptr,
                launch_slice_grad);
DLT_CUDA_KERNEL(transpose_tile, "transpose.cuda.tile", accepts_swap, nullptr, launch_swap);
DLT_CUDA_KERNEL(transpose_walk, "transpose.cuda.walk", accepts_order, nullptr, launch_walk);
DLT_CUDA_KERNEL(reorder_tile, "reorder.cuda.tile", accepts_swap, nullptr, launch_swap);
DLT_CUDA_KERNEL(reorder_walk, "reorder.cuda.walk", accepts_order, nullptr, launch_walk);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_concat[] = {&concat, nullptr};
const DltKernel *const dlt_cuda_slice[] = {&slice, nullptr};
const DltKernel *const dlt_cuda_slice_bwd[] = {&slice_grad, nullptr};
const DltKernel *const dlt_cuda_transpose[] = {&transpose_tile, &transpose_walk, nullptr};
extern const DltKernel dlt_cuda_reorder_image; /* reorder_image.cu */
const DltKernel *const dlt_cuda_reorder[] = {&dlt_cuda_reorder_image, &reorder_tile, &reorder_walk,
                                             nullptr};
const DltKernel *const dlt_cuda_reshape[] = {nullptr}; /* a view: nothing runs */
}
