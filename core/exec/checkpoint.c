/* Checkpoints: the run's facts as strings in the container's metadata (one table row each), and the
 * tensors behind them. Everything is checked before the file's bytes are read into memory; then the
 * checksum of each tensor. */
#include "exec/checkpoint.h"
#include "base/sys.h"
#include "exec/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>

/* ---- metadata ----------------------------------------------------------------------------- */

typedef enum MetaType { META_STR, META_I64, META_U64, META_F64, N_META_TYPE } MetaType;
typedef struct MetaRow {
    const char *key;
    MetaType type;
    bool optional; /* NULL strings are left out; what a file lacks stays 0 */
    size_t offset;
} MetaRow;
#define ROW(type, member)                                                                          \
    {                                                                                              \
        "dltrain." #member, type, false, offsetof(DltCheckpointMeta, member)                       \
    }
#define OPTIONAL(type, member)                                                                     \
    {                                                                                              \
        "dltrain." #member, type, true, offsetof(DltCheckpointMeta, member)                        \
    }
static const MetaRow rows[] = {
    ROW(META_STR, program),
    ROW(META_STR, config_text),
    ROW(META_STR, config_path),
    ROW(META_STR, config_folder),
    ROW(META_STR, resolved),
    ROW(META_I64, step),
    ROW(META_I64, position),
    ROW(META_F64, epoch),
    ROW(META_U64, seed),
    ROW(META_I64, batch_count),
    ROW(META_U64, data_fingerprint[0]),
    ROW(META_U64, data_fingerprint[1]),
    ROW(META_U64, data_fingerprint[2]),
    ROW(META_I64, n_class),
    OPTIONAL(META_STR, best_metric),
    ROW(META_F64, best_value),
    ROW(META_I64, best_step),
    ROW(META_I64, bad_evals),
    ROW(META_I64, n_judged),
    ROW(META_F64, stop_best),
    ROW(META_F64, grad_norm),
    ROW(META_F64, train_time_s),
    OPTIONAL(META_STR, metrics),
    ROW(META_I64, reported),
    ROW(META_I64, nonfinite_skipped),
    ROW(META_I64, skipped_in_row),
    ROW(META_F64, loss_scale),
    ROW(META_I64, good_steps),
    OPTIONAL(META_I64, overflows),
    OPTIONAL(META_I64, rollbacks),
    OPTIONAL(META_STR, losses),
    OPTIONAL(META_STR, lineage),
    ROW(META_U64, run),
    ROW(META_U64, plan_hash),
    OPTIONAL(META_STR, device),
    OPTIONAL(META_STR, choices),
    OPTIONAL(META_STR, tokenizer),
    OPTIONAL(META_STR, data),
    OPTIONAL(META_STR, skipped),
};
enum { N_ROW = sizeof rows / sizeof rows[0] };
static const char override_key[] = "dltrain.overrides", class_key[] = "dltrain.class_names";

static void *member(const DltCheckpointMeta *m, const MetaRow *row)
{
    return (char *)m + row->offset;
}

static const char *str_text(DltArena *arena, const void *v)
{
    (void)arena;
    return *(const char *const *)v;
}
static const char *i64_text(DltArena *arena, const void *v)
{
    return dlt_arena_printf(arena, "%lld", (long long)*(const int64_t *)v);
}
static const char *u64_text(DltArena *arena, const void *v)
{
    return dlt_arena_printf(arena, "%llu", (unsigned long long)*(const uint64_t *)v);
}
static const char *f64_text(DltArena *arena, const void *v)
{
    double x = *(const double *)v;
    return dlt_arena_printf(arena, "%.17g", isfinite(x) ? x : 0.0);
}

static bool str_value(DltArena *arena, const char *text, void *v)
{
    *(const char **)v = dlt_arena_str(arena, text);
    return true;
}
/* Digits with an optional sign, nothing before or behind. */
static bool plain_integer(const char *text, bool sign)
{
    if (sign && *text == '-') text++;
    return *text != '\0' && text[strspn(text, "0123456789")] == '\0';
}
static bool i64_value(DltArena *arena, const char *text, void *v)
{
    (void)arena;
    errno = 0;
    *(int64_t *)v = strtoll(text, NULL, 10);
    return plain_integer(text, true) && errno == 0;
}
static bool u64_value(DltArena *arena, const char *text, void *v)
{
    (void)arena;
    errno = 0;
    *(uint64_t *)v = strtoull(text, NULL, 10);
    return plain_integer(text, false) && errno == 0;
}
static bool f64_value(DltArena *arena, const char *text, void *v)
{
    (void)arena;
    char *end = NULL;
    *(double *)v = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*(double *)v);
}

static const struct {
    const char *(*text)(DltArena *arena, const void *v);
    bool (*value)(DltArena *arena, const char *text, void *v);
} codec[N_META_TYPE] = {
    [META_STR] = {str_text, str_value},
    [META_I64] = {i64_text, i64_value},
    [META_U64] = {u64_text, u64_value},
    [META_F64] = {f64_text, f64_value},
};

/* A list of strings as the text of a JSON array. */
static json_t *list_text(DltArena *arena, const char *const *list, int64_t n)
{
    json_t *array = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(array, json_string(list[i]));
    size_t bytes = json_dumpb(array, NULL, 0, JSON_COMPACT);
    char *text = dlt_arena_new_bytes(arena, bytes + 1, 1);
    json_dumpb(array, text, bytes, JSON_COMPACT);
    json_decref(array);
    return json_string(text);
}

static json_t *meta_json(DltArena *arena, const DltCheckpointMeta *m)
{
    json_t *json = json_object();
    for (int i = 0; i < N_ROW; i++) {
        const char *text = codec[rows[i].type].text(arena, member(m, &rows[i]));
        if (text == NULL && rows[i].optional) continue;
        json_object_set_new(json, rows[i].key, json_string(text != NULL ? text : ""));
    }
    json_object_set_new(json, override_key, list_text(arena, m->override, m->n_override));
    int64_t n_name = m->class_name != NULL ? m->n_class : 0;
    json_object_set_new(json, class_key, list_text(arena, m->class_name, n_name));
    return json;
}

static DltStatus bad_meta(const char *path, const char *key, const char *what, DltErr *err)
{
    return dlt_err(err, DLT_E_CHECKPOINT, "%s: damaged checkpoint: metadata %s %s", path, key,
                   what);
}

/* Takes a list of strings out of json; *n of them. */
static DltStatus take_list(DltArena *arena, const char *path, json_t *json, const char *key,
                           const char *const **list, int64_t *n, DltErr *err)
{
    const char *text = json_string_value(json_object_get(json, key));
    json_t *array = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    bool ok = json_is_array(array);
    *n = (int64_t)json_array_size(array);
    const char **items = DLT_NEW_ARRAY(arena, *n, const char *);
    for (int64_t i = 0; i < *n && ok; i++) {
        const char *item = json_string_value(json_array_get(array, (size_t)i));
        ok = item != NULL;
        if (ok) items[i] = dlt_arena_str(arena, item);
    }
    json_decref(array);
    *list = items;
    json_object_del(json, key);
    return ok ? DLT_OK : bad_meta(path, key, "is no list of strings", err);
}

static DltStatus read_meta(DltArena *arena, const char *path, json_t *json, DltCheckpointMeta *m,
                           DltErr *err)
{
    for (int i = 0; i < N_ROW; i++) {
        const char *text = json_string_value(json_object_get(json, rows[i].key));
        if (text == NULL && rows[i].optional) continue;
        if (text == NULL) return bad_meta(path, rows[i].key, "is missing", err);
        if (!codec[rows[i].type].value(arena, text, member(m, &rows[i])))
            return bad_meta(path, rows[i].key, "has an impossible value", err);
        json_object_del(json, rows[i].key);
    }
    int64_t n_override = 0, n_name = 0;
    DLT_TRY(take_list(arena, path, json, override_key, &m->override, &n_override, err));
    DLT_TRY(take_list(arena, path, json, class_key, &m->class_name, &n_name, err));
    if (n_name != 0 && n_name != m->n_class)
        return bad_meta(path, class_key, "does not have a name for each class", err);
    if (n_name == 0) m->class_name = NULL;
    m->n_override = (int)n_override;
    const char *key = json_object_iter_key(json_object_iter(json));
    return key == NULL ? DLT_OK : bad_meta(path, key, "is not known to this dltrain", err);
}

/* ---- writing ------------------------------------------------------------------------------ */

/* Wide elements first, so that each tensor is aligned to its own type; else in the given order. */
static DltCheckpointTensor *in_file_order(DltArena *arena, const DltCheckpoint *c)
{
    DltCheckpointTensor *sorted = DLT_NEW_ARRAY(arena, c->n_tensor, DltCheckpointTensor);
    int n = 0;
    for (size_t width = 8; width > 0; width /= 2)
        for (int i = 0; i < c->n_tensor; i++)
            if (dlt_dtype_bytes(c->tensor[i].dtype) == width) sorted[n++] = c->tensor[i];
    DLT_BUG_ON(n != c->n_tensor);
    return sorted;
}

static DltStatus make_head(DltArena *arena, const DltCheckpoint *c,
                           const DltCheckpointTensor *sorted, char **head, int64_t *n, DltErr *err)
{
    json_t *meta = meta_json(arena, &c->meta);
    DltStatus status = dlt_safetensors_head(arena, sorted, c->n_tensor, meta, head, n, err);
    json_decref(meta);
    return status;
}

DltStatus dlt_checkpoint_bytes(const DltCheckpoint *c, int64_t *bytes, DltErr *err)
{
    DltArena *arena = dlt_arena_new();
    if (arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    char *head = NULL;
    DltStatus status = make_head(arena, c, in_file_order(arena, c), &head, bytes, err);
    for (int i = 0; i < c->n_tensor && status == DLT_OK; i++)
        *bytes += c->tensor[i].n_bytes;
    dlt_arena_free(arena);
    return status;
}

static DltStatus fill_file(DltArena *arena, const char *path, const DltCheckpoint *c,
                           DltAtomic **file, DltErr *err)
{
    DltCheckpointTensor *sorted = in_file_order(arena, c);
    for (int i = 0; i < c->n_tensor; i++)
        sorted[i].crc = dlt_safetensors_crc(0, sorted[i].bytes, sorted[i].n_bytes);
    char *head = NULL;
    int64_t n = 0;
    DLT_TRY(make_head(arena, c, sorted, &head, &n, err));
    DLT_TRY(dlt_atomic_open(arena, path, file, err));
    DLT_TRY(dlt_atomic_write(*file, head, (size_t)n, err));
    for (int i = 0; i < c->n_tensor; i++)
        DLT_TRY(dlt_atomic_write(*file, sorted[i].bytes, (size_t)sorted[i].n_bytes, err));
    return DLT_OK;
}

static DltStatus write_all(DltArena *arena, const char *path, const char *const *more, int n,
                           const DltCheckpoint *c, DltErr *err)
{
    bool linked = false;
    DltAtomic *file = NULL;
    DLT_TRY(fill_file(arena, path, c, &file, err));
    DLT_TRY(dlt_atomic_commit_all(file, more, n, &linked, err));
    if (linked) return DLT_OK;
    for (int i = 0; i < n; i++)
        DLT_TRY(dlt_checkpoint_write(more[i], c, err));
    return dlt_atomic_commit(file, err);
}

DltStatus dlt_checkpoint_write_all(const char *path, const char *const *more, int n,
                                   const DltCheckpoint *c, DltErr *err)
{
    DltArena *arena = dlt_arena_new();
    if (arena == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltStatus status = write_all(arena, path, more, n, c, err);
    dlt_arena_free(arena); /* removes what a failed write left */
    return status;
}

DltStatus dlt_checkpoint_write(const char *path, const DltCheckpoint *c, DltErr *err)
{
    return dlt_checkpoint_write_all(path, NULL, 0, c, err);
}

/* ---- reading ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const DltCheckpointTensor *const *)a)->name,
                  (*(const DltCheckpointTensor *const *)b)->name);
}

static DltStatus parse_head(DltArena *arena, const DltFileHead *head, DltCheckpoint *c,
                            int64_t *data, DltErr *err)
{
    json_t *meta = NULL;
    *c = (DltCheckpoint){.file_bytes = head->file_bytes, .path = dlt_arena_str(arena, head->path)};
    DLT_TRY(dlt_safetensors_parse(arena, head, c, data, &meta, err));
    DltStatus status = read_meta(arena, head->path, meta, &c->meta, err);
    json_decref(meta);
    DLT_TRY(status);
    c->by_name = DLT_NEW_ARRAY(arena, c->n_tensor, const DltCheckpointTensor *);
    for (int i = 0; i < c->n_tensor; i++)
        c->by_name[i] = &c->tensor[i];
    qsort(c->by_name, (size_t)c->n_tensor, sizeof(const DltCheckpointTensor *), by_name);
    return DLT_OK;
}

static DltStatus wrong_checksum(const char *path, const DltCheckpointTensor *t, uint32_t crc,
                                DltErr *err)
{
    return dlt_err(err, DLT_E_CHECKPOINT,
                   "%s: damaged checkpoint: the bytes of %s have checksum %08x, not %08x", path,
                   t->name, crc, t->crc);
}

DltStatus dlt_checkpoint_parse(DltArena *arena, const char *path, const void *bytes, int64_t n,
                               DltCheckpoint **out, DltErr *err)
{
    DltCheckpoint *c = DLT_NEW(arena, DltCheckpoint);
    int64_t at = 0;
    DltFileHead head = {path, bytes, n, n};
    DLT_TRY(parse_head(arena, &head, c, &at, err));
    for (int i = 0; i < c->n_tensor; i++) {
        DltCheckpointTensor *t = &c->tensor[i];
        t->bytes = (const char *)bytes + at;
        at += t->n_bytes;
        uint32_t crc = dlt_safetensors_crc(0, t->bytes, t->n_bytes);
        if (crc != t->crc) return wrong_checksum(path, t, crc, err);
    }
    *out = c;
    return DLT_OK;
}

typedef struct OpenFile {
    int fd;
    int64_t bytes, head_bytes;
} OpenFile;

static DltStatus cannot_read(const char *path, int reason, DltErr *err)
{
    return dlt_err(err, DLT_E_CHECKPOINT, "cannot read %s: %s", path,
                   reason != 0 ? strerror(reason) : "it became shorter while it was read");
}

/* Length fields only. */
static DltStatus read_start(const char *path, OpenFile *file, DltErr *err)
{
    char start[64];
    file->bytes = dlt_sys_file_bytes(file->fd);
    if (file->bytes < 0)
        return dlt_err(err, DLT_E_CHECKPOINT, "cannot read %s: it is no regular file", path);
    int64_t n = dlt_sys_pread(file->fd, start, sizeof start, 0);
    if (n < 0) return cannot_read(path, errno, err);
    if (n > file->bytes) n = file->bytes;
    return dlt_safetensors_head_bytes(path, start, n, file->bytes, &file->head_bytes, err);
}

/* The first n bytes of the file. */
static DltStatus read_bytes(DltArena *arena, const char *path, const OpenFile *file, int64_t n,
                            char **bytes, DltErr *err)
{
    *bytes = dlt_arena_try(arena, (size_t)n, 1);
    if (*bytes == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "no memory for the %lld bytes of %s", (long long)n,
                       path);
    for (int64_t done = 0, got; done < n; done += got) {
        errno = 0;
        got = dlt_sys_pread(file->fd, *bytes + done, (size_t)(n - done), done);
        if (got <= 0) return cannot_read(path, errno, err);
    }
    return DLT_OK;
}

static DltStatus read_header(DltArena *arena, const char *path, const OpenFile *file,
                             DltCheckpoint **out, DltErr *err)
{
    char *bytes = NULL;
    int64_t data = 0;
    DltCheckpoint *c = DLT_NEW(arena, DltCheckpoint);
    DLT_TRY(read_bytes(arena, path, file, file->head_bytes, &bytes, err));
    DltFileHead head = {path, bytes, file->head_bytes, file->bytes};
    DLT_TRY(parse_head(arena, &head, c, &data, err));
    *out = c;
    return DLT_OK;
}

/* The header is checked in memory of its own before the whole file is given any. */
static DltStatus read_whole(DltArena *arena, const char *path, const OpenFile *file,
                            DltCheckpoint **out, DltErr *err)
{
    DltArena *scratch = dlt_arena_new();
    if (scratch == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltCheckpoint *unused = NULL;
    DltStatus status = read_header(scratch, path, file, &unused, err);
    dlt_arena_free(scratch);
    DLT_TRY(status);
    char *bytes = NULL;
    DLT_TRY(read_bytes(arena, path, file, file->bytes, &bytes, err));
    return dlt_checkpoint_parse(arena, path, bytes, file->bytes, out, err);
}

/* The header in memory, the tensors a piece at a time. */
static DltStatus read_verified(DltArena *arena, const char *path, const OpenFile *file,
                               DltCheckpoint **out, DltErr *err)
{
    enum { PIECE = 1 << 18 };
    DLT_TRY(read_header(arena, path, file, out, err));
    char *piece = dlt_arena_try(arena, PIECE, 1);
    if (piece == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    int64_t at = file->head_bytes;
    for (int i = 0; i < (*out)->n_tensor; i++) {
        const DltCheckpointTensor *t = &(*out)->tensor[i];
        uint32_t crc = 0;
        for (int64_t left = t->n_bytes, got; left > 0; left -= got, at += got) {
            errno = 0;
            got = dlt_sys_pread(file->fd, piece, (size_t)(left < PIECE ? left : PIECE), at);
            if (got <= 0) return cannot_read(path, errno, err);
            crc = dlt_safetensors_crc(crc, piece, got);
        }
        if (crc != t->crc) return wrong_checksum(path, t, crc, err);
    }
    return DLT_OK;
}

static DltStatus open_and(DltArena *arena, const char *path,
                          DltStatus (*read)(DltArena *, const char *, const OpenFile *,
                                            DltCheckpoint **, DltErr *),
                          DltCheckpoint **c, DltErr *err)
{
    const char *full = dlt_path_absolute(arena, path);
    OpenFile file = {.fd = dlt_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)};
    if (file.fd < 0) return cannot_read(full, errno, err);
    DltStatus status = read_start(full, &file, err);
    if (status == DLT_OK) status = read(arena, full, &file, c, err);
    dlt_sys_close(file.fd);
    return status;
}

DltStatus dlt_checkpoint_read(DltArena *arena, const char *path, DltCheckpoint **c, DltErr *err)
{
    return open_and(arena, path, read_whole, c, err);
}

DltStatus dlt_checkpoint_verify(DltArena *arena, const char *path, DltCheckpoint **c, DltErr *err)
{
    return open_and(arena, path, read_verified, c, err);
}

DltStatus dlt_checkpoint_read_header(DltArena *arena, const char *path, DltCheckpoint **c,
                                     DltErr *err)
{
    return open_and(arena, path, read_header, c, err);
}

static int name_matches(const void *name, const void *t)
{
    return strcmp(name, (*(const DltCheckpointTensor *const *)t)->name);
}

const DltCheckpointTensor *dlt_checkpoint_find(const DltCheckpoint *c, const char *name)
{
    const DltCheckpointTensor **found = bsearch(name, c->by_name, (size_t)c->n_tensor,
                                                sizeof(const DltCheckpointTensor *), name_matches);
    return found != NULL ? *found : NULL;
}
