/* Physical layouts of images. Ops that work in any layout take the device's image layout for every rank-4
 * activation whose channels fit its block; at borders to other ops a reorder node is inserted, shared by
 * all readers behind it. */
#include "passes/passes.h"

#include "ops/elementwise.h"

typedef struct Pass {
    DltGraph *g;
    const DltDeviceInfo *info;
    DltTensor **other; /* [tensor id] the same content in the other layout, once made */
    DltNode **node;    /* the new node list */
    int n, cap, n_id;
} Pass;

/* Activations: rank 4, temporary, no filter gradient. */
static bool is_image(const DltTensor *t)
{
    bool filter = t->producer && t->producer->kind == DLT_OP_conv_bwd_filter;
    return t->shape.rank == 4 && t->role == DLT_TEMP && !filter;
}

static DltLayout wanted(const Pass *p, const DltTensor *t)
{
    bool fits = p->info->image_block > 0 && t->shape.dim[1] % p->info->image_block == 0;
    return fits ? p->info->image_layout : DLT_PLAIN;
}

/* Elementwise nodes whose operands differ in shape (broadcast), or that touch parameters or views, and
 * everything else that is no any_layout op, work on plain tensors. */
static bool is_free(const DltNode *n)
{
    bool conv = n->op->prec == DLT_PREC_LOW;
    if (!n->op->any_layout) return false;
    const DltTensor *y = n->out[0];
    if (y && y->shape.rank == 4 && (!is_image(y) || y->view_of) &&
        n->kind != DLT_OP_conv_bwd_filter)
        return false;
    for (int k = 0; k < DLT_MAX_IN; k++) {
        const DltTensor *t = n->in[k];
        if (!t || t->shape.rank != 4 || is_image(t)) continue;
        if (!(conv && k == 1)) return false;
    }
    if (n->kind == DLT_OP_binary && !dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return false;
    return true;
}

static void push(Pass *p, DltNode *n)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 256;
        DltNode **bigger = DLT_NEW_ARRAY(p->g->arena, p->cap, DltNode *);
        if (p->n > 0) memcpy(bigger, p->node, (size_t)p->n * sizeof *bigger);
        p->node = bigger;
    }
    p->node[p->n++] = n;
}

/* t in layout `layout`: itself, the one made before, or a new reorder node in front of `reader`. */
static DltTensor *in_layout(Pass *p, DltTensor *t, DltLayout layout, const DltNode *reader)
{
    if (t->layout == layout) return t;
    DLT_BUG_ON(t->id >= p->n_id);
    if (p->other[t->id]) return p->other[t->id];
    DltArena *arena = p->g->arena;
    DltTensor *y = dlt_graph_tensor(p->g, dlt_arena_printf(arena, "%s.reorder", t->name), &t->shape,
                                    t->dtype, DLT_TEMP);
    DltNode *n = DLT_NEW(arena, DltNode);
    DltReorder *attr = DLT_NEW(arena, DltReorder);
    attr->layout = layout;
    *n = (DltNode){.op = dlt_ops[DLT_OP_reorder],
                   .kind = DLT_OP_reorder,
                   .phase = reader->phase,
                   .attr = attr,
                   .at = reader->at,
                   .name = reader->name};
    n->in[0] = t;
    n->out[0] = y;
    y->layout = layout;
    y->producer = n;
    p->other[t->id] = y;
    push(p, n);
    return y;
}

static void visit(Pass *p, DltNode *n)
{
    bool can = is_free(n);
    for (int k = 0; k < DLT_MAX_IN; k++) {
        DltTensor *t = n->in[k];
        if (!t || !is_image(t)) continue;
        n->in[k] = in_layout(p, t, can ? wanted(p, t) : DLT_PLAIN, n);
    }
    /* a view has its base's memory: it follows a reordered copy */
    if (n->op->view) dlt_graph_make_view(n->out[0], n->in[0], 0);
    for (int k = 0; can && k < DLT_MAX_OUT; k++)
        if (n->out[k] && is_image(n->out[k])) n->out[k]->layout = wanted(p, n->out[k]);
    push(p, n);
}

DltStatus dlt_pass_layout(DltGraph *g, const DltDeviceInfo *info, DltErr *err)
{
    (void)err;
    if (info->image_layout == DLT_PLAIN) return DLT_OK;
    Pass p = {.g = g, .info = info, .n_id = g->n_tensor};
    p.other = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    for (int i = 0; i < g->n_node; i++)
        visit(&p, g->node[i]);
    g->node = p.node;
    g->n_node = p.n;
    g->cap_node = p.cap;
    return DLT_OK;
}
