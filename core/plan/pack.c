/* Places blocks that live for known spans of steps into one region. Two ways, the smaller result
 * wins: biggest first into the tightest gap between blocks that live at the same time (quadratic,
 * so only up to MANY blocks), and in order of time like a best-fit allocator (near-linear, what
 * networks of ten thousand layers get). Ties are broken by index, so a plan is reproducible. */
#include "plan/make.h"

enum { MANY = 8192 };

static size_t round_up(size_t bytes, size_t align)
{
    DLT_BUG_ON(bytes > SIZE_MAX - align);
    return (bytes + align - 1) / align * align;
}

/* Sort key: order[] is sorted by these, then by index. */
typedef struct Key {
    size_t bytes;
    int step, index;
} Key;

static int by_bytes(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int by_step(const void *a, const void *b)
{
    const Key *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return by_bytes(a, b);
}

/* ---- biggest first ------------------------------------------------------------------------ */

/* The offset of the tightest gap that holds `b`, among placed blocks sorted by offset. */
static size_t tightest_gap(const DltBlock *block, const int *placed, int n, const DltBlock *b,
                           size_t align)
{
    size_t end = 0, best = SIZE_MAX, best_bytes = SIZE_MAX;
    size_t bytes = round_up(b->bytes, align);
    for (int i = 0; i < n; i++) {
        const DltBlock *p = &block[placed[i]];
        if (p->last < b->first || p->first > b->last) continue;
        if (p->offset > end && p->offset - end >= bytes && p->offset - end < best_bytes) {
            best = end;
            best_bytes = p->offset - end;
        }
        size_t p_end = p->offset + round_up(p->bytes, align);
        if (p_end > end) end = p_end;
    }
    return best != SIZE_MAX ? best : end;
}

static size_t pack_biggest_first(DltArena *arena, DltBlock *block, Key *key, int n, size_t align)
{
    int *placed = DLT_NEW_ARRAY(arena, n, int);
    size_t total = 0;
    qsort(key, (size_t)n, sizeof *key, by_bytes);
    for (int i = 0; i < n; i++) {
        DltBlock *b = &block[key[i].index];
        b->offset = tightest_gap(block, placed, i, b, align);
        int lo = 0, hi = i; /* first placed block behind this offset */
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (block[placed[mid]].offset <= b->offset) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        memmove(placed + lo + 1, placed + lo, (size_t)(i - lo) * sizeof *placed);
        placed[lo] = key[i].index;
        if (b->offset + round_up(b->bytes, align) > total)
            total = b->offset + round_up(b->bytes, align);
    }
    return total;
}

/* ---- in order of time --------------------------------------------------------------------- */

typedef struct Hole {
    size_t offset, bytes;
} Hole;
typedef struct Heap { /* free space below `top`, holes sorted by offset, none touching another */
    Hole *hole;
    int n;
    size_t top, peak;
} Heap;

static void drop_hole(Heap *h, int i)
{
    memmove(h->hole + i, h->hole + i + 1, (size_t)(h->n - i - 1) * sizeof *h->hole);
    h->n--;
}

static size_t take(Heap *h, size_t bytes)
{
    int best = -1;
    for (int i = 0; i < h->n; i++) {
        if (h->hole[i].bytes < bytes) continue;
        if (best < 0 || h->hole[i].bytes < h->hole[best].bytes) best = i;
    }
    size_t offset;
    if (best >= 0) {
        offset = h->hole[best].offset;
        h->hole[best].offset += bytes;
        h->hole[best].bytes -= bytes;
        if (h->hole[best].bytes == 0) drop_hole(h, best);
        return offset;
    }
    offset = h->top;
    h->top += bytes;
    if (h->top > h->peak) h->peak = h->top;
    return offset;
}

static void give(Heap *h, size_t offset, size_t bytes)
{
    int lo = 0, hi = h->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (h->hole[mid].offset < offset) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    memmove(h->hole + lo + 1, h->hole + lo, (size_t)(h->n - lo) * sizeof *h->hole);
    h->hole[lo] = (Hole){offset, bytes};
    h->n++;
    if (lo + 1 < h->n && h->hole[lo].offset + h->hole[lo].bytes == h->hole[lo + 1].offset) {
        h->hole[lo].bytes += h->hole[lo + 1].bytes;
        drop_hole(h, lo + 1);
    }
    if (lo > 0 && h->hole[lo - 1].offset + h->hole[lo - 1].bytes == h->hole[lo].offset) {
        h->hole[lo - 1].bytes += h->hole[lo].bytes;
        drop_hole(h, lo--);
    }
    if (h->hole[lo].offset + h->hole[lo].bytes == h->top) { /* space at the end is no hole */
        h->top = h->hole[lo].offset;
        drop_hole(h, lo);
    }
}

static size_t pack_by_time(DltArena *arena, DltBlock *block, Key *birth, int n, size_t align)
{
    Heap heap = {.hole = DLT_NEW_ARRAY(arena, n + 1, Hole)};
    Key *death = DLT_NEW_ARRAY(arena, n, Key);
    for (int i = 0; i < n; i++)
        death[i] = (Key){block[birth[i].index].bytes, block[birth[i].index].last, birth[i].index};
    qsort(birth, (size_t)n, sizeof *birth, by_step);
    qsort(death, (size_t)n, sizeof *death, by_step);
    for (int i = 0, dead = 0; i < n; i++) {
        DltBlock *b = &block[birth[i].index];
        for (; dead < n && death[dead].step < b->first; dead++) {
            const DltBlock *d = &block[death[dead].index];
            give(&heap, d->offset, round_up(d->bytes, align));
        }
        b->offset = take(&heap, round_up(b->bytes, align));
    }
    return heap.peak;
}

size_t dlt_pack(DltArena *arena, DltBlock *block, int n, size_t align)
{
    Key *key = DLT_NEW_ARRAY(arena, n, Key);
    for (int i = 0; i < n; i++)
        key[i] = (Key){block[i].bytes, block[i].first, i};
    size_t by_time = pack_by_time(arena, block, key, n, align);
    if (n > MANY) return by_time;
    size_t *offset = DLT_NEW_ARRAY(arena, n, size_t);
    for (int i = 0; i < n; i++)
        offset[i] = block[i].offset;
    size_t biggest_first = pack_biggest_first(arena, block, key, n, align);
    if (biggest_first <= by_time) return biggest_first;
    for (int i = 0; i < n; i++)
        block[i].offset = offset[i];
    return by_time;
}

size_t dlt_pack_bound(DltArena *arena, const DltBlock *block, int n, size_t align, int *step)
{
    int n_step = 0;
    for (int i = 0; i < n; i++)
        if (block[i].last >= n_step) n_step = block[i].last + 1;
    size_t *born = DLT_NEW_ARRAY(arena, n_step + 1, size_t);
    size_t *dead = DLT_NEW_ARRAY(arena, n_step + 1, size_t);
    for (int i = 0; i < n; i++) {
        born[block[i].first] += round_up(block[i].bytes, align);
        dead[block[i].last + 1] += round_up(block[i].bytes, align);
    }
    size_t live = 0, peak = 0;
    *step = 0;
    for (int s = 0; s < n_step; s++) {
        live = live + born[s] - dead[s];
        if (live > peak) {
            peak = live;
            *step = s;
        }
    }
    return peak;
}
