/* The whole validated run: YAML sections bound to the registries. Immutable once read; every
 * default is written out in `resolved`. */
#ifndef DLT_SPEC_H
#define DLT_SPEC_H

#include "api/dataset.h"
#include "api/layer.h"
#include "api/tokenizer.h"
#include "api/train.h"
#include "config/expand.h"
#include "ops/data_ops.h"
#include "passes/passes.h"

typedef struct DltSource {    /* one of data.train, data.val, data.test */
    const DltDatasetDef *def; /* NULL: absent */
    DltOpts opts;
    double fraction; /* > 0: "10% of train" */
    DltDataset ds;
    DltSplit split; /* ids are ready after dlt_spec_load_data */
    bool loaded;
    double bytes_per_token; /* for metrics of a byte; 0: not measured */
} DltSource;

enum { DLT_TRAIN, DLT_VAL, DLT_TEST, DLT_N_SPLIT };
extern const char *const dlt_split_name[DLT_N_SPLIT]; /* "train", "val", "test" */

typedef struct DltDataSpec {
    DltSource source[DLT_N_SPLIT];
    int normalize; /* DLT_NORM_* */
    DltFloats mean, std;
    DltFetch augment;        /* pad, cutout, flip */
    DltMask mask;            /* of masked language models; share 0: none */
    DltTokenizer *tokenizer; /* of data.train, opened; NULL: none */
    DltOpts tokenizer_opts;
    int64_t n_thread;
    int64_t max_bad;          /* records that may be left out of each set; 0: on_bad: stop */
    bool resident, drop_last; /* cache: auto or device; last: drop */
} DltDataSpec;
enum { DLT_NORM_NONE, DLT_NORM_GIVEN, DLT_NORM_FROM_TRAIN };

/* One piece of the schedule as written; spans still in the user's units. */
typedef struct DltPieceSpec {
    const DltScheduleDef *def;
    DltOpts opts;
} DltPieceSpec;

typedef struct DltTrainSpec {
    DltSpan length;         /* for: */
    int64_t batch, micro;   /* samples an update and a micro batch; n_micro = batch / micro */
    bool micro_auto;        /* micro is chosen by dlt_session_open; until then it is batch */
    DltRecompute recompute; /* AUTO until dlt_session_open has chosen */
    int precision;          /* DLT_PRECISION_* */
    const DltOptimDef *optim;
    DltOpts optim_opts;
    DltUpdateConfig update;
    int n_piece;
    const DltPieceSpec *piece;
    DltSchedule schedule; /* lengths in updates: as DltSpec.updates */
    bool ema_on, deterministic;
    int stop_patience;       /* evaluations without improvement; 0: off */
    const char *stop_metric; /* "val.loss"; NULL when off */
    bool stop_max;           /* larger is better */
    int on_bad;              /* DLT_GUARD_*: what happens to a bad update */
    int64_t guard_limit;     /* more skipped updates in a row, or rollbacks, end the run */
    double loss_spike;       /* > 0: a loss above so many times the mean of the last ones is bad */
    int64_t spike_window;    /* losses of that mean */
    double hang_s;           /* a device that does not answer for so long is given up; 0: never */
} DltTrainSpec;
enum {
    DLT_PRECISION_F32,
    DLT_PRECISION_TF32,
    DLT_PRECISION_BF16,
    DLT_PRECISION_F16,
    DLT_PRECISION_FP8
};
enum { DLT_GUARD_STOP, DLT_GUARD_SKIP, DLT_GUARD_ROLLBACK, DLT_GUARD_WINDOW_MAX = 1000 };

typedef struct DltKeep {
    int64_t last;            /* number of step-N.bin kept besides last.bin */
    const char *best_metric; /* "val.top1"; NULL: no best.bin. Default: the first metric of val */
    bool best_max;
    int64_t every; /* updates whose checkpoints stay for ever, 0: none */
} DltKeep;

/* `expect:` KEY: "> 94% by end", "11.17M ± 1%", "< 20 GiB". `params` is checked when the model is
 * built (CONFIG); `vram` is for whoever knows the plan; the others name a metric of a split. */
typedef enum DltExpectOp {
    DLT_EXPECT_NEAR,
    DLT_EXPECT_LT,
    DLT_EXPECT_LE,
    DLT_EXPECT_GT,
    DLT_EXPECT_GE
} DltExpectOp;
typedef struct DltExpect {
    const char *key, *text; /* "val.top1"; the value as written */
    DltExpectOp op;
    double value, tolerance; /* NEAR: |v - value| <= tolerance */
    int64_t by;              /* update at which it must hold; DltSpec.updates for "by end" */
    DltSpan by_span;         /* NONE: by the end */
    DltMark at;
} DltExpect;
bool dlt_expect_holds(const DltExpect *e, double value); /* false for NaN */

/* What a checkpoint knows of a run, so that its spec can be read without the files it came from. */
typedef struct DltStored {
    const char *name, *text, *folder; /* the config */
    const char *tokenizer;            /* as dlt_tokenizer_write has written it; NULL: none */
    /* The training set as it was described; NULL: the sets are opened. With it no data file is looked
     * at, and none can be loaded. */
    const DltDataset *train;
} DltStored;

typedef struct DltSpec {
    DltArena *arena;
    const DltStored *stored; /* NULL: read from files */
    DltYaml *tree;           /* merged and overridden, not expanded */
    DltYaml *resolved;
    const char *path, *folder;
    const char
        *text; /* the config file as written; merged and overridden when it extends another */
    int n_override;
    const char *const *override;
    const char *name;
    uint64_t seed;
    bool resume_auto; /* `train` goes on with the run that lies in --out */
    DltDataSpec data;
    const DltYaml *model; /* list of layers, patched; expanded lazily by dlt_spec_build */
    const DltLossDef *loss;
    DltOpts loss_opts;
    DltTrainSpec train;
    int n_metric;
    const DltMetricDef *const *metric;
    DltSpan eval_every;
    int eval_split; /* what is measured every `eval_every`: DLT_VAL where there is one, DLT_TEST when
                       the config asks for eval.every without val, -1: nothing until the end */
    bool eval_ema;
    struct {
        const char *prompt; /* NULL: as `generate` begins without one */
        int64_t tokens;     /* 0: no samples */
        double temperature;
    } sample;                    /* text that is written behind each evaluation */
    DltSpan checkpoint_every[2]; /* "1000 steps or 30 min"; unit NONE: unused */
    DltKeep keep;
    int64_t log_every;  /* updates; 0: chosen */
    const char *device; /* "auto", "cpu", "cuda", "cuda:1" */
    DltMark device_at;
    const char *const *fuse_off;
    int n_expect;
    DltExpect *expect;
    /* Counted from the headers by dlt_spec_read; exact after dlt_spec_load_data when val or test is
     * a share of train. */
    int64_t updates, updates_per_epoch; /* whole run; one epoch, rounded up */
    DltNames *names;                    /* every key of every table, for suggestions */
    struct DltSections *sections;       /* options and marks as read: core/spec's own */
} DltSpec;

/* The sections and the sections inside them ("train.clip"), for the validator and `dltrain
 * explain`; the last row has no name. */
typedef struct DltSection {
    const char *name, *help;
    const DltField *fields; /* NULL: a scalar or a tree with its own rules */
} DltSection;
extern const DltSection dlt_sections[];

/* The registries behind the names of a config, as the reader, its messages and `dltrain explain` walk them. */
typedef struct DltRegistryRow {
    const char *name, *help;
    const DltField *fields;
} DltRegistryRow;
typedef struct DltRegistry {
    const char *path, *noun, *plural; /* "train.optimizer", "optimizer", "optimizers" */
    bool (*row)(int i, DltRegistryRow *row);
} DltRegistry;
enum {
    DLT_REG_LAYER,
    DLT_REG_LOSS,
    DLT_REG_OPTIM,
    DLT_REG_SCHEDULE,
    DLT_REG_METRIC,
    DLT_REG_DATASET,
    DLT_REG_AUGMENT,
    DLT_REG_TOKENIZER,
    DLT_N_REGISTRY
};
extern const DltRegistry dlt_registries[DLT_N_REGISTRY];
/* Reads all sections, opens the data sets' headers. All config errors in one go. */
DltStatus dlt_spec_read(DltArena *arena, const char *path, int n_override,
                        const char *const *override, DltSpec **spec, DltErr *err) DLT_CHECKED;
/* From a checkpoint: the stored text; `folder` as stored. */
DltStatus dlt_spec_read_stored(DltArena *arena, const DltStored *stored, int n_override,
                               const char *const *override, DltSpec **spec,
                               DltErr *err) DLT_CHECKED;
/* The resolved config: every default written out; loads again as itself. Relative paths stay as they are, or
 * are written behind `folder` (may be NULL), so that the text may lie elsewhere. */
DltYaml *dlt_spec_resolve(const DltSpec *spec, const char *folder);
/* A tokenizer as data.tokenizer is written ("gpt2", "{bpe: FILE}"), opened; files are relative to the
 * current folder. `at` and `path` name the text in messages. */
DltStatus dlt_spec_tokenizer(DltArena *arena, const char *text, DltMark at, const char *path,
                             DltTokenizer *t, DltErr *err) DLT_CHECKED;
/* Loads the contents of the given splits (bit i), makes splits, measures normalisation. */
DltStatus dlt_spec_load_data(DltSpec *spec, unsigned splits, DltErr *err) DLT_CHECKED;

/* A model as a graph: data fetch, layers, loss, metrics. */
typedef struct DltLayerRow { /* one line of the layer table */
    const char *name, *kind; /* full name: "stage2.0.body.0.conv" */
    DltShape out;
    int64_t params; /* of a block or residual: its layers' sum, so only rows with `leaf` add up */
    double flops;
    int depth; /* nesting, for indentation */
    bool leaf;
} DltLayerRow;
typedef struct DltModelGraph {
    DltGraph *graph;
    DltBuild *build;
    DltTensor *data_x, *data_y, *ticket, *step; /* inputs */
    DltTensor *place;                           /* input, i32[1]: of a decoding graph; else NULL */
    DltTensor *x, *y, *w, *out, *mean, *rstd;
    DltTensor **metric_acc; /* [n_metric] views into graph->metrics; [0] is loss */
    int n_row;
    DltLayerRow *row;
    int64_t n_param;
} DltModelGraph;
typedef struct DltModelOptions {
    bool training;
    int split;     /* whose data set feeds data_x; -1: predict, batch-fed, no target */
    int64_t batch; /* rows N of one micro batch */
    bool resident;
    bool scores; /* predict: the outputs without the loss's activation */
    /* predict: a token a sample, at the position that the input `place` says */
    bool decode;
    /* predict: so many tokens a sample, the first of a context, up to the last keys and values that they
     * leave behind for `decode`; 0: whole samples. */
    int64_t fill;
} DltModelOptions;
/* Forward graph only; the caller runs the passes (dlt_spec_passes). */
DltStatus dlt_spec_build(const DltSpec *spec, const DltModelOptions *o, DltModelGraph **model,
                         DltErr *err) DLT_CHECKED;
/* Runs the passes in order for this device: the whole-step graph. */
DltStatus dlt_spec_passes(const DltSpec *spec, DltModelGraph *m, const DltModelOptions *o,
                          const DltDeviceInfo *info, DltErr *err) DLT_CHECKED;
/* Updates in a span ("5 epochs" of n samples at this batch, rounded to the nearest update, at least
 * 1). */
int64_t dlt_spec_span_updates(const DltSpec *spec, DltSpan span);

#endif
