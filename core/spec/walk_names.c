/* Names of layers and their outputs while a model is built. */
#include "spec/walk.h"

void dlt_walk_remember(DltWalk *w, DltTensor *t)
{
    if (w->n_name == w->cap_name) {
        int cap = w->cap_name ? 2 * w->cap_name : 64;
        const char **names = DLT_NEW_ARRAY(w->arena, cap + 1, const char *); /* NULL behind */
        DltTensor **outputs = DLT_NEW_ARRAY(w->arena, cap, DltTensor *);
        for (int i = 0; i < w->n_name; i++)
            names[i] = w->names[i], outputs[i] = w->outputs[i];
        w->names = names, w->outputs = outputs, w->cap_name = cap;
    }
    w->names[w->n_name] = w->b->scope;
    w->outputs[w->n_name++] = t;
}

/* An output by name: as seen from the present scope outwards, the latest first; "input" is the data. */
DltTensor *dlt_walk_output(DltWalk *w, const char *name)
{
    for (const char *scope = w->b->scope;; scope = NULL) {
        const char *full =
            scope && scope[0] ? dlt_arena_printf(w->arena, "%s.%s", scope, name) : name;
        for (int i = w->n_name - 1; i >= 0; i--)
            if (strcmp(w->names[i], full) == 0) return w->outputs[i];
        const char *dot = scope ? strrchr(scope, '.') : NULL;
        if (!scope || !scope[0]) break;
        if (dot) {
            DltTensor *t = NULL;
            const char *old = w->b->scope;
            w->b->scope = dlt_arena_strn(w->arena, scope, (size_t)(dot - scope));
            t = dlt_walk_output(w, name);
            w->b->scope = old;
            return t;
        }
    }
    return strcmp(name, "input") == 0 ? w->m->x : NULL;
}

/* How often `name` was taken in this list, this time included. */
int dlt_walk_take_name(DltWalk *w, DltWalkList *l, const char *name)
{
    for (int i = 0; i < l->n_used; i++)
        if (strcmp(l->used[i].name, name) == 0) return ++l->used[i].n;
    if (l->n_used == l->cap) {
        int cap = l->cap ? 2 * l->cap : 16;
        DltWalkUsed *used = DLT_NEW_ARRAY(w->arena, cap, DltWalkUsed);
        if (l->n_used) memcpy(used, l->used, (size_t)l->n_used * sizeof *used);
        l->used = used, l->cap = cap;
    }
    l->used[l->n_used++] = (DltWalkUsed){name, 1};
    return 1;
}

const char *dlt_walk_unique(DltWalk *w, DltWalkList *l, const char *name)
{
    int n = dlt_walk_take_name(w, l, name);
    return n == 1 ? name : dlt_arena_printf(w->arena, "%s_%d", name, n);
}
