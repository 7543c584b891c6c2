/* The bad update once more, node by node, to find where it began: the first tensor that holds
 * something not finite, the layer that made it and the sample it belongs to. The weights are the
 * ones it met: a bad update changes nothing (where flags come late, good ones behind it may have). */
#include "base/sys.h"
#include "exec/trainer.h"
#include <inttypes.h>

typedef struct Replay {
    DltTrainer *t;
    int64_t micro; /* under way */
    void *host;    /* as large as the largest tensor */
    DltErr *err;
    DltStatus status;
    const DltNode *node; /* NULL: nothing found yet */
    const DltTensor *tensor;
    int64_t at; /* element */
    double value;
} Replay;

/* Reads a tensor as it lies, in whatever layout. */
static DltStatus look(Replay *r, const DltNode *n, const DltTensor *t)
{
    const DltSession *s = r->t->s;
    const void *device = dlt_exec_pointer(r->t->p->exec, t);
    if (device == NULL || r->node != NULL) return DLT_OK;
    DLT_TRY(s->backend->download(s->backend->stream(s->dev, 0), r->host, device,
                                 (size_t)dlt_tensor_bytes(t), r->err));
    DLT_TRY(s->backend->sync(s->dev, r->err));
    r->at = dlt_first_nonfinite(t, r->host, &r->value);
    if (r->at < 0) return DLT_OK;
    r->node = n;
    r->tensor = t;
    return DLT_OK;
}

static bool each_node(void *ctx, const DltNode *n)
{
    Replay *r = ctx;
    for (int i = 0; i < DLT_MAX_OUT && r->status == DLT_OK; i++)
        if (n->out[i] != NULL) r->status = look(r, n, n->out[i]);
    for (int i = 0; i < DLT_MAX_IN && r->status == DLT_OK; i++)
        if (n->in[i] != NULL && n->op->mutates >> i & 1) r->status = look(r, n, n->in[i]);
    return r->status == DLT_OK && r->node == NULL && n->kind != DLT_OP_grad_scale;
}

/* The sample an element of a tensor with one row (or several) a sample belongs to, -1: none. */
static int64_t sample_of(const Replay *r, int64_t step)
{
    int64_t batch = r->t->p->options.batch, count = dlt_shape_count(&r->tensor->shape);
    bool rows = r->tensor->role == DLT_TEMP && r->tensor->shape.rank > 0 &&
                r->tensor->shape.dim[0] % batch == 0;
    if (!rows) return -1;
    int64_t row = r->at / (count / batch);
    return dlt_sample_at(r->t, dlt_position_of(r->t, step) + r->micro * batch + row);
}

static void tell(const Replay *r, int64_t step)
{
    char shape[DLT_SHAPE_TEXT], sample[40] = "";
    int64_t id = r->node != NULL ? sample_of(r, step) : -1;
    if (id >= 0) snprintf(sample, sizeof sample, ", sample %" PRId64, id);
    if (r->node == NULL) {
        dlt_err_note(r->err, DLT_NO_MARK,
                     "replayed node by node the update was finite: later ones had changed weights");
        return;
    }
    bool data = r->node->kind == DLT_OP_fetch_x || r->node->kind == DLT_OP_fetch_y;
    dlt_err_note(r->err, r->node->at,
                 "replayed node by node: the first value that is not finite is %g, element %" PRId64
                 " of %s %s, made by %s of %s%s%s",
                 r->value, r->at, r->tensor->name, dlt_shape_text(&r->tensor->shape, shape),
                 r->node->op->name,
                 r->node->name != NULL && r->node->name[0] != '\0' ? r->node->name : "the step",
                 sample, data ? ": it is in the data" : "");
}

static size_t largest_tensor(const DltGraph *g)
{
    int64_t bytes = 0;
    for (int i = 0; i < g->n_tensor; i++)
        if (dlt_tensor_bytes(g->tensor[i]) > bytes) bytes = dlt_tensor_bytes(g->tensor[i]);
    return (size_t)bytes;
}

static DltStatus run_again(Replay *r, int64_t step)
{
    DltTrainer *t = r->t;
    int64_t n_micro = t->spec->train.batch / t->spec->train.micro;
    dlt_loader_seek(t->feed.loader, dlt_position_of(t, step));
    for (; r->micro < n_micro && r->node == NULL; r->micro += r->node == NULL) {
        int64_t n_valid = 0, before = (t->at.step - step) * n_micro;
        DltStepState state = dlt_step_state(t, step, r->micro, n_micro);
        state.batch = t->at.batch_count - before + r->micro;
        DLT_TRY(dlt_feed_batch(&t->feed, &state, &n_valid, r->err));
        DLT_TRY(dlt_exec_watch(t->p->exec, DLT_PHASE_BATCH, each_node, r, r->err));
        DLT_TRY(r->status);
    }
    if (r->node == NULL)
        DLT_TRY(dlt_exec_watch(t->p->exec, DLT_PHASE_UPDATE, each_node, r, r->err));
    return r->status;
}

void dlt_replay(DltTrainer *t, int64_t step, DltErr *err)
{
    DltErr lost; /* why the replay failed is not why the run ended */
    dlt_err_init(&lost);
    Replay r = {.t = t, .err = &lost, .host = dlt_sys_alloc(largest_tensor(t->p->m->graph))};
    if (r.host == NULL) return;
    DltStatus status = dlt_exec_sync(t->p->exec, &lost);
    if (status == DLT_OK) status = run_again(&r, step);
    r.err = err;
    if (status == DLT_OK) tell(&r, step);
    dlt_sys_free(r.host);
}
