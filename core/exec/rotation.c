/* Which checkpoints of a run lie in its folder. last.bin is always the newest; step-N.bin are kept by
 * rule; best.bin is the best. Files are ordered by the step stored in them, and only those that this
 * run wrote are ever removed. */
#include "base/log.h"
#include "base/sys.h"
#include "exec/folder.h"
#include <errno.h>

static void add_file(DltRunFolder *f, const char *path, int64_t step)
{
    for (int i = 0; i < f->n_file; i++)
        if (strcmp(f->file[i].path, path) == 0) {
            f->file[i].step = step;
            return;
        }
    if (f->n_file == f->cap_file) {
        int cap = f->cap_file > 0 ? 2 * f->cap_file : 16;
        DltStepFile *bigger = DLT_NEW_ARRAY(f->saves, cap, DltStepFile);
        if (f->n_file > 0) memcpy(bigger, f->file, (size_t)f->n_file * sizeof *bigger);
        f->file = bigger;
        f->cap_file = cap;
    }
    f->file[f->n_file++] = (DltStepFile){path, step};
}

/* "step-" digits ".bin" */
static bool is_step_name(const char *name)
{
    if (strncmp(name, "step-", 5) != 0) return false;
    size_t digits = strspn(name + 5, "0123456789");
    return digits > 0 && strcmp(name + 5 + digits, ".bin") == 0;
}

typedef struct Scan {
    DltRunFolder *f;
    const DltCheckpointMeta *of;
} Scan;

/* What cannot be read is not this run's business. */
static void adopt_file(void *ctx, const char *name)
{
    Scan *s = ctx;
    DltErr unused;
    dlt_err_init(&unused);
    DltArena *arena = is_step_name(name) ? dlt_arena_new() : NULL;
    if (arena == NULL) return;
    const char *path = dlt_path_join(s->f->saves, s->f->path, name);
    DltCheckpoint *c = NULL;
    bool ours = dlt_checkpoint_read_header(arena, path, &c, &unused) == DLT_OK &&
                c->meta.run == s->of->run && c->meta.step <= s->of->step;
    if (ours) add_file(s->f, path, c->meta.step);
    dlt_arena_free(arena);
}

DltStatus dlt_run_folder_adopt(DltRunFolder *f, const DltCheckpoint *c, DltErr *err)
{
    Scan s = {.f = f, .of = &c->meta};
    f->newest = c->path;
    if (dlt_sys_list(f->path, adopt_file, &s)) return DLT_OK;
    return dlt_folder_error(f, "list", f->path, err);
}

static bool stays_for_ever(const DltKeep *keep, int64_t step)
{
    return keep->every > 0 && step % keep->every == 0;
}

/* Index of the oldest file that may go, -1: none. */
static int oldest(const DltRunFolder *f, const DltKeep *keep, int64_t *n_may_go)
{
    int best = -1;
    *n_may_go = 0;
    for (int i = 0; i < f->n_file; i++) {
        if (stays_for_ever(keep, f->file[i].step)) continue;
        ++*n_may_go;
        if (best < 0 || f->file[i].step < f->file[best].step) best = i;
    }
    return best;
}

static DltStatus prune(DltRunFolder *f, const DltKeep *keep, DltErr *err)
{
    int64_t n = 0;
    for (int i = oldest(f, keep, &n); n > keep->last; i = oldest(f, keep, &n)) {
        if (dlt_sys_unlink(f->file[i].path) != 0 && errno != ENOENT)
            return dlt_folder_error(f, "remove the old checkpoint", f->file[i].path, err);
        f->file[i] = f->file[--f->n_file];
    }
    return DLT_OK;
}

/* best.bin, step-N.bin, last.bin: what comes last is the newest for whoever looks. */
DltStatus dlt_run_folder_save(DltRunFolder *f, const DltCheckpoint *c, const DltKeep *keep,
                              bool best, DltErr *err)
{
    int64_t step = c->meta.step;
    const char *more[2];
    int n = 0;
    const char *last = dlt_path_join(f->saves, f->path, "last.bin"), *numbered = NULL;
    if (best) more[n++] = dlt_path_join(f->saves, f->path, "best.bin");
    if (keep->last > 0 || stays_for_ever(keep, step))
        more[n++] = numbered =
            dlt_arena_printf(f->saves, "%s/step-%lld.bin", f->path, (long long)step);
    DLT_TRY(dlt_metrics_sync(f, err));
    DLT_TRY(dlt_checkpoint_write_all(last, more, n, c, err));
    if (numbered != NULL) add_file(f, numbered, step);
    f->newest = last;
    dlt_log_debug("saved %s at step %lld", f->newest, (long long)step);
    return prune(f, keep, err);
}

const char *dlt_run_folder_newest(const DltRunFolder *f)
{
    return f->newest;
}
