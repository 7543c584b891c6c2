/* Nodes that the fuse pass makes of an output layer and its loss, against the nodes that they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "ops/loss_ops.h"
#include "ops/matmul.h"
#include "ops/step.h"
#include "tests/cases/cases.h"
#include "tests/unit/kernels.h"
#include <math.h>

/* The classifier against the four nodes that it stands for, in chunks of two rows of five. */
static void classifier_is_nodes(void **state)
{
    Fixture *f = *state;
    float x[15], w[12], z[20], d[20], dx[15], dw[12], want_dx[15], want_dw[12];
    float sample[5] = {1, 0, 2, 1, 1};
    int32_t y[5] = {3, 1, 0, -100, 2};
    double loss[2], want[2];
    DltStepState step = {.loss_scale = 4, .sample_weight = 3};
    DltCrossEntropy ce = {.ignore = -100};
    DltClassifier a = {.ignore = -100, .rows = 2};
    DltMatmul forward = {.tb = true}, data = {0}, weight = {.ta = true};
    for (int i = 0; i < 15; i++) {
        x[i] = 0.25F * (float)(i * 7 % 11) - 1;
        w[i % 12] = 0.5F * (float)(i * 5 % 7) - 1.5F;
    }
    CaseOperand in[] = {F32(x, 5, 3), F32(w, 4, 3), I32(y, 5), F32(sample, 5), STEP_OF(step)};
    CaseOperand losses[] = {F32(z, 5, 4), in[2], in[3], F32(NULL, 1), in[4]};
    CaseOperand back[] = {F32(d, 5, 4), in[1]}, sums[] = {back[0], in[0]};
    void *const both[DLT_MAX_OUT] = {d, want}, *const out[DLT_MAX_OUT] = {dx, dw, loss};
    run(f, DLT_OP_matmul, &forward, in, 2, z);
    assert_int_equal(case_op(f->dev, DLT_OP_cross_entropy_both, &ce, losses, 5, both, &f->err), 0);
    run(f, DLT_OP_matmul, &data, back, 2, want_dx);
    run(f, DLT_OP_matmul, &weight, sums, 2, want_dw);
    assert_int_equal(case_op(f->dev, DLT_OP_classifier, &a, in, 5, out, &f->err), DLT_OK);
    assert_true(fabs(loss[0] - want[0]) < 1e-6 && loss[1] == want[1]);
    assert_floats(dx, want_dx, N_OF(dx), 1e-6F);
    assert_floats(dw, want_dw, N_OF(dw), 1e-6F);
}

/* The output layer and the sum of its rows' losses against the three nodes that they stand for. */
static void output_layer_is_nodes(void **state)
{
    Fixture *f = *state;
    float x[15], w[12], bias[4] = {0.5F, -1, 0, 0.25F}, z[20], d[20], dx[15];
    float want_z[20], want_d[20], want_dx[15], sample[5] = {1, 0, 2, 1, 1};
    int32_t y[5] = {3, 1, 0, -100, 2};
    double pairs[10], loss[2], want[2];
    DltStepState step = {.loss_scale = 4, .sample_weight = 3};
    DltCrossEntropy ce = {.ignore = -100};
    DltOutputLayer a = {.ignore = -100, .act_grad = {DLT_FN_RELU, 0}};
    DltMatmul forward = {.tb = true}, data = {.ep = {.act_grad = {DLT_FN_RELU, 0}}};
    for (int i = 0; i < 15; i++) {
        x[i] = 0.25F * (float)(i * 7 % 11) - 1;
        w[i % 12] = 0.5F * (float)(i * 5 % 7) - 1.5F;
    }
    CaseOperand in[] = {F32(x, 5, 3),   F32(w, 4, 3),  F32(bias, 4), I32(y, 5),
                        F32(sample, 5), STEP_OF(step), F32(x, 5, 3)};
    CaseOperand losses[] = {F32(want_z, 5, 4), in[3], in[4], F32(NULL, 1), in[5]};
    CaseOperand back[] = {F32(want_d, 5, 4), in[1], F32(NULL, 1), in[0]};
    CaseOperand rows[] = {{DLT_F64, {2, {5, 2}}, pairs}};
    void *const both[DLT_MAX_OUT] = {want_d, want}, *const out[DLT_MAX_OUT] = {dx, d, z, pairs};
    run(f, DLT_OP_matmul, &forward, in, 3, want_z);
    assert_int_equal(case_op(f->dev, DLT_OP_cross_entropy_both, &ce, losses, 5, both, &f->err), 0);
    run(f, DLT_OP_matmul, &data, back, 4, want_dx);
    assert_int_equal(case_op(f->dev, DLT_OP_output_layer, &a, in, 7, out, &f->err), DLT_OK);
    run(f, DLT_OP_loss_sum, NULL, rows, 1, loss);
    assert_true(fabs(loss[0] - want[0]) < 1e-6 && loss[1] == want[1]);
    assert_true(pairs[2] == 0 && pairs[3] == 0 && pairs[4] > 0 && pairs[5] == 2 && pairs[7] == 0);
    assert_floats(z, want_z, N_OF(z), 1e-6F);
    assert_floats(d, want_d, N_OF(d), 1e-6F);
    assert_floats(dx, want_dx, N_OF(dx), 1e-6F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(classifier_is_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(output_layer_is_nodes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
