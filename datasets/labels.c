/* Class labels are 0..C-1, and C has one origin: the config, or the training set. A set whose
 * labels are 1..10, or 1456 and 1570, is refused with the record named, not trained on (CASES.md,
 * C25). */
#include "datasets/reader.h"

/* A label that cannot be, as err has it: its record is left out where that is allowed. */
static DltStatus leave_out(const DltLabels *l, int64_t i, DltErr *err)
{
    DLT_TRY(dlt_bad_take(l->bad, i, err));
    l->v[i] = 0;
    return DLT_OK;
}

static DltStatus check_negative(const DltLabels *l, DltErr *err)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->v[i] >= 0) continue;
        (void)dlt_blob_err(l->b, err,
                           "record %lld (from 0): label %d is negative; labels must be 0..C-1",
                           (long long)i, (int)l->v[i]);
        DLT_TRY(leave_out(l, i, err));
    }
    return DLT_OK;
}

static DltStatus check_high(const DltLabels *l, int64_t classes, const char *origin, DltErr *err)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->v[i] < classes) continue;
        (void)dlt_blob_err(
            l->b, err, "record %lld (from 0): label %d is out of range 0..%lld (%lld classes, %s)",
            (long long)i, (int)l->v[i], (long long)classes - 1, (long long)classes, origin);
        DLT_TRY(leave_out(l, i, err));
    }
    return DLT_OK;
}

/* Of the records that are not left out; false when there is none. */
static bool find_range(const DltLabels *l, int32_t *lo, int32_t *hi)
{
    bool any = false;
    for (int64_t i = 0; i < l->n; i++) {
        if (dlt_bad_has(l->bad, i)) continue;
        if (!any || l->v[i] < *lo) *lo = l->v[i];
        if (!any || l->v[i] > *hi) *hi = l->v[i];
        any = true;
    }
    return any;
}

/* Without a statement every class must occur, else the numbering is in doubt. */
static DltStatus check_complete(DltArena *arena, const DltLabels *l, int32_t lo, int32_t hi,
                                DltErr *err)
{
    int64_t missing = -1;
    if (hi == 0)
        return dlt_blob_err(l->b, err, "every label is 0; if that is meant, state `classes:`");
    if (hi >= l->n) {
        missing = lo > 0 ? 0 : hi - 1;
    } else {
        char *seen = DLT_NEW_ARRAY(arena, hi + 1, char);
        for (int64_t i = 0; i < l->n; i++)
            if (!dlt_bad_has(l->bad, i)) seen[l->v[i]] = 1;
        char *hole = memchr(seen, 0, (size_t)hi + 1);
        if (hole != NULL) missing = hole - seen;
    }
    if (missing < 0) return DLT_OK;
    return dlt_blob_err(l->b, err,
                        "labels run from %d to %d but not every class occurs (%lld does not): they "
                        "must be 0..C-1; renumber them, use a CSV with class names, or state "
                        "`classes: %lld` if this is meant",
                        (int)lo, (int)hi, (long long)missing, (long long)hi + 1);
}

DltStatus dlt_labels_classes(DltArena *arena, const DltLabels *l, const DltDataset *like,
                             int64_t *classes, DltErr *err)
{
    int32_t lo = 0, hi = 0;
    if (like != NULL && l->stated > 0 && l->stated != like->classes)
        return dlt_err_at(err, DLT_E_CONFIG, l->stated_at,
                          "classes: %lld is stated here, but the training set has %lld",
                          (long long)l->stated, (long long)like->classes);
    DLT_TRY(check_negative(l, err));
    int64_t c = l->stated > 0 ? l->stated : like != NULL ? like->classes : 0;
    if (c > 0)
        DLT_TRY(check_high(l, c, l->stated > 0 ? "as stated" : "as in the training set", err));
    if (!find_range(l, &lo, &hi))
        return dlt_blob_err(l->b, err, "no record has a label that can be");
    if (c == 0) {
        DLT_TRY(check_complete(arena, l, lo, hi, err));
        c = (int64_t)hi + 1;
    }
    *classes = c;
    return DLT_OK;
}
