/* Text files as windows of ids. The tokenizer comes with the data set (data.tokenizer); `chars` takes its
 * characters from the training text. All text is tokenized when the set is opened: `dltrain tokenize`
 * makes shards of what is too large for that. */
#include "base/sys.h"
#include "datasets/windows.h"
#include <inttypes.h>

typedef struct TextOpts {
    const char *text;
    DLT_WINDOW_MEMBERS;
} TextOpts;

static const DltField fields[] = {
    DLT_STR(TextOpts, text, .required = true, .main = true, .file = true,
            .help = "text file or pattern (files in order of name), plain or gzip; the tokenizer's "
                    "end of a document stands behind each file",
            .example = "text: shakespeare.txt"),
    DLT_WINDOW_ROWS(TextOpts), DLT_FIELDS_END};

static const int64_t most_bytes = (int64_t)1 << 31;

typedef struct TextState {
    DltIds ids;
} TextState;

static void free_ids(void *ctx)
{
    dlt_ids_free(&((TextState *)ctx)->ids);
}

static DltStatus get(const void *ctx, int64_t first, int64_t n, int32_t *out, DltErr *err)
{
    (void)err;
    const TextState *s = ctx;
    DLT_BUG_ON(first < 0 || n < 0 || n > s->ids.n || first > s->ids.n - n);
    memcpy(out, s->ids.v + first, (size_t)n * sizeof *out);
    return DLT_OK;
}

/* One file after the other: learns from it, or appends its ids. */
static DltStatus take_file(DltArena *arena, const DltBlob *file, bool learn, DltTokenizer *t,
                           DltIds *ids, DltErr *err)
{
    DltBlob b = *file;
    if (b.bytes > most_bytes || ids->n > most_bytes)
        return dlt_blob_err(&b, err,
                            "more than 2 GiB of text; `dltrain tokenize` makes shards of it");
    DltArena *scratch = dlt_arena_new();
    if (scratch == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltStatus status = dlt_blob_load_memory(scratch, &b, b.bytes, err);
    if (status == DLT_OK && learn) status = t->def->learn(arena, t, b.path, b.mem, b.bytes, err);
    if (status == DLT_OK && !learn)
        status = dlt_tokenizer_encode(t, b.path, 0, b.mem, b.bytes, ids, err);
    dlt_arena_free(scratch);
    return status;
}

static DltStatus encode_files(DltArena *arena, DltBlob *const *file, int n_file, bool train,
                              DltTokenizer *t, DltIds *ids, DltErr *err)
{
    bool learn = train && t->def->learn != NULL && t->vocab == 0;
    for (int i = 0; i < n_file && learn; i++)
        DLT_TRY(take_file(arena, file[i], true, t, ids, err));
    for (int i = 0; i < n_file; i++) {
        DLT_TRY(take_file(arena, file[i], false, t, ids, err));
        if (t->eot < 0) continue;
        if (!dlt_ids_reserve(ids, 1))
            return dlt_err(err, DLT_E_RESOURCE, "out of memory for the ids of %s", file[i]->path);
        ids->v[ids->n++] = t->eot;
    }
    return DLT_OK;
}

static DltStatus describe(DltArena *arena, const DltOpts *o, DltBlob *const *file, int n_file,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const TextOpts *c = o->v;
    DltWindowOpts options = DLT_WINDOW_OPTS(c);
    TextState *s = DLT_NEW(arena, TextState);
    DltTokenizer *t = like != NULL ? like->tokenizer : ds->tokenizer;
    if (t == NULL)
        return dlt_err_at(
            err, DLT_E_CONFIG, o->at,
            "%s: needs a tokenizer; write data.tokenizer: bytes, chars, {bpe: FILE} or "
            "gpt2",
            o->name);
    dlt_arena_on_free(arena, free_ids, s);
    DLT_TRY(encode_files(arena, file, n_file, like == NULL, t, &s->ids, err));
    DltTokens tokens = {get, s, s->ids.n, t->vocab, t->eot, file[0]->path};
    DltWindows *w;
    ds->def = &dlt_dataset_text;
    ds->tokenizer = t;
    DLT_TRY(dlt_windows_describe(arena, o, &options, &tokens, &w, ds, err));
    return dlt_like_check(ds, like, err);
}

static DltStatus check_text(const DltOpts *o, DltErr *err)
{
    DltWindowOpts options = DLT_WINDOW_OPTS((const TextOpts *)o->v);
    return dlt_windows_check(o, &options, err);
}

static DltStatus open_text(DltArena *arena, const DltOpts *o, const char *folder,
                           const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const TextOpts *c = o->v;
    DltBlob **file;
    int n_file;
    DltMark at = dlt_opts_mark(o, offsetof(TextOpts, text));
    DLT_TRY(dlt_blob_list(arena, folder, c->text, at, &file, &n_file, err));
    return describe(arena, o, file, n_file, like, ds, err);
}

const DltDatasetDef dlt_dataset_text = {
    .name = "text",
    .help = "text files, cut into windows of tokens",
    .fields = fields,
    .opt_size = sizeof(TextOpts),
    .check = check_text,
    .open = open_text,
    .load = dlt_windows_load,
    .read = dlt_windows_read,
};

DltStatus dlt_text_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                         DltTokenizer *t, DltErr *err)
{
    DltDataset ds = {.tokenizer = t};
    DltBlob *file = dlt_blob_memory(arena, "text", bytes, n);
    DLT_TRY(describe(arena, o, &file, 1, NULL, &ds, err));
    return dlt_windows_load(arena, &ds, err);
}
