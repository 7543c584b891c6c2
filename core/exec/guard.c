/* Losses and gradients that are not finite. The update kernels leave the weights alone when
 * coef[SKIP] is set, so nothing is lost until the flag is looked at: at once where that is free,
 * else two updates later. Under `stop` the run ends and its newest checkpoint is from before; under
 * `skip` the update is counted, and too many in a row end the run. With a loss scale (f16) an
 * overflow first halves the scale, as torch.amp.GradScaler does. */
#include "base/log.h"
#include "exec/trainer.h"
#include <inttypes.h>
#include <math.h>

enum { SCALE_PATIENCE = 2000 };
static const uint32_t pending = UINT32_MAX; /* no value that the kernel writes */

DltStatus dlt_flags_open(DltTrainer *t, DltErr *err)
{
    bool at_once =
        t->s->backend->record_begin == NULL || t->spec->train.precision == DLT_PRECISION_F16;
    t->guard = (DltGuard){.flags = dlt_host_memory(t->s, DLT_RING * sizeof *t->guard.flags),
                          .looked_at = t->at.step,
                          .delay = at_once ? 0 : DLT_AHEAD};
    return t->guard.flags != NULL ? DLT_OK : dlt_err(err, DLT_E_RESOURCE, "out of host memory");
}

DltStatus dlt_flags_watch(DltTrainer *t, DltErr *err)
{
    DltFlags *flags = &t->guard.flags[t->at.step % DLT_RING];
    flags->word[DLT_COEF_SKIP] = pending;
    return dlt_exec_fetch(t->p->exec, t->coef, flags, err);
}

/* Sample ids of the update's batch, as many as fit. */
static const char *samples_text(const DltTrainer *t, int64_t step, char *text, size_t size)
{
    const DltSpec *spec = t->spec;
    const DltSplit *split = &spec->data.source[DLT_TRAIN].split;
    int64_t n = spec->train.batch, first = t->at.position - (t->at.step - step) * n;
    int64_t used = spec->data.drop_last ? split->n / n * n : split->n;
    size_t at = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < n && at + 32 < size; i++) {
        int64_t sample = 0, epoch = 0, p = first + i;
        dlt_order_at(split, spec->seed, p / used * split->n + p % used, &sample, &epoch);
        at += (size_t)snprintf(text + at, size - at, "%s%" PRId64, i > 0 ? " " : "", sample);
        if (at + 32 >= size && i + 1 < n) snprintf(text + at, size - at, " ...");
    }
    return text;
}

static DltStatus diverged(const DltTrainer *t, int64_t step, double norm, DltErr *err)
{
    char samples[400];
    const char *newest = t->folder != NULL ? dlt_run_folder_newest(t->folder) : NULL;
    const DltTrainSpec *train = &t->spec->train;
    bool limited = train->on_nonfinite == DLT_GUARD_SKIP;
    dlt_err(err, DLT_E_NUMERIC,
            "step %" PRId64 ": the loss or its gradient is not finite (gradient norm %g)%s; the "
            "batch held the samples %s",
            step + 1, norm, limited ? ", too often in a row" : "",
            samples_text(t, step, samples, sizeof samples));
    dlt_err_note(err, DLT_NO_MARK,
                 "%s%s%s; a lower train.optimizer.lr, train.clip, or "
                 "train.guard.nonfinite: skip may help",
                 newest != NULL ? "the newest checkpoint, " : "no checkpoint had been written yet",
                 newest != NULL ? newest : "", newest != NULL ? ", is from before" : "");
    return DLT_E_NUMERIC;
}

/* True when the scale could go down: then an overflow is no divergence. */
static bool lower_scale(DltTrainer *t)
{
    t->at.good_steps = 0;
    if (t->spec->train.precision != DLT_PRECISION_F16 || t->at.loss_scale <= 1) return false;
    t->at.loss_scale /= 2;
    return true;
}

static void count_good(DltTrainer *t)
{
    t->at.skipped_in_row = 0;
    if (t->spec->train.precision != DLT_PRECISION_F16) return;
    if (++t->at.good_steps < SCALE_PATIENCE) return;
    t->at.good_steps = 0;
    t->at.loss_scale *= 2;
}

/* Looks at the flags of update number `step`, counted from 0. */
static DltStatus look_at(DltTrainer *t, int64_t step, DltErr *err)
{
    const DltFlags *flags = &t->guard.flags[step % DLT_RING];
    DLT_TRY(dlt_wait_for(t->p->exec, &flags->word[DLT_COEF_SKIP], pending, err));
    double norm = (double)flags->coef[DLT_COEF_NORM];
    t->at.grad_norm = norm;
    if (flags->coef[DLT_COEF_SKIP] == 0) {
        count_good(t);
        return DLT_OK;
    }
    if (lower_scale(t)) return DLT_OK;
    t->at.nonfinite_skipped++;
    bool skip = t->spec->train.on_nonfinite == DLT_GUARD_SKIP;
    if (!skip || ++t->at.skipped_in_row > t->spec->train.guard_limit)
        return diverged(t, step, norm, err);
    dlt_log("step %" PRId64 ": loss or gradient not finite; the update was left out (%" PRId64
            " so far)",
            step + 1, t->at.nonfinite_skipped);
    return DLT_OK;
}

DltStatus dlt_flags_check(DltTrainer *t, int64_t step, DltErr *err)
{
    while (t->guard.looked_at < step)
        DLT_TRY(look_at(t, t->guard.looked_at++, err));
    return DLT_OK;
}
