/* batch_norm: y = (x - mean) / sqrt(var + eps) * weight + bias for each channel, with the batch's
 * statistics while training and the running ones otherwise.  x [N,C] or [N,C,H,W]; weight, bias,
 * running_mean, running_var [C].  Ioffe & Szegedy 2015, algorithms 1 and 2; running values by
 * PyTorch's rule (unbiased variance, momentum is the weight of the new batch). */
#include "layers/common.h"
#include "ops/norm.h"

#include <inttypes.h>

typedef struct BatchNorm {
    double eps, momentum;
} BatchNorm;

static const DltField fields[] = {
    DLT_FLOAT(BatchNorm, eps, .def = "1e-5", .lo = 0, .hi = 1, .open_lo = true,
              .help = "added to the variance", .example = "eps: 1e-3"),
    DLT_FLOAT(BatchNorm, momentum, .def = "0.1", .lo = 0, .hi = 1,
              .help = "weight of the newest batch in the running statistics",
              .example = "momentum: 0.01"),
    DLT_FIELDS_END,
};

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const BatchNorm *c = o->v;
    DltTensor *x = in[0];
    if (dlt_build_failed(b) || !dlt_layer_wants_floats(b, o, x)) return dlt_build_poison(b);
    char text[DLT_TENSOR_TEXT];
    if (x->shape.rank != 2 && x->shape.rank != 4)
        return dlt_build_error(b,
                               "%s: needs an input [N, C] or [N, C, H, W], but got %s; "
                               "layer_norm normalises the last axis of any input",
                               o->name, dlt_tensor_text(x, text));
    DltShape channels = dlt_shape1(dlt_dim(x, 1));
    if (b->training && dlt_shape_count(&x->shape) == channels.dim[0])
        return dlt_build_error(b,
                               "%s: one value a channel in %s has no variance; use a micro batch "
                               "of at least 2, or layer_norm",
                               o->name, dlt_tensor_text(x, text));
    DltTensor *w = dlt_param(b, "weight", channels, dlt_init_ones());
    DltTensor *bias = dlt_param(b, "bias", channels, dlt_init_zeros());
    DltTensor *mean = dlt_state(b, "running_mean", channels, DLT_F32, dlt_init_zeros());
    DltTensor *var = dlt_state(b, "running_var", channels, DLT_F32, dlt_init_ones());
    DltNorm a = {.eps = (float)c->eps, .momentum = (float)c->momentum};
    return dlt_batch_norm(b, x, w, bias, mean, var, &a);
}

const DltLayerDef dlt_layer_batch_norm = {
    .name = "batch_norm",
    .help = "normalise each channel over the batch",
    .fields = fields,
    .opt_size = sizeof(BatchNorm),
    .keeps_shape = true,
    .build = build,
};
