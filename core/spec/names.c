/* Names in a model: unique ones inside a list, full ones for `from:`, and the rows of the layer
 * table. */
#include "spec/walk.h"

static int find_base(const DltList *l, const char *name)
{
    for (int i = 0; i < l->n_name; i++)
        if (strcmp(l->name[i], name) == 0) return i;
    return -1;
}

static void add_base(DltWalk *w, DltList *l, const char *name)
{
    if (l->n_name == l->cap_name) {
        int cap = l->cap_name > 0 ? 2 * l->cap_name : 16;
        const char **names = DLT_NEW_ARRAY(w->arena, cap, const char *);
        int *count = DLT_NEW_ARRAY(w->arena, cap, int);
        for (int i = 0; i < l->n_name; i++) {
            names[i] = l->name[i];
            count[i] = l->count[i];
        }
        l->name = names;
        l->count = count;
        l->cap_name = cap;
    }
    l->name[l->n_name] = name;
    l->count[l->n_name++] = 1;
}

bool dlt_walk_take(DltWalk *w, DltList *l, const char *name)
{
    if (find_base(l, name) >= 0) return false;
    add_base(w, l, name);
    return true;
}

const char *dlt_walk_unique(DltWalk *w, DltList *l, const char *name)
{
    if (dlt_walk_take(w, l, name)) return name;
    int at = find_base(l, name);
    for (;;) {
        const char *next = dlt_arena_printf(w->arena, "%s_%d", name, ++l->count[at]);
        if (dlt_walk_take(w, l, next)) return next;
    }
}

bool dlt_walk_remember(DltWalk *w, DltTensor *t)
{
    int *slot = dlt_keyset_slot(&w->output_set, w->name, w->b->scope);
    if (*slot != 0) return false;
    if (w->n_output == 2 * DLT_MAX_LAYERS) return true; /* the limit on layers is reported */
    w->name[w->n_output] = w->b->scope;
    w->output[w->n_output] = t;
    *slot = ++w->n_output;
    return true;
}

static DltTensor *find_full(const DltWalk *w, const char *full)
{
    int *slot = dlt_keyset_slot(&w->output_set, w->name, full);
    return *slot != 0 ? w->output[*slot - 1] : NULL;
}

DltTensor *dlt_walk_find(DltWalk *w, const char *name, DltTensor *previous)
{
    char *scope = dlt_arena_str(w->arena, w->b->scope);
    for (;;) {
        DltTensor *t =
            find_full(w, scope[0] ? dlt_arena_printf(w->arena, "%s.%s", scope, name) : name);
        if (t) return t;
        if (!scope[0]) break;
        char *dot = strrchr(scope, '.');
        *(dot ? dot : scope) = '\0';
    }
    if (strcmp(name, "previous") == 0) return previous;
    return strcmp(name, "input") == 0 ? w->m->x : NULL;
}

const char *dlt_walk_nearest(DltWalk *w, const char *name)
{
    w->name[w->n_output] = NULL;
    return dlt_nearest(name, w->name);
}

int dlt_walk_open_row(DltWalk *w, const char *kind)
{
    DltModelGraph *m = w->m;
    if (m->n_row == w->cap_row) {
        int cap = w->cap_row > 0 ? 2 * w->cap_row : 64;
        DltLayerRow *row = DLT_NEW_ARRAY(w->arena, cap, DltLayerRow);
        if (m->n_row > 0) memcpy(row, m->row, (size_t)m->n_row * sizeof *row);
        m->row = row;
        w->cap_row = cap;
    }
    m->row[m->n_row] = (DltLayerRow){.name = w->b->scope, .kind = kind, .depth = w->depth};
    return m->n_row++;
}

void dlt_walk_close_row(DltWalk *w, int row, int n_node, int n_tensor, const DltTensor *out)
{
    const DltGraph *g = w->m->graph;
    DltLayerRow *r = &w->m->row[row];
    r->leaf = row == w->m->n_row - 1;
    r->out = out->shape;
    for (int i = n_node; i < g->n_node; i++)
        if (g->node[i]->op->flops) r->flops += g->node[i]->op->flops(g->node[i]);
    for (int i = n_tensor; i < g->n_tensor; i++)
        if (g->tensor[i]->role == DLT_PARAM && !g->tensor[i]->producer)
            r->params += dlt_shape_count(&g->tensor[i]->shape);
}
