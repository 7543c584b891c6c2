/* adam: Kingma & Ba 2015, algorithm 1, weight decay as L2 (torch.optim.Adam).
 * adamw: Loshchilov & Hutter 2019, algorithm 2, weight decay apart from the gradient
 * (torch.optim.AdamW). States exp_avg and exp_avg_sq. No amsgrad. */
#include "train/optim.h"

typedef struct Adam {
    double lr, weight_decay, eps;
    DltFloats betas;
} Adam;

#define ADAM_ROWS                                                                                  \
    DLT_LR_ROW(Adam, "1e-3"),                                                                      \
        DLT_FLOATS(Adam, betas, .def = "[0.9, 0.999]", .lo = 0, .hi = 1, .open_hi = true,          \
                   .help = "decay of the running mean of the gradient and of its square",          \
                   .example = "betas: [0.9, 0.95]"),                                               \
        DLT_FLOAT(Adam, eps, .def = "1e-8", .lo = 0, .hi = 1,                                      \
                  .help = "added to the root of the mean square", .example = "eps: 1e-6")

static const DltField adam_fields[] = {
    ADAM_ROWS,
    DLT_WEIGHT_DECAY_ROW(Adam, "0", DLT_L2_HELP),
    DLT_FIELDS_END,
};
static const DltField adamw_fields[] = {
    ADAM_ROWS,
    DLT_WEIGHT_DECAY_ROW(Adam, "0.01", DLT_DECOUPLED_HELP),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Adam *c = o->v;
    return dlt_optim_check_betas(o, &c->betas, offsetof(Adam, betas), err);
}

static int n_state(const void *opts)
{
    (void)opts;
    return 2;
}

static void add_update(DltBuild *b, const Adam *c, const DltSlab *slab, DltUpdate attr)
{
    attr.beta1 = c->betas.v[0];
    attr.beta2 = c->betas.v[1];
    attr.eps = c->eps;
    dlt_optim_update(b, DLT_OP_adam_update, attr, slab);
}

static void build_adam(DltBuild *b, const void *opts, const DltSlab *slab)
{
    add_update(b, opts, slab, (DltUpdate){.decoupled = false});
}

static void build_adamw(DltBuild *b, const void *opts, const DltSlab *slab)
{
    add_update(b, opts, slab, (DltUpdate){.decoupled = true});
}

const DltOptimDef dlt_optim_adam = {
    .name = "adam",
    .help = "steps scaled by running moments of the gradient",
    .fields = adam_fields,
    .opt_size = sizeof(Adam),
    .lr_offset = offsetof(Adam, lr),
    .weight_decay_offset = offsetof(Adam, weight_decay),
    .n_state = n_state,
    .state_name = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .build = build_adam,
};

const DltOptimDef dlt_optim_adamw = {
    .name = "adamw",
    .help = "adam with weight decay apart from the gradient",
    .fields = adamw_fields,
    .opt_size = sizeof(Adam),
    .lr_offset = offsetof(Adam, lr),
    .weight_decay_offset = offsetof(Adam, weight_decay),
    .n_state = n_state,
    .state_name = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .build = build_adamw,
};
