/* 2-D convolution (cross-correlation, as the field does it), dims NCHW, filters [K, C/groups, R, S].
 *   conv_fwd: x [N,C,H,W], w, bias [K] or NULL -> y [N,K,P,Q] (, pre when ep.save_pre)
 *     P = (H + pad_top + pad_bottom - dilation (R-1) - 1) / stride + 1, rounded down
 *   conv_bwd_data: dy, w, s or NULL -> dx [N,C,H,W] (times ep.act_grad'(s), s like dx)
 *   conv_bwd_filter: x, dy -> dw
 * The bias gradient is bias_bwd on dy (axis 1). */
#ifndef DLT_CONV_H
#define DLT_CONV_H

#include "ops/matmul.h"

typedef struct DltConv {
    int64_t kernel[2], stride[2], dilation[2];
    int64_t pad[4]; /* top, bottom, left, right */
    int64_t groups;
    int64_t in_hw[2]; /* of x: conv_bwd_data needs it */
    DltEpilogue ep;
} DltConv;

/* filters w, bias may be NULL; attr->in_hw is filled in. */
DltTensor *dlt_conv(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, const DltConv *attr);

/* Pooling, dims NCHW.
 *   pool_fwd: x -> y [N,C,P,Q], index (max only: u8 position inside the window when kernel area
 *     <= 256, else i32; the first of equal maxima). Padding never wins a max.
 *   pool_bwd: dy, index or NULL -> dx.  Average divides by the window area, without padding unless
 *     count_pad. ep_relu (set by the fuse pass, max only): y = max(relu) and index 255 (u8) marks
 *     windows whose maximum is <= 0, whose gradient is dropped. */
typedef struct DltPool {
    bool max, count_pad, ceil, ep_relu;
    int64_t kernel[2], stride[2];
    int64_t pad[4];
    int64_t in_hw[2];
} DltPool;
DltTensor *dlt_pool(DltBuild *b, DltTensor *x, const DltPool *attr);

/* Convolution and the max pooling behind it as one node, so that the image between them need not
 * exist. The fuse pass makes them (rule conv_pool) where the device has kernels for them.
 *   conv_pool_fwd: x, w, bias [K] or NULL -> y, index = pool(conv(x, w) + bias)
 *   conv_pool_bwd_data: dy, index (both pooled), w -> dx
 *   conv_pool_bwd_filter: x, dy, index -> dw (, db [K] when bias)
 * conv.ep is empty, pool.max holds; pool.in_hw is the size of the image between. */
typedef struct DltConvPool {
    DltConv conv;
    DltPool pool;
    bool bias;
} DltConvPool;

#endif
