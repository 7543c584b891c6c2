/* Reverse-mode differentiation: walks the forward nodes backwards, asks each op's gradient rule for nodes,
 * and sums where a tensor has several readers. Gradients are ordinary nodes of the same graph. */
#include "passes/passes.h"

#include "ops/elementwise.h"

/* needs[id]: a trainable parameter reaches this tensor. */
static bool *find_needs(const DltGraph *g)
{
    bool *needs = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    for (int i = 0; i < g->n_tensor; i++)
        needs[i] = g->tensor[i]->role == DLT_PARAM && g->tensor[i]->trainable;
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *n = g->node[i];
        bool any = false;
        for (int k = 0; k < DLT_MAX_IN; k++)
            any |= n->in[k] && needs[n->in[k]->id];
        for (int k = 0; k < DLT_MAX_OUT; k++)
            if (n->out[k]) needs[n->out[k]->id] = any;
    }
    return needs;
}

/* Runs one node's rule and adds its input gradients into the table. */
static void differentiate(DltBuild *b, const DltNode *n, DltTensor **grad)
{
    DltTensor *dout[DLT_MAX_OUT] = {0}, *din[DLT_MAX_IN] = {0};
    bool any = n->out[0] == b->graph->loss;
    for (int k = 0; k < DLT_MAX_OUT; k++) {
        if (n->out[k]) dout[k] = grad[n->out[k]->id];
        any |= dout[k] != NULL;
    }
    if (!any || !b->needs[n->out[0]->id]) return;
    b->at = n->at;
    b->scope = n->name;
    if (!n->op->grad) {
        b->status = dlt_err_at(b->err, DLT_E_BUG, n->at, "%s: %s has no gradient",
                               dlt_node_label(n), n->op->name);
        return;
    }
    n->op->grad(b, n, dout, din);
    for (int k = 0; k < DLT_MAX_IN; k++) {
        DltTensor *x = n->in[k];
        if (!din[k] || !x || !b->needs[x->id] || din[k]->id < 0) continue;
        grad[x->id] = grad[x->id] ? dlt_add(b, grad[x->id], din[k]) : din[k];
    }
}

DltStatus dlt_pass_autodiff(DltBuild *b, DltTensor **out[], DltErr *err)
{
    DltGraph *g = b->graph;
    DLT_BUG_ON(!g->loss);
    const char *scope = b->scope;
    int n_forward = g->n_node;
    DltTensor **grad = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    b->needs = find_needs(g);
    if (!b->needs[g->loss->id])
        return dlt_err_at(err, DLT_E_CONFIG, b->at,
                          "the loss does not depend on any trainable parameter");
    for (int i = n_forward - 1; i >= 0 && b->status == DLT_OK; i--)
        differentiate(b, g->node[i], grad);
    b->needs = NULL;
    b->scope = scope;
    *out = grad;
    return b->status;
}
