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

static DltStatus check_finite(const DltDataset *ds, const char *what, const float *v, int64_t first,
                              int64_t n, int64_t width, DltErr *err)
{
    for (int64_t i = 0; i < n * width; i++) {
        if (!isfinite(v[i])) return not_finite(ds, what, first + i / width, i % width, v[i], err);
    }
    return DLT_OK;
}

typedef struct Chunk {
    int64_t n; /* samples */
    int64_t *id;
    void *x, *y;
} Chunk;

static DltStatus check_chunk(const DltDataset *ds, const Chunk *c, int64_t first, DltErr *err)
{
    int64_t n = c->n < ds->n - first ? c->n : ds->n - first;
    for (int64_t i = 0; i < n; i++)
        c->id[i] = first + i;
    DLT_TRY(ds->def->read(ds, c->id, n, c->x, c->y, err));
    if (ds->x_dtype == DLT_F32)
        DLT_TRY(check_finite(ds, "sample", c->x, first, n, dlt_x_count(ds), err));
    if (ds->y_dtype == DLT_F32)
        DLT_TRY(check_finite(ds, "target", c->y, first, n, dlt_y_count(ds), err));
    return DLT_OK;
}

/* Room for n samples in one allocation: ids, then targets, then samples, each aligned. */
static DltStatus chunk_new(const DltDataset *ds, int64_t n, Chunk *c, DltErr *err)
{
    int64_t x = dlt_dataset_x_bytes(ds), y = dlt_dataset_y_bytes(ds);
    c->n = n;
    c->id = dlt_sys_alloc((size_t)(n * ((int64_t)sizeof *c->id + x + y)));
    if (c->id == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for reading %s", ds->path);
    c->y = c->id + n;
    c->x = (char *)c->y + n * y;
    return DLT_OK;
}

DltStatus dlt_samples_check(const DltDataset *ds, DltErr *err)
{
    enum { CHUNK_BYTES = 1 << 20 };
    Chunk c = {0};
    int64_t n = CHUNK_BYTES / (dlt_dataset_x_bytes(ds) + dlt_dataset_y_bytes(ds)) + 1;
    DLT_TRY(chunk_new(ds, n < ds->n ? n : ds->n, &c, err));
    DltStatus status = DLT_OK;
    for (int64_t i = 0; i < ds->n && status == DLT_OK; i += c.n)
        status = check_chunk(ds, &c, i, err);
    dlt_sys_free(c.id);
    return status;
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
    Chunk c = {0};
    DLT_TRY(chunk_new(ds, 1, &c, err));
    DltStatus status = DLT_OK;
    int64_t n = ds->n < SAMPLES ? ds->n : SAMPLES;
    for (int64_t i = 0; i < n && status == DLT_OK; i++) {
        c.id[0] = n > 1 ? (int64_t)((double)(ds->n - 1) * (double)i / (double)(n - 1)) : 0;
        status = ds->def->read(ds, c.id, 1, c.x, c.y, err);
        if (status == DLT_OK) h = dlt_hash(c.y, (size_t)y, dlt_hash(c.x, (size_t)x, h));
    }
    dlt_sys_free(c.id);
    ds->fingerprint = h;
    return status;
}
