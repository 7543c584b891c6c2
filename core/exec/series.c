/* Several runs as one program. Recorded launches carry addresses, so run r of a series is recorded on
 * copies of its own of what the host tells each run and of what it asks back: the host then speaks
 * to the device once a series, and on the device nothing stands between two runs. */
#include "exec/bound.h"

enum { MAX_FED = 4 };

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

/* The operands become those of a run; -1: those outside of the series. */
static void move_run(const DltSeries *s, int run)
{
    DltExec *e = s->exec;
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
