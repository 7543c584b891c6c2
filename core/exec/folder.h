/* What the files behind a run folder share: run_folder.c (place and lock), metrics.c (rows),
 * rotation.c (checkpoints). */
#ifndef DLT_FOLDER_H
#define DLT_FOLDER_H

#include "exec/run.h"

typedef struct DltStepFile { /* a step-N.bin of this run */
    const char *path;
    int64_t step; /* as stored in it */
} DltStepFile;

struct DltRunFolder {
    DltArena *arena;
    DltArena *saves; /* what saving allocates, which may be another thread */
    const char *path;
    bool made; /* by this process */
    bool closed;
    int lock_fd, log_fd, jsonl_fd, csv_fd; /* -1: closed */
    int n_column;
    const char **column; /* of metrics.csv */
    int64_t last_step;   /* of the last metrics row, -1: none */
    int n_file, cap_file;
    DltStepFile *file;
    const char *newest;
};

/* metrics.c: opens both files for appending; the CSV's columns follow from the spec. */
DltStatus dlt_metrics_open(DltRunFolder *f, const DltSpec *spec, DltErr *err) DLT_CHECKED;
/* Rows are on disk. */
DltStatus dlt_metrics_sync(DltRunFolder *f, DltErr *err) DLT_CHECKED;
/* "cannot WHAT PATH: the system's reason", RESOURCE. */
DltStatus dlt_folder_error(const DltRunFolder *f, const char *what, const char *path, DltErr *err);

#endif
