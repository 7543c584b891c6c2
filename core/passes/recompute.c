/* Recompute: forward results that the backward pass reads are not kept but made again, by copies of
 * their nodes in front of the first reader. Runs behind autodiff, on nodes whose results depend on
 * nothing but their inputs (a dropout's mask is a function of its counter), so nothing changes but
 * memory and time.  Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
 *
 * mlp: what elementwise nodes and row norms make: their own gradients keep the inputs anyway.
 * blocks: everything between one residual sum and the next. */
#include "passes/passes.h"

#include "passes/edit.h"

typedef struct Pass {
    DltEdit edit;
    bool *drop;        /* [tensor id] not kept until backward */
    DltTensor **again; /* [tensor id] the copy, once made */
} Pass;

static bool is_cheap(const DltNode *n)
{
    static const bool cheap[DLT_N_OP] = {
        [DLT_OP_unary_fwd] = true, [DLT_OP_gated_fwd] = true,    [DLT_OP_layer_norm_fwd] = true,
        [DLT_OP_dropout] = true,   [DLT_OP_rms_norm_fwd] = true,
    };
    return cheap[n->kind];
}

/* Nodes that may run a second time. */
static bool can_repeat(const DltNode *n)
{
    return n->op->mutates == 0 && n->out[0] && n->out[0]->role == DLT_TEMP;
}

static void choose(Pass *p, int n_forward, DltRecompute mode)
{
    DltGraph *g = p->edit.g;
    int last = -1; /* the last residual sum: what lies behind it is read at once by backward */
    for (int i = 0; i < n_forward; i++)
        for (int k = 0; k < DLT_MAX_OUT; k++)
            if (g->node[i]->out[k] && g->node[i]->out[k]->residual) last = i;
    bool inside = false; /* behind the first residual's input */
    for (int i = 0; i < n_forward; i++) {
        const DltNode *n = g->node[i];
        bool ends = n->out[0] && n->out[0]->residual;
        bool wanted = mode == DLT_RECOMPUTE_MLP ? is_cheap(n) : inside && i < last && !ends;
        inside |= ends;
        for (int k = 0; wanted && can_repeat(n) && k < DLT_MAX_OUT; k++) {
            DltTensor *t = n->out[k];
            if (t && !t->residual && t != g->loss && t != g->output) p->drop[t->id] = true;
        }
    }
}

static DltTensor *make_again(Pass *p, DltTensor *t, const DltNode *reader);

static DltTensor *input_again(Pass *p, DltTensor *t, const DltNode *reader)
{
    return t && p->drop[t->id] ? make_again(p, t, reader) : t;
}

/* The copy of a dropped tensor: its node runs again in front of `reader`. */
static DltTensor *make_again(Pass *p, DltTensor *t, const DltNode *reader)
{
    DltGraph *g = p->edit.g;
    if (p->again[t->id]) return p->again[t->id];
    const DltNode *n = t->producer;
    DltTensor *in[DLT_MAX_IN];
    for (int k = 0; k < DLT_MAX_IN; k++)
        in[k] = input_again(p, n->in[k], reader);
    DltNode *copy = dlt_graph_node(g, n->kind, n->attr);
    copy->phase = n->phase;
    copy->at = n->at;
    copy->name = n->name;
    for (int k = 0; k < DLT_MAX_IN; k++)
        copy->in[k] = in[k];
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        DltTensor *y = n->out[k];
        if (!y) continue;
        const char *name = dlt_arena_printf(g->arena, "%s.again", y->name);
        copy->out[k] = dlt_graph_tensor(g, name, &y->shape, y->dtype, DLT_TEMP);
        copy->out[k]->producer = copy;
        p->again[y->id] = copy->out[k];
    }
    if (n->op->view) dlt_graph_make_view(copy->out[0], copy->in[0], 0);
    dlt_edit_push(&p->edit, copy);
    return p->again[t->id];
}

DltStatus dlt_pass_recompute(DltGraph *g, int n_forward, DltRecompute mode, DltErr *err)
{
    (void)err;
    if (mode == DLT_RECOMPUTE_NONE) return DLT_OK;
    int n_before = g->n_tensor;
    Pass p = {.edit = {.g = g},
              .drop = DLT_NEW_ARRAY(g->arena, n_before + 1, bool),
              .again = DLT_NEW_ARRAY(g->arena, n_before + 1, DltTensor *)};
    choose(&p, n_forward, mode);
    for (int i = 0; i < g->n_node; i++) {
        DltNode *n = g->node[i];
        for (int k = 0; i >= n_forward && k < DLT_MAX_IN; k++) {
            if (!n->in[k] || n->in[k]->id >= n_before) continue;
            n->in[k] = input_again(&p, n->in[k], n);
        }
        /* gradients of reshapes are views of what may have been replaced */
        if (i >= n_forward && n->op->view) dlt_graph_make_view(n->out[0], n->in[0], 0);
        dlt_edit_push(&p.edit, n);
    }
    dlt_edit_end(&p.edit);
    return DLT_OK;
}
