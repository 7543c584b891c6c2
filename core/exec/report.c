/* What is due after an update: a row of metrics, an evaluation, the decision whether the run is over,
 * a checkpoint. All figures are computed before anything is changed, so that a signal during an
 * evaluation leaves the run as it was. Where a row is all that is due and the device works by itself, the
 * row's figures are sent for, and the row is written when they are there, behind the start of later
 * updates: the device never stands still for it. */
#include "base/log.h"
#include "base/sys.h"
#include "exec/trainer.h"
#include <jansson.h>
#include <math.h>

/* ---- what is due -------------------------------------------------------------------------- */

static double epoch_samples(const DltTrainer *t)
{
    const DltSpec *spec = t->spec;
    int64_t n = spec->data.source[DLT_TRAIN].split.n, batch = spec->train.batch;
    return (double)(spec->data.drop_last ? n / batch * batch : n);
}

/* True when update number `step` (1 for the first) reached or passed a multiple of the span; times are
 * not looked at. */
static bool reached(const DltTrainer *t, DltSpan span, int64_t step)
{
    double length = span.unit == DLT_U_EPOCHS    ? span.n * epoch_samples(t)
                    : span.unit == DLT_U_SAMPLES ? span.n
                                                 : 0;
    if (length > 0) {
        double after = (double)dlt_position_of(t, step);
        double before = after - (double)t->spec->train.batch;
        return floor(after / length) > floor(before / length);
    }
    int64_t every = dlt_spec_span_updates(t->spec, span);
    return every > 0 && step % every == 0;
}

static bool is_time(DltSpan span, int64_t since_ns)
{
    return span.unit == DLT_U_SECONDS && (double)(dlt_sys_now_ns() - since_ns) * 1e-9 >= span.n;
}

static bool save_due(const DltTrainer *t, int64_t step)
{
    for (int i = 0; i < 2; i++) {
        DltSpan span = t->spec->checkpoint_every[i];
        if (span.unit != DLT_U_NONE && (reached(t, span, step) || is_time(span, t->saved_ns)))
            return true;
    }
    return t->spec->keep.every > 0 && step % t->spec->keep.every == 0;
}

int64_t dlt_report_interval(const DltTrainer *t)
{
    int64_t chosen = t->spec->updates / 100 > 1 ? t->spec->updates / 100 : 1;
    return t->spec->log_every > 0 ? t->spec->log_every : chosen;
}

static bool log_due(const DltTrainer *t, int64_t step)
{
    return step % dlt_report_interval(t) == 0;
}

int64_t dlt_report_quiet(const DltTrainer *t, int64_t most)
{
    int64_t n = 0, left = t->spec->updates - t->at.step;
    if (t->o->stop_at > 0 && t->o->stop_at - t->at.step < left) left = t->o->stop_at - t->at.step;
    while (n < most && n < left) {
        int64_t step = t->at.step + ++n;
        if (log_due(t, step) || save_due(t, step) || reached(t, t->spec->eval_every, step)) break;
    }
    return n;
}

/* ---- the row ------------------------------------------------------------------------------ */

enum { CELL_STEP, CELL_EPOCH, CELL_TIME, CELL_SAMPLES, CELL_LR, N_FIRST };
enum { CELL_NORM, CELL_SPEED, CELL_WAIT, CELL_MEMORY, CELL_SCALE, CELL_SKIPPED, N_LAST };
/* The columns behind the figures; the last two only with a loss scale. */
static int n_last(const DltTrainer *t)
{
    return t->scaler != NULL ? N_LAST : CELL_SCALE;
}

static double *figures(DltTrainer *t, int split)
{
    return &t->cell[N_FIRST + split * t->spec->n_metric];
}

static double *last_cells(DltTrainer *t)
{
    return &t->cell[N_FIRST + DLT_N_SPLIT * t->spec->n_metric];
}

/* The figures of the last row before this process began. */
static void recall_row(DltTrainer *t)
{
    json_t *row = t->at.metrics != NULL ? json_loads(t->at.metrics, 0, NULL) : NULL;
    for (int i = 0; i < t->n_column; i++) {
        const json_t *v = json_object_get(row, t->column[i]);
        t->cell[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
    json_decref(row);
}

DltStatus dlt_report_open(DltTrainer *t, DltErr *err)
{
    static const char *const first[] = {"step", "epoch", "time_s", "samples", "lr"};
    static const char *const last[] = {"grad_norm",    "samples_per_s", "data_wait",
                                       "memory_bytes", "loss_scale",    "skipped"};
    const DltSpec *spec = t->spec;
    t->column =
        DLT_NEW_ARRAY(t->arena, N_FIRST + N_LAST + DLT_N_SPLIT * spec->n_metric, const char *);
    t->cell = DLT_NEW_ARRAY(t->arena, N_FIRST + N_LAST + DLT_N_SPLIT * spec->n_metric, double);
    for (int i = 0; i < N_FIRST; i++)
        t->column[t->n_column++] = first[i];
    for (int s = 0; s < DLT_N_SPLIT; s++)
        for (int i = 0; i < spec->n_metric; i++)
            t->column[t->n_column++] =
                dlt_arena_printf(t->arena, "%s.%s", dlt_split_name[s], spec->metric[i]->name);
    for (int i = 0; i < n_last(t); i++)
        t->column[t->n_column++] = last[i];
    recall_row(t);
    t->row_arena = dlt_arena_new();
    if (t->row_arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    t->judged = DLT_NEW_ARRAY(t->arena, spec->n_expect, bool);
    size_t bytes = (size_t)dlt_tensor_bytes(t->p->m->graph->metrics);
    t->acc = dlt_host_memory(t->s, bytes);
    t->late.acc = dlt_host_memory(t->s, bytes);
    t->late.scale = dlt_host_memory(t->s, DLT_SCALER * sizeof(DltReal));
    t->late.arrived = dlt_host_memory(t->s, sizeof(DltFlags));
    bool all = t->acc != NULL && t->late.acc != NULL && t->late.scale != NULL;
    if (all && t->late.arrived != NULL) return DLT_OK;
    return dlt_err(err, DLT_E_RESOURCE, "out of host memory");
}

static DltPlace here(const DltTrainer *t)
{
    return (DltPlace){t->at.step, t->at.position, t->feed.wait_ns};
}

static void start_row(DltTrainer *t, DltPlace at)
{
    int64_t last = at.step > 0 ? at.step - 1 : 0;
    for (int i = 0; i < t->n_column; i++)
        t->cell[i] = (double)NAN;
    t->cell[CELL_STEP] = (double)at.step;
    t->cell[CELL_EPOCH] = (double)at.position / epoch_samples(t);
    t->cell[CELL_TIME] = t->time_before_s + (double)(dlt_sys_now_ns() - t->start_ns) * 1e-9;
    t->cell[CELL_SAMPLES] = (double)at.position;
    t->cell[CELL_LR] = dlt_schedule_rate(&t->spec->train.schedule, last);
    double *cell = last_cells(t);
    cell[CELL_NORM] = t->at.grad_norm;
    cell[CELL_SPEED] = t->progress.samples_per_s;
    cell[CELL_WAIT] = t->progress.data_wait;
    cell[CELL_MEMORY] = (double)t->progress.memory_bytes;
    if (t->scaler == NULL) return;
    cell[CELL_SCALE] = t->at.loss_scale;
    cell[CELL_SKIPPED] = (double)t->at.overflows;
}

/* A cell of the present row by its name, NaN when it was not measured. */
static double cell_of(const DltTrainer *t, const char *name)
{
    for (int i = 0; i < t->n_column && name != NULL; i++)
        if (strcmp(t->column[i], name) == 0) return t->cell[i];
    return (double)NAN;
}

/* Cells [from, to) as they are written: splits that were not measured are left out. */
static DltMetricRow row_of(DltTrainer *t, int from, int to)
{
    const char **name = DLT_NEW_ARRAY(t->row_arena, t->n_column, const char *);
    double *value = DLT_NEW_ARRAY(t->row_arena, t->n_column, double);
    DltMetricRow row = {.name = name, .value = value};
    for (int i = from; i < to; i++) {
        bool train = strncmp(t->column[i], "train.", 6) == 0;
        bool split = i >= N_FIRST && i < t->n_column - n_last(t);
        if (split && !train && !isfinite(t->cell[i])) continue;
        name[row.n] = t->column[i];
        value[row.n++] = t->cell[i];
    }
    return row;
}

static DltStatus write_row(DltTrainer *t, DltPlace at, DltErr *err)
{
    DltArena *old = t->row_arena, *fresh = dlt_arena_new();
    if (fresh == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    t->row_arena = fresh;
    DltMetricRow row = row_of(t, 0, t->n_column);
    DltMetricRow shown = row_of(t, N_FIRST, t->n_column - n_last(t));
    t->at.metrics = dlt_metric_row_json(t->row_arena, &row);
    t->at.losses = NULL; /* lay in the old arena; saving makes it anew */
    t->at.reported = at.step;
    dlt_arena_free(old);
    if (t->folder != NULL) DLT_TRY(dlt_run_folder_metrics(t->folder, &row, err));
    dlt_progress_row(&t->progress, at, &shown);
    return DLT_OK;
}

/* The loss scale is the device's; what is known of it here is for rows and checkpoints. */
static void take_scale(DltTrainer *t, const DltReal s[DLT_SCALER])
{
    t->at.loss_scale = (double)s[DLT_SCALER_SCALE];
    t->at.good_steps = (int64_t)s[DLT_SCALER_GOOD];
    t->at.overflows = (int64_t)s[DLT_SCALER_SKIPPED];
}

static DltStatus read_scale(DltTrainer *t, DltErr *err)
{
    DltReal s[DLT_SCALER];
    if (t->scaler == NULL) return DLT_OK;
    DLT_TRY(dlt_exec_read(t->p->exec, t->scaler, s, err));
    take_scale(t, s);
    return DLT_OK;
}

/* ---- late rows ---------------------------------------------------------------------------- */

/* Nothing is decided by this row, and there is somewhere to go meanwhile. */
static bool may_be_late(const DltTrainer *t)
{
    return t->guard.delay > 0 && !t->o->eager && t->spec->n_expect == 0;
}

/* Sends for the row's figures; behind them the sums begin anew. */
static DltStatus send_for_row(DltTrainer *t, DltErr *err)
{
    DltExec *e = t->p->exec;
    DltLateRow *r = &t->late;
    if (r->open) DLT_TRY(dlt_catch_up(t, r->place.step, err));
    if (t->guard.bad >= 0) return DLT_OK;
    r->place = here(t);
    DLT_TRY(dlt_exec_fetch(e, t->p->m->graph->metrics, r->acc, err));
    if (t->scaler != NULL) DLT_TRY(dlt_exec_fetch(e, t->scaler, r->scale, err));
    dlt_flags_await(r->arrived);
    DLT_TRY(dlt_exec_fetch(e, t->coef, r->arrived, err));
    r->open = true;
    return dlt_metrics_zero(t->p, err);
}

static DltStatus finish_late_row(DltTrainer *t, DltErr *err)
{
    const DltLateRow *r = &t->late;
    DLT_TRY(dlt_flags_wait(t, r->arrived, err));
    if (t->scaler != NULL) take_scale(t, r->scale);
    dlt_progress_measure(&t->progress, r->place);
    start_row(t, r->place);
    dlt_metric_values(t->p, r->acc, figures(t, DLT_TRAIN));
    DLT_TRY(write_row(t, r->place, err));
    dlt_progress_resume(&t->progress, r->place);
    return DLT_OK;
}

/* A row behind a bad update is not written: the run ends or goes back. */
DltStatus dlt_catch_up(DltTrainer *t, int64_t step, DltErr *err)
{
    if (t->late.open && t->late.place.step <= step) {
        DLT_TRY(dlt_flags_check(t, t->late.place.step, err));
        if (t->guard.bad < 0) DLT_TRY(finish_late_row(t, err));
        t->late.open = false;
    }
    DLT_TRY(dlt_flags_check(t, step, err));
    if (t->guard.bad >= 0) t->late.open = false;
    return DLT_OK;
}

/* ---- figures and decisions ---------------------------------------------------------------- */

static DltStatus measure_train(DltTrainer *t, DltErr *err)
{
    DLT_TRY(dlt_exec_read(t->p->exec, t->p->m->graph->metrics, t->acc, err));
    dlt_metric_values(t->p, t->acc, figures(t, DLT_TRAIN));
    return DLT_OK;
}

static DltStatus measure(DltTrainer *t, int split, bool *done, DltErr *err)
{
    DltEvaluator *e = split >= 0 ? t->evaluator[split] : NULL;
    bool interrupted = false;
    if (e == NULL) return DLT_OK;
    DLT_TRY(dlt_evaluator_run(e, &interrupted, err));
    if (interrupted) *done = false;
    memcpy(figures(t, split), e->value, (size_t)t->spec->n_metric * sizeof *e->value);
    return DLT_OK;
}

static bool is_better(double value, double best, bool max, bool have_best)
{
    if (!isfinite(value)) return false;
    return !have_best || (max ? value > best : value < best);
}

/* Patience after this row: evaluations without improvement; -1: this row does not judge. */
static int64_t patience_used(const DltTrainer *t, double value)
{
    const DltTrainSpec *train = &t->spec->train;
    if (train->stop_patience <= 0 || isnan(value)) return -1;
    bool better = is_better(value, t->at.stop_best, train->stop_max, t->at.n_judged > 0);
    return better ? 0 : t->at.bad_evals + 1;
}

static bool over(const DltTrainer *t, int64_t patience)
{
    if (t->at.step >= t->spec->updates) return true;
    return t->spec->train.stop_patience > 0 && patience >= t->spec->train.stop_patience;
}

/* Takes the row's figures over into the state of the run; true when they are the best so far. */
static bool decide(DltTrainer *t, double stop_value, int64_t patience)
{
    const DltKeep *keep = &t->spec->keep;
    if (patience >= 0) {
        if (patience == 0) t->at.stop_best = stop_value;
        t->at.bad_evals = patience;
        t->at.n_judged++;
    }
    double value = cell_of(t, keep->best_metric);
    if (!is_better(value, t->at.best_value, keep->best_max, t->at.best_metric != NULL))
        return false;
    t->at.best_metric = keep->best_metric;
    t->at.best_value = value;
    t->at.best_step = t->at.step;
    return true;
}

/* A row at this step, with what is to be evaluated. */
static DltStatus report_row(DltTrainer *t, bool evaluate, bool *best, bool *done, DltErr *err)
{
    int split = t->spec->eval_split;
    DLT_TRY(read_scale(t, err));
    start_row(t, here(t));
    DLT_TRY(measure_train(t, err));
    if (evaluate) DLT_TRY(measure(t, split, done, err));
    if (!*done) return DLT_OK;
    double stop_value = evaluate ? cell_of(t, t->spec->train.stop_metric) : (double)NAN;
    int64_t patience = patience_used(t, stop_value);
    bool finished = over(t, patience >= 0 ? patience : t->at.bad_evals);
    if (finished && split != DLT_TEST) DLT_TRY(measure(t, DLT_TEST, done, err));
    if (!*done) return DLT_OK;
    *best = decide(t, stop_value, patience);
    t->finished = finished;
    DLT_TRY(dlt_metrics_zero(t->p, err));
    return write_row(t, here(t), err);
}

/* Each expectation is judged once, by the first figure at or behind its step. */
static DltStatus check_expectations(DltTrainer *t, DltErr *err)
{
    const DltSpec *spec = t->spec;
    DltStatus status = DLT_OK;
    for (int i = 0; i < spec->n_expect; i++) {
        const DltExpect *e = &spec->expect[i];
        double value = cell_of(t, e->key);
        bool due = !t->judged[i] && (t->at.step >= e->by || t->finished);
        if (!due || isnan(value)) continue;
        t->judged[i] = true;
        if (dlt_expect_holds(e, value)) continue;
        status = dlt_err_at(err, DLT_E_NUMERIC, e->at, "expect.%s: %s, but it is %.6g at step %lld",
                            e->key, e->text, value, (long long)t->at.step);
    }
    return status;
}

DltStatus dlt_report(DltTrainer *t, bool *done, DltErr *err)
{
    bool best = false, fresh = t->at.reported < t->at.step;
    bool end = t->at.step >= t->spec->updates;
    *done = true;
    if (!fresh) t->finished = over(t, t->at.bad_evals);
    if (t->at.step == 0) return DLT_OK;
    bool evaluate = fresh && (end || reached(t, t->spec->eval_every, t->at.step));
    bool row = fresh && (evaluate || log_due(t, t->at.step)),
         save = t->saved_step != t->at.step && save_due(t, t->at.step);
    if (!row && !save) return DLT_OK;
    bool late = !evaluate && !save && may_be_late(t);
    DLT_TRY(late ? send_for_row(t, err) : dlt_catch_up(t, t->at.step, err));
    *done = t->guard.bad < 0;
    if (!*done || late) return DLT_OK;
    DltPlace place = here(t);
    dlt_progress_measure(&t->progress, place);
    if (row) DLT_TRY(report_row(t, evaluate, &best, done, err));
    if (!*done) return DLT_OK;
    if (evaluate) DLT_TRY(dlt_sampler_run(t->sampler, err));
    if (save || best || t->finished) DLT_TRY(dlt_save(t, best, err));
    dlt_progress_resume(&t->progress, place);
    return row ? check_expectations(t, err) : DLT_OK;
}

/* ---- saving ------------------------------------------------------------------------------- */

DltStatus dlt_save(DltTrainer *t, bool best, DltErr *err)
{
    t->saved_step = t->at.step;
    if (t->folder == NULL) return DLT_OK;
    DLT_TRY(read_scale(t, err));
    t->at.epoch = (double)t->at.position / epoch_samples(t);
    t->at.losses = dlt_losses_text(t, t->row_arena);
    t->at.train_time_s = t->time_before_s + (double)(dlt_sys_now_ns() - t->start_ns) * 1e-9;
    DLT_TRY(dlt_saver_start(t->saver, &t->at, best, err));
    t->saved_ns = dlt_sys_now_ns();
    return DLT_OK;
}
