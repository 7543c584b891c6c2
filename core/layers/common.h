/* What several layers share: the options and rules of initialisation, and the checks whose message
 * says what to put in front of the layer. Layers add ops; they never see data. */
#ifndef DLT_LAYERS_COMMON_H
#define DLT_LAYERS_COMMON_H

#include "api/layer.h"

/* Initialisation of a weight: members for the options struct and rows for the field table. `init`
 * names the distribution, `fan` which fan the kaiming and lecun rules count, `std` belongs to
 * normal and trunc_normal, `gain` replaces the factor of the rules that have one. */
#define DLT_INIT_MEMBERS                                                                           \
    int init, fan;                                                                                 \
    double std, gain
#define DLT_INIT_ROWS(T, init_def, std_def)                                                        \
    DLT_ENUM(T, init, .def = (init_def), .choices = dlt_weight_init_choices,                       \
             .help =                                                                               \
                 "distribution of the initial weights; fan_in_uniform is PyTorch's default of "    \
                 "Linear and Conv2d, uniform in +-1/sqrt(fan_in)",                                 \
             .example = "init: kaiming_normal"),                                                   \
        DLT_ENUM(T, fan, .def = "in", .choices = dlt_weight_fan_choices,                           \
                 .help = "which fan the kaiming_* and lecun_* initialisations divide by",          \
                 .example = "fan: out"),                                                           \
        DLT_FLOAT(T, std, .def = (std_def), .lo = 0, .hi = 100, .open_lo = true,                   \
                  .help = "standard deviation for init: normal and trunc_normal (cut at 2 std)",   \
                  .example = "std: 0.02"),                                                         \
        DLT_FLOAT(T, gain, .lo = 0, .hi = 100, .open_lo = true,                                    \
                  .help = "factor of the initialisation; default sqrt(2) for kaiming_*, 1 for "    \
                          "xavier_* and lecun_*",                                                  \
                  .example = "gain: 1")
extern const DltEnum dlt_weight_init_choices[], dlt_weight_fan_choices[];

/* The values of those members, and where they lie in the options struct. */
typedef struct DltWeightInit {
    int init, fan;
    double std, gain;
    size_t fan_at, std_at, gain_at;
} DltWeightInit;
#define DLT_WEIGHT_INIT(T, c)                                                                      \
    ((DltWeightInit){(c)->init, (c)->fan, (c)->std, (c)->gain, offsetof(T, fan), offsetof(T, std), \
                     offsetof(T, gain)})
/* Options that cannot have an effect, or a missing std, are CONFIG. */
DltStatus dlt_weight_init_check(const DltOpts *o, const DltWeightInit *w, DltErr *err) DLT_CHECKED;
/* scaled: normal with std (0.02 where none is given) divided by the square root of the number of
 * residuals in the model (Radford et al. 2019, section 2.3); the number is known once the model is
 * built: dlt_build_scale_inits.
 * The initialisation of a weight of this shape; fans by PyTorch's rule (_calculate_fan_in_and_
 * fan_out): fan_in = prod(shape[1..]), fan_out = shape[0] * prod(shape[2..]). */
DltInit dlt_weight_init(const DltWeightInit *w, const DltShape *shape);

/* Initialisation of a bias beside a weight: fan_in_uniform (PyTorch's default), zeros or ones. */
#define DLT_BIAS_INIT_ROW(T)                                                                       \
    DLT_ENUM(T, bias_init, .def = "fan_in_uniform", .choices = dlt_bias_init_choices,              \
             .help = "initial bias; fan_in_uniform is uniform in +-1/sqrt(fan_in of the weight)",  \
             .example = "bias_init: zeros")
extern const DltEnum dlt_bias_init_choices[];
DltInit dlt_bias_init(int kind, const DltShape *weight);

/* A linear map inside a layer: parameters "<name>.weight" [units, C] and, unless bias_init is
 * DLT_NO_BIAS, "<name>.bias" [units]. */
enum { DLT_NO_BIAS = -1 };
typedef struct DltLinear {
    const char *name;
    int64_t units;
    DltWeightInit init;
    int bias_init; /* of dlt_bias_init_choices */
} DltLinear;
DltTensor *dlt_layer_linear(DltBuild *b, DltTensor *x, const DltLinear *l);
/* The same initialisation with another distribution, as `out_init` writes it. */
DltWeightInit dlt_weight_init_other(const DltWeightInit *w, int init);

enum { DLT_TENSOR_TEXT = 320 };
/* "relu.unary_fwd [8, 3, 28, 28]", for messages. */
const char *dlt_tensor_text(const DltTensor *t, char buf[DLT_TENSOR_TEXT]);
/* True when x is float [N, C, H, W]; else reports and poisons. True for poison. */
bool dlt_layer_wants_image(DltBuild *b, const DltOpts *o, const DltTensor *x);
/* True when x holds floats; ids are answered with "add embedding". True for poison. */
bool dlt_layer_wants_floats(DltBuild *b, const DltOpts *o, const DltTensor *x);

/* True when x is float [N, tokens, width]; else reports and poisons. True for poison. */
bool dlt_layer_wants_tokens(DltBuild *b, const DltOpts *o, const DltTensor *x);

#endif
