/* The convolution as the CPU kernels see it: every size by name. */
#ifndef DLT_CPU_CONV_H
#define DLT_CPU_CONV_H

#include "cpu/plain.h"
#include "ops/conv.h"

/* x [N,C,H,W], w [K, C/groups, R, S], y [N,K,P,Q]; cg and kg are channels of one group. */
typedef struct DltConvSizes {
    int64_t n, c, h, w, k, p, q, r, s;
    int64_t groups, cg, kg;
    const DltConv *attr;
} DltConvSizes;
DltConvSizes dlt_conv_fwd_sizes(const DltNode *n);    /* x, w -> y */
DltConvSizes dlt_conv_data_sizes(const DltNode *n);   /* dy, w -> dx */
DltConvSizes dlt_conv_filter_sizes(const DltNode *n); /* x, dy -> dw */
/* Epilogue of n neighbours in a plane of one channel: c points at element `offset` of y or dx. */
void dlt_conv_fwd_finish(const DltCall *call, int64_t channel, int64_t offset, DltReal *c,
                         int64_t n);
void dlt_conv_data_finish(const DltCall *call, int64_t offset, DltReal *c, int64_t n);

extern const DltKernel dlt_cpu_conv_simd[3], dlt_cpu_conv_blocked[3]; /* fwd, data, filter */

#endif
