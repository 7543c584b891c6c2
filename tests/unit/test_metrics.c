/* Metrics on accumulators worked out by hand, and what losses, metrics and optimizers refuse. Values
 * on data are compared with PyTorch in test_torch.c. */
#include "tests/golden/torch_file.h"

#include "api/train.h"
#include "ops/loss_ops.h"
#include "ops/norm.h"

#include <math.h>

static double value(const char *name, const double *acc, int64_t n_out)
{
    const DltMetricDef *m = dlt_metric_find(name);
    assert_non_null(m);
    return m->value(acc, n_out);
}

static void expect(const char *name, const double *acc, int64_t n_out, double want)
{
    double have = value(name, acc, n_out);
    if (!(fabs(have - want) <= 1e-15 * fmax(1.0, fabs(want))))
        fail_msg("%s is %.17g, not %.17g", name, have, want);
}

/* 3 classes, class 2 never occurs but is predicted once, class 3 neither:
 *          predicted 0  1  2  3
 * true 0             5  1  0  0     precision 5/7, recall 5/6
 * true 1             2  3  1  0     precision 3/4, recall 3/6
 * true 2             0  0  0  0     precision 0,   recall 0 (0/0) */
static void confusion(void **state)
{
    (void)state;
    const double acc[16] = {5, 1, 0, 0, 2, 3, 1, 0};
    expect("confusion", acc, 4, 8.0 / 12.0);
    expect("precision", acc, 4, (5.0 / 7.0 + 3.0 / 4.0) / 3.0);
    expect("recall", acc, 4, (5.0 / 6.0 + 3.0 / 6.0) / 3.0);
    expect("f1", acc, 4, (10.0 / 13.0 + 6.0 / 10.0) / 3.0);
    const double right[4] = {3, 0, 0, 9}, one_class[4] = {0, 0, 0, 4};
    expect("f1", right, 2, 1.0);
    expect("precision", one_class, 2, 1.0);
    expect("recall", one_class, 2, 1.0);
}

static void confusion_text(void **state)
{
    (void)state;
    const double acc[4] = {7, 1, 2, 30};
    const char *const names[] = {"cat", "a dog with a long name"};
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    dlt_metric_find("confusion")->text(acc, 2, names, out);
    fclose(out);
    assert_string_equal(text, "true \\ predicted        0        1 precision    recall        f1\n"
                              "   0 cat                7        1    0.7778    0.8750    0.8235\n"
                              "   1 a dog with         2       30    0.9677    0.9375    0.9524\n");
    free(text);
}

static void ratios(void **state)
{
    (void)state;
    const double pair[2] = {6, 8};
    expect("loss", pair, 10, 0.75);
    expect("top1", pair, 10, 0.75);
    expect("top5", pair, 10, 0.75);
    expect("perplexity", pair, 10, exp(0.75));
    /* p = {1, 2, 4}, t = {1, 3, 2}: |d| 0 1 2, t mean 2, sum (t - 2)^2 = 2 */
    const double values[6] = {3, 3, 5, 6, 14, 3};
    expect("mae", values, 1, 1.0);
    expect("mse", values, 1, 5.0 / 3.0);
    expect("rmse", values, 1, sqrt(5.0 / 3.0));
    expect("r2", values, 1, -1.5);
    /* two values a sample: sums are over values, not samples */
    const double wide[6] = {2, 4, 8, 0, 16, 4};
    expect("mae", wide, 2, 1.0);
    expect("mse", wide, 2, 2.0);
    expect("r2", wide, 2, 0.5);
    const double constant_met[6] = {2, 0, 0, 6, 18, 2}, constant_missed[6] = {2, 2, 2, 6, 18, 2};
    expect("r2", constant_met, 1, 1.0);
    expect("r2", constant_missed, 1, 0.0);
}

static void nothing_counted(void **state)
{
    (void)state;
    const double zero[64] = {0};
    for (int i = 0; dlt_metrics[i]; i++) {
        assert_true(dlt_metrics[i]->n_acc(8) <= 64);
        assert_true(isnan(dlt_metrics[i]->value(zero, 8)));
    }
}

/* ---- refusals ---- */

typedef struct Fixture {
    DltArena *arena;
    DltErr err;
    DltBuild b;
    DltTensor *out, *y, *w;
} Fixture;

static void start(Fixture *f, int64_t n_class)
{
    f->arena = dlt_arena_new();
    dlt_err_init(&f->err);
    dlt_build_init(&f->b, dlt_graph_new(f->arena), &f->err);
    f->b.step = dlt_input(&f->b, "step", dlt_shape1(64), DLT_U8);
    f->out = dlt_input(&f->b, "out", dlt_shape2(3, n_class), DLT_F32);
    f->y = dlt_input(&f->b, "y", dlt_shape1(3), DLT_I32);
    f->w = dlt_input(&f->b, "w", dlt_shape1(3), DLT_F32);
}

/* Options of a loss or optimizer, by its own table. */
static DltOpts options(Fixture *f, const DltField *fields, size_t size, const char *yaml)
{
    const DltYaml *tree = torch_yaml(f->arena, yaml), *value_tree;
    const char *kind = torch_kind(tree, &value_tree);
    DltOpts o;
    torch_ok(dlt_schema_read(f->arena, fields, size, value_tree, (DltWhere){kind, tree->at}, &o,
                             &f->err),
             &f->err);
    return o;
}

static void expect_refusal(Fixture *f, const char *message)
{
    assert_int_equal(f->err.n, 1);
    assert_int_equal(f->err.report[0].status, DLT_E_CONFIG);
    assert_string_equal(f->err.report[0].text, message);
    dlt_arena_free(f->arena);
}

static void refused_loss(const char *yaml, DltTensor *(*last)(DltBuild *b, DltTensor *x),
                         const char *message)
{
    Fixture f;
    start(&f, 4);
    const DltYaml *unused;
    const DltLossDef *def = dlt_loss_find(torch_kind(torch_yaml(f.arena, yaml), &unused));
    assert_non_null(def);
    DltOpts o = options(&f, def->fields, def->opt_size, yaml);
    DltTensor *loss = def->build(&f.b, &o, last ? last(&f.b, f.out) : f.out, f.y, f.w);
    assert_int_equal(loss->id, -1);
    expect_refusal(&f, message);
}

static DltTensor *sigmoid(DltBuild *b, DltTensor *x)
{
    return dlt_unary(b, x, DLT_FN_SIGMOID, 0.0);
}

static void losses_refuse(void **state)
{
    (void)state;
    refused_loss("cross_entropy", dlt_softmax,
                 "cross_entropy: takes logits, but the model ends in softmax; remove the softmax "
                 "(predict applies it)");
    refused_loss("bce", sigmoid,
                 "bce: takes logits, but the model ends in sigmoid; remove the sigmoid (predict "
                 "applies it)");
    refused_loss("cross_entropy: {class_weights: [1, 2, 3]}", NULL,
                 "cross_entropy.class_weights: 3 numbers, but the model has 4 outputs; give one a "
                 "class");
    refused_loss("mse", NULL,
                 "pointwise_loss_fwd: out [3, 4] and y [3]: outputs and targets must have equally "
                 "many values");
}

static void refused_metric(const char *name, int64_t n_class, const char *message)
{
    Fixture f;
    start(&f, n_class);
    DltCrossEntropy attr = {.ignore = -100};
    DltTensor *loss = dlt_cross_entropy(&f.b, f.out, f.y, f.w, NULL, &attr);
    const DltMetricDef *m = dlt_metric_find(name);
    DltTensor *acc =
        dlt_state(&f.b, "acc", dlt_shape1(m->n_acc(n_class)), DLT_F64, dlt_init_zeros());
    m->build(&f.b, f.out, f.y, f.w, loss, acc);
    assert_true(dlt_build_failed(&f.b));
    expect_refusal(&f, message);
}

static void metrics_refuse(void **state)
{
    (void)state;
    refused_metric("top5", 4, "metric top5 needs at least 5 classes, not 4");
    refused_metric("f1", 50257,
                   "metrics confusion, f1, precision and recall keep a table of classes x classes; "
                   "50257 classes are more than 4096");
}

static void refused_optimizer(const char *yaml, const char *message)
{
    Fixture f;
    start(&f, 4);
    const DltYaml *unused;
    const DltOptimDef *def = dlt_optim_find(torch_kind(torch_yaml(f.arena, yaml), &unused));
    assert_non_null(def);
    DltOpts o = options(&f, def->fields, def->opt_size, yaml);
    assert_int_equal(def->check(&o, &f.err), DLT_E_CONFIG);
    expect_refusal(&f, message);
}

static void optimizers_refuse(void **state)
{
    (void)state;
    refused_optimizer("sgd: {lr: 0.1, nesterov: true}",
                      "sgd.nesterov: needs momentum above 0 and dampening 0, not momentum 0 and "
                      "dampening 0");
    refused_optimizer("sgd: {lr: 0.1, momentum: 0.9, dampening: 0.1, nesterov: true}",
                      "sgd.nesterov: needs momentum above 0 and dampening 0, not momentum 0.9 and "
                      "dampening 0.1");
    refused_optimizer("sgd: {lr: 0.1, dampening: 0.1}",
                      "sgd.dampening has no effect without momentum");
    refused_optimizer("adamw: {betas: 0.9}",
                      "adamw.betas: 1 numbers; two are needed, such as [0.9, 0.999]");
    refused_optimizer("lion: {betas: [0.9, 0.9, 0.9]}",
                      "lion.betas: 3 numbers; two are needed, such as [0.9, 0.999]");
}

/* With smoothing, perplexity gets a cross entropy of its own; without, it shares the loss. */
static void perplexity_is_plain(void **state)
{
    (void)state;
    for (int smooth = 0; smooth < 2; smooth++) {
        Fixture f;
        start(&f, 4);
        DltCrossEntropy attr = {.smoothing = smooth ? 0.1f : 0.0f, .ignore = 7};
        DltTensor *loss = dlt_cross_entropy(&f.b, f.out, f.y, f.w, NULL, &attr);
        DltTensor *acc = dlt_state(&f.b, "acc", dlt_shape1(2), DLT_F64, dlt_init_zeros());
        int n = f.b.graph->n_node;
        dlt_metric_find("perplexity")->build(&f.b, f.out, f.y, f.w, loss, acc);
        torch_ok(f.b.status, &f.err);
        assert_int_equal(f.b.graph->n_node - n, 1 + smooth);
        if (smooth) {
            const DltCrossEntropy *own = f.b.graph->node[n]->attr;
            assert_true(own->smoothing == 0.0f && own->ignore == 7);
        }
        dlt_arena_free(f.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confusion),
        cmocka_unit_test(confusion_text),
        cmocka_unit_test(ratios),
        cmocka_unit_test(nothing_counted),
        cmocka_unit_test(losses_refuse),
        cmocka_unit_test(metrics_refuse),
        cmocka_unit_test(optimizers_refuse),
        cmocka_unit_test(perplexity_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
