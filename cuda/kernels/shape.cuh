/* Where the elements of a tensor lie. Logical dims of a rank-4 tensor are N, C, H, W; a NHWC tensor
 * keeps them in memory as N, H, W, C. */
#ifndef DLT_SHAPE_CUH
#define DLT_SHAPE_CUH

#include "cuda/kernels/dispatch.cuh"

static inline int64_t count_of(const DltTensor *t)
{
    return dlt_shape_count(&t->shape);
}

/* Place of a logical axis in memory order. */
static inline int memory_axis(const DltTensor *t, int axis)
{
    static const int nhwc[4] = {0, 3, 1, 2};
    return t->layout == DLT_NHWC ? nhwc[axis] : axis;
}
/* Dims in memory order, outermost first. */
static inline DltShape memory_shape(const DltTensor *t)
{
    DltShape s = t->shape;
    for (int i = 0; i < s.rank; i++)
        s.dim[memory_axis(t, i)] = t->shape.dim[i];
    return s;
}
/* Distance in elements between neighbours along a logical axis. */
static inline int64_t stride_of(const DltTensor *t, int axis)
{
    DltShape s = memory_shape(t);
    int64_t stride = 1;
    for (int i = s.rank - 1; i > memory_axis(t, axis); i--)
        stride *= s.dim[i];
    return stride;
}

/* A tensor seen from one axis: memory is [outer, c, inner]. NHWC with axis 1 gives inner 1. */
struct Axis {
    int64_t outer, c, inner;
};
static inline Axis axis_of(const DltTensor *t, int axis)
{
    DltShape s = memory_shape(t);
    int at = memory_axis(t, axis);
    Axis a = {1, s.dim[at], 1};
    for (int i = 0; i < at; i++)
        a.outer *= s.dim[i];
    for (int i = at + 1; i < s.rank; i++)
        a.inner *= s.dim[i];
    return a;
}

/* Rows of the last (logical) axis, for tensors that are PLAIN. */
static inline int64_t last_dim(const DltTensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}

/* A walk over dim[0..rank) in row-major order with up to three tensors moving along by their own
 * strides (0: broadcast). Neighbouring dims that every tensor crosses evenly are merged. */
struct Walk {
    int rank;
    int64_t dim[DLT_MAX_RANK];
    int64_t stride[3][DLT_MAX_RANK];
    template <typename I> __device__ __forceinline__ void at(I i, I off[3], int n) const
    {
        for (int k = 0; k < n; k++)
            off[k] = 0;
        for (int d = rank - 1; d >= 0; d--) {
            I q = i / (I)dim[d], r = i - q * (I)dim[d];
            for (int k = 0; k < n; k++)
                off[k] += r * (I)stride[k][d];
            i = q;
        }
    }
};
static inline void walk_merge(Walk *w, int n)
{
    int out = 0;
    for (int d = 0; d < w->rank; d++) {
        if (w->dim[d] == 1) continue;
        bool merge = out > 0;
        for (int k = 0; merge && k < n; k++)
            merge = w->stride[k][out - 1] == w->stride[k][d] * w->dim[d];
        if (merge) {
            w->dim[out - 1] *= w->dim[d];
        } else {
            w->dim[out] = w->dim[d];
            out++;
        }
        for (int k = 0; k < n; k++)
            w->stride[k][out - 1] = w->stride[k][d];
    }
    w->rank = out;
}
/* The walk over t's own memory order; other[k] (same rank) is broadcast where its dim is 1. */
static inline Walk walk_like(const DltTensor *t, const DltTensor *const other[], int n)
{
    Walk w = {};
    w.rank = t->shape.rank;
    for (int a = 0; a < w.rank; a++) {
        int m = memory_axis(t, a);
        w.dim[m] = t->shape.dim[a];
        for (int k = 0; k < n; k++)
            w.stride[k][m] = other[k]->shape.dim[a] == 1 ? 0 : stride_of(other[k], a);
    }
    walk_merge(&w, n);
    return w;
}

#endif
