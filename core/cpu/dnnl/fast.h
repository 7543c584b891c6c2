/* What the plug-in's own kernels share. Loops are compiled for several instruction sets and chosen when the
 * plug-in is loaded; every loop writes fixed ranges, so results do not depend on the number of threads. */
#ifndef DLT_FAST_H
#define DLT_FAST_H

#include "cpu/dnnl/onednn.h"
#include "cpu/plain.h"

#ifdef __SANITIZE_THREAD__ /* the choice among clones runs before the sanitizer is ready */
#define DLT_CLONES
#else
#define DLT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

/* True when every tensor of the node is f32 (f64 for losses and sums, integers for labels) and rank-4 ones
 * may have any layout; fills why_not otherwise. */
bool dlt_fast_f32(const DltNode *n, DltWhy *why_not);
/* The same, but images (rank 4, channel-blocked) may be bf16, all of them: *low. */
bool dlt_fast_images(const DltNode *n, bool *low, DltWhy *why_not);
/* Channels that lie together in memory: 8 or 16 for the blocked layouts, 0 for the others.
 * dlt_fast_lanes: also all of NHWC's, when they come in eights. */
int64_t dlt_fast_lanes(const DltTensor *t);
int64_t dlt_fast_block(const DltTensor *t);

/* Inside a task: the number of the thread that runs it, for scratch of its own. */
int dlt_fast_worker(void);

extern const DltKernel *const dlt_fast_matmul[];
extern const DltKernel *const dlt_fast_conv_fwd[];
extern const DltKernel *const dlt_fast_conv_bwd_data[];
extern const DltKernel *const dlt_fast_conv_bwd_filter[];
extern const DltKernel *const dlt_fast_pool_fwd[];
extern const DltKernel *const dlt_fast_pool_bwd[];
extern const DltKernel *const dlt_fast_batch_norm_fwd[];
extern const DltKernel *const dlt_fast_batch_norm_bwd[];
extern const DltKernel *const dlt_fast_batch_norm_infer[];
extern const DltKernel *const dlt_fast_unary_fwd[];
extern const DltKernel *const dlt_fast_unary_bwd[];
extern const DltKernel *const dlt_fast_binary[];
extern const DltKernel *const dlt_fast_bias_bwd[];
extern const DltKernel *const dlt_fast_reduce[];
extern const DltKernel *const dlt_fast_layer_norm_fwd[];
extern const DltKernel *const dlt_fast_layer_norm_bwd[];
extern const DltKernel *const dlt_fast_rms_norm_fwd[];
extern const DltKernel *const dlt_fast_rms_norm_bwd[];
extern const DltKernel *const dlt_fast_sgd_update[];
extern const DltKernel *const dlt_fast_adam_update[];
extern const DltKernel *const dlt_fast_reorder[];
extern const DltKernel *const dlt_fast_cast[];
extern const DltKernel *const dlt_fast_attention_fwd[];
extern const DltKernel *const dlt_fast_attention_bwd[];
extern const DltKernel dlt_low_conv_fwd, dlt_low_conv_bwd_data;
extern const DltKernel dlt_low_matmul, dlt_low_tile_matmul, dlt_band_product, dlt_low_filter,
    dlt_low_first_filter, dlt_low_attention_fwd, dlt_low_attention_bwd;
extern const DltKernel dlt_fast_first_conv_filter; /* after oneDNN's in its list */
extern const DltKernel dlt_fast_product, dlt_wide_product,
    dlt_tall_product; /* before sgemm in its list */

/* y = act(x), or x * act'(saved) where saved is there (unary_bwd, act_grad), in place or not: f32, or (low) bf16, of
 * which a piece is widened at a time. DLT_FLAT_GRAIN elements a task: 64 KiB, inside L2 with the output. */
enum { DLT_FLAT_GRAIN = 16384 };
typedef struct DltFlat {
    DltUnary fn;
    bool low;
    const void *x, *saved;
    void *y;
} DltFlat;
void dlt_fast_flat(void *flat, int64_t begin, int64_t end);
/* out[0] = the activation of `made`, times the gradient's factor: what no post-op did. */
void dlt_fast_finish(const DltCall *c, const DltEpilogue *rest, const void *made,
                     const void *saved);

#endif
