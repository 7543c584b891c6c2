/* Whole runs on small made-up data for tests: configs, training, resuming, comparing. */
#ifndef TEST_RUNS_H
#define TEST_RUNS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "exec/run.h"

static char root[40];

/* optimizer, batch, data options, more of `train`, more sections */
#define CONFIG                                                                                     \
    "dltrain: 1\nname: t\nseed: 3\n"                                                               \
    "data:\n"                                                                                      \
    "  train: {synthetic: {shape: [2, 8, 8], classes: 3, samples: 50}}\n"                          \
    "  val: {synthetic: {shape: [2, 8, 8], classes: 3, samples: 21}}\n"                            \
    "  augment: [{pad_crop: 1}, {flip: horizontal}, {cutout: 2}]\n"                                \
    "  normalize: from train\n"                                                                    \
    "%s"                                                                                           \
    "model:\n"                                                                                     \
    "  - {conv: {filters: 4, kernel: 3, pad: same}}\n"                                             \
    "  - batch_norm\n  - relu\n  - {dropout: 0.3}\n  - flatten\n  - {dense: 3}\n"                  \
    "loss: cross_entropy\n"                                                                        \
    "train:\n  for: 20 steps\n  batch: %s\n  optimizer: {%s}\n"                                    \
    "  schedule: [{warmup: 4 steps}, {cosine: {to: 0}}]\n%s"                                       \
    "log: {every: 3 steps}\neval: {every: 5 steps, metrics: [top1, f1]}\n"                         \
    "checkpoint: {every: 4 steps, keep: {last: 2, best: 1 by val.loss min}}\n%s"

typedef struct Run {
    DltArena *arena;
    DltErr err;
    DltRunResult result;
    DltStatus status;
} Run;

static inline const char *config(DltArena *arena, const char *data, const char *batch,
                                 const char *optimizer, const char *train, const char *more)
{
    return dlt_arena_printf(arena, CONFIG, data, batch, optimizer, train, more);
}

static inline DltSpec *read_spec(Run *r, const char *text)
{
    DltSpec *spec = NULL;
    DltStatus status = dlt_spec_read_stored(
        r->arena, &(DltStored){.name = "test.yaml", .text = text, .folder = "."}, 0, NULL, &spec,
        &r->err);
    if (status != DLT_OK) dlt_err_print(&r->err, stderr);
    assert_int_equal(status, DLT_OK);
    return spec;
}

static inline Run *new_run(void)
{
    DltArena *arena = dlt_arena_new();
    Run *r = DLT_NEW(arena, Run);
    r->arena = arena;
    return r;
}

static inline Run *train(const char *text, DltRunOptions o)
{
    Run *r = new_run();
    o.n_thread = 1;
    r->status = dlt_train(r->arena, read_spec(r, text), NULL, &o, &r->result, &r->err);
    return r;
}

static inline Run *resume(const char *text, const char *from, DltRunOptions o)
{
    Run *r = new_run();
    DltCheckpoint *c = NULL;
    o.n_thread = 1;
    assert_int_equal(dlt_checkpoint_read(r->arena, from, &c, &r->err), DLT_OK);
    o.out = dlt_path_folder(r->arena, from);
    r->status = dlt_train(r->arena, read_spec(r, text), c, &o, &r->result, &r->err);
    return r;
}

static inline void done(Run *r, DltStatus status)
{
    if (r->status != status) dlt_err_print(&r->err, stderr);
    assert_int_equal(r->status, status);
    dlt_arena_free(r->arena);
}

static inline void remove_folder(const char *path)
{
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", path, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
}

/* ---- comparing runs ----------------------------------------------------------------------- */

static inline void same_tensors(const char *a, const char *b)
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *x = NULL, *y = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, a, &x, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, b, &y, &err), DLT_OK);
    assert_int_equal(x->n_tensor, y->n_tensor);
    assert_true(x->n_tensor > 5);
    for (int i = 0; i < x->n_tensor; i++) {
        const DltCheckpointTensor *t = dlt_checkpoint_find(y, x->tensor[i].name);
        assert_non_null(t);
        if (memcmp(t->bytes, x->tensor[i].bytes, (size_t)t->n_bytes) != 0)
            fail_msg("%s differs", t->name);
    }
    assert_int_equal(x->meta.step, y->meta.step);
    assert_int_equal(x->meta.position, y->meta.position);
    assert_int_equal(x->meta.batch_count, y->meta.batch_count);
    assert_int_equal(x->meta.best_step, y->meta.best_step);
    assert_int_equal(x->meta.bad_evals, y->meta.bad_evals);
    assert_memory_equal(&x->meta.best_value, &y->meta.best_value, sizeof(double));
    assert_memory_equal(&x->meta.stop_best, &y->meta.stop_best, sizeof(double));
    assert_int_equal(x->meta.run != 0, 1);
    dlt_arena_free(arena);
}

static inline json_t *rows(DltArena *arena, const char *folder)
{
    DltErr err;
    dlt_err_init(&err);
    char *text = NULL;
    int64_t n = 0;
    const char *path = dlt_arena_printf(arena, "%s/metrics.jsonl", folder);
    assert_int_equal(
        dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK}, &text, &n, &err),
        DLT_OK);
    json_t *list = json_array();
    for (char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        json_t *row = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(row);
        static const char *const clock[] = {"time_s", "samples_per_s", "data_wait"};
        for (int i = 0; i < 3; i++)
            json_object_del(row, clock[i]);
        json_array_append_new(list, row);
    }
    return list;
}

static inline int same_rows(const char *a, const char *b)
{
    DltArena *arena = dlt_arena_new();
    json_t *x = rows(arena, a), *y = rows(arena, b);
    if (!json_equal(x, y)) {
        fprintf(stderr, "%s\n%s\n", json_dumps(x, JSON_INDENT(1)), json_dumps(y, JSON_INDENT(1)));
        fail_msg("rows of %s and %s differ", a, b);
    }
    int n = (int)json_array_size(x);
    json_decref(x);
    json_decref(y);
    dlt_arena_free(arena);
    return n;
}

typedef struct Setup {
    const char *name, *data, *batch, *optimizer, *train, *more;
} Setup;
static const Setup setups[] = {
    {"sgd", "", "12", "sgd: {lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 1e-3}",
     "  ema: 0.9\n  clip: {norm: 1}\n", ""},
    {"plain sgd", "", "50", "sgd: {lr: 0.1}", "", ""},
    {"adam", "  cache: host\n", "12", "adam: {lr: 0.01}", "  ema: 0.9\n", ""},
    {"adamw, micro batches", "", "{global: 12, micro: 4}", "adamw: {lr: 0.01}", "  ema: 0.9\n", ""},
    {"rmsprop", "  last: drop\n", "12", "rmsprop: {lr: 0.01, centered: true, momentum: 0.9}", "",
     ""},
    {"adagrad", "  cache: host\n  last: drop\n  threads: 3\n", "12",
     "adagrad: {lr: 0.01, lr_decay: 0.01}", "", ""},
    {"lion", "", "7", "lion: {lr: 0.001}", "  stop_early: {patience: 90, metric: val.f1}\n", ""},
    {"groups", "", "12",
     "adamw: {lr: 0.01}, groups: [{match: \"*.bias\", weight_decay: 0, lr: x0.1}]", "  ema: 0.5\n",
     ""},
};
enum { N_SETUP = sizeof setups / sizeof setups[0] };

static inline const char *setup_config(DltArena *arena, const Setup *s)
{
    return config(arena, s->data, s->batch, s->optimizer, s->train, s->more);
}

/* 20 rows of two numbers; sample 7 is finite, but its square is not. */
static inline void write_table(void)
{
    FILE *f = fopen("bad.csv", "w");
    assert_non_null(f);
    fprintf(f, "a,b,y\n");
    for (int i = 0; i < 20; i++)
        fprintf(f, "%s,%d,%d\n", i == 7 ? "3e38" : "0.5", i, i % 3);
    assert_int_equal(fclose(f), 0);
}

/* A regression over that table, saved every few steps; the text lives to the end. */
static inline const char *table_config(const char *guard, int batch, int save)
{
    static char text[1024];
    snprintf(text, sizeof text,
             "dltrain: 1\nname: n\nseed: 5\ndata: {train: {csv: bad.csv, target: y}}\n"
             "model: [{dense: 4}, {dense: 1}]\nloss: mse\n"
             "train: {for: 20 steps, batch: %d, optimizer: {sgd: {lr: 1e-4}}, guard: {%s}}\n"
             "checkpoint: {every: %d steps, keep: {last: 30}}\n",
             batch, guard, save);
    return text;
}

static inline int start(void **state)
{
    (void)state;
    bool in_memory = access("/dev/shm", W_OK) == 0; /* runs sync often; that is tested elsewhere */
    snprintf(root, sizeof root, "%s/dltrain-train-XXXXXX", in_memory ? "/dev/shm" : "/tmp");
    if (mkdtemp(root) == NULL || chdir(root) != 0) return -1;
    dlt_log_level(DLT_LOG_QUIET);
    return 0;
}

static inline int finish(void **state)
{
    (void)state;
    remove_folder(root);
    return 0;
}

#endif
