/* What both the fuzzer and the corpus test do with one input: its first byte chooses a reader, the rest is
 * the file. Formats of two files have the length of the second (labels) in the next two bytes, and
 * the labels first. Whatever the bytes, reading ends well or with one report about the data. */
#ifndef DATA_TARGET_H
#define DATA_TARGET_H

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

static inline DltStatus data_csv(DltArena *arena, const void *bytes, int64_t n, const char *yaml,
                                 DltErr *err)
{
    DltYaml *tree = NULL;
    DltOpts o = {0};
    const DltDatasetDef *def = &dlt_dataset_csv;
    DLT_TRY(dlt_yaml_parse(arena, "options", yaml, (int64_t)strlen(yaml), &tree, err));
    DLT_TRY(dlt_schema_read(arena, def->fields, def->opt_size, tree, "csv", tree->at, &o, err));
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

static inline void data_target(const uint8_t *data, size_t size)
{
    static const DataCheck checks[] = {data_idx,         data_npy,       dlt_npz_check,
                                       data_csv_plain,   data_csv_loose, data_csv_values,
                                       dlt_cifar10_check};
    if (size == 0) return;
    size_t which = data[0] % (sizeof checks / sizeof checks[0]);
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltStatus status = checks[which](arena, data + 1, (int64_t)size - 1, &err);
    DLT_BUG_ON(status != DLT_OK && (err.n != 1 || err.report[0].status != status));
    DLT_BUG_ON(status != DLT_OK && status != DLT_E_DATA && status != DLT_E_CONFIG);
    DLT_BUG_ON(status == DLT_OK && err.n != 0);
    dlt_arena_free(arena);
}

#endif
