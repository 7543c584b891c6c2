/* Whole runs on small made-up data. A run that is cut anywhere and resumed ends with the same bits
 * as the unbroken one: weights, optimizer, running statistics, averages, rows. Divergence ends a run
 * at its step and leaves the newest checkpoint alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

/* The unbroken run in `whole`, then the same cut after `cut` updates and resumed. */
static void cut_and_resume(const char *text, const char *whole, int64_t cut)
{
    char whole_last[64], whole_best[64];
    snprintf(whole_last, sizeof whole_last, "%s/last.bin", whole);
    snprintf(whole_best, sizeof whole_best, "%s/best.bin", whole);
    remove_folder("cut");
    done(train(text, (DltRunOptions){.out = "cut", .stop_at = cut}), DLT_STOPPED);
    done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
    same_tensors(whole_last, "cut/last.bin");
    same_tensors(whole_best, "cut/best.bin");
    assert_int_equal(same_rows(whole, "cut"), 9); /* 3 5 6 9 10 12 15 18 20 */
}

/* ---- tests -------------------------------------------------------------------------------- */

static void resume_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < N_SETUP; i++) {
        DltArena *arena = dlt_arena_new();
        const char *text = setup_config(arena, &setups[i]);
        remove_folder("whole");
        done(train(text, (DltRunOptions){.out = "whole", .poison = i % 2 == 0}), DLT_OK);
        cut_and_resume(text, "whole", 10);
        cut_and_resume(text, "whole", 7);
        dlt_arena_free(arena);
    }
}

static void cut_at_every_step(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    for (int64_t cut = 1; cut < 20; cut++)
        cut_and_resume(text, "whole", cut);
    /* three cuts in one run */
    remove_folder("cut");
    done(train(text, (DltRunOptions){.out = "cut", .stop_at = 5}), DLT_STOPPED);
    done(resume(text, "cut/last.bin", (DltRunOptions){.stop_at = 6}), DLT_STOPPED);
    done(resume(text, "cut/last.bin", (DltRunOptions){.stop_at = 15}), DLT_STOPPED);
    done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
    same_tensors("whole/last.bin", "cut/last.bin");
    assert_int_equal(same_rows("whole", "cut"), 9);
    /* from an older checkpoint: what came behind it is done again */
    done(resume(text, "cut/step-16.bin", (DltRunOptions){0}), DLT_OK);
    same_tensors("whole/last.bin", "cut/last.bin");
    assert_int_equal(same_rows("whole", "cut"), 9);
    /* a finished run has nothing left to do and says the same results again */
    Run *again = resume(text, "cut/last.bin", (DltRunOptions){0});
    assert_true(again->result.n > 3);
    assert_int_equal(again->result.step, 20);
    done(again, DLT_OK);
    same_tensors("whole/last.bin", "cut/last.bin");
    dlt_arena_free(arena);
}

/* Loader threads, memory for batches and poison change nothing; a longer run goes on from there. */
static void same_for_every_loader(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const char *const data[] = {"", "  cache: host\n", "  cache: host\n  threads: 1\n",
                                       "  cache: host\n  threads: 8\n"};
    for (int i = 0; i < 4; i++) {
        const char *text = config(arena, data[i], "12", setups[0].optimizer, "  ema: 0.9\n", "");
        const char *out = dlt_arena_printf(arena, "loader-%d", i);
        done(train(text, (DltRunOptions){.out = out, .eager = i == 1}), DLT_OK);
        same_tensors("loader-0/last.bin", dlt_arena_printf(arena, "%s/last.bin", out));
    }
    dlt_arena_free(arena);
}

static double result_of(const Run *r, const char *name)
{
    for (int i = 0; i < r->result.n; i++)
        if (strcmp(r->result.name[i], name) == 0) return r->result.value[i];
    return (double)NAN;
}

/* 16 samples whole, in 4 and in 16 parts: the same loss and weights within rounding (f32: 1e-6). */
static void micro_batches_agree(void **state)
{
    (void)state;
    static const char text[] =
        "dltrain: 1\nname: m\nseed: 3\n"
        "data: {train: {synthetic: {shape: [8], classes: 3, samples: 16}}}\n"
        "model: [{dense: 16}, tanh, {dense: 3}]\nloss: cross_entropy\n"
        "train: {for: 1 steps, batch: {global: 16, micro: %d}, optimizer: {sgd: {lr: 0.5}}}\n";
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *first = NULL;
    double loss = 0;
    for (int micro = 16; micro > 0; micro /= 4) {
        char config_text[sizeof text + 16], out[32];
        snprintf(config_text, sizeof config_text, text, micro);
        snprintf(out, sizeof out, "micro-%d", micro);
        Run *r = train(config_text, (DltRunOptions){.out = out});
        DltCheckpoint *c = NULL;
        const char *path = dlt_arena_printf(arena, "%s/last.bin", out);
        assert_int_equal(dlt_checkpoint_read(arena, path, &c, &err), DLT_OK);
        if (micro == 16) {
            first = c;
            loss = result_of(r, "train.loss");
        }
        assert_float_equal(result_of(r, "train.loss"), loss, 1e-6);
        assert_true(loss > 0.5 && loss < 3);
        const float *a = dlt_checkpoint_find(first, "dense.weight")->bytes;
        const float *b = dlt_checkpoint_find(c, "dense.weight")->bytes;
        for (int i = 0; i < 128; i++)
            assert_float_equal(a[i], b[i], 1e-6);
        done(r, DLT_OK);
    }
    dlt_arena_free(arena);
}

/* A checkpoint gives the figures that the run gave; --init takes its weights. */
static void evaluate_and_init(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    for (int ema = 0; ema < 2; ema++) {
        const char *text = config(arena, "", "12", setups[0].optimizer, "  ema: 0.9\n", "");
        if (ema) { /* the eval section stands before */
            char *at = strstr(text, "metrics: [top1, f1]}");
            text = dlt_arena_printf(arena, "%.*smetrics: [top1, f1], weights: ema}%s",
                                    (int)(at - text), text, at + 20);
        }
        const char *out = dlt_arena_printf(arena, "eval-%d", ema);
        Run *r = train(text, (DltRunOptions){.out = out}), *e = new_run();
        DltCheckpoint *c = NULL;
        DltRunOptions o = {.n_thread = 1};
        assert_int_equal(dlt_checkpoint_read(e->arena, r->result.checkpoint, &c, &e->err), DLT_OK);
        e->status = dlt_evaluate(e->arena, read_spec(e, text), c, DLT_VAL, &o, &e->result, &e->err);
        assert_float_equal(result_of(e, "samples"), 21, 0);
        static const char *const names[] = {"val.loss", "val.top1", "val.f1"};
        for (int i = 0; i < 3; i++) {
            double a = result_of(e, names[i]), b = result_of(r, names[i]);
            assert_memory_equal(&a, &b, sizeof a);
        }
        done(e, DLT_OK);
        done(r, DLT_OK);
    }
    const char *text = config(arena, "", "12", setups[0].optimizer, "  ema: 0.9\n", "");
    Run *init =
        train(text, (DltRunOptions){.out = "init", .init = "eval-0/last.bin", .stop_at = 1});
    done(init, DLT_STOPPED);
    const char *other = "dltrain: 1\nname: o\nseed: 3\ndata: {train: {synthetic: {shape: [2, 8, 8],"
                        " classes: 3, samples: 50}}}\nmodel: [flatten, {dense: 3, name: other}]\n"
                        "loss: cross_entropy\ntrain: {for: 1 steps, batch: 10, optimizer: {sgd: "
                        "{lr: 0.1}}}\n";
    done(train(other, (DltRunOptions){.out = "misfit", .init = "eval-0/last.bin"}),
         DLT_E_CHECKPOINT);
    assert_int_not_equal(access("misfit", F_OK), 0); /* nothing is left of a run that never began */
    dlt_arena_free(arena);
}

/* Predictions are the model's own, with the loss's activation: probabilities that sum to one. */
static void predicts(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = config(arena, "", "12", setups[0].optimizer, "", "");
    Run *r = train(text, (DltRunOptions){.out = "predict"}), *p = new_run();
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(p->arena, r->result.checkpoint, &c, &p->err), DLT_OK);
    DltSpec *spec = read_spec(p, text);
    DltSource *val = &spec->data.source[DLT_VAL];
    assert_int_equal(dlt_spec_load_data(spec, 1u << DLT_VAL, &p->err), DLT_OK);
    int64_t id[21];
    float x[21 * 128];
    int32_t y[21];
    for (int i = 0; i < 21; i++)
        id[i] = i;
    assert_int_equal(val->def->read(&val->ds, id, 21, x, y, &p->err), DLT_OK);
    DltRunOptions o = {.n_thread = 1};
    DltPrediction all = {.x = x, .n = 21};
    p->status = dlt_predict(p->arena, spec, c, &all, &o, &p->err);
    assert_int_equal(p->status, DLT_OK);
    assert_int_equal(all.n_out, 3);
    double hits = 0;
    for (int i = 0; i < 21; i++) {
        const float *q = all.out + 3 * i;
        assert_float_equal(q[0] + q[1] + q[2], 1, 1e-5);
        int best = q[1] > q[0] ? 1 : 0;
        best = q[2] > q[best] ? 2 : best;
        hits += best == y[i];
    }
    assert_float_equal(hits / 21, result_of(r, "val.top1"), 1e-9);
    done(p, DLT_OK);
    done(r, DLT_OK);
    dlt_arena_free(arena);
}

/* ---- what may not be resumed -------------------------------------------------------------- */

static void refused_changes(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    remove_folder("cut");
    done(train(text, (DltRunOptions){.out = "cut", .stop_at = 10}), DLT_STOPPED);
    static const struct {
        const char *from, *to, *reason; /* reason NULL: allowed */
    } rows_[] = {{"seed: 3", "seed: 4", "seed was 3"},
                 {"dropout: 0.3", "dropout: 0.2", "model"},
                 {"filters: 4", "filters: 5", "model"},
                 {"nesterov: true, ", "nesterov: false, ", NULL},
                 {"sgd: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-3}",
                  "adam: {lr: 0.1}", "train.optimizer.sgd"},
                 {"samples: 50", "samples: 49", "not the data set"},
                 {"loss: cross_entropy", "loss: {cross_entropy: {label_smoothing: 0.1}}", "loss"},
                 {"pad_crop: 1", "pad_crop: 2", "data.augment"},
                 {"ema: 0.9", "ema: 0.8", "train.ema"},
                 {"for: 20 steps", "for: 24 steps", NULL},
                 {"log: {every: 3", "log: {every: 2", NULL},
                 {"lr: 0.1", "lr: 0.05", NULL}};
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        const char *at = strstr(text, rows_[i].from);
        assert_non_null(at);
        const char *changed = dlt_arena_printf(arena, "%.*s%s%s", (int)(at - text), text,
                                               rows_[i].to, at + strlen(rows_[i].from));
        remove_folder("changed");
        assert_int_equal(mkdir("changed", 0777), 0);
        assert_int_equal(link("cut/last.bin", "changed/last.bin"), 0);
        Run *r = resume(changed, "changed/last.bin", (DltRunOptions){0});
        bool right = rows_[i].reason == NULL ||
                     (r->err.n > 0 && strstr(r->err.report[0].text, rows_[i].reason) != NULL);
        if (!right) fail_msg("%s -> %s: %s", rows_[i].from, rows_[i].to, r->err.report[0].text);
        done(r, rows_[i].reason == NULL ? DLT_OK : DLT_E_CHECKPOINT);
    }
    dlt_arena_free(arena);
}

/* ---- divergence --------------------------------------------------------------------------- */

static void finite_checkpoint(const char *path, int64_t step)
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, path, &c, &err), DLT_OK);
    assert_int_equal(c->meta.step, step);
    const DltCheckpointTensor *w = dlt_checkpoint_find(c, "dense.weight");
    for (int i = 0; i < 8; i++)
        assert_true(isfinite(((const float *)w->bytes)[i]));
    dlt_arena_free(arena);
}

static void divergence_stops(void **state)
{
    (void)state;
    write_table();
    Run *r = train(table_config("nonfinite: stop", 4, 1), (DltRunOptions){.out = "nan"});
    long long step = 0;
    char samples[200] = "";
    assert_int_equal(r->status, DLT_E_NUMERIC);
    assert_int_equal(sscanf(r->err.report[0].text,
                            "step %lld: the loss or its gradient is not finite (loss "
                            "%*[^)]); the batch held the samples %199[0-9 ]",
                            &step, samples),
                     2);
    assert_true(step >= 1 && step <= 5); /* in the first epoch */
    int id[4];
    assert_int_equal(sscanf(samples, "%d %d %d %d", &id[0], &id[1], &id[2], &id[3]), 4);
    assert_true(id[0] == 7 || id[1] == 7 || id[2] == 7 || id[3] == 7);
    assert_int_equal(r->result.step, step);
    if (step > 1) {
        finite_checkpoint("nan/last.bin", step - 1);
        assert_non_null(strstr(r->err.report[1].text, "nan/last.bin"));
    }
    done(r, DLT_E_NUMERIC);
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    char *end = NULL;
    int64_t n = 0;
    assert_int_equal(dlt_file_read(arena, "nan/status.json",
                                   (DltFileRule){4096, DLT_E_BUG, DLT_NO_MARK}, &end, &n, &err),
                     DLT_OK);
    assert_non_null(strstr(end, "\"exit\": 7"));
    dlt_arena_free(arena);
}

static void divergence_skipped(void **state)
{
    (void)state;
    write_table();
    const char *skip = "nonfinite: skip, limit: 1";
    done(train(table_config(skip, 4, 1), (DltRunOptions){.out = "skip"}), DLT_OK); /* one in five */
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, "skip/last.bin", &c, &err), DLT_OK);
    assert_int_equal(c->meta.nonfinite_skipped, 4);
    finite_checkpoint("skip/last.bin", 20);
    /* every batch bad: the second in a row is one too many */
    Run *r = train(table_config(skip, 20, 1), (DltRunOptions){.out = "skip2"});
    assert_non_null(strstr(r->err.report[0].text, "step 2: "));
    assert_non_null(strstr(r->err.report[0].text, "too often in a row"));
    done(r, DLT_E_NUMERIC);
    dlt_arena_free(arena);
}

/* ---- the end of a run --------------------------------------------------------------------- */

static void early_stop_and_expect(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    /* at this rate no prediction changes, so top1 never improves on the first look */
    const char *stop = config(arena, "", "12", "sgd: {lr: 1e-9}",
                              "  stop_early: {patience: 2, metric: val.top1}\n", "");
    Run *r = train(stop, (DltRunOptions){.out = "early"});
    assert_int_equal(r->result.step, 15); /* looks at 5 (first), 10, 15 */
    done(r, DLT_OK);
    const char *expect =
        config(arena, "", "12", "sgd: {lr: 1e-9}", "", "expect: {val.top1: \"> 99% by end\"}\n");
    r = train(expect, (DltRunOptions){.out = "expect"});
    assert_non_null(strstr(r->err.report[0].text, "expect.val.top1: > 99% by end, but it is"));
    assert_int_equal(r->result.step, 20);
    done(r, DLT_E_NUMERIC);
    expect = config(arena, "", "12", "sgd: {lr: 1e-9}", "", "expect: {vram: \"< 1 KiB\"}\n");
    r = train(expect, (DltRunOptions){.out = "vram"});
    done(r, DLT_E_CONFIG);
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_is_exact),       cmocka_unit_test(cut_at_every_step),
        cmocka_unit_test(same_for_every_loader), cmocka_unit_test(micro_batches_agree),
        cmocka_unit_test(evaluate_and_init),     cmocka_unit_test(predicts),
        cmocka_unit_test(refused_changes),       cmocka_unit_test(divergence_stops),
        cmocka_unit_test(divergence_skipped),    cmocka_unit_test(early_stop_and_expect),

    };
    return cmocka_run_group_tests(tests, start, finish);
}
