/* Between images, tokens and vectors.
 * patch_embed: each patch of an image through one linear map.  x [N, C, H, W] -> y [N, H/p W/p, dim],
 * row by row; weight [dim, C, p, p], bias [dim].  Dosovitskiy et al. 2021, equation 1.
 * class_token: a trained token in front of all others.  [N, T, C] -> [N, T + 1, C]; weight [1, 1, C].
 * token_pool: the mean of the tokens, or the first.  [N, T, C] -> [N, C]. */
#include "layers/common.h"
#include "ops/conv.h"
#include "ops/shape_ops.h"

#include <inttypes.h>

typedef struct Patch {
    int64_t patch, dim;
    bool bias;
    int bias_init;
    DLT_INIT_MEMBERS;
} Patch;

static const DltField patch_fields[] = {
    DLT_INT(Patch, patch, .required = true, .lo = 1, .hi = 1 << 12, .unit = "pixels",
            .help = "height and width of a patch; divides those of the image",
            .example = "patch: 4"),
    DLT_INT(Patch, dim, .required = true, .lo = 1, .hi = 1 << 24, .help = "width of a token",
            .example = "dim: 192"),
    DLT_BOOL(Patch, bias, .def = "true", .help = "add a bias", .example = "bias: false"),
    DLT_INIT_ROWS(Patch, "fan_in_uniform", NULL),
    DLT_BIAS_INIT_ROW(Patch),
    DLT_FIELDS_END,
};

static DltStatus check_patch(const DltOpts *o, DltErr *err)
{
    const Patch *c = o->v;
    if (!c->bias && dlt_opts_given(o, offsetof(Patch, bias_init)))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Patch, bias_init)),
                          "%s.bias_init has no effect with bias: false", o->name);
    DltWeightInit w = DLT_WEIGHT_INIT(Patch, c);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *build_patch(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Patch *c = o->v;
    DltTensor *x = in[0];
    int64_t p = c->patch;
    char text[DLT_TENSOR_TEXT];
    if (!dlt_layer_wants_image(b, o, x) || dlt_build_failed(b)) return dlt_build_poison(b);
    if (dlt_dim(x, 2) % p != 0 || dlt_dim(x, 3) % p != 0) {
        b->at = dlt_opts_mark(o, offsetof(Patch, patch));
        return dlt_build_error(b,
                               "%s.patch: %" PRId64 " does not divide the height and width of its "
                               "input %s",
                               o->name, p, dlt_tensor_text(x, text));
    }
    DltShape shape = dlt_shape4(c->dim, dlt_dim(x, 1), p, p);
    DltWeightInit init = DLT_WEIGHT_INIT(Patch, c);
    DltTensor *w = dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    DltTensor *bias =
        c->bias ? dlt_param(b, "bias", dlt_shape1(c->dim), dlt_bias_init(c->bias_init, &shape))
                : NULL;
    DltConv attr = {.kernel = {p, p}, .stride = {p, p}, .dilation = {1, 1}, .groups = 1};
    DltTensor *y = dlt_conv(b, x, w, bias, &attr);
    y = dlt_reshape(b, y, dlt_shape3(dlt_dim(y, 0), c->dim, -1));
    return dlt_transpose(b, y, (const int[]){0, 2, 1});
}

const DltLayerDef dlt_layer_patch_embed = {
    .name = "patch_embed",
    .help = "patches of an image as tokens: [N, C, H, W] -> [N, T, dim]",
    .fields = patch_fields,
    .opt_size = sizeof(Patch),
    .check = check_patch,
    .build = build_patch,
};

typedef struct ClassToken {
    DLT_INIT_MEMBERS;
} ClassToken;

static const DltField class_fields[] = {
    DLT_INIT_ROWS(ClassToken, "normal", "0.02"),
    DLT_FIELDS_END,
};

static DltStatus check_class(const DltOpts *o, DltErr *err)
{
    DltWeightInit w = DLT_WEIGHT_INIT(ClassToken, (const ClassToken *)o->v);
    if (dlt_opts_given(o, w.fan_at)) /* the two fans of [1, 1, C] are the same */
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, w.fan_at),
                          "%s.fan has no effect: one token has one fan", o->name);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *build_class(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    DltTensor *x = in[0];
    if (!dlt_layer_wants_tokens(b, o, x) || dlt_build_failed(b)) return dlt_build_poison(b);
    DltShape shape = dlt_shape3(1, 1, dlt_dim(x, 2));
    DltWeightInit init = DLT_WEIGHT_INIT(ClassToken, (const ClassToken *)o->v);
    DltTensor *w = dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    DltTensor *first = dlt_expand_axes(b, w, dlt_shape3(dlt_dim(x, 0), 1, dlt_dim(x, 2)));
    return dlt_concat(b, (DltTensor *const[]){first, x}, 2, 1);
}

const DltLayerDef dlt_layer_class_token = {
    .name = "class_token",
    .help = "a trained token in front: [N, T, C] -> [N, T + 1, C]",
    .fields = class_fields,
    .opt_size = sizeof(ClassToken),
    .check = check_class,
    .build = build_class,
};

enum { MEAN, FIRST };

typedef struct TokenPool {
    int kind;
} TokenPool;

static const DltEnum pool_kinds[] = {{"mean", MEAN}, {"first", FIRST}, {NULL, 0}};

static const DltField pool_fields[] = {
    DLT_ENUM(TokenPool, kind, .def = "mean", .main = true, .choices = pool_kinds,
             .help = "mean of all tokens, or the first (behind class_token)",
             .example = "token_pool: first"),
    DLT_FIELDS_END,
};

static DltTensor *build_pool(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const TokenPool *c = o->v;
    DltTensor *x = in[0];
    if (!dlt_layer_wants_tokens(b, o, x) || dlt_build_failed(b)) return dlt_build_poison(b);
    DltTensor *y = c->kind == MEAN ? dlt_reduce(b, x, 1u << 1, true) : dlt_slice(b, x, 1, 0, 1);
    return dlt_reshape(b, y, dlt_shape2(dlt_dim(x, 0), dlt_dim(x, 2)));
}

const DltLayerDef dlt_layer_token_pool = {
    .name = "token_pool",
    .help = "one vector of all tokens: [N, T, C] -> [N, C]",
    .fields = pool_fields,
    .opt_size = sizeof(TokenPool),
    .build = build_pool,
};
