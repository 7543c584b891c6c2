/* DltBuild: nodes from op rows with a sticky error, names by scope, parameters and states. */
#include "graph/build.h"

void dlt_build_init(DltBuild *b, DltGraph *g, DltErr *err)
{
    *b = (DltBuild){.graph = g, .err = err, .status = DLT_OK, .at = DLT_NO_MARK, .scope = ""};
}

static const char *scoped(DltBuild *b, const char *name)
{
    return b->scope[0] ? dlt_arena_printf(b->graph->arena, "%s.%s", b->scope, name) : name;
}

const char *dlt_build_enter(DltBuild *b, const char *name)
{
    const char *old = b->scope;
    b->scope = dlt_arena_str(b->graph->arena, scoped(b, name));
    return old;
}

void dlt_build_leave(DltBuild *b, const char *old_scope)
{
    b->scope = old_scope;
}

/* A rank-0 tensor outside the graph (id -1): every use of it is a no-op. */
DltTensor *dlt_build_poison(DltBuild *b)
{
    DltTensor *t = DLT_NEW(b->graph->arena, DltTensor);
    t->name = "poison";
    t->id = -1;
    return t;
}

bool dlt_build_failed(const DltBuild *b)
{
    return b->status != DLT_OK;
}

DltTensor *dlt_build_error(DltBuild *b, const char *fmt, ...)
{
    if (b->status == DLT_OK) {
        va_list args;
        va_start(args, fmt);
        const char *text = dlt_arena_vprintf(b->graph->arena, fmt, args);
        va_end(args);
        b->status = dlt_err_at(b->err, DLT_E_CONFIG, b->at, "%s", text);
    }
    return dlt_build_poison(b);
}

static DltTensor *output(DltBuild *b, const DltOpDef *op, int i, const DltShape *shape,
                         DltDtype dtype)
{
    const char *name = i == 0 ? op->name : dlt_arena_printf(b->graph->arena, "%s.%d", op->name, i);
    DltTensor *t = dlt_graph_tensor(b->graph, scoped(b, name), shape, dtype, DLT_TEMP);
    return t;
}

/* False, with a report where it is our own fault, when no node can be made of these inputs. */
static bool can_build(DltBuild *b, const DltOpDef *op, DltTensor *const in[], int n_in)
{
    if (b->status != DLT_OK) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] && in[i]->id < 0) return false;
    for (int i = 0; i < op->n_in; i++) {
        if ((i < n_in && in[i]) || op->optional >> i & 1) continue;
        b->status = dlt_err_at(b->err, DLT_E_BUG, b->at, "%s: input %d of %s is missing", b->scope,
                               i, op->name);
        return false;
    }
    return true;
}

DltNode *dlt_build_node(DltBuild *b, DltOpKind kind, const void *attr, DltTensor *const in[],
                        int n_in)
{
    const DltOpDef *op = dlt_ops[kind];
    DLT_BUG_ON(n_in > op->n_in);
    if (!can_build(b, op, in, n_in)) return NULL;
    DltNode *n = dlt_graph_node(b->graph, (int)kind, attr);
    n->phase = b->phase;
    n->at = b->at;
    n->name = b->scope;
    for (int i = 0; i < n_in; i++)
        n->in[i] = in[i];
    DltShape shape[DLT_MAX_OUT];
    DltDtype dtype[DLT_MAX_OUT];
    for (int i = 0; i < DLT_MAX_OUT; i++) {
        shape[i] = (DltShape){.rank = -1};
        dtype[i] = n->in[0] ? n->in[0]->dtype : DLT_F32;
    }
    b->status = op->infer(n, shape, dtype, b->err);
    if (b->status != DLT_OK) return NULL;
    for (int i = 0; i < op->n_out; i++)
        if (shape[i].rank >= 0) n->out[i] = output(b, op, i, &shape[i], dtype[i]);
    if (op->view) dlt_graph_make_view(n->out[0], n->in[0], 0);
    dlt_graph_insert(b->graph, b->graph->n_node, n);
    return n;
}

DltTensor *dlt_build_op(DltBuild *b, DltOpKind kind, const void *attr, DltTensor *const in[],
                        int n_in)
{
    DltNode *n = dlt_build_node(b, kind, attr, in, n_in);
    return n && n->out[0] ? n->out[0] : dlt_build_poison(b);
}

/* A lasting tensor of this full name: a new one, or the one that is there when all of it agrees. */
static DltTensor *keep(DltBuild *b, const char *name, const DltShape *shape, DltDtype dtype,
                       DltRole role, const DltInit *init)
{
    if (b->status != DLT_OK) return dlt_build_poison(b);
    const char *full = scoped(b, name), *what = role == DLT_PARAM ? "parameter" : "state";
    DltTensor *t = dlt_graph_find(b->graph, full);
    if (t) {
        char want[DLT_SHAPE_TEXT], have[DLT_SHAPE_TEXT];
        if (t->role == role && t->dtype == dtype && dlt_shape_equal(&t->shape, shape)) return t;
        return dlt_build_error(b, "%s %s of shape %s: the name is taken by one of shape %s", what,
                               full, dlt_shape_text(shape, want), dlt_shape_text(&t->shape, have));
    }
    t = dlt_graph_tensor(b->graph, full, shape, dtype, role);
    DltInit *copy = DLT_NEW(b->graph->arena, DltInit);
    *copy = *init;
    t->init = copy;
    t->saved = true;
    return t;
}

DltTensor *dlt_param(DltBuild *b, const char *name, DltShape shape, DltInit init)
{
    int n_before = b->graph->n_tensor;
    DltTensor *t = keep(b, name, &shape, DLT_F32, DLT_PARAM, &init);
    if (b->graph->n_tensor > n_before) t->trainable = true;
    return t;
}

DltTensor *dlt_state(DltBuild *b, const char *name, DltShape shape, DltDtype dtype, DltInit init)
{
    return keep(b, name, &shape, dtype, DLT_STATE, &init);
}

DltTensor *dlt_input(DltBuild *b, const char *name, DltShape shape, DltDtype dtype)
{
    if (b->status != DLT_OK) return dlt_build_poison(b);
    return dlt_graph_tensor(b->graph, scoped(b, name), &shape, dtype, DLT_INPUT);
}

bool dlt_needs_grad(const DltBuild *b, const DltTensor *t)
{
    return t && t->id >= 0 && b->needs && b->needs[t->id];
}

int64_t dlt_dim(const DltTensor *t, int i)
{
    return t->id < 0 ? 1 : dlt_shape_dim(&t->shape, i);
}
