/* dltrain-dnnl.so: the fast CPU kernels. Exports one symbol, dlt_cpu_plugin; brings its own team of threads
 * (OpenMP, because oneDNN of Debian uses it), so that the process has one. */
#include "cpu/dnnl/fast.h"

#include <omp.h>

/* The thread sanitizer does not see how OpenMP's threads wait for each other; it is told. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define BEFORE_OTHERS(at) __tsan_release(at)
#define BEHIND_OTHERS(at) __tsan_acquire(at)
#define UNSEEN __attribute__((no_sanitize("thread")))
#else
#define BEFORE_OTHERS(at) (void)(at)
#define BEHIND_OTHERS(at) (void)(at)
#define UNSEEN
#endif

int dlt_fast_worker(void)
{
    return omp_get_thread_num();
}

static UNSEEN void run(DltTeam *team, int64_t n_chunk, void (*task)(void *ctx, int64_t chunk),
                       void *ctx)
{
    if (n_chunk == 1 || team->n_thread == 1) {
        for (int64_t i = 0; i < n_chunk; i++)
            task(ctx, i);
        return;
    }
    /* a core that the host or another process takes for a while must not hold up the other: on such a machine
     * 15 to 20 % more than with fixed shares, on a quiet one the same */
    BEFORE_OTHERS(team);
#pragma omp parallel for schedule(dynamic) num_threads(team->n_thread)
    for (int64_t i = 0; i < n_chunk; i++) {
        BEHIND_OTHERS(team);
        task(ctx, i);
        BEFORE_OTHERS(team);
    }
    BEHIND_OTHERS(team);
}

static bool open_plugin(DltArena *arena, int n_thread, DltTeam **team, DltDeviceInfo *info,
                        DltWhy *why_not)
{
    if (!dlt_dnnl_open(n_thread, why_not)) return false;
    DltTeam *t = DLT_NEW(arena, DltTeam);
    *t = (DltTeam){.run = run, .n_thread = n_thread};
    *team = t;
    int block = dlt_dnnl_block();
    info->image_layout = block == 16 ? DLT_NCHW16C : block == 8 ? DLT_NCHW8C : DLT_PLAIN;
    info->image_block = block;
    info->has_bf16 = dlt_dnnl_has_bf16();
    if (dlt_dnnl_has_amx()) { /* its convolutions want channels last, of any number */
        info->low_layout = DLT_NHWC;
        info->low_block = 1;
    }
    char version[64];
    snprintf(info->library, sizeof info->library, "%s, %d threads", dlt_dnnl_version(version),
             n_thread);
    return true;
}

static const DltKernel *const *kernels(int kind)
{
    static const DltKernel *const *const table[DLT_N_OP] = {
        [DLT_OP_matmul] = dlt_fast_matmul,
        [DLT_OP_conv_fwd] = dlt_fast_conv_fwd,
        [DLT_OP_conv_bwd_data] = dlt_fast_conv_bwd_data,
        [DLT_OP_conv_bwd_filter] = dlt_fast_conv_bwd_filter,
        [DLT_OP_pool_fwd] = dlt_fast_pool_fwd,
        [DLT_OP_pool_bwd] = dlt_fast_pool_bwd,
        [DLT_OP_batch_norm_fwd] = dlt_fast_batch_norm_fwd,
        [DLT_OP_batch_norm_bwd] = dlt_fast_batch_norm_bwd,
        [DLT_OP_batch_norm_infer] = dlt_fast_batch_norm_infer,
        [DLT_OP_unary_fwd] = dlt_fast_unary_fwd,
        [DLT_OP_unary_bwd] = dlt_fast_unary_bwd,
        [DLT_OP_binary] = dlt_fast_binary,
        [DLT_OP_bias_bwd] = dlt_fast_bias_bwd,
        [DLT_OP_layer_norm_fwd] = dlt_fast_layer_norm_fwd,
        [DLT_OP_layer_norm_bwd] = dlt_fast_layer_norm_bwd,
        [DLT_OP_rms_norm_fwd] = dlt_fast_rms_norm_fwd,
        [DLT_OP_rms_norm_bwd] = dlt_fast_rms_norm_bwd,
        [DLT_OP_sgd_update] = dlt_fast_sgd_update,
        [DLT_OP_adam_update] = dlt_fast_adam_update,
        [DLT_OP_cast] = dlt_fast_cast,
        [DLT_OP_reorder] = dlt_fast_reorder,
        [DLT_OP_attention_fwd] = dlt_fast_attention_fwd,
        [DLT_OP_attention_bwd] = dlt_fast_attention_bwd,
    };
    return table[kind];
}

extern const DltCpuPlugin dlt_cpu_plugin;
const DltCpuPlugin dlt_cpu_plugin = {
    .abi = DLT_BACKEND_ABI, .name = "oneDNN", .open = open_plugin, .kernels = kernels};
