/* The state of a training run. What decides the rest of the run is in `at`, which checkpoints hold;
 * everything else follows from the spec. Private to core/exec. */
#ifndef DLT_TRAINER_H
#define DLT_TRAINER_H

#include "exec/progress.h"
#include "exec/session.h"
#include "ops/update_ops.h"

/* Flags come back from the device behind each update and are looked at `delay` updates later. */
typedef union DltFlags {
    float coef[DLT_COEF]; /* as update.coef */
    uint32_t word[DLT_COEF];
} DltFlags;
enum { DLT_LOSSES = DLT_GUARD_WINDOW_MAX + DLT_AHEAD + 1 };
typedef struct DltLoss { /* of an update that was applied */
    int64_t step;        /* counted from 0 */
    float value;
} DltLoss;
enum { DLT_FLAGS = 64 };
typedef struct DltGuard {
    DltFlags *flags;   /* [DLT_FLAGS], a ring */
    int64_t looked_at; /* updates whose flags have been looked at */
    int delay;
    int64_t bad; /* update that ended the run or is to be rolled back, -1: none */
    int fault;   /* DLT_SKIP_* of the last bad update */
    int64_t n_loss;
    DltLoss loss[DLT_LOSSES]; /* a ring; only with train.guard.loss_spike */
} DltGuard;

typedef struct DltSaver DltSaver;
typedef struct DltSampler DltSampler;
/* Updates that run as one program while nothing is due (burst.c). */
enum { DLT_BURST_SIZES = 4, DLT_BURSTS = 3 };
typedef struct DltBurst {
    DltSeries *series[DLT_BURST_SIZES]; /* longest first; NULL: none of that length */
    char *fed[DLT_BURSTS];              /* host blocks, taken in turn */
    int64_t n_run;
    bool open;
} DltBurst;

/* A row whose figures are on their way while later updates run (report.c). */
typedef struct DltLateRow {
    bool open;
    DltPlace place;    /* behind the row's last update */
    double *acc;       /* accumulators */
    DltReal *scale;    /* [DLT_SCALER] */
    DltFlags *arrived; /* comes last */
} DltLateRow;

typedef struct DltTrainer {
    DltArena *arena;
    DltSession *s;
    DltSpec *spec;
    const DltRunOptions *o;
    DltProgram *p;
    DltTensor *coef, *scaler; /* scaler: of f16, else NULL */
    DltFeed feed;
    DltGuard guard;
    DltBurst burst;
    DltLateRow late;
    DltEvaluator *evaluator[DLT_N_SPLIT]; /* NULL: that split is never measured */
    DltSampler *sampler;                  /* NULL: no eval.sample */
    DltRunFolder *folder;                 /* NULL: nothing is written */
    DltCheckpoint *init;                  /* of --init, or NULL */
    DltSnapshot *snapshot;
    DltSaver *saver; /* NULL: nothing is written */
    DltProgress progress;
    DltCheckpointMeta at; /* step, position, batch_count, best ..., kept up to date */
    bool finished;        /* nothing is left to train */
    const char *changes;  /* of the config since the checkpoint, for the lineage */
    int64_t first_step;   /* of this process */
    int64_t begin_ns;     /* of the call, for --walltime */
    int64_t start_ns, saved_ns, saved_step;
    double time_before_s; /* training time of earlier processes */
    double sample_weight; /* DltStepState */
    bool freezes;         /* no thread of ours allocates while a step runs */
    double *acc;          /* host copy of the accumulators */
    int n_column;         /* the present row, see report.c */
    const char **column;
    double *cell;
    DltArena *row_arena; /* holds at.metrics */
    bool *judged;        /* [spec->n_expect] expectations that were looked at */
} DltTrainer;

/* trainer.c: from t->at.step to the end, or to a request to stop (DLT_STOPPED, DLT_SIGINT,
 * DLT_SIGTERM, with a checkpoint saved). */
DltStatus dlt_trainer_run(DltTrainer *t, DltErr *err) DLT_CHECKED;

/* burst.c. Call prepare when single updates have run. */
DltStatus dlt_burst_prepare(DltTrainer *t, DltErr *err) DLT_CHECKED; /* once; records */
/* Runs as many updates at once as nothing stands in the way of; *n 0: none, run one as usual. */
DltStatus dlt_burst_run(DltTrainer *t, int64_t *n, DltErr *err) DLT_CHECKED;

/* report.c: what is due after an update: rows, evaluation, checkpoints, whether the run is over.
 * *done false: a signal cut the evaluation short; nothing was changed and it is still due. */
DltStatus dlt_report_open(DltTrainer *t, DltErr *err) DLT_CHECKED;
DltStatus dlt_report(DltTrainer *t, bool *done, DltErr *err) DLT_CHECKED;
/* Looks at all flags up to update `step` and writes the row that is due there, if its figures were
 * sent for; otherwise as dlt_flags_check. */
DltStatus dlt_catch_up(DltTrainer *t, int64_t step, DltErr *err) DLT_CHECKED;
/* Updates up to the next one behind which something is due by its number, at most `most`. */
int64_t dlt_report_quiet(const DltTrainer *t, int64_t most);
/* Updates between two rows. */
int64_t dlt_report_interval(const DltTrainer *t);
DltStatus dlt_save(DltTrainer *t, bool best, DltErr *err) DLT_CHECKED;

/* trainer.c: what update number `step` (from 0) tells the device. */
DltStepState dlt_step_state(const DltTrainer *t, int64_t step, int64_t micro, int64_t n_micro);

/* sampler.c: plan makes t->sampler where the config wants it; a NULL sampler has nothing to do. `prefix`: as for
 * evaluation. run: a text to the log. */
DltStatus dlt_sampler_plan(DltTrainer *t, DltErr *err) DLT_CHECKED;
int dlt_sampler_programs(const DltSampler *s, DltProgram *p[DLT_GENERATOR_PROGRAMS]);
DltStatus dlt_sampler_bind(DltSampler *s, const char *prefix, DltErr *err) DLT_CHECKED;
DltStatus dlt_sampler_run(DltSampler *s, DltErr *err) DLT_CHECKED;

/* saver.c: writes checkpoints beside the steps. While a save is under way the folder's checkpoints are
 * the saver's: wait before they are asked for. A saver that is NULL has nothing to do. */
DltStatus dlt_saver_open(DltTrainer *t, DltErr *err) DLT_CHECKED;
/* Takes the snapshot and begins to write it, when the save before is finished. */
DltStatus dlt_saver_start(DltSaver *s, const DltCheckpointMeta *meta, bool best,
                          DltErr *err) DLT_CHECKED;
/* Until the save under way is on disk; how the last one ended, told once. */
DltStatus dlt_saver_wait(DltSaver *s, DltErr *err) DLT_CHECKED;
/* The same without waiting: OK while it is under way. */
DltStatus dlt_saver_look(DltSaver *s, DltErr *err) DLT_CHECKED;

/* guard.c: bad updates. */
DltStatus dlt_flags_open(DltTrainer *t, DltErr *err) DLT_CHECKED;
/* Enqueues the download of this update's flags. */
DltStatus dlt_flags_watch(DltTrainer *t, DltErr *err) DLT_CHECKED;
/* Marks flags as under way, and waits until they are there. */
void dlt_flags_await(DltFlags *flags);
DltStatus dlt_flags_wait(DltTrainer *t, const DltFlags *flags, DltErr *err) DLT_CHECKED;
/* Looks at all flags up to update `step`; NUMERIC by the policy of train.guard. With guard.bad >= 0
 * afterwards the run is to be rolled back before anything else. */
DltStatus dlt_flags_check(DltTrainer *t, int64_t step, DltErr *err) DLT_CHECKED;
/* NUMERIC: update `step` and its samples; `more` goes on with the sentence. */
DltStatus dlt_diverged(const DltTrainer *t, int64_t step, const char *more, DltErr *err);
/* Loss above which the next update is left out, 0: none yet. */
float dlt_loss_limit(const DltTrainer *t);
/* The losses that limits are made of, to and from the checkpoint's text (NULL: none). */
const char *dlt_losses_text(const DltTrainer *t, DltArena *arena);
void dlt_losses_read(DltTrainer *t);
/* Position of an update's first sample in the training stream, and the sample there. */
int64_t dlt_position_of(const DltTrainer *t, int64_t step);
int64_t dlt_sample_at(const DltTrainer *t, int64_t position);

/* rollback.c: the newest checkpoint's state, and the data behind guard.bad. NUMERIC when there is no
 * checkpoint, or there were too many rollbacks. */
DltStatus dlt_rollback(DltTrainer *t, DltErr *err) DLT_CHECKED;

/* replay.c: a note on where update `step` began to be not finite. The run cannot go on after it. */
void dlt_replay(DltTrainer *t, int64_t step, DltErr *err);

#endif
