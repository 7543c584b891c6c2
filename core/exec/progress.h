/* What people see while a run goes on. On a terminal one live line; elsewhere plain lines at the log
 * interval. Private to core/exec. */
#ifndef DLT_PROGRESS_H
#define DLT_PROGRESS_H

#include "exec/session.h"

typedef struct DltProgress {
    const DltSpec *spec;
    double epoch_samples;
    int64_t live_ns; /* when the live line was last drawn */
    /* the interval since the last row */
    int64_t since_ns, since_wait_ns, since_position;
    double samples_per_s, data_wait; /* of the last full interval; 0 before */
    size_t memory_bytes;
    char figures[160]; /* "loss 0.123  val.top1 0.98" of the last row */
} DltProgress;

typedef struct DltPlace { /* where the run is */
    int64_t step, position, wait_ns;
} DltPlace;

void dlt_progress_start(DltProgress *p, const DltSpec *spec, size_t memory_bytes, DltPlace at);
/* Redraws the live line, a few times a second. */
void dlt_progress_live(DltProgress *p, DltPlace at);
/* Ends an interval: samples_per_s and data_wait are its own. Call before the row is made. */
void dlt_progress_measure(DltProgress *p, DltPlace at);
/* Tells a row. `named` are its metrics. */
void dlt_progress_row(DltProgress *p, DltPlace at, const DltMetricRow *named);
/* The next interval begins now: what came between (evaluation, saving) is not training speed. */
void dlt_progress_resume(DltProgress *p, DltPlace at);

#endif
