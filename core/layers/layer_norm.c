/* layer_norm: y = (x - mean) / sqrt(var + eps) * weight + bias over the last axis, each row by
 * itself.  x [.., C]; weight, bias [C].  Ba et al. 2016, section 3.
 * rms_norm: y = x / sqrt(mean(x^2) + eps) * weight, no mean and no bias.  Zhang & Sennrich 2019,
 * equation 4. */
#include "layers/common.h"
#include "ops/norm.h"

typedef struct RowNorm {
    double eps;
} RowNorm;

static const DltField layer_fields[] = {
    DLT_FLOAT(RowNorm, eps, .def = "1e-5", .lo = 0, .hi = 1, .open_lo = true,
              .help = "added to the variance", .example = "eps: 1e-6"),
    DLT_FIELDS_END,
};
static const DltField rms_fields[] = {
    DLT_FLOAT(RowNorm, eps, .def = "1.1920929e-7", .lo = 0, .hi = 1, .open_lo = true,
              .help = "added to the mean square; the default is PyTorch's, f32's spacing at 1",
              .example = "eps: 1e-6"),
    DLT_FIELDS_END,
};

/* Rows are sequences' positions or tables' lines; an image's last axis is its width, which nobody
 * means. */
static bool wants_rows(DltBuild *b, const DltOpts *o, const DltTensor *x)
{
    if (dlt_build_failed(b) || !dlt_layer_wants_floats(b, o, x)) return false;
    if (x->shape.rank != 4) return true;
    char text[DLT_TENSOR_TEXT];
    dlt_build_error(b,
                    "%s: normalises the last axis, which is the width of the image %s; use "
                    "group_norm: 1 for all channels together, or batch_norm",
                    o->name, dlt_tensor_text(x, text));
    return false;
}

static DltTensor *build_layer(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const RowNorm *c = o->v;
    if (!wants_rows(b, o, in[0])) return dlt_build_poison(b);
    DltShape shape = dlt_shape1(dlt_dim(in[0], -1));
    DltTensor *w = dlt_param(b, "weight", shape, dlt_init_ones());
    DltTensor *bias = dlt_param(b, "bias", shape, dlt_init_zeros());
    return dlt_layer_norm(b, in[0], w, bias, (float)c->eps);
}

static DltTensor *build_rms(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const RowNorm *c = o->v;
    if (!wants_rows(b, o, in[0])) return dlt_build_poison(b);
    DltTensor *w = dlt_param(b, "weight", dlt_shape1(dlt_dim(in[0], -1)), dlt_init_ones());
    return dlt_rms_norm(b, in[0], w, (float)c->eps);
}

const DltLayerDef dlt_layer_layer_norm = {
    .name = "layer_norm",
    .help = "normalise each row over its last axis",
    .fields = layer_fields,
    .opt_size = sizeof(RowNorm),
    .keeps_shape = true,
    .build = build_layer,
};

const DltLayerDef dlt_layer_rms_norm = {
    .name = "rms_norm",
    .help = "divide each row by its root mean square",
    .fields = rms_fields,
    .opt_size = sizeof(RowNorm),
    .keeps_shape = true,
    .build = build_rms,
};
