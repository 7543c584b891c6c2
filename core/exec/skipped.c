/* What data.on_bad: skip left out, for those who look at the run: skipped.jsonl in its folder has all of
 * it, each checkpoint a list that is cut where it gets long. */
#include "exec/session.h"
#include <jansson.h>

enum { SHOWN = 50 }; /* records of a set in a checkpoint */

/* Cells of tables may hold any bytes, which JSON may not. */
static const char *clean(DltArena *arena, const char *text)
{
    json_t *json = json_string(text);
    bool good = json != NULL;
    json_decref(json);
    if (good) return text;
    char *copy = dlt_arena_str(arena, text);
    for (char *c = copy; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80) *c = '?';
    return copy;
}

static const DltBad *left_out(const DltSpec *spec, int split)
{
    const DltSource *s = &spec->data.source[split];
    bool own = s->loaded && s->fraction == 0.0 && s->ds.bad != NULL && s->ds.bad->n > 0;
    return own ? s->ds.bad : NULL;
}

static DltStatus write_record(DltArena *arena, DltAtomic *file, int split, const DltBadRecord *r,
                              DltErr *err)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:s}", "set", dlt_split_name[split], "file",
                          clean(arena, r->file != NULL ? r->file : "-"), "record",
                          (json_int_t)r->record, "why", clean(arena, r->why));
    size_t n = json_dumpb(o, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    char *line = dlt_arena_new_bytes(arena, n + 1, 1);
    json_dumpb(o, line, n, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(o);
    line[n] = '\n';
    return dlt_atomic_write(file, line, n + 1, err);
}

DltStatus dlt_run_folder_skipped(DltRunFolder *f, const DltSpec *spec, DltErr *err)
{
    DltArena *arena = spec->arena;
    DltAtomic *file = NULL;
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltBad *bad = left_out(spec, i);
        if (bad == NULL) continue;
        const char *path = dlt_path_join(arena, dlt_run_folder_path(f), "skipped.jsonl");
        if (file == NULL) DLT_TRY(dlt_atomic_open(arena, path, &file, err));
        for (int64_t k = 0; k < bad->n; k++)
            DLT_TRY(write_record(arena, file, i, &bad->list[k], err));
    }
    return file != NULL ? dlt_atomic_commit(file, err) : DLT_OK;
}

const char *dlt_skipped_text(DltArena *arena, const DltSpec *spec)
{
    const char *text = NULL;
    for (int i = 0; i < DLT_N_SPLIT; i++) {
        const DltBad *bad = left_out(spec, i);
        int64_t n = bad == NULL ? 0 : bad->n < SHOWN ? bad->n : SHOWN;
        for (int64_t k = 0; k < n; k++)
            text = dlt_arena_printf(arena, "%s%s: %s\n", text != NULL ? text : "",
                                    dlt_split_name[i], clean(arena, bad->list[k].why));
        if (bad != NULL && bad->n > n)
            text = dlt_arena_printf(arena, "%s%s: and %lld more\n", text, dlt_split_name[i],
                                    (long long)(bad->n - n));
    }
    return text;
}
