/* Runs a plan: binds pointers once, then a step is a loop over bound calls, or one replay. */
#ifndef DLT_EXEC_H
#define DLT_EXEC_H

#include "plan/plan.h"

typedef struct DltExec DltExec;

/* Allocates the regions. With `share`, PARAM and STATE tensors that `share` has under the same name
 * use its memory (evaluation over the training parameters); with `prefix` ("ema/") names are looked
 * up with it first. Parameters and states that are not shared are initialised from (seed, name). */
typedef struct DltExecOptions {
    const DltExec *share;
    const char *prefix;
    uint64_t seed;
    bool eager;  /* synchronise after each node, so faults carry the node's name */
    bool poison; /* fill dead temps with NaN after each step (tests) */
} DltExecOptions;
DltStatus dlt_exec_new(DltArena *arena, const DltPlan *plan, const DltExecOptions *o,
                       DltExec **exec, DltErr *err) DLT_CHECKED;
void dlt_exec_free(DltExec *exec); /* also a cleanup of the arena */
/* Host <-> tensor; layouts other than PLAIN are refused (BUG). Synchronous. */
DltStatus dlt_exec_write(DltExec *e, const DltTensor *t, const void *host, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_read(DltExec *e, const DltTensor *t, void *host, DltErr *err) DLT_CHECKED;
/* Asynchronous upload for per-step inputs (host memory stays until the step after next). */
DltStatus dlt_exec_feed(DltExec *e, const DltTensor *t, const void *host, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_run(DltExec *e, DltPhase phase, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_sync(DltExec *e, DltErr *err) DLT_CHECKED;
void *dlt_exec_pointer(const DltExec *e, const DltTensor *t); /* device address */
size_t dlt_exec_bytes(const DltExec *e);                      /* allocated on the device */
const DltPlan *dlt_exec_plan(const DltExec *e);
/* Time of each step in ns over the last run when profiling was switched on (NULL otherwise). */
void dlt_exec_profile(DltExec *e, bool on);
const int64_t *dlt_exec_step_ns(const DltExec *e);

#endif
