/* What every reader does after its own checks: agree with the training set, prove that all samples
 * can be read and are finite, and take the fingerprint that a checkpoint keeps. */
#include "datasets/reader.h"
#include "base/rng.h"
#include "base/sys.h"
#include <math.h>

static DltStatus differs(const DltDataset *ds, DltErr *err, const char *what, const char *mine,
                         const char *theirs)
{
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = ds->path},
                      "%s %s, the training set has %s", what, mine, theirs);
}

bool dlt_like_x_only(const DltDataset *like)
{
    return like != NULL && like->x_only;
}

DltStatus dlt_like_check(const DltDataset *ds, const DltDataset *like, DltErr *err)
{
    char a[DLT_SHAPE_TEXT], b[DLT_SHAPE_TEXT];
    if (like == NULL) return DLT_OK;
    if (!dlt_shape_equal(&ds->x_shape, &like->x_shape))
        return differs(ds, err, "a sample has shape", dlt_shape_text(&ds->x_shape, a),
                       dlt_shape_text(&like->x_shape, b));
    if (ds->x_dtype != like->x_dtype)
        return differs(ds, err, "samples are", dlt_dtype_name(ds->x_dtype),
                       dlt_dtype_name(like->x_dtype));
    if (!dlt_shape_equal(&ds->y_shape, &like->y_shape))
        return differs(ds, err, "a target has shape", dlt_shape_text(&ds->y_shape, a),
                       dlt_shape_text(&like->y_shape, b));
    if (ds->y_dtype != like->y_dtype)
        return differs(ds, err, "targets are", ds->y_dtype == DLT_I32 ? "classes" : "values",
                       like->y_dtype == DLT_I32 ? "classes" : "values");
    snprintf(a, sizeof a, "%lld", (long long)ds->classes);
    snprintf(b, sizeof b, "%lld", (long long)like->classes);
    if (ds->classes != like->classes) return differs(ds, err, "the number of classes is", a, b);
    return DLT_OK;
}

void dlt_like_targets(DltDataset *ds, const DltDataset *like)
{
    ds->y_shape = like->y_shape;
    ds->y_dtype = like->y_dtype;
    ds->classes = like->classes;
    ds->class_name = like->class_name;
}

void dlt_targets_copy(const DltDataset *ds, const void *all, const int64_t *id, int64_t n, void *y)
{
    int64_t bytes = dlt_dataset_y_bytes(ds);
    if (all == NULL) {
        memset(y, 0, (size_t)(n * bytes));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)y + i * bytes, (const char *)all + id[i] * bytes, (size_t)bytes);
}

static DltStatus not_finite(const DltDataset *ds, const char *what, int64_t sample, int64_t element,
                            float value, DltErr *err)
{
    const char *name =
        ds->feature_name != NULL && what[0] == 's' ? ds->feature_name[element] : NULL;
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = ds->path},
                      "record %lld (from 0): element %lld of the %s%s%s%s is %s", (long long)sample,
                      (long long)element, what, name != NULL ? " (" : "", name != NULL ? name : "",
                      name != NULL ? ")" : "", isnan(value) ? "NaN" : "infinite");
}

static DltStatus check_finite(const DltDataset *ds, const char *what, const float *v,
                              const DltSamples *c, int64_t width, DltErr *err)
{
    for (int64_t i = 0; i < c->n * width; i++) {
        if (!isfinite(v[i])) return not_finite(ds, what, c->id[i / width], i % width, v[i], err);
    }
    return DLT_OK;
}

/* Room for n samples in one allocation: ids, then targets, then samples, each aligned. */
static int64_t *room_new(const DltDataset *ds, int64_t n, void **x, void **y, DltErr *err)
{
    int64_t y_bytes = dlt_dataset_y_bytes(ds);
    int64_t bytes = n * ((int64_t)sizeof(int64_t) + dlt_dataset_x_bytes(ds) + y_bytes);
    int64_t *id = dlt_sys_alloc((size_t)bytes);
    if (id == NULL) {
        (void)dlt_err(err, DLT_E_RESOURCE, "out of memory: reading %s needs %lld bytes", ds->path,
                      (long long)bytes);
        return NULL;
    }
    *y = id + n;
    *x = (char *)*y + n * y_bytes;
    return id;
}

static DltStatus visit_from(const DltSplit *s, DltSamples *c, int64_t *id, void *x, void *y,
                            DltErr *err)
{
    for (int64_t i = 0; i < c->n; i++)
        id[i] = s->id != NULL ? s->id[c->first + i] : c->first + i;
    return s->ds->def->read(s->ds, id, c->n, x, y, err);
}

DltStatus dlt_samples_each(const DltSplit *s, DltStatus (*visit)(const DltSamples *c, DltErr *err),
                           void *ctx, DltErr *err)
{
    enum { CHUNK_BYTES = 1 << 20 };
    const DltDataset *ds = s->ds;
    int64_t room = CHUNK_BYTES / (dlt_dataset_x_bytes(ds) + dlt_dataset_y_bytes(ds)) + 1;
    if (room > s->n) room = s->n;
    void *x, *y;
    int64_t *id = room_new(ds, room, &x, &y, err);
    if (id == NULL) return DLT_E_RESOURCE;
    DltStatus status = DLT_OK;
    for (int64_t first = 0; first < s->n && status == DLT_OK; first += room) {
        int64_t n = s->n - first < room ? s->n - first : room;
        DltSamples c = {first, n, id, x, y, ctx};
        status = dlt_sys_asked_to_stop();
        if (status == DLT_OK) status = visit_from(s, &c, id, x, y, err);
        if (status == DLT_OK) status = visit(&c, err);
    }
    dlt_sys_free(id);
    return status;
}

static DltStatus check_visit(const DltSamples *c, DltErr *err)
{
    const DltDataset *ds = c->ctx;
    if (ds->x_dtype == DLT_F32) DLT_TRY(check_finite(ds, "sample", c->x, c, dlt_x_count(ds), err));
    if (ds->y_dtype == DLT_F32) DLT_TRY(check_finite(ds, "target", c->y, c, dlt_y_count(ds), err));
    return DLT_OK;
}

/* One by one, so that a bad one is told from its neighbours. */
static DltStatus check_one_by_one(DltDataset *ds, DltErr *err)
{
    for (int64_t id = 0; id < ds->n; id++) {
        DltSplit one = {ds, 1, &id};
        if (dlt_bad_has(ds->bad, id)) continue;
        DltStatus status = dlt_samples_each(&one, check_visit, ds, err);
        if (status == DLT_E_DATA) status = dlt_bad_take(ds->bad, id, err);
        DLT_TRY(status);
    }
    if (ds->bad->n < ds->n) return DLT_OK;
    return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = ds->path},
                      "every one of its %lld records is bad, the first: %s", (long long)ds->n,
                      ds->bad->list[0].why);
}

DltStatus dlt_samples_check(DltDataset *ds, DltErr *err)
{
    DltSplit all = {ds, ds->n, NULL};
    if (ds->bad != NULL && !ds->bad->rows) return check_one_by_one(ds, err);
    return dlt_samples_each(&all, check_visit, ds, err);
}

static uint64_t hash_names(const char *const *name, int64_t n, uint64_t h)
{
    for (int64_t i = 0; name != NULL && i < n; i++)
        h = dlt_hash(name[i], strlen(name[i]) + 1, h);
    return h;
}

DltStatus dlt_fingerprint(DltDataset *ds, DltErr *err)
{
    enum { SAMPLES = 64 };
    int64_t x = dlt_dataset_x_bytes(ds), y = dlt_dataset_y_bytes(ds);
    int64_t facts[] = {ds->n, ds->x_dtype, ds->y_dtype, ds->classes, ds->vocab};
    uint64_t h = dlt_hash(ds->def->name, strlen(ds->def->name), 0);
    h = dlt_hash(facts, sizeof facts, h);
    h = dlt_hash(ds->x_shape.dim, (size_t)ds->x_shape.rank * sizeof ds->x_shape.dim[0], h);
    h = dlt_hash(ds->y_shape.dim, (size_t)ds->y_shape.rank * sizeof ds->y_shape.dim[0], h);
    h = hash_names(ds->class_name, ds->classes, h);
    h = hash_names(ds->feature_name, dlt_x_count(ds), h);
    void *to_x, *to_y;
    int64_t *id = room_new(ds, 1, &to_x, &to_y, err);
    if (id == NULL) return DLT_E_RESOURCE;
    DltStatus status = DLT_OK;
    int64_t n = ds->n < SAMPLES ? ds->n : SAMPLES;
    for (int64_t i = 0; i < n && status == DLT_OK; i++) {
        *id = n > 1 ? (int64_t)((double)(ds->n - 1) * (double)i / (double)(n - 1)) : 0;
        *id = dlt_sound_sample(ds, *id);
        status = ds->def->read(ds, id, 1, to_x, to_y, err);
        if (status == DLT_OK) h = dlt_hash(to_y, (size_t)y, dlt_hash(to_x, (size_t)x, h));
    }
    dlt_sys_free(id);
    for (int64_t i = 0; ds->bad != NULL && i < ds->bad->n; i++)
        h = dlt_hash(&ds->bad->list[i].record, sizeof ds->bad->list[i].record, h);
    ds->fingerprint = h;
    return status;
}
