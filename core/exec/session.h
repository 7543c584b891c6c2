/* What the files of a run share: a spec on an opened device, graphs that are ready to run there,
 * their data and their weights. Private to core/exec. */
#ifndef DLT_SESSION_H
#define DLT_SESSION_H

#include "exec/run.h"
#include "ops/step.h"
#include <pthread.h>

/* ---- setup.c ---- */

typedef struct DltSession {
    DltArena *arena;
    DltSpec *spec;
    const DltRunOptions *o;
    const DltBackend *backend;
    DltDevice *dev;
    DltDeviceInfo info;
    bool trains; /* what cannot fit is refused before kernels are measured */
} DltSession;

/* One graph on the device. */
typedef struct DltProgram {
    DltSession *s;
    DltModelOptions options;
    DltModelGraph *m;
    DltPlan *plan;
    DltExec *exec; /* NULL until bound */
} DltProgram;

/* watched.c: the same backend, with every call of it watched (base/watch.h) for so many seconds, up to
 * the arena's end. The CPU's calls are our own code and stay as they are. */
DltStatus dlt_watched_backend(DltArena *arena, double seconds, const DltBackend **backend,
                              DltErr *err) DLT_CHECKED;
/* Finds and opens the device of --device or the config. choices: of the checkpoint (DltBackend.choices),
 * or NULL. */
DltStatus dlt_session_open(DltArena *arena, DltSpec *spec, const DltRunOptions *o,
                           const char *choices, DltSession **s, DltErr *err) DLT_CHECKED;
/* Settles `micro: auto` and `recompute: auto` by planning the training step: the largest micro batch
 * that divides the batch, then the least recomputation, that fit three quarters of the device's
 * memory. The spec gets the choice; where nothing fits, what needs least. Called by
 * dlt_session_open. */
DltStatus dlt_session_choose(DltSession *s, DltErr *err) DLT_CHECKED;
/* A device that is being got ready beside other work. begin: false when there is nothing to be gained.
 * Until end (any number of times) the thread runs. */
typedef struct DltWarm {
    const DltBackend *backend;
    int index;
    pthread_t thread;
    bool started;
} DltWarm;
bool dlt_warm_begin(DltWarm *w, const DltSpec *spec, const DltRunOptions *o);
void dlt_warm_end(DltWarm *w);
/* Graph, passes and plan; nothing is allocated on the device. */
DltStatus dlt_program_plan(DltSession *s, const DltModelOptions *o, DltProgram **p,
                           DltErr *err) DLT_CHECKED;
/* Refuses (RESOURCE) when programs together do not fit the device; p[0] lends its TEMP. Also
 * `expect: vram`. */
DltStatus dlt_programs_fit(DltProgram *const *p, int n, DltErr *err) DLT_CHECKED;
/* The same of what lives through the whole run, whatever kernels are chosen: parameters, gradients, states. */
DltStatus dlt_states_fit(const DltSession *s, const DltGraph *g, DltErr *err) DLT_CHECKED;
/* Memory. `share` (may be NULL) lends parameters and states, looked up behind `prefix` first. */
DltStatus dlt_program_bind(DltProgram *p, const DltProgram *share, const char *prefix,
                           DltErr *err) DLT_CHECKED;
/* Contents of a resident data set, unless they are shared. */
DltStatus dlt_program_upload(DltProgram *p, DltErr *err) DLT_CHECKED;
const DltSource *dlt_program_source(const DltProgram *p);

/* ---- profile.c ---- */

/* Each input read once, each output written once; of a data set, the batch. 0 for views. */
double dlt_node_bytes(const DltNode *n);

/* ---- peaks.c ---- */

typedef struct DltPeaks {
    double flops,
        bytes; /* a second: of a large product in dtype, of a large copy (read and written) */
} DltPeaks;
DltStatus dlt_peaks(DltSession *s, DltDtype dtype, DltPeaks *p, DltErr *err) DLT_CHECKED;

/* ---- weights.c ---- */

/* The tensors that checkpoints hold, with a host copy of each. */
typedef struct DltSnapshot {
    DltProgram *p;
    int n;
    DltTensor **tensor;
    DltCheckpointTensor *entry; /* bytes: the host copy */
} DltSnapshot;
/* Index and value of the first element that is not finite, -1: all are. */
int64_t dlt_first_nonfinite(const DltTensor *t, const void *bytes, double *value);
DltSnapshot *dlt_snapshot_new(DltProgram *p);
/* Host memory for the copies, once the size is known to fit. */
DltStatus dlt_snapshot_reserve(DltSnapshot *s, DltErr *err) DLT_CHECKED;
/* Copies from the device. */
DltStatus dlt_snapshot_take(DltSnapshot *s, DltErr *err) DLT_CHECKED;
/* NUMERIC naming the tensor when a weight or state of the copy is not finite. Any thread. */
DltStatus dlt_snapshot_check(const DltSnapshot *s, DltErr *err) DLT_CHECKED;
/* The same run goes on: every tensor must be there, nothing may be left over. */
DltStatus dlt_snapshot_restore(DltSnapshot *s, const DltCheckpoint *c, DltErr *err) DLT_CHECKED;
/* Weights for evaluation, behind `prefix` first; what only training needs is passed over. */
DltStatus dlt_weights_load(DltProgram *p, const DltCheckpoint *c, const char *prefix,
                           DltErr *err) DLT_CHECKED;
/* A new run begins from another's weights: by name where shapes agree; reports the rest. */
DltStatus dlt_weights_init(DltProgram *p, const DltCheckpoint *c, DltErr *err) DLT_CHECKED;
/* Copies of states that updates may be taken back to (`settle` nodes) become the states as they are.
 * Call when states were written from the host. */
DltStatus dlt_weights_settle(DltProgram *p, DltErr *err) DLT_CHECKED;
/* Metric sums begin anew. */
DltStatus dlt_metrics_zero(DltProgram *p, DltErr *err) DLT_CHECKED;
/* ema/X starts as X; data.mean and data.rstd as measured. */
DltStatus dlt_weights_start(DltProgram *p, DltErr *err) DLT_CHECKED;

/* ---- feed.c ---- */

enum { DLT_RING = 4, DLT_AHEAD = 2 }; /* slots; runs that may be under way at once */

/* Brings batches to a program and keeps it at most DLT_AHEAD runs ahead of what is finished. */
typedef struct DltFeed {
    DltProgram *p;
    DltLoader *loader;
    DltStepState *sent; /* [DLT_RING] host copies under way to the device */
    DltStepState *done; /* [DLT_RING] come back behind the run; unused where runs end at once */
    int64_t n_run;
    int64_t wait_ns; /* spent getting batches */
    bool asynchronous;
} DltFeed;
DltStatus dlt_feed_open(DltProgram *p, bool shuffle, int64_t position, DltFeed *f,
                        DltErr *err) DLT_CHECKED;
/* The next batch and `state` on their way; *n_valid 0: the pass is over and nothing was sent. */
DltStatus dlt_feed_batch(DltFeed *f, const DltStepState *state, int64_t *n_valid,
                         DltErr *err) DLT_CHECKED;
/* Runs the batch phase on it. */
DltStatus dlt_feed_run(DltFeed *f, DltErr *err) DLT_CHECKED;
/* The next batch's tickets alone, of a resident set. */
DltStatus dlt_feed_tickets(DltFeed *f, int32_t *ticket, DltErr *err) DLT_CHECKED;
/* Waits until a download has changed `word` from `pending`. */
DltStatus dlt_wait_for(DltExec *e, const volatile uint32_t *word, uint32_t pending,
                       DltErr *err) DLT_CHECKED;
/* Memory for transfers, freed with the arena. */
void *dlt_host_memory(DltSession *s, size_t bytes);

/* ---- evaluator.c ---- */

typedef struct DltEvaluator {
    DltProgram *p;
    DltFeed feed;
    double *acc;   /* host copy of the accumulators */
    double *value; /* [spec->n_metric] of the last pass */
    int64_t n_sample;
} DltEvaluator;
/* Plans only; bind and load are the caller's. */
DltStatus dlt_evaluator_plan(DltSession *s, int split, DltEvaluator **e, DltErr *err) DLT_CHECKED;
DltStatus dlt_evaluator_open(DltEvaluator *e, DltErr *err) DLT_CHECKED;
/* One pass; *interrupted when a signal ended it early (values are then worthless). */
DltStatus dlt_evaluator_run(DltEvaluator *e, bool *interrupted, DltErr *err) DLT_CHECKED;
/* Figures of accumulators: value[i] of spec->metric[i]. */
void dlt_metric_values(const DltProgram *p, const double *acc, double *value);
/* Tables (confusion) of the last pass to the log. */
void dlt_evaluator_tables(const DltEvaluator *e);

/* ---- generate.c ---- */

/* Graphs that write text with weights of their own or those of `share`: plan (n programs, at most
 * DLT_GENERATOR_PROGRAMS), bind, and text any number of times. g is the caller's. */
enum { DLT_GENERATOR_PROGRAMS = 2 };
typedef struct DltGenerator DltGenerator;
DltStatus dlt_generator_plan(DltSession *s, const DltGenerate *g, DltGenerator **r,
                             DltErr *err) DLT_CHECKED;
int dlt_generator_programs(const DltGenerator *r, DltProgram *p[DLT_GENERATOR_PROGRAMS]);
DltStatus dlt_generator_bind(DltGenerator *r, const DltProgram *share, const char *prefix,
                             DltErr *err) DLT_CHECKED;
DltStatus dlt_generator_run(DltGenerator *r, DltErr *err) DLT_CHECKED;

/* ---- resume.c ---- */

/* Compares a checkpoint's config with the spec. Differences are logged with their class; model, data,
 * loss, seed and kind of optimizer must not differ (CHECKPOINT). *changes: "; KEY: OLD -> NEW
 * (CLASS)" of each. */
DltStatus dlt_resume_check(DltArena *arena, const DltSpec *spec, const DltCheckpoint *c,
                           const char **changes, DltErr *err) DLT_CHECKED;
/* The data sets are the ones of the checkpoint. Call when they are loaded. */
DltStatus dlt_resume_check_data(const DltSpec *spec, const DltCheckpoint *c,
                                DltErr *err) DLT_CHECKED;

#endif
