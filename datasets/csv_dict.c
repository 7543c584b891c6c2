/* A dictionary of words, by hashing; numbered in order of arrival until it is sorted. */
#include "base/rng.h"
#include "datasets/csv.h"

struct DltDict {
    DltArena *arena;
    int64_t n, room; /* words; slots, a power of two */
    int32_t *slot;   /* number of a word, -1: free */
    const char **word;
};

enum { FIRST_ROOM = 64 };

static void free_slots(DltDict *d, int64_t room)
{
    d->room = room;
    d->slot = DLT_NEW_ARRAY(d->arena, room, int32_t);
    for (int64_t i = 0; i < room; i++)
        d->slot[i] = -1;
}

DltDict *dlt_dict_new(DltArena *arena)
{
    DltDict *d = DLT_NEW(arena, DltDict);
    d->arena = arena;
    d->word = DLT_NEW_ARRAY(arena, FIRST_ROOM / 2, const char *);
    free_slots(d, FIRST_ROOM);
    return d;
}

/* Hash of the text as it is without its quoting; both forms are taken in pieces that end in a
 * quote.
 */
static uint64_t hash_cell(DltCell cell)
{
    uint64_t h = 0;
    for (int64_t i = 0; i < cell.n;) {
        int64_t from = i;
        while (i < cell.n && cell.text[i] != '"')
            i++;
        bool quote = i < cell.n;
        h = dlt_hash(cell.text + from, (size_t)(i - from + quote), h);
        i += quote ? 1 + cell.quoted : 0;
    }
    return h;
}

static DltCell cell_of(const char *word)
{
    return (DltCell){word, (int64_t)strlen(word), false};
}

/* The slot of a word: its own, or the free one where it belongs. */
static int64_t find_slot(const DltDict *d, DltCell cell, uint64_t hash)
{
    int64_t i = (int64_t)(hash & (uint64_t)(d->room - 1));
    while (d->slot[i] >= 0 && !dlt_cell_is(cell, d->word[d->slot[i]]))
        i = (i + 1) & (d->room - 1);
    return i;
}

/* Fills the slots anew from the words. */
static void rehash(DltDict *d, int64_t room)
{
    free_slots(d, room);
    for (int64_t i = 0; i < d->n; i++)
        d->slot[find_slot(d, cell_of(d->word[i]), hash_cell(cell_of(d->word[i])))] = (int32_t)i;
}

static void grow(DltDict *d)
{
    const char **word = DLT_NEW_ARRAY(d->arena, d->room, const char *);
    memcpy(word, d->word, (size_t)d->n * sizeof *word);
    d->word = word;
    rehash(d, 2 * d->room);
}

int64_t dlt_dict_find(const DltDict *d, DltCell cell)
{
    return d->slot[find_slot(d, cell, hash_cell(cell))];
}

int64_t dlt_dict_add(DltDict *d, DltCell cell)
{
    uint64_t hash = hash_cell(cell);
    int64_t i = find_slot(d, cell, hash);
    if (d->slot[i] >= 0) return d->slot[i];
    if (2 * (d->n + 1) > d->room) {
        grow(d);
        i = find_slot(d, cell, hash);
    }
    d->word[d->n] = dlt_cell_text(d->arena, cell);
    d->slot[i] = (int32_t)d->n;
    return d->n++;
}

int64_t dlt_dict_count(const DltDict *d)
{
    return d->n;
}

const char *const *dlt_dict_words(const DltDict *d)
{
    return d->word;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_value(const void *a, const void *b)
{
    double x, y;
    dlt_cell_number(cell_of(*(const char *const *)a), &x);
    dlt_cell_number(cell_of(*(const char *const *)b), &y);
    return x != y ? (x > y) - (x < y) : by_bytes(a, b);
}

void dlt_dict_sort(DltDict *d)
{
    bool numbers = true;
    for (int64_t i = 0; i < d->n; i++) {
        double v;
        if (dlt_cell_number(cell_of(d->word[i]), &v) != DLT_CELL_NUMBER) numbers = false;
    }
    qsort(d->word, (size_t)d->n, sizeof *d->word, numbers ? by_value : by_bytes);
    rehash(d, d->room);
}
