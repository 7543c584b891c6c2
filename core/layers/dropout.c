/* dropout: while training, y = 0 with probability p, else x / (1 - p); otherwise y = x. x, y of any
 * shape.  Srivastava et al. 2014. */
#include "ops/dropout.h"
#include "layers/common.h"

typedef struct Dropout {
    double p;
} Dropout;

static const DltField fields[] = {
    DLT_FLOAT(Dropout, p, .def = "0.5", .main = true, .lo = 0, .hi = 1, .open_hi = true,
              .help = "probability of setting a value to zero", .example = "dropout: 0.1"),
    DLT_FIELDS_END,
};

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Dropout *c = o->v;
    if (!dlt_layer_wants_floats(b, o, in[0])) return dlt_build_poison(b);
    return dlt_dropout(b, in[0], (float)c->p);
}

const DltLayerDef dlt_layer_dropout = {
    .name = "dropout",
    .help = "set values to zero at random while training",
    .fields = fields,
    .opt_size = sizeof(Dropout),
    .keeps_shape = true,
    .build = build,
};
