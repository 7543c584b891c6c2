/* dltrain export: the weights of a checkpoint for other programs: a plain safetensors file, a NumPy
 * archive, or a C header. Weights are what the model has, running statistics and the data's normalisation
 * included; the states of the optimizer stay behind. */
#include "cmd/cmd.h"

#include "base/text.h"
#include "exec/safetensors.h"

#include <math.h>

/* What the formats call the types of numbers that they share with checkpoints. */
typedef struct TypeNames {
    DltDtype dtype;
    const char *safetensors, *numpy, *c;
} TypeNames;
static const TypeNames type_names[] = {
    {DLT_F32, "F32", "<f4", "float"},
    {DLT_F64, "F64", "<f8", "double"},
    {DLT_I32, "I32", "<i4", "int32_t"},
    {DLT_U8, "U8", "|u1", "uint8_t"},
};

typedef struct Weight {
    const char *name;
    const DltCheckpointTensor *t;
    const TypeNames *type;
} Weight;

typedef struct Export {
    DltArena *arena;
    const DltCheckpoint *c;
    int n;
    Weight *weight;
    DltAtomic *file;
    int64_t written;
} Export;

static DltStatus put(Export *e, const void *bytes, size_t n, DltErr *err)
{
    e->written += (int64_t)n;
    return dlt_atomic_write(e->file, bytes, n, err);
}

/* ---- what is exported ------------------------------------------------------------------------ */

static DltStatus add(Export *e, const char *name, const DltCheckpointTensor *t, DltErr *err)
{
    for (size_t i = 0; i < sizeof type_names / sizeof type_names[0]; i++) {
        if (type_names[i].dtype != t->dtype) continue;
        e->weight[e->n++] = (Weight){name, t, &type_names[i]};
        return DLT_OK;
    }
    return dlt_err(err, DLT_E_CONFIG, "export: %s has numbers of type %s, which cannot be written",
                   name, dlt_dtype_name(t->dtype));
}

/* Weights are the tensors without a prefix; with `ema`, a running average stands for its weight. */
static DltStatus gather(Export *e, bool ema, DltErr *err)
{
    e->weight = DLT_NEW_ARRAY(e->arena, e->c->n_tensor, Weight);
    int n_ema = 0;
    for (int i = 0; i < e->c->n_tensor; i++) {
        const DltCheckpointTensor *t = &e->c->tensor[i];
        if (strchr(t->name, '/')) continue;
        const DltCheckpointTensor *average =
            ema ? dlt_checkpoint_find(e->c, dlt_arena_printf(e->arena, "ema/%s", t->name)) : NULL;
        n_ema += average != NULL;
        DLT_TRY(add(e, t->name, average ? average : t, err));
    }
    if (!ema || n_ema > 0) return DLT_OK;
    return dlt_err(err, DLT_E_CHECKPOINT,
                   "%s: --weights ema: the checkpoint has no running averages (train.ema)",
                   e->c->path);
}

/* ---- safetensors ----------------------------------------------------------------------------- */

static json_t *head_of(const Export *e)
{
    json_t *head = json_object(), *meta = json_object();
    json_object_set_new(meta, "dltrain.program", json_string(e->c->meta.program));
    json_object_set_new(meta, "dltrain.step", json_sprintf("%lld", (long long)e->c->meta.step));
    json_object_set_new(head, "__metadata__", meta);
    int64_t at = 0;
    for (int i = 0; i < e->n; i++) {
        const Weight *w = &e->weight[i];
        json_t *shape = json_array();
        for (int k = 0; k < w->t->shape.rank; k++)
            json_array_append_new(shape, json_integer(w->t->shape.dim[k]));
        json_object_set_new(head, w->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", w->type->safetensors,
                                      "shape", shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + w->t->n_bytes)));
        at += w->t->n_bytes;
    }
    return head;
}

static DltStatus to_safetensors(Export *e, DltErr *err)
{
    json_t *head = head_of(e);
    size_t n_json = json_dumpb(head, NULL, 0, JSON_COMPACT | JSON_PRESERVE_ORDER);
    char *json = dlt_arena_new_bytes(e->arena, n_json + 1, 1);
    bool whole =
        n_json > 0 && json_dumpb(head, json, n_json, JSON_COMPACT | JSON_PRESERVE_ORDER) == n_json;
    json_decref(head);
    if (!whole) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    int pad = (int)(7 - (n_json + 7) % 8); /* numbers begin at a multiple of 8 */
    const char *text = dlt_arena_printf(e->arena, "%s%*s", json, pad, "");
    uint64_t n = strlen(text);
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(n >> 8 * i);
    DLT_TRY(put(e, length, 8, err));
    DLT_TRY(put(e, text, n, err));
    for (int i = 0; i < e->n; i++)
        DLT_TRY(put(e, e->weight[i].t->bytes, (size_t)e->weight[i].t->n_bytes, err));
    return DLT_OK;
}

/* ---- npz ------------------------------------------------------------------------------------- */

/* Little-endian numbers one behind the other. */
typedef struct Bytes {
    uint8_t v[64];
    size_t n;
} Bytes;

static void add_int(Bytes *b, uint64_t v, int n_byte)
{
    for (int i = 0; i < n_byte; i++)
        b->v[b->n++] = (uint8_t)(v >> 8 * i);
}

/* Header of a .npy file, version 1.0, padded so that its length is a multiple of 64 (NEP 1). */
static const char *npy_head(const Export *e, const Weight *w, size_t *n)
{
    DltText t = dlt_text(e->arena);
    dlt_text_addf(&t, "{'descr': '%s', 'fortran_order': False, 'shape': (", w->type->numpy);
    for (int k = 0; k < w->t->shape.rank; k++)
        dlt_text_addf(&t, "%lld,%s", (long long)w->t->shape.dim[k],
                      k + 1 < w->t->shape.rank ? " " : "");
    dlt_text_add(&t, "), }");
    size_t length = (10 + t.n + 1 + 63) / 64 * 64 - 10;
    while (t.n < length - 1)
        dlt_text_add(&t, " ");
    dlt_text_add(&t, "\n");
    uint8_t *head = dlt_arena_new_bytes(e->arena, 10 + t.n, 1);
    memcpy(head, "\x93NUMPY\x01", 7);
    head[7] = 0;
    head[8] = (uint8_t)(t.n & 255);
    head[9] = (uint8_t)(t.n >> 8);
    memcpy(head + 10, t.bytes, t.n);
    *n = 10 + t.n;
    return (const char *)head;
}

typedef struct Entry {
    const char *name;
    uint32_t crc;
    int64_t bytes, at;
} Entry;

/* The fields that a local header and the directory share, from the version on. No compression, no time
 * (1980-01-01), so that equal weights give equal files. */
static void add_entry(Bytes *b, const Entry *f)
{
    add_int(b, 20, 2); /* version 2.0 */
    add_int(b, 0, 4);  /* flags, method: stored */
    add_int(b, 0, 2);
    add_int(b, 33, 2);
    add_int(b, f->crc, 4);
    add_int(b, (uint64_t)f->bytes, 4);
    add_int(b, (uint64_t)f->bytes, 4);
    add_int(b, strlen(f->name), 2);
    add_int(b, 0, 2);
}

static DltStatus put_array(Export *e, const Weight *w, Entry *f, DltErr *err)
{
    size_t n = 0;
    const char *head = npy_head(e, w, &n);
    f->name = dlt_arena_printf(e->arena, "%s.npy", w->name);
    f->at = e->written;
    f->bytes = (int64_t)n + w->t->n_bytes;
    if (f->at + f->bytes > INT32_MAX)
        return dlt_err(err, DLT_E_CONFIG, "export: npz holds at most 2 GiB; take safetensors");
    f->crc = dlt_safetensors_crc(0, head, (int64_t)n);
    f->crc = dlt_safetensors_crc(f->crc, w->t->bytes, w->t->n_bytes);
    Bytes b = {.n = 0};
    add_int(&b, 0x04034b50, 4);
    add_entry(&b, f);
    DLT_TRY(put(e, b.v, b.n, err));
    DLT_TRY(put(e, f->name, strlen(f->name), err));
    DLT_TRY(put(e, head, n, err));
    return put(e, w->t->bytes, (size_t)w->t->n_bytes, err);
}

/* A zip archive of .npy files, as numpy.savez writes it (PKWARE's APPNOTE 6.3, sections 4.3.7 to 4.3.16). */
static DltStatus to_npz(Export *e, DltErr *err)
{
    Entry *entry = DLT_NEW_ARRAY(e->arena, e->n + 1, Entry);
    if (e->n > 65535) return dlt_err(err, DLT_E_CONFIG, "export: npz holds at most 65,535 arrays");
    for (int i = 0; i < e->n; i++)
        DLT_TRY(put_array(e, &e->weight[i], &entry[i], err));
    int64_t directory = e->written;
    for (int i = 0; i < e->n; i++) {
        Bytes b = {.n = 0};
        add_int(&b, 0x02014b50, 4);
        add_int(&b, 20, 2);
        add_entry(&b, &entry[i]);
        add_int(&b, 0, 8); /* comment, disk, attributes */
        add_int(&b, 0, 2);
        add_int(&b, (uint64_t)entry[i].at, 4);
        DLT_TRY(put(e, b.v, b.n, err));
        DLT_TRY(put(e, entry[i].name, strlen(entry[i].name), err));
    }
    Bytes b = {.n = 0};
    int64_t bytes = e->written - directory;
    add_int(&b, 0x06054b50, 4);
    add_int(&b, 0, 4);
    add_int(&b, (uint64_t)e->n, 2);
    add_int(&b, (uint64_t)e->n, 2);
    add_int(&b, (uint64_t)bytes, 4);
    add_int(&b, (uint64_t)directory, 4);
    add_int(&b, 0, 2);
    return put(e, b.v, b.n, err);
}

/* ---- C --------------------------------------------------------------------------------------- */

static const char *identifier(DltArena *arena, const char *name)
{
    char *id = dlt_arena_printf(arena, "%s%s", name[0] >= '0' && name[0] <= '9' ? "_" : "", name);
    for (char *c = id; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!letter && !(*c >= '0' && *c <= '9')) *c = '_';
    }
    return id;
}

/* Nine (17) digits read back as the same number. */
static DltStatus number_text(const Weight *w, int64_t i, char text[40], DltErr *err)
{
    const char *at = (const char *)w->t->bytes;
    double v = 0;
    float f;
    int32_t n;
    if (w->t->dtype == DLT_F32) {
        memcpy(&f, at + 4 * i, 4);
        v = (double)f;
        snprintf(text, 40, "%.8ef", v);
    } else if (w->t->dtype == DLT_F64) {
        memcpy(&v, at + 8 * i, 8);
        snprintf(text, 40, "%.16e", v);
    } else if (w->t->dtype == DLT_I32) {
        memcpy(&n, at + 4 * i, 4);
        snprintf(text, 40, "%d", n);
    } else {
        snprintf(text, 40, "%d", ((const uint8_t *)w->t->bytes)[i]);
    }
    if (isfinite(v)) return DLT_OK;
    return dlt_err(err, DLT_E_NUMERIC, "export: %s[%lld] is not finite", w->name, (long long)i);
}

static DltStatus put_c_array(Export *e, const Weight *w, DltErr *err)
{
    char shape[DLT_SHAPE_TEXT], number[40];
    int64_t n = dlt_shape_count(&w->t->shape);
    const char *id = identifier(e->arena, w->name);
    const char *line =
        dlt_arena_printf(e->arena, "\n/* %s %s */\nstatic const %s %s[%lld] = {", w->name,
                         dlt_shape_text(&w->t->shape, shape), w->type->c, id, (long long)n);
    DLT_TRY(put(e, line, strlen(line), err));
    for (int64_t i = 0; i < n; i++) {
        DLT_TRY(number_text(w, i, number, err));
        DLT_TRY(put(e, i % 6 ? " " : "\n    ", i % 6 ? 1 : 5, err));
        DLT_TRY(put(e, number, strlen(number), err));
        DLT_TRY(put(e, ",", 1, err));
    }
    return put(e, "\n};\n", 4, err);
}

static DltStatus to_c_header(Export *e, DltErr *err)
{
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(identifier(e->arena, e->weight[i].name),
                       identifier(e->arena, e->weight[k].name)) == 0)
                return dlt_err(err, DLT_E_CONFIG, "export: %s and %s have one name in C",
                               e->weight[k].name, e->weight[i].name);
    const char *head =
        dlt_arena_printf(e->arena,
                         "/* Weights at step %lld, written by %s. Arrays are in C order: the last "
                         "axis runs fastest. */\n#include <stdint.h>\n",
                         (long long)e->c->meta.step, e->c->meta.program);
    DLT_TRY(put(e, head, strlen(head), err));
    for (int i = 0; i < e->n; i++)
        DLT_TRY(put_c_array(e, &e->weight[i], err));
    return DLT_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

typedef struct Format {
    const char *name, *file;
    DltStatus (*write)(Export *e, DltErr *err);
} Format;
static const Format formats[] = {
    {"safetensors", "weights.safetensors", to_safetensors},
    {"npz", "weights.npz", to_npz},
    {"c-header", "weights.h", to_c_header},
    {NULL, NULL, NULL},
};

static DltStatus find_format(const char *name, const Format **format, DltErr *err)
{
    for (*format = formats; (*format)->name; ++*format)
        if (name && strcmp((*format)->name, name) == 0) return DLT_OK;
    return dlt_err(err, DLT_E_CONFIG, "export: --to %s: known formats: safetensors, npz, c-header",
                   name ? name : "is required");
}

static DltStatus run(const DltArgs *args, DltErr *err)
{
    const Format *format = NULL;
    DltCheckpoint *c = NULL;
    bool ema = args->weights && strcmp(args->weights, "ema") == 0;
    if (args->weights && !ema && strcmp(args->weights, "raw") != 0)
        return dlt_err(err, DLT_E_CONFIG, "export: --weights %s: raw or ema", args->weights);
    DLT_TRY(find_format(args->to, &format, err));
    const char *from = dlt_checkpoint_path(args, args->word[0]);
    DLT_TRY(dlt_checkpoint_read(args->arena, from, &c, err));
    Export e = {.arena = args->arena, .c = c};
    DLT_TRY(gather(&e, ema, err));
    const char *path =
        args->out ? args->out
                  : dlt_path_join(args->arena, dlt_path_folder(args->arena, from), format->file);
    DLT_TRY(dlt_atomic_open(args->arena, path, &e.file, err));
    DltStatus status = format->write(&e, err);
    if (status != DLT_OK) {
        dlt_atomic_abandon(e.file);
        return status;
    }
    DLT_TRY(dlt_atomic_commit(e.file, err));
    printf("%s: %d tensors, %lld bytes\n", path, e.n, (long long)e.written);
    return DLT_OK;
}

const DltCommand dlt_command_export = {
    .name = "export",
    .words = "CKPT|RUN",
    .help = "weights as safetensors, npz or C header",
    .min_word = 1,
    .max_word = 1,
    .options = (const char *const[]){"to", "weights", "out", NULL},
    .run = run,
};
