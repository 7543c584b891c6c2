/* Errors: where and why. A function that can fail returns DltStatus and takes DltErr * last; on
 * success `err` stays untouched. Reports are collected and printed once, by main(). */
#ifndef DLT_ERR_H
#define DLT_ERR_H

#include "base/banned.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A place in the user's YAML; file may be "<command line>", or a data file with line 0. line and
 * col count from 1; line 0 means the whole file; file NULL means no place. len is the number of
 * columns the caret marks (0: one). `text` is the source line when the reader knows it. */
typedef struct DltMark {
    const char *file;
    int line, col, len;
    const char *text;
} DltMark;

typedef enum DltStatus { /* the value is the exit code of the program */
                         DLT_OK = 0,
                         DLT_E_BUG = 1,        /* our own fault */
                         DLT_E_CONFIG = 2,     /* command line or YAML: syntax, key, value, shape */
                         DLT_E_DATA = 3,       /* data set */
                         DLT_E_CHECKPOINT = 4, /* checkpoint: damaged, foreign, does not fit */
                         DLT_E_DEVICE = 5,     /* driver, GPU, vendor libraries */
                         DLT_E_RESOURCE = 6,   /* host or device memory, disk, locked run folder */
                         DLT_E_NUMERIC =
                             7, /* diverged: loss or gradient not finite; a broken `expect:` */
                         DLT_STOPPED = 75, /* stopped early on request, resumable */
                         DLT_SIGINT = 130, /* checkpoint saved */
                         DLT_SIGTERM = 143 /* checkpoint saved */
} DltStatus;

#define DLT_CHECKED __attribute__((warn_unused_result))
#define DLT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args), nonnull(fmt)))
#define DLT_NO_MARK ((DltMark){NULL, 0, 0, 0, NULL})

enum { DLT_ERR_MAX = 20, DLT_ERR_TEXT = 1024 };

typedef struct DltReport {
    DltStatus status;
    DltMark at;
    bool note; /* a hint that belongs to the report before it; not counted */
    char text[DLT_ERR_TEXT];
} DltReport;

/* Holds up to DLT_ERR_MAX reports (further ones are only counted). No allocation, so that errors
 * about memory can be told. mark strings must outlive it (arena or static). */
typedef struct DltErr {
    int n, n_dropped;
    DltReport report[DLT_ERR_MAX];
} DltErr;

void dlt_err_init(DltErr *err);

/* Adds a report and returns `status`, so that `return dlt_err_at(...)` works. err may be NULL. */
DltStatus dlt_err_at(DltErr *err, DltStatus status, DltMark at, const char *fmt, ...)
    DLT_PRINTF(4, 5);
/* The same without a place. */
DltStatus dlt_err(DltErr *err, DltStatus status, const char *fmt, ...) DLT_PRINTF(3, 4);
/* Adds a note to the last report: "error: ..." followed by "note: ...". */
void dlt_err_note(DltErr *err, DltMark at, const char *fmt, ...) DLT_PRINTF(3, 4);
/* Status of the first report, DLT_OK when there is none. */
DltStatus dlt_err_status(const DltErr *err);
/* Prints "file:line:col: error: text", the source line and a caret, for each report; then
 * "N errors; nothing was allocated" when there is more than one config error. */
void dlt_err_print(const DltErr *err, FILE *out);

#define DLT_TRY(call)                                                                              \
    do {                                                                                           \
        DltStatus s_ = (call);                                                                     \
        if (s_ != DLT_OK) return s_;                                                               \
    } while (0)

/* For our own invariants only, never for input: prints file:line and aborts. Always compiled in. */
#define DLT_BUG_ON(cond)                                                                           \
    do {                                                                                           \
        if (cond) dlt_bug(__FILE__, __LINE__, #cond);                                              \
    } while (0)
__attribute__((noreturn)) void dlt_bug(const char *file, int line, const char *what);

#ifdef __cplusplus
}
#endif

#endif
