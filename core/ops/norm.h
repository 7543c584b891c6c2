/* Normalisations.
 *   batch_norm_fwd: x [N,C,..], w, b, run_mean, run_var [C] (both mutated), res like x or NULL
 *     -> y, mean [C], rstd [C] (, bits when attr.bits).  Statistics over all but axis 1; biased variance
 *     normalises, unbiased goes into run_var; run = (1 - momentum) run + momentum batch (PyTorch's rule).
 *     y = act((x - mean) rstd w + b + res). Ioffe & Szegedy 2015.
 *     bits u8 [N,ceil(C/8),..]: bit c % 8 of byte (n, c/8, ..) is set where y > 0: what the gradient needs of y,
 *     in an eighth of a byte an element.
 *   batch_norm_bwd: dy, x, w, mean, rstd, y or bits (relu only), dy2 or NULL -> dx, dw, db, dres (when res)
 *     of the gradient dy + dy2
 *   batch_norm_infer: x, w, b, mean, var, res or NULL -> y
 *   layer_norm_fwd: x [.., C], w, b [C], res or NULL -> y, mean [rows], rstd [rows], sum (x + res, when
 *     res: then sum is what is normalised).  layer_norm_bwd: dy, sum-or-x, w, mean, rstd, dsum or NULL
 *     -> dx (+ dsum), dw, db, column sums of dx (when attr.bias: the gradient of a bias in front, put there
 *     by the fuse pass).  Ba et al. 2016.
 *   rms_norm_fwd: x, w, res -> y, rstd, sum.  rms_norm_bwd: dy, x, w, rstd, dsum -> dx, dw, column
 *     sums of dx.
 *   group_norm_fwd: x [N,C,..], w, b -> y, mean [N,G], rstd [N,G].  group_norm_bwd: dy,x,w,mean,rstd -> dx,dw,db.
 *   softmax_fwd: x -> y over the last axis;  softmax_bwd: dy, y -> dx
 * mean and rstd are f32 whatever the type of x. */
#ifndef DLT_NORM_H
#define DLT_NORM_H

#include "ops/elementwise.h"

typedef struct DltNorm {
    float eps;
    float momentum; /* batch_norm */
    int64_t groups; /* group_norm */
    bool relu;      /* batch_norm: fused by a pass */
    bool bits;      /* batch_norm: relu's mask is kept as bits, in place of y */
    bool has_res;   /* batch_norm_bwd: also write dres */
    bool bias;      /* layer_norm_bwd, rms_norm_bwd: also write the column sums of dx */
} DltNorm;

/* of a: eps and momentum; the infer form when !b->training */
DltTensor *dlt_batch_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, DltTensor *mean,
                          DltTensor *var, const DltNorm *a);
DltTensor *dlt_layer_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, float eps);
DltTensor *dlt_rms_norm(DltBuild *b, DltTensor *x, DltTensor *w, float eps);
DltTensor *dlt_group_norm(DltBuild *b, DltTensor *x, DltTensor *w, DltTensor *bias, int64_t groups,
                          float eps);
DltTensor *dlt_softmax(DltBuild *b, DltTensor *x);

#endif
