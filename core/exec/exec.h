/* Runs a plan: binds pointers once, then a step is a loop over bound calls, or one replay. */
#ifndef DLT_EXEC_H
#define DLT_EXEC_H

#include "plan/plan.h"

typedef struct DltExec DltExec;

/* Allocates the regions. With `share`, saved PARAM and STATE tensors that `share` has under the same
 * name use its memory (evaluation over the training parameters); with `prefix` ("ema/") names are
 * looked up with it first. TEMP and scratch of `share` are used too where they are large enough: the
 * two never run at the same time. Parameters and states that are not shared are initialised from
 * (seed, name). An INPUT that no node reads has no memory; writing it does nothing. */
typedef struct DltExecOptions {
    const DltExec *share;
    const char *prefix;
    bool share_inputs; /* INPUT tensors of the same name, type and shape too: one data set twice */
    uint64_t seed;
    bool eager;  /* synchronise after each node, so faults carry the node's name */
    bool poison; /* fill dead temps with NaN after each step (tests) */
} DltExecOptions;
DltStatus dlt_exec_new(DltArena *arena, const DltPlan *plan, const DltExecOptions *o,
                       DltExec **exec, DltErr *err) DLT_CHECKED;
void dlt_exec_free(DltExec *exec); /* also a cleanup of the arena */
/* Host (row-major) <-> tensor, PLAIN or NHWC; other layouts are refused (BUG). Synchronous. */
DltStatus dlt_exec_write(DltExec *e, const DltTensor *t, const void *host, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_read(DltExec *e, const DltTensor *t, void *host, DltErr *err) DLT_CHECKED;
/* PLAIN tensors only. Enqueued behind the work so far: upload of a per-step input (host memory stays until that run is
 * finished), download (complete after the next sync), fill with zeros. */
DltStatus dlt_exec_feed(DltExec *e, const DltTensor *t, const void *host, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_fetch(DltExec *e, const DltTensor *t, void *host, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_zero(DltExec *e, const DltTensor *t, DltErr *err) DLT_CHECKED;
/* All nodes of a phase: eagerly the first time, recorded the second, replayed from then on where the
 * backend can record. Returns when the work is enqueued. */
DltStatus dlt_exec_run(DltExec *e, DltPhase phase, DltErr *err) DLT_CHECKED;
/* All nodes of a phase, one at a time; each(ctx, node) sees the finished results of a node and ends
 * the run early by returning false. */
DltStatus dlt_exec_watch(DltExec *e, DltPhase phase, bool (*each)(void *ctx, const DltNode *node),
                         void *ctx, DltErr *err) DLT_CHECKED;
DltStatus dlt_exec_sync(DltExec *e, DltErr *err) DLT_CHECKED;
/* A series: n runs of both phases in one recorded program (series.c). Where the backend records, and
 * after both phases have run once. Run r reads its own copies of the fed tensors (INPUT, PLAIN) and
 * leaves its own copy of `result`; everything else is what dlt_exec_run works on. Allocates. */
typedef struct DltSeries DltSeries;
DltStatus dlt_series_new(DltExec *e, const DltTensor *const fed[], int n_fed,
                         const DltTensor *result, int n, DltSeries **s, DltErr *err) DLT_CHECKED;
int dlt_series_length(const DltSeries *s);
/* The host's block: its size, and where fed tensor k of a run lies in it. */
size_t dlt_series_bytes(const DltSeries *s);
size_t dlt_series_offset(const DltSeries *s, int run, int k);
/* Enqueues upload of the block and the runs; the block stays until they are over. Then results
 * [first, first + n), one behind the other, complete after the next sync. */
DltStatus dlt_series_run(DltSeries *s, const void *fed, DltErr *err) DLT_CHECKED;
DltStatus dlt_series_fetch(DltSeries *s, int first, int n, void *result, DltErr *err) DLT_CHECKED;
void *dlt_exec_pointer(const DltExec *e, const DltTensor *t); /* device address, NULL: none */
size_t dlt_exec_bytes(const DltExec *e);                      /* allocated on the device */
const DltPlan *dlt_exec_plan(const DltExec *e);
/* Time of each step in ns over the last run when profiling was switched on (NULL otherwise). */
void dlt_exec_profile(DltExec *e, bool on);
const int64_t *dlt_exec_step_ns(const DltExec *e);

#endif
