/* lion: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2. State
 * exp_avg. Not in PyTorch; fields and defaults follow the authors' code. */
#include "train/optim.h"

typedef struct Lion {
    double lr, weight_decay;
    DltFloats betas;
} Lion;

static const DltField fields[] = {
    DLT_LR_ROW(Lion, "1e-4"),
    DLT_FLOATS(Lion, betas, .def = "[0.9, 0.99]", .lo = 0, .hi = 1, .open_hi = true,
               .help = "weight of the momentum in the step, and its decay",
               .example = "betas: [0.95, 0.98]"),
    DLT_WEIGHT_DECAY_ROW(Lion, "0", DLT_DECOUPLED_HELP),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Lion *c = o->v;
    return dlt_optim_check_betas(o, &c->betas, offsetof(Lion, betas), err);
}

static int n_state(const void *opts)
{
    (void)opts;
    return 1;
}

static void build(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Lion *c = opts;
    DltUpdate attr = {.beta1 = c->betas.v[0], .beta2 = c->betas.v[1]};
    dlt_optim_update(b, DLT_OP_lion_update, attr, slab);
}

const DltOptimDef dlt_optim_lion = {
    .name = "lion",
    .help = "steps of equal size along the sign of the momentum",
    .fields = fields,
    .opt_size = sizeof(Lion),
    .lr_offset = offsetof(Lion, lr),
    .weight_decay_offset = offsetof(Lion, weight_decay),
    .n_state = n_state,
    .state_name = {"exp_avg"},
    .check = check,
    .build = build,
};
