/* Plain CPU kernels against values worked out by hand or by another road: what gradient checks
 * cannot see. Origins are named at each test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "ops/data_ops.h"
#include "ops/dropout.h"
#include "ops/loss_ops.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"
#include "ops/step.h"
#include "tests/cases/cases.h"
#include "tests/unit/kernels.h"
#include <math.h>
#include <string.h>

/* ---- fetch --------------------------------------------------------------------------------- */

enum { ROWS = 6, COLS = 5, PIXELS = ROWS * COLS, PADDED = 16 };

/* Without augmentation: x = (raw scale - mean) rstd, the rows that the tickets name. */
static void fetch_normalises(void **state)
{
    Fixture *f = *state;
    uint8_t data[3][4] = {{0, 51, 102, 153}, {204, 255, 0, 51}, {10, 20, 30, 40}};
    int32_t ticket[2][4] = {{1, 77, 5, 1}, {0, 78, 5, 1}};
    float mean[2] = {0.5F, 0.25F}, rstd[2] = {2, 4}, x[8];
    DltFetch a = {.scale = 1 / 255.0F, .inner = 2, .batch = 2};
    CaseOperand in[] = {U8(data, 3, 2, 1, 2), I32(ticket, 2, 4), F32(mean, 2), F32(rstd, 2)};
    /* (204/255 - 0.5) 2 = 0.6, (1 - 0.5) 2 = 1, (0 - 0.25) 4 = -1, (0.2 - 0.25) 4 = -0.2, ... */
    const float want[8] = {0.6F, 1, -1, -0.2F, -1, -0.6F, 0.6F, 1.4F};
    run(f, DLT_OP_fetch_x, &a, in, N_OF(in), x);
    assert_floats(x, want, 8, 1e-6F);
}

/* Padding, cropping, flipping and cutting as four separate steps on whole images. */
static void augment_by_steps(const uint8_t *image, const DltFetch *a, DltAugment r, float *out)
{
    float padded[PADDED][PADDED] = {{0}}, crop[ROWS][COLS];
    for (int y = 0; y < ROWS; y++) {
        for (int x = 0; x < COLS; x++)
            padded[y + a->pad][x + a->pad] = image[y * COLS + x];
    }
    for (int y = 0; y < ROWS; y++) {
        for (int x = 0; x < COLS; x++)
            crop[y][x] = padded[y + r.dy][x + r.dx];
    }
    for (int y = 0; y < ROWS && r.flip; y++) {
        for (int x = 0; x < COLS / 2; x++) {
            float left = crop[y][x];
            crop[y][x] = crop[y][COLS - 1 - x];
            crop[y][COLS - 1 - x] = left;
        }
    }
    for (int i = 0; i < PIXELS; i++)
        out[i] = (crop[i / COLS][i % COLS] - 8) * 0.5F;
    for (int y = r.cut_y - a->cutout / 2; y < r.cut_y - a->cutout / 2 + a->cutout; y++) {
        for (int x = r.cut_x - a->cutout / 2; x < r.cut_x - a->cutout / 2 + a->cutout; x++) {
            if (y >= 0 && y < ROWS && x >= 0 && x < COLS) out[y * COLS + x] = 0;
        }
    }
}

static void fetch_augments(void **state)
{
    enum { N = 64 };
    Fixture *f = *state;
    uint8_t data[PIXELS];
    int32_t ticket[N][4];
    float mean = 8, rstd = 0.5F, x[N][PIXELS], want[PIXELS];
    int flips = 0, offsets = 0;
    DltFetch a = {.scale = 1,
                  .inner = PIXELS,
                  .batch = N,
                  .pad = 3,
                  .cutout = 3,
                  .flip = 1,
                  .augment = 1,
                  .seed = 7};
    for (int i = 0; i < PIXELS; i++)
        data[i] = (uint8_t)(i + 1);
    for (int n = 0; n < N; n++)
        memcpy(ticket[n], (int32_t[]){0, n, 2, 1}, sizeof ticket[n]);
    CaseOperand in[] = {U8(data, 1, 1, ROWS, COLS), I32(ticket, N, 4), F32(&mean, 1),
                        F32(&rstd, 1)};
    run(f, DLT_OP_fetch_x, &a, in, N_OF(in), x);
    for (int n = 0; n < N; n++) {
        DltAugment r = dlt_augment_draw(a.seed, 2, n, a.pad, a.flip, ROWS, COLS);
        augment_by_steps(data, &a, r, want);
        assert_floats(x[n], want, PIXELS, 0);
        flips += r.flip;
        offsets |= 1 << r.dy;
    }
    assert_in_range(flips, 16, 48);          /* 64 fair coins: 4 standard deviations */
    assert_int_equal(offsets, (1 << 7) - 1); /* each of 2 pad + 1 offsets was drawn */
}

/* Augmentation on, with nothing to do: the plain picture. */
static void fetch_identity(void **state)
{
    Fixture *f = *state;
    uint8_t data[2][PIXELS];
    int32_t ticket[2][4] = {{0, 5, 1, 1}, {1, 6, 1, 1}};
    float x[2][PIXELS], plain[2][PIXELS];
    DltFetch a = {.scale = 0.5F, .inner = PIXELS, .batch = 2, .augment = 1};
    for (int i = 0; i < 2 * PIXELS; i++)
        data[i / PIXELS][i % PIXELS] = (uint8_t)(3 * i);
    CaseOperand in[] = {U8(data, 2, 1, ROWS, COLS), I32(ticket, 2, 4)};
    run(f, DLT_OP_fetch_x, &a, in, N_OF(in), x);
    a.augment = 0;
    run(f, DLT_OP_fetch_x, &a, in, N_OF(in), plain);
    assert_memory_equal(x, plain, sizeof x);
    assert_true(x[1][2] == 0.5F * (float)data[1][2]);
}

static void fetch_targets(void **state)
{
    Fixture *f = *state;
    int32_t labels[4] = {7, 8, 9, 10}, ticket[3][4] = {{2, 0, 0, 1}, {0, 0, 0, 1}, {3, 0, 0, 0}};
    int32_t y[3];
    float w[3];
    DltFetch a = {.batch = 3};
    CaseOperand in[] = {I32(labels, 4), I32(ticket, 3, 4)};
    void *const out[DLT_MAX_OUT] = {y, w};
    assert_int_equal(case_op(f->dev, DLT_OP_fetch_y, &a, in, 2, out, &f->err), DLT_OK);
    assert_memory_equal(y, ((int32_t[]){9, 7, 10}), sizeof y);
    assert_floats(w, (const float[]){1, 1, 0}, 3, 0);
}

/* Masking: x and y agree on the places; of 100,000 places 15% are masked, of those 80% show the mask's id, 10%
 * a random one and 10% their own, each within 4 standard deviations; a place's fate depends on seed,
 * epoch and sample, and not on the row it was read from or the batch it stands in. */
static void fetch_masks(void **state)
{
    enum { T = 50, N = 2000, OWN = 7, MASK = 9, VOCAB = 9 };
    Fixture *f = *state;
    static int32_t data[2][T], ticket[N][4], x[N][T], y[N][T], one[T];
    float w[N];
    int masked = 0, shown = 0, other = 0;
    DltFetch a = {.batch = N, .seed = 3, .mask = {0.15F, 0.8F, 0.9F, MASK, VOCAB, -1}};
    for (int i = 0; i < 2 * T; i++)
        data[i / T][i % T] = OWN;
    for (int n = 0; n < N; n++)
        memcpy(ticket[n], (int32_t[]){n & 1, n, 5, 1}, sizeof ticket[n]);
    CaseOperand in[] = {I32(data, 2, T), I32(ticket, N, 4)};
    void *const out[DLT_MAX_OUT] = {y, w};
    run(f, DLT_OP_fetch_x, &a, in, N_OF(in), x);
    assert_int_equal(case_op(f->dev, DLT_OP_fetch_y, &a, in, 2, out, &f->err), DLT_OK);
    for (int i = 0; i < N * T; i++) {
        int32_t seen = x[i / T][i % T], want = y[i / T][i % T];
        assert_true(want == OWN || (want == -1 && seen == OWN));
        assert_true(seen == MASK || (seen >= 0 && seen < VOCAB));
        masked += want == OWN;
        shown += seen == MASK;
        other += seen != MASK && seen != OWN;
    }
    assert_in_range(masked, 14548, 15452);
    assert_in_range(shown, 11600, 12400);
    assert_in_range(other, 1190, 1480); /* 8 of 9 random ids differ from the token's own */
    a.batch = 1;
    CaseOperand alone[] = {I32(data, 2, T), I32(ticket[77], 1, 4)};
    run(f, DLT_OP_fetch_x, &a, alone, N_OF(alone), one);
    assert_memory_equal(one, x[77], sizeof one);
    ticket[77][2] = 6; /* another epoch */
    run(f, DLT_OP_fetch_x, &a, alone, N_OF(alone), one);
    assert_memory_not_equal(one, x[77], sizeof one);
}

/* ---- dropout ------------------------------------------------------------------------------- */

enum { DROPPED = 40001 };

static void drop(Fixture *f, DltStepState step, uint32_t id, float *y)
{
    static float x[DROPPED];
    DltDropout a = {.p = 0.25F, .id = id};
    for (int i = 0; i < DROPPED; i++)
        x[i] = 3;
    CaseOperand in[] = {F32(x, DROPPED), STEP_OF(step)};
    run(f, DLT_OP_dropout, &a, in, 2, y);
}

static int differing(const float *a, const float *b)
{
    int n = 0;
    for (int i = 0; i < DROPPED; i++)
        n += a[i] == b[i] ? 0 : 1;
    return n;
}

/* Kept with probability 0.75 (4 standard deviations: 346 of 40001), scaled by 4/3; the same for the
 * same step, another mask (differing at 2 p (1 - p) = 0.375 of places) for another batch, layer or
 * seed. */
static void dropout_masks(void **state)
{
    Fixture *f = *state;
    static float y[DROPPED], other[DROPPED];
    int kept = 0;
    DltStepState step = {.seed = 11, .batch = 4};
    drop(f, step, 2, y);
    for (int i = 0; i < DROPPED; i++) {
        assert_true(y[i] == 0 || fabsf(y[i] - 4) < 1e-6F);
        kept += y[i] != 0 ? 1 : 0;
    }
    assert_in_range(kept, 30001 - 346, 30001 + 346);
    drop(f, step, 2, other);
    assert_memory_equal(y, other, sizeof y);
    drop(f, step, 3, other);
    assert_in_range(differing(y, other), 15000 - 400, 15000 + 400);
    drop(f, (DltStepState){.seed = 11, .batch = 5}, 2, other);
    assert_in_range(differing(y, other), 15000 - 400, 15000 + 400);
    drop(f, (DltStepState){.seed = 12, .batch = 4}, 2, other);
    assert_in_range(differing(y, other), 15000 - 400, 15000 + 400);
}

/* ---- metrics ------------------------------------------------------------------------------- */

static double top_hits(Fixture *f, const float *logits, int32_t label, int k)
{
    float w = 1, row[4];
    double acc[2] = {0, 0};
    memcpy(row, logits, sizeof row);
    DltMetricTopk a = {k, -100};
    CaseOperand in[] = {F32(row, 1, 4), I32(&label, 1), F32(&w, 1), F64(acc, 2)};
    run(f, DLT_OP_metric_topk, &a, in, 4, NULL);
    assert_true(acc[1] == (label == -100 ? 0 : 1));
    return acc[0];
}

/* A tie counts by lower index first: of {1, 1, 2, 1} the order is 2, 0, 1, 3. NaN hits nothing. */
static void topk_ties(void **state)
{
    Fixture *f = *state;
    const float tied[4] = {1, 1, 2, 1}, broken[4] = {NAN, 1, 2, 1};
    const int place[4] = {2, 3, 1, 4};
    for (int label = 0; label < 4; label++) {
        for (int k = 1; k <= 4; k++) {
            assert_true(top_hits(f, tied, label, k) == (place[label] <= k ? 1 : 0));
        }
    }
    assert_true(top_hits(f, tied, -100, 4) == 0);
    assert_true(top_hits(f, broken, 0, 3) == 0);
    assert_true(top_hits(f, broken, 2, 1) == 0);
}

static void confusion_counts(void **state)
{
    Fixture *f = *state;
    float logits[5][3] = {{1, 2, 0}, {5, 5, 0}, {0, 0, 1}, {3, 1, 2}, {0, 9, 0}};
    int32_t y[5] = {1, 1, 2, -100, 0};
    float w[5] = {1, 1, 0.5F, 1, 1};
    double acc[9] = {0};
    acc[8] = 2; /* what was there stays */
    CaseOperand in[] = {F32(logits, 5, 3), I32(y, 5), F32(w, 5), F64(acc, 9)};
    run(f, DLT_OP_metric_confusion, NULL, in, 4, NULL);
    const double want[9] = {0, 1, 0, 1, 1, 0, 0, 0, 2.5};
    assert_memory_equal(acc, want, sizeof acc);
}

static void regression_sums(void **state)
{
    Fixture *f = *state;
    float p[4] = {1, 2, 3, 4}, t[4] = {0, 4, 3, 9}, w[2] = {2, 1};
    double acc[6] = {0};
    CaseOperand in[] = {F32(p, 2, 2), F32(t, 2, 2), F32(w, 2), F64(acc, 6)};
    run(f, DLT_OP_metric_regression, NULL, in, 4, NULL);
    /* d = 1, -2 | 0, -5; weights 2 | 1 */
    const double want[6] = {3, 2 * 3 + 5, 2 * 5 + 25, 2 * 4 + 12, 2 * 16 + 90, 6};
    assert_memory_equal(acc, want, sizeof acc);
}

/* ---- losses and look-ups ------------------------------------------------------------------- */

/* logits {0, 0}: nll = log 2 for both rows; class weights {1, 3}, sample weights {1, 2}. */
static void cross_entropy_values(void **state)
{
    Fixture *f = *state;
    float logits[4] = {0}, w[2] = {1, 2}, class_w[2] = {1, 3}, d[4];
    int32_t y[2] = {0, 1};
    double loss[2];
    DltStepState step = {.loss_scale = 4, .sample_weight = 2};
    DltCrossEntropy a = {.ignore = -100};
    CaseOperand in[] = {F32(logits, 2, 2), I32(y, 2), F32(w, 2), F32(class_w, 2), STEP_OF(step)};
    void *const out[DLT_MAX_OUT] = {d, loss};
    assert_int_equal(case_op(f->dev, DLT_OP_cross_entropy_both, &a, in, 5, out, &f->err), DLT_OK);
    assert_true(fabs(loss[0] - 7 * log(2)) < 1e-6 && loss[1] == 7);
    assert_floats(d, (const float[]){-1, 1, 6, -6}, 4, 1e-6F); /* q (p - onehot) 4 / 2 */
}

static void labels_outside(void **state)
{
    Fixture *f = *state;
    float logits[4] = {0}, w = 1, table[6] = {0}, y[3];
    int32_t label = 4, ids[3] = {0, 2, -1};
    double loss[2];
    DltStepState step = {.loss_scale = 1, .sample_weight = 1};
    DltCrossEntropy a = {.ignore = -100};
    DltEmbedding e = {2};
    CaseOperand in[] = {F32(logits, 1, 4), I32(&label, 1), F32(&w, 1), F32(NULL, 1), STEP_OF(step)};
    CaseOperand words[] = {I32(ids, 3), F32(table, 2, 3)};
    void *const out[DLT_MAX_OUT] = {loss};
    void *const vectors[DLT_MAX_OUT] = {y};
    assert_int_equal(case_op(f->dev, DLT_OP_cross_entropy_fwd, &a, in, 5, out, &f->err),
                     DLT_E_DATA);
    assert_string_equal(f->err.report[0].text, "operand: label 4 in row 0 is outside 0 to 3");
    assert_int_equal(case_op(f->dev, DLT_OP_embedding_fwd, &e, words, 2, vectors, &f->err),
                     DLT_E_DATA);
    assert_string_equal(f->err.report[1].text,
                        "operand: id 2 at position 1 is outside the table of 2");
}

/* ---- statistics and conversions ------------------------------------------------------------ */

/* x = 1, 3: mean 2, biased variance 1, unbiased 2; PyTorch: run = 0.75 run + 0.25 batch. A batch of
 * one value has no unbiased variance: the biased one, 0, is taken. */
static void running_statistics(void **state)
{
    Fixture *f = *state;
    float x[2] = {1, 3}, w = 2, b = 1, mean = 10, var = 4, y[2], m, rstd;
    DltNorm a = {.eps = 0, .momentum = 0.25F};
    CaseOperand in[] = {F32(x, 2, 1), F32(&w, 1), F32(&b, 1), F32(&mean, 1), F32(&var, 1)};
    void *const out[DLT_MAX_OUT] = {y, &m, &rstd};
    assert_int_equal(case_op(f->dev, DLT_OP_batch_norm_fwd, &a, in, 5, out, &f->err), DLT_OK);
    assert_floats(y, (const float[]){-1, 3}, 2, 1e-6F);
    assert_true(m == 2 && rstd == 1 && mean == 8 && var == 3.5F);
    a.eps = 0.25F;
    in[0] = (CaseOperand)F32(x, 1, 1);
    assert_int_equal(case_op(f->dev, DLT_OP_batch_norm_fwd, &a, in, 5, out, &f->err), DLT_OK);
    assert_true(m == 1 && rstd == 2 && mean == 6.25F && var == 2.625F);
}

static void casts(void **state)
{
    Fixture *f = *state;
    float x[4] = {1.00390625F /* half way: to even */, -2.7F, 65536, 3.5F};
    uint16_t bf16[4], f16[4];
    int32_t whole[4];
    CaseOperand in[] = {F32(x, 4)};
    run(f, DLT_OP_cast, &(DltCast){DLT_BF16}, in, 1, bf16);
    assert_int_equal(bf16[0], 0x3F80);
    run(f, DLT_OP_cast, &(DltCast){DLT_F16}, in, 1, f16);
    assert_int_equal(f16[2], 0x7C00); /* infinity */
    run(f, DLT_OP_cast, &(DltCast){DLT_I32}, in, 1, whole);
    assert_memory_equal(whole, ((int32_t[]){1, -2, 65536, 3}), sizeof whole);
    in[0] = (CaseOperand)I32(whole, 4);
    run(f, DLT_OP_cast, &(DltCast){DLT_F32}, in, 1, x);
    assert_floats(x, (const float[]){1, -2, 65536, 3}, 4, 0);
}

/* ---- fused forms --------------------------------------------------------------------------- */

/* An epilogue is the separate nodes one after the other: matmul, bias, activation, and times the
 * activation's gradient. Equal to the last bit, since both round at the same places. */
static void epilogue_is_nodes(void **state)
{
    enum { M = 7, K = 19, N = 33 };
    Fixture *f = *state;
    float a[M * K], b[N * K], bias[N], saved[M * N], c[M * N], pre[M * N], step[M * N], want[M * N];
    DltMatmul plain = {.tb = true};
    DltMatmul fused = {
        .tb = true,
        .ep = {.act = {DLT_FN_SILU, 0}, .act_grad = {DLT_FN_GELU, 0}, .save_pre = true}};
    for (int i = 0; i < M * K; i++)
        a[i] = (float)dlt_rng_normal(1, 1, (uint64_t)i);
    for (int i = 0; i < N * K; i++)
        b[i] = (float)dlt_rng_normal(1, 2, (uint64_t)i);
    for (int i = 0; i < N; i++)
        bias[i] = (float)dlt_rng_normal(1, 3, (uint64_t)i);
    for (int i = 0; i < M * N; i++)
        saved[i] = (float)dlt_rng_normal(1, 4, (uint64_t)i);
    CaseOperand in[] = {F32(a, M, K), F32(b, N, K), F32(bias, N), F32(saved, M, N)};
    void *const out[DLT_MAX_OUT] = {c, pre};
    assert_int_equal(case_op(f->dev, DLT_OP_matmul, &fused, in, 4, out, &f->err), DLT_OK);
    run(f, DLT_OP_matmul, &plain, in, 2, want);
    CaseOperand biased[] = {F32(want, M, N), F32(bias, N)};
    run(f, DLT_OP_bias_fwd, &(DltBias){1, N}, biased, 2, step);
    assert_memory_equal(pre, step, sizeof pre);
    CaseOperand active[] = {F32(step, M, N), F32(saved, M, N)};
    run(f, DLT_OP_unary_fwd, &fused.ep.act, active, 1, want);
    active[0].at = want;
    run(f, DLT_OP_unary_bwd, &fused.ep.act_grad, active, 2, step);
    assert_memory_equal(c, step, sizeof c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(fetch_normalises, setup, teardown),
        cmocka_unit_test_setup_teardown(fetch_augments, setup, teardown),
        cmocka_unit_test_setup_teardown(fetch_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(fetch_targets, setup, teardown),
        cmocka_unit_test_setup_teardown(fetch_masks, setup, teardown),
        cmocka_unit_test_setup_teardown(dropout_masks, setup, teardown),
        cmocka_unit_test_setup_teardown(topk_ties, setup, teardown),
        cmocka_unit_test_setup_teardown(confusion_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(regression_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(cross_entropy_values, setup, teardown),
        cmocka_unit_test_setup_teardown(labels_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(running_statistics, setup, teardown),
        cmocka_unit_test_setup_teardown(casts, setup, teardown),
        cmocka_unit_test_setup_teardown(epilogue_is_nodes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
