/* sgd: stochastic gradient descent with momentum and Nesterov's form, by PyTorch's torch.optim.SGD
 * (Sutskever et al. 2013). State momentum_buffer, only with momentum. */
#include "train/optim.h"

typedef struct Sgd {
    double lr, weight_decay, momentum, dampening;
    bool nesterov;
} Sgd;

static const DltField fields[] = {
    DLT_LR_ROW(Sgd, "1e-3"),
    DLT_FLOAT(Sgd, momentum, .def = "0", .lo = 0, .hi = 1, .open_hi = true,
              .help = "part of the last step that is kept", .example = "momentum: 0.9"),
    DLT_FLOAT(Sgd, dampening, .def = "0", .lo = 0, .hi = 1,
              .help = "part of the gradient left out of the momentum", .example = "dampening: 0.1"),
    DLT_BOOL(Sgd, nesterov, .def = "false", .help = "look ahead along the momentum",
             .example = "nesterov: true"),
    DLT_WEIGHT_DECAY_ROW(Sgd, "0", DLT_L2_HELP),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Sgd *c = o->v;
    if (c->nesterov && (c->momentum == 0.0 || c->dampening != 0.0))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Sgd, nesterov)),
                          "%s.nesterov: needs momentum above 0 and dampening 0, not momentum %g "
                          "and dampening %g",
                          o->name, c->momentum, c->dampening);
    if (c->dampening != 0.0 && c->momentum == 0.0)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Sgd, dampening)),
                          "%s.dampening has no effect without momentum", o->name);
    return DLT_OK;
}

static int n_state(const void *opts)
{
    return ((const Sgd *)opts)->momentum > 0.0;
}

static void build(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Sgd *c = opts;
    DltUpdate attr = {.momentum = c->momentum, .dampening = c->dampening, .nesterov = c->nesterov};
    dlt_optim_update(b, DLT_OP_sgd_update, attr, slab);
}

const DltOptimDef dlt_optim_sgd = {
    .name = "sgd",
    .help = "gradient descent, with momentum and Nesterov's form",
    .fields = fields,
    .opt_size = sizeof(Sgd),
    .lr_offset = offsetof(Sgd, lr),
    .weight_decay_offset = offsetof(Sgd, weight_decay),
    .n_state = n_state,
    .state_name = {"momentum_buffer"},
    .check = check,
    .build = build,
};
