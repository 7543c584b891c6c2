/* Predictions of a checkpoint for raw samples, batch by batch, the last one padded. */
#include "base/half.h"
#include "exec/session.h"

typedef struct Predictor {
    DltProgram *p;
    int32_t *ticket;
    char *x;    /* one batch of raw samples */
    void *host; /* one batch of outputs as the graph has them */
    int64_t x_bytes, n_out;
} Predictor;

static DltStatus open_predictor(DltProgram *p, Predictor *r, DltErr *err)
{
    int64_t batch = p->options.batch;
    *r = (Predictor){.p = p,
                     .x_bytes = dlt_dataset_x_bytes(&dlt_program_source(p)->ds),
                     .n_out = dlt_shape_count(&p->m->out->shape) / batch};
    r->ticket = dlt_host_memory(p->s, (size_t)batch * DLT_TICKET_INTS * sizeof *r->ticket);
    r->x = dlt_host_memory(p->s, (size_t)(batch * r->x_bytes));
    r->host = dlt_host_memory(p->s, (size_t)dlt_tensor_bytes(p->m->out));
    if (r->ticket == NULL || r->x == NULL || r->host == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of host memory for predictions");
    for (int64_t i = 0; i < batch; i++) {
        int32_t *t = r->ticket + i * DLT_TICKET_INTS;
        t[DLT_TICKET_ROW] = t[DLT_TICKET_SAMPLE] = (int32_t)i;
        t[DLT_TICKET_VALID] = 1;
    }
    return DLT_OK;
}

static float element(const Predictor *r, int64_t i)
{
    DltDtype dtype = r->p->m->out->dtype;
    if (dtype == DLT_BF16) return dlt_bf16_to(((const uint16_t *)r->host)[i]);
    if (dtype == DLT_F16) return dlt_f16_to(((const uint16_t *)r->host)[i]);
    return (float)((const DltReal *)r->host)[i];
}

static DltStatus predict_batch(Predictor *r, const char *x, int64_t n, float *out, DltErr *err)
{
    DltProgram *p = r->p;
    DltStepState state = {.update = 1, .n_micro = 1, .loss_scale = 1, .sample_weight = 1};
    memcpy(r->x, x, (size_t)(n * r->x_bytes));
    DLT_TRY(dlt_exec_write(p->exec, p->m->step, &state, err));
    DLT_TRY(dlt_exec_write(p->exec, p->m->ticket, r->ticket, err));
    DLT_TRY(dlt_exec_write(p->exec, p->m->data_x, r->x, err));
    DLT_TRY(dlt_exec_run(p->exec, DLT_PHASE_BATCH, err));
    DLT_TRY(dlt_exec_read(p->exec, p->m->out, r->host, err));
    for (int64_t i = 0; i < n * r->n_out; i++)
        out[i] = element(r, i);
    return DLT_OK;
}

DltStatus dlt_predict(DltArena *arena, DltSpec *spec, const DltCheckpoint *ckpt, DltPrediction *q,
                      const DltRunOptions *o, DltErr *err)
{
    DltSession *s = NULL;
    DltProgram *p = NULL;
    Predictor r;
    if (q->n < 1) return dlt_err(err, DLT_E_DATA, "there is no sample to predict");
    DLT_TRY(
        dlt_session_open(arena, spec, o, ckpt->meta.choices, &s, err)); /* settles micro: auto */
    DltModelOptions options = {.split = -1,
                               .batch = q->n < spec->train.micro ? q->n : spec->train.micro};
    DLT_TRY(dlt_program_plan(s, &options, &p, err));
    DLT_TRY(dlt_programs_fit(&p, 1, err));
    DLT_TRY(dlt_program_bind(p, NULL, NULL, err));
    DLT_TRY(dlt_weights_load(p, ckpt, spec->eval_ema ? "ema/" : NULL, err));
    DLT_TRY(open_predictor(p, &r, err));
    q->n_out = r.n_out;
    q->out = DLT_NEW_ARRAY(arena, q->n * r.n_out, float);
    for (int64_t i = 0; i < q->n; i += options.batch) {
        int64_t rows = q->n - i < options.batch ? q->n - i : options.batch;
        const char *x = (const char *)q->x + i * r.x_bytes;
        DLT_TRY(predict_batch(&r, x, rows, q->out + i * r.n_out, err));
    }
    return DLT_OK;
}
