/* Whole files: bounded reads and atomic writes. */
#ifndef DLT_FILE_H
#define DLT_FILE_H

#include "base/arena.h"

/* What a file may be, and whose fault it is when it cannot be read: the kind of error (CONFIG, DATA,
 * CHECKPOINT) and the place that names the file. */
typedef struct DltFileRule {
    int64_t max_bytes;
    DltStatus status;
    DltMark at;
} DltFileRule;
/* Reads a regular file into the arena (NUL added behind). Messages show the absolute path tried; when
 * memory is out the error is RESOURCE. */
DltStatus dlt_file_read(DltArena *arena, const char *path, DltFileRule rule, char **bytes,
                        int64_t *n, DltErr *err) DLT_CHECKED;

/* A file that appears whole or not at all: created exclusively as .<name>.tmp.<pid>.<random> in the
 * same folder, written, fsynced, closed, renamed, folder fsynced. A failed step removes it and
 * leaves the older file untouched. RESOURCE errors name the path and the system's reason. */
typedef struct DltAtomic DltAtomic;
DltStatus dlt_atomic_open(DltArena *arena, const char *path, DltAtomic **file,
                          DltErr *err) DLT_CHECKED;
DltStatus dlt_atomic_write(DltAtomic *file, const void *bytes, size_t n, DltErr *err) DLT_CHECKED;
DltStatus dlt_atomic_commit(DltAtomic *file, DltErr *err) DLT_CHECKED;
/* The same under n more names in the same folder, which get the file before its own name does, each
 * whole or not at all. One file with several names where the file system can; *linked false: it
 * cannot, and nothing was done (the file is still open for dlt_atomic_commit). */
DltStatus dlt_atomic_commit_all(DltAtomic *file, const char *const *more, int n, bool *linked,
                                DltErr *err) DLT_CHECKED;
void dlt_atomic_abandon(DltAtomic *file); /* removes the temporary file; NULL is allowed */

/* "dir/of/config" + "../data/x" -> path as the system takes it; absolute names stay. */
char *dlt_path_join(DltArena *arena, const char *folder, const char *name);
char *dlt_path_folder(DltArena *arena, const char *path); /* folder part, "." when there is none */
char *dlt_path_absolute(DltArena *arena, const char *path);
/* Folder of what may be made anew at any time: $DLTRAIN_CACHE, else dltrain in $XDG_CACHE_HOME or in
 * ~/.cache. NULL: DLTRAIN_CACHE is "none", or no home is known. It need not exist yet. */
char *dlt_path_cache(DltArena *arena);

#endif
