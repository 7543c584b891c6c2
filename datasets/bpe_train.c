/* Training of a byte-level BPE (Sennrich et al. 2016, algorithm 1, on GPT-2's pieces): the most frequent
 * pair of neighbours becomes a new id, again and again. Equal pieces are kept once with their number;
 * counts of pairs change only in the words that hold the merged pair; the next pair comes from a heap
 * whose entries may be too high and are put back when they are. Ties go to the lower pair of ids. */
#include "base/rng.h"
#include "datasets/utf8.h"
#include "datasets/vocab.h"

enum { LONGEST_WORD = 256, LEAST_COUNT = 2 };

typedef struct Word {
    const uint8_t *bytes;
    int32_t n_byte, n; /* bytes, ids now */
    int32_t *id;
    int64_t count;
} Word;

typedef struct PairCount {
    int32_t left, right;
    int64_t count;
    int32_t *word; /* words that hold it, or held it once */
    int32_t n_word, room;
} PairCount;

typedef struct Candidate {
    int64_t count;
    int32_t pair;
} Candidate;

typedef struct Training {
    DltArena *arena;
    Word *word;
    int64_t n_word, word_room;
    int32_t *word_slot; /* open addressing, index + 1 */
    int64_t n_word_slot;
    PairCount *pair;
    int64_t n_pair, pair_room;
    int32_t *pair_slot;
    int64_t n_pair_slot;
    Candidate *heap;
    int64_t n_heap, heap_room;
} Training;

/* An array twice as long with the same beginning, in the arena. */
static void *grown(DltArena *arena, const void *old, int64_t n, int64_t *room, size_t size)
{
    *room = *room > 0 ? 2 * *room : 1024;
    void *more = dlt_arena_new_bytes(arena, (size_t)*room, size);
    if (n > 0) memcpy(more, old, (size_t)n * size);
    return more;
}

/* ---- words ---------------------------------------------------------------------------------- */

static int64_t word_place(const Training *t, const uint8_t *bytes, int64_t n)
{
    int64_t i = (int64_t)(dlt_hash(bytes, (size_t)n, 0) & (uint64_t)(t->n_word_slot - 1));
    for (;; i = (i + 1) & (t->n_word_slot - 1)) {
        if (t->word_slot[i] == 0) return i;
        const Word *w = &t->word[t->word_slot[i] - 1];
        if (w->n_byte == n && memcmp(w->bytes, bytes, (size_t)n) == 0) return i;
    }
}

static void rehash_words(Training *t)
{
    t->n_word_slot = t->n_word_slot > 0 ? 2 * t->n_word_slot : 4096;
    t->word_slot = DLT_NEW_ARRAY(t->arena, t->n_word_slot, int32_t);
    for (int64_t i = 0; i < t->n_word; i++)
        t->word_slot[word_place(t, t->word[i].bytes, t->word[i].n_byte)] = (int32_t)i + 1;
}

static void count_word(Training *t, const uint8_t *bytes, int64_t n)
{
    if (2 * t->n_word >= t->n_word_slot) rehash_words(t);
    int64_t at = word_place(t, bytes, n);
    if (t->word_slot[at] != 0) {
        t->word[t->word_slot[at] - 1].count++;
        return;
    }
    if (t->n_word == t->word_room)
        t->word = grown(t->arena, t->word, t->n_word, &t->word_room, sizeof *t->word);
    Word *w = &t->word[t->n_word++];
    *w = (Word){.bytes = bytes, .n_byte = (int32_t)n, .n = (int32_t)n, .count = 1};
    w->id = DLT_NEW_ARRAY(t->arena, n, int32_t);
    for (int64_t i = 0; i < n; i++)
        w->id[i] = bytes[i];
    t->word_slot[at] = (int32_t)t->n_word;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static int64_t pair_place(const Training *t, int32_t left, int32_t right)
{
    int32_t key[2] = {left, right};
    int64_t i = (int64_t)(dlt_hash(key, sizeof key, 0) & (uint64_t)(t->n_pair_slot - 1));
    for (;; i = (i + 1) & (t->n_pair_slot - 1)) {
        if (t->pair_slot[i] == 0) return i;
        const PairCount *p = &t->pair[t->pair_slot[i] - 1];
        if (p->left == left && p->right == right) return i;
    }
}

static void rehash_pairs(Training *t)
{
    t->n_pair_slot = t->n_pair_slot > 0 ? 2 * t->n_pair_slot : 4096;
    t->pair_slot = DLT_NEW_ARRAY(t->arena, t->n_pair_slot, int32_t);
    for (int64_t i = 0; i < t->n_pair; i++)
        t->pair_slot[pair_place(t, t->pair[i].left, t->pair[i].right)] = (int32_t)i + 1;
}

static int32_t pair_of(Training *t, int32_t left, int32_t right)
{
    if (2 * t->n_pair >= t->n_pair_slot) rehash_pairs(t);
    int64_t at = pair_place(t, left, right);
    if (t->pair_slot[at] != 0) return t->pair_slot[at] - 1;
    if (t->n_pair == t->pair_room)
        t->pair = grown(t->arena, t->pair, t->n_pair, &t->pair_room, sizeof *t->pair);
    t->pair[t->n_pair++] = (PairCount){.left = left, .right = right};
    t->pair_slot[at] = (int32_t)t->n_pair;
    return (int32_t)t->n_pair - 1;
}

static void remember_word(Training *t, PairCount *p, int32_t word)
{
    if (p->n_word > 0 && p->word[p->n_word - 1] == word) return;
    if (p->n_word == p->room) {
        p->room = p->room > 0 ? 2 * p->room : 4;
        int32_t *more = DLT_NEW_ARRAY(t->arena, p->room, int32_t);
        if (p->n_word > 0) memcpy(more, p->word, (size_t)p->n_word * sizeof *more);
        p->word = more;
    }
    p->word[p->n_word++] = word;
}

/* ---- the heap ------------------------------------------------------------------------------- */

static bool is_before(const Training *t, const Candidate *a, const Candidate *b)
{
    const PairCount *p = &t->pair[a->pair], *q = &t->pair[b->pair];
    if (a->count != b->count) return a->count > b->count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void push(Training *t, int32_t pair)
{
    Candidate c = {t->pair[pair].count, pair};
    if (c.count < LEAST_COUNT) return;
    if (t->n_heap == t->heap_room)
        t->heap = grown(t->arena, t->heap, t->n_heap, &t->heap_room, sizeof *t->heap);
    int64_t i = t->n_heap++;
    for (; i > 0 && is_before(t, &c, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
}

static Candidate pop(Training *t)
{
    Candidate top = t->heap[0], last = t->heap[--t->n_heap];
    int64_t i = 0;
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= t->n_heap) break;
        if (child + 1 < t->n_heap && is_before(t, &t->heap[child + 1], &t->heap[child])) child++;
        if (!is_before(t, &t->heap[child], &last)) break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = last;
    return top;
}

/* The most frequent pair, -1: none occurs twice. */
static int32_t best_pair(Training *t)
{
    while (t->n_heap > 0) {
        Candidate c = pop(t);
        if (c.count == t->pair[c.pair].count) return c.pair;
        if (c.count > t->pair[c.pair].count)
            push(t, c.pair); /* a higher entry is in the heap else */
    }
    return -1;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Adds sign times the word's number to the counts of its pairs. */
static void count_pairs(Training *t, int32_t word, int sign)
{
    const Word *w = &t->word[word];
    for (int32_t i = 0; i + 1 < w->n; i++) {
        int32_t pair = pair_of(t, w->id[i], w->id[i + 1]);
        t->pair[pair].count += sign * w->count;
        if (sign > 0) remember_word(t, &t->pair[pair], word);
    }
}

static bool holds(const Word *w, int32_t left, int32_t right)
{
    for (int32_t i = 0; i + 1 < w->n; i++)
        if (w->id[i] == left && w->id[i + 1] == right) return true;
    return false;
}

static void merge_word(Training *t, int32_t word, const DltMerge *m)
{
    Word *w = &t->word[word];
    if (!holds(w, m->left, m->right)) return;
    count_pairs(t, word, -1);
    int32_t n = 0;
    for (int32_t i = 0; i < w->n; i++) {
        bool both = i + 1 < w->n && w->id[i] == m->left && w->id[i + 1] == m->right;
        w->id[n++] = both ? m->id : w->id[i];
        i += both;
    }
    w->n = n;
    count_pairs(t, word, 1);
    for (int32_t i = 0; i + 1 < w->n; i++)
        if (w->id[i] == m->id || w->id[i + 1] == m->id) push(t, pair_of(t, w->id[i], w->id[i + 1]));
}

static int64_t learn(Training *t, DltMerge *merge, int64_t n_merge)
{
    for (int64_t i = 0; i < t->n_word; i++)
        count_pairs(t, (int32_t)i, 1);
    for (int64_t i = 0; i < t->n_pair; i++)
        push(t, (int32_t)i);
    for (int64_t i = 0; i < n_merge; i++) {
        int32_t best = best_pair(t);
        if (best < 0) return i;
        merge[i] = (DltMerge){t->pair[best].left, t->pair[best].right, (int32_t)(256 + i)};
        for (int32_t k = 0; k < t->pair[best].n_word; k++)
            merge_word(t, t->pair[best].word[k], &merge[i]);
    }
    return n_merge;
}

static void set_tokens(DltArena *arena, DltVocab *v, const DltMerge *merge, int64_t n_merge)
{
    for (int64_t i = 0; i < 256 + n_merge; i++) {
        const DltMerge *m = i < 256 ? NULL : &merge[i - 256];
        int32_t n_left = m != NULL ? v->token[m->left].n : 0;
        int32_t n = m != NULL ? n_left + v->token[m->right].n : 1;
        uint8_t *bytes = DLT_NEW_ARRAY(arena, n, uint8_t);
        bytes[0] = (uint8_t)i;
        if (m != NULL) {
            memcpy(bytes, v->token[m->left].bytes, (size_t)n_left);
            memcpy(bytes + n_left, v->token[m->right].bytes, (size_t)(n - n_left));
        }
        v->token[i] = (DltToken){bytes, n};
    }
}

DltStatus dlt_bpe_train(DltArena *arena, const uint8_t *text, int64_t n, int64_t vocab,
                        DltTokenizer *t, DltErr *err)
{
    enum { LEAST = 257 };
    if (vocab < LEAST)
        return dlt_err(err, DLT_E_CONFIG,
                       "a byte-level BPE has at least %d ids: 256 bytes and the end of a document",
                       (int)LEAST);
    Training work = {.arena = dlt_arena_new()};
    if (work.arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    for (int64_t i = 0, length; i < n; i += length) {
        length = dlt_gpt2_piece(text + i, n - i);
        if (length > LONGEST_WORD) length = LONGEST_WORD;
        count_word(&work, text + i, length);
    }
    DltMerge *merge = DLT_NEW_ARRAY(arena, vocab, DltMerge);
    int64_t n_merge = learn(&work, merge, vocab - LEAST);
    dlt_arena_free(work.arena);
    DltVocab *v = dlt_vocab_new(arena, LEAST + n_merge);
    set_tokens(arena, v, merge, n_merge);
    dlt_vocab_index(arena, v, merge, n_merge);
    *t = (DltTokenizer){.def = &dlt_tokenizer_kind_bpe,
                        .vocab = LEAST + n_merge,
                        .eot = (int32_t)(LEAST + n_merge - 1),
                        .path = "trained",
                        .state = v};
    return DLT_OK;
}
