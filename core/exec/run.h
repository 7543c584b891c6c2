/* A run: training, evaluation and prediction over a spec; the run folder and its metrics. */
#ifndef DLT_RUN_H
#define DLT_RUN_H

#include "exec/checkpoint.h"
#include "exec/exec.h"
#include "spec/spec.h"

/* Run folder: runs/NAME-K made exclusively, or the one asked for; holds a lock (pid, host, boot
 * id). A second run there is RESOURCE and names the holder; a dead holder's lock is taken over (its
 * files are moved into previous-K, unless the same run is resumed). A folder whose run has ended is
 * taken: RESOURCE, unless resumed. Proves that the folder is writable. */
typedef struct DltRunFolder DltRunFolder;
DltStatus dlt_run_folder_open(DltArena *arena, const DltSpec *spec, const char *out, bool resume,
                              DltRunFolder **folder, DltErr *err) DLT_CHECKED;
/* Room for two checkpoints of this size, else RESOURCE. */
DltStatus dlt_run_folder_needs(const DltRunFolder *f, int64_t checkpoint_bytes,
                               DltErr *err) DLT_CHECKED;
const char *dlt_run_folder_path(const DltRunFolder *f);
void dlt_run_folder_close(DltRunFolder *f);   /* gives the lock up; NULL allowed */
void dlt_run_folder_discard(DltRunFolder *f); /* closes, and removes a folder that was made for
                                                 nothing; NULL allowed */
/* Removes a run's files and then the folder, unless something else lies in it. */
void dlt_run_folder_remove(DltArena *arena, const char *path);
/* What became of a run, from its folder. CONFIG when it is none. */
typedef enum DltRunState { DLT_RUN_LIVES, DLT_RUN_ENDED, DLT_RUN_KILLED } DltRunState;
typedef struct DltRunStatus {
    DltRunState state;
    int exit;                 /* ENDED */
    const char *reason;       /* ENDED, else NULL */
    int64_t step, saved_step; /* of the last row and of last.bin; -1: none */
    const char *checkpoint;   /* NULL: none that can be read */
    const char *crash;        /* record of a failure, or NULL */
    const char *lineage;      /* of the checkpoint */
    char pid[24], host[128];  /* of the (last) holder of the lock */
} DltRunStatus;
DltStatus dlt_run_status(DltArena *arena, const char *folder, DltRunStatus *s,
                         DltErr *err) DLT_CHECKED;
/* metrics.jsonl and metrics.csv: each step once, also after a resume (rows behind `step` are cut
 * off when a run is resumed there). JSON holds null, never NaN or Infinity. name[0] is "step". */
typedef struct DltMetricRow {
    int n;
    const char *const *name;
    const double *value;
} DltMetricRow;
DltStatus dlt_run_folder_metrics(DltRunFolder *f, const DltMetricRow *row, DltErr *err) DLT_CHECKED;
DltStatus dlt_run_folder_rewind(DltRunFolder *f, int64_t step, DltErr *err) DLT_CHECKED;
/* A row as a JSON object; the numbers read back as written in metrics.jsonl. */
char *dlt_metric_row_json(DltArena *arena, const DltMetricRow *row);
/* Checkpoints of c's run that lie here, up to c's step, belong to the rotation from now on; c is the
 * newest. */
DltStatus dlt_run_folder_adopt(DltRunFolder *f, const DltCheckpoint *c, DltErr *err) DLT_CHECKED;
/* Writes last.bin, step-N.bin where `keep` wants it, and best.bin when `best`; only then removes the
 * step files of this run that `keep` does not want, lowest stored step first. */
DltStatus dlt_run_folder_save(DltRunFolder *f, const DltCheckpoint *c, const DltKeep *keep,
                              bool best, DltErr *err) DLT_CHECKED;
/* Path of the newest checkpoint that was reported as saved, NULL: none. */
const char *dlt_run_folder_newest(const DltRunFolder *f);
/* Final status record: how the run ended and why. */
DltStatus dlt_run_folder_end(DltRunFolder *f, DltStatus status, const char *reason,
                             DltErr *err) DLT_CHECKED;

/* The description of a data set that a checkpoint carries, as JSON text. */
char *dlt_stored_write(DltArena *arena, const DltDataset *ds);
/* A checkpoint's config and tokenizer for dlt_spec_read_stored; without_data: the training set's
 * description too, so that no data file is opened. */
DltStatus dlt_stored_read(DltArena *arena, const DltCheckpoint *c, bool without_data,
                          DltStored **stored, DltErr *err) DLT_CHECKED;

/* skipped.c. Writes skipped.jsonl: an object for each record that was left out of a data set (set, file,
 * record, why). No file when there is none. */
DltStatus dlt_run_folder_skipped(DltRunFolder *f, const DltSpec *spec, DltErr *err) DLT_CHECKED;
/* The same for the checkpoint: a line each, of long lists the first ones; NULL: none was left out. */
const char *dlt_skipped_text(DltArena *arena, const DltSpec *spec);

typedef struct DltRunOptions {
    const char *out;    /* --out */
    const char *device; /* --device, overrides the config */
    const char *init;   /* --init CKPT */
    int n_thread;
    bool eager, json, quiet, poison, no_save;
    double walltime_s; /* stop, save and return DLT_STOPPED after so long; 0: no */
    int64_t stop_at;   /* tests: end after this many updates as if asked by SIGUSR1; 0: no */
    const char *plugin_folder;
    const char *program; /* version text for checkpoints */
} DltRunOptions;

typedef struct DltRunResult {
    int n;
    const char **name; /* "val.top1" */
    double *value;
    int64_t step;
    const char *folder, *checkpoint;
} DltRunResult;

/* Trains to the end (or a stop). ckpt: NULL, or where to resume. Returns DLT_STOPPED, DLT_SIGINT or
 * DLT_SIGTERM after a saved early stop. */
DltStatus dlt_train(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt,
                    const DltRunOptions *o, DltRunResult *result, DltErr *err) DLT_CHECKED;
/* Metrics of a checkpoint over a split (DLT_VAL, DLT_TEST, DLT_TRAIN). Every sample counts once. */
DltStatus dlt_evaluate(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt, int split,
                       const DltRunOptions *o, DltRunResult *result, DltErr *err) DLT_CHECKED;
/* n raw samples (x: n * sample bytes) and what the network says of them, of the loss's activation:
 * out[n, n_out] f32, in the arena. */
typedef struct DltPrediction {
    const void *x;
    int64_t n;
    float *out;
    int64_t n_out;
} DltPrediction;
/* Fills in out and n_out. */
DltStatus dlt_predict(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt, DltPrediction *p,
                      const DltRunOptions *o, DltErr *err) DLT_CHECKED;
/* Goes on with a prompt: emit gets each id as it is chosen; the id that ends a document ends the text.
 * The context is a window of the training data; when it is full, its older half is dropped. */
typedef struct DltGenerate {
    const DltTokenizer *tokenizer;
    const int32_t *prompt;
    int64_t n_prompt; /* at least 1 */
    double temperature, top_p;
    int64_t top_k; /* 0: all */
    uint64_t seed;
    int64_t max_tokens;
    bool no_cache;
    DltStatus (*emit)(void *ctx, int32_t id, DltErr *err);
    void *ctx;
} DltGenerate;
/* The prompt's ids (NULL: the end of a document, behind which every document begins, or a new line). `name`
 * stands for its file in messages. */
DltStatus dlt_prompt_read(const DltTokenizer *t, const char *name, const char *text, DltIds *ids,
                          DltErr *err) DLT_CHECKED;
DltStatus dlt_generate(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt,
                       const DltGenerate *g, const DltRunOptions *o, DltErr *err) DLT_CHECKED;
/* Everything up to the plan, for `plan`: nothing is loaded or allocated. */
DltStatus dlt_run_plan(DltArena *arena, DltSpec *spec, const DltRunOptions *o,
                       DltModelGraph **model, DltPlan **plan, DltErr *err) DLT_CHECKED;

/* Time of every node of a training step, averaged over as many as fit into budget_ms, 3 to n_steps
 * of them; step_ms is the time of a whole step without
 * the timers. */
typedef struct DltProfileRow {
    const char *kernel, *layer;
    double ms, best_ms, flops, bytes; /* best_ms: of the fastest step */
    double
        of_peak; /* least time by operations and bytes at the peaks, over ms; above 1 in caches */
    const char *bound; /* "compute", "memory", or "latency" where neither explains a quarter */
} DltProfileRow;
typedef struct DltProfile {
    int n;
    DltProfileRow *row;
    double step_ms, best_step_ms,
        sum_ms;                    /* best: of the fastest step, where each waits for the last */
    double peak_flops, peak_bytes; /* a second, measured here: large product, large copy */
    const char *device;
    const DltPlan *plan; /* row i is its step i */
} DltProfile;
DltStatus dlt_profile(DltArena *arena, DltSpec *spec, const DltRunOptions *o, int64_t n_steps,
                      double budget_ms, DltProfile *p, DltErr *err) DLT_CHECKED;
/* Time in ms of an update of n_micro micro batches by another plan for the same device, from the measured
 * times of the nodes that do the same work (forecast.c); *known: the share of it that such nodes are. */
double dlt_forecast_ms(const DltProfile *p, const DltPlan *plan, int64_t n_micro, double *known);

#endif
