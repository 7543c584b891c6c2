/* Activations: y = f(x) for each value, any shape.  The formulas are in DLT_UNARY_TABLE
 * (ops/elementwise.h). The first table holds those without options; the others have one number, or
 * the choice of form, as their main argument. */
#include "layers/common.h"
#include "ops/elementwise.h"

/* name, function, help */
#define PLAIN_TABLE(F)                                                                             \
    F(relu, DLT_FN_RELU, "max(x, 0); Nair & Hinton 2010")                                          \
    F(silu, DLT_FN_SILU, "x sigmoid(x), also called swish; Elfwing et al. 2018")                   \
    F(sigmoid, DLT_FN_SIGMOID, "1 / (1 + exp(-x))")                                                \
    F(tanh, DLT_FN_TANH, "hyperbolic tangent")

#define PLAIN(id, fn, text)                                                                        \
    static DltTensor *build_##id(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)   \
    {                                                                                              \
        (void)n_in;                                                                                \
        return apply(b, o, in[0], fn, 0.0);                                                        \
    }                                                                                              \
    const DltLayerDef dlt_layer_##id = {                                                           \
        .name = #id, .help = text, .keeps_shape = true, .build = build_##id};

static DltTensor *apply(DltBuild *b, const DltOpts *o, DltTensor *x, DltUnaryFn fn, double alpha)
{
    if (!dlt_layer_wants_floats(b, o, x)) return dlt_build_poison(b);
    return dlt_unary(b, x, fn, alpha);
}

PLAIN_TABLE(PLAIN)

typedef struct LeakyRelu {
    double negative_slope;
} LeakyRelu;
typedef struct Elu {
    double alpha;
} Elu;
typedef struct Softplus {
    double beta;
} Softplus;
typedef struct Gelu {
    int form;
} Gelu;

static const DltEnum gelu_forms[] = {
    {"exact", DLT_FN_GELU},
    {"tanh", DLT_FN_GELU_TANH},
    {NULL, 0},
};

static const DltField leaky_relu_fields[] = {
    DLT_FLOAT(LeakyRelu, negative_slope, .def = "0.01", .main = true, .lo = 0, .hi = 1e3,
              .help = "factor below zero", .example = "leaky_relu: 0.1"),
    DLT_FIELDS_END,
};
static const DltField elu_fields[] = {
    DLT_FLOAT(Elu, alpha, .def = "1", .main = true, .lo = 0, .hi = 1e3,
              .help = "the value approached far below zero is -alpha", .example = "elu: 0.5"),
    DLT_FIELDS_END,
};
static const DltField softplus_fields[] = {
    DLT_FLOAT(Softplus, beta, .def = "1", .main = true, .lo = 0, .hi = 1e3, .open_lo = true,
              .help = "sharpness; above beta x = 20 the result is x", .example = "softplus: 2"),
    DLT_FIELDS_END,
};
static const DltField gelu_fields[] = {
    DLT_ENUM(Gelu, form, .def = "exact", .main = true, .choices = gelu_forms,
             .help = "exact: x Phi(x); tanh: the approximation GPT-2 uses",
             .example = "gelu: tanh"),
    DLT_FIELDS_END,
};

static DltTensor *build_leaky_relu(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const LeakyRelu *c = o->v;
    return apply(b, o, in[0], DLT_FN_LEAKY_RELU, c->negative_slope);
}

static DltTensor *build_elu(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Elu *c = o->v;
    return apply(b, o, in[0], DLT_FN_ELU, c->alpha);
}

static DltTensor *build_softplus(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Softplus *c = o->v;
    return apply(b, o, in[0], DLT_FN_SOFTPLUS, c->beta);
}

static DltTensor *build_gelu(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Gelu *c = o->v;
    return apply(b, o, in[0], (DltUnaryFn)c->form, 0.0);
}

const DltLayerDef dlt_layer_leaky_relu = {
    .name = "leaky_relu",
    .help = "x above zero, negative_slope x below; Maas et al. 2013",
    .fields = leaky_relu_fields,
    .opt_size = sizeof(LeakyRelu),
    .keeps_shape = true,
    .build = build_leaky_relu,
};

const DltLayerDef dlt_layer_elu = {
    .name = "elu",
    .help = "x above zero, alpha (exp(x) - 1) below; Clevert et al. 2016",
    .fields = elu_fields,
    .opt_size = sizeof(Elu),
    .keeps_shape = true,
    .build = build_elu,
};

const DltLayerDef dlt_layer_softplus = {
    .name = "softplus",
    .help = "log(1 + exp(beta x)) / beta",
    .fields = softplus_fields,
    .opt_size = sizeof(Softplus),
    .keeps_shape = true,
    .build = build_softplus,
};

const DltLayerDef dlt_layer_gelu = {
    .name = "gelu",
    .help = "x Phi(x), Phi the normal distribution; Hendrycks & Gimpel 2016",
    .fields = gelu_fields,
    .opt_size = sizeof(Gelu),
    .keeps_shape = true,
    .build = build_gelu,
};
