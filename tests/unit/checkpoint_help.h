/* Checkpoints as bytes, for tests that change them. */
#ifndef DLT_CHECKPOINT_HELP_H
#define DLT_CHECKPOINT_HELP_H

#include <stdio.h>

#include "base/file.h"
#include "exec/checkpoint.h"

/* The n bytes of the file that c makes. */
static inline char *checkpoint_bytes(DltArena *arena, const char *path, DltCheckpoint *c,
                                     int64_t *n)
{
    DltErr err;
    char *bytes = NULL;
    dlt_err_init(&err);
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(
        dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK}, &bytes, n, &err),
        DLT_OK);
    return bytes;
}

/* What the reader says; text (may be NULL) gets its report, "" when there is none. */
static inline DltStatus parse(const void *bytes, int64_t n, char text[DLT_ERR_TEXT])
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    DltCheckpoint *c = NULL;
    dlt_err_init(&err);
    DltStatus status = dlt_checkpoint_parse(arena, "x.bin", bytes, n, &c, &err);
    if (text != NULL) snprintf(text, DLT_ERR_TEXT, "%s", err.n > 0 ? err.report[0].text : "");
    assert_int_equal(err.n, status == DLT_OK ? 0 : 1);
    dlt_arena_free(arena);
    return status;
}

#endif
