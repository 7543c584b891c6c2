/* group_norm: y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance of each
 * sample's groups of C/groups neighbouring channels.  x [N,C,..]; weight, bias [C].  Wu & He 2018,
 * section 3. */
#include "layers/common.h"
#include "ops/norm.h"

#include <inttypes.h>

typedef struct GroupNorm {
    int64_t groups;
    double eps;
} GroupNorm;

static const DltField fields[] = {
    DLT_INT(GroupNorm, groups, .required = true, .main = true, .lo = 1, .hi = 1 << 24,
            .help = "number of groups; must divide the channels", .example = "group_norm: 32"),
    DLT_FLOAT(GroupNorm, eps, .def = "1e-5", .lo = 0, .hi = 1, .open_lo = true,
              .help = "added to the variance", .example = "eps: 1e-6"),
    DLT_FIELDS_END,
};

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const GroupNorm *c = o->v;
    DltTensor *x = in[0];
    if (dlt_build_failed(b) || !dlt_layer_wants_floats(b, o, x)) return dlt_build_poison(b);
    char text[DLT_TENSOR_TEXT];
    if (x->shape.rank != 2 && x->shape.rank != 4)
        return dlt_build_error(b, "%s: needs an input [N, C] or [N, C, H, W], but got %s", o->name,
                               dlt_tensor_text(x, text));
    int64_t channels = dlt_dim(x, 1);
    if (channels % c->groups != 0)
        return dlt_build_error(
            b, "%s.groups: %" PRId64 " does not divide the %" PRId64 " channels of its input %s",
            o->name, c->groups, channels, dlt_tensor_text(x, text));
    DltTensor *w = dlt_param(b, "weight", dlt_shape1(channels), dlt_init_ones());
    DltTensor *bias = dlt_param(b, "bias", dlt_shape1(channels), dlt_init_zeros());
    return dlt_group_norm(b, x, w, bias, c->groups, (float)c->eps);
}

const DltLayerDef dlt_layer_group_norm = {
    .name = "group_norm",
    .help = "normalise each sample over groups of channels",
    .fields = fields,
    .opt_size = sizeof(GroupNorm),
    .keeps_shape = true,
    .build = build,
};
