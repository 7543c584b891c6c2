/* CIFAR-10 and CIFAR-100 in their binary form (Krizhevsky 2009, cs.toronto.edu/~kriz/cifar.html):
 * records of one label byte (100: coarse and fine) and 3072 bytes, three 32x32 planes. A pattern
 * may name several files; they follow each other in the order of their names. */
#include "base/file.h"
#include "base/sys.h"
#include "datasets/reader.h"

enum { PIXELS = 3 * 32 * 32, CIFAR10_LABELS = 1, CIFAR100_LABELS = 2 };

static const char *const names10[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};
static const char *const names_coarse[] = {"aquatic_mammals",
                                           "fish",
                                           "flowers",
                                           "food_containers",
                                           "fruit_and_vegetables",
                                           "household_electrical_devices",
                                           "household_furniture",
                                           "insects",
                                           "large_carnivores",
                                           "large_man-made_outdoor_things",
                                           "large_natural_outdoor_scenes",
                                           "large_omnivores_and_herbivores",
                                           "medium_mammals",
                                           "non-insect_invertebrates",
                                           "people",
                                           "reptiles",
                                           "small_mammals",
                                           "trees",
                                           "vehicles_1",
                                           "vehicles_2"};
/* clang-format off */
static const char *const names100[] = {
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle",
    "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle",
    "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup",
    "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house",
    "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man",
    "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid",
    "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy",
    "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal",
    "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar",
    "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor",
    "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman",
    "worm"};
/* clang-format on */

typedef struct CifarOpts {
    const char *cifar10, *cifar100; /* one of them */
    int labels;
} CifarOpts;

enum { LABELS_FINE, LABELS_COARSE };
static const DltEnum label_choices[] = {
    {"fine", LABELS_FINE}, {"coarse", LABELS_COARSE}, {NULL, 0}};

static const DltField fields10[] = {
    DLT_STR(CifarOpts, cifar10, .required = true, .main = true, .file = true,
            .help = "binary file, or a pattern for several (*, ?, [abc])",
            .example = "cifar10: data_batch_*.bin"),
    DLT_FIELDS_END};
static const DltField fields100[] = {
    DLT_STR(CifarOpts, cifar100, .required = true, .main = true, .file = true,
            .help = "binary file, or a pattern for several (*, ?, [abc])",
            .example = "cifar100: train.bin"),
    DLT_ENUM(CifarOpts, labels, .choices = label_choices, .def = "fine",
             .help = "100 fine classes or 20 coarse ones", .example = "labels: coarse"),
    DLT_FIELDS_END};

/* What tells the variants apart. */
typedef struct Variant {
    const DltDatasetDef *def;
    int label_bytes, label_at, classes;
    const char *const *names;
} Variant;
static const Variant cifar10 = {&dlt_dataset_cifar10, CIFAR10_LABELS, 0, 10, names10};
static const Variant cifar100[] = {
    [LABELS_FINE] = {&dlt_dataset_cifar100, CIFAR100_LABELS, 1, 100, names100},
    [LABELS_COARSE] = {&dlt_dataset_cifar100, CIFAR100_LABELS, 0, 20, names_coarse},
};

typedef struct CifarFile {
    DltBlob *b;
    int64_t first, n; /* id of its first record, records */
} CifarFile;

typedef struct CifarState {
    const Variant *v;
    int n_file;
    CifarFile *file;
} CifarState;

/* Whole records only; a file of the other variant is called by its name. */
static DltStatus count_records(CifarFile *f, const Variant *v, DltErr *err)
{
    int64_t record = v->label_bytes + PIXELS, other = CIFAR10_LABELS + CIFAR100_LABELS + 2 * PIXELS;
    other -= record;
    if (f->b->coding != DLT_PLAIN)
        return dlt_blob_err(f->b, err, "this is gzip; unpack it first (gunzip)");
    if (f->b->bytes % record == 0) {
        f->n = f->b->bytes / record;
        return DLT_OK;
    }
    if (f->b->bytes % other == 0)
        return dlt_blob_err(
            f->b, err, "%lld bytes are whole records of %lld, not of %lld: this is %s",
            (long long)f->b->bytes, (long long)other, (long long)record,
            v == &cifar10 ? "CIFAR-100 (use cifar100:)" : "CIFAR-10 (use cifar10:)");
    char head[64];
    int64_t got;
    DLT_TRY(dlt_blob_head(f->b, head, sizeof head, &got, err));
    return dlt_blob_err(f->b, err,
                        "%lld bytes are not whole records of %lld (%lld are left over): the file "
                        "is cut or is no CIFAR binary file (it looks like %s)",
                        (long long)f->b->bytes, (long long)record,
                        (long long)(f->b->bytes % record), dlt_blob_kind(head, got));
}

static DltStatus open_files(DltArena *arena, const char *folder, const char *name, DltMark at,
                            CifarState *s, DltErr *err)
{
    DltBlob **blob;
    DLT_TRY(dlt_blob_list(arena, folder, name, at, &blob, &s->n_file, err));
    s->file = DLT_NEW_ARRAY(arena, s->n_file, CifarFile);
    for (int i = 0; i < s->n_file; i++)
        s->file[i].b = blob[i];
    return DLT_OK;
}

static DltStatus describe(CifarState *s, const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const Variant *v = s->v;
    *ds = (DltDataset){.def = v->def,
                       .state = s,
                       .path = s->file[0].b->path,
                       .bad = ds->bad,
                       .x_shape = dlt_shape(3, (int64_t)3, (int64_t)32, (int64_t)32),
                       .x_dtype = DLT_U8,
                       .x_scale = 1.0f / 255.0f,
                       .y_dtype = DLT_I32,
                       .classes = v->classes,
                       .class_name = v->names};
    for (int i = 0; i < s->n_file; i++) {
        s->file[i].first = ds->n;
        DLT_TRY(count_records(&s->file[i], v, err));
        ds->n += s->file[i].n;
    }
    return dlt_like_check(ds, like, err);
}

static DltStatus open_cifar(DltArena *arena, const DltOpts *o, const char *folder, const Variant *v,
                            const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const CifarOpts *opts = o->v;
    bool ten = opts->cifar10 != NULL;
    DltMark at =
        dlt_opts_mark(o, ten ? offsetof(CifarOpts, cifar10) : offsetof(CifarOpts, cifar100));
    CifarState *s = DLT_NEW(arena, CifarState);
    s->v = v;
    DLT_TRY(open_files(arena, folder, ten ? opts->cifar10 : opts->cifar100, at, s, err));
    return describe(s, like, ds, err);
}

static DltStatus open_cifar10(DltArena *arena, const DltOpts *o, const char *folder,
                              const DltDataset *like, DltDataset *ds, DltErr *err)
{
    return open_cifar(arena, o, folder, &cifar10, like, ds, err);
}

static DltStatus open_cifar100(DltArena *arena, const DltOpts *o, const char *folder,
                               const DltDataset *like, DltDataset *ds, DltErr *err)
{
    const CifarOpts *opts = o->v;
    return open_cifar(arena, o, folder, &cifar100[opts->labels], like, ds, err);
}

/* Reading every record once checks every label. */
static DltStatus load_cifar(DltArena *arena, DltDataset *ds, DltErr *err)
{
    (void)arena;
    DLT_TRY(dlt_samples_check(ds, err));
    return dlt_fingerprint(ds, err);
}

static const CifarFile *file_of(const CifarState *s, int64_t id)
{
    const CifarFile *f = s->file;
    while (id >= f->first + f->n)
        f++;
    return f;
}

enum { RUN = 16 }; /* records read at once */

/* `run` neighbouring records of one file: labels apart from pixels. */
static DltStatus read_run(const CifarState *s, int64_t id, int64_t run, uint8_t *x, int32_t *y,
                          DltErr *err)
{
    uint8_t scratch[RUN * (CIFAR100_LABELS + PIXELS)];
    const CifarFile *f = file_of(s, id);
    int64_t record = s->v->label_bytes + PIXELS;
    DLT_TRY(dlt_blob_read(f->b, (id - f->first) * record, run * record, scratch, err));
    for (int64_t i = 0; i < run; i++) {
        const uint8_t *from = scratch + i * record;
        y[i] = from[s->v->label_at];
        if (y[i] >= s->v->classes)
            return dlt_blob_err(f->b, err, "record %lld (from 0): label %d is out of range 0..%d",
                                (long long)(id + i - f->first), (int)y[i], s->v->classes - 1);
        memcpy(x + i * PIXELS, from + s->v->label_bytes, PIXELS);
    }
    return DLT_OK;
}

static DltStatus read_cifar(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                            DltErr *err)
{
    const CifarState *s = ds->state;
    for (int64_t i = 0, run; i < n; i += run) {
        const CifarFile *f = file_of(s, id[i]);
        int64_t end = f->first + f->n;
        run = 1;
        while (run < RUN && i + run < n && id[i + run] == id[i] + run && id[i] + run < end)
            run++;
        DLT_TRY(read_run(s, id[i], run, (uint8_t *)x + i * PIXELS, (int32_t *)y + i, err));
    }
    return DLT_OK;
}

const DltDatasetDef dlt_dataset_cifar10 = {
    .name = "cifar10",
    .help = "CIFAR-10 binary files: 32x32 RGB images of 10 classes",
    .fields = fields10,
    .opt_size = sizeof(CifarOpts),
    .skips = true,
    .open = open_cifar10,
    .load = load_cifar,
    .read = read_cifar,
};

const DltDatasetDef dlt_dataset_cifar100 = {
    .name = "cifar100",
    .help = "CIFAR-100 binary files: 32x32 RGB images of 100 classes (or 20 coarse ones)",
    .fields = fields100,
    .opt_size = sizeof(CifarOpts),
    .skips = true,
    .open = open_cifar100,
    .load = load_cifar,
    .read = read_cifar,
};

DltStatus dlt_cifar10_check(DltArena *arena, const void *bytes, int64_t n, DltErr *err)
{
    DltDataset ds = {.n = 0};
    CifarFile file = {.b = dlt_blob_memory(arena, "records", bytes, n)};
    CifarState s = {.v = &cifar10, .n_file = 1, .file = &file};
    if (n == 0) return dlt_blob_err(file.b, err, "the file is empty");
    DLT_TRY(describe(&s, NULL, &ds, err));
    return load_cifar(arena, &ds, err);
}
