/* The graph's bookkeeping: growing the node and tensor tables, views, lookups. Shapes and meaning
 * are the ops' business. */
#include "graph/graph.h"

DltGraph *dlt_graph_new(DltArena *arena)
{
    DltGraph *g = DLT_NEW(arena, DltGraph);
    g->arena = arena;
    return g;
}

/* Room for one more element; the old table stays in the arena (doubling keeps the waste below one
 * table). */
static void *grow(DltArena *arena, void *table, int n, int *cap)
{
    if (n < *cap) return table;
    int new_cap = *cap ? 2 * *cap : 64;
    void **bigger = DLT_NEW_ARRAY(arena, new_cap, void *);
    if (n > 0) memcpy(bigger, table, (size_t)n * sizeof *bigger);
    *cap = new_cap;
    return bigger;
}

DltTensor *dlt_graph_tensor(DltGraph *g, const char *name, const DltShape *shape, DltDtype dtype,
                            DltRole role)
{
    g->tensor = grow(g->arena, g->tensor, g->n_tensor, &g->cap_tensor);
    DltTensor *t = DLT_NEW(g->arena, DltTensor);
    t->name = dlt_arena_str(g->arena, name);
    t->shape = *shape;
    t->dtype = dtype;
    t->role = role;
    t->id = g->n_tensor;
    g->tensor[g->n_tensor++] = t;
    return t;
}

DltTensor *dlt_tensor_base(DltTensor *t)
{
    return t->view_of ? t->view_of : t;
}

void dlt_graph_make_view(DltTensor *t, DltTensor *base, int64_t offset)
{
    DltTensor *root = dlt_tensor_base(base);
    DLT_BUG_ON(root == t);
    t->view_offset = offset + base->view_offset;
    t->view_of = root;
    t->role = root->role;
    DLT_BUG_ON(t->view_offset + dlt_shape_count(&t->shape) > dlt_shape_count(&root->shape));
}

DltTensor *dlt_graph_view(DltGraph *g, const char *name, const DltShape *shape, DltTensor *base,
                          int64_t offset)
{
    DltTensor *t = dlt_graph_tensor(g, name, shape, base->dtype, base->role);
    dlt_graph_make_view(t, base, offset);
    return t;
}

void dlt_graph_insert(DltGraph *g, int at, DltNode *node)
{
    DLT_BUG_ON(at < 0 || at > g->n_node);
    g->node = grow(g->arena, g->node, g->n_node, &g->cap_node);
    memmove(g->node + at + 1, g->node + at, (size_t)(g->n_node - at) * sizeof *g->node);
    g->node[at] = node;
    g->n_node++;
    for (int i = 0; i < DLT_MAX_OUT; i++)
        if (node->out[i]) node->out[i]->producer = node;
}

void dlt_graph_remove(DltGraph *g, int at)
{
    DLT_BUG_ON(at < 0 || at >= g->n_node);
    g->n_node--;
    memmove(g->node + at, g->node + at + 1, (size_t)(g->n_node - at) * sizeof *g->node);
}

int dlt_graph_index(const DltGraph *g, const DltNode *node)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i] == node) return i;
    return -1;
}

DltTensor *dlt_graph_find(const DltGraph *g, const char *name)
{
    for (int i = 0; i < g->n_tensor; i++)
        if (strcmp(g->tensor[i]->name, name) == 0) return g->tensor[i];
    return NULL;
}

int64_t dlt_tensor_bytes(const DltTensor *t)
{
    int64_t bytes = 0;
    bool fits = dlt_shape_bytes(&t->shape, dlt_dtype_bytes(t->dtype), &bytes);
    DLT_BUG_ON(!fits);
    return bytes;
}

int *dlt_graph_uses(const DltGraph *g)
{
    int *uses = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, int);
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (g->node[i]->in[k]) uses[g->node[i]->in[k]->id]++;
    return uses;
}
