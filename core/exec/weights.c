/* Tensors between device, host and checkpoint, by name. Resuming takes all or nothing; a new run
 * that begins from old weights takes what fits and says what does not. */
#include "base/half.h"
#include "base/log.h"
#include "base/sys.h"
#include "exec/session.h"
#include <math.h>

static const char metrics_name[] = "state/metrics", scaler_name[] = "state/loss_scale";

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* What only a training run has: it is not among the weights. */
static bool is_training_state(const char *name)
{
    return starts_with(name, "optimizer/") || starts_with(name, "ema/") ||
           starts_with(name, "state/");
}

static bool fits(const DltCheckpointTensor *c, const DltTensor *t)
{
    return c->dtype == t->dtype && dlt_shape_equal(&c->shape, &t->shape);
}

static const char *describe(DltDtype dtype, const DltShape *shape, char text[DLT_SHAPE_TEXT + 8])
{
    char dims[DLT_SHAPE_TEXT];
    snprintf(text, DLT_SHAPE_TEXT + 8, "%s%s", dlt_dtype_name(dtype), dlt_shape_text(shape, dims));
    return text;
}

/* ---- snapshots ---------------------------------------------------------------------------- */

DltSnapshot *dlt_snapshot_new(DltProgram *p)
{
    const DltGraph *g = p->m->graph;
    DltArena *arena = p->s->arena;
    DltSnapshot *s = DLT_NEW(arena, DltSnapshot);
    s->p = p;
    s->tensor = DLT_NEW_ARRAY(arena, g->n_tensor + 1, DltTensor *);
    s->entry = DLT_NEW_ARRAY(arena, g->n_tensor + 1, DltCheckpointTensor);
    for (int i = 0; i < g->n_tensor; i++) {
        DltTensor *t = g->tensor[i];
        if (!t->saved && t != g->metrics) continue;
        s->tensor[s->n] = t;
        s->entry[s->n++] = (DltCheckpointTensor){.name = t == g->metrics ? metrics_name : t->name,
                                                 .dtype = t->dtype,
                                                 .shape = t->shape,
                                                 .n_bytes = dlt_tensor_bytes(t)};
    }
    return s;
}

DltStatus dlt_snapshot_reserve(DltSnapshot *s, DltErr *err)
{
    for (int i = 0; i < s->n; i++) {
        s->entry[i].bytes = dlt_host_memory(s->p->s, (size_t)s->entry[i].n_bytes);
        if (s->entry[i].bytes == NULL)
            return dlt_err(err, DLT_E_RESOURCE, "out of host memory for checkpoints: %s needs %lld",
                           s->entry[i].name, (long long)s->entry[i].n_bytes);
    }
    return DLT_OK;
}

static void *host_copy(const DltSnapshot *s, int i)
{
    return (void *)s->entry[i].bytes;
}

int64_t dlt_first_nonfinite(const DltTensor *t, const void *bytes, double *value)
{
    int64_t n = dlt_shape_count(&t->shape);
    const DltReal *f32 = bytes;
    const double *f64 = bytes;
    const uint16_t *half = bytes;
    for (int64_t i = 0; i < n; i++) {
        double v = 0; /* types without fractions are always finite */
        if (t->dtype == DLT_F32) v = (double)f32[i];
        if (t->dtype == DLT_F64) v = f64[i];
        if (t->dtype == DLT_BF16) v = (double)dlt_bf16_to(half[i]);
        if (t->dtype == DLT_F16) v = (double)dlt_f16_to(half[i]);
        if (isfinite(v)) continue;
        *value = v;
        return i;
    }
    return -1;
}

DltStatus dlt_snapshot_take(DltSnapshot *s, DltErr *err)
{
    for (int i = 0; i < s->n; i++) {
        const DltTensor *t = s->tensor[i];
        if (t->layout == DLT_PLAIN)
            DLT_TRY(dlt_exec_fetch(s->p->exec, t, host_copy(s, i), err));
        else
            DLT_TRY(dlt_exec_read(s->p->exec, t, host_copy(s, i), err));
    }
    return dlt_exec_sync(s->p->exec, err);
}

DltStatus dlt_snapshot_check(const DltSnapshot *s, DltErr *err)
{
    for (int i = 0; i < s->n; i++) {
        if (s->tensor[i] == s->p->m->graph->metrics) continue; /* sums over skipped steps may be */
        double value = 0;
        int64_t bad = dlt_first_nonfinite(s->tensor[i], s->entry[i].bytes, &value);
        if (bad >= 0)
            return dlt_err(err, DLT_E_NUMERIC,
                           "%s: element %lld is not finite; no checkpoint was written",
                           s->tensor[i]->name, (long long)bad);
    }
    return DLT_OK;
}

/* ---- resuming ----------------------------------------------------------------------------- */

static DltStatus does_not_fit(const DltCheckpoint *c, const DltTensor *t,
                              const DltCheckpointTensor *found, DltErr *err)
{
    char has[DLT_SHAPE_TEXT + 8], needs[DLT_SHAPE_TEXT + 8];
    describe(t->dtype, &t->shape, needs);
    if (found == NULL)
        return dlt_err(err, DLT_E_CHECKPOINT, "%s: it has no tensor %s %s, which the model needs",
                       c->path, t->name, needs);
    return dlt_err(err, DLT_E_CHECKPOINT, "%s: its tensor %s is %s, the model needs %s", c->path,
                   t->name, describe(found->dtype, &found->shape, has), needs);
}

static DltStatus left_over(const DltSnapshot *s, const DltCheckpoint *c, const bool *used,
                           DltErr *err)
{
    (void)s;
    for (int i = 0; i < c->n_tensor; i++)
        if (!used[i] && strcmp(c->tensor[i].name, scaler_name) != 0) /* the precision may change */
            return dlt_err(err, DLT_E_CHECKPOINT, "%s: its tensor %s has no place in this model",
                           c->path, c->tensor[i].name);
    return DLT_OK;
}

DltStatus dlt_snapshot_restore(DltSnapshot *s, const DltCheckpoint *c, DltErr *err)
{
    bool *used = DLT_NEW_ARRAY(s->p->s->arena, c->n_tensor, bool);
    for (int i = 0; i < s->n; i++) {
        const DltTensor *t = s->tensor[i];
        const DltCheckpointTensor *found = dlt_checkpoint_find(c, s->entry[i].name);
        bool ok = found != NULL && fits(found, t);
        if (found != NULL) used[found - c->tensor] = true;
        if (!ok && t == s->p->m->graph->metrics) {
            dlt_log("the metrics differ from the checkpoint's: their running means start anew");
            continue;
        }
        if (found == NULL && t == s->p->m->build->scaler) {
            dlt_log("the checkpoint was not made with f16: the loss scale starts anew");
            continue;
        }
        if (!ok) return does_not_fit(c, t, found, err);
    }
    DLT_TRY(left_over(s, c, used, err)); /* all is checked before the first is loaded */
    for (int i = 0; i < s->n; i++) {
        const DltCheckpointTensor *found = dlt_checkpoint_find(c, s->entry[i].name);
        if (found != NULL && fits(found, s->tensor[i]))
            DLT_TRY(dlt_exec_write(s->p->exec, s->tensor[i], found->bytes, err));
    }
    return DLT_OK;
}

/* ---- evaluation --------------------------------------------------------------------------- */

DltStatus dlt_weights_load(DltProgram *p, const DltCheckpoint *c, const char *prefix, DltErr *err)
{
    const DltGraph *g = p->m->graph;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        if (!t->saved) continue;
        const DltCheckpointTensor *found = NULL;
        if (prefix != NULL)
            found = dlt_checkpoint_find(c, dlt_arena_printf(g->arena, "%s%s", prefix, t->name));
        if (found == NULL) found = dlt_checkpoint_find(c, t->name);
        if (found == NULL || !fits(found, t)) return does_not_fit(c, t, found, err);
        DLT_TRY(dlt_exec_write(p->exec, t, found->bytes, err));
    }
    return DLT_OK;
}

/* ---- a new run from old weights ----------------------------------------------------------- */

typedef struct Names { /* a count and the first few of them */
    int n;
    char text[400];
} Names;

static void add_name(Names *list, const char *name, const char *why)
{
    enum { SHOWN = 6 };
    size_t used = strlen(list->text);
    if (list->n < SHOWN)
        snprintf(list->text + used, sizeof list->text - used, "%s%s%s", list->n > 0 ? ", " : "",
                 name, why);
    else if (list->n == SHOWN)
        snprintf(list->text + used, sizeof list->text - used, ", ...");
    list->n++;
}

static bool is_weight(const DltTensor *t)
{
    return t->saved && !is_training_state(t->name) && !starts_with(t->name, "data.");
}

DltStatus dlt_weights_init(DltProgram *p, const DltCheckpoint *c, DltErr *err)
{
    const DltGraph *g = p->m->graph;
    bool *used = DLT_NEW_ARRAY(p->s->arena, c->n_tensor, bool);
    Names missing = {0}, unused = {0};
    int matched = 0;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        if (!is_weight(t)) continue;
        const DltCheckpointTensor *found = dlt_checkpoint_find(c, t->name);
        bool ok = found != NULL && fits(found, t);
        if (found != NULL) used[found - c->tensor] = true;
        if (!ok) add_name(&missing, t->name, found != NULL ? " (another shape)" : "");
        if (!ok) continue;
        DLT_TRY(dlt_exec_write(p->exec, t, found->bytes, err));
        matched++;
    }
    for (int i = 0; i < c->n_tensor; i++) {
        const char *name = c->tensor[i].name;
        if (!used[i] && !is_training_state(name) && !starts_with(name, "data."))
            add_name(&unused, name, "");
    }
    dlt_log("init from %s: %d tensors matched, %d missing%s%s, %d unused%s%s", c->path, matched,
            missing.n, missing.n > 0 ? ": " : "", missing.text, unused.n, unused.n > 0 ? ": " : "",
            unused.text);
    if (matched > 0) return DLT_OK;
    return dlt_err(err, DLT_E_CHECKPOINT, "--init %s: none of its tensors fits this model",
                   c->path);
}

/* ---- first values that are not drawn ------------------------------------------------------ */

static DltStatus copy_tensor(DltProgram *p, const DltTensor *to, const DltTensor *from, void *host,
                             DltErr *err)
{
    DLT_TRY(dlt_exec_read(p->exec, from, host, err));
    return dlt_exec_write(p->exec, to, host, err);
}

static DltStatus start_averages(DltProgram *p, DltErr *err)
{
    static const char prefix[] = "ema/";
    const DltGraph *g = p->m->graph;
    DltStatus status = DLT_OK;
    for (int i = 0; i < g->n_tensor && status == DLT_OK; i++) {
        const DltTensor *t = g->tensor[i];
        if (!t->saved || !starts_with(t->name, prefix)) continue;
        const DltTensor *from = dlt_graph_find(g, t->name + sizeof prefix - 1);
        DLT_BUG_ON(from == NULL);
        void *host = dlt_sys_alloc((size_t)dlt_tensor_bytes(t));
        status = host != NULL ? copy_tensor(p, t, from, host, err)
                              : dlt_err(err, DLT_E_RESOURCE, "out of memory for ema");
        dlt_sys_free(host);
    }
    return status;
}

static DltStatus write_norm(DltProgram *p, const DltTensor *t, const DltFloats *v, bool inverse,
                            DltErr *err)
{
    int64_t n = dlt_shape_count(&t->shape);
    DltReal *host = DLT_NEW_ARRAY(p->s->arena, n, DltReal);
    for (int64_t i = 0; i < n; i++) {
        double x = v->v[v->n == 1 ? 0 : i];
        host[i] = (DltReal)(inverse ? 1.0 / x : x);
    }
    return dlt_exec_write(p->exec, t, host, err);
}

DltStatus dlt_weights_start(DltProgram *p, DltErr *err)
{
    const DltDataSpec *d = &p->s->spec->data;
    if (d->normalize != DLT_NORM_NONE && d->mean.n > 0) {
        DLT_TRY(write_norm(p, p->m->mean, &d->mean, false, err));
        DLT_TRY(write_norm(p, p->m->rstd, &d->std, true, err));
    }
    return start_averages(p, err);
}

/* ---- states that updates may be taken back to --------------------------------------------- */

DltStatus dlt_weights_settle(DltProgram *p, DltErr *err)
{
    const DltGraph *g = p->m->graph;
    DltStatus status = DLT_OK;
    for (int i = 0; i < g->n_node && status == DLT_OK; i++) {
        const DltNode *n = g->node[i];
        if (n->kind != DLT_OP_settle) continue;
        void *host = dlt_sys_alloc((size_t)dlt_tensor_bytes(n->in[0]));
        status = host != NULL
                     ? copy_tensor(p, n->in[1], n->in[0], host, err)
                     : dlt_err(err, DLT_E_RESOURCE, "out of memory for running statistics");
        dlt_sys_free(host);
    }
    return status;
}

DltStatus dlt_metrics_zero(DltProgram *p, DltErr *err)
{
    const DltGraph *g = p->m->graph;
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i]->kind == DLT_OP_settle && g->node[i]->in[0] == g->metrics)
            DLT_TRY(dlt_exec_zero(p->exec, g->node[i]->in[1], err));
    return dlt_exec_zero(p->exec, g->metrics, err);
}
