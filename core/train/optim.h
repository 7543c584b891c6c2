/* What all optimizers share: the rows for lr and weight_decay, and the update node of one slab. */
#ifndef DLT_TRAIN_OPTIM_H
#define DLT_TRAIN_OPTIM_H

#include "api/train.h"

#define DLT_LR_ROW(T, lr_def)                                                                      \
    DLT_FLOAT(T, lr, .def = (lr_def), .main = true, .lo = 0, .hi = 10, .open_lo = true,            \
              .help = "learning rate; the schedule scales it", .example = "lr: 3e-4")
#define DLT_WEIGHT_DECAY_ROW(T, decay_def, decay_help)                                             \
    DLT_FLOAT(T, weight_decay, .def = (decay_def), .lo = 0, .hi = 1, .help = (decay_help),         \
              .example = "weight_decay: 0.1")
#define DLT_L2_HELP "added to the gradient as weight_decay * weight (L2)"
#define DLT_DECOUPLED_HELP "weights shrink by lr * weight_decay an update, apart from the gradient"

/* `betas: [a, b]`: exactly two numbers. */
DltStatus dlt_optim_check_betas(const DltOpts *o, const DltFloats *betas, size_t at,
                                DltErr *err) DLT_CHECKED;
/* Adds the update node of this slab. attr's lr_factor and weight_decay are taken from the slab. */
void dlt_optim_update(DltBuild *b, DltOpKind kind, DltUpdate attr, const DltSlab *slab);

#endif
