/* Data sets: one reader per format. A data set is a fixed number of samples with random access; how
 * they are ordered, split, batched, normalised and augmented is not its business. Readers touch no
 * global state and check everything before the first step (RELIABILITY.md 2.7, 2.9). */
#ifndef DLT_DATASET_H
#define DLT_DATASET_H

#include "base/dtype.h"
#include "base/shape.h"
#include "config/schema.h"

/* Target of a place that counts nothing: behind the end of a text. */
enum { DLT_IGNORED = -1 };

typedef struct DltDatasetDef DltDatasetDef;
typedef struct DltSplit DltSplit;

/* The ledger of records that are left out of a set because they are bad (data.on_bad: skip). */
typedef struct DltBadRecord {
    int64_t record; /* as `why` counts it */
    const char *file, *why;
} DltBadRecord;
typedef struct DltBad {
    DltArena *arena; /* lives as long as the set */
    int64_t limit;   /* more of them are an error */
    bool rows;       /* records are rows of a text and never became samples; else record = sample */
    int64_t n, cap;
    DltBadRecord *list; /* by record */
} DltBad;
typedef struct DltDataset {
    const DltDatasetDef *def;
    void *state;
    int64_t n;        /* samples */
    DltShape x_shape; /* of one sample, without N: [1,28,28], [4] */
    DltDtype x_dtype; /* U8, F32 or I32 (ids) */
    float x_scale;    /* 1/255 for u8 images, else 1 */
    int channel_axis; /* of x_shape: axis with own mean and std (0 for images, last for tables); -1
                         none */
    DltShape y_shape; /* rank 0: one label or value a sample */
    DltDtype y_dtype; /* I32 class or id, F32 value */
    int64_t classes;  /* 0 for values */
    int64_t vocab;    /* token data, else 0 */
    /* Token data whose windows each training epoch moves: ids n * shift + i, shift < n_shift, are
     * samples too, window i moved by so many tokens towards the beginning. 0: none. */
    int64_t n_shift;
    /* Set by the caller of open for formats of text; `open` of the training set may learn it. NULL
     * where there is none. */
    struct DltTokenizer *tokenizer;
    const char *const *class_name;   /* [classes], or NULL: numbers */
    const char *const *feature_name; /* tables; NULL otherwise */
    uint64_t fingerprint; /* hash of the content's shape, size, names and a sample of its bytes */
    const char *path;     /* for messages */
    /* In open's `like`: no targets are wanted (prediction). Files of targets are not opened, a table
     * may lack its target columns, y reads as 0. */
    bool x_only;
    /* Set by the caller of open for windows of tokens: the target of a place is its own token, not the
     * one behind it, as models of masked text have it. */
    bool own_targets;
    /* Set by the caller of open where bad records may be left out; NULL: they are errors. */
    DltBad *bad;
} DltDataset;

struct DltDatasetDef {
    const char *name, *help;
    const DltField *fields; /* row 0 is the main argument: the path */
    size_t opt_size;
    bool skips; /* has records that can be left out: open and load heed ds->bad */
    DltStatus (*check)(const DltOpts *o, DltErr *err); /* cross-field rules only; may be NULL */
    /* Reads headers and what shapes, counts and classes need (labels, a table's text), within
     * milliseconds for binary formats. folder: the config file's. like: the training set when this
     * is val/test (class numbers, columns and shapes follow it and must agree), else NULL. Errors
     * are DATA with file and record. */
    DltStatus (*open)(DltArena *arena, const DltOpts *o, const char *folder, const DltDataset *like,
                      DltDataset *ds, DltErr *err);
    /* Reads and checks the content: sizes, checksums, label and id ranges, NaN. Once, before read;
     * may be NULL. */
    DltStatus (*load)(DltArena *arena, DltDataset *ds, DltErr *err);
    /* Measures on the training split alone what samples are completed with (means for missing cells):
     * from then on `read` of this set and of those that were opened like it gives those. May be NULL,
     * as split->id may: all samples. */
    DltStatus (*fit)(DltDataset *ds, const DltSplit *train, DltErr *err);
    /* Copies n samples by id into x (n * x bytes) and y. Callable from several threads at once. */
    DltStatus (*read)(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                      DltErr *err);
    void (*close)(DltDataset *ds); /* may be NULL: all lives in the arena */
};
extern const DltDatasetDef *const dlt_datasets[]; /* defined by datasets/registry.c */
const DltDatasetDef *dlt_dataset_find(const char *name);
int64_t dlt_dataset_x_bytes(const DltDataset *ds); /* of one sample */
int64_t dlt_dataset_y_bytes(const DltDataset *ds);

/* The last report of err is about one record. With a ledger that has room for it the report moves there
 * and the result is OK; else the report stays and its status is the result. */
DltStatus dlt_bad_take(DltBad *bad, int64_t record, DltErr *err) DLT_CHECKED;
/* True when the record stands in the ledger (NULL: empty). */
bool dlt_bad_has(const DltBad *bad, int64_t record);
/* The sample itself, or one that can be read in the place of a bad one. Some sample must be sound. */
int64_t dlt_sound_sample(const DltDataset *ds, int64_t id);

/* A split: the samples of a data set that belong to it, in a fixed order. NULL ids: all of them. */
struct DltSplit {
    const DltDataset *ds;
    int64_t n;
    const int64_t *id;
};
/* All samples that are sound. Call when the set is loaded. */
DltSplit dlt_split_all(DltArena *arena, const DltDataset *ds);
/* Mean number of bytes of the targets of a split of token data: reads all of it. CONFIG without a
 * tokenizer that knows the bytes of its ids. */
DltStatus dlt_split_bytes(const DltSplit *s, double *bytes_per_token, DltErr *err) DLT_CHECKED;
/* `val: 10% of train`: a sample is held out when the hash of its content and label falls below the
 * fraction, so equal samples stay together and the split never changes with order. Of tokens the last
 * windows are held out. */
DltStatus dlt_split_fraction(DltArena *arena, const DltDataset *ds, double fraction,
                             DltSplit *train, DltSplit *held_out, DltErr *err) DLT_CHECKED;

/* Position p of the endless training stream -> sample and epoch: epoch = p / n, sample =
 * id[permutation of (seed, epoch) at p % n]. O(1). */
void dlt_order_at(const DltSplit *s, uint64_t seed, int64_t position, int64_t *sample,
                  int64_t *epoch);

/* Samples of b whose content stands in a too, and the first of them (-1: none). Both sets are read
 * whole; targets are not compared. */
DltStatus dlt_samples_shared(const DltSplit *a, const DltSplit *b, int64_t *n, int64_t *first,
                             DltErr *err) DLT_CHECKED;

/* mean[c], std[c] over the split (double sums), after x_scale; std 0 becomes 1. Count of means:
 * dlt_norm_count(ds, per_feature): channel count. */
int64_t dlt_norm_count(const DltDataset *ds);
DltStatus dlt_norm_measure(DltArena *arena, const DltSplit *s, double **mean, double **std,
                           DltErr *err) DLT_CHECKED;

/* Loader: threads that fill a bounded ring of raw batches for sets that are not resident. Batches
 * come in stream order whatever the number of threads. */
typedef struct DltLoader DltLoader;
typedef struct DltBatch {
    void *x, *y;     /* raw samples, or NULL for a resident set */
    int32_t *ticket; /* [N, 4]: ops/data_ops.h; row = sample id when resident, index in the batch
                        otherwise */
    int64_t n_valid;
} DltBatch;
typedef struct DltLoaderConfig {
    DltSplit split;
    uint64_t seed;
    int64_t batch;
    bool resident;  /* tickets only */
    bool shuffle;   /* training stream (endless); else one pass, the last batch padded (valid 0) */
    bool drop_last; /* shuffle only: skip the n % batch samples at the end of each epoch */
    int n_thread, depth;
    /* Pinned memory where the device wants it; NULL: plain. */
    void *(*alloc)(void *ctx, size_t bytes);
    void (*release)(void *ctx, void *ptr);
    void *ctx;
} DltLoaderConfig;
DltStatus dlt_loader_new(DltArena *arena, const DltLoaderConfig *config, int64_t position,
                         DltLoader **loader, DltErr *err) DLT_CHECKED;
/* Next batch; valid until the call after next. n_valid 0: the pass is over (shuffle: never). */
DltStatus dlt_loader_next(DltLoader *l, DltBatch *batch, DltErr *err) DLT_CHECKED;
int64_t dlt_loader_position(const DltLoader *l); /* of the next batch, in samples of the stream */
int64_t dlt_loader_wait_ns(const DltLoader *l);  /* time spent waiting for data so far */
void dlt_loader_seek(DltLoader *l, int64_t position);
void dlt_loader_free(
    DltLoader *l); /* joins its threads; NULL allowed; also a cleanup of the arena */

#endif
