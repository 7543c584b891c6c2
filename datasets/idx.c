/* IDX files, the format of MNIST and its relatives: two zero bytes, a type, a rank, big-endian
 * sizes, then the elements (LeCun et al., yann.lecun.com/exdb/mnist). Plain or gzip. u8 images stay
 * u8, f32 and i32 become f32. Labels are one-dimensional u8 or i32 classes, or f32 values to
 * regress. */
#include "datasets/reader.h"

typedef struct IdxOpts {
    const char *idx, *labels;
    int64_t classes;
} IdxOpts;

static const DltField fields[] = {
    DLT_STR(IdxOpts, idx, .required = true, .main = true, .file = true,
            .help = "file of samples, plain or gzip", .example = "idx: train-images-idx3-ubyte.gz"),
    DLT_STR(IdxOpts, labels, .required = true, .file = true,
            .help = "file of labels, as many as samples: u8 or i32 classes from 0, or f32 values",
            .example = "labels: train-labels-idx1-ubyte.gz"),
    DLT_INT(IdxOpts, classes, .lo = 1, .hi = 1 << 24,
            .help = "number of classes; without it, the training set's highest label + 1",
            .example = "classes: 10"),
    DLT_FIELDS_END};

enum { IDX_U8 = 0x08, IDX_I32 = 0x0C, IDX_F32 = 0x0D, IDX_MAX_RANK = 5 };

typedef struct IdxFile {
    DltBlob *b;
    int type;
    int64_t n, count, bytes; /* records, elements and bytes of a record */
    int64_t header, total;   /* bytes of the header, of all contents */
    DltShape record;
} IdxFile;

typedef struct IdxState {
    IdxFile x;
    void *y; /* [n] i32 or [n, count] f32 */
} IdxState;

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Checks magic, sizes and their product against the file. */
static DltStatus read_header(IdxFile *f, const char *want, DltErr *err)
{
    uint8_t head[4 + 4 * IDX_MAX_RANK];
    int64_t got;
    DLT_TRY(dlt_blob_head(f->b, head, sizeof head, &got, err));
    if (got < 4 || head[0] != 0 || head[1] != 0) return dlt_blob_alien(f->b, want, err);
    f->type = head[2];
    int rank = head[3];
    if (f->type != IDX_U8 && f->type != IDX_I32 && f->type != IDX_F32)
        return dlt_blob_err(f->b, err,
                            "IDX element type 0x%02x is not supported; known: 0x08 (u8), 0x0c "
                            "(i32), 0x0d (f32)",
                            (unsigned)f->type);
    if (rank < 1 || rank > IDX_MAX_RANK)
        return dlt_blob_err(f->b, err, "IDX rank %d is out of range 1..%d", rank, IDX_MAX_RANK);
    f->header = 4 + 4 * (int64_t)rank;
    if (got < f->header) return dlt_blob_err(f->b, err, "the file is cut inside its header");
    DltShape all = {.rank = rank};
    for (int i = 0; i < rank; i++)
        all.dim[i] = big32(head + 4 + (size_t)i * 4);
    int64_t bytes;
    char text[DLT_SHAPE_TEXT];
    for (int i = 0; i < rank; i++)
        if (all.dim[i] == 0) return dlt_blob_err(f->b, err, "IDX size %d is 0: no data", i);
    if (!dlt_shape_bytes(&all, f->type == IDX_U8 ? 1 : 4, &bytes) ||
        __builtin_add_overflow(bytes, f->header, &f->total))
        return dlt_blob_err(f->b, err, "sizes %s are larger than any file",
                            dlt_shape_text(&all, text));
    f->n = all.dim[0];
    f->count = dlt_shape_span(&all, 1, rank);
    f->bytes = bytes / f->n;
    f->record = (DltShape){.rank = rank - 1};
    memcpy(f->record.dim, all.dim + 1, (size_t)(rank - 1) * sizeof all.dim[0]);
    if (f->b->bytes >= 0 && f->b->bytes != f->total)
        return dlt_blob_err(f->b, err, "has %lld bytes where its header %s announces %lld",
                            (long long)f->b->bytes, dlt_shape_text(&all, text),
                            (long long)f->total);
    return DLT_OK;
}

/* n big-endian words -> host order; i32 to f32 when they are samples. False: not exact in f32. */
static bool convert(void *words, int64_t n, bool to_float)
{
    uint8_t *p = words;
    for (int64_t i = 0; i < n; i++, p += 4) {
        int32_t v = (int32_t)big32(p);
        float f = (float)v;
        if (to_float && (v > DLT_EXACT_INT || v < -DLT_EXACT_INT)) return false;
        memcpy(p, to_float ? (void *)&f : (void *)&v, 4);
    }
    return true;
}

/* Labels in memory, as host numbers. */
static DltStatus load_labels(DltArena *arena, IdxFile *f, IdxState *s, DltDataset *ds, DltErr *err)
{
    DLT_TRY(read_header(f, "an IDX file of labels", err));
    if (f->n != s->x.n)
        return dlt_blob_err(f->b, err, "%lld labels for the %lld samples of %s", (long long)f->n,
                            (long long)s->x.n, s->x.b->path);
    if (f->record.rank > (f->type == IDX_F32))
        return dlt_blob_err(f->b, err,
                            "labels must have rank 1 (f32 values: 1 or 2), these have %d",
                            f->record.rank + 1);
    DLT_TRY(dlt_blob_load_memory(arena, f->b, f->total, err));
    int64_t bytes = f->n * f->count * 4;
    uint8_t *v = dlt_blob_pages(arena, bytes);
    if (v == NULL) return dlt_err(err, DLT_E_RESOURCE, "out of memory for %s", f->b->path);
    const uint8_t *from = f->b->mem + f->header;
    for (int64_t i = 0; f->type == IDX_U8 && i < f->n; i++)
        memcpy(v + 4 * i, &(int32_t){from[i]}, 4);
    if (f->type != IDX_U8) {
        memcpy(v, from, (size_t)bytes);
        convert(v, f->n * f->count, false);
    }
    s->y = v;
    ds->y_shape = f->record;
    ds->y_dtype = f->type == IDX_F32 ? DLT_F32 : DLT_I32;
    return DLT_OK;
}

/* y NULL: no targets are wanted. */
static DltStatus describe(DltArena *arena, DltBlob *x, DltBlob *y, const DltLabels *stated,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    IdxState *s = DLT_NEW(arena, IdxState);
    IdxFile labels = {.b = y};
    s->x.b = x;
    *ds = (DltDataset){.def = &dlt_dataset_idx, .state = s, .path = x->path, .bad = ds->bad};
    DLT_TRY(read_header(&s->x, "an IDX file of samples", err));
    DltShape r = s->x.record;
    if (r.rank == 0)
        r = dlt_shape1(1);
    else if (r.rank == 2)
        r = dlt_shape(3, (int64_t)1, r.dim[0], r.dim[1]);
    ds->n = s->x.n;
    ds->x_shape = r;
    ds->x_dtype = s->x.type == IDX_U8 ? DLT_U8 : DLT_F32;
    ds->x_scale = s->x.type == IDX_U8 && r.rank > 1 ? 1.0f / 255.0f : 1.0f;
    ds->channel_axis = 0;
    if (y == NULL) {
        dlt_like_targets(ds, like);
        return dlt_like_check(ds, like, err);
    }
    DLT_TRY(load_labels(arena, &labels, s, ds, err));
    if (ds->y_dtype == DLT_F32 && stated->stated > 0)
        return dlt_err_at(err, DLT_E_CONFIG, stated->stated_at,
                          "classes: %lld is stated, but %s holds f32 values, not classes",
                          (long long)stated->stated, y->path);
    if (ds->y_dtype == DLT_I32) {
        DltLabels l = *stated;
        l.b = y;
        l.v = s->y;
        l.n = ds->n;
        l.bad = ds->bad;
        DLT_TRY(dlt_labels_classes(arena, &l, like, &ds->classes, err));
    }
    return dlt_like_check(ds, like, err);
}

static DltStatus open_idx(DltArena *arena, const DltOpts *o, const char *folder,
                          const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const IdxOpts *opts = o->v;
    DltBlob *x, *y = NULL;
    DltLabels stated = {.stated = opts->classes,
                        .stated_at = dlt_opts_mark(o, offsetof(IdxOpts, classes))};
    DLT_TRY(
        dlt_blob_open(arena, folder, opts->idx, dlt_opts_mark(o, offsetof(IdxOpts, idx)), &x, err));
    if (!dlt_like_x_only(like))
        DLT_TRY(dlt_blob_open(arena, folder, opts->labels,
                              dlt_opts_mark(o, offsetof(IdxOpts, labels)), &y, err));
    return describe(arena, x, y, &stated, like, ds, err);
}

static DltStatus load_idx(DltArena *arena, DltDataset *ds, DltErr *err)
{
    IdxState *s = ds->state;
    DLT_TRY(dlt_blob_load(arena, s->x.b, s->x.total, err));
    if (ds->x_dtype == DLT_F32 || ds->y_dtype == DLT_F32) DLT_TRY(dlt_samples_check(ds, err));
    return dlt_fingerprint(ds, err);
}

static DltStatus read_idx(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                          DltErr *err)
{
    const IdxState *s = ds->state;
    DLT_TRY(dlt_blob_gather(s->x.b, s->x.header, s->x.bytes, id, n, x, err));
    dlt_targets_copy(ds, s->y, id, n, y);
    if (s->x.type == IDX_U8) return DLT_OK;
    for (int64_t i = 0; i < n; i++) {
        if (!convert((char *)x + i * s->x.bytes, s->x.count, s->x.type == IDX_I32))
            return dlt_blob_err(s->x.b, err,
                                "record %lld (from 0): a whole number beyond 2^24 does not fit f32",
                                (long long)id[i]);
    }
    return DLT_OK;
}

const DltDatasetDef dlt_dataset_idx = {
    .name = "idx",
    .help = "IDX files of samples and labels (MNIST and relatives), plain or gzip",
    .fields = fields,
    .opt_size = sizeof(IdxOpts),
    .skips = true,
    .open = open_idx,
    .load = load_idx,
    .read = read_idx,
};

DltStatus dlt_idx_check(DltArena *arena, const void *x, int64_t n_x, const void *y, int64_t n_y,
                        DltErr *err)
{
    DltDataset ds = {.n = 0};
    DltLabels stated = {0};
    DLT_TRY(describe(arena, dlt_blob_memory(arena, "samples", x, n_x),
                     dlt_blob_memory(arena, "labels", y, n_y), &stated, NULL, &ds, err));
    DLT_TRY(load_idx(arena, &ds, err));
    return dlt_samples_check(&ds, err);
}
