/* Tokens cut into windows, which `text` and `tokens` share. A sample is a window of T tokens x and, for
 * each, the token behind it y (or the token itself, where own_targets asks for that). Windows neither overlap nor leave anything out: N tokens give
 * ceil((N - 1) / T) of them, every token but the first is the target of exactly one place, and places
 * behind the end of the text have the target DLT_IGNORED. Private to datasets/. */
#ifndef DLT_WINDOWS_H
#define DLT_WINDOWS_H

#include "api/tokenizer.h"
#include "datasets/reader.h"

enum { DLT_DOCS_PACK, DLT_DOCS_SPLIT };
enum { DLT_SHIFT_NONE, DLT_SHIFT_EPOCH };

typedef struct DltWindowOpts {
    int64_t window;
    DltSpan limit;
    int documents, shift;
} DltWindowOpts;
#define DLT_WINDOW_MEMBERS                                                                         \
    int64_t window;                                                                                \
    DltSpan limit;                                                                                 \
    int documents, shift;                                                                          \
    const DltYaml *tokenizer
#define DLT_WINDOW_ROWS(T)                                                                         \
    DLT_INT(T, window, .lo = 1, .hi = 1 << 24, .unit = "tokens",                                   \
            .help = "tokens of a sample; written here or once for all sources as data.window",     \
            .example = "window: 1024"),                                                            \
        DLT_TREE(T, tokenizer,                                                                     \
                 .help = "bytes, chars, {bpe: FILE} or gpt2; written here or as data.tokenizer",   \
                 .example = "tokenizer: chars"),                                                   \
        DLT_SPAN(T, limit, .help = "only the first so many tokens",                                \
                 .example = "limit: 2e6 tokens"),                                                  \
        DLT_ENUM(T, documents, .def = "pack", .choices = dlt_documents_choices,                    \
                 .help = "pack: a window may hold the end of one document and the beginning of "   \
                         "the next; split: it holds one, and the rest is padding",                 \
                 .example = "documents: split"),                                                   \
        DLT_ENUM(T, shift, .def = "none", .choices = dlt_shift_choices,                            \
                 .help = "epoch: in training, each epoch moves the windows by a random number of " \
                         "tokens, so that the same text is cut differently; the last tokens, "     \
                         "fewer than a window, are then left out of that epoch",                   \
                 .example = "shift: epoch")
#define DLT_WINDOW_OPTS(c) ((DltWindowOpts){(c)->window, (c)->limit, (c)->documents, (c)->shift})
extern const DltEnum dlt_documents_choices[], dlt_shift_choices[];

/* Where the tokens are. get copies tokens [first, first + n) and checks them against the vocabulary. */
typedef struct DltTokens {
    DltStatus (*get)(const void *ctx, int64_t first, int64_t n, int32_t *out, DltErr *err);
    const void *ctx;
    int64_t n;        /* tokens in all */
    int64_t vocab;    /* ids are below */
    int32_t eot;      /* ends a document; -1: none */
    const char *path; /* for messages */
} DltTokens;

typedef struct DltWindows {
    DltTokens tokens;
    int64_t n_token, window, n; /* tokens in use, T, windows */
    int64_t ahead;              /* y is so many tokens behind x: 1, or 0 for own targets */
    int32_t pad;
    const int64_t *first; /* documents: split: place and number of tokens of each window */
    const int32_t *length;
} DltWindows;

/* The options agree with each other (o->at is the source's place). */
DltStatus dlt_windows_check(const DltOpts *o, const DltWindowOpts *c, DltErr *err) DLT_CHECKED;
/* Cuts the tokens and describes them as a data set. Too few tokens for one window
 * and its target are DATA. documents: split reads all tokens once. */
DltStatus dlt_windows_describe(DltArena *arena, const DltOpts *o, const DltWindowOpts *c,
                               const DltTokens *tokens, DltWindows **w, DltDataset *ds,
                               DltErr *err) DLT_CHECKED;
/* DltDatasetDef.read for a data set whose state is a DltWindows. */
DltStatus dlt_windows_read(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                           DltErr *err) DLT_CHECKED;
/* Reads every token once, and so checks it; then the fingerprint. */
DltStatus dlt_windows_load(DltArena *arena, DltDataset *ds, DltErr *err) DLT_CHECKED;
/* Visits all tokens in order, about a megabyte at a time. */
DltStatus dlt_tokens_each(const DltTokens *t, int64_t n_token,
                          void (*visit)(void *ctx, int64_t first, const int32_t *id, int64_t n),
                          void *ctx, DltErr *err) DLT_CHECKED;

#endif
