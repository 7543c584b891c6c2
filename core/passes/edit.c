/* Building a new node list (passes/edit.h). */
#include "passes/edit.h"

void dlt_edit_push(DltEdit *e, DltNode *n)
{
    if (e->n == e->cap) {
        e->cap = e->cap ? 2 * e->cap : 256;
        DltNode **bigger = DLT_NEW_ARRAY(e->g->arena, e->cap, DltNode *);
        if (e->n > 0) memcpy(bigger, e->node, (size_t)e->n * sizeof *bigger);
        e->node = bigger;
    }
    e->node[e->n++] = n;
}

DltTensor *dlt_edit_insert(DltEdit *e, int kind, const void *attr, DltTensor *x, const char *suffix,
                           const DltNode *reader)
{
    const char *name = dlt_arena_printf(e->g->arena, "%s.%s", x->name, suffix);
    DltTensor *y = dlt_graph_tensor(e->g, name, &x->shape, x->dtype, DLT_TEMP);
    DltNode *n = dlt_graph_node(e->g, kind, attr);
    n->phase = reader->phase;
    n->at = reader->at;
    n->name = reader->name;
    n->in[0] = x;
    n->out[0] = y;
    y->layout = x->layout;
    y->producer = n;
    dlt_edit_push(e, n);
    return y;
}

void dlt_edit_end(DltEdit *e)
{
    dlt_graph_set_nodes(e->g, e->node, e->n);
}
