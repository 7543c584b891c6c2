/* swiglu and geglu: the gated feed-forward layer, y = W_down (act(W_gate x) * (W_up x)) with silu or
 * gelu.  x, y [.., C]; gate.weight, up.weight [hidden, C], down.weight [C, hidden].  Shazeer 2020,
 * FFN_SwiGLU and FFN_GEGLU. */
#include "layers/common.h"
#include "ops/gated.h"

typedef struct Glu {
    int64_t hidden;
    bool bias;
    int bias_init, out_init;
    DLT_INIT_MEMBERS;
} Glu;

#define GLU_FIELDS(kind)                                                                           \
    {                                                                                              \
        DLT_INT(Glu, hidden, .required = true, .main = true, .lo = 1, .hi = 1 << 24,               \
                .help = "width between the projections", .example = kind ": 512"),                 \
            DLT_BOOL(Glu, bias, .def = "false", .help = "add a bias in the three projections",     \
                     .example = "bias: true"),                                                     \
            DLT_ENUM(Glu, out_init, .choices = dlt_weight_init_choices,                            \
                     .help = "distribution of the initial down projection; default: init's. "      \
                             "scaled is GPT-2's: normal, std / sqrt(residuals in the model)",      \
                     .example = "out_init: scaled"),                                               \
            DLT_INIT_ROWS(Glu, "fan_in_uniform", NULL), DLT_BIAS_INIT_ROW(Glu), DLT_FIELDS_END,    \
    }
static const DltField swiglu_fields[] = GLU_FIELDS("swiglu"), geglu_fields[] = GLU_FIELDS("geglu");

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Glu *c = o->v;
    if (!c->bias && dlt_opts_given(o, offsetof(Glu, bias_init)))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Glu, bias_init)),
                          "%s.bias_init has no effect with bias: false", o->name);
    DltWeightInit w = DLT_WEIGHT_INIT(Glu, c);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *x, DltUnaryFn act)
{
    const Glu *c = o->v;
    if (dlt_build_failed(b) || !dlt_layer_wants_floats(b, o, x)) return dlt_build_poison(b);
    DltWeightInit init = DLT_WEIGHT_INIT(Glu, c);
    bool own = dlt_opts_given(o, offsetof(Glu, out_init));
    int bias = c->bias ? c->bias_init : DLT_NO_BIAS;
    DltLinear gate = {"gate", c->hidden, init, bias}, up = {"up", c->hidden, init, bias};
    DltLinear down = {"down", dlt_dim(x, -1),
                      own ? dlt_weight_init_other(&init, c->out_init) : init, bias};
    DltTensor *g = dlt_layer_linear(b, x, &gate), *u = dlt_layer_linear(b, x, &up);
    return dlt_layer_linear(b, dlt_gated(b, g, u, act), &down);
}

static DltTensor *build_swiglu(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    return build(b, o, in[0], DLT_FN_SILU);
}

static DltTensor *build_geglu(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    return build(b, o, in[0], DLT_FN_GELU);
}

const DltLayerDef dlt_layer_swiglu = {
    .name = "swiglu",
    .help = "gated feed-forward layer with silu: C -> hidden -> C",
    .fields = swiglu_fields,
    .opt_size = sizeof(Glu),
    .check = check,
    .keeps_shape = true,
    .build = build_swiglu,
};

const DltLayerDef dlt_layer_geglu = {
    .name = "geglu",
    .help = "gated feed-forward layer with gelu: C -> hidden -> C",
    .fields = geglu_fields,
    .opt_size = sizeof(Glu),
    .check = check,
    .keeps_shape = true,
    .build = build_geglu,
};
