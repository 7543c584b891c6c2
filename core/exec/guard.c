/* Bad updates: a loss or gradient that is not finite, or a loss far above the last ones. The update
 * kernels leave the weights alone when coef[SKIP] is set, so nothing is lost until the flag is looked
 * at: at once where that is free, else two updates later. What then happens is train.guard's choice:
 * the run ends and its newest checkpoint is from before; or the update stays left out and is counted;
 * or the run goes back (rollback.c). An overflow under f16's loss scale is no bad update: the device
 * leaves it out, lowers the scale by itself and counts it (ops/update_ops.h). */
#include "base/log.h"
#include "exec/trainer.h"
#include <inttypes.h>
#include <math.h>

static const uint32_t pending = UINT32_MAX; /* no value that the kernel writes */

DltStatus dlt_flags_open(DltTrainer *t, DltErr *err)
{
    bool at_once = t->s->backend->record_begin == NULL;
    t->guard = (DltGuard){.flags = dlt_host_memory(t->s, DLT_FLAGS * sizeof *t->guard.flags),
                          .looked_at = t->at.step,
                          .delay = at_once ? 0 : DLT_AHEAD,
                          .bad = -1};
    if (t->guard.flags == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of host memory");
    dlt_losses_read(t);
    return DLT_OK;
}

void dlt_flags_await(DltFlags *flags)
{
    flags->word[DLT_COEF_SKIP] = pending;
}

DltStatus dlt_flags_wait(DltTrainer *t, const DltFlags *flags, DltErr *err)
{
    return dlt_wait_for(t->p->exec, &flags->word[DLT_COEF_SKIP], pending, err);
}

DltStatus dlt_flags_watch(DltTrainer *t, DltErr *err)
{
    DltFlags *flags = &t->guard.flags[t->at.step % DLT_FLAGS];
    dlt_flags_await(flags);
    return dlt_exec_fetch(t->p->exec, t->coef, flags, err);
}

/* ---- what a loss is compared with --------------------------------------------------------- */

static DltLoss *loss_at(DltTrainer *t, int64_t i)
{
    return &t->guard.loss[i % DLT_LOSSES];
}

static void add_loss(DltTrainer *t, int64_t step, float loss)
{
    if (t->spec->train.loss_spike > 0) *loss_at(t, t->guard.n_loss++) = (DltLoss){step, loss};
}

/* The last DLT_AHEAD losses may not be known yet, so they never count: every device then has the same
 * limit, at once and after a resume. */
float dlt_loss_limit(const DltTrainer *t)
{
    const DltTrainSpec *train = &t->spec->train;
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = t->guard.n_loss - 1; i >= 0 && i >= t->guard.n_loss - DLT_LOSSES; i--) {
        const DltLoss *loss = &t->guard.loss[i % DLT_LOSSES];
        if (loss->step >= t->at.step - DLT_AHEAD) continue;
        sum += (double)loss->value;
        if (++n == train->spike_window) break;
    }
    return train->loss_spike > 0 && n == train->spike_window
               ? (float)(train->loss_spike * sum / (double)n)
               : 0;
}

const char *dlt_losses_text(const DltTrainer *t, DltArena *arena)
{
    enum { ENTRY = 48 };
    if (t->spec->train.loss_spike <= 0) return NULL;
    int64_t n = t->guard.n_loss < DLT_LOSSES ? t->guard.n_loss : DLT_LOSSES;
    size_t size = (size_t)n * ENTRY + 1, at = 0;
    char *text = dlt_arena_new_bytes(arena, size, 1);
    for (int64_t i = t->guard.n_loss - n; i < t->guard.n_loss; i++) {
        const DltLoss *loss = &t->guard.loss[i % DLT_LOSSES];
        at += (size_t)snprintf(text + at, size - at, "%" PRId64 " %a ", loss->step,
                               (double)loss->value);
    }
    return text;
}

void dlt_losses_read(DltTrainer *t)
{
    t->guard.n_loss = 0;
    for (const char *at = t->at.losses; at != NULL && *at != '\0';) {
        char *end = NULL;
        int64_t step = strtoll(at, &end, 10);
        float value = strtof(end, &end);
        if (end == at) break;
        add_loss(t, step, value);
        at = end + strspn(end, " ");
    }
}

/* ---- what is told ------------------------------------------------------------------------- */

/* Sample ids of the update's batch, as many as fit. */
static const char *samples_text(const DltTrainer *t, int64_t step, char *text, size_t size)
{
    int64_t n = t->spec->train.batch, first = dlt_position_of(t, step);
    size_t at = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < n && at + 32 < size; i++) {
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i > 0 ? " " : "",
                               dlt_sample_at(t, first + i));
        if (at + 32 >= size && i + 1 < n) snprintf(text + at, size - at, " ...");
    }
    return text;
}

int64_t dlt_position_of(const DltTrainer *t, int64_t step)
{
    return t->at.position - (t->at.step - step) * t->spec->train.batch;
}

int64_t dlt_sample_at(const DltTrainer *t, int64_t position)
{
    const DltSpec *spec = t->spec;
    const DltSplit *split = &spec->data.source[DLT_TRAIN].split;
    int64_t n = spec->train.batch, used = spec->data.drop_last ? split->n / n * n : split->n;
    int64_t sample = 0, epoch = 0;
    dlt_order_at(split, spec->seed, position / used * split->n + position % used, &sample, &epoch);
    return sample;
}

/* What is wrong with an update, in words. */
static const char *fault_text(const DltFlags *flags, char text[160])
{
    if ((int)flags->coef[DLT_COEF_SKIP] == DLT_SKIP_SPIKE)
        snprintf(text, 160, "the loss jumped to %g (train.guard.loss_spike)",
                 (double)flags->coef[DLT_COEF_LOSS]);
    else
        snprintf(text, 160, "the loss or its gradient is not finite (loss %g, gradient norm %g)",
                 (double)flags->coef[DLT_COEF_LOSS], (double)flags->coef[DLT_COEF_NORM]);
    return text;
}

DltStatus dlt_diverged(const DltTrainer *t, int64_t step, const char *more, DltErr *err)
{
    char samples[400], fault[160];
    DLT_TRY(dlt_saver_wait(t->saver, err));
    const char *newest = t->folder != NULL ? dlt_run_folder_newest(t->folder) : NULL;
    dlt_err(err, DLT_E_NUMERIC, "step %" PRId64 ": %s%s; the batch held the samples %s", step + 1,
            fault_text(&t->guard.flags[step % DLT_FLAGS], fault), more,
            samples_text(t, step, samples, sizeof samples));
    dlt_err_note(err, DLT_NO_MARK,
                 "%s%s%s; a lower train.optimizer.lr, train.clip, or "
                 "train.guard.nonfinite: skip may help",
                 newest != NULL ? "the newest checkpoint, " : "no checkpoint had been written yet",
                 newest != NULL ? newest : "", newest != NULL ? ", is from before" : "");
    return DLT_E_NUMERIC;
}

/* ---- what is done ------------------------------------------------------------------------- */

static DltStatus leave_out(DltTrainer *t, int64_t step, DltErr *err)
{
    char samples[400], fault[160];
    if (++t->at.skipped_in_row > t->spec->train.guard_limit)
        return dlt_diverged(t, step, ", too often in a row", err);
    dlt_log("step %" PRId64 ": %s; the update was left out (%" PRId64
            " so far); the batch held the samples %s",
            step + 1, fault_text(&t->guard.flags[step % DLT_FLAGS], fault), t->at.nonfinite_skipped,
            samples_text(t, step, samples, sizeof samples));
    return DLT_OK;
}

/* Looks at the flags of update number `step`, counted from 0. */
static DltStatus look_at(DltTrainer *t, int64_t step, DltErr *err)
{
    const DltFlags *flags = &t->guard.flags[step % DLT_FLAGS];
    DLT_TRY(dlt_flags_wait(t, flags, err));
    int fault = (int)flags->coef[DLT_COEF_SKIP], policy = t->spec->train.on_bad;
    if (fault == DLT_SKIP_OVERFLOW) return DLT_OK; /* rows tell the last norm that there was */
    t->at.grad_norm = (double)flags->coef[DLT_COEF_NORM];
    if (fault == DLT_SKIP_NONE) {
        add_loss(t, step, flags->coef[DLT_COEF_LOSS]);
        t->at.skipped_in_row = 0;
        return DLT_OK;
    }
    t->at.nonfinite_skipped++;
    t->guard.fault = fault;
    if (policy == DLT_GUARD_SKIP && t->at.skipped_in_row < t->spec->train.guard_limit)
        return leave_out(t, step, err);
    t->guard.bad = step;
    if (policy == DLT_GUARD_SKIP) return leave_out(t, step, err);
    return policy == DLT_GUARD_STOP ? dlt_diverged(t, step, "", err) : DLT_OK;
}

DltStatus dlt_flags_check(DltTrainer *t, int64_t step, DltErr *err)
{
    while (t->guard.looked_at < step && t->guard.bad < 0)
        DLT_TRY(look_at(t, t->guard.looked_at++, err));
    return DLT_OK;
}
