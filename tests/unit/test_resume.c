/* Resume at every step (T-RESUME), repeats (T-DET) and what a resume may change. Six set-ups of 200
 * updates are cut at each of them and go on: weights, optimizer, averages, running statistics, best
 * and patience, guard window and rows have the bits of the unbroken run. A sample by default;
 * DLT_FULL=1: 200 steps x 6 set-ups, 100 repeats x 10 set-ups. */
#include "full.h"
#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

enum { STEPS = 200 };

/* Set-ups that between them have every kind of state. */
static const Setup long_setups[] = {
    {"sgd, ema, clip", "", "12",
     "sgd: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-3}",
     "  ema: 0.9\n  clip: {norm: 1}\n", ""},
    {"adam, loader threads", "  cache: host\n  threads: 2\n", "12", "adam: {lr: 0.01}",
     "  ema: 0.9\n", ""},
    {"adamw, micro batches, groups", "", "{global: 12, micro: 4}",
     "adamw: {lr: 0.01}, groups: [{match: \"*.bias\", weight_decay: 0, lr: x0.1}]", "", ""},
    {"rmsprop, last batch dropped", "  last: drop\n", "12",
     "rmsprop: {lr: 0.01, centered: true, momentum: 0.9}", "", ""},
    {"lion, early stopping", "", "7", "lion: {lr: 0.001}",
     "  stop_early: {patience: 90, metric: val.f1}\n", ""},
    {"spikes left out", "", "12", "sgd: {lr: 2.5}",
     "  guard: {nonfinite: skip, loss_spike: 1.2, window: 5}\n", ""},
};
enum { N_LONG = sizeof long_setups / sizeof long_setups[0] };

static const char *long_config(DltArena *arena, const Setup *s)
{
    char *text = (char *)setup_config(arena, s);
    char *at = strstr(text, "for: 20 steps");
    return dlt_arena_printf(arena, "%.*sfor: %d steps%s", (int)(at - text), text, STEPS,
                            at + strlen("for: 20 steps"));
}

static DltCheckpoint *read_file(DltArena *arena, const char *path)
{
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, path, &c, &err), DLT_OK);
    return c;
}

static void same_state(const char *a, const char *b)
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    if (dlt_checkpoint_same(read_file(arena, a), read_file(arena, b), &err) != DLT_OK)
        fail_msg("%s", err.report[0].text);
    dlt_arena_free(arena);
}

static void cut_everywhere(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < N_LONG; i++) {
        DltArena *arena = dlt_arena_new();
        const char *text = long_config(arena, &long_setups[i]);
        remove_folder("whole");
        done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
        for (int64_t cut = 1 + (full() ? 0 : 7 * i); cut < STEPS; cut += full() ? 1 : 67) {
            if (!in_part(cut)) continue;
            n++;
            remove_folder("cut");
            done(train(text, (DltRunOptions){.out = "cut", .stop_at = cut}), DLT_STOPPED);
            done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
            same_state("whole/last.bin", "cut/last.bin");
            same_state("whole/best.bin", "cut/best.bin");
            assert_true(same_rows("whole", "cut") > 60);
        }
        dlt_arena_free(arena);
    }
    print_message("%d cuts of %d set-ups of %d updates: all the same bits\n", n, N_LONG, STEPS);
}

static void repeats(void **state)
{
    (void)state;
    int n = full() ? 100 : 2, n_run = 0;
    for (int i = 0; i < N_SETUP + 2; i++) {
        DltArena *arena = dlt_arena_new();
        const char *text = i < N_SETUP ? setup_config(arena, &setups[i])
                                       : long_config(arena, &long_setups[4 * (i - N_SETUP) + 1]);
        remove_folder("first");
        done(train(text, (DltRunOptions){.out = "first"}), DLT_OK);
        for (int k = 1; k < n; k++) {
            if (!in_part(k)) continue;
            n_run++;
            remove_folder("again");
            done(train(text, (DltRunOptions){.out = "again", .eager = k % 2 == 1}), DLT_OK);
            same_state("first/last.bin", "again/last.bin");
        }
        dlt_arena_free(arena);
    }
    print_message("%d repeats: all the same bits\n", n_run);
}

/* C53: the best score, its step and early stopping's count are state. The runs after the cut are worse,
 * so best.bin must stay as it is. */
static void c53_best_survives(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const char best[] =
        "checkpoint: {every: 4 steps, keep: {last: 2, best: 1 by val.loss min}}";
    const char *text = config(arena, "", "12", "sgd: {lr: 0.05}", "", "");
    assert_non_null(strstr(text, best));
    done(train(text, (DltRunOptions){.out = "best", .stop_at = 15}), DLT_STOPPED);
    const DltCheckpoint *before = read_file(arena, "best/best.bin");
    const DltCheckpoint *last = read_file(arena, "best/last.bin");
    assert_true(last->meta.best_step > 0);
    assert_true(last->meta.best_value == before->meta.best_value);
    /* a rate so large that every later evaluation is worse */
    const char *worse = config(arena, "", "12", "sgd: {lr: 10}", "", "");
    Run *r = resume(worse, "best/last.bin", (DltRunOptions){0});
    done(r, DLT_OK);
    same_state("best/best.bin", before->path);
    const DltCheckpoint *after = read_file(arena, "best/best.bin");
    assert_int_equal(after->meta.step, before->meta.step);
    assert_int_equal(read_file(arena, "best/last.bin")->meta.best_step, before->meta.step);
    dlt_arena_free(arena);
}

/* C49, C52: each key's class decides, never silence. The lineage says what was changed. */
static void c52_classes(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *class; /* class NULL: refused */
    } rows_[] = {
        {"sgd: {lr: 0.1}", "sgd: {lr: 0.2}", "train.optimizer.sgd.lr: 0.1 -> 0.2 (recorded)"},
        {"sgd: {lr: 0.1}", "sgd: {lr: 0.1, momentum: 0.5}", NULL}, /* other states */
        {"sgd: {lr: 0.1}", "adam: {lr: 0.1}", NULL},
        {"sgd: {lr: 0.1}", "lion: {lr: 0.1}", NULL},
        {"for: 20 steps", "for: 21 steps", "train.for: 20 steps -> 21 steps (free)"},
        {"every: 3 steps", "every: 2 steps", "log.every: 3 steps -> 2 steps (free)"},
        {"seed: 3", "seed: 4", NULL},
        {"dropout: 0.3", "dropout: 0.4", NULL},
        {"filters: 4", "filters: 5", NULL},
        {"pad_crop: 1", "pad_crop: 2", NULL},
        {"cross_entropy", "{cross_entropy: {label_smoothing: 0.1}}", NULL},
        {"cosine: {to: 0}", "cosine: {to: 1e-3}", "(recorded)"},
        {"batch: 12", "batch: 24", "(recorded)"},
    };
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        DltArena *arena = dlt_arena_new();
        const char *text = config(arena, "", "12", "sgd: {lr: 0.1}", "", "");
        const char *at = strstr(text, rows_[i].from);
        assert_non_null(at);
        const char *changed = dlt_arena_printf(arena, "%.*s%s%s", (int)(at - text), text,
                                               rows_[i].to, at + strlen(rows_[i].from));
        remove_folder("class");
        done(train(text, (DltRunOptions){.out = "class", .stop_at = 7}), DLT_STOPPED);
        Run *r = resume(changed, "class/last.bin", (DltRunOptions){.stop_at = 9});
        if (rows_[i].class == NULL) {
            done(r, DLT_E_CHECKPOINT);
        } else {
            done(r, DLT_STOPPED);
            const char *lineage = read_file(arena, "class/last.bin")->meta.lineage;
            if (lineage == NULL || strstr(lineage, rows_[i].class) == NULL)
                fail_msg("%s: %s", rows_[i].to, lineage);
            assert_non_null(strstr(lineage, "step 7: resumed by"));
        }
        dlt_arena_free(arena);
    }
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_everywhere),
        cmocka_unit_test(repeats),
        cmocka_unit_test(c53_best_survives),
        cmocka_unit_test(c52_classes),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
