/* Byte-level BPE: `bpe` with merges of our own training, `gpt2` with those that OpenAI published
 * (encoder.json and vocab.bpe of openai/gpt-2; their ids may have gaps). Both cut text by GPT-2's
 * pattern first. */
#include "base/file.h"
#include "base/sys.h"
#include "datasets/utf8.h"
#include "datasets/vocab.h"
#include <jansson.h>

enum { FILE_BYTES = 64 << 20, MAX_IDS = 1 << 24, MAX_PIECE = 1 << 24 };

static DltStatus encode_bpe(const DltTokenizer *t, const char *path, int64_t at,
                            const uint8_t *text, int64_t n, DltIds *ids, DltErr *err)
{
    (void)at;
    for (int64_t i = 0, length; i < n; i += length) {
        length = dlt_gpt2_piece(text + i, n - i);
        if (length > MAX_PIECE) length = MAX_PIECE;
        DLT_TRY(dlt_sys_asked_to_stop());
        if (!dlt_bpe_piece(t->state, text + i, length, ids))
            return dlt_err(err, DLT_E_RESOURCE, "out of memory for the ids of %s", path);
    }
    return DLT_OK;
}

static DltStatus encode_gpt2(const DltTokenizer *t, const char *path, int64_t at,
                             const uint8_t *text, int64_t n, DltIds *ids, DltErr *err)
{
    int64_t bad = dlt_utf8_check(text, n);
    if (bad < 0) return encode_bpe(t, path, at, text, n, ids, err);
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                      "byte %lld (0x%02x) is not UTF-8; the tokenizers bytes and bpe take any file",
                      (long long)(at + bad), text[bad]);
}

/* Every byte must be an id, so that any text has ids. */
static DltStatus adopt_bpe(DltArena *arena, DltTokenizer *t, DltErr *err)
{
    (void)arena;
    const DltVocab *v = t->state;
    if (v == NULL) return dlt_err(err, DLT_E_DATA, "%s: no vocabulary is listed", t->path);
    for (int i = 0; i < 256; i++)
        if (v->byte[i] < 0)
            return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = t->path},
                              "the vocabulary has no id for the byte 0x%02x", (unsigned)i);
    return DLT_OK;
}

/* ---- bpe: a file of our own ----------------------------------------------------------------- */

static const DltField bpe_fields[] = {
    DLT_STR(DltTokenizerFile, file, .required = true, .main = true, .file = true,
            .help = "file that `dltrain tokenize --train-bpe` has written",
            .example = "file: tokenizer.json"),
    DLT_FIELDS_END};

const DltTokenizerDef dlt_tokenizer_kind_bpe = {
    .name = "bpe",
    .help = "byte-level BPE with merges learnt by `dltrain tokenize --train-bpe`; any file",
    .fields = bpe_fields,
    .opt_size = sizeof(DltTokenizerFile),
    .open = dlt_tokenizer_file,
    .adopt = adopt_bpe,
    .encode = encode_bpe,
};

/* ---- gpt2: the published files -------------------------------------------------------------- */

typedef struct Gpt2Opts {
    const char *vocab, *merges;
} Gpt2Opts;

static const DltField gpt2_fields[] = {
    DLT_STR(Gpt2Opts, vocab, .file = true, .help = "encoder.json: ids of the tokens",
            .example = "vocab: gpt2/encoder.json"),
    DLT_STR(Gpt2Opts, merges, .file = true,
            .help =
                "vocab.bpe: the merges, one a line. Without the files only shards of ids can be "
                "read",
            .example = "merges: gpt2/vocab.bpe"),
    DLT_FIELDS_END};

static const char end_of_text[] = "<|endoftext|>";
enum { GPT2_IDS = 50257, GPT2_EOT = 50256 };

static DltStatus check_gpt2(const DltOpts *o, DltErr *err)
{
    const Gpt2Opts *g = o->v;
    if ((g->vocab == NULL) == (g->merges == NULL)) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, o->at,
                      "%s: vocab and merges belong together; %s is missing", o->name,
                      g->vocab == NULL ? "vocab" : "merges");
}

static DltStatus bad_entry(const char *path, const char *key, const char *what, DltErr *err)
{
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path}, "token '%.60s' %s", key, what);
}

/* The highest id + 1; ids must be different numbers of a sensible size. */
static DltStatus count_ids(const char *path, json_t *json, int64_t *n, DltErr *err)
{
    const char *key;
    json_t *value;
    *n = 0;
    json_object_foreach(json, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= MAX_IDS) return bad_entry(path, key, "has no id of 0 to 2^24", err);
        if (id >= *n) *n = id + 1;
    }
    return DLT_OK;
}

static DltStatus take_tokens(DltArena *arena, json_t *json, DltTokenizer *t, DltErr *err)
{
    const char *key;
    json_t *value;
    int64_t n;
    DLT_TRY(count_ids(t->path, json, &n, err));
    DltVocab *v = dlt_vocab_new(arena, n);
    t->vocab = n;
    t->eot = -1;
    t->state = v;
    json_object_foreach(json, key, value)
    {
        int64_t id = json_integer_value(value), length = (int64_t)strlen(key), got;
        if (strcmp(key, end_of_text) == 0) {
            t->eot = (int32_t)id;
            continue;
        }
        uint8_t *bytes = DLT_NEW_ARRAY(arena, length + 1, uint8_t);
        if (!dlt_alphabet_read(key, length, bytes, &got) || got == 0)
            return bad_entry(t->path, key, "is not in GPT-2's alphabet of bytes", err);
        if (v->token[id].n > 0) return bad_entry(t->path, key, "has the id of another token", err);
        v->token[id] = (DltToken){bytes, (int32_t)got};
    }
    return DLT_OK;
}

static DltStatus read_tokens(DltArena *arena, const char *text, int64_t n, DltTokenizer *t,
                             DltErr *err)
{
    json_error_t why;
    json_t *json = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(json)) {
        json_decref(json);
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = t->path},
                          "byte %d: no JSON object of tokens and ids: %s", why.position, why.text);
    }
    DltStatus status = take_tokens(arena, json, t, err);
    json_decref(json);
    return status;
}

/* "#version: ..." and then a merge a line. */
static DltStatus read_merges(DltArena *arena, const char *path, const char *text, int64_t n,
                             DltTokenizer *t, DltErr *err)
{
    DltVocab *v = (DltVocab *)(uintptr_t)t->state;
    DltTokenTable table;
    int64_t twice, n_line = 1, n_merge = 0, line = 0;
    if (!dlt_token_table(arena, v, &table, &twice))
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = t->path},
                          "id %lld stands for the bytes of another id", (long long)twice);
    for (int64_t i = 0; i < n; i++)
        n_line += text[i] == '\n';
    DltMerge *merge = DLT_NEW_ARRAY(arena, n_line, DltMerge);
    for (int64_t at = 0; at < n; line++) {
        const char *end = memchr(text + at, '\n', (size_t)(n - at));
        int64_t length = end != NULL ? end - (text + at) : n - at;
        int64_t bare = length > 0 && text[at + length - 1] == '\r' ? length - 1 : length;
        bool is_comment = line == 0 && strncmp(text + at, "#version", 8) == 0;
        if (bare > 0 && !is_comment && !dlt_merge_read(&table, text + at, bare, &merge[n_merge++]))
            return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = path},
                              "line %lld (byte %lld): '%.*s' is no merge of two tokens of %s",
                              (long long)line + 1, (long long)at, (int)(bare < 60 ? bare : 60),
                              text + at, t->path);
        at += length + 1;
    }
    dlt_vocab_index(arena, v, merge, n_merge);
    return DLT_OK;
}

static DltStatus open_gpt2(DltArena *arena, const DltOpts *o, const char *folder, DltTokenizer *t,
                           DltErr *err)
{
    const Gpt2Opts *g = o->v;
    char *vocab, *merges;
    int64_t n_vocab, n_merges;
    t->vocab = GPT2_IDS;
    t->eot = GPT2_EOT;
    if (g->vocab == NULL) return DLT_OK;
    t->path = dlt_path_absolute(arena, dlt_path_join(arena, folder, g->vocab));
    const char *path = dlt_path_absolute(arena, dlt_path_join(arena, folder, g->merges));
    DLT_TRY(dlt_file_read(
        arena, t->path,
        (DltFileRule){FILE_BYTES, DLT_E_DATA, dlt_opts_mark(o, offsetof(Gpt2Opts, vocab))}, &vocab,
        &n_vocab, err));
    DLT_TRY(dlt_file_read(
        arena, path,
        (DltFileRule){FILE_BYTES, DLT_E_DATA, dlt_opts_mark(o, offsetof(Gpt2Opts, merges))},
        &merges, &n_merges, err));
    DLT_TRY(read_tokens(arena, vocab, n_vocab, t, err));
    DLT_TRY(read_merges(arena, path, merges, n_merges, t, err));
    return adopt_bpe(arena, t, err);
}

static DltStatus adopt_gpt2(DltArena *arena, DltTokenizer *t, DltErr *err)
{
    return t->state != NULL ? adopt_bpe(arena, t, err) : DLT_OK;
}

const DltTokenizerDef dlt_tokenizer_kind_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2's vocabulary of 50257 ids, from its two files; the text must be UTF-8",
    .fields = gpt2_fields,
    .opt_size = sizeof(Gpt2Opts),
    .check = check_gpt2,
    .open = open_gpt2,
    .adopt = adopt_gpt2,
    .encode = encode_gpt2,
};
