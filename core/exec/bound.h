/* A plan bound to memory: what exec.c and series.c share. Private to core/exec. */
#ifndef DLT_BOUND_H
#define DLT_BOUND_H

#include "exec/exec.h"

typedef struct DltEarly DltEarly; /* series.c */

typedef struct CallArgs {
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
} CallArgs;

struct DltExec {
    DltArena *arena;
    const DltPlan *plan;
    const DltBackend *backend;
    DltDevice *dev;
    DltExecOptions o;
    void *region[DLT_REGIONS], *work[DLT_LANES]; /* NULL: empty, or borrowed from o.share */
    size_t region_bytes[DLT_REGIONS], bytes;     /* own */
    void **pointer;                              /* [n_tensor] */
    bool *shared;                                /* [n_tensor], bases */
    DltCall *call;                               /* [n_step] */
    CallArgs *args;                              /* [n_step], what the calls point to */
    int n_run[DLT_N_PHASE];
    void *program[DLT_N_PHASE];
    DltEarly *early; /* NULL until the first series */
    bool profiling;
    int64_t *step_ns;
    void **alone;          /* [n_step] programs of one node, for its time */
    int *alone_times;      /* how often the node is in it */
    int64_t replay_ns;     /* of replaying any program and waiting for it */
    unsigned char *poison; /* as many 0xff bytes as the largest TEMP: NaN in every float type */
    int *dead_head, *dead_next; /* TEMP bases that die at a step: list through dead_next */
};

/* Runs step s (once or some times over) and measures one run. */
DltStatus dlt_exec_time_node(DltExec *e, int s, int64_t *ns, DltErr *err) DLT_CHECKED;
/* Launches steps [from, to) in order; the lanes meet at the end. */
DltStatus dlt_exec_launch(DltExec *e, int from, int to, DltErr *err) DLT_CHECKED;
/* Ends a recording whose launches went as `status` says; that status, or how the end went. */
DltStatus dlt_exec_end_record(DltExec *e, DltStatus status, void **program,
                              DltErr *err) DLT_CHECKED;

#endif
