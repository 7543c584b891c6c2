/* Shared parts of the optimizers. */
#include "train/optim.h"

DltStatus dlt_optim_check_betas(const DltOpts *o, const DltFloats *betas, size_t at, DltErr *err)
{
    if (betas->n == 2) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, at),
                      "%s.betas: %d numbers; two are needed, such as [0.9, 0.999]", o->name,
                      betas->n);
}

void dlt_optim_update(DltBuild *b, DltOpKind kind, DltUpdate attr, const DltSlab *slab)
{
    attr.lr_factor = slab->lr_factor;
    attr.weight_decay = slab->weight_decay;
    DltTensor *in[DLT_MAX_IN] = {slab->w,        slab->g,        slab->coef,     slab->step,
                                 slab->state[0], slab->state[1], slab->state[2], slab->low};
    dlt_build_node(b, kind, &attr, in, DLT_MAX_IN);
}
