/* Blocks of memory handed out from front to back and freed together. A request too big for the
 * current block gets a block of its own, which leaves the rest of the current one in use.
 * Any thread may ask: plans and data are made ready side by side out of one arena.
 * DLT_MEAN (a test build) makes blocks so small that every request meets the border. */
#include "base/arena.h"
#include "base/sys.h"
#include <pthread.h>

#ifdef DLT_MEAN
enum { BLOCK_BYTES = 256 };
#else
enum { BLOCK_BYTES = 64 * 1024 };
#endif
enum { ALIGN = 64 };

typedef struct Block {
    struct Block *next;
    size_t used, size; /* bytes after the header */
} Block;

typedef struct Hook {
    struct Hook *next;
    void (*run)(void *ctx);
    void *ctx;
} Hook;

struct DltArena {
    pthread_mutex_t lock;
    Block *current; /* newest ordinary block, then the older ones and the big ones */
    Hook *hooks;
    size_t bytes;
};

enum { HEADER = (sizeof(Block) + ALIGN - 1) / ALIGN * ALIGN };

static void oom_bug(size_t bytes)
{
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    dlt_bug(__FILE__, __LINE__, "no handler for missing memory (dlt_arena_on_oom)");
}

static void (*oom_handler)(size_t bytes) = oom_bug;

void dlt_arena_on_oom(void (*handler)(size_t bytes))
{
    oom_handler = handler != NULL ? handler : oom_bug;
}

DltArena *dlt_arena_new(void)
{
    DltArena *arena = dlt_sys_alloc(sizeof *arena);
    if (arena != NULL) *arena = (DltArena){.lock = PTHREAD_MUTEX_INITIALIZER};
    return arena;
}

void dlt_arena_free(DltArena *arena)
{
    if (arena == NULL) return;
    while (arena->hooks != NULL) {
        Hook *hook = arena->hooks;
        arena->hooks = hook->next;
        hook->run(hook->ctx);
    }
    while (arena->current != NULL) {
        Block *block = arena->current;
        arena->current = block->next;
        dlt_sys_free(block);
    }
    dlt_sys_free(arena);
}

/* A block for `bytes`, linked in behind the current one when it is filled by this one request. */
static Block *new_block(DltArena *arena, size_t bytes)
{
    bool own = bytes > BLOCK_BYTES / 4;
    size_t size = own ? bytes : BLOCK_BYTES;
    if (size > SIZE_MAX - HEADER) return NULL;
    Block *block = dlt_sys_alloc(HEADER + size);
    if (block == NULL) return NULL;
    block->used = 0;
    block->size = size;
    if (own && arena->current != NULL) {
        block->next = arena->current->next;
        arena->current->next = block;
    } else {
        block->next = arena->current;
        arena->current = block;
    }
    return block;
}

/* Bytes at a multiple of `align` (a power of two up to ALIGN), or NULL. With the lock held. */
static char *take(DltArena *arena, size_t bytes, size_t align)
{
    Block *block = arena->current;
    size_t start = block != NULL ? (block->used + align - 1) & ~(align - 1) : 0;
    if (block == NULL || start > block->size || block->size - start < bytes) {
        block = new_block(arena, bytes);
        if (block == NULL) return NULL;
        start = 0;
    }
    arena->bytes += start + bytes - block->used;
    block->used = start + bytes;
    return (char *)block + HEADER + start;
}

/* The same, zeroed. */
static void *bump(DltArena *arena, size_t bytes, size_t align)
{
    pthread_mutex_lock(&arena->lock);
    char *memory = take(arena, bytes, align);
    pthread_mutex_unlock(&arena->lock);
    return memory != NULL ? memset(memory, 0, bytes) : NULL;
}

void *dlt_arena_try(DltArena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    return bump(arena, bytes, ALIGN);
}

void *dlt_arena_new_bytes(DltArena *arena, size_t n, size_t size)
{
    void *memory = dlt_arena_try(arena, n, size);
    if (memory == NULL) {
        oom_handler(n > 0 && size > SIZE_MAX / n ? SIZE_MAX : n * size);
        dlt_bug(__FILE__, __LINE__, "the handler for missing memory returned");
    }
    return memory;
}

/* n + 1 zeroed bytes without alignment; never NULL. */
static char *text_bytes(DltArena *arena, size_t n)
{
    char *text = n < SIZE_MAX ? bump(arena, n + 1, 1) : NULL;
    if (text == NULL) {
        oom_handler(n);
        dlt_bug(__FILE__, __LINE__, "the handler for missing memory returned");
    }
    return text;
}

char *dlt_arena_strn(DltArena *arena, const char *text, size_t len)
{
    char *copy = text_bytes(arena, len);
    memcpy(copy, text, len);
    return copy;
}

char *dlt_arena_str(DltArena *arena, const char *text)
{
    return dlt_arena_strn(arena, text, strlen(text));
}

char *dlt_arena_vprintf(DltArena *arena, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    DLT_BUG_ON(n < 0);
    char *text = text_bytes(arena, (size_t)n);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    return text;
}

char *dlt_arena_printf(DltArena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = dlt_arena_vprintf(arena, fmt, args);
    va_end(args);
    return text;
}

void dlt_arena_on_free(DltArena *arena, void (*run)(void *ctx), void *ctx)
{
    Hook *hook = DLT_NEW(arena, Hook);
    pthread_mutex_lock(&arena->lock);
    *hook = (Hook){.next = arena->hooks, .run = run, .ctx = ctx};
    arena->hooks = hook;
    pthread_mutex_unlock(&arena->lock);
}

size_t dlt_arena_bytes(const DltArena *arena)
{
    return arena->bytes;
}
