/* DltText: text that grows inside an arena; always NUL-terminated. */
#ifndef DLT_TEXT_H
#define DLT_TEXT_H

#include "base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DltText {
    DltArena *arena;
    char *bytes; /* owned by the arena; moves when it grows */
    size_t n, room;
} DltText;

DltText dlt_text(DltArena *arena); /* "" */
void dlt_text_add(DltText *text, const char *more);
void dlt_text_addn(DltText *text, const char *more, size_t n);
void dlt_text_addf(DltText *text, const char *fmt, ...) DLT_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif

#endif
