/* The graph's bookkeeping: growing the node and tensor tables, views, lookups. Shapes and meaning
 * are the ops' business. */
#include "graph/graph.h"

#include "base/rng.h"

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

/* ---- names ---- */

/* The slot of a name: where it is, or where it belongs. */
static int *name_slot(const DltGraph *g, const char *name)
{
    uint64_t mask = (uint64_t)g->cap_name - 1, at = dlt_hash(name, strlen(name), 0) & mask;
    while (g->by_name[at] && strcmp(g->tensor[g->by_name[at] - 1]->name, name) != 0)
        at = (at + 1) & mask;
    return &g->by_name[at];
}

/* Fills the table anew: the first tensor of a name has it. */
static void rehash(DltGraph *g, int cap)
{
    g->cap_name = cap;
    g->by_name = DLT_NEW_ARRAY(g->arena, cap, int);
    for (int i = 0; i < g->n_tensor; i++) {
        int *slot = name_slot(g, g->tensor[i]->name);
        if (!*slot) *slot = i + 1;
    }
}

/* The table is at most half full, so that a search ends soon. */
static void add_name(DltGraph *g, const DltTensor *t)
{
    if (2 * g->n_tensor > g->cap_name) {
        rehash(g, g->cap_name ? 2 * g->cap_name : 128);
        return;
    }
    int *slot = name_slot(g, t->name);
    if (!*slot) *slot = t->id + 1;
}

void dlt_graph_rename(DltGraph *g, DltTensor *t, const char *name)
{
    t->name = dlt_arena_str(g->arena, name);
    rehash(g, g->cap_name);
}

DltTensor *dlt_graph_find(const DltGraph *g, const char *name)
{
    if (g->cap_name == 0) return NULL;
    int id = *name_slot(g, name);
    return id ? g->tensor[id - 1] : NULL;
}

/* ---- tensors and nodes ---- */

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
    add_name(g, t);
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

DltNode *dlt_graph_node(DltGraph *g, int kind, const void *attr)
{
    DltNode *n = DLT_NEW(g->arena, DltNode);
    n->op = dlt_ops[kind];
    n->kind = kind;
    if (n->op->attr_size == 0) return n;
    void *copy = dlt_arena_new_bytes(g->arena, 1, n->op->attr_size);
    if (attr) memcpy(copy, attr, n->op->attr_size);
    n->attr = copy;
    return n;
}

void dlt_graph_set_nodes(DltGraph *g, DltNode **node, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (!node[i]) continue;
        node[kept++] = node[i];
        for (int k = 0; k < DLT_MAX_OUT; k++)
            if (node[i]->out[k]) node[i]->out[k]->producer = node[i];
    }
    g->node = node;
    g->n_node = kept;
    g->cap_node = n;
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

const char *dlt_node_label(const DltNode *n)
{
    return n->name != NULL && n->name[0] != '\0' ? n->name : n->op->name;
}

int dlt_graph_index(const DltGraph *g, const DltNode *node)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i] == node) return i;
    return -1;
}

int64_t dlt_tensor_bytes(const DltTensor *t)
{
    int64_t bytes = 0;
    bool fits = dlt_shape_bytes(&t->shape, dlt_dtype_bytes(t->dtype), &bytes);
    DLT_BUG_ON(!fits);
    return bytes;
}

void dlt_tensor_reorder(const DltTensor *t, void *dst, const void *src, bool to_plain)
{
    DLT_BUG_ON(t->layout != DLT_NHWC || t->shape.rank != 4);
    const int64_t *d = t->shape.dim;
    size_t size = dlt_dtype_bytes(t->dtype);
    char *to = dst;
    const char *from = src;
    int64_t plain = 0;
    for (int64_t n = 0; n < d[0]; n++)
        for (int64_t c = 0; c < d[1]; c++)
            for (int64_t i = 0; i < d[2] * d[3]; i++, plain++) {
                int64_t own = (n * d[2] * d[3] + i) * d[1] + c;
                memcpy(to + (to_plain ? plain : own) * (int64_t)size,
                       from + (to_plain ? own : plain) * (int64_t)size, size);
            }
}

int *dlt_graph_uses(const DltGraph *g)
{
    int *uses = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, int);
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (g->node[i]->in[k]) uses[g->node[i]->in[k]->id]++;
    return uses;
}
