/* What the tests of data.on_bad share: small runs over a set with bad records and over the same set without
 * them, which must be alike, and the ledger between. */
#ifndef TEST_ON_BAD_H
#define TEST_ON_BAD_H

#include "runs.h"

static inline void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline const char *data_config(DltArena *arena, const char *data, const char *outputs,
                                      const char *loss)
{
    return dlt_arena_printf(
        arena,
        "dltrain: 1\nname: b\nseed: 4\ndata: {%s}\nmodel: [flatten, {dense: 6}, tanh, {dense: "
        "%s}]\nloss: %s\ntrain: {for: 3 epochs, batch: 4, optimizer: {adam: {lr: 0.01}}}\n"
        "log: {every: 1 steps}\n",
        data, outputs, loss);
}

static inline char *text_of(DltArena *arena, const char *path)
{
    DltErr err;
    dlt_err_init(&err);
    char *text = NULL;
    int64_t n = 0;
    DltStatus status =
        dlt_file_read(arena, path, (DltFileRule){1 << 24, DLT_E_BUG, DLT_NO_MARK}, &text, &n, &err);
    return status == DLT_OK ? text : NULL;
}

/* Weights and rows; bad records still take room on the device. */
static inline void same_training(const char *a, const char *b)
{
    DltArena *arena = dlt_arena_new();
    same_tensors(dlt_arena_printf(arena, "%s/last.bin", a),
                 dlt_arena_printf(arena, "%s/last.bin", b));
    json_t *x = rows(arena, a), *y = rows(arena, b);
    assert_true(json_array_size(x) > 3);
    for (size_t i = 0; i < json_array_size(x); i++) {
        json_object_del(json_array_get(x, i), "memory_bytes");
        json_object_del(json_array_get(y, i), "memory_bytes");
    }
    assert_true(json_equal(x, y));
    json_decref(x);
    json_decref(y);
    dlt_arena_free(arena);
}

/* The config is read and the data are loaded: DATA with this in the first report. */
static inline void refused(const char *text, const char *part)
{
    Run *r = new_run();
    DltSpec *spec = NULL;
    DltStatus status =
        dlt_spec_read_stored(r->arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "."},
                             0, NULL, &spec, &r->err);
    if (status == DLT_OK) status = dlt_spec_load_data(spec, 7, &r->err);
    if (status != DLT_E_DATA || strstr(r->err.report[0].text, part) == NULL)
        fail_msg("status %d: '%s' is not in '%s'", (int)status, part, r->err.report[0].text);
    dlt_arena_free(r->arena);
}

/* The records of skipped.jsonl, in order; each line is strict JSON with its reason. */
static inline void check_ledger(const char *folder, const char *set, const int *record,
                                const char **why, int n)
{
    DltArena *arena = dlt_arena_new();
    char *text = text_of(arena, dlt_arena_printf(arena, "%s/skipped.jsonl", folder));
    if (text == NULL) fail_msg("%s has no skipped.jsonl", folder);
    int seen = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, seen++) {
        *end = '\0';
        json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(o);
        assert_true(seen < n);
        assert_string_equal(json_string_value(json_object_get(o, "set")), set);
        assert_int_equal(json_integer_value(json_object_get(o, "record")), record[seen]);
        if (strstr(json_string_value(json_object_get(o, "why")), why[seen]) == NULL)
            fail_msg("'%s' is not in %s", why[seen], line);
        assert_non_null(json_string_value(json_object_get(o, "file")));
        json_decref(o);
    }
    assert_int_equal(seen, n);
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    const char *last = dlt_arena_printf(arena, "%s/last.bin", folder);
    assert_int_equal(dlt_checkpoint_read(arena, last, &c, &err), DLT_OK);
    assert_non_null(c->meta.skipped);
    for (int i = 0; i < n; i++)
        assert_non_null(strstr(c->meta.skipped, why[i]));
    dlt_arena_free(arena);
}

typedef struct Pair { /* a data section with bad records, and the same without them */
    const char *bad, *clean, *outputs, *loss, *set;
    int n, record[12];
    const char *why[12];
} Pair;

static inline void compare_pair(const Pair *p)
{
    DltArena *arena = dlt_arena_new();
    const char *clean = data_config(arena, p->clean, p->outputs, p->loss);
    const char *bad = data_config(arena, p->bad, p->outputs, p->loss);
    const char *skip = data_config(arena, dlt_arena_printf(arena, "%s, on_bad: skip", p->bad),
                                   p->outputs, p->loss);
    remove_folder("clean");
    remove_folder("skip");
    remove_folder("cut");
    done(train(clean, (DltRunOptions){.out = "clean"}), DLT_OK);
    refused(bad, p->why[0]);
    done(train(skip, (DltRunOptions){.out = "skip"}), DLT_OK);
    same_training("clean", "skip");
    check_ledger("skip", p->set, p->record, (const char **)p->why, p->n);
    assert_int_not_equal(access("clean/skipped.jsonl", F_OK), 0);
    done(train(skip, (DltRunOptions){.out = "cut", .stop_at = 3}), DLT_STOPPED);
    done(resume(skip, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
    same_training("clean", "cut");
    check_ledger("cut", p->set, p->record, (const char **)p->why, p->n);
    dlt_arena_free(arena);
}

#endif
