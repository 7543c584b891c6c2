/* f16's loss scale: how it moves (values worked out by hand from torch.amp.GradScaler's rules), that every
 * key of train.loss_scale reaches the graph, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/step.h"
#include "ops/update_ops.h"
#include "spec/spec.h"
#include "tests/cases/cases.h"
#include <math.h>
#include <string.h>

static DltErr err;
static DltArena *arena;
static DltDevice *dev;

static int set_up(void **state)
{
    (void)state;
    dlt_err_init(&err);
    arena = dlt_arena_new();
    dev = case_cpu_device(arena, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
    return 0;
}

static CaseOperand several(DltDtype dtype, int64_t n, void *at)
{
    return (CaseOperand){dtype, {1, {n}}, at};
}

/* One update with a gradient of one element; coef[SKIP]. */
static int next(const DltGradScale *a, float scaler[DLT_SCALER], float gradient)
{
    float coef[DLT_COEF];
    double loss[2] = {3, 8};
    DltStepState step = {.loss_scale = 0, .sample_weight = 8};
    void *const none[DLT_MAX_OUT] = {NULL}, *const out[DLT_MAX_OUT] = {coef};
    const CaseOperand set[] = {several(DLT_U8, (int64_t)sizeof step, &step),
                               several(DLT_F32, DLT_SCALER, scaler)};
    assert_int_equal(case_op(dev, DLT_OP_scale_loss, NULL, set, 2, none, &err), DLT_OK);
    assert_true(step.loss_scale == scaler[DLT_SCALER_SCALE]);
    const CaseOperand in[] = {several(DLT_F64, 2, loss), several(DLT_F32, 1, &gradient), set[0],
                              several(DLT_F64, 0, NULL), set[1]};
    assert_int_equal(case_op(dev, DLT_OP_grad_scale, a, in, 5, out, &err), DLT_OK);
    if (isfinite(gradient)) assert_true(coef[DLT_COEF_SCALE] == 1 / step.loss_scale);
    return (int)coef[DLT_COEF_SKIP];
}

static void assert_scaler(const float s[DLT_SCALER], float scale, float good, float skipped)
{
    if (s[0] != scale || s[1] != good || s[2] != skipped)
        fail_msg("scale %g good %g skipped %g; expected %g %g %g", (double)s[0], (double)s[1],
                 (double)s[2], (double)scale, (double)good, (double)skipped);
}

static void moves(void **state)
{
    const DltGradScale a = {.growth = 2, .backoff = 0.25, .interval = 3};
    float s[DLT_SCALER] = {64, 0, 0};
    (void)state;
    assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_scaler(s, 64, 1, 0);
    assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_scaler(s, 128, 0, 0);
    assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_int_equal(next(&a, s, INFINITY), DLT_SKIP_OVERFLOW);
    assert_scaler(s, 32, 0, 1);
    assert_int_equal(next(&a, s, NAN), DLT_SKIP_OVERFLOW);
    assert_scaler(s, 8, 0, 2);
    for (int i = 0; i < 6; i++)
        assert_int_equal(next(&a, s, -2), DLT_SKIP_NONE);
    assert_scaler(s, 32, 0, 2);
}

/* At 1 nothing is left to lower: then it is the guard's business. */
static void ends_at_one(void **state)
{
    const DltGradScale a = {.growth = 2, .backoff = 0.25, .interval = 100};
    float s[DLT_SCALER] = {3, 7, 0};
    (void)state;
    assert_int_equal(next(&a, s, INFINITY), DLT_SKIP_OVERFLOW);
    assert_scaler(s, 1, 0, 1);
    assert_int_equal(next(&a, s, INFINITY), DLT_SKIP_NONFINITE);
    assert_scaler(s, 1, 0, 1);
    assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_scaler(s, 1, 1, 1);
}

static void stays_a_number(void **state)
{
    const DltGradScale a = {.growth = 1024, .backoff = 0.5, .interval = 1};
    float s[DLT_SCALER] = {1e30F, 0, 0};
    (void)state;
    for (int i = 0; i < 9; i++)
        assert_int_equal(next(&a, s, 1), DLT_SKIP_NONE);
    assert_true(isfinite(s[DLT_SCALER_SCALE]) && s[DLT_SCALER_SCALE] > 1e33F);
}

/* ---- from the config ------------------------------------------------------------------------ */

static DltStatus read(const char *train, DltSpec **spec)
{
    char text[512];
    snprintf(text, sizeof text,
             "dltrain: 1\ndata: {train: {synthetic: {shape: [6], classes: 3, samples: 24}}}\n"
             "model: [{dense: 3}]\nloss: cross_entropy\ntrain: {for: 4 steps, batch: 6, optimizer: "
             "{sgd: {lr: 0.1}}%s}\n",
             train);
    dlt_err_init(&err);
    return dlt_spec_read_stored(arena, &(DltStored){.name = "scale", .text = text, .folder = "."},
                                0, NULL, spec, &err);
}

/* The whole step's graph for a device that has f16. */
static DltModelGraph *graph_of(const char *train)
{
    DltSpec *spec = NULL;
    DltModelGraph *m = NULL;
    const DltModelOptions o = {.training = true, .split = DLT_TRAIN, .batch = 6, .resident = true};
    const DltDeviceInfo info = {.name = "any", .has_f16 = true, .image_block = 8};
    assert_int_equal(read(train, &spec), DLT_OK);
    assert_int_equal(dlt_spec_build(spec, &o, &m, &err), DLT_OK);
    assert_int_equal(dlt_spec_passes(spec, m, &o, &info, &err), DLT_OK);
    return m;
}

static bool has_node(const DltModelGraph *m, int kind)
{
    for (int i = 0; i < m->graph->n_node; i++)
        if (m->graph->node[i]->kind == kind) return true;
    return false;
}

static const DltNode *node_of(const DltModelGraph *m, int kind)
{
    int i = 0;
    assert_true(has_node(m, kind));
    while (m->graph->node[i]->kind != kind)
        i++;
    return m->graph->node[i];
}

static void keys_decide(void **state)
{
    (void)state;
    const DltModelGraph *m = graph_of(", precision: f16");
    const DltNode *n = node_of(m, DLT_OP_grad_scale);
    const DltGradScale *a = n->attr;
    float s[DLT_SCALER];
    dlt_init_fill(n->in[4], 1, s);
    assert_scaler(s, 65536, 0, 0); /* torch.amp.GradScaler's defaults */
    assert_true(a->growth == 2 && a->backoff == 0.5 && a->interval == 2000);
    m = graph_of(
        ", precision: f16, loss_scale: {init: 128, growth: 4, backoff: 0.125, interval: 7}");
    n = node_of(m, DLT_OP_grad_scale);
    a = n->attr;
    dlt_init_fill(n->in[4], 1, s);
    assert_scaler(s, 128, 0, 0);
    assert_true(a->growth == 4 && a->backoff == 0.125 && a->interval == 7);
    m = graph_of(", precision: f16, loss_scale: 32");
    dlt_init_fill(node_of(m, DLT_OP_grad_scale)->in[4], 1, s);
    assert_scaler(s, 32, 0, 0);
}

/* The scale stands in the step before anything reads it, and is saved with the run. */
static void lies_in_the_graph(void **state)
{
    (void)state;
    const DltModelGraph *m = graph_of(", precision: f16");
    const DltTensor *scaler = dlt_graph_find(m->graph, "state/loss_scale");
    assert_non_null(scaler);
    assert_true(scaler->saved && scaler->role == DLT_STATE && scaler->dtype == DLT_F32);
    for (int i = 0; m->graph->node[i]->kind != DLT_OP_scale_loss; i++)
        for (int k = 0; k < DLT_MAX_IN; k++)
            assert_ptr_not_equal(m->graph->node[i]->in[k], m->step);
    assert_ptr_equal(node_of(m, DLT_OP_grad_scale)->in[4], scaler);
    assert_int_equal(node_of(m, DLT_OP_matmul)->in[0]->dtype, DLT_F16);
    m = graph_of("");
    assert_false(has_node(m, DLT_OP_scale_loss));
    assert_null(node_of(m, DLT_OP_grad_scale)->in[4]);
}

static void refusals(void **state)
{
    static const char *const bad[][2] = {
        {", loss_scale: {init: 8}", "has no effect without precision: f16"},
        {", precision: bf16, loss_scale: 8", "has no effect without precision: f16"},
        {", precision: f16, loss_scale: {init: 0.5}", "out of range [1, 1e+30]"},
        {", precision: f16, loss_scale: {growth: 0.5}", "out of range [1, 1024]"},
        {", precision: f16, loss_scale: {backoff: 1}", "out of range (0, 1)"},
        {", precision: f16, loss_scale: {interval: 0}", "out of range [1, 1000000]"},
    };
    DltSpec *spec = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read(bad[i][0], &spec), DLT_E_CONFIG);
        if (!strstr(err.report[0].text, bad[i][1])) fail_msg("%s", err.report[0].text);
    }
    DltModelGraph *m = NULL;
    const DltModelOptions o = {.training = true, .split = DLT_TRAIN, .batch = 6, .resident = true};
    const DltDeviceInfo info = {.name = "a device", .image_block = 8};
    assert_int_equal(read(", precision: f16", &spec), DLT_OK);
    assert_int_equal(dlt_spec_build(spec, &o, &m, &err), DLT_OK);
    assert_int_equal(dlt_spec_passes(spec, m, &o, &info, &err), DLT_E_CONFIG);
    assert_non_null(strstr(err.report[0].text, "this device (a device) has no kernels for f16"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves),
        cmocka_unit_test(ends_at_one),
        cmocka_unit_test(stays_a_number),
        cmocka_unit_test(keys_decide),
        cmocka_unit_test(lies_in_the_graph),
        cmocka_unit_test(refusals),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
