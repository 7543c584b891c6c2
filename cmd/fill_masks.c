/* predict for models of masked text: each [MASK] in a file is answered with the likeliest token at its place.
 * The text is cut into windows as the training text was; only those with a mark are computed. */
#include "cmd/cmd.h"

#include <jansson.h>

static const char mark[] = "[MASK]";
enum { MARK_BYTES = sizeof mark - 1, MOST_BYTES = 1 << 28 };

typedef struct Text {
    const char *file;
    DltIds ids; /* the mask's id stands for each mark */
    int64_t n_mark, window, vocab;
    int64_t *place, *byte; /* [n_mark]: in ids, and in the file */
    const DltTokenizer *t;
    int32_t mask;
} Text;

static int64_t count_marks(const char *bytes)
{
    int64_t n = 0;
    for (const char *at = bytes; (at = strstr(at, mark)) != NULL; at += MARK_BYTES)
        n++;
    return n;
}

/* The text between the marks becomes ids piece by piece. */
static DltStatus encode(Text *t, const char *bytes, int64_t n, DltErr *err)
{
    int64_t begin = 0;
    for (int64_t i = 0; i <= t->n_mark; i++) {
        const char *next = i < t->n_mark ? strstr(bytes + begin, mark) : NULL;
        int64_t end = next != NULL ? next - bytes : n;
        DLT_TRY(dlt_tokenizer_encode(t->t, t->file, begin, (const uint8_t *)bytes + begin,
                                     end - begin, &t->ids, err));
        if (next == NULL) break;
        if (!dlt_ids_reserve(&t->ids, 1)) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
        t->place[i] = t->ids.n;
        t->byte[i] = end;
        t->ids.v[t->ids.n++] = t->mask;
        begin = end + MARK_BYTES;
    }
    return DLT_OK;
}

static DltStatus read_text(DltArena *arena, Text *t, DltErr *err)
{
    char *bytes = NULL;
    int64_t n = 0;
    DltMark at = {.file = t->file};
    DLT_TRY(
        dlt_file_read(arena, t->file, (DltFileRule){MOST_BYTES, DLT_E_DATA, at}, &bytes, &n, err));
    t->n_mark = count_marks(bytes);
    t->place = DLT_NEW_ARRAY(arena, t->n_mark + 1, int64_t);
    t->byte = DLT_NEW_ARRAY(arena, t->n_mark + 1, int64_t);
    if (t->n_mark > 0) return encode(t, bytes, n, err);
    return dlt_err_at(err, DLT_E_DATA, at,
                      "has no %s; write it where the model is to say what stands there", mark);
}

/* Windows with a mark, one after the other; *window_of[i]: the number of mark i's among them. */
static int32_t *gather_windows(DltArena *arena, const Text *t, int64_t *window_of, int64_t *n)
{
    int32_t *x = DLT_NEW_ARRAY(arena, t->n_mark * t->window, int32_t);
    int64_t last = -1;
    *n = 0;
    for (int64_t i = 0; i < t->n_mark; i++) {
        int64_t w = t->place[i] / t->window, begin = w * t->window, left = t->ids.n - begin;
        if (w != last) {
            int32_t *to = x + (*n)++ * t->window;
            for (int64_t k = 0; k < t->window; k++)
                to[k] = k < left ? t->ids.v[begin + k] : t->t->eot >= 0 ? t->t->eot : 0;
        }
        last = w;
        window_of[i] = *n - 1;
    }
    return x;
}

static DltStatus print_answer(const DltArgs *args, const Text *t, int64_t i, const float *p,
                              DltErr *err)
{
    int32_t best = t->mask == 0 ? 1 : 0;
    int64_t n = 0;
    for (int32_t k = 0; k < t->vocab; k++)
        if (p[k] > p[best] && k != t->mask) best = k;
    const char *bytes = (const char *)dlt_tokenizer_bytes(t->t, best, &n);
    DltText token = dlt_text(args->arena);
    if (n > 0) dlt_text_addn(&token, bytes, (size_t)n);
    if (!args->json) {
        printf("%s,%lld,%lld,\"", t->file, (long long)i, (long long)t->byte[i]);
        for (size_t k = 0; k < token.n; k++)
            printf(token.bytes[k] == '"' ? "\"\"" : "%c", token.bytes[k]);
        printf("\",%.7g\n", (double)p[best]);
        return DLT_OK;
    }
    json_t *row = json_pack("{s:s,s:I,s:I,s:o,s:f}", "file", t->file, "mask", (json_int_t)i, "byte",
                            (json_int_t)t->byte[i], "token", dlt_json_text(&token), "probability",
                            (double)p[best]);
    int failed =
        row == NULL ||
        json_dumpf(row, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    json_decref(row);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

static DltStatus fill(const DltArgs *args, DltSpec *spec, const DltCheckpoint *c, Text *t,
                      DltErr *err)
{
    DltRunOptions options = dlt_run_options(args);
    DltPrediction p = {.n = 0};
    DLT_TRY(read_text(args->arena, t, err));
    int64_t *window_of = DLT_NEW_ARRAY(args->arena, t->n_mark, int64_t);
    p.x = gather_windows(args->arena, t, window_of, &p.n);
    DLT_TRY(dlt_predict(args->arena, spec, c, &p, &options, err));
    int64_t rows = p.n_out / t->window; /* scores of a place */
    if (!args->json) printf("file,mask,byte,token,probability\n");
    for (int64_t i = 0; i < t->n_mark; i++)
        DLT_TRY(print_answer(args, t, i,
                             p.out + window_of[i] * p.n_out + t->place[i] % t->window * rows, err));
    return DLT_OK;
}

DltStatus dlt_fill_masks(const DltArgs *args, DltSpec *spec, const DltCheckpoint *c,
                         const char *file, DltErr *err)
{
    const DltDataset *train = &spec->data.source[DLT_TRAIN].ds;
    Text t = {.file = file,
              .window = train->x_shape.dim[0],
              .vocab = train->vocab,
              .t = spec->data.tokenizer,
              .mask = spec->data.mask.id};
    if (t.t == NULL || t.t->state == NULL)
        return dlt_err(err, DLT_E_CONFIG,
                       "%s: it was trained without a tokenizer (data.tokenizer), so its ids are no "
                       "text",
                       c->path);
    DltStatus status = fill(args, spec, c, &t, err);
    dlt_ids_free(&t.ids);
    return status;
}
