/* Vocabularies: ids and their bytes, merges found by hash, and the alphabet in which bytes are
 * written down. */
#include "datasets/vocab.h"
#include "base/rng.h"
#include "datasets/utf8.h"

static int64_t table_size(int64_t n)
{
    int64_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

DltVocab *dlt_vocab_new(DltArena *arena, int64_t n)
{
    DltVocab *v = DLT_NEW(arena, DltVocab);
    v->n = n;
    v->token = DLT_NEW_ARRAY(arena, n + 1, DltToken);
    return v;
}

static int64_t pair_slot(const DltVocab *v, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key ^= key >> 29;
    key *= 0xBF58476D1CE4E5B9u;
    return (int64_t)((key ^ key >> 32) & (uint64_t)(v->n_pair - 1));
}

int32_t dlt_vocab_rank(const DltVocab *v, int32_t left, int32_t right)
{
    for (int64_t i = pair_slot(v, left, right);; i = (i + 1) & (v->n_pair - 1)) {
        if (v->pair[i] == 0) return -1;
        const DltMerge *m = &v->merge[v->pair[i] - 1];
        if (m->left == left && m->right == right) return v->pair[i] - 1;
    }
}

void dlt_vocab_index(DltArena *arena, DltVocab *v, const DltMerge *merge, int64_t n_merge)
{
    for (int i = 0; i < 256; i++)
        v->byte[i] = -1;
    for (int64_t i = v->n - 1; i >= 0; i--)
        if (v->token[i].n == 1) v->byte[v->token[i].bytes[0]] = (int32_t)i;
    v->merge = merge;
    v->n_merge = n_merge;
    v->n_pair = table_size(n_merge);
    v->pair = DLT_NEW_ARRAY(arena, v->n_pair, int32_t);
    for (int64_t i = 0; i < n_merge; i++) {
        if (dlt_vocab_rank(v, merge[i].left, merge[i].right) >= 0) continue; /* the first counts */
        int64_t at = pair_slot(v, merge[i].left, merge[i].right);
        while (v->pair[at] != 0)
            at = (at + 1) & (v->n_pair - 1);
        v->pair[at] = (int32_t)i + 1;
    }
}

/* ---- ids by their bytes --------------------------------------------------------------------- */

/* The slot that holds these bytes, or the free one where they belong. */
static int64_t token_slot(const DltTokenTable *t, const uint8_t *bytes, int64_t n)
{
    int64_t i = (int64_t)(dlt_hash(bytes, (size_t)n, 0) & (uint64_t)(t->n - 1));
    for (;; i = (i + 1) & (t->n - 1)) {
        if (t->slot[i] == 0) return i;
        const DltToken *token = &t->v->token[t->slot[i] - 1];
        if (token->n == n && memcmp(token->bytes, bytes, (size_t)n) == 0) return i;
    }
}

bool dlt_token_table(DltArena *arena, const DltVocab *v, DltTokenTable *t, int64_t *twice)
{
    *t = (DltTokenTable){.v = v, .n = table_size(v->n)};
    t->slot = DLT_NEW_ARRAY(arena, t->n, int32_t);
    for (int64_t i = 0; i < v->n; i++) {
        if (v->token[i].n == 0) continue;
        int64_t at = token_slot(t, v->token[i].bytes, v->token[i].n);
        *twice = i;
        if (t->slot[at] != 0) return false;
        t->slot[at] = (int32_t)i + 1;
    }
    return true;
}

int32_t dlt_token_find(const DltTokenTable *t, const uint8_t *bytes, int64_t n)
{
    return t->slot[token_slot(t, bytes, n)] - 1;
}

/* ---- the alphabet --------------------------------------------------------------------------- */

static bool stands_for_itself(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/* The others are numbered from U+0100 on. */
static uint32_t letter_of(uint32_t byte)
{
    uint32_t before = 0;
    if (stands_for_itself(byte)) return byte;
    for (uint32_t b = 0; b < byte; b++)
        before += !stands_for_itself(b);
    return 0x100 + before;
}

char *dlt_alphabet_write(DltArena *arena, const uint8_t *bytes, int64_t n)
{
    char *text = dlt_arena_new_bytes(arena, (size_t)(2 * n + 1), 1);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
        at += dlt_utf8_put(letter_of(bytes[i]), (uint8_t *)text + at);
    return text;
}

bool dlt_alphabet_read(const char *text, int64_t n, uint8_t *out, int64_t *n_out)
{
    *n_out = 0;
    for (int64_t i = 0, length; i < n; i += length) {
        uint32_t code, byte = 0;
        length = dlt_utf8_next((const uint8_t *)text + i, n - i, &code);
        if (length == 0) return false;
        if (code < 0x100) {
            byte = code;
        } else {
            while (byte < 0x100 && letter_of(byte) != code)
                byte++;
        }
        if (byte > 0xFF || letter_of(byte) != code) return false;
        out[(*n_out)++] = (uint8_t)byte;
    }
    return true;
}

bool dlt_merge_read(const DltTokenTable *t, const char *line, int64_t n, DltMerge *merge)
{
    enum { LONGEST = 4096 };
    uint8_t bytes[LONGEST];
    const char *blank = memchr(line, ' ', (size_t)n);
    if (blank == NULL || n > LONGEST) return false;
    int64_t n_left = 0, n_right = 0, split = blank - line;
    if (!dlt_alphabet_read(line, split, bytes, &n_left) ||
        !dlt_alphabet_read(blank + 1, n - split - 1, bytes + n_left, &n_right))
        return false;
    if (n_left == 0 || n_right == 0) return false;
    merge->left = dlt_token_find(t, bytes, n_left);
    merge->right = dlt_token_find(t, bytes + n_left, n_right);
    merge->id = dlt_token_find(t, bytes, n_left + n_right);
    return merge->left >= 0 && merge->right >= 0 && merge->id >= 0;
}
