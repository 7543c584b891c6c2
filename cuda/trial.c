/* The stop watch on two ways to run a node, and the choice between them. */
#include "cuda/trial.h"
#include "cuda/tune.h"

enum { N_OPERAND = DLT_MAX_IN + DLT_MAX_OUT + 1 }; /* and scratch */

typedef struct Chosen {
    DltCudaLaunch launch;
    const void *state;
} Chosen;

typedef struct Trial {
    DltCall call;
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    DltCudaLaunch launch;
    DltErr err;
} Trial;

static bool run_trial(void *ctx)
{
    Trial *t = ctx;
    return t->launch(&t->call, &t->err) == DLT_OK;
}

static DltTuneBuffer buffer_of(const DltTensor *t)
{
    if (!t) return (DltTuneBuffer){0, DLT_F32, NULL};
    size_t bytes = (size_t)dlt_shape_count(&t->shape) * dlt_dtype_bytes(t->dtype);
    return (DltTuneBuffer){bytes, t->dtype, NULL};
}

/* 1 where the second is faster; 0 when that is not known. */
static int faster(const DltNode *n, DltDevice *dev, const DltCudaWay way[2], const DltPrep prep[2])
{
    DltTuneBuffer b[N_OPERAND];
    double us[2] = {0, 0};
    Trial *t = DLT_NEW(dev->arena, Trial);
    dlt_err_init(&t->err);
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++)
        b[i] = buffer_of(i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN]);
    size_t work = prep[0].work_bytes > prep[1].work_bytes ? prep[0].work_bytes : prep[1].work_bytes;
    b[N_OPERAND - 1] = (DltTuneBuffer){work + 1, DLT_U8, NULL};
    bool ready = dlt_tune_buffers(dev, b, N_OPERAND, &t->err) == DLT_OK;
    for (int i = 0; i < DLT_MAX_IN; i++)
        t->in[i] = b[i].ptr;
    for (int i = 0; i < DLT_MAX_OUT; i++)
        t->out[i] = b[DLT_MAX_IN + i].ptr;
    for (int i = 0; i < 2; i++) {
        t->call = (DltCall){n, t->in, t->out, b[N_OPERAND - 1].ptr, prep[i].state, &dev->lane[0]};
        t->launch = way[i].launch;
        ready = ready && dlt_tune_time(dev, run_trial, t, &us[i]);
    }
    dlt_tune_buffers_free(dev, b, N_OPERAND);
    return ready && us[1] < us[0];
}

DltStatus dlt_cuda_two_prepare(const DltNode *n, DltDevice *dev, DltPrep *prep,
                               const DltCudaWay way[2], const char *key, DltErr *err)
{
    DltPrep each[2] = {{.arena = prep->arena}, {.arena = prep->arena}};
    for (int i = 0; i < 2; i++)
        if (way[i].prepare) DLT_TRY(way[i].prepare(n, dev, &each[i], err));
    const char *known = dlt_tune_find(dev, key);
    if (!known) {
        known = faster(n, dev, way, each) ? "second" : "first";
        if (!dlt_tune_put(dev, key, known)) known = dlt_tune_find(dev, key);
    }
    int i = strcmp(known, "second") == 0;
    Chosen *c = DLT_NEW(prep->arena, Chosen);
    *c = (Chosen){way[i].launch, each[i].state};
    prep->state = c;
    prep->work_bytes = each[i].work_bytes;
    return DLT_OK;
}

DltStatus dlt_cuda_two_launch(const DltCall *c, DltErr *err)
{
    const Chosen *way = c->state;
    DltCall own = *c;
    own.state = way->state;
    return way->launch(&own, err);
}
