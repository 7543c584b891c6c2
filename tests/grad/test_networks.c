/* Reverse-mode differentiation of whole graphs against central differences, in double: three small
 * networks that together use tensors twice, share a weight between two layers, and go through
 * convolution, attention and normalisation. Every parameter is checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/sys.h"
#include "ops/conv.h"
#include "ops/dropout.h"
#include "ops/loss_ops.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"
#include "ops/step.h"
#include "passes/passes.h"
#include "tests/cases/cases.h"
#include <math.h>
#include <string.h>

static const double h = 1e-5, tolerance = 1e-7; /* as in test_grad.c */
static const DltStepState step_state = {.seed = 5, .batch = 2, .loss_scale = 4, .sample_weight = 3};

typedef struct Network {
    const char *name;
    /* Makes the logits of N samples and sets the number of labels. */
    DltTensor *(*build)(DltBuild *b, DltShape *labels);
} Network;

enum { N = 4, CLASSES = 5 };

/* The hidden layer is used twice: by the next layer and by the sum behind it. */
static DltTensor *residual_mlp(DltBuild *b, DltShape *labels)
{
    *labels = dlt_shape1(N);
    DltTensor *x = dlt_input(b, "x", dlt_shape2(N, 6), DLT_F32);
    DltTensor *a = dlt_unary(b, dlt_linear(b, "first", x, 8, true), DLT_FN_GELU, 0);
    DltTensor *c = dlt_dropout(b, dlt_linear(b, "second", a, 8, true), 0.25F);
    DltTensor *w = dlt_param(b, "norm.weight", dlt_shape1(8), dlt_init_ones());
    DltTensor *v = dlt_param(b, "norm.bias", dlt_shape1(8), dlt_init_zeros());
    DltTensor *y = dlt_layer_norm(b, dlt_add(b, a, c), w, v, 1e-5F);
    return dlt_linear(b, "head", y, CLASSES, true);
}

static DltTensor *conv_net(DltBuild *b, DltShape *labels)
{
    *labels = dlt_shape1(N);
    const DltConv conv = {
        .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .pad = {1, 1, 1, 1}, .groups = 1};
    const DltNorm norm = {.eps = 1e-5F, .momentum = 0.125F};
    const DltPool pool = {.max = true, .kernel = {2, 2}, .stride = {2, 2}};
    DltTensor *x = dlt_input(b, "x", dlt_shape4(N, 2, 6, 6), DLT_F32);
    DltTensor *filters = dlt_param(b, "conv.weight", dlt_shape4(4, 2, 3, 3), dlt_init_ones());
    DltTensor *bias = dlt_param(b, "conv.bias", dlt_shape1(4), dlt_init_zeros());
    DltTensor *y = dlt_conv(b, x, filters, bias, &conv);
    y = dlt_batch_norm(b, y, dlt_param(b, "bn.weight", dlt_shape1(4), dlt_init_ones()),
                       dlt_param(b, "bn.bias", dlt_shape1(4), dlt_init_zeros()),
                       dlt_state(b, "bn.mean", dlt_shape1(4), DLT_F32, dlt_init_zeros()),
                       dlt_state(b, "bn.var", dlt_shape1(4), DLT_F32, dlt_init_ones()), &norm);
    y = dlt_pool(b, dlt_unary(b, y, DLT_FN_RELU, 0), &pool);
    return dlt_linear(b, "head", dlt_reshape(b, y, dlt_shape2(N, -1)), CLASSES, true);
}

/* One head over T tokens; the embedding table is also the output layer. */
static DltTensor *tied_attention(DltBuild *b, DltShape *labels)
{
    enum { T = 3, D = 4 };
    *labels = dlt_shape2(N, T);
    DltTensor *ids = dlt_input(b, "ids", dlt_shape2(N, T), DLT_I32);
    DltTensor *table = dlt_param(b, "table", dlt_shape2(CLASSES, D), dlt_init_ones());
    DltTensor *x = dlt_embedding(b, ids, table);
    DltTensor *q = dlt_linear(b, "q", x, D, true), *k = dlt_linear(b, "k", x, D, false);
    DltTensor *v = dlt_linear(b, "v", x, D, true);
    DltTensor *scores = dlt_unary(b, dlt_matmul(b, q, k, false, true), DLT_FN_SCALE, 0.5);
    DltTensor *mixed = dlt_matmul(b, dlt_softmax(b, scores), v, false, false);
    DltTensor *w = dlt_param(b, "norm.weight", dlt_shape1(D), dlt_init_ones());
    DltTensor *y = dlt_rms_norm(b, dlt_add(b, x, mixed), w, 1e-5F);
    return dlt_matmul(b, y, table, false, true);
}

static const Network networks[] = {{"residual mlp with dropout", residual_mlp},
                                   {"convolution, batch norm, pooling", conv_net},
                                   {"attention with tied weights", tied_attention}};

typedef struct Run {
    CaseGraph g; /* arena and graph only */
    CaseValues v;
    DltDevice *dev;
    int n_forward;
} Run;

/* Random parameters and inputs; running variances 1. */
static void fill(Run *r)
{
    for (int i = 0; i < r->g.graph->n_tensor; i++) {
        const DltTensor *t = r->g.graph->tensor[i];
        int64_t n = dlt_shape_count(&t->shape);
        if (t->producer != NULL) continue;
        for (int64_t k = 0; k < n; k++) {
            if (t->dtype == DLT_I32) {
                ((int32_t *)r->v.at[i])[k] = (int32_t)(k * 7 + i) % CLASSES;
            } else if (t->dtype == DLT_F32) {
                bool one = t->role == DLT_STATE || strcmp(t->name, "w") == 0;
                ((double *)r->v.at[i])[k] = one ? 1 : dlt_rng_normal(3, (uint64_t)i, (uint64_t)k);
            }
        }
        if (t->dtype == DLT_U8) memcpy(r->v.at[i], &step_state, sizeof step_state);
    }
}

static void run_nodes(Run *r, int n)
{
    for (int i = 0; i < n; i++) {
        void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
        const DltNode *node = r->g.graph->node[i];
        if (node->op->view) continue;
        case_operands(&r->v, node, in, out);
        case_run(r->dev, case_plain_kernel(r->dev, node), node, in, out);
    }
}

static double loss(Run *r)
{
    run_nodes(r, r->n_forward);
    const double *pair = r->v.at[r->g.graph->loss->id];
    return pair[0] * (double)step_state.loss_scale / step_state.sample_weight;
}

static int check_parameter(Run *r, const DltTensor *p, const DltTensor *grad)
{
    int64_t n = dlt_shape_count(&p->shape);
    double *x = r->v.at[p->id];
    const DltTensor *base = grad->view_of != NULL ? grad->view_of : grad;
    const double *analytic = (const double *)r->v.at[base->id] + grad->view_offset;
    for (int64_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + h;
        double above = loss(r);
        x[i] = kept - h;
        double numeric = (above - loss(r)) / (2 * h);
        x[i] = kept;
        if (fabs(analytic[i] - numeric) <= tolerance * fmax(1, fabs(numeric))) continue;
        fail_msg("%s[%lld]: analytic %.12g, numeric %.12g", p->name, (long long)i, analytic[i],
                 numeric);
    }
    return 1;
}

static void check(void **state)
{
    const Network *network = *state;
    DltErr err;
    DltBuild b;
    DltTensor **grad;
    DltShape labels;
    int checked = 0, parameters = 0;
    Run r = {.g.arena = dlt_arena_new()};
    dlt_err_init(&err);
    r.g.graph = dlt_graph_new(r.g.arena);
    r.dev = case_cpu_device(r.g.arena, 1);
    dlt_build_init(&b, r.g.graph, &err);
    b.training = true;
    b.step = dlt_input(&b, "step", dlt_shape1((int64_t)sizeof step_state), DLT_U8);
    DltTensor *logits = network->build(&b, &labels);
    DltTensor *y = dlt_input(&b, "y", labels, DLT_I32);
    DltTensor *w = dlt_input(&b, "w", dlt_shape1(N), DLT_F32);
    r.g.graph->loss = dlt_cross_entropy(&b, logits, y, w, NULL,
                                        &(DltCrossEntropy){.smoothing = 0.125F, .ignore = -100});
    r.n_forward = r.g.graph->n_node;
    assert_int_equal(dlt_pass_autodiff(&b, &grad, &err), DLT_OK);
    case_values_new(&r.g, &r.v);
    fill(&r);
    run_nodes(&r, r.g.graph->n_node);
    for (int i = 0; i < r.g.graph->n_tensor; i++) {
        const DltTensor *t = r.g.graph->tensor[i];
        if (t->role != DLT_PARAM) continue;
        parameters++;
        checked += check_parameter(&r, t, grad[t->id]);
    }
    assert_true(checked >= 5 && checked == parameters);
    case_values_free(&r.v);
    dlt_backend_cpu.close(r.dev);
    dlt_arena_free(r.g.arena);
}

int main(void)
{
    enum { COUNT = sizeof networks / sizeof networks[0] };
    struct CMUnitTest tests[COUNT];
    for (int i = 0; i < COUNT; i++) {
        tests[i] = (struct CMUnitTest){networks[i].name, check, NULL, NULL,
                                       (void *)(uintptr_t)&networks[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
