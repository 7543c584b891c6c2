/* Mixed precision: which type each tensor has, and the casts between.
 *
 * LOW ops run in the compute type, FULL ops in f32, KEEP ops in the type of their first input;
 * operands of `full_in` are f32 for all. What lasts (gradients, states, the model's output) stays
 * f32, and so does what only f32 readers need: a LOW op writes f32 there by itself. A tensor is cast
 * once, in front of its first reader of another type.
 *
 * Parameters of a training graph are not cast in every step: a slab that nodes read in the compute
 * type gets a second slab of that type, which its update node keeps (in[7]); DltTensor.low tells the
 * executor to fill it at the start. Evaluation graphs cast, because which weights they share (raw or
 * averaged) is known only later. */
#include "passes/passes.h"

#include "ops/elementwise.h"
#include "passes/edit.h"

enum { LOW_SLOT = 7 }; /* of update nodes: ops/update_ops.h */

typedef struct Pass {
    DltEdit edit;
    DltDtype low;
    bool *wide;                   /* [tensor id] all readers want f32 */
    DltTensor **as_f32, **as_low; /* [tensor id] the same content in that type, once made */
    DltNode **update;             /* [tensor id] the node that updates this slab */
    bool training;                /* there is an update */
    int n_id;                     /* tensors before the pass */
} Pass;

/* One of the types this pass chooses between. */
static bool is_real(const Pass *p, const DltTensor *t)
{
    return t && (t->dtype == DLT_F32 || t->dtype == p->low);
}

/* Keeps its type: it lasts, or the host reads it. */
static bool is_fixed(const Pass *p, const DltTensor *t)
{
    return t->role != DLT_TEMP || t == p->edit.g->output;
}

/* A KEEP node whose result has the type of its first input, element by element. */
static bool passes_type_on(const Pass *p, const DltNode *n)
{
    return n->op->prec == DLT_PREC_KEEP && is_real(p, n->in[0]) && is_real(p, n->out[0]) &&
           dlt_shape_count(&n->in[0]->shape) == dlt_shape_count(&n->out[0]->shape);
}

static void find_wide(Pass *p)
{
    DltGraph *g = p->edit.g;
    bool *read = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    p->wide = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    for (int i = 0; i < g->n_tensor; i++)
        p->wide[i] = true;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const DltNode *n = g->node[i];
        const DltTensor *y = n->out[0];
        bool full = n->op->prec == DLT_PREC_FULL;
        if (!full && passes_type_on(p, n)) full = is_fixed(p, y) || (read[y->id] && p->wide[y->id]);
        for (int k = 0; k < DLT_MAX_IN; k++) {
            if (!n->in[k]) continue;
            read[n->in[k]->id] = true;
            p->wide[n->in[k]->id] &= full || (n->op->full_in >> k & 1);
        }
    }
    for (int i = 0; i < g->n_tensor; i++)
        p->wide[i] = is_fixed(p, g->tensor[i]) || (read[i] && p->wide[i]);
}

static void find_updates(Pass *p)
{
    DltGraph *g = p->edit.g;
    p->update = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltNode *);
    for (int i = 0; i < g->n_node; i++) {
        DltNode *n = g->node[i];
        if (!(n->op->mutates >> LOW_SLOT & 1)) continue;
        p->update[n->in[0]->id] = n;
        p->training = true;
    }
}

/* ---- parameters in the compute type ---- */

static DltTensor *new_state(Pass *p, const DltTensor *like)
{
    DltGraph *g = p->edit.g;
    const char *name = dlt_arena_printf(g->arena, "low/%s", like->name);
    DltTensor *t = dlt_graph_tensor(g, name, &like->shape, p->low, DLT_STATE);
    t->layout = like->layout;
    return t;
}

/* The low copy of a whole slab, kept by its update node. */
static DltTensor *low_slab(Pass *p, const DltTensor *slab)
{
    DltTensor **made = &p->as_low[slab->id], *before = *made;
    if (before) return before;
    *made = new_state(p, slab);
    p->update[slab->id]->in[LOW_SLOT] = *made;
    return *made;
}

/* t is a parameter, or a view that a node (reshape) made of one. */
static DltTensor *low_param(Pass *p, DltTensor *t)
{
    DltTensor **made = &p->as_low[t->id], *before = *made;
    if (before) return before;
    const DltGraph *g = p->edit.g;
    DltTensor *slab = dlt_tensor_base(t);
    if (t->producer) {
        DltTensor *x = t->producer->in[0], *low = low_param(p, x);
        const char *name = dlt_arena_printf(g->arena, "low/%s", t->name);
        *made = dlt_graph_view(p->edit.g, name, &t->shape, low, t->view_offset - x->view_offset);
    } else if (slab != t && p->update[slab->id]) {
        const char *name = dlt_arena_printf(g->arena, "low/%s", t->name);
        t->low = *made =
            dlt_graph_view(p->edit.g, name, &t->shape, low_slab(p, slab), t->view_offset);
        t->low->layout = t->layout;
    } else { /* frozen: never updated */
        t->low = *made = new_state(p, t);
    }
    return *made;
}

/* t in a type: itself, the one made before, or a new cast in front of `reader`. */
static DltTensor *in_type(Pass *p, DltTensor *t, DltDtype dtype, const DltNode *reader)
{
    if (t->dtype == dtype) return t;
    DLT_BUG_ON(t->id >= p->n_id);
    if (dtype == p->low && t->role == DLT_PARAM && p->training) return low_param(p, t);
    DltTensor **made = dtype == p->low ? &p->as_low[t->id] : &p->as_f32[t->id];
    DltTensor *before = *made;
    if (before) return before;
    DltCast cast = {dtype};
    *made = dlt_edit_insert(&p->edit, DLT_OP_cast, &cast, t, dlt_dtype_name(dtype), reader);
    (*made)->dtype = dtype;
    return *made;
}

/* ---- nodes ---- */

static DltDtype type_of(const Pass *p, const DltNode *n)
{
    if (n->op->prec == DLT_PREC_LOW) return p->low;
    if (n->op->prec == DLT_PREC_FULL) return DLT_F32;
    if (passes_type_on(p, n) && p->wide[n->out[0]->id]) return DLT_F32;
    for (int k = 0; k < DLT_MAX_IN; k++)
        if (is_real(p, n->in[k]) && !(n->op->full_in >> k & 1)) return n->in[k]->dtype;
    return DLT_F32;
}

static DltStatus set_outputs(Pass *p, DltNode *n, DltErr *err)
{
    DltShape shape[DLT_MAX_OUT];
    DltDtype dtype[DLT_MAX_OUT];
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        shape[k] = (DltShape){.rank = -1};
        dtype[k] = n->in[0] ? n->in[0]->dtype : DLT_F32;
    }
    DLT_TRY(n->op->infer(n, shape, dtype, err));
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        DltTensor *t = n->out[k];
        if (!is_real(p, t)) continue;
        bool full = is_fixed(p, t) || (n->op->prec == DLT_PREC_LOW && p->wide[t->id]);
        t->dtype = full ? DLT_F32 : dtype[k];
    }
    return DLT_OK;
}

static DltStatus visit(Pass *p, DltNode *n, DltErr *err)
{
    if (n->op->view) {
        n->out[0]->dtype = n->in[0]->dtype;
        dlt_graph_make_view(n->out[0], n->in[0], 0);
    } else {
        DltDtype type = type_of(p, n);
        for (int k = 0; k < DLT_MAX_IN; k++) {
            if (!is_real(p, n->in[k]) || (n->op->mutates >> k & 1)) continue;
            n->in[k] = in_type(p, n->in[k], n->op->full_in >> k & 1 ? DLT_F32 : type, n);
        }
        DLT_TRY(set_outputs(p, n, err));
    }
    dlt_edit_push(&p->edit, n);
    return DLT_OK;
}

DltStatus dlt_pass_legalize(DltGraph *g, const DltPrecision *precision, DltErr *err)
{
    if (precision->compute == DLT_F32) return DLT_OK;
    Pass p = {.edit = {.g = g}, .low = precision->compute, .n_id = g->n_tensor};
    p.as_f32 = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    p.as_low = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    find_wide(&p);
    find_updates(&p);
    for (int i = 0; i < g->n_node; i++)
        DLT_TRY(visit(&p, g->node[i], err));
    dlt_edit_end(&p.edit);
    return DLT_OK;
}
