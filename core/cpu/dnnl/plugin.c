/* dltrain-dnnl.so: the fast CPU kernels. Exports one symbol, dlt_cpu_plugin; brings its own team of threads
 * (OpenMP, because oneDNN of Debian uses it), so that the process has one. */
#include "cpu/dnnl/fast.h"

#include <omp.h>
#include <stdatomic.h>

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

/* A thread's own chunks, [next, end) still to do; on cache lines of its own. */
typedef struct Share {
    _Atomic int64_t next;
    int64_t begin, end;
    char apart[104];
} Share;

typedef struct Team {
    DltTeam team; /* first member: what kernels hold */
    Share *share; /* [n_thread] */
} Team;

/* The chunks of `share` that nobody has taken. */
static UNSEEN void drain(Team *t, Share *share, const DltJob *job)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (i >= share->end) return;
        BEHIND_OTHERS(t);
        job->run(job->ctx, job->back ? share->begin + share->end - 1 - i : i);
        BEFORE_OTHERS(t);
    }
}

/* Each thread has the same part of every job, so that what it made in one node lies in its own cache for the next; who is
 * done helps the others: a core that the host or another process takes for a while must not hold up the other. */
static UNSEEN void run(DltTeam *team, const DltJob *job)
{
    Team *t = (Team *)team;
    int n = team->n_thread;
    if (job->n_chunk == 1 || n == 1) {
        for (int64_t i = 0; i < job->n_chunk; i++)
            job->run(job->ctx, job->back ? job->n_chunk - 1 - i : i);
        return;
    }
    for (int k = 0; k < n; k++) {
        Share *s = &t->share[k];
        s->begin = k * job->n_chunk / n, s->end = (k + 1) * job->n_chunk / n;
        atomic_store_explicit(&s->next, s->begin, memory_order_relaxed);
    }
    BEFORE_OTHERS(t);
#pragma omp parallel num_threads(n)
    for (int k = 0; k < n; k++)
        drain(t, &t->share[(omp_get_thread_num() + k) % n], job);
    BEHIND_OTHERS(t);
}

static bool open_plugin(DltArena *arena, int n_thread, DltTeam **team, DltDeviceInfo *info,
                        DltWhy *why_not)
{
    if (!dlt_dnnl_open(n_thread, why_not)) return false;
    Team *t = DLT_NEW(arena, Team);
    *t = (Team){{.run = run, .n_thread = n_thread}, DLT_NEW_ARRAY(arena, n_thread, Share)};
    *team = &t->team;
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
        [DLT_OP_reduce] = dlt_fast_reduce,
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
