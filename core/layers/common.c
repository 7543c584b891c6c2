/* Initialisation rules and input checks shared by the layers. */
#include "layers/common.h"

#include "ops/matmul.h"

#include <math.h>

enum {
    INIT_FAN_IN_UNIFORM,
    INIT_ZEROS,
    INIT_ONES,
    INIT_KAIMING_UNIFORM,
    INIT_KAIMING_NORMAL,
    INIT_XAVIER_UNIFORM,
    INIT_XAVIER_NORMAL,
    INIT_LECUN_UNIFORM,
    INIT_LECUN_NORMAL,
    INIT_NORMAL,
    INIT_TRUNC_NORMAL,
    INIT_SCALED,
    N_INIT
};
enum { FAN_IN, FAN_OUT };

const DltEnum dlt_weight_init_choices[] = {
    {"fan_in_uniform", INIT_FAN_IN_UNIFORM},
    {"zeros", INIT_ZEROS},
    {"ones", INIT_ONES},
    {"kaiming_uniform", INIT_KAIMING_UNIFORM},
    {"kaiming_normal", INIT_KAIMING_NORMAL},
    {"xavier_uniform", INIT_XAVIER_UNIFORM},
    {"xavier_normal", INIT_XAVIER_NORMAL},
    {"lecun_uniform", INIT_LECUN_UNIFORM},
    {"lecun_normal", INIT_LECUN_NORMAL},
    {"normal", INIT_NORMAL},
    {"trunc_normal", INIT_TRUNC_NORMAL},
    {"scaled", INIT_SCALED},
    {NULL, 0},
};
const DltEnum dlt_weight_fan_choices[] = {
    {"in", FAN_IN},
    {"out", FAN_OUT},
    {NULL, 0},
};
const DltEnum dlt_bias_init_choices[] = {
    {"fan_in_uniform", INIT_FAN_IN_UNIFORM},
    {"zeros", INIT_ZEROS},
    {"ones", INIT_ONES},
    {NULL, 0},
};

static DltInit zeros(const DltShape *shape)
{
    (void)shape;
    return dlt_init_zeros();
}

static DltInit ones(const DltShape *shape)
{
    (void)shape;
    return dlt_init_ones();
}

/* kaiming with a = sqrt(5): gain 1/sqrt(3), so the bound sqrt(3) gain / sqrt(fan_in) is
 * 1/sqrt(fan_in). */
static DltInit fan_in_uniform(const DltShape *shape)
{
    return dlt_init_kaiming_uniform(shape, sqrt(5.0));
}

static DltInit kaiming_uniform(const DltShape *shape)
{
    return dlt_init_kaiming_uniform(shape, 0.0);
}

static DltInit kaiming_normal(const DltShape *shape)
{
    return dlt_init_kaiming_normal(shape, 0.0);
}

/* lecun: gain 1, which is kaiming's with a = 1. LeCun et al. 1998, "Efficient BackProp". */
static DltInit lecun_uniform(const DltShape *shape)
{
    return dlt_init_kaiming_uniform(shape, 1.0);
}

static DltInit lecun_normal(const DltShape *shape)
{
    return dlt_init_kaiming_normal(shape, 1.0);
}

/* One row per choice. gain: the factor inside `rule`, 0 where no gain applies. */
typedef struct InitRule {
    DltInit (*rule)(const DltShape *shape);
    double gain;
    bool has_fan, has_std;
} InitRule;

static const InitRule rules[N_INIT] = {
    [INIT_FAN_IN_UNIFORM] = {.rule = fan_in_uniform},
    [INIT_ZEROS] = {.rule = zeros},
    [INIT_ONES] = {.rule = ones},
    [INIT_KAIMING_UNIFORM] = {.rule = kaiming_uniform, .gain = 1.4142135623730951, .has_fan = true},
    [INIT_KAIMING_NORMAL] = {.rule = kaiming_normal, .gain = 1.4142135623730951, .has_fan = true},
    [INIT_XAVIER_UNIFORM] = {.rule = dlt_init_xavier_uniform, .gain = 1},
    [INIT_XAVIER_NORMAL] = {.rule = dlt_init_xavier_normal, .gain = 1},
    [INIT_LECUN_UNIFORM] = {.rule = lecun_uniform, .gain = 1, .has_fan = true},
    [INIT_LECUN_NORMAL] = {.rule = lecun_normal, .gain = 1, .has_fan = true},
    [INIT_NORMAL] = {.has_std = true},
    [INIT_TRUNC_NORMAL] = {.has_std = true},
    [INIT_SCALED] = {.has_std = true},
};

static DltStatus no_effect(const DltOpts *o, size_t at, const char *key, int init, DltErr *err)
{
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, at), "%s.%s has no effect with init: %s",
                      o->name, key, dlt_weight_init_choices[init].name);
}

DltStatus dlt_weight_init_check(const DltOpts *o, const DltWeightInit *w, DltErr *err)
{
    const InitRule *r = &rules[w->init];
    if (dlt_opts_given(o, w->fan_at) && !r->has_fan)
        return no_effect(o, w->fan_at, "fan", w->init, err);
    if (dlt_opts_given(o, w->std_at) && !r->has_std)
        return no_effect(o, w->std_at, "std", w->init, err);
    if (dlt_opts_given(o, w->gain_at) && r->gain == 0.0)
        return no_effect(o, w->gain_at, "gain", w->init, err);
    if (r->has_std && w->std == 0.0 && w->init != INIT_SCALED)
        return dlt_err_at(err, DLT_E_CONFIG, o->at, "%s: init: %s needs std, such as std: 0.02",
                          o->name, dlt_weight_init_choices[w->init].name);
    return DLT_OK;
}

DltInit dlt_weight_init(const DltWeightInit *w, const DltShape *shape)
{
    const InitRule *r = &rules[w->init];
    if (w->init == INIT_NORMAL) return dlt_init_normal(0.0, w->std);
    if (w->init == INIT_SCALED) return dlt_init_scaled(w->std > 0.0 ? w->std : 0.02);
    if (w->init == INIT_TRUNC_NORMAL) return dlt_init_trunc_normal(0.0, w->std);
    DltShape s = *shape;
    if (w->fan == FAN_OUT && s.rank > 1) { /* the fan_in of the transposed weight */
        s.dim[0] = shape->dim[1];
        s.dim[1] = shape->dim[0];
    }
    DltInit init = r->rule(&s);
    double factor = w->gain > 0.0 ? w->gain / r->gain : 1.0; /* means are 0: both numbers scale */
    return (DltInit){.kind = init.kind, .a = init.a * factor, .b = init.b * factor};
}

DltInit dlt_bias_init(int kind, const DltShape *weight)
{
    return rules[kind].rule(weight);
}

DltWeightInit dlt_weight_init_other(const DltWeightInit *w, int init)
{
    DltWeightInit other = *w;
    other.init = init;
    if (!rules[init].has_std) other.std = 0.0;
    if (rules[init].gain == 0.0) other.gain = 0.0;
    return other;
}

DltTensor *dlt_layer_linear(DltBuild *b, DltTensor *x, const DltLinear *l)
{
    const char *old = dlt_build_enter(b, l->name);
    DltShape shape = dlt_shape2(l->units, dlt_dim(x, -1));
    DltTensor *w = dlt_param(b, "weight", shape, dlt_weight_init(&l->init, &shape));
    DltTensor *y = dlt_matmul(b, x, w, false, true);
    if (l->bias_init != DLT_NO_BIAS && !dlt_build_failed(b)) {
        DltInit init = dlt_bias_init(l->bias_init, &shape);
        y = dlt_bias(b, y, dlt_param(b, "bias", dlt_shape1(l->units), init), x->shape.rank - 1);
    }
    dlt_build_leave(b, old);
    return y;
}

const char *dlt_tensor_text(const DltTensor *t, char buf[DLT_TENSOR_TEXT])
{
    char shape[DLT_SHAPE_TEXT];
    snprintf(buf, DLT_TENSOR_TEXT, "%.180s %s", t->name ? t->name : "?",
             dlt_shape_text(&t->shape, shape));
    return buf;
}

bool dlt_layer_wants_floats(DltBuild *b, const DltOpts *o, const DltTensor *x)
{
    if (dlt_build_failed(b) || dlt_dtype_is_float(x->dtype)) return true;
    char text[DLT_TENSOR_TEXT];
    dlt_build_error(b, "%s: needs real numbers, but its input %s holds %s; add embedding before it",
                    o->name, dlt_tensor_text(x, text), dlt_dtype_name(x->dtype));
    return false;
}

bool dlt_layer_wants_image(DltBuild *b, const DltOpts *o, const DltTensor *x)
{
    if (dlt_build_failed(b)) return true;
    if (x->shape.rank == 4) return dlt_layer_wants_floats(b, o, x);
    char text[DLT_TENSOR_TEXT];
    dlt_build_error(b,
                    "%s: needs an input [N, C, H, W], but %s has %d dimensions; add "
                    "reshape: [C, H, W] before it, or remove the flatten",
                    o->name, dlt_tensor_text(x, text), x->shape.rank);
    return false;
}

bool dlt_layer_wants_tokens(DltBuild *b, const DltOpts *o, const DltTensor *x)
{
    if (dlt_build_failed(b)) return true;
    if (x->shape.rank == 3) return dlt_layer_wants_floats(b, o, x);
    char text[DLT_TENSOR_TEXT];
    dlt_build_error(b,
                    "%s: needs an input [N, tokens, width], but %s has %d dimensions; embedding "
                    "makes them of ids, patch_embed of images",
                    o->name, dlt_tensor_text(x, text), x->shape.rank);
    return false;
}
