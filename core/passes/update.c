/* Lays parameters, gradients and optimizer states into slabs and adds the update nodes. A slab is one flat
 * tensor a group; the named tensors become views of it, so that one kernel updates a whole group and
 * checkpoints still see every tensor under its name. */
#include "passes/passes.h"

#include "ops/elementwise.h"

#include <fnmatch.h>

enum { ALIGN = 64 }; /* elements: 256 bytes of f32, the strictest backend alignment */

typedef struct Layout {
    DltBuild *b;
    const DltUpdateConfig *c;
    DltTensor **grad;
    int n_param, n_group; /* groups without the base, which is number n_group */
    DltTensor **param;    /* trainable and reached by the loss, in graph order */
    int *slab;            /* of each parameter */
    int64_t *offset;      /* in its slab */
    /* Slabs: one a group, then those of single parameters. */
    int n_slab;
    int *group;                       /* of each slab */
    const DltOptimDef **optim;        /* that builds it */
    int64_t *slab_size, *slab_offset; /* offset in the gradient slab */
    int64_t total;
    DltTensor *grad_slab, *grad_sum, *loss;
} Layout;

static bool is_param(const DltTensor *t)
{
    return t->role == DLT_PARAM && !t->producer && t->saved;
}

static bool matches(const DltGroup *group, const char *name)
{
    for (int k = 0; group->match[k]; k++)
        if (fnmatch(group->match[k], name, 0) == 0) return true;
    return false;
}

/* Number of the first group that names it, n_group for the base group. */
static int find_group(const DltUpdateConfig *c, const char *name)
{
    int i = 0;
    while (i < c->n_group && !matches(&c->group[i], name))
        i++;
    return i;
}

/* Each pattern of a group must match something, and the group as a whole must get something. */
static DltStatus check_group(const DltGraph *g, const DltGroup *group, bool used, DltErr *err)
{
    DltStatus status = DLT_OK;
    for (int k = 0; group->match[k]; k++) {
        bool any = false;
        for (int i = 0; i < g->n_tensor && !any; i++)
            any = is_param(g->tensor[i]) && fnmatch(group->match[k], g->tensor[i]->name, 0) == 0;
        if (!any)
            status = dlt_err_at(err, DLT_E_CONFIG, group->at,
                                "the pattern '%s' matches no parameter", group->match[k]);
    }
    if (status == DLT_OK && !used)
        status = dlt_err_at(err, DLT_E_CONFIG, group->at,
                            "the pattern '%s' matches only parameters that an earlier group took",
                            group->match[0]);
    return status;
}

DltStatus dlt_pass_freeze(DltGraph *g, const DltUpdateConfig *c, DltErr *err)
{
    bool *used = DLT_NEW_ARRAY(g->arena, c->n_group + 1, bool);
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i];
        if (!is_param(t)) continue;
        int k = find_group(c, t->name);
        used[k] = true;
        if (k < c->n_group && c->group[k].freeze) t->trainable = false;
    }
    DltStatus status = DLT_OK;
    for (int i = 0; i < c->n_group; i++) {
        DltStatus s = check_group(g, &c->group[i], used[i], err);
        if (s != DLT_OK) status = s;
    }
    return status;
}

static int64_t padded(const DltTensor *t)
{
    return (dlt_shape_count(&t->shape) + ALIGN - 1) / ALIGN * ALIGN;
}

/* matrix[id]: the weight of a product or convolution that is neither a table of ids nor the output
 * layer, which stands in front of the loss with at most a bias and reshapes behind it. */
static bool *find_matrices(const DltGraph *g)
{
    bool *matrix = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    for (int i = 0; i < g->n_node; i++) {
        const DltNode *n = g->node[i];
        bool weighs = n->kind == DLT_OP_matmul || n->kind == DLT_OP_conv_fwd;
        if (weighs && n->in[1]->shape.rank >= 2) matrix[n->in[1]->id] = true;
    }
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i]->kind == DLT_OP_embedding_fwd) matrix[g->node[i]->in[1]->id] = false;
    const DltNode *last = g->loss->producer ? g->loss->producer->in[0]->producer : NULL;
    while (last && (last->kind == DLT_OP_bias_fwd || last->op->view))
        last = last->in[0]->producer;
    if (last && last->kind == DLT_OP_matmul) matrix[last->in[1]->id] = false;
    return matrix;
}

static int add_slab(Layout *l, int group, const DltOptimDef *optim)
{
    l->group[l->n_slab] = group;
    l->optim[l->n_slab] = optim;
    return l->n_slab++;
}

static void measure(Layout *l)
{
    DltGraph *g = l->b->graph;
    int room = g->n_tensor + l->c->n_group + 2;
    l->param = DLT_NEW_ARRAY(g->arena, room, DltTensor *);
    l->slab = DLT_NEW_ARRAY(g->arena, room, int);
    l->offset = DLT_NEW_ARRAY(g->arena, room, int64_t);
    l->n_group = l->c->n_group;
    l->group = DLT_NEW_ARRAY(g->arena, room, int);
    l->optim = DLT_NEW_ARRAY(g->arena, room, const DltOptimDef *);
    l->slab_size = DLT_NEW_ARRAY(g->arena, room, int64_t);
    l->slab_offset = DLT_NEW_ARRAY(g->arena, room, int64_t);
    const DltOptimDef *optim = l->c->optim;
    const bool *matrix = optim->matrix ? find_matrices(g) : NULL;
    for (int k = 0; k <= l->n_group; k++)
        (void)add_slab(l, k, optim);
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i];
        if (t->role != DLT_PARAM || !t->trainable || !l->grad[t->id]) continue;
        const DltOptimDef *row = matrix && matrix[t->id] ? optim->matrix : optim;
        int k = find_group(l->c, t->name);
        if (row->single) k = add_slab(l, k, row);
        l->param[l->n_param] = t;
        l->slab[l->n_param] = k;
        l->offset[l->n_param++] = l->slab_size[k];
        l->slab_size[k] += padded(t);
    }
    for (int k = 0; k < l->n_slab; k++) {
        l->slab_offset[k] = l->total;
        l->total += l->slab_size[k];
    }
}

static DltTensor *slab(Layout *l, const char *name, int group, int64_t size, DltRole role)
{
    DltGraph *g = l->b->graph;
    DltShape shape = dlt_shape1(size);
    const char *full = group < 0 ? dlt_arena_printf(g->arena, "slab/%s", name)
                                 : dlt_arena_printf(g->arena, "slab/%s.%d", name, group);
    return dlt_graph_tensor(g, full, &shape, DLT_F32, role);
}

/* Gradient tensors must own their place: a view, a shared tensor or an input is copied first. */
static void place_gradients(Layout *l)
{
    DltGraph *g = l->b->graph;
    bool *taken = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    int n_before = g->n_tensor;
    for (int i = 0; i < l->n_param; i++) {
        DltTensor *d = l->grad[l->param[i]->id];
        bool own = d->role == DLT_TEMP && !d->view_of && d->id < n_before && !taken[d->id] &&
                   d->dtype == DLT_F32;
        if (own)
            taken[d->id] = true;
        else
            d = dlt_copy(l->b, d);
        if (d->id < 0) return;
        d->layout = l->param[i]->layout;
        dlt_graph_make_view(d, l->grad_slab, l->slab_offset[l->slab[i]] + l->offset[i]);
    }
}

/* After parameters and gradients have moved into slabs, views of them refer to the slab itself. */
static void reroot_views(DltGraph *g)
{
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i];
        if (!t->view_of || !t->view_of->view_of) continue;
        t->view_offset += t->view_of->view_offset;
        t->view_of = t->view_of->view_of;
        t->role = t->view_of->role;
    }
}

/* Views "<prefix><param>" over a state slab, so that checkpoints and evaluation find them by name. */
static void name_views(Layout *l, int k, DltTensor *base, const char *prefix)
{
    DltGraph *g = l->b->graph;
    for (int i = 0; i < l->n_param; i++) {
        if (l->slab[i] != k) continue;
        const char *name = dlt_arena_printf(g->arena, "%s%s", prefix, l->param[i]->name);
        DltTensor *view = dlt_graph_view(g, name, &l->param[i]->shape, base, l->offset[i]);
        view->saved = true;
        view->layout = l->param[i]->layout;
    }
}

/* The gradient of slab k, and for a single parameter the same as a matrix. */
static void add_gradient(Layout *l, int k, DltSlab *s)
{
    DltGraph *g = l->b->graph;
    DltShape size = dlt_shape1(l->slab_size[k]);
    DltTensor *grads = l->grad_sum ? l->grad_sum : l->grad_slab;
    s->g = dlt_graph_view(g, dlt_arena_printf(g->arena, "slab/group_grad.%d", k), &size, grads,
                          l->slab_offset[k]);
    if (!l->optim[k]->single) return;
    int i = 0;
    while (l->slab[i] != k)
        i++;
    int64_t rows = dlt_dim(l->param[i], 0), count = dlt_shape_count(&l->param[i]->shape);
    DltShape matrix = dlt_shape2(rows, count / rows);
    s->grad = dlt_graph_view(g, dlt_arena_printf(g->arena, "slab/matrix_grad.%d", k), &matrix,
                             grads, l->slab_offset[k]);
}

static void add_group(Layout *l, int k, DltTensor *coef)
{
    DltGraph *g = l->b->graph;
    const DltUpdateConfig *c = l->c;
    bool base = l->group[k] == l->n_group;
    const DltGroup *group = &c->group[l->group[k]];
    DltSlab s = {.coef = coef, .step = l->b->step};
    s.lr_factor = base ? 1.0 : group->lr_factor;
    s.weight_decay = base ? c->weight_decay : group->weight_decay;
    add_gradient(l, k, &s);
    s.w = slab(l, "weight", k, l->slab_size[k], DLT_PARAM);
    for (int i = 0; i < l->n_param; i++)
        if (l->slab[i] == k) dlt_graph_make_view(l->param[i], s.w, l->offset[i]);
    for (int i = 0; i < l->optim[k]->n_state(c->opts); i++) {
        const char *name = l->optim[k]->state_name[i];
        s.state[i] = slab(l, name, k, l->slab_size[k], DLT_STATE);
        name_views(l, k, s.state[i], dlt_arena_printf(g->arena, "optimizer/%s/", name));
    }
    l->optim[k]->build(l->b, c->opts, &s);
    if (c->ema <= 0) return;
    DltTensor *e = slab(l, "ema", k, l->slab_size[k], DLT_STATE);
    DltUpdate attr = {.decay = c->ema, .warm = true};
    name_views(l, k, e, "ema/");
    (void)dlt_build_node(l->b, DLT_OP_ema_update, &attr,
                         (DltTensor *const[]){e, s.w, coef, l->b->step}, 4);
}

/* States that batches change (running statistics, metric sums), without views, each once. */
static DltTensor **batch_states(const DltGraph *g, int *n)
{
    DltTensor **list = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, DltTensor *);
    bool *seen = DLT_NEW_ARRAY(g->arena, g->n_tensor + 1, bool);
    for (int k = 0; k < g->n_node; k++)
        for (int i = 0; i < DLT_MAX_IN; i++) {
            DltTensor *t = g->node[k]->in[i];
            if (!t || !(g->node[k]->op->mutates >> i & 1)) continue;
            t = dlt_tensor_base(t);
            if (t->role == DLT_STATE && !seen[t->id]) list[(*n)++] = t;
            seen[t->id] = true;
        }
    return list;
}

static void add_settle(Layout *l, DltTensor *state, DltTensor *coef)
{
    DltGraph *g = l->b->graph;
    const char *name = dlt_arena_printf(g->arena, "%s.kept", state->name);
    DltTensor *kept = dlt_graph_tensor(g, name, &state->shape, state->dtype, DLT_STATE);
    (void)dlt_build_node(l->b, DLT_OP_settle, NULL, (DltTensor *const[]){state, kept, coef}, 3);
}

/* Running statistics move into one slab, which is looked at, kept or taken back as a whole. NULL:
 * there are none. */
static DltTensor *running_slab(Layout *l, DltTensor **state, int n)
{
    int64_t total = 0, at = 0;
    for (int i = 0; i < n; i++)
        if (state[i]->dtype == DLT_F32) total += padded(state[i]);
    DltTensor *all = total > 0 ? slab(l, "running", -1, total, DLT_STATE) : NULL;
    for (int i = 0; i < n; i++) {
        if (state[i]->dtype != DLT_F32) continue;
        dlt_graph_make_view(state[i], all, at);
        at += padded(state[i]);
    }
    return all;
}

/* Sums gradients and loss over micro batches. */
static void add_accumulation(Layout *l)
{
    DltBuild *b = l->b;
    DltShape two = dlt_shape1(2);
    l->grad_sum = slab(l, "grad_sum", -1, l->total, DLT_GRAD);
    DltTensor *sum = dlt_graph_tensor(b->graph, "slab/loss_sum", &two, DLT_F64, DLT_GRAD);
    (void)dlt_build_node(b, DLT_OP_accumulate, NULL,
                         (DltTensor *const[]){l->grad_sum, l->grad_slab, b->step}, 3);
    (void)dlt_build_node(b, DLT_OP_accumulate, NULL, (DltTensor *const[]){sum, l->loss, b->step},
                         3);
    l->loss = sum;
}

DltStatus dlt_pass_update(DltBuild *b, const DltUpdateConfig *c, DltTensor **grad, DltErr *err)
{
    (void)err;
    Layout l = {.b = b, .c = c, .grad = grad, .loss = b->graph->loss};
    const char *old = b->scope;
    b->at = DLT_NO_MARK;
    b->scope = "update";
    measure(&l);
    int n_state = 0;
    DltTensor **state = batch_states(b->graph, &n_state);
    DltTensor *running = running_slab(&l, state, n_state);
    l.grad_slab = slab(&l, "grad", -1, l.total, DLT_GRAD);
    place_gradients(&l);
    if (c->n_micro > 1) add_accumulation(&l);
    b->phase = DLT_PHASE_UPDATE;
    DltTensor *grads = l.grad_sum ? l.grad_sum : l.grad_slab;
    DltTensor *states = running ? dlt_build_op(b, DLT_OP_sum_squares, NULL, &running, 1) : NULL;
    DltGradScale attr = {.clip = (float)c->clip,
                         .growth = c->scale_growth,
                         .backoff = c->scale_backoff,
                         .interval = c->scale_interval};
    DltTensor *coef =
        dlt_build_op(b, DLT_OP_grad_scale, &attr,
                     (DltTensor *const[]){l.loss, grads, b->step, states, b->scaler}, 5);
    if (coef->id >= 0) dlt_graph_rename(b->graph, coef, "update.coef");
    for (int k = 0; k < l.n_slab && b->status == DLT_OK; k++)
        if (l.slab_size[k] > 0) add_group(&l, k, coef);
    for (int i = 0; i < n_state && c->settle; i++)
        if (state[i]->dtype != DLT_F32) add_settle(&l, state[i], coef);
    if (running && c->settle) add_settle(&l, running, coef);
    reroot_views(b->graph);
    b->phase = DLT_PHASE_BATCH;
    b->scope = old;
    return b->status;
}
