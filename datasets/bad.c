/* Records that are left out: a reader reports what is wrong as it always does, and the ledger takes the
 * report over where the config allows it. Nothing else changes: a set without its bad records trains to
 * the same bits as a set that never had them. */
#include "datasets/reader.h"

/* Where the record stands, or would. */
static int64_t place(const DltBad *bad, int64_t record)
{
    int64_t lo = 0, hi = bad->n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (bad->list[mid].record < record)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool dlt_bad_has(const DltBad *bad, int64_t record)
{
    if (bad == NULL) return false;
    int64_t at = place(bad, record);
    return at < bad->n && bad->list[at].record == record;
}

static void grow(DltBad *bad)
{
    if (bad->n < bad->cap) return;
    bad->cap = bad->cap > 0 ? 2 * bad->cap : 16;
    DltBadRecord *list = DLT_NEW_ARRAY(bad->arena, bad->cap, DltBadRecord);
    if (bad->n > 0) memcpy(list, bad->list, (size_t)bad->n * sizeof *list);
    bad->list = list;
}

DltStatus dlt_bad_take(DltBad *bad, int64_t record, DltErr *err)
{
    DltReport *last = &err->report[err->n - 1];
    if (bad == NULL || last->status != DLT_E_DATA) return last->status;
    if (dlt_bad_has(bad, record)) {
        err->n--;
        return DLT_OK;
    }
    if (bad->n >= bad->limit) {
        dlt_err_note(err, DLT_NO_MARK,
                     "data.max_bad: %lld bad record%s left out already, the first of them: %s",
                     (long long)bad->n, bad->n == 1 ? " was" : "s were", bad->list[0].why);
        return DLT_E_DATA;
    }
    grow(bad);
    int64_t at = place(bad, record);
    memmove(&bad->list[at + 1], &bad->list[at], (size_t)(bad->n - at) * sizeof *bad->list);
    bad->list[at] = (DltBadRecord){record, last->at.file, dlt_arena_str(bad->arena, last->text)};
    bad->n++;
    err->n--;
    return DLT_OK;
}

static int64_t n_bad_samples(const DltDataset *ds)
{
    return ds->bad != NULL && !ds->bad->rows ? ds->bad->n : 0;
}

int64_t dlt_sound_sample(const DltDataset *ds, int64_t id)
{
    if (n_bad_samples(ds) == 0 || !dlt_bad_has(ds->bad, id)) return id;
    int64_t sound = 0;
    while (sound < ds->bad->n && ds->bad->list[sound].record == sound)
        sound++;
    return sound;
}

DltSplit dlt_split_all(DltArena *arena, const DltDataset *ds)
{
    DltSplit all = {ds, ds->n - n_bad_samples(ds), NULL};
    if (all.n == ds->n) return all;
    int64_t *id = DLT_NEW_ARRAY(arena, all.n, int64_t);
    for (int64_t i = 0, n = 0; i < ds->n; i++)
        if (!dlt_bad_has(ds->bad, i)) id[n++] = i;
    all.id = id;
    return all;
}
