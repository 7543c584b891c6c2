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
typedef struct DltGuard {
    DltFlags *flags;   /* [DLT_RING] */
    int64_t looked_at; /* updates whose flags have been looked at */
    int delay;
} DltGuard;

typedef struct DltTrainer {
    DltArena *arena;
    DltSession *s;
    DltSpec *spec;
    const DltRunOptions *o;
    DltProgram *p;
    DltTensor *coef;
    DltFeed feed;
    DltGuard guard;
    DltEvaluator *evaluator[DLT_N_SPLIT]; /* NULL: that split is never measured */
    DltRunFolder *folder;                 /* NULL: nothing is written */
    DltCheckpoint *init;                  /* of --init, or NULL */
    DltSnapshot *snapshot;
    DltProgress progress;
    DltCheckpointMeta at; /* step, position, batch_count, best ..., kept up to date */
    bool finished;        /* nothing is left to train */
    int64_t first_step;   /* of this process */
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

/* report.c: what is due after an update: rows, evaluation, checkpoints, whether the run is over.
 * *done false: a signal cut the evaluation short; nothing was changed and it is still due. */
DltStatus dlt_report_open(DltTrainer *t, DltErr *err) DLT_CHECKED;
DltStatus dlt_report(DltTrainer *t, bool *done, DltErr *err) DLT_CHECKED;
DltStatus dlt_save(DltTrainer *t, bool best, DltErr *err) DLT_CHECKED;

/* guard.c: non-finite losses and gradients. */
DltStatus dlt_flags_open(DltTrainer *t, DltErr *err) DLT_CHECKED;
/* Enqueues the download of this update's flags. */
DltStatus dlt_flags_watch(DltTrainer *t, DltErr *err) DLT_CHECKED;
/* Looks at all flags up to update `step`; NUMERIC by the policy of train.guard. */
DltStatus dlt_flags_check(DltTrainer *t, int64_t step, DltErr *err) DLT_CHECKED;

#endif
