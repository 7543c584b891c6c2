/* The fusion of a convolution with the max pooling behind it, forward and backward at once: the image
 * between them, the largest of a small network, and its gradient are never written. Only where the
 * device has kernels for all the nodes that come of it. */
#include "passes/fuse.h"

#include "ops/conv.h"

/* The nodes of the pattern; all of the gradient are NULL in a graph without one. */
typedef struct Pattern {
    DltNode *conv, *pool, *pool_bwd, *filter, *sum, *data;
} Pattern;

/* dy of the convolution is read by its gradients and the bias' alone. */
static bool find_gradient(const DltFuse *f, Pattern *p)
{
    const DltTensor *dy = p->pool_bwd->out[0];
    p->filter = dlt_fuse_reader(f, dy, DLT_OP_conv_bwd_filter);
    p->sum = dlt_fuse_reader(f, dy, DLT_OP_bias_bwd);
    p->data = dlt_fuse_reader(f, dy, DLT_OP_conv_bwd_data);
    int known = (p->filter != NULL) + (p->sum != NULL) + (p->data != NULL);
    if (!dlt_fuse_is_inner(f, dy) || dlt_fuse_readers(f, dy) != known || !p->filter) return false;
    if (p->filter->in[0] != p->conv->in[0] || p->filter->in[1] != dy) return false;
    if (p->sum && (((const DltBias *)p->sum->attr)->axis != 1 || p->sum->out[0]->dtype != DLT_F32))
        return false;
    return !p->data || (p->data->in[0] == dy && !p->data->in[2]);
}

static bool find(const DltFuse *f, DltNode *pool, Pattern *p)
{
    DltTensor *y = pool->in[0], *index = pool->out[1];
    *p = (Pattern){.conv = y->producer, .pool = pool};
    if (!p->conv || p->conv->kind != DLT_OP_conv_fwd || !index) return false;
    const DltEpilogue *e = &((const DltConv *)p->conv->attr)->ep;
    if (e->act.fn || e->save_pre || dlt_fuse_readers(f, y) != 1 || !dlt_fuse_is_inner(f, y))
        return false;
    p->pool_bwd = dlt_fuse_reader(f, index, DLT_OP_pool_bwd);
    if (dlt_fuse_readers(f, index) != (p->pool_bwd ? 1 : 0)) return false;
    return !p->pool_bwd || find_gradient(f, p);
}

/* Nodes as they would be. */
static DltNode forward_of(const Pattern *p, const DltConvPool *a)
{
    DltNode n = *p->conv;
    dlt_fuse_turn(&n, DLT_OP_conv_pool_fwd, a);
    n.out[0] = p->pool->out[0];
    n.out[1] = p->pool->out[1];
    return n;
}
static DltNode filter_of(const Pattern *p, const DltConvPool *a)
{
    DltNode n = *p->filter;
    dlt_fuse_turn(&n, DLT_OP_conv_pool_bwd_filter, a);
    n.in[1] = p->pool_bwd->in[0];
    n.in[2] = p->pool_bwd->in[1];
    n.out[1] = p->sum ? p->sum->out[0] : NULL;
    return n;
}
static DltNode data_of(const Pattern *p, const DltConvPool *a)
{
    DltNode n = *p->data;
    dlt_fuse_turn(&n, DLT_OP_conv_pool_bwd_data, a);
    n.in[0] = p->pool_bwd->in[0];
    n.in[2] = n.in[1];
    n.in[1] = p->pool_bwd->in[1];
    return n;
}
static bool has_kernels(const DltFuse *f, const Pattern *p, const DltConvPool *a)
{
    DltNode n = forward_of(p, a);
    if (!dlt_fuse_has_kernel(f, &n)) return false;
    if (!p->pool_bwd) return true;
    n = filter_of(p, a);
    if (!dlt_fuse_has_kernel(f, &n)) return false;
    if (!p->data) return true;
    n = data_of(p, a);
    return dlt_fuse_has_kernel(f, &n);
}

/* n becomes what `as` says. */
static void become(DltFuse *f, DltNode *n, const DltNode *as)
{
    dlt_fuse_turn(n, as->kind, as->attr);
    for (int k = 0; k < DLT_MAX_IN; k++)
        if (n->in[k] != as->in[k]) dlt_fuse_set_in(f, n, k, as->in[k]);
    for (int k = 0; k < DLT_MAX_OUT; k++)
        if (n->out[k] != as->out[k]) dlt_fuse_set_out(f, n, k, as->out[k]);
}

bool dlt_fuse_conv_pool(DltFuse *f, DltNode *pool)
{
    Pattern p;
    if (!find(f, pool, &p)) return false;
    DltConvPool *a = dlt_arena_new_bytes(f->g->arena, 1, sizeof *a);
    a->conv = *(const DltConv *)p.conv->attr;
    a->pool = *(const DltPool *)pool->attr;
    a->bias = p.sum != NULL;
    if (!has_kernels(f, &p, a)) return false;
    DltNode forward = forward_of(&p, a), filter = {0}, data = {0};
    if (p.filter) filter = filter_of(&p, a);
    if (p.data) data = data_of(&p, a);
    dlt_fuse_take_place(f, p.conv, pool);
    become(f, p.conv, &forward);
    if (p.filter) become(f, p.filter, &filter);
    if (p.data) become(f, p.data, &data);
    if (p.sum) dlt_fuse_remove(f, p.sum);
    if (p.pool_bwd) dlt_fuse_remove(f, p.pool_bwd);
    return true;
}
