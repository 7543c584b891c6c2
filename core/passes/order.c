/* Removes nodes whose results nobody needs. Program order is kept otherwise: it is already one in which
 * every gradient is consumed soon after it is made. */
#include "passes/passes.h"

/* What must be computed whether or not a node reads it. */
static bool is_wanted(const DltGraph *g, const DltTensor *t)
{
    return t == g->loss || t == g->output || (t->role != DLT_TEMP && t->role != DLT_INPUT);
}

DltStatus dlt_pass_order(DltGraph *g, DltErr *err)
{
    (void)err;
    bool *read = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    int n = 0;
    for (int i = g->n_node - 1; i >= 0; i--) {
        DltNode *node = g->node[i];
        bool live = node->op->mutates != 0;
        for (int k = 0; k < DLT_MAX_OUT; k++)
            if (node->out[k]) live |= read[node->out[k]->id] || is_wanted(g, node->out[k]);
        if (!live) {
            g->node[i] = NULL;
            continue;
        }
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (node->in[k]) read[node->in[k]->id] = true;
    }
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i]) g->node[n++] = g->node[i];
    g->n_node = n;
    return DLT_OK;
}
