/* A tokenizer as JSON text and back:
 *   {"format": "dltrain tokenizer 1", "kind": "bpe", "ids": 512, "eot": 511,
 *    "vocab": ["!", "\"", ...], "merges": ["t h", ...]}
 * Tokens are written in GPT-2's alphabet of bytes; an id without text is null. Everything is checked
 * before it is used: numbers of ids, equal tokens, merges of unknown tokens. */
#include "datasets/vocab.h"
#include <jansson.h>

enum { MAX_IDS = 1 << 24 };
static const char format[] = "dltrain tokenizer 1";

static json_t *vocab_json(DltArena *arena, const DltVocab *v)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < v->n; i++)
        json_array_append_new(
            list, v->token[i].n > 0
                      ? json_string(dlt_alphabet_write(arena, v->token[i].bytes, v->token[i].n))
                      : json_null());
    return list;
}

static json_t *merges_json(DltArena *arena, const DltVocab *v)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < v->n_merge; i++) {
        const DltToken *l = &v->token[v->merge[i].left], *r = &v->token[v->merge[i].right];
        json_array_append_new(list, json_string(dlt_arena_printf(
                                        arena, "%s %s", dlt_alphabet_write(arena, l->bytes, l->n),
                                        dlt_alphabet_write(arena, r->bytes, r->n))));
    }
    return list;
}

char *dlt_tokenizer_write(DltArena *arena, const DltTokenizer *t)
{
    const DltVocab *v = t->state;
    json_t *json = json_object();
    int failed = json == NULL;
    failed |= json_object_set_new(json, "format", json_string(format));
    failed |= json_object_set_new(json, "kind", json_string(t->def->name));
    failed |= json_object_set_new(json, "ids", json_integer(t->vocab));
    failed |= json_object_set_new(json, "eot", t->eot >= 0 ? json_integer(t->eot) : json_null());
    if (v != NULL && t->def != &dlt_tokenizer_kind_bytes) {
        failed |= json_object_set_new(json, "vocab", vocab_json(arena, v));
        failed |= json_object_set_new(json, "merges", merges_json(arena, v));
    }
    size_t n = json_dumpb(json, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    char *text = dlt_arena_new_bytes(arena, n + 1, 1);
    json_dumpb(json, text, n, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(json);
    return failed ? NULL : text;
}

static DltStatus bad(const char *path, DltErr *err, const char *what, int64_t at)
{
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path}, "damaged tokenizer: %s %lld", what,
                      (long long)at);
}

static DltStatus take_vocab(DltArena *arena, const char *path, json_t *list, DltVocab *v,
                            DltErr *err)
{
    for (int64_t i = 0; i < v->n; i++) {
        json_t *item = json_array_get(list, (size_t)i);
        if (json_is_null(item)) continue;
        int64_t n = (int64_t)json_string_length(item), got;
        uint8_t *bytes = DLT_NEW_ARRAY(arena, n + 1, uint8_t);
        if (!json_is_string(item) || n == 0 ||
            !dlt_alphabet_read(json_string_value(item), n, bytes, &got))
            return bad(path, err, "no token at id", i);
        v->token[i] = (DltToken){bytes, (int32_t)got};
    }
    return DLT_OK;
}

static DltStatus take_merges(DltArena *arena, const char *path, json_t *list, DltVocab *v,
                             DltErr *err)
{
    DltTokenTable table;
    int64_t twice, n = (int64_t)json_array_size(list);
    if (!dlt_token_table(arena, v, &table, &twice))
        return bad(path, err, "the token of another id at id", twice);
    DltMerge *merge = DLT_NEW_ARRAY(arena, n + 1, DltMerge);
    for (int64_t i = 0; i < n; i++) {
        json_t *item = json_array_get(list, (size_t)i);
        if (!json_is_string(item) || !dlt_merge_read(&table, json_string_value(item),
                                                     (int64_t)json_string_length(item), &merge[i]))
            return bad(path, err, "no merge of two tokens at place", i);
    }
    dlt_vocab_index(arena, v, merge, n);
    return DLT_OK;
}

static DltStatus take(DltArena *arena, const char *path, json_t *json, DltTokenizer *t, DltErr *err)
{
    const char *kind = json_string_value(json_object_get(json, "kind"));
    json_t *ids = json_object_get(json, "ids"), *eot = json_object_get(json, "eot");
    json_t *vocab = json_object_get(json, "vocab"), *merges = json_object_get(json, "merges");
    *t = (DltTokenizer){.path = path, .eot = -1};
    t->def = kind != NULL ? dlt_tokenizer_find(kind) : NULL;
    if (t->def == NULL)
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                          "damaged tokenizer: no kind '%.40s' is known", kind != NULL ? kind : "");
    t->vocab = json_is_integer(ids) ? json_integer_value(ids) : 0;
    if (t->vocab < 1 || t->vocab > MAX_IDS) return bad(path, err, "its number of ids is", t->vocab);
    if (json_is_integer(eot)) {
        json_int_t id = json_integer_value(eot);
        if (id < 0 || id >= t->vocab) return bad(path, err, "the id that ends a document is", id);
        t->eot = (int32_t)id;
    }
    if (vocab != NULL) {
        int64_t n = (int64_t)json_array_size(vocab);
        if (n != t->vocab) return bad(path, err, "the number of its tokens is", n);
        DltVocab *v = dlt_vocab_new(arena, n);
        DLT_TRY(take_vocab(arena, path, vocab, v, err));
        DLT_TRY(take_merges(arena, path, merges, v, err));
        t->state = v;
    }
    return t->def->adopt != NULL ? t->def->adopt(arena, t, err) : DLT_OK;
}

DltStatus dlt_tokenizer_parse(DltArena *arena, const char *path, const char *text, int64_t n,
                              DltTokenizer *t, DltErr *err)
{
    json_error_t why = {.text = ""};
    json_t *json = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    const char *is = json_string_value(json_object_get(json, "format"));
    DltStatus status = DLT_OK;
    if (json == NULL)
        status =
            dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                       "byte %d: this is no JSON, so no tokenizer: %s", why.position, why.text);
    else if (is == NULL || strcmp(is, format) != 0)
        status = dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                            "this JSON is no tokenizer: its \"format\" must be \"%s\"", format);
    else
        status = take(arena, path, json, t, err);
    json_decref(json);
    return status;
}
