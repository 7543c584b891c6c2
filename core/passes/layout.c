/* Physical layouts of images. An op that names image operands (convolution, pooling, batch norm)
 * takes each of them in the device's image layout where its channels allow; an elementwise op
 * follows its inputs; everything else works on PLAIN tensors. Where a reader needs another layout
 * than the tensor has, a reorder node stands between, shared by all readers behind it. */
#include "passes/passes.h"

#include "ops/elementwise.h"
#include "ops/shape_ops.h"
#include "passes/edit.h"

typedef struct Pass {
    DltEdit edit;
    const DltDeviceInfo *info;
    DltTensor **other; /* [tensor id] the same content in the other layout, once made */
    int n_id;          /* tensors before the pass */
} Pass;

/* A node may write t in any layout. */
static bool is_free(const Pass *p, const DltTensor *t)
{
    return t->role == DLT_TEMP && !t->view_of && t != p->edit.g->output;
}

static DltLayout wanted(const Pass *p, const DltTensor *t)
{
    bool fits = p->info->image_block > 0 && t->shape.dim[1] % p->info->image_block == 0;
    return fits ? p->info->image_layout : DLT_PLAIN;
}

/* Elements of t have one order in both layouts: images of one pixel in any, of one channel in PLAIN and NHWC. */
static bool same_order(const DltTensor *t, DltLayout layout)
{
    bool pixel = t->shape.dim[2] == 1 && t->shape.dim[3] == 1;
    bool rows = (t->layout == DLT_PLAIN || t->layout == DLT_NHWC) &&
                (layout == DLT_PLAIN || layout == DLT_NHWC);
    return pixel || (rows && t->shape.dim[1] == 1);
}

/* t in layout `layout`: itself, the one made before, or a new node in front of `reader`; a view where the order of
 * elements stays. */
static DltTensor *in_layout(Pass *p, DltTensor *t, DltLayout layout, const DltNode *reader)
{
    if (t->layout == layout) return t;
    DLT_BUG_ON(t->id >= p->n_id);
    DltTensor *y = p->other[t->id];
    if (y) return y;
    DltReorder to = {layout};
    DltReshape same = {t->shape};
    if (same_order(t, layout)) {
        y = dlt_edit_insert(&p->edit, DLT_OP_reshape, &same, t, "reorder", reader);
        dlt_graph_make_view(y, t, 0);
    } else {
        y = dlt_edit_insert(&p->edit, DLT_OP_reorder, &to, t, "reorder", reader);
    }
    y->layout = layout;
    p->other[t->id] = y;
    return y;
}

/* Each image operand by itself. */
static void visit_image_op(Pass *p, DltNode *n)
{
    for (int k = 0; k < DLT_MAX_IN; k++) {
        DltTensor *t = n->in[k];
        if (!t || t->shape.rank != 4) continue;
        if (t->role == DLT_PARAM && !(n->op->image_in >> k & 1)) continue; /* a filter: filters.c */
        n->in[k] = in_layout(p, t, n->op->image_in >> k & 1 ? wanted(p, t) : DLT_PLAIN, n);
    }
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        DltTensor *t = n->out[k];
        if (t && t->shape.rank == 4 && n->op->image_out >> k & 1 && is_free(p, t))
            t->layout = wanted(p, t);
    }
}

/* The layout in which an elementwise node runs: that of its first input that is not PLAIN, when all
 * its images have one shape and none is a parameter or a view to be written. */
static DltLayout common_layout(const Pass *p, const DltNode *n)
{
    const DltTensor *first = NULL;
    DltLayout layout = DLT_PLAIN;
    for (int k = 0; k < DLT_MAX_IN + DLT_MAX_OUT; k++) {
        const DltTensor *t = k < DLT_MAX_IN ? n->in[k] : n->out[k - DLT_MAX_IN];
        if (!t || t->shape.rank != 4) continue;
        if (!first) first = t;
        if (!dlt_shape_equal(&t->shape, &first->shape)) return DLT_PLAIN;
        if (k < DLT_MAX_IN && t->role == DLT_PARAM) return DLT_PLAIN;
        if (k >= DLT_MAX_IN && !is_free(p, t)) return DLT_PLAIN;
        if (k < DLT_MAX_IN && layout == DLT_PLAIN) layout = t->layout;
    }
    return layout;
}

static void visit(Pass *p, DltNode *n)
{
    if (n->op->image_in | n->op->image_out) {
        visit_image_op(p, n);
        dlt_edit_push(&p->edit, n);
        return;
    }
    DltLayout layout = n->op->any_layout ? common_layout(p, n) : DLT_PLAIN;
    for (int k = 0; k < DLT_MAX_IN; k++)
        if (n->in[k] && n->in[k]->shape.rank == 4) n->in[k] = in_layout(p, n->in[k], layout, n);
    for (int k = 0; k < DLT_MAX_OUT && layout != DLT_PLAIN; k++)
        if (n->out[k] && n->out[k]->shape.rank == 4) n->out[k]->layout = layout;
    /* a view has its base's memory: it follows a reordered copy */
    if (n->op->view) dlt_graph_make_view(n->out[0], n->in[0], 0);
    dlt_edit_push(&p->edit, n);
}

DltStatus dlt_pass_layout(DltGraph *g, const DltDeviceInfo *info, DltErr *err)
{
    (void)err;
    if (info->image_layout == DLT_PLAIN) return DLT_OK;
    Pass p = {.edit = {.g = g}, .info = info, .n_id = g->n_tensor};
    p.other = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    for (int i = 0; i < g->n_node; i++)
        visit(&p, g->node[i]);
    dlt_edit_end(&p.edit);
    return DLT_OK;
}
