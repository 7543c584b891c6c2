/* Checkpoints: a valid safetensors file that carries the whole run (LANGUAGE.md section 6). The
 * reader checks everything (lengths, overlaps, checksums, counts) before the first allocation and
 * never loads part of a file. Names: weights as in the graph, "optimizer/...", "ema/...",
 * "state/...". */
#ifndef DLT_CHECKPOINT_H
#define DLT_CHECKPOINT_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"

/* What is written beside the tensors; strings live in the caller's arena. */
typedef struct DltCheckpointMeta {
    const char *config_text, *config_path, *config_folder, *resolved; /* resolved: YAML text */
    int n_override;
    const char *const *override;
    const char *program; /* version and build */
    int64_t step;        /* updates done */
    int64_t position;    /* samples of the training stream consumed */
    double epoch;
    uint64_t seed;
    int64_t batch_count; /* micro batches run (dropout's counter) */
    uint64_t data_fingerprint[3];
    int64_t n_class;
    const char *const *class_name;
    const char *best_metric; /* "val.top1" */
    double best_value;
    int64_t best_step;
    int64_t bad_evals; /* since stop_best: patience */
    int64_t n_judged;  /* evaluations that early stopping has judged */
    double stop_best;  /* best value of early stopping's metric */
    double grad_norm;  /* of the last update */
    double train_time_s;
    const char *metrics; /* last metrics row as JSON object text */
    int64_t reported;    /* update of that row; < step: what was due after `step` is still to do */
    int64_t nonfinite_skipped, skipped_in_row;
    /* f16, as the tensor state/loss_scale says: 1 otherwise; updates since it last changed; left out */
    double loss_scale;
    int64_t good_steps, overflows;
    int64_t rollbacks;   /* by train.guard */
    const char *losses;  /* "step loss ...": what train.guard.loss_spike compares with, or NULL */
    const char *lineage; /* a line for each resume, and what the run began from; NULL: none */
    uint64_t run;        /* number of the run that wrote it: kept by resume */
    uint64_t plan_hash;
    const char *device;
    const char *choices;   /* measured on it (DltBackend.choices); NULL: none */
    const char *tokenizer; /* JSON text (api/tokenizer.h); NULL: the data are no text */
    const char *data;      /* description of the training set (stored.c); NULL: an older version */
    const char *skipped;   /* a line for each record that was left out; NULL: none */
} DltCheckpointMeta;

typedef struct DltCheckpointTensor {
    const char *name;
    DltDtype dtype;
    DltShape shape;
    const void *bytes; /* reader: points into the file's memory */
    int64_t n_bytes;
    uint32_t crc;
} DltCheckpointTensor;
typedef struct DltCheckpoint {
    DltCheckpointMeta meta;
    int n_tensor;
    DltCheckpointTensor *tensor;         /* sorted by offset */
    const DltCheckpointTensor **by_name; /* reader: the same, sorted by name */
    int64_t file_bytes;
    const char *path;
} DltCheckpoint;

/* Size of the file that dlt_checkpoint_write would make; CONFIG where the format's limits (header 16
 * MiB, 65,536 tensors, names of 255 bytes) are passed. Tensor bytes are not looked at. */
DltStatus dlt_checkpoint_bytes(const DltCheckpoint *c, int64_t *bytes, DltErr *err) DLT_CHECKED;
/* Atomic; RESOURCE on any failed call, the older file untouched. */
DltStatus dlt_checkpoint_write(const char *path, const DltCheckpoint *c, DltErr *err) DLT_CHECKED;
/* The same file under n more names in the same folder, which get it first: written once where the
 * file system has hard links, else once a name. */
DltStatus dlt_checkpoint_write_all(const char *path, const char *const *more, int n,
                                   const DltCheckpoint *c, DltErr *err) DLT_CHECKED;
/* Whole file into the arena (or mapped privately), verified. Says what kind of file it is when it
 * is something else (YAML, gzip, PNG, ELF, HTML, an older version). */
DltStatus dlt_checkpoint_read(DltArena *arena, const char *path, DltCheckpoint **c,
                              DltErr *err) DLT_CHECKED;
/* The reader on bytes, for tests and fuzzing: no global state. */
DltStatus dlt_checkpoint_parse(DltArena *arena, const char *path, const void *bytes, int64_t n,
                               DltCheckpoint **c, DltErr *err) DLT_CHECKED;
/* Header, after every tensor's checksum was compared; keeps no tensor in memory. */
DltStatus dlt_checkpoint_verify(DltArena *arena, const char *path, DltCheckpoint **c,
                                DltErr *err) DLT_CHECKED;
/* Header only: no tensor checksum. */
DltStatus dlt_checkpoint_read_header(DltArena *arena, const char *path, DltCheckpoint **c,
                                     DltErr *err) DLT_CHECKED;
/* CHECKPOINT naming the first difference in tensors or in the state of the run; clocks may differ. */
DltStatus dlt_checkpoint_same(const DltCheckpoint *a, const DltCheckpoint *b,
                              DltErr *err) DLT_CHECKED;
const DltCheckpointTensor *dlt_checkpoint_find(const DltCheckpoint *c, const char *name);

#endif
