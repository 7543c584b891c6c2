/* Windows of tokens: which there are, and what stands in one. */
#include "datasets/windows.h"
#include "base/rng.h"
#include "base/sys.h"
#include <inttypes.h>

const DltEnum dlt_documents_choices[] = {
    {"pack", DLT_DOCS_PACK},
    {"split", DLT_DOCS_SPLIT},
    {NULL, 0},
};
const DltEnum dlt_shift_choices[] = {
    {"none", DLT_SHIFT_NONE},
    {"epoch", DLT_SHIFT_EPOCH},
    {NULL, 0},
};

DltStatus dlt_windows_check(const DltOpts *o, const DltWindowOpts *c, DltErr *err)
{
    if (c->window == 0)
        return dlt_err_at(err, DLT_E_CONFIG, o->at,
                          "%s: needs a window: the number of tokens of a sample; write data.window",
                          o->name);
    if (c->limit.unit != DLT_U_NONE && c->limit.unit != DLT_U_TOKENS)
        return dlt_err_at(err, DLT_E_CONFIG, o->at, "%s.limit: is counted in tokens: 2e6 tokens",
                          o->name);
    if (c->documents == DLT_DOCS_SPLIT && c->shift == DLT_SHIFT_EPOCH)
        return dlt_err_at(err, DLT_E_CONFIG, o->at,
                          "%s: documents: split cuts windows at documents, so shift: epoch cannot "
                          "move them",
                          o->name);
    return DLT_OK;
}

DltStatus dlt_tokens_each(const DltTokens *t, int64_t n_token,
                          void (*visit)(void *ctx, int64_t first, const int32_t *id, int64_t n),
                          void *ctx, DltErr *err)
{
    enum { CHUNK = 1 << 18 };
    int32_t *id = dlt_sys_alloc(CHUNK * sizeof *id);
    DltStatus status = DLT_OK;
    if (id == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory: reading %s", t->path);
    for (int64_t first = 0; first < n_token && status == DLT_OK; first += CHUNK) {
        int64_t n = n_token - first < CHUNK ? n_token - first : CHUNK;
        status = t->get(t->ctx, first, n, id, err);
        if (status == DLT_OK && visit != NULL) visit(ctx, first, id, n);
    }
    dlt_sys_free(id);
    return status;
}

/* ---- documents: split ----------------------------------------------------------------------- */

typedef struct Cut {
    int32_t eot;
    int64_t window, ahead;
    int64_t begin, end; /* of the document under way; end: tokens in all */
    int64_t *first;     /* NULL: only counted */
    int32_t *length;
    int64_t n;
} Cut;

/* Windows of the document [c->begin, end): it has end - begin - ahead places with a target. */
static void cut_document(Cut *c, int64_t end)
{
    for (int64_t at = c->begin; at + c->ahead < end; at += c->window) {
        int64_t left = end - c->ahead - at;
        if (c->first != NULL) {
            c->first[c->n] = at;
            c->length[c->n] = (int32_t)(left < c->window ? left : c->window);
        }
        c->n++;
    }
    c->begin = end;
}

static void cut_tokens(void *ctx, int64_t first, const int32_t *id, int64_t n)
{
    Cut *c = ctx;
    for (int64_t i = 0; i < n; i++)
        if (id[i] == c->eot || first + i + 1 == c->end) cut_document(c, first + i + 1);
}

static DltStatus split_documents(DltArena *arena, DltWindows *w, DltErr *err)
{
    Cut c = {.eot = w->tokens.eot, .window = w->window, .ahead = w->ahead, .end = w->n_token};
    DLT_TRY(dlt_tokens_each(&w->tokens, w->n_token, cut_tokens, &c, err));
    w->n = c.n;
    c.first = dlt_arena_try(arena, (size_t)c.n + 1, sizeof *c.first);
    c.length = dlt_arena_try(arena, (size_t)c.n + 1, sizeof *c.length);
    if (c.first == NULL || c.length == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for %" PRId64 " windows", c.n);
    c.n = c.begin = 0;
    DLT_TRY(dlt_tokens_each(&w->tokens, w->n_token, cut_tokens, &c, err));
    w->first = c.first;
    w->length = c.length;
    return DLT_OK;
}

/* ---- description ---------------------------------------------------------------------------- */

DltStatus dlt_windows_describe(DltArena *arena, const DltOpts *o, const DltWindowOpts *c,
                               const DltTokens *tokens, DltWindows **out, DltDataset *ds,
                               DltErr *err)
{
    DltWindows *w = DLT_NEW(arena, DltWindows);
    *w = (DltWindows){.tokens = *tokens,
                      .n_token = tokens->n,
                      .window = c->window,
                      .ahead = ds->own_targets ? 0 : 1};
    if (c->limit.unit == DLT_U_TOKENS && c->limit.n < (double)w->n_token)
        w->n_token = (int64_t)c->limit.n;
    if (w->n_token < c->window + w->ahead)
        return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = tokens->path},
                          "has %" PRId64 " tokens%s, fewer than the %" PRId64 " of one window%s",
                          w->n_token, w->n_token < tokens->n ? " within limit" : "",
                          c->window + w->ahead, w->ahead > 0 ? " and the token behind it" : "");
    w->pad = tokens->eot >= 0 ? tokens->eot : 0;
    w->n = (w->n_token - w->ahead + c->window - 1) / c->window;
    if (c->documents == DLT_DOCS_SPLIT) {
        if (tokens->eot < 0)
            return dlt_err_at(
                err, DLT_E_CONFIG, o->at,
                "%s.documents: split needs the id that ends a document; write eot:", o->name);
        DLT_TRY(split_documents(arena, w, err));
    }
    DltTokenizer *tokenizer = ds->tokenizer;
    bool own_targets = ds->own_targets;
    *ds = (DltDataset){.def = ds->def,
                       .state = w,
                       .n = w->n,
                       .n_shift = c->shift == DLT_SHIFT_EPOCH ? c->window : 0,
                       .x_shape = dlt_shape1(c->window),
                       .x_dtype = DLT_I32,
                       .x_scale = 1,
                       .channel_axis = -1,
                       .y_shape = dlt_shape1(c->window),
                       .y_dtype = DLT_I32,
                       .classes = tokens->vocab,
                       .vocab = tokens->vocab,
                       .tokenizer = tokenizer,
                       .own_targets = own_targets,
                       .path = tokens->path};
    *out = w;
    return DLT_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Tokens of window `id`: id % n is the window, id / n the shift towards the beginning. */
static void place(const DltWindows *w, int64_t id, int64_t *first, int64_t *n)
{
    int64_t shift = id / w->n, i = id % w->n;
    if (w->first != NULL) {
        *first = w->first[i];
        *n = w->length[i];
        return;
    }
    int64_t end = (i + 1) * w->window - shift;
    *first = i * w->window - shift;
    if (*first < 0) *first = 0;
    if (end > w->n_token - w->ahead) end = w->n_token - w->ahead;
    *n = end - *first;
}

static DltStatus read_window(const DltWindows *w, int64_t id, int32_t *x, int32_t *y, DltErr *err)
{
    int64_t first, n;
    place(w, id, &first, &n);
    DLT_TRY(w->tokens.get(w->tokens.ctx, first, 1, x, err));
    DLT_TRY(w->tokens.get(w->tokens.ctx, first + w->ahead, n, y, err));
    memcpy(x + 1, y + 1 - w->ahead, (size_t)(n - 1) * sizeof *x);
    for (int64_t i = n; i < w->window; i++) {
        x[i] = w->pad;
        y[i] = DLT_IGNORED;
    }
    return DLT_OK;
}

DltStatus dlt_windows_read(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                           DltErr *err)
{
    const DltWindows *w = ds->state;
    for (int64_t i = 0; i < n; i++)
        DLT_TRY(
            read_window(w, id[i], (int32_t *)x + i * w->window, (int32_t *)y + i * w->window, err));
    return DLT_OK;
}

DltStatus dlt_windows_load(DltArena *arena, DltDataset *ds, DltErr *err)
{
    (void)arena;
    const DltWindows *w = ds->state;
    DLT_TRY(dlt_tokens_each(&w->tokens, w->n_token, NULL, NULL, err));
    DLT_TRY(dlt_fingerprint(ds, err));
    int64_t facts[] = {ds->vocab, w->n_token};
    ds->fingerprint = dlt_hash(facts, sizeof facts, ds->fingerprint);
    return DLT_OK;
}

typedef struct Bytes {
    const DltTokenizer *t;
    int64_t window, bytes, tokens;
} Bytes;

static DltStatus count_bytes(const DltSamples *c, DltErr *err)
{
    (void)err;
    Bytes *b = c->ctx;
    const int32_t *y = c->y;
    for (int64_t i = 0; i < c->n * b->window; i++) {
        int64_t n;
        if (y[i] == DLT_IGNORED) continue;
        (void)dlt_tokenizer_bytes(b->t, y[i], &n);
        b->bytes += n;
        b->tokens++;
    }
    return DLT_OK;
}

DltStatus dlt_split_bytes(const DltSplit *s, double *bytes_per_token, DltErr *err)
{
    const DltDataset *ds = s->ds;
    Bytes b = {.t = ds->tokenizer};
    if (ds->vocab == 0 || b.t == NULL || b.t->state == NULL)
        return dlt_err(
            err, DLT_E_CONFIG,
            "eval.metrics: bits_per_byte needs text and a tokenizer that knows the bytes of "
            "its ids (data.tokenizer)");
    b.window = ds->y_shape.dim[0];
    DLT_TRY(dlt_samples_each(s, count_bytes, &b, err));
    *bytes_per_token = b.tokens > 0 ? (double)b.bytes / (double)b.tokens : 0;
    return DLT_OK;
}
