/* Fusion: a table of rules over the whole-step graph, tried one after the other at every node. Each rule
 * can be switched off by name, and is tested both ways. */
#include "passes/fuse.h"

int dlt_fuse_readers(const DltFuse *f, const DltTensor *t)
{
    return f->n_reader[t->id];
}

DltNode *dlt_fuse_reader(const DltFuse *f, const DltTensor *t, int kind)
{
    DltNode *found = NULL;
    int n = f->n_reader[t->id];
    for (int i = 0; i < n && i < DLT_MAX_READERS; i++) {
        if (f->reader[t->id][i]->kind != kind) continue;
        if (found) return NULL;
        found = f->reader[t->id][i];
    }
    return found;
}

bool dlt_fuse_is_inner(const DltFuse *f, const DltTensor *t)
{
    return t->role == DLT_TEMP && !t->view_of && t != f->g->loss && t != f->g->output;
}

static void make_tables(DltFuse *f, int cap)
{
    f->cap = cap;
    f->n_reader = DLT_NEW_ARRAY(f->g->arena, cap, int);
    f->reader = dlt_arena_new_bytes(f->g->arena, (size_t)cap, sizeof *f->reader);
}

static void add_reader(DltFuse *f, const DltTensor *t, DltNode *n)
{
    int k = f->n_reader[t->id]++;
    if (k < DLT_MAX_READERS) f->reader[t->id][k] = n;
}

/* With more readers than the table holds, the tensor is never inner to a rule, so order does not matter. */
static void drop_reader(DltFuse *f, const DltTensor *t, const DltNode *n)
{
    int count = --f->n_reader[t->id], last = count < DLT_MAX_READERS ? count : DLT_MAX_READERS - 1;
    for (int i = 0; i <= last; i++)
        if (f->reader[t->id][i] == n) {
            f->reader[t->id][i] = f->reader[t->id][last];
            return;
        }
}

void dlt_fuse_set_in(DltFuse *f, DltNode *n, int i, DltTensor *t)
{
    if (n->in[i]) drop_reader(f, n->in[i], n);
    n->in[i] = t;
    if (t) add_reader(f, t, n);
}

void dlt_fuse_set_out(DltFuse *f, DltNode *n, int i, DltTensor *t)
{
    (void)f;
    n->out[i] = t;
    if (t) t->producer = n;
}

bool dlt_fuse_is_ready(const DltTensor *t, const DltNode *n)
{
    return !t->producer || t->producer->lane < n->lane;
}

/* All readers of t, and of the views that nodes make of it, are known. */
static bool knows_readers(const DltFuse *f, const DltTensor *t)
{
    if (f->n_reader[t->id] > DLT_MAX_READERS) return false;
    for (int i = 0; i < f->n_reader[t->id]; i++) {
        const DltNode *reader = f->reader[t->id][i];
        if (reader->op->view && !knows_readers(f, reader->out[0])) return false;
    }
    return true;
}

/* Views that nodes make of t lie where t lies now. */
static void move_views(const DltFuse *f, DltTensor *t)
{
    for (int i = 0; i < f->n_reader[t->id] && i < DLT_MAX_READERS; i++) {
        const DltNode *reader = f->reader[t->id][i];
        if (!reader->op->view) continue;
        dlt_graph_make_view(reader->out[0], t, 0);
        move_views(f, reader->out[0]);
    }
}

bool dlt_fuse_replace(DltFuse *f, DltTensor *t, DltTensor *by)
{
    if (!knows_readers(f, t)) return false;
    while (f->n_reader[t->id] > 0) {
        DltNode *reader = f->reader[t->id][0];
        int k = 0;
        while (reader->in[k] != t)
            k++;
        dlt_fuse_set_in(f, reader, k, by);
        if (!reader->op->view) continue;
        dlt_graph_make_view(reader->out[0], by, 0);
        move_views(f, reader->out[0]);
    }
    return true;
}

bool dlt_fuse_is_read_behind(const DltFuse *f, const DltTensor *t, const DltNode *n)
{
    for (int i = 0; i < f->n_reader[t->id] && i < DLT_MAX_READERS; i++)
        if (f->reader[t->id][i]->lane > n->lane) return true;
    return false;
}

bool dlt_fuse_replace_behind(DltFuse *f, DltTensor *t, DltTensor *by, const DltNode *n)
{
    if (!knows_readers(f, t) || !dlt_fuse_is_read_behind(f, t, n)) return false;
    for (int i = f->n_reader[t->id] - 1; i >= 0; i--) {
        DltNode *reader = f->reader[t->id][i];
        if (reader->lane <= n->lane) continue;
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (reader->in[k] == t) dlt_fuse_set_in(f, reader, k, by);
        if (!reader->op->view) continue;
        dlt_graph_make_view(reader->out[0], by, 0);
        move_views(f, reader->out[0]);
    }
    return true;
}

void dlt_fuse_advance(DltFuse *f, DltNode *n)
{
    DltNode **node = f->g->node;
    int place = n->lane, first = 0;
    for (int k = 0; k < DLT_MAX_IN; k++)
        if (n->in[k] && n->in[k]->producer && n->in[k]->producer->lane >= first)
            first = n->in[k]->producer->lane + 1;
    for (; place > first; place--) {
        node[place] = node[place - 1];
        if (node[place]) node[place]->lane = place;
    }
    node[first] = n;
    n->lane = first;
}

void *dlt_fuse_edit(DltFuse *f, DltNode *n)
{
    void *copy = dlt_arena_new_bytes(f->g->arena, 1, n->op->attr_size);
    memcpy(copy, n->attr, n->op->attr_size);
    n->attr = copy;
    return copy;
}

void dlt_fuse_remove(DltFuse *f, DltNode *n)
{
    for (int k = 0; k < DLT_MAX_IN; k++)
        if (n->in[k]) dlt_fuse_set_in(f, n, k, NULL);
    f->g->node[n->lane] = NULL;
}

void dlt_fuse_take_place(DltFuse *f, DltNode *n, DltNode *to)
{
    int place = to->lane;
    dlt_fuse_remove(f, to);
    f->g->node[n->lane] = NULL;
    f->g->node[place] = n;
    n->lane = place;
}

bool dlt_fuse_has_kernel(const DltFuse *f, const DltNode *n)
{
    return f->info->fuses != NULL && f->info->fuses(f->info->dev, n);
}

void dlt_fuse_turn(DltNode *n, int kind, const void *attr)
{
    n->op = dlt_ops[kind];
    n->kind = kind;
    n->attr = attr;
}

DltTensor *dlt_fuse_tensor(DltFuse *f, const char *name, const DltShape *shape, DltDtype dtype)
{
    DltGraph *g = f->g;
    DltTensor *t = dlt_graph_tensor(g, name, shape, dtype, DLT_TEMP);
    if (t->id < f->cap) return t;
    int old = f->cap;
    const int *n_reader = f->n_reader;
    DltNode *(*const reader)[DLT_MAX_READERS] = f->reader;
    make_tables(f, 2 * old + 1);
    memcpy(f->n_reader, n_reader, (size_t)old * sizeof *n_reader);
    memcpy(f->reader, reader, (size_t)old * sizeof *reader);
    return t;
}

static void count_readers(DltFuse *f)
{
    DltGraph *g = f->g;
    make_tables(f, g->n_tensor + 1);
    for (int i = 0; i < g->n_node; i++) {
        g->node[i]->lane = i; /* its place, while the pass runs */
        for (int k = 0; k < DLT_MAX_IN; k++)
            if (g->node[i]->in[k]) add_reader(f, g->node[i]->in[k], g->node[i]);
    }
}

static bool is_off(const char *name, const char *const *off)
{
    for (int i = 0; off && off[i]; i++)
        if (strcmp(off[i], name) == 0) return true;
    return false;
}

DltStatus dlt_pass_fuse(DltGraph *g, const DltDeviceInfo *info, const char *const *off, DltErr *err)
{
    (void)err;
    DltFuse f = {.g = g, .info = info};
    count_readers(&f);
    for (const DltFuseRule *r = dlt_fuse_rules; r->name; r++) {
        if (is_off(r->name, off)) continue;
        /* each application removes a node, so repeating at one place ends */
        for (int i = 0; i < g->n_node; i++)
            while (g->node[i] && g->node[i]->kind == r->root && r->apply(&f, g->node[i]))
                continue;
    }
    dlt_graph_set_nodes(g, g->node, g->n_node);
    for (int i = 0; i < g->n_node; i++)
        g->node[i]->lane = 0;
    return DLT_OK;
}
