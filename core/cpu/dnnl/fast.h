/* What the plug-in's own kernels share. Loops are compiled for several instruction sets and chosen when the
 * plug-in is loaded; every loop writes fixed ranges, so results do not depend on the number of threads. */
#ifndef DLT_FAST_H
#define DLT_FAST_H

#include "cpu/dnnl/onednn.h"
#include "cpu/plain.h"

#define DLT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))

/* True when every tensor of the node is f32 (f64 for losses and sums, integers for labels) and rank-4 ones
 * may have any layout; fills why_not otherwise. */
bool dlt_fast_f32(const DltNode *n, DltWhy *why_not);
int64_t dlt_fast_count(const DltTensor *t);

extern const DltKernel *const dlt_fast_matmul[],
    *const dlt_fast_conv_fwd[], *const dlt_fast_conv_bwd_data[],
                                    *const dlt_fast_conv_bwd_filter[],
                                        *const dlt_fast_pool_fwd[],
                                            *const dlt_fast_pool_bwd[],
                                                *const dlt_fast_batch_norm_fwd[],
                                                    *const dlt_fast_batch_norm_bwd[],
                                                        *const dlt_fast_batch_norm_infer[],
                                                            *const dlt_fast_unary_fwd[],
                                                                *const dlt_fast_unary_bwd[],
                                                                    *const dlt_fast_binary[],
                                                                        *const dlt_fast_bias_bwd[];

extern const DltKernel dlt_fast_first_conv_filter; /* after oneDNN's in its list */

/* y = act(x), and y = x * act'(saved): what matmul and convolution epilogues need, in place or not. */
typedef struct DltFlat {
    DltUnary fn;
    const float *x, *saved; /* saved: unary_bwd and act_grad */
    float *y;
} DltFlat;
void dlt_fast_act(const DltFlat *f, int64_t begin, int64_t end);
void dlt_fast_act_grad(const DltFlat *f, int64_t begin, int64_t end); /* y = x * f'(saved) */

#endif
