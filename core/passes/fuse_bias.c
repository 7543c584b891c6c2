/* Gradients of biases (column sums) into the nodes that make what is summed: no node reads it again. */
#include "passes/fuse.h"

#include "ops/attention.h"
#include "ops/norm.h"

/* The node whose first output is summed over all but its last axis, in f32; NULL if there is none. */
static DltNode *maker_of(const DltNode *sum)
{
    const DltTensor *x = sum->in[0];
    if (!x->producer || x->producer->out[0] != x || sum->out[0]->dtype != DLT_F32) return NULL;
    return ((const DltBias *)sum->attr)->axis == x->shape.rank - 1 ? x->producer : NULL;
}

/* norm gradient -> bias_bwd: the bias in front of the norm gets its gradient where dx is made. */
bool dlt_fuse_norm_bias(DltFuse *f, DltNode *n)
{
    DltTensor *db = n->out[0];
    DltNode *p = maker_of(n);
    if (!p || (p->kind != DLT_OP_layer_norm_bwd && p->kind != DLT_OP_rms_norm_bwd)) return false;
    if (((const DltNorm *)p->attr)->bias) return false;
    dlt_fuse_remove(f, n);
    ((DltNorm *)dlt_fuse_edit(f, p))->bias = true;
    dlt_fuse_set_out(f, p, p->kind == DLT_OP_layer_norm_bwd ? 3 : 2, db);
    return true;
}

/* attention_bwd -> bias_bwd: the bias of queries, keys and values gets its gradient where theirs are made, if
 * the device's kernel for these heads does so. */
bool dlt_fuse_attention_bias(DltFuse *f, DltNode *n)
{
    DltTensor *db = n->out[0];
    DltNode *p = maker_of(n);
    if (!p || p->kind != DLT_OP_attention_bwd || p->out[1]) return false;
    DltAttention with = *(const DltAttention *)p->attr;
    DltNode one = *p;
    with.bias = true;
    one.attr = &with;
    one.out[1] = db;
    if (!dlt_fuse_has_kernel(f, &one)) return false;
    dlt_fuse_remove(f, n);
    ((DltAttention *)dlt_fuse_edit(f, p))->bias = true;
    dlt_fuse_set_out(f, p, 1, db);
    return true;
}
