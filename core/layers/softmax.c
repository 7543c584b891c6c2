/* softmax: y = exp(x) / sum exp(x) over the last axis.  x, y [.., C]. Not before cross_entropy,
 * which takes logits. */
#include "layers/common.h"
#include "ops/norm.h"

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    if (dlt_build_failed(b) || !dlt_layer_wants_floats(b, o, in[0])) return dlt_build_poison(b);
    char text[DLT_TENSOR_TEXT];
    if (in[0]->shape.rank == 4)
        return dlt_build_error(
            b,
            "%s: acts on the last axis, which is the width of the image %s; add flatten before "
            "it",
            o->name, dlt_tensor_text(in[0], text));
    return dlt_softmax(b, in[0]);
}

const DltLayerDef dlt_layer_softmax = {
    .name = "softmax",
    .help = "probabilities over the last axis",
    .keeps_shape = true,
    .build = build,
};
