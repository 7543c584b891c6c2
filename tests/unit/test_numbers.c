/* Bad updates: what is left out leaves nothing behind, what is replayed names layer and sample, what
 * is rolled back goes on with the next samples. The odd values come from the data, at each step of a
 * run in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "full.h"
#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

enum { ROWS = 40 };

/* n rows of three finite numbers; of row `bad` (-1: none) the square, or the second product, is not. */
static void write_n_rows(int n, int bad)
{
    FILE *f = fopen("rows.csv", "w");
    assert_non_null(f);
    fprintf(f, "a,b,c,y\n");
    for (int i = 0; i < n; i++)
        fprintf(f, "%s,%g,%g,%d\n", i == bad ? "3e38" : "0.5", 0.1 * i, 1.0 / (1 + i), i % 3);
    assert_int_equal(fclose(f), 0);
}

static void write_rows(int bad)
{
    write_n_rows(ROWS, bad);
}

/* Batch norm behind a dense layer, ema, four samples at a time: 10 updates an epoch. */
static const char *rows_config(const char *guard, int steps, const char *save)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "dltrain: 1\nname: n\nseed: 5\ndata: {train: {csv: rows.csv, target: y}}\n"
             "model: [{dense: 4}, batch_norm, relu, {dense: 1}]\nloss: mse\n"
             "train: {for: %d steps, batch: 4, ema: 0.9, optimizer: {adam: {lr: 1e-3}}, guard: "
             "{%s}}\nlog: {every: 1 steps}\ncheckpoint: {every: %s, keep: {last: 300}}\n",
             steps, guard, save);
    return text;
}

static DltCheckpoint *read_checkpoint(DltArena *arena, const char *path)
{
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    DltStatus status = dlt_checkpoint_read(arena, path, &c, &err);
    if (status != DLT_OK) dlt_err_print(&err, stderr);
    assert_int_equal(status, DLT_OK);
    return c;
}

static void all_finite(const char *path)
{
    DltArena *arena = dlt_arena_new();
    const DltCheckpoint *c = read_checkpoint(arena, path);
    assert_true(c->n_tensor > 8);
    for (int i = 0; i < c->n_tensor; i++) {
        const DltCheckpointTensor *t = &c->tensor[i];
        for (int64_t k = 0; k < dlt_shape_count(&t->shape); k++) {
            double v = t->dtype == DLT_F64 ? ((const double *)t->bytes)[k]
                                           : (double)((const float *)t->bytes)[k];
            if (!isfinite(v)) fail_msg("%s: %s[%lld] is %g", path, t->name, (long long)k, v);
        }
    }
    dlt_arena_free(arena);
}

/* The update in which the order of the seed brings sample `id`, counted from 0. */
static int64_t step_of(int64_t id)
{
    DltDataset ds = {.n = ROWS};
    DltSplit split = {.ds = &ds, .n = ROWS};
    int64_t sample = -1, epoch = 0;
    for (int64_t p = 0; p < ROWS; p++) {
        dlt_order_at(&split, 5, p, &sample, &epoch);
        if (sample == id) return p / 4;
    }
    fail();
    return -1;
}

/* G18. A run of 200 updates with a bad number in each of them in turn (DLT_FULL=1; else in some): it ends at
 * that very update, and its newest checkpoint is finite. */
static void each_step_of_200(void **state)
{
    (void)state;
    enum { STEPS = 200, EACH = 4 };
    DltDataset ds = {.n = STEPS * EACH};
    DltSplit split = {.ds = &ds, .n = ds.n};
    int n = 0;
    for (int step = 0; step < STEPS; step += full() ? 1 : 19) {
        if (!in_part(step)) continue;
        int64_t id = -1, epoch = 0;
        char expected[64];
        dlt_order_at(&split, 5, EACH * step + step % EACH, &id, &epoch);
        write_n_rows(STEPS * EACH, (int)id);
        remove_folder("each");
        Run *r =
            train(rows_config("nonfinite: stop", STEPS, "1 steps"), (DltRunOptions){.out = "each"});
        snprintf(expected, sizeof expected, "step %d: the loss", step + 1);
        if (r->err.n == 0 || strstr(r->err.report[0].text, expected) == NULL)
            fail_msg("step %d: %s", step + 1, r->err.n > 0 ? r->err.report[0].text : "no report");
        done(r, DLT_E_NUMERIC);
        if (step > 0) all_finite("each/last.bin");
        n++;
    }
    print_message(
        "a bad number in each of %d updates: the run ends there, its checkpoint is finite\n", n);
}

/* A bad sample in each of the updates: exit 7 at that very one, its samples, layer and value named,
 * everything saved finite. */
static void stops_at_the_step(void **state)
{
    (void)state;
    for (int bad = 0; bad < ROWS; bad += 3) {
        char expected[64], sample[32];
        int64_t step = step_of(bad);
        write_rows(bad);
        remove_folder("stop");
        Run *r =
            train(rows_config("nonfinite: stop", 10, "1 steps"), (DltRunOptions){.out = "stop"});
        snprintf(expected, sizeof expected, "step %lld: the loss", (long long)step + 1);
        snprintf(sample, sizeof sample, " %d", bad);
        assert_non_null(strstr(r->err.report[0].text, expected));
        assert_int_equal(r->err.n, 3);
        const DltReport *found = &r->err.report[2];
        assert_non_null(strstr(r->err.report[0].text, sample));
        assert_non_null(strstr(found->text, "the first value that is not finite is inf"));
        assert_non_null(strstr(found->text, "of batch_norm.running_var [4], made by"));
        assert_int_equal(found->at.line, 5); /* the layer's place in the config */
        done(r, DLT_E_NUMERIC);
        if (step > 0) all_finite("stop/last.bin");
    }
}

/* A value in the data that is not finite is found in the data. */
static void infinite_data(void **state)
{
    (void)state;
    static const char text[] =
        "dltrain: 1\nname: n\nseed: 5\ndata: {train: {csv: rows.csv, target: y}, normalize: {mean: "
        "0, std: 0.01}}\nmodel: [{dense: 1}]\nloss: mse\n"
        "train: {for: 10 steps, batch: 4, optimizer: {sgd: {lr: 1e-9}}}\n";
    write_rows(17);
    remove_folder("data");
    Run *r = train(text, (DltRunOptions){.out = "data"});
    const char *found = r->err.report[r->err.n - 1].text;
    if (strstr(found, "fetch_x") == NULL || strstr(found, ", sample 17: it is in the data") == NULL)
        fail_msg("%s", found);
    done(r, DLT_E_NUMERIC);
}

/* With the bad update left out, running statistics, averages, moments and metric sums are those of
 * the other updates: every file is finite and so is every row. */
static void skips_leave_no_trace(void **state)
{
    (void)state;
    for (int bad = 0; bad < ROWS; bad += 5) {
        write_rows(bad);
        remove_folder("skip");
        done(train(rows_config("nonfinite: skip", 10, "1 steps"), (DltRunOptions){.out = "skip"}),
             DLT_OK);
        DltArena *arena = dlt_arena_new();
        const DltCheckpoint *c = read_checkpoint(arena, "skip/last.bin");
        assert_int_equal(c->meta.nonfinite_skipped, 1);
        for (int64_t step = 1; step <= 10; step++)
            all_finite(dlt_arena_printf(arena, "skip/step-%lld.bin", (long long)step));
        json_t *list = rows(arena, "skip");
        assert_int_equal(json_array_size(list), 10);
        for (size_t i = 0; i < 10; i++) {
            /* only the row of the update that was left out has no loss */
            const json_t *loss = json_object_get(json_array_get(list, i), "train.loss");
            assert_int_equal(json_is_null(loss), (int64_t)i == step_of(bad));
        }
        json_decref(list);
        dlt_arena_free(arena);
    }
}

/* The weights after a left-out update are bit for bit those from before it. */
static void skipped_update_changes_nothing(void **state)
{
    (void)state;
    int bad = 0;
    while (step_of(bad) != 6)
        bad++;
    write_rows(bad);
    remove_folder("same");
    done(train(rows_config("nonfinite: skip", 7, "1 steps"), (DltRunOptions){.out = "same"}),
         DLT_OK);
    DltArena *arena = dlt_arena_new();
    const DltCheckpoint *a = read_checkpoint(arena, "same/step-6.bin");
    const DltCheckpoint *b = read_checkpoint(arena, "same/step-7.bin");
    for (int i = 0; i < a->n_tensor; i++) {
        const DltCheckpointTensor *t = dlt_checkpoint_find(b, a->tensor[i].name);
        if (memcmp(t->bytes, a->tensor[i].bytes, (size_t)t->n_bytes) != 0)
            fail_msg("%s changed", t->name);
    }
    dlt_arena_free(arena);
}

/* Back to the checkpoint from before, and on with the samples behind the bad ones; a cut run resumed
 * does the same. */
static void rolls_back(void **state)
{
    (void)state;
    int bad = 0;
    while (step_of(bad) != 6)
        bad++;
    write_rows(bad);
    remove_folder("back");
    remove_folder("cut");
    const char *text = rows_config("nonfinite: rollback", 12, "4 steps");
    Run *r = train(text, (DltRunOptions){.out = "back"});
    done(r, DLT_OK);
    DltArena *arena = dlt_arena_new();
    const DltCheckpoint *c = read_checkpoint(arena, "back/last.bin");
    assert_int_equal(c->meta.rollbacks, 1);
    assert_int_equal(c->meta.step, 12);
    assert_int_equal(c->meta.position, (12 + 3) * 4); /* updates 5 and 6 twice, the bad one once */
    all_finite("back/last.bin");
    json_t *list = rows(arena, "back");
    assert_int_equal(json_array_size(list), 12); /* each step once */
    json_decref(list);
    for (int64_t cut = 1; cut < 12; cut += 2) {
        remove_folder("cut");
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = cut}), DLT_STOPPED);
        done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        if (cut <= 4 || cut > 6) same_tensors("back/last.bin", "cut/last.bin");
    }
    /* nothing saved yet, and too often */
    remove_folder("back");
    r = train(rows_config("nonfinite: rollback", 12, "100 steps"), (DltRunOptions){.out = "back"});
    assert_non_null(strstr(r->err.report[0].text, "there is no checkpoint to go back to"));
    done(r, DLT_E_NUMERIC);
    remove_folder("back");
    r = train(rows_config("nonfinite: rollback, limit: 1", 40, "4 steps"),
              (DltRunOptions){.out = "back"});
    assert_non_null(strstr(r->err.report[0].text, "after as many rollbacks as train.guard.limit"));
    done(r, DLT_E_NUMERIC);
    dlt_arena_free(arena);
}

/* A finite loss far above the last ones; the window is part of the state. */
static void loss_spikes(void **state)
{
    (void)state;
    FILE *f = fopen("rows.csv", "w");
    assert_non_null(f);
    fprintf(f, "a,b,c,y\n");
    for (int i = 0; i < ROWS; i++)
        fprintf(f, "%g,%g,1,%g\n", 0.01 * i, 0.02 * i, step_of(i) == 7 ? 1000.5 : i % 3);
    assert_int_equal(fclose(f), 0);
    const char *guard = "nonfinite: skip, loss_spike: 4, window: 3";
    const char *text = rows_config(guard, 9, "1 steps");
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    DltArena *arena = dlt_arena_new();
    assert_int_equal(read_checkpoint(arena, "whole/step-7.bin")->meta.nonfinite_skipped, 0);
    assert_int_equal(read_checkpoint(arena, "whole/step-8.bin")->meta.nonfinite_skipped, 1);
    for (int64_t cut = 1; cut < 9; cut++) {
        remove_folder("cut");
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = cut}), DLT_STOPPED);
        done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        same_tensors("whole/last.bin", "cut/last.bin");
        assert_int_equal(read_checkpoint(arena, "cut/last.bin")->meta.nonfinite_skipped, 1);
    }
    remove_folder("cut");
    Run *r =
        train(rows_config("loss_spike: 4, window: 3", 9, "1 steps"), (DltRunOptions){.out = "cut"});
    assert_non_null(strstr(r->err.report[0].text, "step 8: the loss jumped to"));
    done(r, DLT_E_NUMERIC);
    dlt_arena_free(arena);
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_of_200),
        cmocka_unit_test(stops_at_the_step),
        cmocka_unit_test(infinite_data),
        cmocka_unit_test(skips_leave_no_trace),
        cmocka_unit_test(skipped_update_changes_nothing),
        cmocka_unit_test(rolls_back),
        cmocka_unit_test(loss_spikes),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
