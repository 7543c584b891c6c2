/* Shards of token ids as windows. The shards are one stream in order of name; a window may lie in two
 * of them. The vocabulary is the tokenizer's, or stated, or the highest id + 1. */
#include "base/sys.h"
#include "datasets/shards.h"
#include <inttypes.h>

typedef struct TokensOpts {
    const char *tokens;
    int layout;
    int64_t vocab, eot;
    DLT_WINDOW_MEMBERS;
} TokensOpts;

static const DltEnum layout_choices[] = {
    {"auto", DLT_LAYOUT_AUTO},
    {"llmc", DLT_LAYOUT_LLMC},
    {"raw16", DLT_LAYOUT_RAW16},
    {"raw32", DLT_LAYOUT_RAW32},
    {NULL, 0},
};

static const DltField fields[] = {
    DLT_STR(TokensOpts, tokens, .required = true, .main = true, .file = true,
            .help = "file of ids or pattern (files in order of name)",
            .example = "tokens: \"shards/train_*.bin\""),
    DLT_ENUM(TokensOpts, layout, .def = "auto", .choices = layout_choices,
             .help = "auto: llm.c's header where there is one, else 16-bit ids alone; llmc: the "
                     "header must be there; raw16, raw32: ids alone",
             .example = "layout: raw32"),
    DLT_INT(TokensOpts, vocab, .lo = 1, .hi = 1 << 30,
            .help = "number of ids; default: the tokenizer's, without one the highest id + 1",
            .example = "vocab: 50257"),
    DLT_INT(TokensOpts, eot, .lo = 0, .hi = 1 << 30,
            .help = "id that ends a document; default: the tokenizer's", .example = "eot: 50256"),
    DLT_WINDOW_ROWS(TokensOpts),
    DLT_FIELDS_END};

static DltStatus check_tokens(const DltOpts *o, DltErr *err)
{
    const TokensOpts *c = o->v;
    DltWindowOpts options = DLT_WINDOW_OPTS(c);
    if (dlt_opts_given(o, offsetof(TokensOpts, eot)) && c->vocab > 0 && c->eot >= c->vocab)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(TokensOpts, eot)),
                          "%s.eot: %" PRId64 " is no id of a vocabulary of %" PRId64, o->name,
                          c->eot, c->vocab);
    return dlt_windows_check(o, &options, err);
}

static void find_highest(void *ctx, int64_t first, const int32_t *id, int64_t n)
{
    (void)first;
    int64_t *highest = ctx;
    for (int64_t i = 0; i < n; i++)
        *highest = id[i] > *highest ? id[i] : *highest;
}

/* 16-bit ids cannot name a vocabulary of more; the file would be read as other ids than meant. */
static DltStatus check_width(const DltShards *s, DltErr *err)
{
    for (int i = 0; i < s->n_shard; i++)
        if (s->shard[i].width == 2 && s->vocab > UINT16_MAX + 1)
            return dlt_blob_err(s->shard[i].b, err,
                                "its ids have 16 bits, which cannot hold a vocabulary of %" PRId64,
                                s->vocab);
    return DLT_OK;
}

static DltStatus find_vocab(const DltOpts *o, const DltDataset *like, const DltTokenizer *t,
                            DltTokens *tokens, DltShards *s, DltErr *err)
{
    const TokensOpts *c = o->v;
    int64_t known = like != NULL ? like->vocab : t != NULL ? t->vocab : 0;
    if (c->vocab > 0 && known > 0 && c->vocab != known)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(TokensOpts, vocab)),
                          "%s.vocab: %" PRId64 ", but the %s has %" PRId64 " ids", o->name,
                          c->vocab, like != NULL ? "training set" : "tokenizer", known);
    s->vocab = known > 0 ? known : c->vocab;
    if (s->vocab > 0) return check_width(s, err);
    int64_t highest = 0;
    DLT_TRY(dlt_tokens_each(tokens, s->n, find_highest, &highest, err));
    s->vocab = highest + 1;
    return DLT_OK;
}

/* Every shard must hold a window, so that a file that was cut short is not passed over. */
static DltStatus check_lengths(const DltShards *s, int64_t window, bool own_targets, DltErr *err)
{
    int64_t least = window + (own_targets ? 0 : 1);
    for (int i = 0; i < s->n_shard; i++)
        if (s->shard[i].n < least)
            return dlt_blob_err(
                s->shard[i].b, err,
                "has %" PRId64 " tokens, fewer than the %" PRId64 " of one window%s", s->shard[i].n,
                least, own_targets ? "" : " and the token behind it");
    return DLT_OK;
}

static DltStatus describe(DltArena *arena, const DltOpts *o, DltBlob *const *file, int n_file,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const TokensOpts *c = o->v;
    DltWindowOpts options = DLT_WINDOW_OPTS(c);
    DltTokenizer *t = like != NULL ? like->tokenizer : ds->tokenizer;
    DltShards *s = DLT_NEW(arena, DltShards);
    DltWindows *w;
    if (t != NULL && t->vocab == 0)
        return dlt_err_at(err, DLT_E_CONFIG, o->at,
                          "%s: the tokenizer %s learns from text, and this set is ids", o->name,
                          t->def->name);
    DLT_TRY(dlt_shards_open(arena, file, n_file, c->layout, s, err));
    DLT_TRY(check_lengths(s, c->window, ds->own_targets, err));
    DltTokens tokens = {.get = dlt_shards_get,
                        .ctx = s,
                        .n = s->n,
                        .eot = t != NULL ? t->eot : -1,
                        .path = file[0]->path};
    if (dlt_opts_given(o, offsetof(TokensOpts, eot))) tokens.eot = (int32_t)c->eot;
    DLT_TRY(find_vocab(o, like, t, &tokens, s, err));
    tokens.vocab = s->vocab;
    if (tokens.eot >= s->vocab)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(TokensOpts, eot)),
                          "%s.eot: %d is no id of a vocabulary of %" PRId64, o->name, tokens.eot,
                          s->vocab);
    ds->def = &dlt_dataset_tokens;
    ds->tokenizer = t;
    DLT_TRY(dlt_windows_describe(arena, o, &options, &tokens, &w, ds, err));
    return dlt_like_check(ds, like, err);
}

static DltStatus open_tokens(DltArena *arena, const DltOpts *o, const char *folder,
                             const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const TokensOpts *c = o->v;
    DltBlob **file;
    int n_file;
    DltMark at = dlt_opts_mark(o, offsetof(TokensOpts, tokens));
    DLT_TRY(dlt_blob_list(arena, folder, c->tokens, at, &file, &n_file, err));
    return describe(arena, o, file, n_file, like, ds, err);
}

const DltDatasetDef dlt_dataset_tokens = {
    .name = "tokens",
    .help = "shards of token ids, cut into windows",
    .fields = fields,
    .opt_size = sizeof(TokensOpts),
    .check = check_tokens,
    .open = open_tokens,
    .load = dlt_windows_load,
    .read = dlt_windows_read,
};

DltStatus dlt_tokens_check(DltArena *arena, const void *bytes, int64_t n, const DltOpts *o,
                           DltErr *err)
{
    DltDataset ds = {.n = 0};
    DltBlob *file = dlt_blob_memory(arena, "shard", bytes, n);
    DLT_TRY(describe(arena, o, &file, 1, NULL, &ds, err));
    return dlt_windows_load(arena, &ds, err);
}
