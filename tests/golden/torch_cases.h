/* Every golden case through the real path: options parsed from YAML, the definition's build, autodiff,
 * plan and executor on the CPU backend. Included by tests/unit/test_torch.c (f32) and
 * tests/grad/test_torch64.c (the same kernels in double).
 *
 * Criterion, for each tensor: max |have - want| <= TOLERANCE * max(max |want|, 1/8). Inputs and
 * parameters lie in (-2, 2), so 1/8 is well below what a sum of their products weighs; a gradient
 * that vanishes by cancellation has the rounding error of its terms. */
#ifndef DLT_TORCH_CASES_H
#define DLT_TORCH_CASES_H

#include "tests/golden/torch_file.h"

#include "api/layer.h"
#include "api/train.h"
#include "exec/exec.h"
#include "ops/loss_ops.h"
#include "ops/step.h"
#include "passes/passes.h"

#include <math.h>

/* f32: 24 bits and short sums. double: the files hold 13 digits. */
static const double TOLERANCE = sizeof(DltReal) == 8 ? 1e-10 : 1e-6;

typedef struct TorchTest {
    const TorchCase *test;
    DltDevice *dev;
    void (*run)(const struct TorchTest *t);
} TorchTest;

typedef struct Run {
    const TorchCase *test;
    DltArena *arena;
    DltErr err;
    DltGraph *graph;
    DltBuild b;
    DltDevice *dev;
    DltExec *exec;
    DltTensor **grad;
    DltStepState step;
} Run;

static void begin(Run *r, const TorchTest *t)
{
    *r = (Run){.test = t->test, .dev = t->dev, .arena = dlt_arena_new()};
    dlt_err_init(&r->err);
    r->graph = dlt_graph_new(r->arena);
    dlt_build_init(&r->b, r->graph, &r->err);
    r->b.training = !strstr(t->test->name, "_eval");
    r->b.step = dlt_input(&r->b, "step", dlt_shape1(sizeof(DltStepState)), DLT_U8);
    r->step = (DltStepState){.seed = 1234,
                             .update = 1,
                             .batch = 3,
                             .n_micro = 1,
                             .loss_scale = 1.0f,
                             .sample_weight = 1.0};
}

static void end(Run *r)
{
    if (r->exec) dlt_exec_free(r->exec);
    dlt_arena_free(r->arena);
}

static DltTensor *find_tensor(const Run *r, const char *name)
{
    DltTensor *t = dlt_graph_find(r->graph, name);
    if (t) return t;
    fail_msg("%s: no tensor %s", r->test->name, name);
    abort();
}

/* Results that are read after the run keep a place of their own. */
static DltTensor *keep_tensor(DltTensor *t)
{
    DltTensor *base = dlt_tensor_base(t);
    if (base->role == DLT_TEMP) base->role = DLT_GRAD;
    t->role = base->role;
    return t;
}

static void prepare(Run *r)
{
    torch_ok(r->b.status, &r->err);
    DltPlan *plan = NULL;
    torch_ok(dlt_plan_make(r->arena, r->graph, &dlt_backend_cpu, r->dev, &(DltPlanOptions){0},
                           &plan, &r->err),
             &r->err);
    torch_ok(dlt_exec_new(r->arena, plan, &(DltExecOptions){.poison = true}, &r->exec, &r->err),
             &r->err);
}

static void write_values(Run *r, const DltTensor *t, const double *v, int64_t n)
{
    assert_int_equal(dlt_shape_count(&t->shape), n);
    DltReal *real = DLT_NEW_ARRAY(r->arena, n, DltReal);
    int32_t *whole = DLT_NEW_ARRAY(r->arena, n, int32_t);
    for (int64_t i = 0; i < n; i++) {
        real[i] = (DltReal)v[i];
        whole[i] = (int32_t)v[i];
    }
    const void *host = t->dtype == DLT_I32 ? (const void *)whole : real;
    torch_ok(dlt_exec_write(r->exec, t, host, &r->err), &r->err);
}

static double *read_values(Run *r, const DltTensor *t)
{
    int64_t n = dlt_shape_count(&t->shape);
    double *v = DLT_NEW_ARRAY(r->arena, n, double);
    DltReal *real = DLT_NEW_ARRAY(r->arena, n, DltReal);
    void *host = t->dtype == DLT_F64 ? (void *)v : real;
    torch_ok(dlt_exec_read(r->exec, t, host, &r->err), &r->err);
    for (int64_t i = 0; i < n && t->dtype != DLT_F64; i++)
        v[i] = (double)real[i];
    return v;
}

static void write_step(Run *r)
{
    torch_ok(dlt_exec_write(r->exec, r->b.step, &r->step, &r->err), &r->err);
}

static void run_phase(Run *r, DltPhase phase)
{
    torch_ok(dlt_exec_run(r->exec, phase, &r->err), &r->err);
    torch_ok(dlt_exec_sync(r->exec, &r->err), &r->err);
}

static void expect_values(const Run *r, const TorchItem *want, const double *have, int64_t from,
                          int64_t n)
{
    double top = 0.125;
    for (int64_t i = from; i < from + n; i++)
        top = fmax(top, fabs(want->v[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(have[i] - want->v[from + i]) <= TOLERANCE * top))
            fail_msg("%s: %s %s[%d] is %.15g, not %.15g (largest %.6g)", r->test->name, want->kind,
                     want->name, (int)i, have[i], want->v[from + i], top);
}

static void expect_tensor(Run *r, const TorchItem *want, const DltTensor *t)
{
    if (dlt_shape_count(&t->shape) != want->n)
        fail_msg("%s: %s has another size", r->test->name, want->name);
    expect_values(r, want, read_values(r, t), 0, want->n);
}

static const void *options_of(Run *r, const DltField *fields, size_t size, const DltYaml *value,
                              const char *name, DltOpts *o)
{
    torch_ok(
        dlt_schema_read(r->arena, fields, size, value, (DltWhere){name, DLT_NO_MARK}, o, &r->err),
        &r->err);
    return o->v;
}

/* The tensor of a golden input: a parameter where its gradient is wanted. */
static DltTensor *make_input(Run *r, const TorchItem *item, bool wants_grad)
{
    DltDtype dtype = strcmp(item->kind, "ids") == 0 ? DLT_I32 : DLT_F32;
    return wants_grad ? dlt_param(&r->b, item->name, item->shape, dlt_init_zeros())
                      : dlt_input(&r->b, item->name, item->shape, dtype);
}

static void differentiate(Run *r)
{
    torch_ok(r->b.status, &r->err);
    if (!r->b.training && !torch_find(r->test, "grad", "x0")) return; /* evaluation only */
    torch_ok(dlt_pass_autodiff(&r->b, &r->grad, &r->err), &r->err);
    for (int i = 0; i < r->test->n_item; i++) {
        const TorchItem *item = &r->test->item[i];
        if (strcmp(item->kind, "grad") != 0) continue;
        const DltTensor *t = dlt_graph_find(r->graph, item->name);
        if (!t) t = find_tensor(r, dlt_arena_printf(r->arena, "layer.%s", item->name));
        if (!r->grad[t->id]) fail_msg("%s: no gradient of %s", r->test->name, item->name);
        keep_tensor(r->grad[t->id]);
    }
}

/* ---- layers ---- */

static DltTensor *build_layer(Run *r)
{
    const DltYaml *value;
    const DltLayerDef *def =
        dlt_layer_find(torch_kind(torch_yaml(r->arena, r->test->config), &value));
    assert_non_null(def);
    DltTensor *x[DLT_MAX_IN];
    int n = 0;
    for (int i = 0; i < r->test->n_item; i++)
        if (r->test->item[i].name[0] == 'x' && strcmp(r->test->item[i].kind, "grad") != 0)
            x[n++] = make_input(r, &r->test->item[i], strcmp(r->test->item[i].kind, "in") == 0);
    DltOpts o;
    options_of(r, def->fields, def->opt_size, value, def->name, &o);
    if (def->check) torch_ok(def->check(&o, &r->err), &r->err);
    const char *old = dlt_build_enter(&r->b, "layer");
    DltTensor *y = def->build(&r->b, &o, x, n);
    dlt_build_leave(&r->b, old);
    return y;
}

/* Fills inputs, parameters and states of the case. */
static void fill_layer(Run *r)
{
    for (int i = 0; i < r->test->n_item; i++) {
        const TorchItem *item = &r->test->item[i];
        bool outside = strcmp(item->kind, "in") == 0 || strcmp(item->kind, "ids") == 0;
        bool inside = strcmp(item->kind, "param") == 0 || strcmp(item->kind, "set") == 0;
        if (outside) write_values(r, find_tensor(r, item->name), item->v, item->n);
        if (inside)
            write_values(r, find_tensor(r, dlt_arena_printf(r->arena, "layer.%s", item->name)),
                         item->v, item->n);
    }
}

static void check_layer(Run *r, DltTensor *y)
{
    const TorchItem *out = torch_get(r->test, "out", "y");
    assert_true(dlt_shape_equal(&y->shape, &out->shape));
    expect_tensor(r, out, y);
    for (int i = 0; i < r->test->n_item; i++) {
        const TorchItem *item = &r->test->item[i];
        bool is_grad = strcmp(item->kind, "grad") == 0;
        if (!is_grad && strcmp(item->kind, "state") != 0) continue;
        DltTensor *t = dlt_graph_find(r->graph, item->name);
        if (!t) t = find_tensor(r, dlt_arena_printf(r->arena, "layer.%s", item->name));
        expect_tensor(r, item, is_grad ? r->grad[t->id] : t);
    }
}

static void run_layer(const TorchTest *t)
{
    const TorchCase *test = t->test;
    Run r;
    begin(&r, t);
    DltTensor *y = build_layer(&r);
    torch_ok(r.b.status, &r.err);
    DltTensor *target = make_input(&r, torch_get(test, "in", "t"), false);
    DltTensor *w = dlt_input(&r.b, "w", dlt_shape1(dlt_dim(y, 0)), DLT_F32);
    r.graph->loss =
        dlt_pointwise_loss(&r.b, y, target, w, &(DltPointwiseLoss){.kind = DLT_LOSS_MSE});
    differentiate(&r);
    keep_tensor(y);
    prepare(&r);
    double one[64];
    for (int i = 0; i < 64; i++)
        one[i] = 1.0;
    assert_true(dlt_dim(w, 0) <= 64);
    write_values(&r, w, one, dlt_dim(w, 0));
    fill_layer(&r);
    write_step(&r);
    run_phase(&r, DLT_PHASE_BATCH);
    check_layer(&r, y);
    end(&r);
}

/* ---- losses and metrics ---- */

static DltTensor *build_loss(Run *r, bool wants_grad)
{
    const DltYaml *value;
    const DltLossDef *def =
        dlt_loss_find(torch_kind(torch_yaml(r->arena, r->test->config), &value));
    assert_non_null(def);
    DltOpts o;
    options_of(r, def->fields, def->opt_size, value, def->name, &o);
    if (def->check) torch_ok(def->check(&o, &r->err), &r->err);
    DltTensor *out = make_input(r, torch_get(r->test, "in", "out"), wants_grad);
    const TorchItem *labels = torch_find(r->test, "ids", "y");
    assert_int_equal(labels != NULL, def->target == DLT_TARGET_CLASS);
    DltTensor *y = make_input(r, labels ? labels : torch_get(r->test, "in", "y"), false);
    DltTensor *w = make_input(r, torch_get(r->test, "in", "w"), false);
    return def->build(&r->b, &o, out, y, w);
}

/* The system's gradient is that of the sum when sample_weight is 1; the files hold the mean's. */
static void run_loss(const TorchTest *t)
{
    const TorchCase *test = t->test;
    Run r;
    begin(&r, t);
    r.graph->loss = build_loss(&r, true);
    differentiate(&r);
    keep_tensor(r.graph->loss);
    prepare(&r);
    fill_layer(&r);
    write_step(&r);
    run_phase(&r, DLT_PHASE_BATCH);
    const double *loss = read_values(&r, r.graph->loss);
    expect_values(&r, torch_get(test, "num", "loss"), &(double){loss[0] / loss[1]}, 0, 1);
    const TorchItem *want = torch_get(test, "grad", "out");
    double *have = read_values(&r, r.grad[find_tensor(&r, "out")->id]);
    for (int64_t i = 0; i < want->n; i++)
        have[i] /= loss[1];
    expect_values(&r, want, have, 0, want->n);
    end(&r);
}

/* All figures of a case, accumulated over two equal batches. */
static void run_metric(const TorchTest *t)
{
    const TorchCase *test = t->test;
    Run r;
    begin(&r, t);
    DltTensor *acc[TORCH_ITEMS] = {0};
    DltTensor *loss = build_loss(&r, false);
    torch_ok(r.b.status, &r.err);
    int64_t n_out = dlt_dim(find_tensor(&r, "out"), -1);
    for (int i = 0; i < test->n_item; i++) {
        if (strcmp(test->item[i].kind, "num") != 0) continue;
        const DltMetricDef *m = dlt_metric_find(test->item[i].name);
        assert_non_null(m);
        acc[i] = dlt_state(&r.b, dlt_arena_printf(r.arena, "acc.%s", m->name),
                           dlt_shape1(m->n_acc(n_out)), DLT_F64, dlt_init_zeros());
        m->build(&r.b, find_tensor(&r, "out"), find_tensor(&r, "y"), find_tensor(&r, "w"), loss,
                 acc[i]);
    }
    prepare(&r);
    fill_layer(&r);
    write_step(&r);
    run_phase(&r, DLT_PHASE_BATCH);
    run_phase(&r, DLT_PHASE_BATCH);
    for (int i = 0; i < test->n_item; i++) {
        if (!acc[i]) continue;
        const DltMetricDef *m = dlt_metric_find(test->item[i].name);
        expect_values(&r, &test->item[i], &(double){m->value(read_values(&r, acc[i]), n_out)}, 0,
                      1);
    }
    end(&r);
}

/* ---- optimizers ---- */

static double double_at(const void *opts, size_t offset)
{
    double v;
    memcpy(&v, (const char *)opts + offset, sizeof v);
    return v;
}

/* The slab of one parameter group, with the update node in its own phase. */
static void build_optim(Run *r, DltSlab *slab)
{
    const DltYaml *value;
    const DltOptimDef *def =
        dlt_optim_find(torch_kind(torch_yaml(r->arena, r->test->config), &value));
    assert_non_null(def);
    DltOpts o;
    const void *opts = options_of(r, def->fields, def->opt_size, value, def->name, &o);
    if (def->check) torch_ok(def->check(&o, &r->err), &r->err);
    double lr = double_at(opts, def->lr_offset);
    r->step.lr = (float)lr;
    assert_true(r->step.lr == (float)torch_get(r->test, "num", "lr")->v[0]);
    DltShape shape = torch_get(r->test, "in", "w")->shape;
    double weight_decay = double_at(opts, def->weight_decay_offset);
    if (def->matrix && shape.rank == 2) def = def->matrix;
    *slab = (DltSlab){.w = dlt_param(&r->b, "w", shape, dlt_init_zeros()),
                      .g = dlt_input(&r->b, "g", shape, DLT_F32),
                      .coef = dlt_input(&r->b, "coef", dlt_shape1(DLT_COEF), DLT_F32),
                      .step = r->b.step,
                      .lr_factor = 1.0,
                      .weight_decay = weight_decay};
    if (shape.rank == 2) slab->grad = slab->g;
    for (int i = 0; i < def->n_state(opts); i++) {
        assert_non_null(def->state_name[i]);
        slab->state[i] = dlt_state(&r->b, def->state_name[i], shape, DLT_F32, dlt_init_zeros());
    }
    r->b.phase = DLT_PHASE_UPDATE;
    def->build(&r->b, opts, slab);
}

static void run_optim(const TorchTest *t)
{
    const TorchCase *test = t->test;
    Run r;
    begin(&r, t);
    DltSlab slab;
    build_optim(&r, &slab);
    prepare(&r);
    const TorchItem *w = torch_get(test, "in", "w"), *g = torch_get(test, "in", "g");
    const TorchItem *after = torch_get(test, "out", "w");
    const double coef[DLT_COEF] = {[DLT_COEF_SCALE] = 1.0};
    write_values(&r, slab.w, w->v, w->n);
    write_values(&r, slab.coef, coef, DLT_COEF);
    for (int64_t k = 0; k < g->shape.dim[0]; k++) {
        r.step.update = k + 1;
        write_step(&r);
        write_values(&r, slab.g, g->v + k * w->n, w->n);
        run_phase(&r, DLT_PHASE_UPDATE);
        expect_values(&r, after, read_values(&r, slab.w), k * w->n, w->n);
    }
    for (int i = 0; i < test->n_item; i++)
        if (strcmp(test->item[i].kind, "state") == 0)
            expect_tensor(&r, &test->item[i], find_tensor(&r, test->item[i].name));
    end(&r);
}

/* ---- one cmocka test a case ---- */

static void run_one(void **state)
{
    const TorchTest *t = *state;
    t->run(t);
}

static int torch_main(void)
{
    static const struct {
        const char *file;
        void (*run)(const TorchTest *t);
    } files[] = {
        {"layers", run_layer},
        {"losses", run_loss},
        {"optimizers", run_optim},
        {"metrics", run_metric},
    };
    enum { N_FILE = sizeof files / sizeof files[0] };
    DltArena *arena = dlt_arena_new();
    struct CMUnitTest *tests = DLT_NEW_ARRAY(arena, N_FILE * TORCH_CASES, struct CMUnitTest);
    DltErr err;
    dlt_err_init(&err);
    DltDevice *dev = NULL;
    DltDeviceOptions device = {.n_thread = 1, .deterministic = true};
    torch_ok(dlt_backend_cpu.open(arena, &device, &dev, &err), &err);
    size_t n = 0;
    for (int i = 0; i < N_FILE; i++) {
        TorchFile f =
            torch_read(arena, dlt_arena_printf(arena, "tests/golden/torch/%s.txt", files[i].file));
        for (int k = 0; k < f.n_case; k++) {
            TorchTest *t = DLT_NEW(arena, TorchTest);
            *t = (TorchTest){&f.test[k], dev, files[i].run};
            tests[n++] = (struct CMUnitTest){
                .name = dlt_arena_printf(arena, "torch %s %s", files[i].file, f.test[k].name),
                .test_func = run_one,
                .initial_state = t};
        }
    }
    int failed = _cmocka_run_group_tests("torch", tests, n, NULL, NULL);
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
    return failed;
}

#endif
