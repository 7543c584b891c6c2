/* lamb: Adam's step with weight decay, its length scaled to each parameter's own norm.  You et al. 2020,
 * "Large Batch Optimization for Deep Learning", algorithm 2, with Adam's bias corrections and phi the
 * identity. States exp_avg and exp_avg_sq. */
#include "train/optim.h"

typedef struct Lamb {
    double lr, weight_decay, eps;
    DltFloats betas;
} Lamb;

static const DltField fields[] = {
    DLT_LR_ROW(Lamb, "1e-3"),
    DLT_WEIGHT_DECAY_ROW(Lamb, "0.01",
                         "added to the step as weight_decay * weight, before its scaling"),
    DLT_FLOATS(Lamb, betas, .def = "[0.9, 0.999]", .lo = 0, .hi = 1, .open_hi = true,
               .help = "decay of the running mean of the gradient and of its square",
               .example = "betas: [0.9, 0.95]"),
    DLT_FLOAT(Lamb, eps, .def = "1e-6", .lo = 0, .hi = 1,
              .help = "added to the root of the mean square", .example = "eps: 1e-8"),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Lamb *c = o->v;
    return dlt_optim_check_betas(o, &c->betas, offsetof(Lamb, betas), err);
}

static int n_state(const void *opts)
{
    (void)opts;
    return 2;
}

static void build(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Lamb *c = opts;
    dlt_optim_update(b, DLT_OP_lamb_update,
                     (DltUpdate){.beta1 = c->betas.v[0], .beta2 = c->betas.v[1], .eps = c->eps},
                     slab);
}

const DltOptimDef dlt_optim_lamb = {
    .name = "lamb",
    .help = "adamw with each parameter's step scaled to its norm, for large batches",
    .fields = fields,
    .opt_size = sizeof(Lamb),
    .lr_offset = offsetof(Lamb, lr),
    .weight_decay_offset = offsetof(Lamb, weight_decay),
    .n_state = n_state,
    .state_name = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .single = true,
    .build = build,
};
