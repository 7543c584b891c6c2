/* flatten: x [N, ..] -> y [N, product of the rest].
 * reshape: x [N, ..] -> y [N, shape..]; one number of the shape may be -1 and takes what is left.
 * Nothing moves: both are views. */
#include "layers/common.h"
#include "ops/shape_ops.h"

#include <inttypes.h>

typedef struct Reshape {
    DltDims shape;
} Reshape;

static const DltField fields[] = {
    DLT_DIMS(Reshape, shape, .required = true, .main = true, .lo = -1, .hi = 1 << 30,
             .help = "shape of one sample, without the batch; one number may be -1: the rest",
             .example = "reshape: [1, 28, 28]"),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Reshape *c = o->v;
    DltMark at = dlt_opts_mark(o, offsetof(Reshape, shape));
    if (c->shape.n < 1 || c->shape.n >= DLT_MAX_RANK)
        return dlt_err_at(err, DLT_E_CONFIG, at,
                          "%s.shape: %d dimensions; 1 to %d besides the batch are possible",
                          o->name, c->shape.n, DLT_MAX_RANK - 1);
    int n_free = 0;
    for (int i = 0; i < c->shape.n; i++) {
        if (c->shape.v[i] == 0)
            return dlt_err_at(err, DLT_E_CONFIG, at, "%s.shape: a dimension of 0 holds nothing",
                              o->name);
        n_free += c->shape.v[i] < 0;
    }
    if (n_free > 1)
        return dlt_err_at(err, DLT_E_CONFIG, at, "%s.shape: only one dimension can be -1", o->name);
    return DLT_OK;
}

static DltTensor *build_flatten(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    (void)o;
    DltTensor *x = in[0];
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    return dlt_reshape(b, x,
                       dlt_shape2(dlt_dim(x, 0), dlt_shape_span(&x->shape, 1, x->shape.rank)));
}

static DltTensor *build_reshape(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Reshape *c = o->v;
    DltTensor *x = in[0];
    if (dlt_build_failed(b)) return dlt_build_poison(b);
    int64_t have = dlt_shape_span(&x->shape, 1, x->shape.rank), known = 1;
    DltShape shape = {.rank = c->shape.n + 1, .dim = {dlt_dim(x, 0)}};
    bool fits = true;
    for (int i = 0; i < c->shape.n; i++) {
        int64_t d = c->shape.v[i];
        shape.dim[i + 1] = d;
        if (d < 0) continue;
        fits = fits && d <= have / known;
        if (fits) known *= d;
    }
    bool has_free = false;
    for (int i = 1; i < shape.rank; i++) {
        if (shape.dim[i] >= 0) continue;
        has_free = true;
        shape.dim[i] = have / known;
    }
    char from[DLT_TENSOR_TEXT], to[DLT_SHAPE_TEXT];
    if (!fits || (has_free ? have % known != 0 : have != known)) {
        DltShape asked = {.rank = c->shape.n};
        for (int i = 0; i < c->shape.n; i++)
            asked.dim[i] = c->shape.v[i];
        return dlt_build_error(
            b, "%s: the %" PRId64 " values of a sample of its input %s do not fill the shape %s",
            o->name, have, dlt_tensor_text(x, from), dlt_shape_text(&asked, to));
    }
    return dlt_reshape(b, x, shape);
}

const DltLayerDef dlt_layer_flatten = {
    .name = "flatten",
    .help = "all values of a sample in one row: [N, C, H, W] -> [N, C*H*W]",
    .build = build_flatten,
};

const DltLayerDef dlt_layer_reshape = {
    .name = "reshape",
    .help = "the same values in another shape",
    .fields = fields,
    .opt_size = sizeof(Reshape),
    .check = check,
    .build = build_reshape,
};
