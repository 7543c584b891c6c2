/* Optimizers on one weight, two updates, against numbers worked out by hand from the formulas of
 * ops/update_ops.h (they are PyTorch's): w = 1, gradients 0.5 then 0.25 (twice that before the
 * factor coef[SCALE] = 0.5), lr = 0.1. And the factor itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "ops/step.h"
#include "ops/update_ops.h"
#include "tests/cases/cases.h"
#include <math.h>
#include <string.h>

typedef struct Trial {
    DltOpKind kind;
    const char *why;
    DltUpdate attr;
    double w[2];     /* after each update */
    double state[3]; /* after the second; NAN: the optimizer has no such state */
    float gradient;  /* the second, as stored; 0: 0.5 */
} Trial;

#define RATE .lr_factor = 0.5 /* of step.lr = 0.2 */
#define ADAM RATE, .beta1 = 0.9, .beta2 = 0.999

static const Trial trials[] = {
    {DLT_OP_sgd_update, "sgd", {RATE}, {0.95, 0.925}, {NAN, NAN, NAN}, 0},
    /* g' = 0.5 + 0.1 1 = 0.6; w = 0.94; g' = 0.25 + 0.094 */
    {DLT_OP_sgd_update,
     "sgd, decay",
     {RATE, .weight_decay = 0.1},
     {0.94, 0.9056},
     {NAN, NAN, NAN},
     0},
    /* buf = 0.5; buf = 0.45 + 0.25 = 0.7 */
    {DLT_OP_sgd_update, "sgd, momentum", {RATE, .momentum = 0.9}, {0.95, 0.88}, {0.7, NAN, NAN}, 0},
    /* buf = 0.5 (no dampening at the first); buf = 0.45 + 0.5 0.25 = 0.575 */
    {DLT_OP_sgd_update,
     "sgd, dampening",
     {RATE, .momentum = 0.9, .dampening = 0.5},
     {0.95, 0.8925},
     {0.575, NAN, NAN},
     0},
    /* d = 0.5 + 0.45; d = 0.25 + 0.9 0.7 = 0.88 */
    {DLT_OP_sgd_update,
     "sgd, nesterov",
     {RATE, .momentum = 0.9, .nesterov = true},
     {0.905, 0.817},
     {0.7, NAN, NAN},
     0},
    /* mhat = 0.5, vhat = 0.25: step lr. m = 0.07, v = 0.00031225; mhat = 0.07 / 0.19,
     * vhat = 0.00031225 / 0.001999; mhat / sqrt(vhat) = 0.93218061 */
    {DLT_OP_adam_update, "adam", {ADAM}, {0.9, 0.80678194}, {0.07, 0.00031225, NAN}, 0},
    /* eps = 0.5: 0.5 / (0.5 + 0.5) = 0.5; 0.36842105 / (0.39522498 + 0.5) = 0.41153999 */
    {DLT_OP_adam_update,
     "adam, eps",
     {ADAM, .eps = 0.5},
     {0.95, 0.90884600},
     {0.07, 0.00031225, NAN},
     0},
    /* each step first shrinks w by 1 - 0.1 0.5 = 0.95 */
    {DLT_OP_adam_update,
     "adamw",
     {ADAM, .weight_decay = 0.5, .decoupled = true},
     {0.85, 0.71428194},
     {0.07, 0.00031225, NAN},
     0},
    /* g' = 0.5 + 0.5 1 = 1: step lr, m = 0.1, v = 0.001; g' = 0.25 + 0.45 = 0.7: m = 0.16,
     * v = 0.001489; (0.16 / 0.19) / sqrt(0.001489 / 0.001999) = 0.97571886 */
    {DLT_OP_adam_update,
     "adam, decay",
     {ADAM, .weight_decay = 0.5},
     {0.9, 0.80242811},
     {0.16, 0.001489, NAN},
     0},
    /* sq = 0.025: 0.5 / 0.15811388; sq = 0.0225 + 0.00625 = 0.02875: 0.25 / 0.16955825 */
    {DLT_OP_rmsprop_update,
     "rmsprop",
     {RATE, .alpha = 0.9},
     {0.68377223, 0.53632995},
     {0.02875, NAN, NAN},
     0},
    /* d = 3.16227766; d = 0.9 3.16227766 + 1.47441961 = 4.3204695 */
    {DLT_OP_rmsprop_update,
     "rmsprop, momentum",
     {RATE, .alpha = 0.9, .momentum = 0.9},
     {0.68377223, 0.25172528},
     {0.02875, 4.3204695, NAN},
     0},
    /* ga = 0.05: sqrt(0.025 - 0.0025) = 0.15; ga = 0.07: sqrt(0.02875 - 0.0049) = 0.15443445 */
    {DLT_OP_rmsprop_update,
     "rmsprop, centered",
     {RATE, .alpha = 0.9, .centered = true},
     {0.66666667, 0.50478615},
     {0.02875, 0, 0.07},
     0},
    /* s = 0.25: 0.5 / 0.5; s = 0.3125, rate 0.1 / 1.1: 0.25 / 0.55901699 */
    {DLT_OP_adagrad_update,
     "adagrad",
     {RATE, .lr_decay = 0.1},
     {0.9, 0.85934426},
     {0.3125, NAN, NAN},
     0},
    /* sign +; m = 0.005; 0.9 0.005 - 0.1 0.25 < 0: sign -; m = 0.00495 - 0.0025 */
    {DLT_OP_lion_update,
     "lion",
     {RATE, .beta1 = 0.9, .beta2 = 0.99},
     {0.9, 1.0},
     {0.00245, NAN, NAN},
     -0.5F},
    /* shrinks by 0.95 first: 0.95 - 0.1; 0.8075 + 0.1 */
    {DLT_OP_lion_update,
     "lion, decay",
     {RATE, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.5},
     {0.85, 0.9075},
     {0.00245, NAN, NAN},
     -0.5F},
};

static DltArena *arena;
static DltDevice *dev;
static DltErr err;

static int setup(void **state)
{
    (void)state;
    arena = dlt_arena_new();
    dev = case_cpu_device(arena, 1);
    dlt_err_init(&err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dlt_backend_cpu.close(dev);
    dlt_arena_free(arena);
    return 0;
}

static CaseOperand one(DltDtype dtype, void *at)
{
    return (CaseOperand){dtype, {1, {1}}, at};
}

static CaseOperand several(DltDtype dtype, int64_t n, void *at)
{
    return (CaseOperand){dtype, {1, {n}}, at};
}

/* One update of one weight. s[i] is left out where NAN stands. */
static void update(const Trial *t, float *w, float g, int64_t number, float s[3], float coef[4])
{
    uint16_t low = 0xFFFF;
    DltStepState step = {.update = number, .lr = 0.2F};
    void *const out[DLT_MAX_OUT] = {NULL};
    const CaseOperand in[] = {
        one(DLT_F32, w),
        one(DLT_F32, &g),
        several(DLT_F32, 4, coef),
        several(DLT_U8, (int64_t)sizeof step, &step),
        one(DLT_F32, isnan(s[0]) ? NULL : &s[0]),
        one(DLT_F32, isnan(s[1]) ? NULL : &s[1]),
        one(DLT_F32, isnan(s[2]) ? NULL : &s[2]),
        one(DLT_BF16, &low),
    };
    assert_int_equal(case_op(dev, t->kind, &t->attr, in, 8, out, &err), DLT_OK);
    assert_int_equal(low, coef[DLT_COEF_SKIP] != 0 ? 0xFFFF : dlt_bf16_from(*w));
}

static void two_updates(void **state)
{
    const Trial *t = *state;
    float w = 1, s[3], coef[4] = {0.5F, 0, 0, 0};
    for (int i = 0; i < 3; i++)
        s[i] = isnan(t->state[i]) ? NAN : 0;
    update(t, &w, 1, 1, s, coef);
    assert_true(fabs((double)w - t->w[0]) < 1e-6);
    update(t, &w, t->gradient != 0 ? t->gradient : 0.5F, 2, s, coef);
    if (fabs((double)w - t->w[1]) >= 2e-6) fail_msg("w is %.9g, expected %.9g", (double)w, t->w[1]);
    for (int i = 0; i < 3; i++) {
        if (!isnan(t->state[i])) assert_true(fabs((double)s[i] - t->state[i]) < 1e-6);
    }
}

/* coef[SKIP]: weight, states and the narrow copy stay. */
static void skipped_update(void **state)
{
    const Trial *t = *state;
    float w = 1, s[3], coef[4] = {0.5F, 0, 1, 0};
    for (int i = 0; i < 3; i++)
        s[i] = isnan(t->state[i]) ? NAN : 0.25F;
    update(t, &w, INFINITY, 1, s, coef);
    assert_true(w == 1);
    for (int i = 0; i < 3; i++)
        assert_true(isnan(t->state[i]) || s[i] == 0.25F);
}

/* ---- the factor ---------------------------------------------------------------------------- */

/* Of one gradient; -1: no norm is wanted. */
static const float *scale(double sum, double weight, float g, float clip)
{
    static float coef[DLT_COEF];
    double loss[2] = {sum, weight};
    DltGradScale a = {.clip = clip};
    DltStepState step = {.loss_scale = 4, .sample_weight = 8};
    void *const out[DLT_MAX_OUT] = {coef};
    const CaseOperand in[] = {several(DLT_F64, 2, loss), one(DLT_F32, g == -1 ? NULL : &g),
                              several(DLT_U8, (int64_t)sizeof step, &step)};
    assert_int_equal(case_op(dev, DLT_OP_grad_scale, &a, in, 3, out, &err), DLT_OK);
    return coef;
}

static void assert_coef(const float *coef, float factor, float norm, float skip)
{
    assert_true(fabsf(coef[DLT_COEF_SCALE] - factor) < 1e-6F);
    assert_true(fabsf(coef[DLT_COEF_NORM] - norm) < 1e-6F);
    assert_true(coef[DLT_COEF_SKIP] == skip);
}

/* 8 / (16 4) = 0.125; norm = |8| 0.125 = 1 */
static void factor_values(void **state)
{
    (void)state;
    assert_coef(scale(3, 16, -1, 0), 0.125F, 0, 0);
    assert_coef(scale(3, 16, -1, 0.5F), 0.125F, 0, 0); /* nothing to clip by */
    assert_coef(scale(3, 16, 8, 0), 0.125F, 1, 0);
    assert_coef(scale(3, 16, 8, 2), 0.125F, 1, 0);
    assert_coef(scale(3, 16, 8, 0.25F), 0.03125F, 1, 0);
    assert_coef(scale(0, 0, 0, 1), 0, 0, 0); /* a batch of padding */
}

static void factor_not_finite(void **state)
{
    (void)state;
    const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        assert_true(scale(bad[i], 16, 8, 1)[DLT_COEF_SKIP] == 1);
        assert_true(scale(bad[i], 16, -1, 0)[DLT_COEF_SKIP] == 1);
        assert_true(scale(3, 16, (float)bad[i], 1)[DLT_COEF_SKIP] == 1);
        assert_true(scale(3, fabs(bad[i]), 8, 1)[DLT_COEF_SKIP] == 1);
    }
}

/* The first micro batch replaces what the sum held, later ones add; f32 and f64. */
static void accumulation(void **state)
{
    (void)state;
    float sum = NAN, g = 3;
    double loss = 7, part = 0.5;
    DltStepState step = {.micro = 0};
    void *const out[DLT_MAX_OUT] = {NULL};
    CaseOperand in[] = {one(DLT_F32, &sum), one(DLT_F32, &g),
                        several(DLT_U8, (int64_t)sizeof step, &step)};
    for (step.micro = 0; step.micro < 3; step.micro++) {
        assert_int_equal(case_op(dev, DLT_OP_accumulate, NULL, in, 3, out, &err), DLT_OK);
    }
    assert_true(sum == 9);
    in[0] = one(DLT_F64, &loss);
    in[1] = one(DLT_F64, &part);
    assert_int_equal(case_op(dev, DLT_OP_accumulate, NULL, in, 3, out, &err), DLT_OK);
    assert_true(loss == 7.5);
}

/* d = min(0.9, (1 + t) / (10 + t)): 2/11 at the first update, 0.9 from t = 80 on. */
static void moving_average(void **state)
{
    (void)state;
    float e = 11, w = 0, coef[4] = {0};
    DltUpdate a = {.decay = 0.9, .warm = true};
    DltStepState step = {.update = 1};
    void *const out[DLT_MAX_OUT] = {NULL};
    const CaseOperand in[] = {one(DLT_F32, &e), one(DLT_F32, &w), several(DLT_F32, 4, coef),
                              several(DLT_U8, (int64_t)sizeof step, &step)};
    assert_int_equal(case_op(dev, DLT_OP_ema_update, &a, in, 4, out, &err), DLT_OK);
    assert_true(fabsf(e - 2) < 1e-6F);
    step.update = 80;
    w = 4;
    assert_int_equal(case_op(dev, DLT_OP_ema_update, &a, in, 4, out, &err), DLT_OK);
    assert_true(fabsf(e - 2.2F) < 1e-6F);
    coef[DLT_COEF_SKIP] = 1;
    assert_int_equal(case_op(dev, DLT_OP_ema_update, &a, in, 4, out, &err), DLT_OK);
    assert_true(fabsf(e - 2.2F) < 1e-6F);
}

int main(void)
{
    enum { N = sizeof trials / sizeof trials[0] };
    static char names[2 * N][64];
    struct CMUnitTest tests[2 * N + 4] = {
        cmocka_unit_test(factor_values),
        cmocka_unit_test(factor_not_finite),
        cmocka_unit_test(accumulation),
        cmocka_unit_test(moving_average),
    };
    for (int i = 0; i < N; i++) {
        snprintf(names[2 * i], sizeof names[0], "two updates of %s", trials[i].why);
        snprintf(names[2 * i + 1], sizeof names[0], "skipped update of %s", trials[i].why);
        tests[4 + 2 * i] =
            (struct CMUnitTest){names[2 * i], two_updates, NULL, NULL, (void *)&trials[i]};
        tests[5 + 2 * i] =
            (struct CMUnitTest){names[2 * i + 1], skipped_update, NULL, NULL, (void *)&trials[i]};
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
