/* Inside the CPU device: its threads, its memory and its kernel lists. */
#ifndef DLT_CPU_DEVICE_H
#define DLT_CPU_DEVICE_H

#include "base/dtype.h"
#include "cpu/cpu.h"

typedef struct DltRegion {
    void *ptr; /* NULL after release */
    size_t bytes;
    struct DltRegion *next;
} DltRegion;

struct DltStream {
    DltDevice *dev;
    DltTeam *team;
};

struct DltDevice {
    DltArena *arena;
    DltStream stream;
    DltTeam *team;     /* that kernels use: the plug-in's, or own_team */
    DltTeam *own_team; /* NULL when the plug-in brings one */
    DltRegion *regions;
    DltDeviceInfo info;
    bool strict;
    const DltKernel *const *kernels[DLT_N_OP]; /* plug-in first, plain, dlt_cpu_widen last */
};

/* A team of n_thread (the caller is one of them). Freed by dlt_team_free, or with the arena. */
DltStatus dlt_team_new(DltArena *arena, int n_thread, DltTeam **team, DltErr *err) DLT_CHECKED;
void dlt_team_free(DltTeam *team); /* joins its threads; twice is allowed */

/* The plug-in from plugin_folder or ../lib/dltrain beside it, or NULL with the reason. A broken or
 * foreign plug-in is a DEVICE error; an unknown value of DLTRAIN_PLUGIN is a CONFIG error. */
DltStatus dlt_cpu_plugin_find(DltArena *arena, const char *plugin_folder,
                              const DltCpuPlugin **plugin, DltWhy *why_not,
                              DltErr *err) DLT_CHECKED;

/* A pause of some nanoseconds inside a spinning loop. */
void dlt_cpu_relax(void);

/* Sum of x^2 in a fixed order, in the processor's widest vectors. */
double dlt_cpu_squares(const DltReal *x, int64_t n);
/* y = (x scale - mean) rstd of bytes, rounded after each operation, in the widest vectors too. */
void dlt_cpu_normalize_bytes(const uint8_t *x, DltReal *y, int64_t n, DltReal scale, DltReal mean,
                             DltReal rstd);

/* The processor's name and the memory that this process may use (control group counted). */
void dlt_cpu_machine(DltDeviceInfo *info);

/* The plain lists by op kind, and the kernel that serves any dtype and layout through them. */
extern const DltKernel *const *const dlt_cpu_plain[DLT_N_OP];
extern const DltKernel dlt_cpu_widen;

#endif
