/* muon: momentum whose step is made orthogonal, for the matrices of the hidden layers; adamw for what is
 * no matrix, the tables of ids and the output layer.  K. Jordan et al. 2024, "Muon: An optimizer for
 * hidden layers in neural networks", whose constants these are: five steps of the quintic
 * X <- a X + b (X X^T) X + c (X X^T)^2 X from X of norm 1. The product is taken on the shorter side. */
#include "train/optim.h"

#include "ops/matmul.h"

typedef struct Muon {
    double lr, weight_decay, momentum, adamw_lr, eps;
    bool nesterov;
    int64_t ns_steps;
    DltFloats betas;
} Muon;

static const double quintic[3] = {3.4445, -4.7750, 2.0315};

static const DltField fields[] = {
    DLT_LR_ROW(Muon, "0.02"),
    DLT_WEIGHT_DECAY_ROW(Muon, "0", DLT_DECOUPLED_HELP),
    DLT_FLOAT(Muon, momentum, .def = "0.95", .lo = 0, .hi = 1, .open_hi = true,
              .help = "decay of the running mean of the gradient", .example = "momentum: 0.9"),
    DLT_BOOL(Muon, nesterov, .def = "true", .help = "look one step ahead",
             .example = "nesterov: false"),
    DLT_INT(Muon, ns_steps, .def = "5", .lo = 1, .hi = 100,
            .help = "steps of Newton and Schulz towards an orthogonal matrix",
            .example = "ns_steps: 6"),
    DLT_FLOAT(Muon, adamw_lr, .def = "3e-4", .lo = 0, .hi = 10, .open_lo = true,
              .help = "learning rate of the parameters that adamw updates; it follows the same "
                      "schedule",
              .example = "adamw_lr: 1e-3"),
    DLT_FLOATS(Muon, betas, .def = "[0.9, 0.95]", .lo = 0, .hi = 1, .open_hi = true,
               .help = "of adamw: decay of the mean of the gradient and of its square",
               .example = "betas: [0.9, 0.99]"),
    DLT_FLOAT(Muon, eps, .def = "1e-10", .lo = 0, .hi = 1,
              .help = "of adamw: added to the root of the mean square", .example = "eps: 1e-8"),
    DLT_FIELDS_END,
};

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Muon *c = o->v;
    if (c->lr <= 0.0)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Muon, lr)),
                          "%s.lr: 0 leaves no rate that adamw_lr could follow", o->name);
    return dlt_optim_check_betas(o, &c->betas, offsetof(Muon, betas), err);
}

static int n_rest(const void *opts)
{
    (void)opts;
    return 2;
}

static void build_rest(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Muon *c = opts;
    DltSlab s = *slab;
    s.lr_factor *= c->adamw_lr / c->lr;
    dlt_optim_update(
        b, DLT_OP_adam_update,
        (DltUpdate){
            .beta1 = c->betas.v[0], .beta2 = c->betas.v[1], .eps = c->eps, .decoupled = true},
        &s);
}

static int n_matrix(const void *opts)
{
    (void)opts;
    return 1;
}

/* a x + c y */
static DltTensor *mix(DltBuild *b, DltTensor *x, double a, DltTensor *y, double c)
{
    return dlt_add(b, dlt_unary(b, x, DLT_FN_SCALE, a),
                   c == 1.0 ? y : dlt_unary(b, y, DLT_FN_SCALE, c));
}

static void build_matrix(DltBuild *b, const void *opts, const DltSlab *slab)
{
    const Muon *c = opts;
    DltUpdate attr = {.momentum = c->momentum, .nesterov = c->nesterov};
    DltTensor *const in[] = {slab->grad, slab->state[0], slab->coef, slab->step};
    DltTensor *x = dlt_build_op(b, DLT_OP_muon_momentum, &attr, in, 4);
    bool tall = dlt_dim(x, 0) > dlt_dim(x, 1);
    for (int64_t i = 0; i < c->ns_steps; i++) {
        DltTensor *a = dlt_matmul(b, x, x, tall, !tall);
        DltTensor *p = mix(b, a, quintic[1], dlt_matmul(b, a, a, false, false), quintic[2]);
        DltTensor *px =
            tall ? dlt_matmul(b, x, p, false, false) : dlt_matmul(b, p, x, false, false);
        x = mix(b, x, quintic[0], px, 1.0);
    }
    DltSlab s = *slab;
    s.g = x;
    s.state[0] = NULL;
    dlt_optim_update(b, DLT_OP_muon_update, attr, &s);
}

static const DltOptimDef matrix = {
    .name = "muon",
    .n_state = n_matrix,
    .state_name = {"momentum_buffer"},
    .single = true,
    .build = build_matrix,
};

const DltOptimDef dlt_optim_muon = {
    .name = "muon",
    .help = "orthogonal momentum for the matrices of hidden layers, adamw for the rest",
    .fields = fields,
    .opt_size = sizeof(Muon),
    .lr_offset = offsetof(Muon, lr),
    .weight_decay_offset = offsetof(Muon, weight_decay),
    .n_state = n_rest,
    .state_name = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .matrix = &matrix,
    .build = build_rest,
};
