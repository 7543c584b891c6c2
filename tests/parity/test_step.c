/* Whole training steps on a device: recorded against node by node, bit for bit, and against the CPU to
 * rounding. What single-kernel tests cannot see is here: layouts between ops, fusions, memory that
 * is used again, the order of recorded calls, updates, accumulation over micro batches.
 * usage: test_step [--backend cpu|cuda] */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include "exec/exec.h"
#include "ops/step.h"
#include "spec/spec.h"
#include "tests/cases/cases.h"
#include <libgen.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 8, STEPS = 5 };

typedef struct Net {
    const char *name, *text;
    double nmse; /* of parameters after STEPS updates, device against CPU */
} Net;

/* Bounds: each step multiplies rounding differences by the network's gain; five steps of plain SGD at
 * these rates keep f32 differences of 1e-6 below 1e-4, squared. adam divides by gradients that may
 * be near zero, so its steps differ more. */
#define NMSE_SGD 1e-8
#define NMSE_ADAM 1e-6

#define HEAD(shape)                                                                                \
    "dltrain: 1\nseed: 3\ndata:\n  train: {synthetic: {shape: " shape                              \
    ", samples: 64, classes: 5, dtype: u8}}\n"
static const Net nets[] = {
    {"mlp with dropout, adamw, clipping, ema",
     HEAD(
         "[1, 5, 7]") "model: [flatten, dense: 33, relu, dropout: 0.3, dense: 18, gelu, dense: 5]\n"
                      "loss: cross_entropy\n"
                      "train:\n  for: 5 steps\n  batch: 8\n  clip: {norm: 1}\n"
                      "  ema: 0.9\n  optimizer: {adamw: {lr: 1e-3}}\n",
     NMSE_ADAM},
    {"convolutions and pooling, sgd",
     HEAD("[1, 12, 12]") "model: [conv: {filters: 8, kernel: 5, pad: 2}, relu, max_pool: 2, conv: "
                         "{filters: 16, "
                         "kernel: 3, pad: 1}, relu, max_pool: 2, flatten, dense: 20, relu, dense: "
                         "5]\n"
                         "loss: cross_entropy\n"
                         "train: {for: 5 steps, batch: 8, optimizer: {sgd: {lr: 0.01, momentum: "
                         "0.9}}}\n",
     NMSE_SGD},
    {"convolutions of 32 and 64 filters with pooling, sgd",
     HEAD("[1, 8, 8]") "model: [conv: {filters: 32, kernel: 5, pad: 2}, relu, max_pool: 2, conv: "
                       "{filters: 64, "
                       "kernel: 3, pad: 1}, relu, max_pool: 2, flatten, dense: 5]\n"
                       "loss: cross_entropy\n"
                       "train: {for: 5 steps, batch: 8, optimizer: {sgd: {lr: 0.01, momentum: "
                       "0.9}}}\n",
     NMSE_SGD},
    {"residual block with batch norm, micro batches",
     HEAD("[3, 8, 8]") "model:\n"
                       "  - conv: {filters: 8, kernel: 3, pad: same, bias: false}\n"
                       "  - batch_norm\n"
                       "  - relu\n"
                       "  - residual:\n"
                       "      body: [conv: {filters: 8, kernel: 3, pad: same, bias: false}, "
                       "batch_norm, relu, "
                       "conv: {filters: 8, kernel: 3, pad: same, bias: false}, batch_norm]\n"
                       "  - relu\n"
                       "  - global_avg_pool\n"
                       "  - dense: 5\n"
                       "loss: cross_entropy\n"
                       "train: {for: 5 steps, batch: {global: 8, micro: 4}, optimizer: {sgd: {lr: "
                       "0.01, momentum: "
                       "0.9, nesterov: true}}}\n",
     NMSE_SGD},
    {"layer norm, group norm, average pooling",
     HEAD("[2, 6, 6]") "model: [conv: {filters: 8, kernel: 3}, group_norm: 4, silu, avg_pool: 2, "
                       "flatten, layer_norm, "
                       "dense: 12, tanh, dense: 5]\n"
                       "loss: cross_entropy\n"
                       "train: {for: 5 steps, batch: 8, optimizer: {sgd: {lr: 0.01}}}\n",
     NMSE_SGD},
    /* no biases: the keys' has no gradient but rounding, of which adam makes whole steps */
    {"attention over patches, class token, adamw",
     HEAD("[3, 8, 8]") "model: [{patch_embed: {patch: 2, dim: 32}}, class_token, {position: "
                       "learned}, {residual: [layer_norm, {attention: {heads: 2, bias: false}}]}, "
                       "{residual: "
                       "[layer_norm, dense: 64, {gelu: tanh}, dense: 32]}, layer_norm, "
                       "{token_pool: first}, dense: 5]\n"
                       "loss: cross_entropy\n"
                       "train: {for: 5 steps, batch: 8, clip: {norm: 1}, optimizer: {adamw: {lr: "
                       "1e-3}}}\n",
     NMSE_ADAM},
    {"causal attention, grouped, rope, dropout, micro batches",
     HEAD("[3, 8, 8]") "model: [{patch_embed: {patch: 2, dim: 32}}, {residual: [rms_norm, "
                       "{attention: {heads: 4, kv_heads: 2, causal: true, rope: true, dropout: "
                       "0.2}}, {dropout: 0.1}]}, {residual: [rms_norm, {swiglu: 48}]}, {residual: "
                       "[layer_norm, {attention: {heads: 2, causal: true}}]}, layer_norm, "
                       "{token_pool: mean}, dense: 5]\n"
                       "loss: cross_entropy\n"
                       "train: {for: 5 steps, batch: {global: 8, micro: 4}, optimizer: {sgd: {lr: "
                       "0.01, momentum: 0.9}}}\n",
     NMSE_SGD},
};
enum { N_NET = sizeof nets / sizeof nets[0] };

/* How the device computes; the CPU computes in f32. tf32 rounds factors to 10 bits (relative
 * error 2^-11), bf16 to 7, which moves the gradients by some 1e-3 and 1e-2 and the parameters by the
 * learning rate times that, squared. f16 rounds as tf32 does, but everything in between too: 64 times
 * less than bf16. */
typedef struct Arithmetic {
    const char *name, *precision;
    double nmse; /* 0: the network's */
} Arithmetic;
static const Arithmetic arithmetics[] = {
    {"", "f32", 0}, {", tf32", "tf32", 1e-7}, {", bf16", "bf16", 1e-5}, {", f16", "f16", 2e-7}};
enum { TF32 = 1, N_ARITHMETIC = sizeof arithmetics / sizeof arithmetics[0] };

typedef struct Trial {
    const Net *net;
    const Arithmetic *arithmetic;
} Trial;

/* Everything that lasts of a run, by tensor. */
typedef struct Result {
    DltArena *arena;
    const DltGraph *graph;
    void **value; /* [n_tensor], NULL: nothing that lasts */
} Result;

static const DltBackend *tested;
static char folder[4096], choices[] = "/tmp/dltrain-step-XXXXXX"; /* measured once for all runs */

static void must(DltStatus status, const DltErr *err)
{
    if (status != DLT_OK) dlt_err_print(err, stderr);
    assert_int_equal(status, DLT_OK);
}

static void feed_data(DltExec *e, const DltSpec *spec, const DltModelGraph *m, DltErr *err)
{
    const DltDataset *ds = &spec->data.source[DLT_TRAIN].ds;
    int64_t *id = DLT_NEW_ARRAY(spec->arena, ds->n, int64_t);
    void *x = dlt_arena_new_bytes(spec->arena, (size_t)ds->n, (size_t)dlt_dataset_x_bytes(ds));
    void *y = dlt_arena_new_bytes(spec->arena, (size_t)ds->n, (size_t)dlt_dataset_y_bytes(ds));
    for (int64_t i = 0; i < ds->n; i++)
        id[i] = i;
    must(ds->def->read(ds, id, ds->n, x, y, err), err);
    must(dlt_exec_write(e, m->data_x, x, err), err);
    must(dlt_exec_write(e, m->data_y, y, err), err);
}

/* What micro batch k of update u is told. */
static void set_batch(const DltSpec *spec, int u, int k, DltStepState *step, int32_t *ticket)
{
    int n_micro = (int)(spec->train.batch / spec->train.micro), rows = (int)spec->train.micro;
    *step = (DltStepState){.seed = spec->seed,
                           .update = u + 1,
                           .batch = u * n_micro + k,
                           .micro = k,
                           .n_micro = n_micro,
                           .lr = (float)dlt_schedule_rate(&spec->train.schedule, u),
                           .loss_scale = 1,
                           .sample_weight = (double)spec->train.batch};
    for (int i = 0; i < rows; i++) {
        int32_t row = (u * 13 + k * 5 + i * 7) % 64;
        int32_t *t = ticket + (size_t)i * DLT_TICKET_INTS;
        t[DLT_TICKET_ROW] = t[DLT_TICKET_SAMPLE] = row;
        t[DLT_TICKET_EPOCH] = u;
        t[DLT_TICKET_VALID] = i + 1 < rows || k + 1 < n_micro;
    }
}

/* Update u (0 first): its micro batches, then the update phase. */
static void run_update(DltExec *e, const DltSpec *spec, const DltModelGraph *m, int u, DltErr *err)
{
    int n_micro = (int)(spec->train.batch / spec->train.micro);
    int32_t ticket[BATCH * DLT_TICKET_INTS];
    for (int k = 0; k < n_micro; k++) {
        DltStepState step;
        set_batch(spec, u, k, &step, ticket);
        must(dlt_exec_feed(e, m->step, &step, err), err);
        must(dlt_exec_feed(e, m->ticket, ticket, err), err);
        must(dlt_exec_run(e, DLT_PHASE_BATCH, err), err);
        must(dlt_exec_sync(e, err), err);
    }
    must(dlt_exec_run(e, DLT_PHASE_UPDATE, err), err);
    must(dlt_exec_sync(e, err), err);
}

/* Updates from `first` on as one program. */
static void run_series(DltExec *e, const DltSpec *spec, const DltModelGraph *m, int first,
                       DltErr *err)
{
    const DltTensor *fed[] = {m->step, m->ticket};
    DltSeries *s = NULL;
    float coef[STEPS][DLT_COEF];
    must(dlt_series_new(e, fed, 2, dlt_graph_find(m->graph, "update.coef"), STEPS - first, &s, err),
         err);
    char *block = dlt_arena_new_bytes(spec->arena, dlt_series_bytes(s), 1);
    for (int u = first; u < STEPS; u++) {
        DltStepState step;
        void *ticket = block + dlt_series_offset(s, u - first, 1);
        set_batch(spec, u, 0, &step, ticket);
        memcpy(block + dlt_series_offset(s, u - first, 0), &step, sizeof step);
    }
    must(dlt_series_run(s, block, err), err);
    must(dlt_series_fetch(s, 1, STEPS - first - 1, coef[1], err), err);
    must(dlt_series_fetch(s, 0, 1, coef[0], err), err);
    must(dlt_exec_sync(e, err), err);
    for (int i = 0; i < STEPS - first; i++) {
        assert_true(coef[i][DLT_COEF_NORM] > 0 && coef[i][DLT_COEF_SKIP] == 0);
        for (int j = 0; j < i; j++)
            assert_true(coef[i][DLT_COEF_NORM] != coef[j][DLT_COEF_NORM]);
    }
}

typedef enum Mode { EAGER, RECORDED, SERIES } Mode;

static void read_result(DltExec *e, const DltGraph *g, Result *r)
{
    DltErr err;
    dlt_err_init(&err);
    r->graph = g;
    r->value = DLT_NEW_ARRAY(r->arena, g->n_tensor, void *);
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        bool lasts = t->role == DLT_PARAM || t->role == DLT_STATE;
        if (!lasts || !dlt_exec_pointer(e, t)) continue;
        r->value[i] = dlt_arena_new_bytes(r->arena, 1, (size_t)dlt_tensor_bytes(t));
        must(dlt_exec_read(e, t, r->value[i], &err), &err);
    }
}

static void train(const Trial *trial, const DltBackend *backend, Mode mode, Result *r)
{
    DltErr err;
    const Net *net = trial->net;
    bool tf32 = trial->arithmetic == &arithmetics[TF32], on_cpu = backend == &dlt_backend_cpu;
    char precision[64];
    const char *const override[] = {precision, "train.loss_scale={init: 1024}"};
    bool f16 = !on_cpu && strcmp(trial->arithmetic->precision, "f16") == 0;
    DltSpec *spec = NULL;
    DltModelGraph *m = NULL;
    DltDevice *dev = NULL;
    DltPlan *plan = NULL;
    DltExec *e = NULL;
    DltDeviceInfo info;
    DltPlanOptions po = {.force_kernel = tf32 ? ".cuda.small" : NULL};
    snprintf(precision, sizeof precision, "train.precision=%s",
             on_cpu ? "f32" : trial->arithmetic->precision);
    dlt_err_init(&err);
    r->arena = dlt_arena_new();
    must(dlt_spec_read_stored(r->arena,
                              &(DltStored){.name = net->name, .text = net->text, .folder = "."},
                              f16 ? 2 : 1, override, &spec, &err),
         &err);
    must(dlt_spec_load_data(spec, 1u << DLT_TRAIN, &err), &err);
    DltModelOptions mo = {
        .training = true, .split = DLT_TRAIN, .batch = spec->train.micro, .resident = true};
    DltDeviceOptions dopt = {.n_thread = 1,
                             .deterministic = true,
                             .tf32 = tf32,
                             .cache_folder = choices,
                             .plugin_folder = folder};
    must(backend->open(r->arena, &dopt, &dev, &err), &err);
    backend->info(dev, &info);
    must(dlt_spec_build(spec, &mo, &m, &err), &err);
    must(dlt_spec_passes(spec, m, &mo, &info, &err), &err);
    must(dlt_plan_make(r->arena, m->graph, backend, dev, &po, &plan, &err), &err);
    DltExecOptions eo = {.seed = spec->seed, .eager = mode == EAGER};
    must(dlt_exec_new(r->arena, plan, &eo, &e, &err), &err);
    feed_data(e, spec, m, &err);
    for (int u = 0; u < (mode == SERIES ? 1 : STEPS); u++)
        run_update(e, spec, m, u, &err);
    if (mode == SERIES) run_series(e, spec, m, 1, &err);
    read_result(e, m->graph, r);
    dlt_exec_free(e);
    backend->close(dev);
}

static void is_eager(const Trial *trial, Mode mode)
{
    Result a, b;
    int compared = 0;
    train(trial, tested, EAGER, &a);
    train(trial, tested, mode, &b);
    for (int i = 0; i < a.graph->n_tensor; i++) {
        bool alone = mode == SERIES && strcmp(a.graph->tensor[i]->name, "update.coef") == 0;
        if (!a.value[i] || alone) continue; /* a series leaves each update's own */
        size_t bytes = (size_t)dlt_tensor_bytes(a.graph->tensor[i]);
        if (memcmp(a.value[i], b.value[i], bytes) != 0)
            fail_msg("%s differs from the eager run's", a.graph->tensor[i]->name);
        compared++;
    }
    assert_true(compared > 4);
    dlt_arena_free(a.arena);
    dlt_arena_free(b.arena);
}

static void recorded_is_eager(void **state)
{
    is_eager(*state, RECORDED);
}

static void series_is_eager(void **state)
{
    const Trial *trial = *state;
    if (tested->record_begin == NULL || strstr(trial->net->text, "micro") != NULL) {
        skip(); /* nothing is recorded; or an update has several micro batches */
    }
    is_eager(trial, SERIES);
}

static const void *find_value(const Result *r, const char *name)
{
    for (int i = 0; i < r->graph->n_tensor; i++)
        if (r->value[i] && strcmp(r->graph->tensor[i]->name, name) == 0) return r->value[i];
    return NULL;
}

static void device_is_cpu(void **state)
{
    const Trial *trial = *state;
    const Net *net = trial->net;
    Result a, b;
    double error = 0, power = 0;
    setenv("DLTRAIN_PLUGIN", "none", 1);
    train(trial, &dlt_backend_cpu, RECORDED, &b);
    unsetenv("DLTRAIN_PLUGIN");
    train(trial, tested, RECORDED, &a);
    for (int i = 0; i < a.graph->n_tensor; i++) {
        const DltTensor *t = a.graph->tensor[i];
        if (!a.value[i] || t->dtype != DLT_F32 || t->role != DLT_PARAM || !t->saved) continue;
        const float *x = a.value[i], *y = find_value(&b, t->name);
        assert_non_null(y);
        for (int64_t k = 0; k < dlt_shape_count(&t->shape); k++) {
            assert_true(isfinite(x[k]));
            error += ((double)x[k] - (double)y[k]) * ((double)x[k] - (double)y[k]);
            power += (double)y[k] * (double)y[k];
        }
    }
    double bound = trial->arithmetic->nmse > 0 ? trial->arithmetic->nmse : net->nmse;
    print_message("%s%s: NMSE of the parameters against the CPU %.3g\n", net->name,
                  trial->arithmetic->name, error / power);
    assert_true(power > 0 && error <= bound * power);
    dlt_arena_free(a.arena);
    dlt_arena_free(b.arena);
}

static void skipped(void **state)
{
    (void)state;
    skip();
}

static int remove_choices(void **state)
{
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "%s/cuda-choices.txt", choices);
    (void)unlink(path); /* only a backend that measures leaves one */
    snprintf(path, sizeof path, "%s/cuda-choices.txt.lock", choices);
    (void)unlink(path);
    (void)rmdir(choices);
    return 0;
}

static bool find_backend(const char *name)
{
    DltErr err;
    DltDevice *dev = NULL;
    DltDeviceOptions o = {.n_thread = 1, .plugin_folder = folder};
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = '\0';
    memmove(folder, dirname(folder), strlen(dirname(folder)) + 1);
    dlt_err_init(&err);
    dlt_log_level(DLT_LOG_QUIET);
    DltArena *arena = dlt_arena_new();
    bool there = dlt_backend_find(name, DLT_NO_MARK, &tested, &err) == DLT_OK &&
                 tested->open(arena, &o, &dev, &err) == DLT_OK;
    if (!there) dlt_err_print(&err, stderr);
    if (tested) tested->close(dev);
    dlt_arena_free(arena);
    return there;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kind[] = {{"recorded is eager", recorded_is_eager},
                {"series is eager", series_is_eager},
                {"device is cpu", device_is_cpu}};
    enum { KINDS = sizeof kind / sizeof kind[0], PER_NET = N_ARITHMETIC * KINDS };
    const char *backend = argc > 2 && strcmp(argv[1], "--backend") == 0 ? argv[2] : "cpu";
    struct CMUnitTest test[PER_NET * N_NET];
    Trial trial[PER_NET * N_NET];
    char name[PER_NET * N_NET][160];
    bool there = find_backend(backend) && mkdtemp(choices) != NULL;
    for (int i = 0; i < PER_NET * N_NET; i++) {
        trial[i] = (Trial){&nets[i / PER_NET], &arithmetics[i / KINDS % N_ARITHMETIC]};
        snprintf(name[i], sizeof name[i], "%s: %s%s", trial[i].net->name, kind[i % KINDS].name,
                 trial[i].arithmetic->name);
        test[i] = (struct CMUnitTest){name[i], kind[i % KINDS].run, NULL, NULL, &trial[i]};
        if (!there) test[i].test_func = skipped;
    }
    return _cmocka_run_group_tests(backend, test, PER_NET * N_NET, NULL, remove_choices);
}
