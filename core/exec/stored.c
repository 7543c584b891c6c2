/* What a checkpoint keeps of the data, so that its model can be built where the data are not: the
 * description of the training set as JSON text, and the tokenizer. */
#include "exec/session.h"
#include <jansson.h>

static json_t *dims_json(const DltShape *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->rank; i++)
        json_array_append_new(list, json_integer(s->dim[i]));
    return list;
}

char *dlt_stored_write(DltArena *arena, const DltDataset *ds)
{
    json_t *json = json_object();
    int failed = json == NULL;
    failed |= json_object_set_new(json, "samples", json_integer(ds->n));
    failed |= json_object_set_new(json, "x", dims_json(&ds->x_shape));
    failed |= json_object_set_new(json, "x_dtype", json_string(dlt_dtype_name(ds->x_dtype)));
    failed |= json_object_set_new(json, "x_scale", json_real((double)ds->x_scale));
    failed |= json_object_set_new(json, "channel_axis", json_integer(ds->channel_axis));
    failed |= json_object_set_new(json, "y", dims_json(&ds->y_shape));
    failed |= json_object_set_new(json, "y_dtype", json_string(dlt_dtype_name(ds->y_dtype)));
    failed |= json_object_set_new(json, "classes", json_integer(ds->classes));
    failed |= json_object_set_new(json, "vocab", json_integer(ds->vocab));
    failed |= json_object_set_new(json, "n_shift", json_integer(ds->n_shift));
    size_t n = json_dumpb(json, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    char *text = dlt_arena_new_bytes(arena, n + 1, 1);
    json_dumpb(json, text, n, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(json);
    return failed ? NULL : text;
}

static bool take_dims(json_t *list, DltShape *s)
{
    int64_t count = 1;
    s->rank = (int)json_array_size(list);
    if (!json_is_array(list) || json_array_size(list) > DLT_MAX_RANK) return false;
    for (int i = 0; i < s->rank; i++) {
        json_t *d = json_array_get(list, (size_t)i);
        s->dim[i] = json_is_integer(d) ? json_integer_value(d) : 0;
        if (s->dim[i] < 1 || __builtin_mul_overflow(count, s->dim[i], &count) || count > INT32_MAX)
            return false;
    }
    return true;
}

static bool take_dtype(json_t *name, DltDtype *out)
{
    static const DltDtype known[] = {DLT_U8, DLT_F32, DLT_I32};
    const char *text = json_string_value(name);
    for (size_t i = 0; text != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, dlt_dtype_name(known[i])) != 0) continue;
        *out = known[i];
        return true;
    }
    return false;
}

static bool take_count(json_t *json, const char *key, int64_t lo, int64_t *v)
{
    json_t *item = json_object_get(json, key);
    *v = json_is_integer(item) ? json_integer_value(item) : -2;
    return *v >= lo && *v <= (int64_t)1 << 52;
}

static bool take_all(json_t *json, DltDataset *ds)
{
    int64_t axis = -1;
    ds->x_scale = (float)json_number_value(json_object_get(json, "x_scale"));
    bool good = take_count(json, "samples", 1, &ds->n) &&
                take_dims(json_object_get(json, "x"), &ds->x_shape) &&
                take_dtype(json_object_get(json, "x_dtype"), &ds->x_dtype) &&
                take_count(json, "channel_axis", -1, &axis) &&
                take_dims(json_object_get(json, "y"), &ds->y_shape) &&
                take_dtype(json_object_get(json, "y_dtype"), &ds->y_dtype) &&
                take_count(json, "classes", 0, &ds->classes) &&
                take_count(json, "vocab", 0, &ds->vocab) &&
                take_count(json, "n_shift", 0, &ds->n_shift) && axis < DLT_MAX_RANK;
    ds->channel_axis = (int)axis;
    return good;
}

static DltStatus read_train(DltArena *arena, const DltCheckpoint *c, const DltDataset **train,
                            DltErr *err)
{
    DltDataset *ds = DLT_NEW(arena, DltDataset);
    if (c->meta.data == NULL)
        return dlt_err(err, DLT_E_CHECKPOINT,
                       "%s: an older dltrain wrote it, without a description of its data", c->path);
    json_t *json = json_loads(c->meta.data, JSON_REJECT_DUPLICATES, NULL);
    bool good = json_is_object(json) && take_all(json, ds);
    json_decref(json);
    if (!good)
        return dlt_err(err, DLT_E_CHECKPOINT,
                       "%s: damaged checkpoint: its description of the data is impossible",
                       c->path);
    ds->path = c->path;
    ds->class_name = c->meta.class_name;
    *train = ds;
    return DLT_OK;
}

DltStatus dlt_stored_read(DltArena *arena, const DltCheckpoint *c, bool without_data,
                          DltStored **out, DltErr *err)
{
    DltStored *s = DLT_NEW(arena, DltStored);
    *s = (DltStored){.name = c->meta.config_path,
                     .text = c->meta.config_text,
                     .folder = c->meta.config_folder,
                     .tokenizer = c->meta.tokenizer};
    *out = s;
    return without_data ? read_train(arena, c, &s->train, err) : DLT_OK;
}
