/* What the fuzzers and the corpus test do with one input: its first byte chooses a reader, the rest is
 * the file. Formats of two files have the length of the second (labels) in the next two bytes, and
 * the labels first. Whatever the bytes, reading ends well or with one report about the data. */
#ifndef DATA_TARGET_H
#define DATA_TARGET_H

#include "api/tokenizer.h"
#include "datasets/reader.h"

typedef DltStatus (*DataCheck)(DltArena *arena, const void *bytes, int64_t n, DltErr *err);

static inline const uint8_t *data_labels(const uint8_t *bytes, int64_t *n, int64_t *n_y)
{
    *n_y = *n < 2 ? 0 : bytes[0] | bytes[1] << 8;
    if (*n < 2) return bytes;
    if (*n_y > *n - 2) *n_y = *n - 2;
    *n -= 2 + *n_y;
    return bytes + 2;
}

static inline DltStatus data_idx(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    int64_t n_y;
    const uint8_t *y = data_labels(bytes, &n, &n_y);
    return dlt_idx_check(arena, y + n_y, n, y, n_y, err);
}

static inline DltStatus data_npy(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    int64_t n_y;
    const uint8_t *y = data_labels(bytes, &n, &n_y);
    return dlt_npy_check(arena, y + n_y, n, y, n_y, err);
}

/* Options of a format as a config writes them. */
static inline DltStatus data_options(DltArena *arena, const DltDatasetDef *def, const char *yaml,
                                     DltOpts *o, DltErr *err)
{
    DltYaml *tree = NULL;
    DLT_TRY(dlt_yaml_parse(arena, "options", yaml, (int64_t)strlen(yaml), &tree, err));
    return dlt_schema_read(arena, def->fields, def->opt_size, tree, (DltWhere){def->name, tree->at},
                           o, err);
}

static inline DltStatus data_csv(DltArena *arena, const void *bytes, int64_t n, const char *yaml,
                                 DltErr *err)
{
    DltOpts o = {0};
    DLT_TRY(data_options(arena, &dlt_dataset_csv, yaml, &o, err));
    return dlt_csv_check(arena, bytes, n, &o, err);
}

static inline DltStatus data_csv_plain(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    return data_csv(arena, bytes, n, "{csv: t, target: y}", err);
}

static inline DltStatus data_csv_loose(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    return data_csv(arena, bytes, n,
                    "{csv: t, target: c1, target_type: classes, categorical: c2, missing: mean, "
                    "separator: ';', header: false}",
                    err);
}

static inline DltStatus data_csv_values(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    return data_csv(arena, bytes, n,
                    "{csv: t, target: [y, z], missing: drop, separator: space, ignore: id}", err);
}

/* Bad records are left out, up to a limit. */
static inline DltStatus data_csv_skip(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    DltOpts o = {0};
    DltBad bad = {.arena = arena, .limit = 5};
    DLT_TRY(data_options(arena, &dlt_dataset_csv, "{csv: t, target: y, target_type: classes}", &o,
                         err));
    DltStatus status = dlt_csv_check_bad(arena, bytes, n, &o, &bad, err);
    DLT_BUG_ON(bad.n > bad.limit);
    return status;
}

static inline DltStatus data_npy_skip(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    int64_t n_y;
    const uint8_t *y = data_labels(bytes, &n, &n_y);
    DltBad bad = {.arena = arena, .limit = 3};
    DltStatus status = dlt_npy_check_bad(arena, y + n_y, n, y, n_y, &bad, err);
    DLT_BUG_ON(bad.n > bad.limit);
    return status;
}

static inline DltStatus data_ids(DltArena *arena, const void *bytes, int64_t n, const char *yaml,
                                 DltErr *err)
{
    DltOpts o = {0};
    DLT_TRY(data_options(arena, &dlt_dataset_tokens, yaml, &o, err));
    return dlt_tokens_check(arena, bytes, n, &o, err);
}

static inline DltStatus data_tokens(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    return data_ids(arena, bytes, n, "{tokens: t, window: 4}", err);
}

static inline DltStatus data_tokens_split(DltArena *arena, const void *bytes, int64_t n,
                                          DltErr *err)
{
    return data_ids(arena, bytes, n,
                    "{tokens: t, window: 3, layout: raw32, eot: 0, documents: split, vocab: 1000}",
                    err);
}

static inline DltStatus data_tokens_header(DltArena *arena, const void *bytes, int64_t n,
                                           DltErr *err)
{
    return data_ids(arena, bytes, n, "{tokens: t, window: 2, layout: llmc, limit: 9 tokens}", err);
}

/* A text whose characters are learnt first. */
static inline DltStatus data_text(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    DltOpts o = {0}, own = {0};
    DltTokenizer t = {.def = dlt_tokenizer_find("chars"), .path = "chars", .eot = -1};
    DLT_TRY(data_options(arena, &dlt_dataset_text, "{text: t, window: 4}", &o, err));
    DLT_TRY(dlt_schema_read(arena, t.def->fields, t.def->opt_size, NULL,
                            (DltWhere){"chars", DLT_NO_MARK}, &own, err));
    DLT_TRY(t.def->open(arena, &own, ".", &t, err));
    if (t.def->learn) DLT_TRY(t.def->learn(arena, &t, "text", bytes, n, err));
    return dlt_text_check(arena, bytes, n, &o, &t, err);
}

/* The JSON text of a tokenizer, as checkpoints and files hold it. */
static inline DltStatus data_tokenizer(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    DltTokenizer t = {.eot = -1};
    DltIds ids = {0};
    DLT_TRY(dlt_tokenizer_parse(arena, "tokenizer.json", bytes, n, &t, err));
    DltStatus status =
        dlt_tokenizer_encode(&t, "text", 0, (const uint8_t *)"the \xc3\xa4 cat", 10, &ids, err);
    dlt_ids_free(&ids);
    return status;
}

typedef struct DataFormat {
    const char *name; /* its fuzzer takes all formats whose names begin like it */
    DataCheck check;
} DataFormat;
/* New ones stand at the end: the corpus counts on the places. */
static const DataFormat data_formats[] = {
    {"idx", data_idx},
    {"npy", data_npy},
    {"npz", dlt_npz_check},
    {"csv", data_csv_plain},
    {"csv_loose", data_csv_loose},
    {"csv_values", data_csv_values},
    {"cifar", dlt_cifar10_check},
    {"tokens", data_tokens},
    {"tokens_split", data_tokens_split},
    {"tokens_header", data_tokens_header},
    {"text", data_text},
    {"vocabulary", data_tokenizer},
    {"csv_skip", data_csv_skip},
    {"npy_skip", data_npy_skip},
};
enum { N_DATA_FORMAT = sizeof data_formats / sizeof data_formats[0] };

static inline void data_target(const uint8_t *data, size_t size)
{
    if (size == 0) return;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltStatus status =
        data_formats[data[0] % N_DATA_FORMAT].check(arena, data + 1, (int64_t)size - 1, &err);
    DLT_BUG_ON(status != DLT_OK && (err.n < 1 || err.n > 2 || err.report[0].status != status));
    DLT_BUG_ON(err.n == 2 && !err.report[1].note);
    DLT_BUG_ON(status != DLT_OK && status != DLT_E_DATA && status != DLT_E_CONFIG);
    DLT_BUG_ON(status == DLT_OK && err.n != 0);
    dlt_arena_free(arena);
}

/* The same for one format only: every first byte is made to choose one of its readers. */
static inline int data_target_of(const char *format, const uint8_t *data, size_t size)
{
    uint8_t choice[N_DATA_FORMAT], n = 0;
    for (uint8_t i = 0; i < N_DATA_FORMAT; i++)
        if (strncmp(data_formats[i].name, format, strlen(format)) == 0) choice[n++] = i;
    if (size == 0 || size > 1 << 20) return -1;
    DltArena *arena = dlt_arena_new();
    uint8_t *copy = DLT_NEW_ARRAY(arena, (int64_t)size, uint8_t);
    memcpy(copy, data, size);
    copy[0] = choice[data[0] % n];
    data_target(copy, size);
    dlt_arena_free(arena);
    return 0;
}

#endif
