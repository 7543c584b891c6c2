/* Layers as graph builders: shapes of random conv and pool stacks against counting (CASES.md C37),
 * initialisations by PyTorch's rules, tied weights, and the wording of every refusal. */
#include "tests/unit/layer_help.h"

#include "base/rng.h"

#include <inttypes.h>
#include <math.h>

static DltTensor *input(Fixture *f, const char *name, DltDtype dtype, const char *dims)
{
    DltShape s = {0};
    for (char *end, *at = dlt_arena_str(f->arena, dims);; at = end) {
        long long d = strtoll(at, &end, 10);
        if (end == at) break;
        s.dim[s.rank++] = d;
    }
    return dlt_input(&f->b, name, s, dtype);
}

static void expect_shape(const DltTensor *t, const DltShape *want)
{
    char a[DLT_SHAPE_TEXT], b[DLT_SHAPE_TEXT];
    if (!dlt_shape_equal(&t->shape, want))
        fail_msg("%s is %s, not %s", t->name, dlt_shape_text(&t->shape, a),
                 dlt_shape_text(want, b));
}

/* ---- shapes of stacks ---- */

typedef struct Draw {
    uint64_t seed, n;
} Draw;

static int64_t below(Draw *d, int64_t n)
{
    DltRand4 r = dlt_philox(d->seed, 77, d->n++);
    return (int64_t)dlt_rng_below(r.v[0], (uint32_t)n);
}

/* Windows that lie wholly inside the padded line, counted one by one. */
static int64_t count_windows(int64_t padded, int64_t kernel, int64_t stride, int64_t dilation)
{
    int64_t n = 0;
    for (int64_t at = 0; at + dilation * (kernel - 1) < padded; at += stride)
        n++;
    return n;
}

/* Adds one random layer; false when it must be refused. */
static bool random_layer(Fixture *f, Draw *d, DltTensor **x, bool *refused)
{
    static const char *const kinds[] = {"conv", "max_pool", "avg_pool"};
    int kind = (int)below(d, 3);
    int64_t k[2] = {1 + below(d, 7), 1 + below(d, 7)}, s[2] = {1 + below(d, 4), 1 + below(d, 4)};
    int64_t dil = kind == 0 ? 1 + below(d, 3) : 1, filters = 1 + below(d, 4);
    bool same = below(d, 3) == 0;
    int64_t pad[2];
    for (int a = 0; a < 2; a++)
        pad[a] = kind == 0 ? below(d, 4) : below(d, k[a] / 2 + 1);
    char pads[64], yaml[256];
    snprintf(pads, sizeof pads, "[%" PRId64 ", %" PRId64 "]", pad[0], pad[1]);
    snprintf(yaml, sizeof yaml,
             "%s: {kernel: [%" PRId64 ", %" PRId64 "], stride: [%" PRId64 ", %" PRId64
             "], pad: %s%s",
             kinds[kind], k[0], k[1], s[0], s[1], same ? "same" : pads, kind == 0 ? "" : "}");
    if (kind == 0) {
        size_t n = strlen(yaml);
        snprintf(yaml + n, sizeof yaml - n, ", filters: %" PRId64 ", dilation: %" PRId64 "}",
                 filters, dil);
    }
    DltShape want = (*x)->shape;
    if (kind == 0) want.dim[1] = filters;
    bool fits = true;
    for (int a = 0; a < 2; a++) {
        int64_t size = (*x)->shape.dim[2 + a];
        want.dim[2 + a] =
            same ? (size + s[a] - 1) / s[a] : count_windows(size + 2 * pad[a], k[a], s[a], dil);
        fits = fits && want.dim[2 + a] > 0;
    }
    *x = layer(f, dlt_arena_printf(f->arena, "l%d", (int)d->n), yaml, x, 1);
    *refused = dlt_build_failed(&f->b);
    if (*refused == fits) fail_msg("%s: %s", yaml, fits ? f->err.report[0].text : "accepted");
    if (!fits) return false;
    expect_shape(*x, &want);
    return true;
}

static void random_stacks(void **state)
{
    (void)state;
    int n_refused = 0, n_layer = 0;
    for (uint64_t seed = 0; seed < 10000; seed++) {
        Fixture f;
        start(&f);
        Draw d = {.seed = seed};
        DltShape s =
            dlt_shape4(1 + below(&d, 3), 1 + below(&d, 4), 1 + below(&d, 64), 1 + below(&d, 64));
        DltTensor *x = dlt_input(&f.b, "x", s, DLT_F32);
        bool refused = false;
        for (int64_t n = 1 + below(&d, 5); n > 0 && random_layer(&f, &d, &x, &refused); n--)
            n_layer++;
        if (refused) {
            n_refused++;
            assert_int_equal(dlt_err_status(&f.err), DLT_E_CONFIG);
        }
        dlt_arena_free(f.arena);
    }
    assert_true(n_refused > 300 && n_layer > 10000); /* both sides are exercised */
}

/* ---- refusals ---- */

static const struct {
    const char *config, *dims, *dims2, *message; /* dims2: a second input, or NULL */
    DltDtype dtype;
} refusals[] = {
    {"dense: 10", "8 3 28 28", NULL,
     "model[0].dense: acts on the last axis, but its input x [8, 3, 28, 28] is an image [N, C, H, "
     "W]; add flatten or global_avg_pool before dense",
     DLT_F32},
    {"dense: 10", "8 12", NULL,
     "model[0].dense: needs real numbers, but its input x [8, 12] holds i32; add embedding before "
     "it",
     DLT_I32},
    {"dense: 0", "8 12", NULL, "model[0].dense.units: 0 is out of range [1, 16777216]", DLT_F32},
    {"dense: {units: 4, tie: none.weight}", "8 12", NULL,
     "model[0].dense.tie: there is no parameter 'none.weight' before this layer", DLT_F32},
    {"dense: {units: 4, tie: a, init: zeros}", "8 12", NULL,
     "model[0].dense.init has no effect with tie: a, whose values are its own layer's", DLT_F32},
    {"dense: {units: 4, bias: false, bias_init: ones}", "8 12", NULL,
     "model[0].dense.bias_init has no effect with bias: false", DLT_F32},
    {"dense: {units: 4, init: normal}", "8 12", NULL,
     "model[0].dense: init: normal needs std, such as std: 0.02", DLT_F32},
    {"dense: {units: 4, std: 0.1}", "8 12", NULL,
     "model[0].dense.std has no effect with init: fan_in_uniform", DLT_F32},
    {"dense: {units: 4, init: normal, std: 1, gain: 2}", "8 12", NULL,
     "model[0].dense.gain has no effect with init: normal", DLT_F32},
    {"dense: {units: 4, init: xavier_normal, fan: out}", "8 12", NULL,
     "model[0].dense.fan has no effect with init: xavier_normal", DLT_F32},
    {"conv: {filters: 4, kernel: 3}", "8 12", NULL,
     "model[0].conv: needs an input [N, C, H, W], but x [8, 12] has 2 dimensions; add reshape: [C, "
     "H, W] before it, or remove the flatten",
     DLT_F32},
    {"conv: {filters: 4, kernel: 5}", "1 1 4 9", NULL,
     "model[0].conv: a kernel of height 5 with dilation 1 spans 5, but its input x [1, 1, 4, 9] "
     "with pad 0 has 4; use a smaller kernel, or pad: same",
     DLT_F32},
    {"conv: {filters: 4, kernel: 3, dilation: [1, 5]}", "1 1 4 9", NULL,
     "model[0].conv: a kernel of width 3 with dilation 5 spans 11, but its input x [1, 1, 4, 9] "
     "with pad 0 has 9; use a smaller kernel, or pad: same",
     DLT_F32},
    {"conv: {filters: 0, kernel: 3}", "1 1 4 4", NULL,
     "model[0].conv.filters: 0 is out of range [1, 16777216]", DLT_F32},
    {"conv: {filters: -1, kernel: 3}", "1 1 4 4", NULL,
     "model[0].conv.filters: -1 is out of range [1, 16777216]", DLT_F32},
    {"conv: {filters: 1, kernel: 0}", "1 1 4 4", NULL,
     "model[0].conv.kernel: 0 is out of range [1, 65536]", DLT_F32},
    {"conv: {filters: 1, kernel: 3, stride: 0}", "1 1 4 4", NULL,
     "model[0].conv.stride: 0 is out of range [1, 65536]", DLT_F32},
    {"conv: {filters: 1, kernel: [3, 3, 3]}", "1 1 4 4", NULL,
     "model[0].conv.kernel: 3 values; give a number or [height, width]", DLT_F32},
    {"conv: {filters: 1, kernel: 3, pad: -1}", "1 1 4 4", NULL,
     "model[0].conv.pad: '-1' is not a padding; give a number in [0, 65536], [height, width], same "
     "or valid",
     DLT_F32},
    {"conv: {filters: 1, kernel: 3, pad: sam}", "1 1 4 4", NULL,
     "model[0].conv.pad: 'sam' is not a padding; give a number in [0, 65536], [height, width], "
     "same or valid",
     DLT_F32},
    {"conv: {filters: 1, kernel: 3, pad: [1, 1, 1, 1]}", "1 1 4 4", NULL,
     "model[0].conv.pad: 4 values; give a number, [height, width], same or valid", DLT_F32},
    {"conv: {filters: 5, kernel: 3, groups: 2}", "1 4 4 4", NULL,
     "model[0].conv.groups: 2 does not divide filters 5", DLT_F32},
    {"conv: {filters: 6, kernel: 3, groups: 3}", "1 4 4 4", NULL,
     "model[0].conv.groups: 3 does not divide the 4 channels of its input x [1, 4, 4, 4]", DLT_F32},
    {"max_pool: {kernel: 3, pad: 2}", "1 1 8 8", NULL,
     "model[0].max_pool.pad: 2 is more than half the kernel's height 3, so a window could see "
     "nothing but padding",
     DLT_F32},
    {"avg_pool: 9", "1 1 8 8", NULL,
     "model[0].avg_pool: a kernel of height 9 with dilation 1 spans 9, but its input x [1, 1, 8, "
     "8] with pad 0 has 8; use a smaller kernel, or pad: same",
     DLT_F32},
    {"global_avg_pool", "4 9", NULL,
     "model[0].global_avg_pool: needs an input [N, C, H, W], but x [4, 9] has 2 dimensions; add "
     "reshape: [C, H, W] before it, or remove the flatten",
     DLT_F32},
    {"batch_norm", "2 3 4", NULL,
     "model[0].batch_norm: needs an input [N, C] or [N, C, H, W], but got x [2, 3, 4]; layer_norm "
     "normalises the last axis of any input",
     DLT_F32},
    {"batch_norm", "1 7", NULL,
     "model[0].batch_norm: one value a channel in x [1, 7] has no variance; use a micro batch of "
     "at least 2, or layer_norm",
     DLT_F32},
    {"batch_norm: {eps: 0}", "2 7", NULL, "model[0].batch_norm.eps: 0 is out of range (0, 1]",
     DLT_F32},
    {"layer_norm", "1 3 8 8", NULL,
     "model[0].layer_norm: normalises the last axis, which is the width of the image x [1, 3, 8, "
     "8]; use group_norm: 1 for all channels together, or batch_norm",
     DLT_F32},
    {"group_norm: 2", "1 3 8 8", NULL,
     "model[0].group_norm.groups: 2 does not divide the 3 channels of its input x [1, 3, 8, 8]",
     DLT_F32},
    {"softmax", "1 3 8 8", NULL,
     "model[0].softmax: acts on the last axis, which is the width of the image x [1, 3, 8, 8]; add "
     "flatten before it",
     DLT_F32},
    {"dropout: 1", "2 3", NULL, "model[0].dropout.p: 1 is out of range [0, 1)", DLT_F32},
    {"reshape: [2, 4]", "3 9", NULL,
     "model[0].reshape: the 9 values of a sample of its input x [3, 9] do not fill the shape [2, "
     "4]",
     DLT_F32},
    {"reshape: [2, -1]", "3 9", NULL,
     "model[0].reshape: the 9 values of a sample of its input x [3, 9] do not fill the shape [2, "
     "-1]",
     DLT_F32},
    {"reshape: [1073741824, 1073741824, 1073741824, -1]", "3 9", NULL,
     "model[0].reshape: the 9 values of a sample of its input x [3, 9] do not fill the shape "
     "[1073741824, 1073741824, 1073741824, -1]",
     DLT_F32},
    {"reshape: [-1, -1]", "3 9", NULL, "model[0].reshape.shape: only one dimension can be -1",
     DLT_F32},
    {"reshape: [0, 9]", "3 9", NULL, "model[0].reshape.shape: a dimension of 0 holds nothing",
     DLT_F32},
    {"reshape: [1, 1, 1, 1, 1, 9]", "3 9", NULL,
     "model[0].reshape.shape: 6 dimensions; 1 to 5 besides the batch are possible", DLT_F32},
    {"embedding: 4", "3 9", NULL,
     "model[0].embedding: this data has no vocabulary; write vocab: and the number of ids",
     DLT_I32},
    {"embedding: {dim: 4, vocab: 5}", "3 9", NULL,
     "model[0].embedding: looks up ids, but its input x [3, 9] holds f32", DLT_F32},
    {"relu", "3 9", NULL,
     "model[0].relu: needs real numbers, but its input x [3, 9] holds i32; add embedding before it",
     DLT_I32},
    {"add", "2 4 8 8", "2 8 4 4",
     "model[0].add: x [2, 4, 8, 8] and z [2, 8, 4, 4] have different shapes; add needs equal ones "
     "(project one with conv or dense)",
     DLT_F32},
    {"add", "2 4 8 8", "2 4 1 1",
     "model[0].add: x [2, 4, 8, 8] and z [2, 4, 1, 1] have different shapes; add needs equal ones "
     "(project one with conv or dense)",
     DLT_F32},
    {"mul", "2 4 8 8", "2 4",
     "model[0].mul: x [2, 4, 8, 8] and z [2, 4] have different shapes; mul needs equal ones, or 1 "
     "where one is stretched",
     DLT_F32},
    {"concat", "2 4 8 8", "2 4 8 7",
     "model[0].concat: x [2, 4, 8, 8] and z [2, 4, 8, 7] have different shapes; concat needs all "
     "but the joined axis equal",
     DLT_F32},
    {"concat", "2 4", "2 4 1",
     "model[0].concat: x [2, 4] and z [2, 4, 1] have different shapes; concat needs all but the "
     "joined axis equal",
     DLT_F32},
    {"concat: {axis: 2}", "2 4", "2 4", "model[0].concat.axis: 2 is not an axis of x [2, 4]",
     DLT_F32},
};

static void refuse(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        Fixture f;
        start(&f);
        DltTensor *in[2] = {input(&f, "x", refusals[i].dtype, refusals[i].dims)};
        if (refusals[i].dims2) in[1] = input(&f, "z", DLT_F32, refusals[i].dims2);
        layer(&f, "l", refusals[i].config, in, refusals[i].dims2 ? 2 : 1);
        if (!dlt_build_failed(&f.b)) fail_msg("'%s' was accepted", refusals[i].config);
        assert_int_equal(f.err.n, 1);
        assert_int_equal(f.err.report[0].status, DLT_E_CONFIG);
        assert_string_equal(f.err.report[0].text, refusals[i].message);
        assert_int_equal(f.err.report[0].at.line, 1);
        dlt_arena_free(f.arena);
    }
}

/* ---- initialisation ---- */

/* By the formulas of torch.nn.init for a weight [6, 4, 3, 3]: fan_in 36, fan_out 54. */
static void initial_values(void **state)
{
    (void)state;
    const struct {
        const char *options;
        DltInitKind kind;
        double b; /* upper bound or std */
    } rows[] = {
        {"", DLT_INIT_UNIFORM, 1.0 / 6.0},
        {", init: zeros", DLT_INIT_ZEROS, 0.0},
        {", init: ones", DLT_INIT_ONES, 0.0},
        {", init: kaiming_uniform", DLT_INIT_UNIFORM, 0.40824829046386302 /* sqrt(6/36) */},
        {", init: kaiming_normal", DLT_INIT_NORMAL, 0.23570226039551584 /* sqrt(2/36) */},
        {", init: kaiming_normal, fan: out", DLT_INIT_NORMAL, 0.19245008972987526 /* sqrt(2/54) */},
        {", init: kaiming_normal, gain: 1", DLT_INIT_NORMAL, 1.0 / 6.0},
        {", init: xavier_uniform", DLT_INIT_UNIFORM, 0.25819888974716110 /* sqrt(6/90) */},
        {", init: xavier_normal", DLT_INIT_NORMAL, 0.14907119849998599 /* sqrt(2/90) */},
        {", init: xavier_normal, gain: 2", DLT_INIT_NORMAL, 0.29814239699997197},
        {", init: lecun_uniform", DLT_INIT_UNIFORM, 0.28867513459481287 /* sqrt(3/36) */},
        {", init: lecun_normal", DLT_INIT_NORMAL, 1.0 / 6.0},
        {", init: normal, std: 0.02", DLT_INIT_NORMAL, 0.02},
        {", init: trunc_normal, std: 0.02", DLT_INIT_TRUNC_NORMAL, 0.02},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        Fixture f;
        start(&f);
        DltTensor *x = input(&f, "x", DLT_F32, "1 4 5 5");
        layer(&f, "c",
              dlt_arena_printf(f.arena, "conv: {filters: 6, kernel: 3%s}", rows[i].options), &x, 1);
        torch_ok(f.b.status, &f.err);
        const DltInit *init = dlt_graph_find(f.graph, "c.weight")->init;
        assert_int_equal(init->kind, rows[i].kind);
        if (!(fabs(init->b - rows[i].b) <= 1e-15))
            fail_msg("'%s': %.17g, not %.17g", rows[i].options, init->b, rows[i].b);
        assert_true(init->a == (init->kind == DLT_INIT_UNIFORM ? -init->b : 0.0));
        const DltInit *bias = dlt_graph_find(f.graph, "c.bias")->init;
        assert_int_equal(bias->kind, DLT_INIT_UNIFORM);
        assert_true(fabs(bias->b - 1.0 / 6.0) <= 1e-15 && bias->a == -bias->b);
        dlt_arena_free(f.arena);
    }
}

static void other_initial_values(void **state)
{
    (void)state;
    Fixture f;
    start(&f);
    DltTensor *x = input(&f, "x", DLT_F32, "3 16"), *ids = input(&f, "ids", DLT_I32, "3 2");
    layer(&f, "d", "dense: {units: 4, bias_init: zeros}", &x, 1);
    layer(&f, "n", "batch_norm", &x, 1);
    layer(&f, "r", "rms_norm", &x, 1);
    f.b.vocab = 11;
    layer(&f, "e", "embedding: 5", &ids, 1);
    torch_ok(f.b.status, &f.err);
    assert_true(fabs(dlt_graph_find(f.graph, "d.weight")->init->b - 0.25) <= 1e-15);
    assert_int_equal(dlt_graph_find(f.graph, "d.bias")->init->kind, DLT_INIT_ZEROS);
    assert_int_equal(dlt_graph_find(f.graph, "n.weight")->init->kind, DLT_INIT_ONES);
    assert_int_equal(dlt_graph_find(f.graph, "n.bias")->init->kind, DLT_INIT_ZEROS);
    assert_int_equal(dlt_graph_find(f.graph, "n.running_mean")->init->kind, DLT_INIT_ZEROS);
    assert_int_equal(dlt_graph_find(f.graph, "n.running_var")->init->kind, DLT_INIT_ONES);
    assert_int_equal(dlt_graph_find(f.graph, "n.running_var")->role, DLT_STATE);
    assert_int_equal(dlt_graph_find(f.graph, "r.weight")->init->kind, DLT_INIT_ONES);
    const DltTensor *e = dlt_graph_find(f.graph, "e.weight");
    expect_shape(e, &(DltShape){2, {11, 5}});
    assert_int_equal(e->init->kind, DLT_INIT_NORMAL);
    assert_true(e->init->b == 0.02);
    dlt_arena_free(f.arena);
}

/* ---- shared weights ---- */

static void tied(void **state)
{
    (void)state;
    Fixture f;
    start(&f);
    DltTensor *ids = input(&f, "ids", DLT_I32, "2 3");
    DltTensor *h = layer(&f, "wte", "embedding: {dim: 4, vocab: 9}", &ids, 1);
    DltTensor *y = layer(&f, "head", "dense: {units: 9, bias: false, tie: wte.weight}", &h, 1);
    torch_ok(f.b.status, &f.err);
    expect_shape(y, &(DltShape){3, {2, 3, 9}});
    int n_param = 0;
    for (int i = 0; i < f.graph->n_tensor; i++)
        n_param += f.graph->tensor[i]->role == DLT_PARAM;
    assert_int_equal(n_param, 1);
    assert_ptr_equal(y->producer->in[1], dlt_graph_find(f.graph, "wte.weight"));
    layer(&f, "bad", "dense: {units: 8, tie: wte.weight}", &h, 1);
    assert_true(dlt_build_failed(&f.b));
    assert_string_equal(f.err.report[0].text,
                        "model[0].dense.tie: wte.weight [9, 4] does not fit: 8 units on the input "
                        "wte.embedding_fwd [2, 3, 4] need a weight [8, 4]");
    dlt_arena_free(f.arena);
    start(&f);
    ids = input(&f, "ids", DLT_I32, "2 3");
    h = layer(&f, "wte", "embedding: {dim: 4, vocab: 9}", &ids, 1);
    layer(&f, "head", "dense: {units: 9, tie: wte.weihgt}", &h, 1);
    assert_string_equal(f.err.report[0].text,
                        "model[0].dense.tie: there is no parameter 'wte.weihgt' before this layer; "
                        "did you mean 'wte.weight'?");
    dlt_arena_free(f.arena);
    start(&f);
    f.b.vocab = 10;
    ids = input(&f, "ids", DLT_I32, "2 3");
    layer(&f, "wte", "embedding: {dim: 4, vocab: 9}", &ids, 1);
    assert_string_equal(f.err.report[0].text,
                        "model[0].embedding.vocab: 9 is smaller than the data's 10");
    dlt_arena_free(f.arena);
}

/* A failed build stays failed: further layers add nothing and report nothing. */
static void sticky(void **state)
{
    (void)state;
    for (int i = 0; dlt_layers[i]; i++) {
        Fixture f;
        start(&f);
        DltTensor *x = input(&f, "x", DLT_F32, "2 3 4 4");
        DltTensor *bad[2];
        bad[0] = bad[1] = layer(&f, "bad", "dense: 2", &x, 1);
        const DltLayerDef *def = dlt_layers[i];
        int n = f.graph->n_node, n_tensor = f.graph->n_tensor;
        DltField fields[32] = {0};
        for (int k = 0; def->fields && def->fields[k].key; k++) {
            fields[k] = def->fields[k];
            fields[k].required = false;
        }
        DltOpts o;
        torch_ok(dlt_schema_read(f.arena, fields, def->opt_size, NULL,
                                 (DltWhere){def->name, DLT_NO_MARK}, &o, &f.err),
                 &f.err);
        DltTensor *y = def->build(&f.b, &o, bad, def->min_in > 1 ? 2 : 1);
        assert_int_equal(y->id, -1);
        assert_int_equal(f.graph->n_node, n);
        assert_int_equal(f.graph->n_tensor, n_tensor);
        assert_int_equal(f.err.n, 1);
        dlt_arena_free(f.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_stacks),  cmocka_unit_test(refuse),
        cmocka_unit_test(initial_values), cmocka_unit_test(other_initial_values),
        cmocka_unit_test(tied),           cmocka_unit_test(sticky),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
