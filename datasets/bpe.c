/* Byte-level BPE of one piece of text: its bytes as ids, then of all neighbours the pair with the lowest
 * rank (the leftmost among equals) becomes one id, until none merges (Sennrich et al. 2016, section
 * 3.2). Neighbours wait in a heap, so that a piece of n bytes takes n log n steps however long it is. */
#include "base/sys.h"
#include "datasets/vocab.h"

typedef struct Pair {
    int32_t rank, left, right; /* the merge and the ids it was seen with */
    int32_t at;                /* place of the left one */
} Pair;

typedef struct Piece {
    const DltVocab *v;
    int32_t *id, *next, *before; /* [n] linked list; id -1: merged into its left neighbour */
    Pair *heap;
    int64_t n, n_heap;
} Piece;

static bool is_less(const Pair *a, const Pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(Piece *p, Pair pair)
{
    int64_t i = p->n_heap++;
    for (; i > 0 && is_less(&pair, &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
        p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = pair;
}

static Pair pop(Piece *p)
{
    Pair top = p->heap[0], last = p->heap[--p->n_heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= p->n_heap) break;
        if (child + 1 < p->n_heap && is_less(&p->heap[child + 1], &p->heap[child])) child++;
        if (!is_less(&p->heap[child], &last)) break;
        p->heap[i] = p->heap[child];
        i = child;
    }
    p->heap[i] = last;
    return top;
}

static void offer(Piece *p, int32_t at)
{
    if (at < 0 || p->next[at] < 0) return;
    int32_t left = p->id[at], right = p->id[p->next[at]];
    int32_t rank = dlt_vocab_rank(p->v, left, right);
    if (rank >= 0) push(p, (Pair){rank, left, right, at});
}

static void merge_all(Piece *p)
{
    for (int64_t i = 0; i + 1 < p->n; i++)
        offer(p, (int32_t)i);
    while (p->n_heap > 0) {
        Pair top = pop(p);
        int32_t right = p->next[top.at];
        if (right < 0 || p->id[top.at] != top.left || p->id[right] != top.right) continue;
        p->id[top.at] = p->v->merge[top.rank].id;
        p->id[right] = -1;
        p->next[top.at] = p->next[right];
        if (p->next[right] >= 0) p->before[p->next[right]] = top.at;
        offer(p, p->before[top.at]);
        offer(p, top.at);
    }
}

static bool run_piece(Piece *p, const uint8_t *bytes, DltIds *ids)
{
    for (int64_t i = 0; i < p->n; i++) {
        p->id[i] = p->v->byte[bytes[i]];
        p->before[i] = (int32_t)i - 1;
        p->next[i] = i + 1 < p->n ? (int32_t)i + 1 : -1;
    }
    merge_all(p);
    if (!dlt_ids_reserve(ids, p->n)) return false;
    for (int32_t i = 0; i >= 0; i = p->next[i])
        ids->v[ids->n++] = p->id[i];
    return true;
}

bool dlt_bpe_piece(const DltVocab *v, const uint8_t *bytes, int64_t n, DltIds *ids)
{
    enum { SHORT = 64, HEAP = 3 };
    int32_t id[SHORT], next[SHORT], before[SHORT];
    Pair heap[HEAP * SHORT];
    Piece p = {.v = v, .id = id, .next = next, .before = before, .heap = heap, .n = n};
    if (n <= SHORT) return run_piece(&p, bytes, ids);
    size_t room = (size_t)n;
    char *memory = dlt_sys_alloc(room * (3 * sizeof *p.id + HEAP * sizeof *p.heap));
    if (memory == NULL) return false;
    p.heap = (Pair *)(void *)memory;
    p.id = (int32_t *)(void *)(p.heap + HEAP * room);
    p.next = p.id + room;
    p.before = p.next + room;
    bool done = run_piece(&p, bytes, ids);
    dlt_sys_free(memory);
    return done;
}
