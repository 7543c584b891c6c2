/* attention: multi-head self-attention.  x [N, T, C] -> y [N, T, C]: one product makes queries, keys
 * and values side by side (qkv.weight [(heads + 2 kv_heads) head_dim, C]), attention mixes them, a
 * second one (out.weight [C, heads head_dim]) leads back.  Vaswani et al. 2017, section 3.2.2; grouped
 * queries: Ainslie et al. 2023; q/k norm: Dehghani et al. 2023, section 2; rope: Su et al. 2021. */
#include "layers/common.h"
#include "ops/decode.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"

#include <inttypes.h>
#include <math.h>

typedef struct Attention {
    int64_t heads, kv_heads, head_dim, window;
    bool causal, bias, qk_norm, rope;
    double dropout, rope_base;
    int bias_init, out_init;
    DLT_INIT_MEMBERS;
} Attention;

static const DltField fields[] = {
    DLT_INT(Attention, heads, .required = true, .main = true, .lo = 1, .hi = 1 << 16,
            .help = "number of heads; divides the width of the input", .example = "heads: 12"),
    DLT_INT(Attention, kv_heads, .lo = 1, .hi = 1 << 16,
            .help = "key and value heads, each shared by heads / kv_heads query heads; default: "
                    "heads",
            .example = "kv_heads: 4"),
    DLT_INT(Attention, head_dim, .lo = 1, .hi = DLT_MAX_HEAD_DIM,
            .help = "width of a head; default: width of the input / heads",
            .example = "head_dim: 64"),
    DLT_BOOL(Attention, causal, .def = "false",
             .help = "a token sees itself and those before it only", .example = "causal: true"),
    DLT_INT(Attention, window, .lo = 1, .hi = 1 << 30, .unit = "tokens",
            .help = "a token sees tokens less than this far away; default: all",
            .example = "window: 256"),
    DLT_FLOAT(Attention, dropout, .def = "0", .lo = 0, .hi = 1, .open_hi = true,
              .help = "probability of dropping an attention weight while training",
              .example = "dropout: 0.1"),
    DLT_BOOL(Attention, bias, .def = "true", .help = "add a bias in both projections",
             .example = "bias: false"),
    DLT_BOOL(Attention, qk_norm, .def = "false",
             .help = "rms_norm of each query and key head, with a weight for each",
             .example = "qk_norm: true"),
    DLT_BOOL(Attention, rope, .def = "false",
             .help = "turn queries and keys by their position (rotary position embedding)",
             .example = "rope: true"),
    DLT_FLOAT(Attention, rope_base, .def = "10000", .lo = 1, .hi = 1e9, .open_lo = true,
              .help = "base of the rotary angles", .example = "rope_base: 500000"),
    DLT_ENUM(Attention, bias_init, .def = "zeros", .choices = dlt_bias_init_choices,
             .help = "initial biases", .example = "bias_init: fan_in_uniform"),
    DLT_ENUM(Attention, out_init, .choices = dlt_weight_init_choices,
             .help = "distribution of the initial output projection; default: init's. scaled is "
                     "GPT-2's: normal, std / sqrt(residuals in the model)",
             .example = "out_init: scaled"),
    DLT_INIT_ROWS(Attention, "normal", "0.02"),
    DLT_FIELDS_END,
};

static DltStatus useless(const DltOpts *o, size_t at, const char *key, const char *why, DltErr *err)
{
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, at), "%s.%s has no effect with %s",
                      o->name, key, why);
}

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Attention *c = o->v;
    size_t base = offsetof(Attention, rope_base), bias = offsetof(Attention, bias_init);
    if (c->kv_heads > 0 && c->heads % c->kv_heads != 0)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Attention, kv_heads)),
                          "%s.kv_heads: %" PRId64 " does not divide heads %" PRId64, o->name,
                          c->kv_heads, c->heads);
    if (!c->rope && dlt_opts_given(o, base))
        return useless(o, base, "rope_base", "rope: false", err);
    if (!c->bias && dlt_opts_given(o, bias))
        return useless(o, bias, "bias_init", "bias: false", err);
    DltWeightInit w = DLT_WEIGHT_INIT(Attention, c);
    return dlt_weight_init_check(o, &w, err);
}

/* The nearest divisors of n below and above d; 0: none. */
static int64_t divisor(int64_t n, int64_t d, int step)
{
    for (d += step; d > 0 && d <= n; d += step)
        if (n % d == 0) return d;
    return 0;
}

/* Width of a head, or 0 with a report. */
static int64_t find_head_dim(DltBuild *b, const DltOpts *o, int64_t width)
{
    const Attention *c = o->v;
    int64_t d = c->head_dim, lo = divisor(width, c->heads, -1), hi = divisor(width, c->heads, 1);
    char near[64] = "";
    b->at = dlt_opts_mark(o, offsetof(Attention, heads));
    if (d == 0 && width % c->heads != 0) {
        if (lo > 0 && hi > 0)
            snprintf(near, sizeof near, " (divisors near: %" PRId64 ", %" PRId64 ")", lo, hi);
        dlt_build_error(b, "%s.heads: %" PRId64 " does not divide width %" PRId64 "%s", o->name,
                        c->heads, width, near);
        return 0;
    }
    if (d == 0) d = width / c->heads;
    if (d > DLT_MAX_HEAD_DIM)
        dlt_build_error(b,
                        "%s.heads: %" PRId64 " of width %" PRId64 " each, wider than %d; use more "
                        "heads",
                        o->name, c->heads, d, DLT_MAX_HEAD_DIM);
    else if (c->rope && d % 2 != 0)
        dlt_build_error(b, "%s.rope: turns pairs, but a head has the odd width %" PRId64, o->name,
                        d);
    else
        return d;
    return 0;
}

/* rms_norm of `heads` heads that begin at column `at`. */
static DltTensor *norm_heads(DltBuild *b, const char *name, DltTensor *x, int64_t at, int64_t heads,
                             int64_t d)
{
    const char *old = dlt_build_enter(b, name);
    DltTensor *part = dlt_slice(b, x, 2, at, heads * d);
    DltTensor *w = dlt_param(b, "weight", dlt_shape1(d), dlt_init_ones());
    DltShape shape = part->shape;
    part = dlt_rms_norm(b, dlt_reshape(b, part, dlt_shape2(-1, d)), w, 1.1920929e-7F);
    dlt_build_leave(b, old);
    return dlt_reshape(b, part, shape);
}

static DltTensor *norm_qk(DltBuild *b, DltTensor *qkv, const DltAttention *a)
{
    int64_t d = a->head_dim, keys = a->heads * d, values = keys + a->kv_heads * d;
    DltTensor *const part[] = {norm_heads(b, "q_norm", qkv, 0, a->heads, d),
                               norm_heads(b, "k_norm", qkv, keys, a->kv_heads, d),
                               dlt_slice(b, qkv, 2, values, a->kv_heads * d)};
    return dlt_concat(b, part, 3, 2);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Attention *c = o->v;
    DltTensor *x = in[0];
    if (!dlt_layer_wants_tokens(b, o, x) || dlt_build_failed(b)) return dlt_build_poison(b);
    DltMark at = b->at;
    int64_t width = dlt_dim(x, 2), d = find_head_dim(b, o, width);
    if (d == 0) return dlt_build_poison(b);
    b->at = at;
    DltAttention a = {.heads = c->heads,
                      .kv_heads = c->kv_heads > 0 ? c->kv_heads : c->heads,
                      .head_dim = d,
                      .window = c->window,
                      .scale = 1.0 / sqrt((double)d),
                      .causal = c->causal,
                      .drop.p = (float)c->dropout};
    DltWeightInit init = DLT_WEIGHT_INIT(Attention, c);
    bool own = dlt_opts_given(o, offsetof(Attention, out_init));
    int bias = c->bias ? c->bias_init : DLT_NO_BIAS;
    DltLinear qkv = {"qkv", (a.heads + 2 * a.kv_heads) * d, init, bias};
    DltLinear out = {"out", width, own ? dlt_weight_init_other(&init, c->out_init) : init, bias};
    DltTensor *y = dlt_layer_linear(b, x, &qkv);
    if (c->qk_norm) y = norm_qk(b, y, &a);
    if (c->rope) {
        DltRope rope = {.heads = a.heads + a.kv_heads, .head_dim = d, .base = c->rope_base};
        y = dlt_rope(b, y, &rope);
    }
    if (b->filling) dlt_attention_pairs(b, y, &a);
    y = b->place ? dlt_attention_step(b, y, &a) : dlt_attention(b, y, &a);
    return dlt_layer_linear(b, y, &out);
}

const DltLayerDef dlt_layer_attention = {
    .name = "attention",
    .help = "multi-head self-attention over tokens [N, T, C]",
    .fields = fields,
    .opt_size = sizeof(Attention),
    .check = check,
    .keeps_shape = true,
    .build = build,
};
