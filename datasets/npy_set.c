/* Data sets out of NumPy arrays: two .npy files, or two members of one .npz. The first axis counts
 * the samples. u8 stays u8 (images become [0, 1] later); floats and whole numbers become f32; whole
 * numbers with `vocab:` stay ids. Axes are never guessed where two readings are likely. */
#include "datasets/npy.h"

enum { LAYOUT_AUTO, LAYOUT_CHW, LAYOUT_HWC, LAYOUT_HW, LAYOUT_NONE };
static const DltEnum layouts[] = {{"auto", LAYOUT_AUTO}, {"chw", LAYOUT_CHW},   {"hwc", LAYOUT_HWC},
                                  {"hw", LAYOUT_HW},     {"none", LAYOUT_NONE}, {NULL, 0}};

typedef struct NpyOpts {
    const char *npy, *npz, *labels, *x, *y;
    int64_t classes, vocab;
    int layout;
} NpyOpts;

#define COMMON_FIELDS                                                                              \
    DLT_INT(NpyOpts, classes, .lo = 1, .hi = 1 << 24,                                              \
            .help = "number of classes; without it, the training set's highest label + 1",         \
            .example = "classes: 10"),                                                             \
        DLT_INT(NpyOpts, vocab, .lo = 2, .hi = 1 << 30,                                            \
                .help = "samples are ids from 0 to vocab - 1, for an embedding",                   \
                .example = "vocab: 256"),                                                          \
        DLT_ENUM(NpyOpts, layout, .choices = layouts, .def = "auto",                               \
                 .help = "axes of a sample: auto takes u8 [H,W] as one channel and [C,H,W] as "    \
                         "it is; hwc is brought into C,H,W; none leaves all as it is",             \
                 .example = "layout: hwc"),                                                        \
        DLT_FIELDS_END

static const DltField npy_fields[] = {
    DLT_STR(NpyOpts, npy, .required = true, .main = true, .file = true,
            .help = "array of samples (.npy, plain or gzip), the first axis counts them",
            .example = "npy: x_train.npy"),
    DLT_STR(NpyOpts, labels, .required = true, .file = true,
            .help = "array of targets: whole numbers from 0 are classes, floats are values",
            .example = "labels: y_train.npy"),
    COMMON_FIELDS};
static const DltField npz_fields[] = {
    DLT_STR(NpyOpts, npz, .required = true, .main = true, .file = true, .help = "archive of arrays",
            .example = "npz: mnist.npz"),
    DLT_STR(NpyOpts, x, .def = "x", .help = "name of the array of samples",
            .example = "x: x_train"),
    DLT_STR(NpyOpts, y, .def = "y", .help = "name of the array of targets",
            .example = "y: y_train"),
    COMMON_FIELDS};

typedef struct NpyState {
    DltNpy x;
    int64_t channels, plane; /* hwc: C and H*W of a sample; channels 0: in order already */
    void *y;                 /* [n] i32 or [n, count] f32 */
} NpyState;

/* The option set of a source, and where its keys stand. */
typedef struct Source {
    const DltDatasetDef *def;
    const NpyOpts *opts;
    const DltOpts *o; /* NULL: a check in process */
} Source;

static DltMark mark_of(const Source *s, size_t offset)
{
    return s->o != NULL ? dlt_opts_mark(s->o, offset) : DLT_NO_MARK;
}

/* ---- axes of a sample ------------------------------------------------------------------------ */

static bool is_channels(int64_t n)
{
    return n == 1 || n == 3 || n == 4;
}

static DltStatus choose_layout(const Source *src, const DltNpy *a, int *layout, DltErr *err)
{
    static const int rank[] = {
        [LAYOUT_CHW] = 3, [LAYOUT_HWC] = 3, [LAYOUT_HW] = 2, [LAYOUT_NONE] = -1};
    const DltShape *r = &a->record;
    char text[DLT_SHAPE_TEXT];
    bool u8 = a->type->bytes == 1 && a->type->is_int;
    *layout = src->opts->layout;
    if (*layout != LAYOUT_AUTO) {
        if (rank[*layout] < 0 || rank[*layout] == r->rank) return DLT_OK;
        return dlt_err_at(err, DLT_E_DATA, mark_of(src, offsetof(NpyOpts, layout)),
                          "layout: %s needs samples of rank %d, those of %s have shape %s",
                          layouts[*layout].name, rank[*layout], a->b->path,
                          dlt_shape_text(r, text));
    }
    *layout = LAYOUT_NONE;
    if (src->opts->vocab > 0) return DLT_OK;
    if (r->rank == 2 && u8) *layout = LAYOUT_HW;
    if (r->rank != 3) return DLT_OK;
    *layout = LAYOUT_CHW;
    if (is_channels(r->dim[0]) || !is_channels(r->dim[2])) return DLT_OK;
    return dlt_blob_err(a->b, err,
                        "samples of shape %s look like images with the channels last: say `layout: "
                        "hwc`, or `layout: chw` if they are not",
                        dlt_shape_text(r, text));
}

static void set_axes(NpyState *s, int layout, DltDataset *ds)
{
    DltShape r = s->x.record;
    ds->channel_axis = 0;
    if (layout == LAYOUT_HW) {
        ds->x_shape = dlt_shape(3, (int64_t)1, r.dim[0], r.dim[1]);
    } else if (layout == LAYOUT_HWC) {
        s->channels = r.dim[2];
        s->plane = r.dim[0] * r.dim[1];
        ds->x_shape = dlt_shape(3, r.dim[2], r.dim[0], r.dim[1]);
    } else {
        ds->x_shape = r.rank > 0 ? r : dlt_shape1(1);
        if (layout == LAYOUT_NONE) ds->channel_axis = ds->x_shape.rank - 1;
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

enum { BLOCK = DLT_NPY_BLOCK / 8 }; /* elements converted at once */

typedef union Block {
    float f[BLOCK];
    int32_t i[BLOCK];
} Block;

/* Elements [at, at + n) of the whole array, n <= BLOCK, as i32 or f32. */
static DltStatus convert(const DltNpy *a, int64_t at, int64_t n, bool ids, Block *to, DltErr *err)
{
    double raw[BLOCK];
    DLT_TRY(dlt_npy_elements(a, at, n, raw, err));
    int64_t good = ids ? a->type->to_i32(raw, n, to->i) : a->type->to_f32(raw, n, to->f);
    if (good == n) return DLT_OK;
    at += good;
    return dlt_blob_err(a->b, err,
                        "record %lld (from 0), element %lld: a value of type %s that does not fit "
                        "%s",
                        (long long)(at / a->count), (long long)(at % a->count), a->type->code,
                        ids ? "i32" : "f32 exactly");
}

static DltStatus check_ids(const DltDataset *ds, int64_t at, const int32_t *id, int64_t n,
                           DltErr *err)
{
    const DltNpy *a = &((const NpyState *)ds->state)->x;
    for (int64_t i = 0; i < n; i++) {
        if (id[i] < 0 || id[i] >= ds->vocab)
            return dlt_blob_err(a->b, err,
                                "record %lld (from 0), element %lld: id %d is out of range 0..%lld",
                                (long long)((at + i) / a->count), (long long)((at + i) % a->count),
                                (int)id[i], (long long)ds->vocab - 1);
    }
    return DLT_OK;
}

/* n elements of `bytes` each, from element `first` of a sample on, to their places in it. */
static void scatter(const NpyState *s, int64_t first, int64_t n, int64_t bytes, const void *from,
                    char *sample)
{
    if (s->channels == 0) {
        memcpy(sample + first * bytes, from, (size_t)(n * bytes));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t to = (first + i) % s->channels * s->plane + (first + i) / s->channels;
        memcpy(sample + to * bytes, (const char *)from + i * bytes, (size_t)bytes);
    }
}

/* A whole sample of f32 or ids, its channels first. */
static DltStatus read_sample(const DltDataset *ds, int64_t id, char *to, DltErr *err)
{
    const NpyState *s = ds->state;
    bool ids = ds->x_dtype == DLT_I32;
    for (int64_t first = 0; first < s->x.count; first += BLOCK) {
        Block block;
        int64_t n = s->x.count - first < BLOCK ? s->x.count - first : BLOCK;
        DLT_TRY(convert(&s->x, id * s->x.count + first, n, ids, &block, err));
        if (ids) DLT_TRY(check_ids(ds, id * s->x.count + first, block.i, n, err));
        scatter(s, first, n, 4, &block, to);
    }
    return DLT_OK;
}

static DltStatus read_bytes(const NpyState *s, int64_t id, char *to, DltErr *err)
{
    uint8_t block[DLT_NPY_BLOCK];
    for (int64_t first = 0; first < s->x.count; first += DLT_NPY_BLOCK) {
        int64_t n = s->x.count - first < DLT_NPY_BLOCK ? s->x.count - first : DLT_NPY_BLOCK;
        DLT_TRY(dlt_npy_elements(&s->x, id * s->x.count + first, n, block, err));
        scatter(s, first, n, 1, block, to);
    }
    return DLT_OK;
}

static bool is_plain(const DltNpy *a)
{
    return a->type->bytes == 4 && !a->type->is_int && !a->big_endian;
}

static DltStatus read_npy(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                          DltErr *err)
{
    const NpyState *s = ds->state;
    bool u8 = ds->x_dtype == DLT_U8;
    dlt_targets_copy(ds, s->y, id, n, y);
    if (s->channels == 0 && (u8 || is_plain(&s->x)))
        return dlt_blob_gather(s->x.b, s->x.data, s->x.count * s->x.type->bytes, id, n, x, err);
    for (int64_t i = 0; i < n; i++) {
        char *to = (char *)x + i * s->x.count * (u8 ? 1 : 4);
        DLT_TRY(u8 ? read_bytes(s, id[i], to, err) : read_sample(ds, id[i], to, err));
    }
    return DLT_OK;
}

/* ---- targets, opening ------------------------------------------------------------------------ */

/* Targets in memory: whole numbers of rank 1 are classes, floats of rank 1 or 2 are values. */
static DltStatus load_targets(DltArena *arena, DltNpy *a, NpyState *s, DltDataset *ds, DltErr *err)
{
    int64_t bytes;
    if (a->n != ds->n)
        return dlt_blob_err(a->b, err, "%lld targets for the %lld samples of %s", (long long)a->n,
                            (long long)ds->n, s->x.b->path);
    if (a->record.rank > !a->type->is_int)
        return dlt_blob_err(
            a->b, err, "targets must have rank 1 (values: 1 or 2), these have %d; reshape them",
            a->record.rank + 1);
    if (__builtin_mul_overflow(a->n, 4 * a->count, &bytes))
        return dlt_blob_err(a->b, err, "more targets than any memory can hold");
    DLT_TRY(dlt_npy_load(arena, a, err));
    char *to = dlt_blob_pages(arena, bytes);
    if (to == NULL)
        return dlt_err(err, DLT_E_RESOURCE, "out of memory for the targets of %s", a->b->path);
    for (int64_t i = 0; i < a->n * a->count; i += BLOCK) {
        Block block;
        int64_t n = a->n * a->count - i < BLOCK ? a->n * a->count - i : BLOCK;
        DLT_TRY(convert(a, i, n, a->type->is_int, &block, err));
        memcpy(to + i * 4, &block, (size_t)n * 4);
    }
    s->y = to;
    ds->y_shape = a->record;
    ds->y_dtype = a->type->is_int ? DLT_I32 : DLT_F32;
    return DLT_OK;
}

static DltStatus set_classes(DltArena *arena, const Source *src, const DltNpy *y,
                             const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const NpyState *s = ds->state;
    DltLabels l = {.b = y->b,
                   .v = s->y,
                   .n = ds->n,
                   .bad = ds->bad,
                   .stated = src->opts->classes,
                   .stated_at = mark_of(src, offsetof(NpyOpts, classes))};
    if (ds->y_dtype == DLT_I32) return dlt_labels_classes(arena, &l, like, &ds->classes, err);
    if (l.stated == 0) return DLT_OK;
    return dlt_err_at(err, DLT_E_CONFIG, l.stated_at,
                      "classes: %lld is stated, but %s holds %s, not classes", (long long)l.stated,
                      y->b->path, y->type->code);
}

/* y NULL: no targets are wanted. */
static DltStatus describe(DltArena *arena, const Source *src, DltBlob *x, DltBlob *y,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    NpyState *s = DLT_NEW(arena, NpyState);
    DltNpy targets = {.b = y};
    int layout;
    s->x.b = x;
    DLT_TRY(dlt_npy_header(arena, &s->x, err));
    if (y != NULL) DLT_TRY(dlt_npy_header(arena, &targets, err));
    const DltNpyType *type = s->x.type;
    bool u8 = strcmp(type->code, "u1") == 0;
    *ds = (DltDataset){.def = src->def, .state = s, .path = x->path, .n = s->x.n, .bad = ds->bad};
    DLT_TRY(choose_layout(src, &s->x, &layout, err));
    set_axes(s, layout, ds);
    ds->vocab = src->opts->vocab;
    if (ds->vocab > 0 && !type->is_int)
        return dlt_err_at(err, DLT_E_DATA, mark_of(src, offsetof(NpyOpts, vocab)),
                          "vocab: ids must be whole numbers, %s holds %s", x->path, type->code);
    if (ds->vocab > 0) ds->channel_axis = -1;
    ds->x_dtype = ds->vocab > 0 ? DLT_I32 : u8 ? DLT_U8 : DLT_F32;
    ds->x_scale = ds->x_dtype == DLT_U8 && s->x.record.rank > 1 ? 1.0f / 255.0f : 1.0f;
    if (y == NULL) {
        dlt_like_targets(ds, like);
        return dlt_like_check(ds, like, err);
    }
    DLT_TRY(load_targets(arena, &targets, s, ds, err));
    DLT_TRY(set_classes(arena, src, &targets, like, ds, err));
    return dlt_like_check(ds, like, err);
}

static DltStatus open_npy(DltArena *arena, const DltOpts *o, const char *folder,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    Source src = {&dlt_dataset_npy, o->v, o};
    DltBlob *x, *y = NULL;
    DLT_TRY(dlt_blob_open(arena, folder, src.opts->npy, mark_of(&src, offsetof(NpyOpts, npy)), &x,
                          err));
    if (!dlt_like_x_only(like))
        DLT_TRY(dlt_blob_open(arena, folder, src.opts->labels,
                              mark_of(&src, offsetof(NpyOpts, labels)), &y, err));
    return describe(arena, &src, x, y, like, ds, err);
}

static DltStatus open_members(DltArena *arena, const Source *src, const DltBlob *zip,
                              const DltDataset *like, DltDataset *ds, DltErr *err)
{
    uint8_t head[4] = {0};
    int64_t got;
    DltBlob *x, *y = NULL;
    DLT_TRY(dlt_blob_head(zip, head, sizeof head, &got, err));
    if (zip->coding != DLT_PLAIN || memcmp(head, "PK", 2) != 0)
        return dlt_blob_alien(zip, "an archive of arrays (.npz)", err);
    DLT_TRY(dlt_zip_member(arena, zip, src->opts->x, &x, err));
    if (!dlt_like_x_only(like)) DLT_TRY(dlt_zip_member(arena, zip, src->opts->y, &y, err));
    return describe(arena, src, x, y, like, ds, err);
}

static DltStatus open_npz(DltArena *arena, const DltOpts *o, const char *folder,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    Source src = {&dlt_dataset_npz, o->v, o};
    DltBlob *zip;
    DLT_TRY(dlt_blob_open(arena, folder, src.opts->npz, mark_of(&src, offsetof(NpyOpts, npz)), &zip,
                          err));
    return open_members(arena, &src, zip, like, ds, err);
}

static DltStatus load_npy(DltArena *arena, DltDataset *ds, DltErr *err)
{
    NpyState *s = ds->state;
    DLT_TRY(dlt_npy_load(arena, &s->x, err));
    if (ds->x_dtype != DLT_U8 || ds->y_dtype == DLT_F32) DLT_TRY(dlt_samples_check(ds, err));
    return dlt_fingerprint(ds, err);
}

const DltDatasetDef dlt_dataset_npy = {
    .name = "npy",
    .help = "NumPy arrays: one file of samples, one of targets, plain or gzip",
    .fields = npy_fields,
    .opt_size = sizeof(NpyOpts),
    .skips = true,
    .open = open_npy,
    .load = load_npy,
    .read = read_npy,
};

const DltDatasetDef dlt_dataset_npz = {
    .name = "npz",
    .help = "NumPy arrays of samples and targets in one archive (np.savez, np.savez_compressed)",
    .fields = npz_fields,
    .opt_size = sizeof(NpyOpts),
    .skips = true,
    .open = open_npz,
    .load = load_npy,
    .read = read_npy,
};

DltStatus dlt_npy_check(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                        DltErr *err)
{
    return dlt_npy_check_bad(arena, x, n_x, y, n_y, NULL, err);
}

DltStatus dlt_npy_check_bad(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                            DltBad *bad, DltErr *err)
{
    static const NpyOpts none = {.layout = LAYOUT_AUTO};
    Source src = {&dlt_dataset_npy, &none, NULL};
    DltDataset ds = {.bad = bad};
    DLT_TRY(describe(arena, &src, dlt_blob_memory(arena, "samples", x, n_x),
                     dlt_blob_memory(arena, "targets", y, n_y), NULL, &ds, err));
    DLT_TRY(load_npy(arena, &ds, err));
    return dlt_samples_check(&ds, err);
}

DltStatus dlt_npz_check(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    static const NpyOpts xy = {.x = "x", .y = "y"};
    Source src = {&dlt_dataset_npz, &xy, NULL};
    DltDataset ds = {.n = 0};
    DLT_TRY(open_members(arena, &src, dlt_blob_memory(arena, "archive", bytes, n), NULL, &ds, err));
    DLT_TRY(load_npy(arena, &ds, err));
    return dlt_samples_check(&ds, err);
}
