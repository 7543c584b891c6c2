/* Back to the newest checkpoint after a bad update, and on with the samples behind the bad ones: the
 * state of the run becomes the checkpoint's, but for the place in the data and the number of batches
 * seen. The run stays a pure function of its config and seed. */
#include "base/log.h"
#include "exec/trainer.h"
#include <inttypes.h>

static DltStatus forget(DltTrainer *t, const DltCheckpoint *c, DltErr *err)
{
    DLT_TRY(dlt_snapshot_restore(t->snapshot, c, err));
    DLT_TRY(dlt_weights_settle(t->p, err));
    return dlt_run_folder_rewind(t->folder, c->meta.reported, err);
}

/* Strings of the checkpoint do not live long: those that go on are copied or taken from the spec. */
static void take_state(DltTrainer *t, const DltCheckpoint *c, int64_t position)
{
    DltCheckpointMeta now = t->at, was = c->meta;
    t->at.step = was.step;
    t->at.epoch = was.epoch;
    t->at.best_metric = was.best_metric != NULL ? t->spec->keep.best_metric : NULL;
    t->at.best_value = was.best_value;
    t->at.best_step = was.best_step;
    t->at.bad_evals = was.bad_evals;
    t->at.n_judged = was.n_judged;
    t->at.stop_best = was.stop_best;
    t->at.grad_norm = was.grad_norm;
    t->at.metrics = was.metrics != NULL ? dlt_arena_str(t->row_arena, was.metrics) : NULL;
    t->at.losses = was.losses != NULL ? dlt_arena_str(t->row_arena, was.losses) : NULL;
    t->at.reported = was.reported;
    t->at.loss_scale = was.loss_scale;
    t->at.good_steps = was.good_steps;
    t->at.overflows = was.overflows;
    t->at.skipped_in_row = 0;
    t->at.position = position;
    t->at.rollbacks = now.rollbacks + 1;
}

DltStatus dlt_rollback(DltTrainer *t, DltErr *err)
{
    DLT_TRY(dlt_saver_wait(t->saver, err));
    const char *newest = t->folder != NULL ? dlt_run_folder_newest(t->folder) : NULL;
    int64_t bad = t->guard.bad, after = dlt_position_of(t, bad + 1);
    if (newest == NULL)
        return dlt_diverged(t, bad, ", and there is no checkpoint to go back to", err);
    if (t->at.rollbacks >= t->spec->train.guard_limit)
        return dlt_diverged(t, bad, ", after as many rollbacks as train.guard.limit allows", err);
    DltArena *arena = dlt_arena_new();
    DltCheckpoint *c = NULL;
    if (arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltStatus status = dlt_exec_sync(t->p->exec, err);
    if (status == DLT_OK) status = dlt_checkpoint_read(arena, newest, &c, err);
    if (status == DLT_OK) status = forget(t, c, err);
    if (status == DLT_OK) {
        dlt_log("step %" PRId64 ": %s; back to step %" PRId64 " (rollback %" PRId64
                "), on with the samples behind position %" PRId64,
                bad + 1,
                t->guard.fault == DLT_SKIP_SPIKE ? "the loss jumped"
                                                 : "loss or gradient not finite",
                c->meta.step, t->at.rollbacks + 1, after);
        take_state(t, c, after);
        t->guard.bad = -1;
        t->guard.looked_at = t->at.step;
        t->saved_step = t->at.step;
        dlt_losses_read(t);
        dlt_loader_seek(t->feed.loader, after);
    }
    dlt_arena_free(arena);
    return status;
}
