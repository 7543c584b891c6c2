/* The readers' seldom branches, by table: zip archives with 64-bit fields and lies in each, sets that do not
 * agree with the training set, options that contradict. Every row has the words of its own report. */
#include "data_help.h"
#include "tokenizer_help.h"

#include "base/sys.h"
#include "datasets/npy.h"
#include "datasets/reader.h"
#include "datasets/vocab.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <zlib.h>

#define HELP_COUNT(rows) (sizeof(rows) / sizeof(rows)[0])

/* ---- zip archives ------------------------------------------------------------------------- */

typedef struct Archive {
    uint8_t bytes[2000];
    int64_t n, local, directory, end64, locator, end;
} Archive;

static void add(Archive *a, const void *bytes, int64_t n)
{
    memcpy(a->bytes + a->n, bytes, (size_t)n);
    a->n += n;
}

static void put(Archive *a, int64_t at, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        a->bytes[at + i] = (uint8_t)(v >> 8 * i);
}

static void put_more(Archive *a, uint64_t v, int n)
{
    put(a, a->n, v, n);
    a->n += n;
}

/* x.npy and y.npy of golden files, stored, with every size and offset in 64 bits. */
static void archive64(Help *h, Archive *a)
{
    static const char *const files[] = {"tests/golden/npy/lef4_C.npy",
                                        "tests/golden/npy/labels.npy"};
    int64_t local[2], size[2];
    uint32_t crc[2];
    *a = (Archive){.n = 0};
    for (int i = 0; i < 2; i++) {
        int64_t n;
        const uint8_t *bytes = help_file(h, files[i], &n);
        crc[i] = (uint32_t)crc32_z(0, bytes, (size_t)n);
        local[i] = a->n;
        size[i] = n;
        add(a, "PK\3\4\55\0\0\0\0\0\0\0\0\0", 14);
        put_more(a, crc[i], 4);
        put_more(a, 0xffffffff, 4);
        put_more(a, 0xffffffff, 4);
        put_more(a, 5, 2);
        put_more(a, 0, 2);
        add(a, i == 0 ? "x.npy" : "y.npy", 5);
        add(a, bytes, n);
    }
    a->directory = a->n;
    for (int i = 0; i < 2; i++) {
        add(a, "PK\1\2\55\0\55\0\0\0\0\0\0\0\0\0", 16);
        put_more(a, crc[i], 4);
        put_more(a, 0xffffffff, 4);
        put_more(a, 0xffffffff, 4);
        put_more(a, 5, 2);
        put_more(a, 8 + 28, 2); /* another field, then that of zip64 */
        add(a, "\0\0\0\0\0\0\0\0\0\0", 10);
        put_more(a, 0xffffffff, 4);
        add(a, i == 0 ? "x.npy" : "y.npy", 5);
        add(a, "\x99\x99\4\0abcd", 8);
        put_more(a, 1, 2);
        put_more(a, 24, 2);
        put_more(a, (uint64_t)size[i], 8);
        put_more(a, (uint64_t)size[i], 8);
        put_more(a, (uint64_t)local[i], 8);
    }
    a->end64 = a->n;
    add(a, "PK\6\6", 4);
    put_more(a, 44, 8);
    add(a, "\55\0\55\0\0\0\0\0\0\0\0\0", 12);
    put_more(a, 2, 8);
    put_more(a, 2, 8);
    put_more(a, (uint64_t)(a->end64 - a->directory), 8);
    put_more(a, (uint64_t)a->directory, 8);
    a->locator = a->n;
    add(a, "PK\6\7\0\0\0\0", 8);
    put_more(a, (uint64_t)a->end64, 8);
    put_more(a, 1, 4);
    a->end = a->n;
    add(a, "PK\5\6\0\0\0\0", 8);
    put_more(a, 0xffff, 2);
    put_more(a, 0xffff, 2);
    put_more(a, 0xffffffff, 4);
    put_more(a, 0xffffffff, 4);
    put_more(a, 0, 2);
}

static void zip64(void **state)
{
    Help *h = *state;
    Archive a;
    archive64(h, &a);
    help_ok(h, dlt_npz_check(h->arena, a.bytes, a.n, &h->err));
    const int64_t entry = a.directory, extra = entry + 46 + 5;
    const struct {
        int64_t at;
        uint64_t v;
        int n;
        const char *part;
    } rows[] = {
        {a.locator, 0, 1, "no zip64 end record"},
        {a.locator + 8, UINT64_MAX, 8, "no zip64 end record"},
        {a.locator + 8, (uint64_t)a.end64 + 1, 8, "no zip64 end record"},
        {a.end64, 0, 1, "no zip64 end record"},
        {a.end64 + 1, 0, 1, "no zip64 end record"},
        {a.end64 + 2, 0, 1, "no zip64 end record"},
        {a.end64 + 3, 0, 1, "no zip64 end record"},
        {a.end64 + 32, 3, 8, "its directory is malformed"},
        {a.end64 + 32, 1, 8, "another length"},
        {a.end64 + 40, 17 << 20, 8, "more than 16 MiB"},
        {a.end64 + 40, 1999, 8, "outside the file"},
        {a.end64 + 48, (uint64_t)a.end, 8, "outside the file"},
        {a.end64 + 48, UINT64_MAX, 8, "outside the file"},
        {entry, 0, 1, "its directory is malformed"},
        {entry + 28, 6000, 2, "its directory is malformed"},
        {extra + 2, 900, 2, "its directory is malformed"},
        {extra + 10, 16, 2, "its directory is malformed"}, /* the third size is not there */
        {extra + 12, 1, 8, "a stored member has two sizes"},
        {extra + 28, UINT64_MAX, 8, "lies outside the file"},
        {extra + 28, 5, 8, "disagree"},
        {entry + 8, 1, 2, "is encrypted"},
        {entry + 10, 9, 2, "packed with method 9"},
        {entry + 87 + 46, 'x', 1, "has two members 'x.npy'"},
        {entry + 46, 'z', 1, "has no array 'x.npy'; it has: z.npy, y.npy"},
        {entry + 16, 1, 4, "checksum"},
        {a.local + 26, 4, 2, "disagree"},
        {a.local + 28, 60000, 2, "disagree"},
        {a.local + 8, 8, 2, "disagree"},
        {0, 'Q', 1, "archive of arrays"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        Archive bad = a;
        put(&bad, rows[i].at, rows[i].v, rows[i].n);
        help_refused(h, dlt_npz_check(h->arena, bad.bytes, bad.n, &h->err), DLT_E_DATA,
                     rows[i].part);
    }
    for (int both = 0; both < 3; both++) { /* sizes that agree and are too large */
        Archive bad = a;
        put(&bad, extra + 12, both == 0 ? UINT64_MAX : both == 1 ? (uint64_t)a.n : 1u << 30, 8);
        put(&bad, extra + 20, both == 0 ? UINT64_MAX : both == 1 ? (uint64_t)a.n : 1u << 30, 8);
        help_refused(h, dlt_npz_check(h->arena, bad.bytes, bad.n, &h->err), DLT_E_DATA, "");
    }
    /* the old end record alone: nothing in front of it, then too little */
    for (int64_t before = 0; before < 60; before += 10) {
        uint8_t *tail = DLT_NEW_ARRAY(h->arena, 100, uint8_t);
        memcpy(tail, "PK", 2);
        memcpy(tail + before, a.bytes + a.end, 22);
        DltStatus status = dlt_npz_check(h->arena, tail, before + 22, &h->err);
        assert_int_equal(status, DLT_E_DATA);
        dlt_err_init(&h->err);
    }
}

/* ---- agreement ---------------------------------------------------------------------------- */

static void must_be_like(void **state)
{
    Help *h = *state;
    const DltDataset train = {.x_shape = dlt_shape1(4),
                              .x_dtype = DLT_F32,
                              .y_shape = {.rank = 0},
                              .y_dtype = DLT_I32,
                              .classes = 3};
    for (int i = 0; i < 7; i++) {
        DltDataset ds = train, like = train;
        static const char *const parts[] = {NULL,
                                            "a sample has shape",
                                            "samples are u8",
                                            "a target has shape",
                                            "targets are values, the training set has classes",
                                            "targets are classes, the training set has values",
                                            "the number of classes is 2"};
        ds.path = "x";
        if (i == 1) ds.x_shape = dlt_shape1(5);
        if (i == 2) ds.x_dtype = DLT_U8;
        if (i == 3) ds.y_shape = dlt_shape1(2);
        if (i == 4) ds.y_dtype = DLT_F32;
        if (i == 5) like.y_dtype = DLT_F32;
        if (i == 6) ds.classes = 2;
        DltStatus status = dlt_like_check(&ds, &like, &h->err);
        if (parts[i] == NULL)
            help_ok(h, status);
        else
            help_refused(h, status, DLT_E_DATA, parts[i]);
    }
    DltDataset ds = train;
    help_ok(h, dlt_like_check(&ds, NULL, &h->err));
}

/* Sets of other formats and other numbers of classes after a table, and options that contradict. */
static void tables_and_others(void **state)
{
    Help *h = *state;
    static const char three[] = "a,y\n1,p\n2,q\n3,r\n", values[] = "a,y\n1,0.5\n2,1.5\n3,2.5\n";
    const char *table = help_write("three.csv", three, sizeof three - 1);
    const char *number = help_write("values.csv", values, sizeof values - 1);
    DltDataset train, ds;
    const char *yaml = dlt_arena_printf(h->arena, "{csv: %s, target: y}", table);
    help_ok(h, help_open(h, "csv", yaml, &train));
    const struct {
        const char *more, *file, *part;
        DltStatus status;
    } rows[] = {
        {"class_names: [p, q]", table, "2 names here, but the training set has 3", DLT_E_CONFIG},
        {"class_names: [p, r, q]", table, "class 1 is 'r' here and 'q' in the training set",
         DLT_E_CONFIG},
        {"class_names: [p, q, r]", table, NULL, DLT_OK},
        {"class_names: [p, p, r]", table, "'p' stands twice", DLT_E_CONFIG},
        {"target_type: values", table, "'p' is no number, and the target is numbers", DLT_E_DATA},
        {"target_type: values", number, "targets are values, the training set has classes",
         DLT_E_DATA},
        {"", number, "class '0.5' is not among the 3 classes of the training set", DLT_E_DATA},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        yaml = dlt_arena_printf(h->arena, "{csv: %s, target: y%s%s}", rows[i].file,
                                rows[i].more[0] != '\0' ? ", " : "", rows[i].more);
        DltStatus status = help_open_like(h, "csv", yaml, &train, &ds);
        if (rows[i].part == NULL)
            help_ok(h, status);
        else
            help_refused(h, status, rows[i].status, rows[i].part);
    }
    /* a training set that is no table: numbered classes, and values */
    DltDataset other = train;
    other.def = &dlt_dataset_npy;
    other.class_name = NULL;
    yaml = dlt_arena_printf(h->arena, "{csv: %s, target: y, class_names: [p, q, r]}", table);
    help_ok(h, help_open_like(h, "csv", yaml, &other, &ds));
    yaml = dlt_arena_printf(h->arena, "{csv: %s, target: y}", table);
    help_ok(h, help_open_like(h, "csv", yaml, &other, &ds));
    other.y_dtype = DLT_F32;
    other.classes = 0;
    yaml = dlt_arena_printf(h->arena, "{csv: %s, target: y}", number);
    help_ok(h, help_open_like(h, "csv", yaml, &other, &ds));
    static const struct {
        const char *text, *yaml, *part;
    } bad[] = {
        {"a,b,y\n1,2,3\n", "{csv: t, target: [y, y]}", "named twice"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: y, ignore: y}", "is a target too"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: y, categorical: y}", "is a target too"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: y, ignore: a, categorical: a}", "is named in"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: [b, y], class_names: [u, v]}", "cannot be classes"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: [b, y], target_type: classes}", "cannot be classes"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: y, target_type: values, class_names: [u]}",
         "so it has no classes"},
        {"a,b,y\n1,2,3\n", "{csv: t, target: z}", "has no column 'z'"},
        {"y\n1\n", "{csv: t, target: z}", "is `separator:` right?"},
        {"y\n1\n", "{csv: t, target: y}", "no column is left"},
        {"\xf5\x80,y\n1,2\n", "{csv: t, target: y}", "is not UTF-8"},
        {"\xf4,y\n1,2\n", "{csv: t, target: y}", "is not UTF-8"},
        {"\xc1\x80,y\n1,2\n", "{csv: t, target: y}", "is not UTF-8"},
        {"\"a\n,y\n1,2\n", "{csv: t, target: y}", "quote"},
        {"a,y\n1,0\n1,\"x\n", "{csv: t, target: y, target_type: classes}", "quote"},
        {"a,y\n,1.5\n,2.5\n", "{csv: t, target: y, missing: mean}", "is empty: it has no mean"},
        {"a,y\n,1.5\n,2.5\n", "{csv: t, target: y, categorical: a, missing: mean}", "is empty"},
        {"a,y\n1,5\n2,7\n", "{csv: t, target: y}", "that are not 0..C-1"},
        {"a,y\n1,0\n2,2\n", "{csv: t, target: y}", "that are not 0..C-1"},
        {"a,y\n1,0\n2,99999\n", "{csv: t, target: y}", "that are not 0..C-1"},
        {"a,y\n1,0\n2,u\n", "{csv: t, target: y}", "holds numbers and words"},
        {"a,y\n1,u\n2,u\n", "{csv: t, target: y}", "has only one class"},
        {"a,y\n1;5,u\n2,v\n", "{csv: t, target: y}", "is no number"},
        {"a,y\n\"1,x\",u\n2,v\n", "{csv: t, target: y}", "is no number"},
        {"a,y\n\"1,\",u\n2,v\n", "{csv: t, target: y}", "is no number"},
    };
    for (size_t i = 0; i < HELP_COUNT(bad); i++) {
        const DltOpts *o = help_opts(h, "csv", bad[i].yaml);
        DltStatus status =
            dlt_csv_check(h->arena, bad[i].text, (int64_t)strlen(bad[i].text), o, &h->err);
        if (status != DLT_E_DATA && status != DLT_E_CONFIG) fail_msg("row %zu: %d", i, (int)status);
        help_refused(h, status, status, bad[i].part);
    }
}

/* More categories, classes and columns than a table may have. */
static void wide_tables(void **state)
{
    Help *h = *state;
    enum { MANY = (1 << 16) + 10, WORDS = (1 << 12) + 2, BYTES = 1 << 20 };
    char *text = dlt_arena_new_bytes(h->arena, BYTES, 1);
    int64_t n = 0;
    for (int i = 0; i < MANY; i++)
        n += snprintf(text + n, (size_t)(BYTES - n), "c%d,", i);
    n += snprintf(text + n, (size_t)(BYTES - n), "y\n1\n");
    help_refused(
        h, dlt_csv_check(h->arena, text, n, help_opts(h, "csv", "{csv: t, target: y}"), &h->err),
        DLT_E_DATA, "more than 65536");
    n = snprintf(text, BYTES, "a,y\n");
    for (int i = 0; i < WORDS; i++)
        n += snprintf(text + n, (size_t)(BYTES - n), "w%d,%d\n", i, i % 2);
    help_refused(h,
                 dlt_csv_check(h->arena, text, n,
                               help_opts(h, "csv", "{csv: t, target: y, categorical: a}"), &h->err),
                 DLT_E_DATA, "more than 4096 categories");
    n = snprintf(text, BYTES, "a,y\n");
    for (int i = 0; i < MANY; i++)
        n += snprintf(text + n, (size_t)(BYTES - n), "1,w%d\n", i);
    static const char *const types[] = {"auto", "classes"};
    for (int i = 0; i < 2; i++) {
        const char *yaml =
            dlt_arena_printf(h->arena, "{csv: t, target: y, target_type: %s}", types[i]);
        help_refused(h, dlt_csv_check(h->arena, text, n, help_opts(h, "csv", yaml), &h->err),
                     DLT_E_DATA, "more than 65536 classes");
    }
}

/* ---- windows ------------------------------------------------------------------------------ */

static void windows_of_tokens(void **state)
{
    Help *h = *state;
    uint16_t id[60];
    for (int i = 0; i < 60; i++)
        id[i] = (uint16_t)(i % 7);
    const char *path = help_write("w.bin", id, sizeof id);
    static const struct {
        const char *more, *part; /* NULL: accepted */
    } rows[] = {
        {"window: 4", NULL},
        {"window: 4, vocab: 7, eot: 6", NULL},
        {"window: 4, vocab: 7, eot: 7", "eot"},
        {"window: 4, eot: 9", "9 is no id of a vocabulary of 7"},
        {"window: 4, limit: 9 steps", "is counted in tokens"},
        {"window: 4, limit: 9 tokens", NULL},
        {"window: 4, limit: 9000 tokens", NULL},
        {"window: 4, eot: 0, documents: split, shift: epoch", "cannot move them"},
        {"window: 4, eot: 0, documents: split", NULL},
        {"window: 4, vocab: 100000", "cannot hold a vocabulary of 100000"},
        {"window: 4, vocab: 3", "but the vocabulary has 3 ids"},
        {"window: 99", "fewer than the 100"},
    };
    for (size_t i = 0; i < HELP_COUNT(rows); i++) {
        DltDataset ds = {.n = 0};
        const char *yaml =
            dlt_arena_printf(h->arena, "{tokens: %s, layout: raw16, %s}", path, rows[i].more);
        DltStatus status = help_open(h, "tokens", yaml, &ds);
        if (rows[i].part == NULL)
            help_ok(h, status);
        else
            help_refused(h, status, status, rows[i].part);
    }
    DltDataset train = {.n = 0}, ds = {.n = 0};
    const char *yaml =
        dlt_arena_printf(h->arena, "{tokens: %s, layout: raw16, window: 4, vocab: 9}", path);
    help_ok(h, help_open(h, "tokens", yaml, &train));
    yaml = dlt_arena_printf(h->arena, "{tokens: %s, layout: raw16, window: 4, vocab: 8}", path);
    help_refused(h, help_open_like(h, "tokens", yaml, &train, &ds), DLT_E_CONFIG,
                 "8, but the training set has 9 ids");
    yaml = dlt_arena_printf(h->arena, "{tokens: %s, layout: raw16, window: 5}", path);
    help_refused(h, help_open_like(h, "tokens", yaml, &train, &ds), DLT_E_DATA, "");
    double bytes = 0;
    DltSplit all = dlt_split_all(h->arena, &train);
    help_refused(h, dlt_split_bytes(&all, &bytes, &h->err), DLT_E_CONFIG, "");
    help_refused(h, help_open(h, "tokens", "{tokens: /none*.bin, window: 4}", &ds), DLT_E_DATA, "");
    DltTokenizer chars = {.def = dlt_tokenizer_find("chars"), .eot = -1};
    ds.tokenizer = &chars;
    yaml = dlt_arena_printf(h->arena, "{tokens: %s, layout: raw16, window: 4}", path);
    help_refused(h, help_open(h, "tokens", yaml, &ds), DLT_E_CONFIG, "learns from text");
}

/* Samples that stand in two sets, by splits with and without ids. */
static void shared_samples(void **state)
{
    Help *h = *state;
    static const char a[] = "a,y\n1,p\n2,q\n3,p\n4,q\n", b[] = "a,y\n9,p\n3,q\n8,p\n3,p\n";
    DltDataset x, y;
    const char *one = help_write("one.csv", a, sizeof a - 1);
    const char *two = help_write("two.csv", b, sizeof b - 1);
    help_ok(h, help_open(h, "csv", dlt_arena_printf(h->arena, "{csv: %s, target: y}", one), &x));
    help_ok(h, help_open(h, "csv", dlt_arena_printf(h->arena, "{csv: %s, target: y}", two), &y));
    DltSplit all = {&x, 4, NULL}, held = {&y, 4, NULL}, some = {&y, 2, (const int64_t[]){2, 3}};
    DltSplit none = {&y, 2, (const int64_t[]){0, 2}};
    int64_t n, first;
    help_ok(h, dlt_samples_shared(&all, &held, &n, &first, &h->err));
    assert_int_equal(n, 2);
    assert_int_equal(first, 1);
    help_ok(h, dlt_samples_shared(&all, &some, &n, &first, &h->err));
    assert_int_equal(n, 1);
    assert_int_equal(first, 3);
    help_ok(h, dlt_samples_shared(&all, &none, &n, &first, &h->err));
    assert_int_equal(n, 0);
    assert_int_equal(first, -1);
}

/* A signal that came before or while a set is read ends the reading without a report: what is wrong at the
 * end of a file is not reached. */
static void signals_end_reading(void **state)
{
    Help *h = *state;
    int64_t n;
    char *text = dlt_arena_new_bytes(h->arena, 1 << 20, 1);
    int used = snprintf(text, 100, "a,y\n");
    for (int i = 0; i < 9000; i++)
        used += snprintf(text + used, 100, "%d,%d\n", i, i % 2);
    used += snprintf(text + used, 100, "1,2,3\n");
    const char *table = help_write("long.csv", text, used);
    uint8_t *gz = help_gzip(h, (const uint8_t *)text, used, &n);
    gz[n - 5] ^= 1; /* of the checksum */
    const char *packed = help_write("long.gz", gz, n);
    uint8_t *zip = help_file(h, "tests/golden/npy/stored.npz", &n);
    zip[200] ^= 1; /* of the first array's numbers, which have a checksum */
    const char *archive = help_write("long.npz", zip, n);
    DltDataset damaged = {.n = 0};
    help_refused(h, help_open(h, "npz", dlt_arena_printf(h->arena, "{npz: %s}", archive), &damaged),
                 DLT_E_DATA, "the contents are damaged");
    pid_t pid = fork();
    if (pid == 0) {
        const struct {
            const char *format, *yaml;
        } sets[] = {
            {"csv", dlt_arena_printf(h->arena, "{csv: %s, target: y}", table)},
            {"csv", dlt_arena_printf(h->arena, "{csv: %s, target: y}", packed)},
            {"npy", "{npy: tests/golden/npy/lef8_F.npy, labels: tests/golden/npy/labels.npy}"},
            {"npz", dlt_arena_printf(h->arena, "{npz: %s}", archive)},
            {"cifar10", "{cifar10: datasets/samples/cifar10_small_test.bin}"},
        };
        dlt_sys_signals_install();
        raise(SIGTERM);
        int wrong = 0;
        for (size_t i = 0; i < HELP_COUNT(sets); i++) {
            DltDataset ds = {.n = 0};
            wrong += help_open(h, sets[i].format, sets[i].yaml, &ds) != DLT_SIGTERM;
        }
        DltOpts *o = help_opts(h, "csv", "{csv: t, target: y}");
        wrong += dlt_csv_check(h->arena, text, used, o, &h->err) != DLT_SIGTERM;
        DltTokenizer t;
        DltIds ids = {0};
        wrong += help_tokenizer(h, "gpt2",
                                "{vocab: tests/golden/gpt2/encoder.json, merges: "
                                "tests/golden/gpt2/vocab.bpe}",
                                &t) != DLT_OK;
        wrong += dlt_tokenizer_encode(&t, "t", 0, (const uint8_t *)"a b", 3, &ids, &h->err) !=
                 DLT_SIGTERM;
        exit(wrong + 10 * (h->err.n > 0));
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(signals_end_reading), help_test(zip64),       help_test(must_be_like),
        help_test(tables_and_others),   help_test(wide_tables), help_test(windows_of_tokens),
        help_test(shared_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
