/* The training loop. Between updates: what is due after the last one, then a look at the signals.
 * An update: some micro batches through the batch phase, one update phase. Nothing here depends on
 * the device, the model or the optimizer; nothing is allocated once a step has run twice. */
#include "exec/trainer.h"
#include "base/log.h"
#include "base/sys.h"
#include "exec/capsule.h"

enum { WARM_UPDATES = 2 }; /* first eager, then recorded: libraries and recorders may allocate */

DltStepState dlt_step_state(const DltTrainer *t, int64_t step, int64_t micro, int64_t n_micro)
{
    return (DltStepState){.seed = t->spec->seed,
                          .update = step + 1,
                          .batch = t->at.batch_count,
                          .micro = (int32_t)micro,
                          .n_micro = (int32_t)n_micro,
                          .lr = (float)dlt_schedule_rate(&t->spec->train.schedule, step),
                          .loss_scale = 1,
                          .sample_weight = t->sample_weight};
}

static DltStatus update(DltTrainer *t, DltErr *err)
{
    int64_t n_micro = t->spec->train.batch / t->spec->train.micro;
    float limit = dlt_loss_limit(t);
    for (int64_t micro = 0; micro < n_micro; micro++) {
        int64_t n_valid = 0;
        DltStepState state = dlt_step_state(t, t->at.step, micro, n_micro);
        state.loss_limit = limit;
        DLT_TRY(dlt_feed_batch(&t->feed, &state, &n_valid, err));
        DLT_TRY(dlt_feed_run(&t->feed, err));
        t->at.batch_count++;
    }
    DLT_TRY(dlt_exec_run(t->p->exec, DLT_PHASE_UPDATE, err));
    DLT_TRY(dlt_flags_watch(t, err));
    t->at.step++;
    t->at.position += t->spec->train.batch;
    return DLT_OK;
}

/* One update, or several at once, in which an allocation is a bug, except for the first ones. Then what
 * the device has told of those before them. */
static DltStatus frozen_update(DltTrainer *t, DltErr *err)
{
    bool warm = t->at.step - t->first_step >= WARM_UPDATES, freeze = t->freezes && warm;
    int64_t n = 0;
    if (warm) DLT_TRY(dlt_burst_prepare(t, err));
    if (freeze) dlt_mem_freeze();
    DltStatus status = warm ? dlt_burst_run(t, &n, err) : DLT_OK;
    if (status == DLT_OK && n == 0) status = update(t, err);
    if (freeze) dlt_mem_thaw();
    if (status != DLT_OK) return status;
    return dlt_catch_up(t, t->at.step - (n > 0 ? n : t->guard.delay), err);
}

/* How the run was asked to stop, DLT_OK: it was not. */
static DltStatus asked_to_stop(const DltTrainer *t)
{
    DltStatus by_signal = dlt_sys_asked_to_stop();
    if (by_signal != DLT_OK) return by_signal;
    double since_s = (double)(dlt_sys_now_ns() - t->begin_ns) * 1e-9;
    bool reached = (t->o->stop_at > 0 && t->at.step >= t->o->stop_at) ||
                   (t->o->walltime_s > 0 && since_s >= t->o->walltime_s);
    return reached && t->at.step < t->spec->updates ? DLT_STOPPED : DLT_OK;
}

/* Whatever is due at this step stays due: the run that resumes here does it first. */
static DltStatus stop(DltTrainer *t, DltStatus how, DltErr *err)
{
    if (t->saved_step != t->at.step) DLT_TRY(dlt_save(t, false, err));
    DLT_TRY(dlt_saver_wait(t->saver, err));
    dlt_log("stopped at step %lld of %lld as asked; `dltrain resume` goes on",
            (long long)t->at.step, (long long)t->spec->updates);
    return how;
}

static DltStatus run(DltTrainer *t, DltErr *err)
{
    for (;;) {
        bool reported = false;
        if (t->guard.bad >= 0) DLT_TRY(dlt_rollback(t, err));
        DltStatus how = asked_to_stop(t);
        if (how != DLT_OK) DLT_TRY(dlt_catch_up(t, t->at.step, err));
        if (t->guard.bad >= 0) continue;
        if (how != DLT_OK) return stop(t, how, err);
        DLT_TRY(dlt_report(t, &reported, err));
        if (!reported) continue; /* a signal came: stop; or a bad update: roll back */
        if (t->finished) return dlt_saver_wait(t->saver, err);
        DLT_TRY(dlt_saver_look(t->saver, err));
        DLT_TRY(frozen_update(t, err));
        dlt_capsule_step(t->at.step);
        DltPlace place = {t->at.step, t->at.position, t->feed.wait_ns};
        dlt_progress_live(&t->progress, place);
    }
}

DltStatus dlt_trainer_run(DltTrainer *t, DltErr *err)
{
    DltStatus status = run(t, err);
    DltErr unused; /* why the run ended stands in err already */
    dlt_err_init(&unused);
    if (status != DLT_OK && dlt_saver_wait(t->saver, &unused) != DLT_OK)
        dlt_log("the last checkpoint could not be saved: %s", unused.report[0].text);
    bool nonfinite =
        status == DLT_E_NUMERIC && t->guard.bad >= 0 && t->guard.fault == DLT_SKIP_NONFINITE;
    if (nonfinite) dlt_replay(t, t->guard.bad, err);
    return status;
}
