/* Several updates at once. Where a device records its work, small networks are held up by what the
 * host does between two updates: an upload, a launch, a download. While nothing is due the updates
 * therefore run in series (exec/series.c), whose lengths fit what lies between two rows of metrics; the
 * device works on one series while the host makes the next. Bad updates leave the weights alone on the
 * device and are told when their flags arrive, a series later at most. */
#include "base/sys.h"
#include "exec/trainer.h"
#include "ops/data_ops.h"

/* Nodes in one program: recording one costs some microseconds, and in long programs the host is far
 * ahead anyway. Two series are under way, and the flags of both have a place. */
enum { MAX_NODES = 1024, MAX_LENGTH = DLT_FLAGS / 2, FED_STEP = 0, FED_TICKET = 1, N_FED };

/* What decides the next update may depend on the one before (loss limit), on data from the host, or on several micro batches: then updates run one by one. */
static bool possible(const DltTrainer *t)
{
    const DltTrainSpec *train = &t->spec->train;
    const DltExec *e = t->p->exec;
    return t->s->backend->record_begin != NULL && !t->o->eager && t->p->options.resident &&
           train->batch == train->micro && train->loss_spike <= 0 && t->guard.delay > 0 &&
           dlt_exec_pointer(e, t->p->m->step) != NULL &&
           dlt_exec_pointer(e, t->p->m->ticket) != NULL && dlt_exec_pointer(e, t->coef) != NULL;
}

/* Lengths, longest first: two neighbours that fill the updates between two rows in as few series as can
 * be, and short ones for what is left before an evaluation; 0: none. */
static void lengths(const DltTrainer *t, int size[DLT_BURST_SIZES])
{
    int64_t most = MAX_NODES / t->p->plan->n_step, rows = dlt_report_interval(t);
    if (most > MAX_LENGTH) most = MAX_LENGTH;
    if (most < 1) most = 1;
    int64_t n = (rows + most - 1) / most, length = rows / n;
    size[0] = rows % n != 0 ? (int)length + 1 : 0;
    size[1] = (int)length;
    size[2] = length > 4 ? 4 : 0;
    size[3] = length > 1 ? 1 : 0;
}

DltStatus dlt_burst_prepare(DltTrainer *t, DltErr *err)
{
    int size[DLT_BURST_SIZES];
    DltBurst *b = &t->burst;
    const DltTensor *fed[N_FED] = {[FED_STEP] = t->p->m->step, [FED_TICKET] = t->p->m->ticket};
    size_t bytes = 0;
    if (b->open) return DLT_OK;
    b->open = true;
    if (!possible(t)) return DLT_OK;
    lengths(t, size);
    for (int i = 0; i < DLT_BURST_SIZES; i++) {
        if (size[i] == 0) continue;
        DLT_TRY(dlt_series_new(t->p->exec, fed, N_FED, t->coef, size[i], &b->series[i], err));
        if (dlt_series_bytes(b->series[i]) > bytes) bytes = dlt_series_bytes(b->series[i]);
    }
    for (int i = 0; i < DLT_BURSTS; i++) {
        b->fed[i] = dlt_host_memory(t->s, bytes);
        if (b->fed[i] == NULL)
            return dlt_err(err, DLT_E_RESOURCE, "out of host memory for batches in flight");
    }
    return DLT_OK;
}

static DltStatus fill(DltTrainer *t, const DltSeries *s, char *block, DltErr *err)
{
    for (int r = 0; r < dlt_series_length(s); r++) {
        DltStepState state = dlt_step_state(t, t->at.step + r, 0, 1);
        state.batch += r;
        memcpy(block + dlt_series_offset(s, r, FED_STEP), &state, sizeof state);
        void *ticket = block + dlt_series_offset(s, r, FED_TICKET);
        DLT_TRY(dlt_feed_tickets(&t->feed, ticket, err));
    }
    return DLT_OK;
}

/* The flags of updates from t->at.step on, into their ring. */
static DltStatus watch(DltTrainer *t, DltSeries *s, DltErr *err)
{
    int n = dlt_series_length(s), at = (int)(t->at.step % DLT_FLAGS);
    int before_end = DLT_FLAGS - at < n ? DLT_FLAGS - at : n;
    for (int r = 0; r < n; r++)
        dlt_flags_await(&t->guard.flags[(at + r) % DLT_FLAGS]);
    DLT_TRY(dlt_series_fetch(s, 0, before_end, &t->guard.flags[at], err));
    if (before_end == n) return DLT_OK;
    return dlt_series_fetch(s, before_end, n - before_end, &t->guard.flags[0], err);
}

/* The series that goes next, with `quiet` updates to go until something is due: of the two long ones
 * the longer only where the shorter alone would leave a rest. */
static DltSeries *choose(const DltBurst *b, int64_t quiet)
{
    DltSeries *s = NULL;
    for (int i = 0; i < DLT_BURST_SIZES && s == NULL; i++)
        if (b->series[i] != NULL && dlt_series_length(b->series[i]) <= quiet) s = b->series[i];
    if (s == NULL || s != b->series[0]) return s;
    int64_t length = dlt_series_length(b->series[1]), n = (quiet + length) / (length + 1);
    return quiet == n * length ? b->series[1] : s;
}

DltStatus dlt_burst_run(DltTrainer *t, int64_t *n, DltErr *err)
{
    enum { LOOK_AHEAD = 256 };
    DltBurst *b = &t->burst;
    *n = 0;
    if (b->fed[0] == NULL) return DLT_OK;
    DltSeries *s = choose(b, dlt_report_quiet(t, LOOK_AHEAD));
    if (s == NULL) return DLT_OK;
    int length = dlt_series_length(s);
    char *block = b->fed[b->n_run % DLT_BURSTS];
    DLT_TRY(fill(t, s, block, err));
    DLT_TRY(dlt_series_run(s, block, err));
    DLT_TRY(watch(t, s, err));
    b->n_run++;
    t->at.step += length;
    t->at.batch_count += length;
    t->at.position += length * t->spec->train.batch;
    *n = length;
    return DLT_OK;
}
