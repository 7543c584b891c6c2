/* Layers of transformers as graph builders: names and shapes of their parameters, initial values, and
 * the wording of every refusal. Values are tests/golden/torch's business. */
#include "tests/unit/layer_help.h"

#include "ops/attention.h"

#include <math.h>

/* One layer in scope "layer". */
static DltTensor *build(Fixture *f, const char *yaml, DltTensor *x)
{
    return layer(f, "layer", yaml, &x, 1);
}

static void expect_param(const Fixture *f, const char *name, const char *shape)
{
    char text[DLT_SHAPE_TEXT];
    const DltTensor *t = dlt_graph_find(f->graph, name);
    if (!t) fail_msg("no parameter %s", name);
    assert_string_equal(dlt_shape_text(&t->shape, text), shape);
}

static void parameters(void **state)
{
    (void)state;
    Fixture f;
    start(&f);
    DltTensor *x = dlt_input(&f.b, "x", dlt_shape3(2, 5, 24), DLT_F32);
    DltTensor *y = build(&f, "attention: {heads: 6, kv_heads: 2, qk_norm: true}", x);
    torch_ok(f.b.status, &f.err);
    assert_true(dlt_shape_equal(&y->shape, &x->shape));
    expect_param(&f, "layer.qkv.weight", "[40, 24]"); /* (6 + 2 * 2) heads of 4 */
    expect_param(&f, "layer.qkv.bias", "[40]");
    expect_param(&f, "layer.q_norm.weight", "[4]");
    expect_param(&f, "layer.k_norm.weight", "[4]");
    expect_param(&f, "layer.out.weight", "[24, 24]");
    expect_param(&f, "layer.out.bias", "[24]");
    assert_true(dlt_graph_find(f.graph, "layer.qkv.weight")->init->b == 0.02);
    assert_int_equal(dlt_graph_find(f.graph, "layer.qkv.bias")->init->kind, DLT_INIT_ZEROS);
    dlt_arena_free(f.arena);
}

/* GPT-2: residual projections start with std 0.02 / sqrt(2 layers), here 8 residuals. */
static void scaled(void **state)
{
    (void)state;
    Fixture f;
    start(&f);
    DltTensor *x = dlt_input(&f.b, "x", dlt_shape3(2, 5, 24), DLT_F32);
    (void)build(&f, "attention: {heads: 6, out_init: scaled, init: xavier_uniform}", x);
    const char *old = dlt_build_enter(&f.b, "mlp");
    (void)build(&f, "dense: {units: 24, init: scaled, std: 0.5}", x);
    dlt_build_leave(&f.b, old);
    torch_ok(f.b.status, &f.err);
    f.b.n_residual = 8;
    dlt_build_scale_inits(&f.b);
    const DltInit *out = dlt_graph_find(f.graph, "layer.out.weight")->init;
    const DltInit *dense = dlt_graph_find(f.graph, "mlp.layer.weight")->init;
    assert_int_equal(out->kind, DLT_INIT_NORMAL);
    assert_true(fabs(out->b - 0.02 / sqrt(8.0)) < 1e-15);
    assert_true(fabs(dense->b - 0.5 / sqrt(8.0)) < 1e-15);
    assert_int_equal(dlt_graph_find(f.graph, "layer.qkv.weight")->init->kind, DLT_INIT_UNIFORM);
    dlt_arena_free(f.arena);
}

/* The pairs counted for the FLOPs are those that are seen. */
static void seen(void **state)
{
    (void)state;
    static const struct {
        bool causal;
        int64_t window;
    } mask[] = {{true, 0}, {false, 0}, {true, 3}, {false, 3}, {true, 1}, {false, 100}};
    enum { T = 11 };
    for (size_t m = 0; m < sizeof mask / sizeof mask[0]; m++) {
        DltAttention a = {.causal = mask[m].causal, .window = mask[m].window};
        for (int64_t i = 0; i < T; i++)
            for (int64_t j = 0; j < T; j++) {
                bool sees = (!a.causal || j <= i) &&
                            (a.window == 0 || (i - j < a.window && j - i < a.window));
                DltKeys k = dlt_attention_keys(&a, i, T), q = dlt_attention_queries(&a, j, T);
                assert_int_equal(j >= k.lo && j < k.hi, sees);
                assert_int_equal(i >= q.lo && i < q.hi, sees);
            }
    }
}

typedef struct Refusal {
    const char *yaml;
    DltShape shape;
    const char *text;
} Refusal;

static const Refusal refusals[] = {
    {"attention: 7",
     {3, {2, 5, 768}},
     "model[0].attention.heads: 7 does not divide width 768 (divisors near: 6, 8)"},
    {"attention: 2",
     {2, {2, 768}},
     "model[0].attention: needs an input [N, tokens, width], but x [2, 768] has 2 dimensions; "
     "embedding makes them of ids, patch_embed of images"},
    {"attention: 1",
     {3, {2, 5, 768}},
     "model[0].attention.heads: 1 of width 768 each, wider than 256; use more heads"},
    {"attention: {heads: 6, kv_heads: 4}",
     {3, {2, 5, 12}},
     "model[0].attention.kv_heads: 4 does not divide heads 6"},
    {"attention: {heads: 4, rope: true}",
     {3, {2, 5, 12}},
     "model[0].attention.rope: turns pairs, but a head has the odd width 3"},
    {"attention: {heads: 4, rope_base: 100}",
     {3, {2, 5, 12}},
     "model[0].attention.rope_base has no effect with rope: false"},
    {"attention: {heads: 4, bias: false, bias_init: zeros}",
     {3, {2, 5, 12}},
     "model[0].attention.bias_init has no effect with bias: false"},
    {"position: {max: 4}",
     {3, {2, 5, 12}},
     "model[0].position.max: 4 positions are fewer than the 5 tokens of its input x [2, 5, 12]"},
    {"position: {kind: sinusoidal, max: 9}",
     {3, {2, 5, 12}},
     "model[0].position.max has no effect with kind: sinusoidal"},
    {"position: rotary",
     {3, {2, 5, 12}},
     "model[0].position.kind: rotary positions belong to attention; remove this layer and write "
     "attention: {rope: true, ...}"},
    {"patch_embed: {patch: 3, dim: 8}",
     {4, {2, 3, 32, 33}},
     "model[0].patch_embed.patch: 3 does not divide the height and width of its input x "
     "[2, 3, 32, 33]"},
    {"patch_embed: {patch: 4, dim: 8}",
     {2, {2, 3}},
     "model[0].patch_embed: needs an input [N, C, H, W], but x [2, 3] has 2 dimensions; add "
     "reshape: [C, H, W] before it, or remove the flatten"},
    {"swiglu: {hidden: 8, bias_init: zeros}",
     {3, {2, 5, 12}},
     "model[0].swiglu.bias_init has no effect with bias: false"},
    {"class_token",
     {2, {2, 5}},
     "model[0].class_token: needs an input [N, tokens, width], but x [2, 5] has 2 dimensions; "
     "embedding makes them of ids, patch_embed of images"},
    {"token_pool: first",
     {2, {2, 5}},
     "model[0].token_pool: needs an input [N, tokens, width], but x [2, 5] has 2 dimensions; "
     "embedding makes them of ids, patch_embed of images"},
};

static void refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        Fixture f;
        start(&f);
        (void)build(&f, refusals[i].yaml, dlt_input(&f.b, "x", refusals[i].shape, DLT_F32));
        if (!dlt_build_failed(&f.b)) fail_msg("%s was accepted", refusals[i].yaml);
        assert_int_equal(f.err.n, 1);
        assert_int_equal(f.err.report[0].status, DLT_E_CONFIG);
        assert_string_equal(f.err.report[0].text, refusals[i].text);
        dlt_arena_free(f.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters),
        cmocka_unit_test(scaled),
        cmocka_unit_test(seen),
        cmocka_unit_test(refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
