/* What CPU kernels and the fast plug-in share: the thread pool behind a stream and the plug-in's
 * door. */
#ifndef DLT_CPU_H
#define DLT_CPU_H

#include "api/backend.h"

/* Work on [begin, end). Chunks are fixed by (n, grain) and not by the number of threads, so that a
 * task that writes only its own range gives the same bits for any number of threads. */
typedef void (*DltTask)(void *ctx, int64_t begin, int64_t end);
void dlt_pool_for(DltStream *s, int64_t n, int64_t grain, DltTask task, void *ctx);
/* The same from the other end, where a second pass begins with what the first one left in each thread's cache. */
void dlt_pool_back(DltStream *s, int64_t n, int64_t grain, DltTask task, void *ctx);
int dlt_pool_threads(const DltStream *s);
/* What kernels ask the device in accepts and prepare: its threads, and whether f32 products must be plain sums
 * (train.precision: f32). */
int dlt_cpu_threads(const DltDevice *dev);
bool dlt_cpu_is_strict(const DltDevice *dev);

/* n_chunk calls of run(ctx, chunk); back: each thread's last chunk first. */
typedef struct DltJob {
    void (*run)(void *ctx, int64_t chunk);
    void *ctx;
    int64_t n_chunk;
    bool back;
} DltJob;

/* A team of threads does a job on all its threads and returns when all are done. The plug-in may bring its own
 * (OpenMP), so that there is one team. */
typedef struct DltTeam {
    void (*run)(struct DltTeam *team, const DltJob *job);
    int n_thread;
} DltTeam;

/* The plug-in's one exported symbol: const DltCpuPlugin dlt_cpu_plugin. */
typedef struct DltCpuPlugin {
    int abi;
    const char *name; /* "oneDNN" */
    /* NULL when this machine cannot use it, with the reason. */
    bool (*open)(DltArena *arena, int n_thread, DltTeam **team, DltDeviceInfo *info,
                 DltWhy *why_not);
    const DltKernel *const *(*kernels)(int kind); /* put in front of the plain ones; NULL: none */
} DltCpuPlugin;

#define OP(name) extern const DltKernel *const dlt_cpu_##name[];
#include "ops/ops.def"
#undef OP

#endif
