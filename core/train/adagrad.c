/* adagrad: Duchi et al. 2011, by PyTorch's torch.optim.Adagrad. State sum, starting at 0. */
#include "train/optim.h"

typedef struct Adagrad {
    double lr, weight_decay, lr_decay, eps;
} Adagrad;

static const DltField fields[] = {
    DLT_LR_ROW(Adagrad, "0.01"),
    DLT_FLOAT(Adagrad, lr_decay, .def = "0", .lo = 0, .hi = 1,
              .help = "update t runs at lr / (1 + (t - 1) lr_decay)", .example = "lr_decay: 1e-4"),
    DLT_FLOAT(Adagrad, eps, .def = "1e-10", .lo = 0, .hi = 1,
              .help = "added to the root of the sum of squares", .example = "eps: 1e-8"),
    DLT_WEIGHT_DECAY_ROW(Adagrad, "0", DLT_L2_HELP),
    DLT_FIELDS_END,
};

static int n_state(const void *opts)
{
    (void)opts;
    return 1;
}

static void build(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Adagrad *c = opts;
    DltUpdate attr = {.lr_decay = c->lr_decay, .eps = c->eps};
    dlt_optim_update(b, DLT_OP_adagrad_update, attr, slab);
}

const DltOptimDef dlt_optim_adagrad = {
    .name = "adagrad",
    .help = "steps scaled by the sum of all squared gradients",
    .fields = fields,
    .opt_size = sizeof(Adagrad),
    .lr_offset = offsetof(Adagrad, lr),
    .weight_decay_offset = offsetof(Adagrad, weight_decay),
    .n_state = n_state,
    .state_name = {"sum"},
    .build = build,
};
