/* What the readers share: class labels, agreement with the training set, checks over all samples,
 * and the readers' checks in process (fuzzing, tests). Private to datasets/. */
#ifndef DLT_READER_H
#define DLT_READER_H

#include "api/dataset.h"
#include "datasets/blob.h"

#define DATASET(name) extern const DltDatasetDef dlt_dataset_##name;
#include "datasets/datasets.def"
#undef DATASET

enum { DLT_EXACT_INT = 1 << 24 }; /* whole numbers up to here are exact in f32 */

/* Labels of a set that must be 0..C-1. */
typedef struct DltLabels {
    const DltBlob *b; /* for messages */
    int32_t *v;       /* those of bad records become 0 */
    int64_t n;
    DltBad *bad;       /* NULL: bad labels are errors */
    int64_t stated;    /* classes, as the config states them; 0: not stated */
    DltMark stated_at; /* where */
} DltLabels;
/* The number of classes: as stated, as the training set has it (both must agree), or the highest
 * label + 1, when every class occurs. Labels outside are errors that name file, record and value.
 */
DltStatus dlt_labels_classes(DltArena *arena, const DltLabels *labels, const DltDataset *like,
                             int64_t *classes, DltErr *err) DLT_CHECKED;

/* Shapes, types and classes must be those of the training set (like NULL: nothing to check). */
DltStatus dlt_like_check(const DltDataset *ds, const DltDataset *like, DltErr *err) DLT_CHECKED;
/* True when the caller wants no targets. */
bool dlt_like_x_only(const DltDataset *like);
/* Describes targets that are not read as the training set's. */
void dlt_like_targets(DltDataset *ds, const DltDataset *like);
/* Copies the targets of samples id[n] out of a table of all; all NULL: zeros. */
void dlt_targets_copy(const DltDataset *ds, const void *all, const int64_t *id, int64_t n, void *y);
/* Reads every sample once. f32 data must be finite: no NaN, no infinity. */
DltStatus dlt_samples_check(DltDataset *ds, DltErr *err) DLT_CHECKED;
/* Visits the samples of a split in its order, about a megabyte at a time. x and y hold n samples;
 * id are their ids; first is the place of the first within the split. */
typedef struct DltSamples {
    int64_t first, n;
    const int64_t *id;
    const void *x, *y;
    void *ctx; /* the caller's */
} DltSamples;
DltStatus dlt_samples_each(const DltSplit *s, DltStatus (*visit)(const DltSamples *c, DltErr *err),
                           void *ctx, DltErr *err) DLT_CHECKED;
/* Sets ds->fingerprint from shape, counts, names and up to 64 samples spread over the set. */
DltStatus dlt_fingerprint(DltDataset *ds, DltErr *err) DLT_CHECKED;
/* Elements of one sample. */
int64_t dlt_x_count(const DltDataset *ds);
int64_t dlt_y_count(const DltDataset *ds);

/* Checks of bytes as a file of that format, in process and without global state: everything that
 * open and load would check, then every sample is read. `y` (n_y 0: none) is the labels file. */
DltStatus dlt_idx_check(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                        DltErr *err) DLT_CHECKED;
DltStatus dlt_cifar10_check(DltArena *arena, const void *bytes, int64_t n, DltErr *err) DLT_CHECKED;
DltStatus dlt_csv_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                        DltErr *err) DLT_CHECKED;
DltStatus dlt_npy_check(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                        DltErr *err) DLT_CHECKED;
/* The same with a ledger of what is left out. */
DltStatus dlt_csv_check_bad(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                            DltBad *bad, DltErr *err) DLT_CHECKED;
DltStatus dlt_npy_check_bad(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                            DltBad *bad, DltErr *err) DLT_CHECKED;
/* Text with a tokenizer that the caller has opened; shards of ids. */
DltStatus dlt_text_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                         struct DltTokenizer *t, DltErr *err) DLT_CHECKED;
DltStatus dlt_tokens_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                           DltErr *err) DLT_CHECKED;
DltStatus dlt_npz_check(DltArena *arena, const void *bytes, int64_t n, DltErr *err) DLT_CHECKED;

#endif
