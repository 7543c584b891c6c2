/* Checkpoints beside the steps: the training thread copies the state (the snapshot) and goes on, one
 * thread of ours checks and writes the copy. One save is under way at most; whoever wants the next
 * one, or must know that the last one is on disk, waits. A failed save ends the run at the next look. */
#include "base/log.h"
#include "base/sys.h"
#include "exec/trainer.h"

struct DltSaver {
    DltRunFolder *folder;
    const DltKeep *keep;
    DltSnapshot *snapshot;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, stopping; /* under the lock */
    bool best;
    DltCheckpoint c;
    DltArena *text; /* strings of c.meta that do not live as long as the run */
    DltStatus status;
    DltErr err; /* of the first save that failed */
};

static DltStatus write_now(DltSaver *s, DltErr *err)
{
    DLT_TRY(dlt_snapshot_check(s->snapshot, err));
    return dlt_run_folder_save(s->folder, &s->c, s->keep, s->best, err);
}

static void *work(void *ctx)
{
    DltSaver *s = ctx;
    dlt_mem_beside();
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->busy && !s->stopping)
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->busy) break;
        pthread_mutex_unlock(&s->lock);
        DltStatus status = write_now(s, &s->err);
        pthread_mutex_lock(&s->lock);
        s->status = status;
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void close_hook(void *ctx)
{
    DltSaver *s = ctx;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->started) pthread_join(s->thread, NULL);
    s->started = false;
    dlt_arena_free(s->text);
    s->text = NULL;
}

DltStatus dlt_saver_open(DltTrainer *t, DltErr *err)
{
    if (t->folder == NULL) return DLT_OK;
    DLT_TRY(dlt_snapshot_reserve(t->snapshot, err));
    DltSaver *s = DLT_NEW(t->arena, DltSaver);
    s->folder = t->folder;
    s->keep = &t->spec->keep;
    s->snapshot = t->snapshot;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    dlt_arena_on_free(t->arena, close_hook, s);
    s->started = dlt_sys_thread(&s->thread, work, s);
    if (!s->started) return dlt_err(err, DLT_E_RESOURCE, "no thread to write checkpoints with");
    t->saver = s;
    return DLT_OK;
}

/* The reports of a failed save, once. */
static DltStatus outcome(DltSaver *s, DltErr *err)
{
    DltStatus status = s->status;
    for (int i = 0; i < s->err.n; i++)
        (void)dlt_err_at(err, s->err.report[i].status, s->err.report[i].at, "%s",
                         s->err.report[i].text);
    dlt_err_init(&s->err);
    s->status = DLT_OK;
    return status;
}

DltStatus dlt_saver_wait(DltSaver *s, DltErr *err)
{
    if (s == NULL) return DLT_OK;
    pthread_mutex_lock(&s->lock);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    DltStatus status = outcome(s, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

DltStatus dlt_saver_look(DltSaver *s, DltErr *err)
{
    if (s == NULL) return DLT_OK;
    pthread_mutex_lock(&s->lock);
    DltStatus status = s->busy ? DLT_OK : outcome(s, err);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static const char *copy(DltArena *arena, const char *text)
{
    return text != NULL ? dlt_arena_str(arena, text) : NULL;
}

DltStatus dlt_saver_start(DltSaver *s, const DltCheckpointMeta *meta, bool best, DltErr *err)
{
    DLT_TRY(dlt_saver_wait(s, err));
    DLT_TRY(dlt_snapshot_take(s->snapshot, err));
    dlt_arena_free(s->text);
    s->text = dlt_arena_new();
    if (s->text == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    s->c = (DltCheckpoint){.meta = *meta, .n_tensor = s->snapshot->n, .tensor = s->snapshot->entry};
    s->c.meta.metrics = copy(s->text, meta->metrics);
    s->c.meta.losses = copy(s->text, meta->losses);
    pthread_mutex_lock(&s->lock);
    s->best = best;
    s->busy = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return DLT_OK;
}
