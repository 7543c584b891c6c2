/* Fusion rules around the output layer: the loss with its gradient, the layer with both in chunks of rows, and a
 * tied table's two gradients. */
#include "passes/fuse.h"

#include "ops/loss_ops.h"
#include "ops/matmul.h"

/* embedding gradient -> add: a tied table's other gradient is where the rows are added. It is made where the sum
 * belongs, so that rows of ids that do not come stay as they are. */
bool dlt_fuse_embedding_add(DltFuse *f, DltNode *n)
{
    if (((const DltBinary *)n->attr)->fn != DLT_ADD) return false;
    for (int k = 0; k < 2; k++) {
        DltTensor *d = n->in[k], *other = n->in[1 - k], *y = n->out[0];
        DltNode *p = d->producer;
        if (!p || p->kind != DLT_OP_embedding_bwd || p->in[2] || d == other) continue;
        if (dlt_fuse_readers(f, d) != 1 || !dlt_fuse_is_inner(f, d)) continue;
        if (!dlt_shape_equal(&d->shape, &other->shape) || other->dtype != d->dtype) continue;
        if (y->dtype != d->dtype || !dlt_fuse_is_ready(other, p)) continue;
        dlt_fuse_remove(f, n);
        dlt_fuse_set_in(f, p, 2, other);
        dlt_fuse_set_out(f, p, 0, y);
        bool alone = dlt_fuse_readers(f, other) == 1 && dlt_fuse_is_inner(f, other);
        if (alone && y->view_of && y->layout == other->layout) dlt_graph_make_view(other, y, 0);
        return true;
    }
    return false;
}

/* ---- cross entropy forward and backward in one pass ---- */

bool dlt_fuse_cross_entropy(DltFuse *f, DltNode *n)
{
    DltNode *bwd = dlt_fuse_reader(f, n->in[0], DLT_OP_cross_entropy_bwd);
    if (!bwd) return false;
    for (int k = 1; k < DLT_MAX_IN; k++)
        if (bwd->in[k] != n->in[k]) return false;
    DltTensor *d = bwd->out[0], *loss = n->out[0];
    dlt_fuse_remove(f, bwd);
    n->op = dlt_ops[DLT_OP_cross_entropy_both];
    n->kind = DLT_OP_cross_entropy_both;
    dlt_fuse_set_out(f, n, 0, d);
    dlt_fuse_set_out(f, n, 1, loss);
    return true;
}

/* The weight gradient of a layer whose output's gradient is d: d^T x over folded rows, x or a view of it. */
static DltNode *weight_gradient(const DltFuse *f, const DltTensor *d, const DltTensor *x)
{
    const DltNode *fold = dlt_fuse_reader(f, d, DLT_OP_reshape);
    const DltTensor *rows = fold ? fold->out[0] : d;
    if (fold && dlt_fuse_readers(f, rows) != 1) return NULL;
    for (int i = 0; i < dlt_fuse_readers(f, rows) && i < DLT_MAX_READERS; i++) {
        DltNode *n = f->reader[rows->id][i];
        if (n->kind != DLT_OP_matmul || n->in[0] != rows || n->in[1]->dtype != x->dtype) continue;
        const DltMatmul *a = n->attr;
        const DltTensor *y = n->in[1];
        const DltNode *view = y->producer;
        bool same = y == x || (view && view->op->view && view->in[0] == x);
        if (a->ta && !a->tb && same && n->out[0]->dtype == DLT_F32) return n;
    }
    return NULL;
}

/* The data gradient d w. */
static DltNode *data_gradient(const DltFuse *f, const DltTensor *d, const DltTensor *w)
{
    for (int i = 0; i < dlt_fuse_readers(f, d) && i < DLT_MAX_READERS; i++) {
        DltNode *n = f->reader[d->id][i];
        const DltMatmul *a = n->attr;
        if (n->kind == DLT_OP_matmul && n->in[0] == d && n->in[1] == w && !a->ta && !a->tb)
            return n;
    }
    return NULL;
}

static bool is_bare(const DltNode *product)
{
    const DltEpilogue *e = &((const DltMatmul *)product->attr)->ep;
    return !product->in[2] && !e->act.fn && !e->act_grad.fn && !e->save_pre;
}

/* matmul -> cross entropy -> both gradients of the product: one node that works on chunks of rows, where the
 * logits of all would take much memory. A chunk's are bounded by as much as a slice of attention's
 * gradient takes, which shares its scratch. */
bool dlt_fuse_classifier(DltFuse *f, DltNode *n)
{
    const int64_t large = (int64_t)1 << 27, most = (int64_t)1 << 30;
    DltTensor *logits = n->in[0], *d = n->out[0], *loss = n->out[1];
    DltNode *p = logits->producer;
    const DltCrossEntropy *ce = n->attr;
    if (!p || p->kind != DLT_OP_matmul || !is_bare(p) || n->in[3] || ce->smoothing > 0)
        return false;
    const DltMatmul *a = p->attr;
    DltTensor *x = p->in[0], *w = p->in[1];
    if (a->ta || !a->tb || w->shape.rank != 2 || w->dtype != x->dtype) return false;
    int64_t row = dlt_shape_dim(&logits->shape, -1) * (int64_t)dlt_dtype_bytes(logits->dtype);
    int64_t rows = dlt_shape_count(&n->in[1]->shape), chunks = (rows * row + most - 1) / most;
    if (rows * row < large || logits->dtype != x->dtype || d->dtype != x->dtype) return false;
    DltNode *dx = data_gradient(f, d, w), *dw = weight_gradient(f, d, x);
    if (!dx || !dw || !is_bare(dx) || !is_bare(dw) || dx->out[0]->dtype != x->dtype) return false;
    if (dlt_fuse_readers(f, logits) != 1 || dlt_fuse_readers(f, d) != 2) return false;
    if (!dlt_fuse_is_inner(f, logits) || !dlt_fuse_is_inner(f, d)) return false;
    DltTensor *labels = n->in[1], *weights = n->in[2], *step = n->in[4];
    DltTensor *out[] = {dx->out[0], dw->out[0], loss}, *in[] = {x, w, labels, weights, step};
    DltClassifier *attr = dlt_arena_new_bytes(f->g->arena, 1, sizeof *attr);
    *attr = (DltClassifier){.ignore = ce->ignore, .rows = (rows + chunks - 1) / chunks};
    dlt_fuse_remove(f, dx);
    if (dw->in[0] != d) dlt_fuse_remove(f, dw->in[0]->producer);
    dlt_fuse_remove(f, dw);
    dlt_fuse_remove(f, p);
    n->op = dlt_ops[DLT_OP_classifier];
    n->kind = DLT_OP_classifier;
    n->attr = attr;
    for (int i = 0; i < 5; i++)
        dlt_fuse_set_in(f, n, i, in[i]);
    for (int i = 0; i < 3; i++)
        dlt_fuse_set_out(f, n, i, out[i]);
    return true;
}

/* ---- a small output layer with its loss ---- */

static bool is_read_before(const DltFuse *f, const DltTensor *t, const DltNode *n)
{
    int readers = dlt_fuse_readers(f, t);
    if (readers > DLT_MAX_READERS) return true;
    for (int i = 0; i < readers; i++)
        if (f->reader[t->id][i]->lane < n->lane) return true;
    return false;
}

/* Product with bias -> cross entropy -> data gradient through the activation in front: one node, since each of
 * these is a row's own and takes less time than a kernel's start. The weights' gradient stays where it is. */
bool dlt_fuse_output_layer(DltFuse *f, DltNode *n)
{
    DltTensor *logits = n->in[0], *d = n->out[0], *loss = n->out[1];
    DltNode *p = logits->producer;
    const DltCrossEntropy *ce = n->attr;
    if (!p || p->kind != DLT_OP_matmul || n->in[3] || ce->smoothing > 0) return false;
    const DltMatmul *a = p->attr;
    DltTensor *x = p->in[0], *w = p->in[1];
    if (a->ta || !a->tb || w->shape.rank != 2 || a->ep.act.fn || a->ep.act_grad.fn ||
        a->ep.save_pre)
        return false;
    if (logits->view_of || d->view_of || is_read_before(f, logits, n)) return false;
    DltNode *dx = data_gradient(f, d, w);
    if (!dx) return false;
    const DltEpilogue *e = &((const DltMatmul *)dx->attr)->ep;
    if (dx->in[2] || e->act.fn || e->save_pre) return false;
    DltOutputLayer *attr = dlt_arena_new_bytes(f->g->arena, 1, sizeof *attr);
    *attr = (DltOutputLayer){.ignore = ce->ignore, .act_grad = e->act_grad};
    DltShape rows = dlt_shape2(dlt_shape_count(&n->in[1]->shape), 2);
    DltTensor *pairs =
        dlt_fuse_tensor(f, dlt_arena_printf(f->g->arena, "%s.rows", loss->name), &rows, DLT_F64);
    DltTensor *out[] = {dx->out[0], d, logits, pairs};
    DltTensor *in[] = {x, w, p->in[2], n->in[1], n->in[2], n->in[4], dx->in[3]};
    DltNode as = *n;
    dlt_fuse_turn(&as, DLT_OP_output_layer, attr);
    memcpy(as.in, in, sizeof in);
    memcpy(as.out, out, sizeof out);
    if (!dlt_fuse_has_kernel(f, &as)) return false;
    dlt_fuse_remove(f, p);
    dlt_fuse_turn(n, DLT_OP_output_layer, attr);
    for (int i = 0; i < 7; i++)
        dlt_fuse_set_in(f, n, i, in[i]);
    for (int i = 0; i < 4; i++)
        dlt_fuse_set_out(f, n, i, out[i]);
    /* the data gradient's node becomes the sum of the rows' losses, for which nobody hurries */
    dlt_fuse_turn(dx, DLT_OP_loss_sum, NULL);
    for (int i = 1; i < DLT_MAX_IN; i++)
        dlt_fuse_set_in(f, dx, i, NULL);
    dlt_fuse_set_in(f, dx, 0, pairs);
    dlt_fuse_set_out(f, dx, 0, loss);
    dx->name = n->name;
    dx->at = n->at;
    dlt_fuse_advance(f, dx);
    return true;
}
