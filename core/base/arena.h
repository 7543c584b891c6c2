/* DltArena: bump allocator of one lifetime. Everything of the set-up phase (tree, spec, graph,
 * plan, kernel states) lives in one and is freed at once; cleanup hooks release vendor handles. */
#ifndef DLT_ARENA_H
#define DLT_ARENA_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DltArena DltArena;

/* A new arena, or NULL when memory is out. The owner calls dlt_arena_free. */
DltArena *dlt_arena_new(void);
/* Runs the cleanup hooks, newest first, then frees every block. arena may be NULL. */
void dlt_arena_free(DltArena *arena);

/* Zeroed, 64-byte aligned memory that lives as long as the arena. Never NULL: when memory is out
 * (or n * size overflows) the process-wide handler runs; main() sets it to report exit code 6.
 * Code that has a better answer to missing memory uses dlt_arena_try. */
void *dlt_arena_new_bytes(DltArena *arena, size_t n, size_t size);
void *dlt_arena_try(DltArena *arena, size_t n, size_t size); /* NULL when memory is out */
void dlt_arena_on_oom(void (*handler)(size_t bytes)); /* must not return; the default is a BUG */
#define DLT_NEW(arena, type) ((type *)dlt_arena_new_bytes((arena), 1, sizeof(type)))
#define DLT_NEW_ARRAY(arena, n, type)                                                              \
    ((type *)dlt_arena_new_bytes((arena), (size_t)(n), sizeof(type)))

char *dlt_arena_str(DltArena *arena, const char *text);              /* a copy */
char *dlt_arena_strn(DltArena *arena, const char *text, size_t len); /* a copy of len bytes */
char *dlt_arena_printf(DltArena *arena, const char *fmt, ...) DLT_PRINTF(2, 3);
char *dlt_arena_vprintf(DltArena *arena, const char *fmt, va_list args) DLT_PRINTF(2, 0);

/* hook(ctx) runs at dlt_arena_free, newest first. */
void dlt_arena_on_free(DltArena *arena, void (*hook)(void *ctx), void *ctx);
/* Bytes handed out so far, alignment included. */
size_t dlt_arena_bytes(const DltArena *arena);

#ifdef __cplusplus
}
#endif

#endif
