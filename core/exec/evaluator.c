/* One pass over a split with the metrics kept on the device; every sample counts once, the padding
 * of the last batch weighs nothing. */
#include "base/log.h"
#include "base/sys.h"
#include "exec/session.h"

DltStatus dlt_evaluator_plan(DltSession *s, int split, DltEvaluator **out, DltErr *err)
{
    int64_t n = s->spec->data.source[split].split.n, micro = s->spec->train.micro;
    DltModelOptions o = {.split = split,
                         .batch = n > 0 && n < micro ? n : micro,
                         .resident = s->spec->data.resident};
    DltEvaluator *e = DLT_NEW(s->arena, DltEvaluator);
    DLT_TRY(dlt_program_plan(s, &o, &e->p, err));
    e->value = DLT_NEW_ARRAY(s->arena, s->spec->n_metric, double);
    *out = e;
    return DLT_OK;
}

DltStatus dlt_evaluator_open(DltEvaluator *e, DltErr *err)
{
    size_t bytes = (size_t)dlt_tensor_bytes(e->p->m->graph->metrics);
    e->acc = dlt_host_memory(e->p->s, bytes);
    if (e->acc == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of host memory for metrics");
    return dlt_feed_open(e->p, false, 0, &e->feed, err);
}

void dlt_metric_values(const DltProgram *p, const double *acc, double *value)
{
    const DltSpec *spec = p->s->spec;
    int64_t n_out = dlt_dim(p->m->out, -1);
    for (int i = 0; i < spec->n_metric; i++) {
        value[i] = spec->metric[i]->value(acc + p->m->metric_acc[i]->view_offset, n_out);
        if (spec->metric[i]->per_byte) value[i] /= dlt_program_source(p)->bytes_per_token;
    }
}

/* An evaluation has counters of its own; nothing of training depends on them. */
static DltStepState state_of(const DltProgram *p, int64_t i)
{
    return (DltStepState){.seed = p->s->spec->seed,
                          .update = 1,
                          .batch = i,
                          .n_micro = 1,
                          .loss_scale = 1,
                          .sample_weight = (double)p->options.batch};
}

DltStatus dlt_evaluator_run(DltEvaluator *e, bool *interrupted, DltErr *err)
{
    DltTensor *acc = e->p->m->graph->metrics;
    int before = dlt_sys_signal_seen();
    dlt_loader_seek(e->feed.loader, 0);
    DLT_TRY(dlt_exec_zero(e->p->exec, acc, err));
    e->n_sample = 0;
    *interrupted = false;
    for (int64_t i = 0;; i++) {
        int64_t n = 0;
        DltStepState state = state_of(e->p, i);
        DLT_TRY(dlt_feed_batch(&e->feed, &state, &n, err));
        if (n == 0) break;
        DLT_TRY(dlt_feed_run(&e->feed, err));
        e->n_sample += n;
        *interrupted = dlt_sys_signal_seen() != before;
        if (*interrupted) return dlt_exec_sync(e->p->exec, err);
    }
    DLT_TRY(dlt_exec_read(e->p->exec, acc, e->acc, err));
    dlt_metric_values(e->p, e->acc, e->value);
    return DLT_OK;
}

static void log_lines(const char *text)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        dlt_log("%.*s", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

void dlt_evaluator_tables(const DltEvaluator *e)
{
    enum { TABLE_BYTES = 1 << 16 };
    const DltSpec *spec = e->p->s->spec;
    const char *const *names = spec->data.source[DLT_TRAIN].ds.class_name;
    for (int i = 0; i < spec->n_metric; i++) {
        if (spec->metric[i]->text == NULL) continue;
        DltArena *arena = dlt_arena_new();
        char *text = arena != NULL ? dlt_arena_new_bytes(arena, TABLE_BYTES, 1) : NULL;
        FILE *out = text != NULL ? fmemopen(text, TABLE_BYTES - 1, "w") : NULL;
        if (out != NULL) {
            spec->metric[i]->text(e->acc + e->p->m->metric_acc[i]->view_offset,
                                  dlt_dim(e->p->m->out, -1), names, out);
            if (fclose(out) == 0) log_lines(text);
        }
        dlt_arena_free(arena);
    }
}
