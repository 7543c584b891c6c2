/* Doubling text buffer. */
#include "base/text.h"

enum { FIRST_ROOM = 64 };

/* Makes room for n more bytes and the NUL. */
static void reserve(DltText *text, size_t n)
{
    if (n < text->room - text->n) return;
    size_t room = 2 * text->room;
    while (room - text->n <= n)
        room *= 2;
    char *bytes = dlt_arena_new_bytes(text->arena, room, 1);
    memcpy(bytes, text->bytes, text->n + 1);
    text->bytes = bytes;
    text->room = room;
}

DltText dlt_text(DltArena *arena)
{
    return (DltText){
        .arena = arena, .bytes = dlt_arena_new_bytes(arena, FIRST_ROOM, 1), .room = FIRST_ROOM};
}

void dlt_text_addn(DltText *text, const char *more, size_t n)
{
    reserve(text, n);
    memcpy(text->bytes + text->n, more, n);
    text->n += n;
    text->bytes[text->n] = '\0';
}

void dlt_text_add(DltText *text, const char *more)
{
    dlt_text_addn(text, more, strlen(more));
}

void dlt_text_addf(DltText *text, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    DLT_BUG_ON(n < 0);
    reserve(text, (size_t)n);
    vsnprintf(text->bytes + text->n, (size_t)n + 1, fmt, args);
    va_end(args);
    text->n += (size_t)n;
}
