/* rmsprop: Tieleman & Hinton 2012 (lecture 6.5); centered by Graves 2013; as torch.optim.RMSprop.
 * States square_avg, momentum_buffer (with momentum), grad_avg (centered). Centered without
 * momentum keeps an unused momentum_buffer, since states are numbered in a row. */
#include "train/optim.h"

typedef struct Rmsprop {
    double lr, weight_decay, alpha, eps, momentum;
    bool centered;
} Rmsprop;

static const DltField fields[] = {
    DLT_LR_ROW(Rmsprop, "0.01"),
    DLT_FLOAT(Rmsprop, alpha, .def = "0.99", .lo = 0, .hi = 1, .open_hi = true,
              .help = "decay of the running mean square", .example = "alpha: 0.9"),
    DLT_FLOAT(Rmsprop, eps, .def = "1e-8", .lo = 0, .hi = 1,
              .help = "added to the root of the mean square", .example = "eps: 1e-3"),
    DLT_FLOAT(Rmsprop, momentum, .def = "0", .lo = 0, .hi = 1, .open_hi = true,
              .help = "part of the last step that is kept", .example = "momentum: 0.9"),
    DLT_BOOL(Rmsprop, centered, .def = "false",
             .help = "divide by the deviation around the mean gradient",
             .example = "centered: true"),
    DLT_WEIGHT_DECAY_ROW(Rmsprop, "0", DLT_L2_HELP),
    DLT_FIELDS_END,
};

static int n_state(const void *opts)
{
    const Rmsprop *c = opts;
    return c->centered ? 3 : c->momentum > 0.0 ? 2 : 1;
}

static void build(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Rmsprop *c = opts;
    DltUpdate attr = {
        .alpha = c->alpha, .eps = c->eps, .momentum = c->momentum, .centered = c->centered};
    dlt_optim_update(b, DLT_OP_rmsprop_update, attr, slab);
}

const DltOptimDef dlt_optim_rmsprop = {
    .name = "rmsprop",
    .help = "steps scaled by the running mean square of the gradient",
    .fields = fields,
    .opt_size = sizeof(Rmsprop),
    .lr_offset = offsetof(Rmsprop, lr),
    .weight_decay_offset = offsetof(Rmsprop, weight_decay),
    .n_state = n_state,
    .state_name = {"square_avg", "momentum_buffer", "grad_avg"},
    .build = build,
};
