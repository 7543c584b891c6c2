/* What the plain kernels share: chunk sizes, shape splits, sums in a fixed order, and the few
 * functions that several op families use. Plain kernels are the specification of every op: short
 * loops over DltReal, long sums in double, and results that do not depend on the number of threads,
 * because a chunk writes only its own range and the chunks are fixed by the problem. */
#ifndef DLT_CPU_PLAIN_H
#define DLT_CPU_PLAIN_H

#include "cpu/cpu.h"
#include "ops/matmul.h"

/* Items of `work` scalar operations each that make up one chunk. */
static inline int64_t dlt_grain(int64_t work)
{
    const int64_t operations = 16384; /* some 5 us: well above the cost of handing out a chunk */
    return work >= operations ? 1 : operations / (work > 0 ? work : 1);
}
static inline int64_t dlt_chunks(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain;
}

static inline int64_t dlt_count(const DltTensor *t)
{
    return dlt_shape_count(&t->shape);
}
/* Rows and width of a tensor seen as a matrix whose row is the last axis. */
static inline int64_t dlt_width(const DltTensor *t)
{
    return t->shape.rank > 0 ? t->shape.dim[t->shape.rank - 1] : 1;
}
static inline int64_t dlt_rows(const DltTensor *t)
{
    return dlt_shape_span(&t->shape, 0, t->shape.rank > 0 ? t->shape.rank - 1 : 0);
}

/* x[outer][axis][inner] around one axis. */
typedef struct DltSplitAxis {
    int64_t outer, axis, inner;
} DltSplitAxis;
static inline DltSplitAxis dlt_split_axis(const DltShape *s, int axis)
{
    return (DltSplitAxis){dlt_shape_span(s, 0, axis), s->dim[axis],
                          dlt_shape_span(s, axis + 1, s->rank)};
}
/* The same around the channels of a PLAIN or (axis 1) NHWC tensor, in memory order. */
static inline DltSplitAxis dlt_split_channels(const DltTensor *t, int axis)
{
    DltSplitAxis s = dlt_split_axis(&t->shape, axis);
    if (t->layout == DLT_NHWC) return (DltSplitAxis){s.outer * s.inner, s.axis, 1};
    return s;
}

/* Sums in eight lanes, added up pairwise: a fixed order that the compiler can vectorise. */
static inline double dlt_lanes_total(const double lane[8])
{
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}
static inline double dlt_sum(const DltReal *x, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++)
            lane[k] += (double)x[i + k];
    }
    for (int k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k];
    return dlt_lanes_total(lane);
}
/* The largest of n >= 1 numbers; NaNs may be passed over. */
static inline DltReal dlt_max(const DltReal *x, int64_t n)
{
    DltReal lane[8];
    int64_t i = 0;
    for (int k = 0; k < 8; k++)
        lane[k] = x[k < n ? k : 0];
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    }
    for (int k = 0; i + k < n; k++)
        lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int k = 1; k < 8; k++)
        lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
    return lane[0];
}
/* sum x y */
static inline double dlt_dot(const DltReal *x, const DltReal *y, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++)
            lane[k] += (double)x[i + k] * (double)y[i + k];
    }
    for (int k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k] * (double)y[i + k];
    return dlt_lanes_total(lane);
}
/* sum x y z */
static inline double dlt_dot3(const DltReal *x, const DltReal *y, const DltReal *z, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            lane[k] += (double)x[i + k] * (double)y[i + k] * (double)z[i + k];
        }
    }
    for (int k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k] * (double)y[i + k] * (double)z[i + k];
    return dlt_lanes_total(lane);
}
/* sum (x - mean)^2 */
static inline double dlt_sum_squared_from(const DltReal *x, double mean, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            double d = (double)x[i + k] - mean;
            lane[k] += d * d;
        }
    }
    for (int k = 0; i + k < n; k++) {
        double d = (double)x[i + k] - mean;
        lane[k] += d * d;
    }
    return dlt_lanes_total(lane);
}

/* accepts of elementwise kernels: float tensors F32, all tensors of one layout, whichever it is. */
bool dlt_cpu_accepts_flat(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* accepts of kernels that move elements whole: any dtype, PLAIN. */
bool dlt_cpu_accepts_move(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* accepts of update rules: the plain rule, but in[7], the copy of the weights that products read, may be low. */
bool dlt_cpu_accepts_update(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* accepts rule of a row: accepts, or dlt_kernel_accepts_plain where that is NULL. */
bool dlt_cpu_accepts(const DltKernel *k, const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* Writes a refusal; returns false. */
bool dlt_cpu_refuse(DltWhy *why_not, const char *fmt, ...) DLT_PRINTF(2, 3);

/* y[i] = f(x[i]);  dx[i] = dy[i] f'(saved[i]) with saved as dlt_unary_saves_y says. In place is
 * allowed. fn DLT_FN_NONE is the identity. */
void dlt_unary_run(const DltUnary *f, const DltReal *x, DltReal *y, int64_t n);
void dlt_unary_grad_run(const DltUnary *f, const DltReal *dy, const DltReal *saved, DltReal *dx,
                        int64_t n);
/* y[i] = exp(x[i] - shift) and their sum; y may be x, or NULL where only the sum is wanted. */
double dlt_exp_run(const DltReal *x, DltReal shift, DltReal *y, int64_t n);
/* The epilogue of matmul and convolution on n neighbours c: + bias (one value a step of
 * bias_step), pre = c, act, times act_grad'(saved). bias, pre, saved may be NULL. */
typedef struct DltEpilogueRow {
    const DltReal *bias, *saved;
    DltReal *pre;
    int64_t bias_step;
} DltEpilogueRow;
void dlt_epilogue_run(const DltEpilogue *ep, const DltEpilogueRow *row, DltReal *c, int64_t n);

/* y = x rounded to bf16, nearest even, NaN stays one; and back. */
void dlt_narrow_run(const DltReal *x, uint16_t *y, int64_t n);
void dlt_widen_run(const uint16_t *x, DltReal *y, int64_t n);
/* dst = src in another dtype; through double, so that every pair is exact or rounds once. */
void dlt_cast_run(DltDtype from, const void *src, DltDtype to, void *dst, int64_t n);
/* Any dtype and layout to any other, in parallel: from and to have equal shapes. */
void dlt_convert(DltStream *s, const DltTensor *from, const void *src, const DltTensor *to,
                 void *dst);

#endif
