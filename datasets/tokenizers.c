/* The table of tokenizers, what all kinds share, and the two simplest: bytes as they are, and the
 * characters that the training text has. */
#include "base/file.h"
#include "base/sys.h"
#include "datasets/utf8.h"
#include "datasets/vocab.h"
#include <stdlib.h>

const DltTokenizerDef *const dlt_tokenizers[] = {
#define TOKENIZER(name) &dlt_tokenizer_kind_##name,
#include "datasets/tokenizers.def"
#undef TOKENIZER
    NULL};

const DltTokenizerDef *dlt_tokenizer_find(const char *name)
{
    for (int i = 0; dlt_tokenizers[i] != NULL; i++) {
        if (strcmp(dlt_tokenizers[i]->name, name) == 0) return dlt_tokenizers[i];
    }
    return NULL;
}

bool dlt_ids_reserve(DltIds *ids, int64_t more)
{
    if (ids->n + more <= ids->room) return true;
    int64_t room = ids->room * 2 > ids->n + more ? ids->room * 2 : ids->n + more;
    int32_t *v = dlt_sys_realloc(ids->v, (size_t)ids->room * sizeof *v, (size_t)room * sizeof *v);
    if (v == NULL) return false;
    ids->v = v;
    ids->room = room;
    return true;
}

void dlt_ids_free(DltIds *ids)
{
    dlt_sys_free(ids->v);
    *ids = (DltIds){0};
}

static DltStatus no_files(const DltTokenizer *t, DltErr *err)
{
    return dlt_err(err, DLT_E_CONFIG,
                   "tokenizer %s: text needs its files; write tokenizer: {gpt2: {vocab: "
                   "encoder.json, merges: vocab.bpe}}",
                   t->def->name);
}

DltStatus dlt_tokenizer_encode(const DltTokenizer *t, const char *path, int64_t at,
                               const uint8_t *text, int64_t n, DltIds *ids, DltErr *err)
{
    if (t->state == NULL) return no_files(t, err);
    return t->def->encode(t, path, at, text, n, ids, err);
}

const uint8_t *dlt_tokenizer_bytes(const DltTokenizer *t, int32_t id, int64_t *n)
{
    const DltVocab *v = t->state;
    bool known = v != NULL && id >= 0 && id < v->n;
    *n = known ? v->token[id].n : 0;
    return known ? v->token[id].bytes : NULL;
}

DltStatus dlt_tokenizer_decode(const DltTokenizer *t, const int32_t *id, int64_t n, DltText *text,
                               DltErr *err)
{
    if (t->state == NULL) return no_files(t, err);
    for (int64_t i = 0; i < n; i++) {
        int64_t length;
        const uint8_t *bytes = dlt_tokenizer_bytes(t, id[i], &length);
        if (length > 0) dlt_text_addn(text, (const char *)bytes, (size_t)length);
    }
    return DLT_OK;
}

DltStatus dlt_tokenizer_file(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                             DltErr *err)
{
    enum { FILE_BYTES = 64 << 20 };
    const DltTokenizerFile *opts = o->v;
    const DltTokenizerDef *def = t->def;
    const char *path = dlt_path_absolute(arena, dlt_path_join(arena, folder, opts->file));
    char *text;
    int64_t n;
    DLT_TRY(dlt_file_read(
        arena, path,
        (DltFileRule){FILE_BYTES, DLT_E_DATA, dlt_opts_mark(o, offsetof(DltTokenizerFile, file))},
        &text, &n, err));
    DLT_TRY(dlt_tokenizer_parse(arena, path, text, n, t, err));
    if (t->def == def) return DLT_OK;
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                      "holds a tokenizer of kind %s, not %s", t->def->name, def->name);
}

static DltStatus no_memory(const char *path, DltErr *err)
{
    return dlt_err(err, DLT_E_RESOURCE, "out of memory for the ids of %s", path);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static DltStatus adopt_bytes(DltArena *arena, DltTokenizer *t, DltErr *err)
{
    (void)err;
    uint8_t *bytes = DLT_NEW_ARRAY(arena, 256, uint8_t);
    DltVocab *v = dlt_vocab_new(arena, 256);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        v->token[i] = (DltToken){bytes + i, 1};
    }
    t->vocab = 256;
    t->eot = -1;
    t->state = v;
    return DLT_OK;
}

static DltStatus open_bytes(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                            DltErr *err)
{
    (void)o;
    (void)folder;
    return adopt_bytes(arena, t, err);
}

static DltStatus encode_bytes(const DltTokenizer *t, const char *path, int64_t at,
                              const uint8_t *text, int64_t n, DltIds *ids, DltErr *err)
{
    (void)t;
    (void)at;
    if (!dlt_ids_reserve(ids, n)) return no_memory(path, err);
    for (int64_t i = 0; i < n; i++)
        ids->v[ids->n++] = text[i];
    return DLT_OK;
}

const DltTokenizerDef dlt_tokenizer_kind_bytes = {
    .name = "bytes",
    .help = "every byte is an id: 256 of them, any file",
    .open = open_bytes,
    .adopt = adopt_bytes,
    .encode = encode_bytes,
};

/* ---- chars ---------------------------------------------------------------------------------- */

static DltStatus not_utf8(const char *path, int64_t at, uint8_t byte, DltErr *err)
{
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                      "byte %lld (0x%02x) is not UTF-8; the tokenizer bytes takes any file",
                      (long long)at, byte);
}

static const DltField chars_fields[] = {
    DLT_STR(DltTokenizerFile, file, .main = true, .file = true,
            .help = "file that `dltrain tokenize` has written beside its shards; default: the "
                    "characters of the training text",
            .example = "file: shards/train_tokenizer.json"),
    DLT_FIELDS_END};

static DltStatus open_chars(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                            DltErr *err)
{
    t->eot = -1;
    if (((const DltTokenizerFile *)o->v)->file == NULL) return DLT_OK;
    return dlt_tokenizer_file(arena, o, folder, t, err);
}

static int by_code(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A vocabulary of n code points in order. */
static void set_codes(DltArena *arena, DltTokenizer *t, const uint32_t *code, int64_t n)
{
    DltVocab *v = dlt_vocab_new(arena, n);
    for (int64_t i = 0; i < n; i++) {
        uint8_t *bytes = DLT_NEW_ARRAY(arena, 4, uint8_t);
        v->token[i] = (DltToken){bytes, dlt_utf8_put(code[i], bytes)};
    }
    dlt_vocab_index(arena, v, NULL, 0);
    v->code = code;
    t->vocab = n;
    t->state = v;
}

static DltStatus learn_chars(DltArena *arena, DltTokenizer *t, const char *path,
                             const uint8_t *text, int64_t n, DltErr *err)
{
    enum { CODES = 0x110000 };
    uint8_t *seen = dlt_sys_alloc(CODES);
    if (seen == NULL) return no_memory(path, err);
    memset(seen, 0, CODES);
    const DltVocab *known = t->state; /* of the files before */
    int64_t n_code = known != NULL ? known->n : 0, bad = -1;
    for (int64_t i = 0; i < n_code; i++)
        seen[known->code[i]] = 1;
    for (int64_t i = 0, length; i < n; i += length) {
        uint32_t code;
        length = dlt_utf8_next(text + i, n - i, &code);
        if (length == 0) {
            bad = i;
            break;
        }
        n_code += seen[code] == 0;
        seen[code] = 1;
    }
    uint32_t *list = DLT_NEW_ARRAY(arena, n_code + 1, uint32_t);
    n_code = 0;
    for (uint32_t c = 0; c < CODES && bad < 0; c++)
        if (seen[c]) list[n_code++] = c;
    dlt_sys_free(seen);
    if (bad >= 0) return not_utf8(path, bad, text[bad], err);
    set_codes(arena, t, list, n_code);
    return DLT_OK;
}

static DltStatus adopt_chars(DltArena *arena, DltTokenizer *t, DltErr *err)
{
    const DltVocab *v = t->state;
    if (v == NULL) return dlt_err(err, DLT_E_DATA, "%s: no characters are listed", t->path);
    uint32_t *code = DLT_NEW_ARRAY(arena, v->n + 1, uint32_t);
    for (int64_t i = 0; i < v->n; i++) {
        const DltToken *token = &v->token[i];
        if (token->n == 0 || dlt_utf8_next(token->bytes, token->n, &code[i]) != token->n ||
            (i > 0 && code[i] <= code[i - 1]))
            return dlt_err(err, DLT_E_DATA, "%s: id %lld is no character behind that of id %lld",
                           t->path, (long long)i, (long long)i - 1);
    }
    set_codes(arena, t, code, v->n);
    return DLT_OK;
}

static DltStatus unknown_char(const DltTokenizer *t, const char *path, int64_t at, uint32_t code,
                              DltErr *err)
{
    uint8_t text[5] = {0};
    dlt_utf8_put(code, text);
    return dlt_err_at(
        err, DLT_E_DATA, (DltMark){.file = path},
        "byte %lld: the character '%s' (U+%04X) is not among the %lld of the training "
        "text",
        (long long)at, code < 0x20 ? "?" : (const char *)text, code, (long long)t->vocab);
}

static DltStatus encode_chars(const DltTokenizer *t, const char *path, int64_t at,
                              const uint8_t *text, int64_t n, DltIds *ids, DltErr *err)
{
    const DltVocab *v = t->state;
    if (!dlt_ids_reserve(ids, n)) return no_memory(path, err);
    for (int64_t i = 0, length; i < n; i += length) {
        uint32_t code;
        length = dlt_utf8_next(text + i, n - i, &code);
        if (length == 0) return not_utf8(path, at + i, text[i], err);
        int32_t id = code < 0x80 ? v->byte[code] : -1;
        if (code >= 0x80) {
            const uint32_t *found = bsearch(&code, v->code, (size_t)v->n, sizeof *v->code, by_code);
            if (found != NULL) id = (int32_t)(found - v->code);
        }
        if (id < 0) return unknown_char(t, path, at + i, code, err);
        ids->v[ids->n++] = id;
    }
    return DLT_OK;
}

const DltTokenizerDef dlt_tokenizer_kind_chars = {
    .name = "chars",
    .help = "every character of the training text is an id; the text must be UTF-8",
    .fields = chars_fields,
    .opt_size = sizeof(DltTokenizerFile),
    .open = open_chars,
    .learn = learn_chars,
    .adopt = adopt_chars,
    .encode = encode_chars,
};
