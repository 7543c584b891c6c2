/* Several runs as one program. Recorded launches carry addresses, so run r of a series is recorded on
 * copies of its own of what the host tells each run and of what it asks back: the host then speaks
 * to the device once a series, and on the device nothing stands between two runs. What a run makes of its
 * data alone (the batch, cast and normalised) lies in turn in two places, so that a device with
 * branches makes the next run's while it computes on this one's. */
#include "exec/bound.h"

enum { MAX_FED = 4 };
static const size_t most_early_bytes = (size_t)64 << 20;

/* Tensors that follow from the data alone, with their views, and where they lie in either place. */
struct DltEarly {
    int n;
    const DltTensor **tensor;
    size_t *offset, bytes;
    void *place[2];
};

struct DltSeries {
    DltExec *exec;
    int n, n_fed;
    const DltTensor *fed[MAX_FED], *result;
    size_t offset[MAX_FED], stride; /* of the fed tensors in one run's block; of the blocks */
    size_t result_bytes;
    void *fed_device, *result_device; /* [n] blocks, [n] results */
    void *program;
};

static size_t aligned(const DltExec *e, size_t bytes)
{
    return (bytes + e->backend->align - 1) / e->backend->align * e->backend->align;
}

/* Every operand that is tensor t lies at `to` from now on. */
static void move_tensor(DltExec *e, const DltTensor *t, void *to)
{
    for (int s = 0; s < e->plan->n_step; s++) {
        const DltNode *n = e->plan->step[s].node;
        for (int i = 0; i < DLT_MAX_IN; i++)
            if (n->in[i] == t) e->args[s].in[i] = to;
        for (int i = 0; i < DLT_MAX_OUT; i++)
            if (n->out[i] == t) e->args[s].out[i] = to;
    }
}

static void *result_place(const DltSeries *s, int run)
{
    return (char *)s->result_device + (size_t)run * s->result_bytes;
}

/* ---- what follows from the data alone ----------------------------------------------------- */

static const DltTensor *base_of(const DltTensor *t)
{
    return t->view_of != NULL ? t->view_of : t;
}

/* early[id]: of the memory behind tensor id, and of inputs and states that no node changes. */
static void find_early(const DltExec *e, bool *early)
{
    const DltGraph *g = e->plan->graph;
    for (int i = 0; i < g->n_tensor; i++)
        early[i] = g->tensor[i]->role == DLT_INPUT || g->tensor[i]->role == DLT_STATE;
    for (int s = 0; s < e->plan->n_step; s++) {
        const DltNode *n = e->plan->step[s].node;
        for (int i = 0; i < DLT_MAX_IN; i++)
            if (n->in[i] != NULL && (n->op->mutates >> i & 1)) early[base_of(n->in[i])->id] = false;
        for (int i = 0; i < DLT_MAX_OUT; i++)
            if (n->out[i] != NULL) early[base_of(n->out[i])->id] = false;
    }
    for (int s = 0; s < e->plan->n_batch_step; s++) {
        const DltNode *n = e->plan->step[s].node;
        bool all = n->op->mutates == 0;
        for (int i = 0; i < DLT_MAX_IN && all; i++)
            all = n->in[i] == NULL || early[base_of(n->in[i])->id];
        for (int i = 0; i < DLT_MAX_OUT && all; i++)
            if (n->out[i] != NULL && base_of(n->out[i])->role == DLT_TEMP)
                early[base_of(n->out[i])->id] = true;
    }
}

static DltStatus find_places(DltExec *e, DltErr *err)
{
    const DltGraph *g = e->plan->graph;
    DltEarly *y = e->early = DLT_NEW(e->arena, DltEarly);
    bool *early = DLT_NEW_ARRAY(e->arena, g->n_tensor, bool);
    size_t *offset = DLT_NEW_ARRAY(e->arena, g->n_tensor, size_t);
    y->tensor = DLT_NEW_ARRAY(e->arena, g->n_tensor, const DltTensor *);
    y->offset = DLT_NEW_ARRAY(e->arena, g->n_tensor, size_t);
    find_early(e, early);
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i];
        early[i] = early[i] && t->role == DLT_TEMP && t->view_of == NULL && e->pointer[i] != NULL;
        offset[i] = y->bytes;
        if (early[i]) y->bytes += aligned(e, e->plan->slot[i].bytes);
    }
    if (y->bytes == 0 || 2 * y->bytes > most_early_bytes) return DLT_OK;
    for (int k = 0; k < 2; k++)
        DLT_TRY(e->backend->alloc(e->dev, y->bytes, &y->place[k], err));
    e->bytes += 2 * y->bytes;
    for (int i = 0; i < g->n_tensor; i++) {
        const DltTensor *t = g->tensor[i], *base = base_of(t);
        if (!early[base->id]) continue;
        size_t in = t == base ? 0 : (size_t)t->view_offset * dlt_dtype_bytes(t->dtype);
        y->tensor[y->n] = t;
        y->offset[y->n++] = offset[base->id] + in;
    }
    return DLT_OK;
}

/* ---- recording ---------------------------------------------------------------------------- */

/* The operands become those of a run; -1: those outside of the series. */
static void move_run(const DltSeries *s, int run)
{
    DltExec *e = s->exec;
    const DltEarly *y = e->early;
    for (int k = 0; k < y->n; k++)
        move_tensor(e, y->tensor[k],
                    run < 0 ? e->pointer[y->tensor[k]->id]
                            : (char *)y->place[run % 2] + y->offset[k]);
    for (int k = 0; k < s->n_fed; k++) {
        void *own = e->pointer[s->fed[k]->id];
        char *block = (char *)s->fed_device + (size_t)(run < 0 ? 0 : run) * s->stride;
        if (own != NULL) move_tensor(e, s->fed[k], run < 0 ? own : block + s->offset[k]);
    }
    move_tensor(e, s->result, run < 0 ? e->pointer[s->result->id] : result_place(s, run));
}

static DltStatus record(DltSeries *s, DltErr *err)
{
    DltExec *e = s->exec;
    DLT_TRY(e->backend->record_begin(e->dev, err));
    DltStatus status = DLT_OK;
    for (int r = 0; r < s->n && status == DLT_OK; r++) {
        move_run(s, r);
        status = dlt_exec_launch(e, 0, e->plan->n_step, err);
    }
    move_run(s, -1);
    return dlt_exec_end_record(e, status, &s->program, err);
}

DltStatus dlt_series_new(DltExec *e, const DltTensor *const fed[], int n_fed,
                         const DltTensor *result, int n, DltSeries **out, DltErr *err)
{
    DLT_BUG_ON(n_fed > MAX_FED || n < 1 || e->pointer[result->id] == NULL);
    DltSeries *s = DLT_NEW(e->arena, DltSeries);
    *s = (DltSeries){.exec = e,
                     .n = n,
                     .n_fed = n_fed,
                     .result = result,
                     .result_bytes = (size_t)dlt_tensor_bytes(result)};
    for (int k = 0; k < n_fed; k++) {
        s->fed[k] = fed[k];
        s->offset[k] = s->stride;
        s->stride += aligned(e, (size_t)dlt_tensor_bytes(fed[k]));
    }
    size_t fed_bytes = (size_t)n * s->stride, result_bytes = (size_t)n * s->result_bytes;
    DLT_TRY(e->backend->alloc(e->dev, fed_bytes, &s->fed_device, err));
    DLT_TRY(e->backend->alloc(e->dev, result_bytes, &s->result_device, err));
    e->bytes += fed_bytes + result_bytes;
    if (e->early == NULL) DLT_TRY(find_places(e, err));
    DLT_TRY(record(s, err));
    *out = s;
    return DLT_OK;
}

int dlt_series_length(const DltSeries *s)
{
    return s->n;
}

size_t dlt_series_bytes(const DltSeries *s)
{
    return (size_t)s->n * s->stride;
}

size_t dlt_series_offset(const DltSeries *s, int run, int k)
{
    return (size_t)run * s->stride + s->offset[k];
}

DltStatus dlt_series_run(DltSeries *s, const void *fed, DltErr *err)
{
    DltExec *e = s->exec;
    DltStream *stream = e->backend->stream(e->dev, 0);
    DLT_TRY(e->backend->upload(stream, s->fed_device, fed, dlt_series_bytes(s), err));
    return e->backend->replay(e->dev, s->program, err);
}

DltStatus dlt_series_fetch(DltSeries *s, int first, int n, void *result, DltErr *err)
{
    DltExec *e = s->exec;
    return e->backend->download(e->backend->stream(e->dev, 0), result, result_place(s, first),
                                (size_t)n * s->result_bytes, err);
}
