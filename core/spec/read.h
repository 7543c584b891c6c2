/* What the files of core/spec share while a config is read: the sections' option structs, picking
 * one kind out of `kind: {...}`, and the registries behind the names. Private to core/spec. */
#ifndef DLT_SPEC_READ_H
#define DLT_SPEC_READ_H

#include "spec/spec.h"

/* The sections as their field tables read them; members are keys. Subtrees (DltYaml) are read by
 * the file of their section. */
typedef struct DltRoot {
    int64_t dltrain, seed;
    int resume;
    const char *name, *device;
    const DltYaml *vars, *blocks, *data, *model, *loss, *train, *eval, *checkpoint, *log, *passes,
        *expect;
} DltRoot;
typedef struct DltDataOpts {
    const DltYaml *train, *val, *test, *tokenizer, *mask, *normalize, *augment;
    int cache, last, on_bad;
    int64_t threads, window, max_bad;
} DltDataOpts;
typedef struct DltTrainOpts {
    DltSpan length;
    const DltYaml *batch, *optimizer, *schedule, *clip, *stop_early, *loss_scale, *guard;
    int precision, recompute;
    double ema;
    bool deterministic;
} DltTrainOpts;
typedef struct DltBatchOpts {
    int64_t global, micro;
} DltBatchOpts;
typedef struct DltGroupOpts {
    DltStrs match;
    double weight_decay;
    const char *lr;
    bool freeze;
} DltGroupOpts;
typedef struct DltClipOpts {
    double norm;
} DltClipOpts;
typedef struct DltLossScaleOpts {
    double init, growth, backoff;
    int64_t interval;
} DltLossScaleOpts;
typedef struct DltStopOpts {
    int64_t patience;
    const char *metric;
} DltStopOpts;
typedef struct DltGuardOpts {
    int nonfinite;
    double loss_spike;
    int64_t window, limit;
    DltSpan hang;
} DltGuardOpts;
typedef struct DltEvalOpts {
    DltSpan every;
    DltStrs metrics;
    int weights;
    const DltYaml *sample;
} DltEvalOpts;
typedef struct DltSampleOpts {
    const char *prompt;
    int64_t tokens;
    double temperature;
} DltSampleOpts;
typedef struct DltCheckpointOpts {
    const char *every;
    const DltYaml *keep;
} DltCheckpointOpts;
typedef struct DltKeepOpts {
    int64_t last;
    const char *best;
    DltSpan every;
} DltKeepOpts;
typedef struct DltLogOpts {
    DltSpan every;
} DltLogOpts;
typedef struct DltMeanStd {
    DltFloats mean, std;
} DltMeanStd;
typedef struct DltMaskOpts {
    double share, token, random;
    int64_t id;
} DltMaskOpts;
enum { DLT_CACHE_AUTO, DLT_CACHE_DEVICE, DLT_CACHE_HOST };
enum { DLT_LAST_KEEP, DLT_LAST_DROP };
enum { DLT_BAD_STOP, DLT_BAD_SKIP };
enum { DLT_WEIGHTS_RAW, DLT_WEIGHTS_EMA };
enum { DLT_N_AUGMENT = 3 };

/* Options of every section as read, for marks in later checks and for the resolved config. An
 * option set whose `fields` is NULL was not written and has no defaults. */
typedef struct DltSections {
    DltOpts root, data, train, batch, clip, stop, loss_scale, guard, eval, checkpoint, keep, log,
        mean_std, mask, sample;
    DltOpts augment[DLT_N_AUGMENT]; /* as DltAugmentDef rows; fields NULL: not wanted */
    DltOpts *group;                 /* [train.update.n_group] */
    const DltYaml *source[DLT_N_SPLIT];
    DltYaml *model;     /* every layer with its defaults; blocks and repeats carried out */
    bool counted_early; /* sample counts are estimates until the data is loaded */
} DltSections;

extern const DltField dlt_root_fields[], dlt_data_fields[], dlt_train_fields[], dlt_batch_fields[],
    dlt_group_fields[], dlt_clip_fields[], dlt_stop_fields[], dlt_loss_scale_fields[],
    dlt_guard_fields[], dlt_eval_fields[], dlt_checkpoint_fields[], dlt_keep_fields[],
    dlt_log_fields[], dlt_mean_std_fields[], dlt_mask_fields[], dlt_sample_fields[];

/* Augmentations, in the order in which they are applied. */
typedef struct DltAugmentDef {
    const char *name, *help;
    const DltField *fields;
    size_t opt_size;
    void (*set)(DltFetch *fetch, const void *opts);
} DltAugmentDef;
extern const DltAugmentDef dlt_augments[]; /* ends with a NULL name */

/* The first failure of two: reading goes on after an error, to report all of them. */
static inline DltStatus dlt_first(DltStatus a, DltStatus b)
{
    return a != DLT_OK ? a : b;
}

/* One walk over a config. */
typedef struct DltReader {
    DltArena *arena;
    DltSpec *spec;
    DltErr *err;
    DltScope scope; /* vars, and data.* once the data sets are open */
} DltReader;

/* NULL-terminated names of a registry, and of it plus `more` (NULL-terminated). */
const char *const *dlt_registry_names(DltArena *arena, int registry, const char *const *more);
/* CONFIG: "PATH: unknown NOUN 'x'; did you mean 'y'? known: ...". Says where x belongs when another
 * registry or section has it. */
DltStatus dlt_spec_unknown(DltErr *err, DltMark at, const char *path, int registry,
                           const char *name, const char *const *known);
/* Registers every field table, so that unknown keys are answered across sections. */
DltNames *dlt_spec_names(DltArena *arena);

/* The one kind of an item: `relu`, `dense: 64`, `{dense: {...}, name: head}`. */
typedef struct DltPick {
    const char *kind;
    DltMark at;
    const DltYaml *value; /* NULL for a bare word */
} DltPick;
typedef struct DltPickRule {
    const char *path;          /* of the item, for messages */
    int registry;              /* what is picked */
    const char *const *known;  /* names that may be picked */
    const char *const *beside; /* keys that may stand beside the kind */
} DltPickRule;
DltStatus dlt_pick(const DltYaml *item, const DltPickRule *rule, DltPick *pick,
                   DltErr *err) DLT_CHECKED;

/* Expands $names and reads a field table; `tree` may be NULL. */
DltStatus dlt_read_fields(DltReader *r, const DltField *fields, size_t size, const DltYaml *tree,
                          const char *path, DltMark at, DltOpts *out) DLT_CHECKED;

/* Sections, one function each; every error is reported, the status is the worst of them. */
DltStatus dlt_read_data(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_open_data(DltReader *r) DLT_CHECKED;
/* data_text.c: takes data.window over into a source's options; reads the tokenizer once the sources are
 * read; opens it before they are opened. */
DltStatus dlt_data_inherit(DltReader *r, const DltField *fields, const char *path,
                           DltYaml *options) DLT_CHECKED;
DltStatus dlt_read_tokenizer(DltReader *r) DLT_CHECKED;
DltStatus dlt_open_tokenizer(DltReader *r) DLT_CHECKED;
/* data_mask.c: data.mask once the sources are read; the mask's id once they are open; and what the loss and
 * the metrics must be with it, and the loss with any windows of tokens. */
DltStatus dlt_read_mask(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_open_mask(DltReader *r) DLT_CHECKED;
DltStatus dlt_check_mask(const DltSpec *spec, DltErr *err) DLT_CHECKED;
/* Tokens of a sample of data.train as the config says; 0: samples are no windows of tokens. */
int64_t dlt_data_window(const DltSpec *spec);
DltStatus dlt_check_data(const DltSpec *spec, DltErr *err) DLT_CHECKED; /* against open data sets */
DltStatus dlt_read_loss(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_train(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_optimizer(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_schedule(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_eval(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_checkpoint(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_log(DltReader *r, const DltYaml *tree) DLT_CHECKED;
DltStatus dlt_read_expect(DltReader *r, const DltYaml *tree) DLT_CHECKED;
/* Cross-key rules of tables, also asked by the resolver. */
DltStatus dlt_mask_check(const DltOpts *o, DltErr *err) DLT_CHECKED;
DltStatus dlt_guard_check(const DltOpts *o, DltErr *err) DLT_CHECKED;
DltStatus dlt_group_check(const DltOpts *o, DltErr *err) DLT_CHECKED;
/* "val.top1" -> its definition, or CONFIG when the split or the metric is not in this run. `def` is
 * NULL for the loss. */
DltStatus dlt_metric_of(const DltSpec *spec, DltMark at, const char *path, const char *name,
                        const DltMetricDef **def, DltErr *err) DLT_CHECKED;

/* Spans -> updates, schedule lengths, and what can be said about them before the start. */
DltStatus dlt_spec_count(DltSpec *spec, DltErr *err) DLT_CHECKED;
/* Builds the model once to find its errors, checks it against data, loss and expectations, and
 * writes sections->model. What is known so far bounds what can be checked: the words alone; the shapes
 * too, once the data sets are open; everything, when every section is right. */
typedef enum DltKnown { DLT_KNOWN_WORDS, DLT_KNOWN_SHAPES, DLT_KNOWN_ALL } DltKnown;
DltStatus dlt_check_model(DltSpec *spec, DltKnown known, DltErr *err) DLT_CHECKED;
/* The options that may be written out: those given, and each default that `check` (may be NULL)
 * accepts beside them. */
DltYaml *dlt_resolved_opts(DltArena *arena, const DltOpts *o, size_t size,
                           DltStatus (*check)(const DltOpts *o, DltErr *err));

/* The names $name and ${data.classes} can see: vars, and data.* once the data sets are open. */
DltScope dlt_spec_scope(const DltSpec *spec);

/* `model:` as one list, changes of model.patch applied. */
DltStatus dlt_read_model(DltReader *r, const DltYaml *tree) DLT_CHECKED;
/* Every name that an item of a model may have: layers, residual, sequential, blocks. */
const char *const *dlt_model_kinds(const DltSpec *spec);
/* The model interpreter (model.c): adds the layers of spec->model to m->build, from m->x to m->out,
 * and fills m's layer table. `out` (may be NULL) is a list that receives the layers with every
 * default written out, without blocks and repeats. A build that is poisoned before only checks. */
DltStatus dlt_walk_model(const DltSpec *spec, DltModelGraph *m, DltYaml *out,
                         DltErr *err) DLT_CHECKED;
extern const DltField dlt_block_fields[], dlt_residual_fields[], dlt_model_fields[];

#endif
