/* .npy and .npz against files that NumPy 1.24.2 wrote (tests/golden/make_npy.py): order, byte order and
 * type are honoured or refused by name (CASES.md, C29); cuts, flips and lying sizes are found. */
#include "data_help.h"

#define GOLDEN "tests/golden/npy/"
enum { SAMPLES = 4, COUNT = 6 }; /* arrays of [4, 3, 2] */

static DltStatus open_pair(Help *h, const char *x, const char *y, const char *more, DltDataset *ds)
{
    char yaml[500];
    snprintf(yaml, sizeof yaml, "npy: " GOLDEN "%s\nlabels: " GOLDEN "%s\n%s\n", x, y, more);
    return help_open(h, "npy", yaml, ds);
}

/* Every element is its C index (b1: modulo 2), every label what make_npy.py wrote. */
static void check_values(Help *h, const DltDataset *ds, bool modulo)
{
    static const int32_t labels[SAMPLES] = {0, 1, 2, 1};
    assert_int_equal(ds->n, SAMPLES);
    for (int64_t i = 0; i < SAMPLES; i++) {
        float x[COUNT];
        uint8_t bytes[COUNT];
        int32_t y;
        help_read(h, ds, i, ds->x_dtype == DLT_U8 ? (void *)bytes : (void *)x, &y);
        assert_int_equal(y, labels[i]);
        for (int k = 0; k < COUNT; k++) {
            float got = ds->x_dtype == DLT_U8 ? (float)bytes[k] : x[k];
            int index = (int)i * COUNT + k;
            assert_true(got == (float)(modulo ? index % 2 : index));
        }
    }
}

static void reads_every_type_and_order(void **state)
{
    Help *h = *state;
    static const char *const types[] = {"lef4", "bef4", "lef8", "bef8", "lef2",
                                        "u1",   "lei4", "bei4", "lei8", "b1"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (int order = 0; order < 2; order++) {
            DltDataset ds;
            char name[40];
            bool u8 = strcmp(types[i], "u1") == 0, b1 = strcmp(types[i], "b1") == 0;
            snprintf(name, sizeof name, "%s_%c.npy", types[i], "CF"[order]);
            help_ok(h, open_pair(h, name, "labels.npy", "", &ds));
            assert_int_equal(ds.x_dtype, u8 ? DLT_U8 : DLT_F32);
            assert_int_equal(ds.x_shape.rank, u8 || b1 ? 3 : 2);
            assert_int_equal(dlt_shape_dim(&ds.x_shape, -2), 3);
            assert_int_equal(dlt_shape_dim(&ds.x_shape, -1), 2);
            assert_int_equal(ds.channel_axis, u8 || b1 ? 0 : 1);
            assert_int_equal(ds.classes, 3);
            check_values(h, &ds, b1);
        }
    }
}

static void reads_every_version_and_gzip(void **state)
{
    Help *h = *state;
    DltDataset ds;
    for (int v = 1; v <= 3; v++) {
        char name[40];
        snprintf(name, sizeof name, "version%d.npy", v);
        help_ok(h, open_pair(h, name, "labels.npy", "", &ds));
        check_values(h, &ds, false);
    }
    int64_t n, n_y, n_gz;
    const uint8_t *labels = help_file(h, GOLDEN "labels.npy", &n_y);
    const uint8_t *plain = help_file(h, GOLDEN "lef4_F.npy", &n);
    const uint8_t *gz = help_gzip(h, plain, n, &n_gz);
    help_ok(h, dlt_npy_check(h->arena, gz, n_gz, labels, n_y, &h->err));
    help_refused(h, dlt_npy_check(h->arena, gz, n_gz - 1, labels, n_y, &h->err), DLT_E_DATA,
                 "the file is cut");
    float y;
    float x[COUNT];
    help_ok(h, open_pair(h, "lef4_C.npy", "values.npy", "", &ds));
    assert_int_equal(ds.y_dtype, DLT_F32);
    help_read(h, &ds, 2, x, &y);
    assert_true(y == -2.0f);
}

static void reads_archives(void **state)
{
    Help *h = *state;
    DltDataset ds;
    help_ok(h, help_open(h, "npz", "npz: " GOLDEN "stored.npz\n", &ds));
    check_values(h, &ds, false);
    help_ok(h, help_open(h, "npz", "npz: " GOLDEN "deflated.npz\n", &ds));
    check_values(h, &ds, false);
    help_ok(h, help_open(h, "npz", "npz: " GOLDEN "deflated.npz\nx: y\ny: y\n", &ds));
    help_refused(h, help_open(h, "npz", "npz: " GOLDEN "stored.npz\nx: z\n", &ds), DLT_E_DATA,
                 "has no array 'z.npy'; it has: x.npy, y.npy");
    help_refused(h, help_open(h, "npz", "npz: " GOLDEN "labels.npy\n", &ds), DLT_E_DATA,
                 "this is a NumPy array (.npy), not an archive");
    help_refused(h, open_pair(h, "stored.npz", "labels.npy", "", &ds), DLT_E_DATA,
                 "this is a zip archive, not a NumPy array");
}

static void refuses_by_name(void **state)
{
    Help *h = *state;
    static const struct {
        const char *file, *part;
    } rows[] = {
        {"bad_object.npy", "Python objects ('|O') is never loaded"},
        {"bad_complex.npy", "element type '<c8' is not supported; known: f2, f4"},
        {"bad_record.npy", "records (structured dtype)"},
        {"bad_i2.npy", "element type '<i2' is not supported"},
        {"bad_text.npy", "element type '<U1' is not supported"},
        {"bad_scalar.npy", "a single number"},
        {"bad_empty.npy", "shape [0, 3]: no data"},
        {"bad_huge_int.npy",
         "record 0 (from 0), element 1: a value of type i8 that does not fit f32"},
        {"bad_huge_float.npy",
         "record 0 (from 0), element 1: a value of type f8 that does not fit"},
        {"bad_nan.npy", "record 2 (from 0): element 1 of the sample is NaN"},
    };
    DltDataset ds;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        help_refused(h, open_pair(h, rows[i].file, "labels.npy", "", &ds), DLT_E_DATA,
                     rows[i].part);
    help_refused(h, open_pair(h, "lef4_C.npy", "lef4_C.npy", "", &ds), DLT_E_DATA,
                 "targets must have rank 1 (values: 1 or 2), these have 3");
    help_refused(h, open_pair(h, "lef4_C.npy", "lei4_C.npy", "", &ds), DLT_E_DATA, "rank 1");
    help_refused(h, open_pair(h, "lef4_C.npy", "values.npy", "classes: 3", &ds), DLT_E_CONFIG,
                 "not classes");
    help_refused(h, open_pair(h, "lef4_C.npy", "labels.npy", "classes: 2", &ds), DLT_E_DATA,
                 "record 2 (from 0): label 2 is out of range 0..1");
    help_refused(h, open_pair(h, "lef4_C.npy", "labels.npy", "vocab: 10", &ds), DLT_E_DATA,
                 "ids must be whole numbers");
    help_refused(h, open_pair(h, "lei4_F.npy", "labels.npy", "vocab: 23", &ds), DLT_E_DATA,
                 "record 3 (from 0), element 5: id 23 is out of range 0..22");
    help_ok(h, open_pair(h, "lei4_F.npy", "labels.npy", "vocab: 24", &ds));
    int32_t id[COUNT], y;
    help_read(h, &ds, 3, id, &y);
    assert_int_equal(ds.x_dtype, DLT_I32);
    assert_int_equal(id[5], 23);
}

/* ---- files made here ---------------------------------------------------------------------- */

/* Version 1.0 header with `dict`, then n bytes 0, 1, 2 ...; returns the whole size. */
static int64_t make(uint8_t *to, const char *dict, int n)
{
    size_t len = strlen(dict);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (uint8_t)len;
    to[9] = (uint8_t)(len >> 8);
    memcpy(to + 10, dict, len);
    for (int i = 0; i < n; i++)
        to[10 + len + (size_t)i] = (uint8_t)i;
    return 10 + (int64_t)len + n;
}

static DltStatus check(Help *h, const char *dict, int n)
{
    uint8_t x[2000];
    uint8_t y[200];
    int64_t n_y = make(y, "{'descr':'|u1','fortran_order':False,'shape':(2,)}", 2);
    return dlt_npy_check(h->arena, x, make(x, dict, n), y, n_y, &h->err);
}

static void reads_header_literals(void **state)
{
    Help *h = *state;
    static const struct {
        const char *dict;
        int n;
    } good[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 24},
        {"{\"shape\": (2L, 3L), \"descr\": \"<f4\", \"fortran_order\": True}", 24},
        {" { 'shape':(2,),'descr':'|u1','fortran_order':False } ", 2},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        DltStatus status = check(h, good[i].dict, good[i].n);
        if (status != DLT_OK) fprintf(stderr, "%s\n", good[i].dict);
        help_ok(h, status);
    }
    static const struct {
        const char *dict;
        int n;
        const char *part;
    } bad[] = {
        {"", 0, "cut inside its header"},
        {"{}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6)}", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x", 24, "cannot be read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'shape': (2, 3)}", 24, "read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'other': 1}", 24, "read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,6)}", 24, "read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 23, "has 90 bytes where"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 25, "has 92 bytes where"},
        {"{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3)}", 24, "'=f4' is not supported"},
        {"{'descr': '<u1', 'fortran_order': False, 'shape': (24,)}", 24, "'<u1' is not supported"},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (2,2)}", 4, "does not fit"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 9223372036854775808)}", 24, "read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 9223372036854775807)}", 24,
         "larger"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 24,
         "larger"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2305843009213693951, 1)}", 24,
         "larger"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807,)}", 24, "larger"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 24,
         "larger"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", 24, "2 targets for the 3"},
    };
    help_bound_memory(16 << 20);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        help_refused(h, check(h, bad[i].dict, bad[i].n), DLT_E_DATA, bad[i].part);
    for (int i = 0; i < HELP_N_LIES; i++) {
        char dict[200];
        for (int k = 0; k < 3; k++) {
            unsigned long long lie = help_lie(i);
            if (lie == 2 || lie == 3) continue;
            snprintf(dict, sizeof dict,
                     "{'descr': '<f4', 'fortran_order': %s, 'shape': (%llu, %llu)}",
                     k == 0 ? "True" : "False", k == 1 ? 2 : lie, k == 0 ? 3 : lie);
            help_refused(h, check(h, dict, 24), DLT_E_DATA, "samples: ");
        }
    }
    help_bound_memory(0);
}

/* Cuts, tails and flips of whole files. What is accepted after a flip is a good file with other numbers:
 * .npy has no checksum of its own. Archives have one, so no flip in a member goes unseen. */
static void survives_cuts_and_flips(void **state)
{
    Help *h = *state;
    int64_t n, n_y;
    uint8_t *y = help_file(h, GOLDEN "labels.npy", &n_y);
    uint8_t *x = help_file(h, GOLDEN "lef4_F.npy", &n);
    for (int64_t cut = 0; cut < n; cut++)
        help_refused(h, dlt_npy_check(h->arena, x, cut, y, n_y, &h->err), DLT_E_DATA, "samples: ");
    for (int64_t bit = 0; bit < 8 * n; bit++) {
        x[bit / 8] ^= (uint8_t)(1 << bit % 8);
        DltStatus status = dlt_npy_check(h->arena, x, n, y, n_y, &h->err);
        if (status != DLT_OK) help_refused(h, status, DLT_E_DATA, ": ");
        x[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    help_ok(h, dlt_npy_check(h->arena, x, n, y, n_y, &h->err));
}

/* Offset of the central directory, as the end record (which has no comment) says. */
static int64_t directory_of(const uint8_t *zip, int64_t n)
{
    return zip[n - 6] | zip[n - 5] << 8;
}

/* The archive is good, or refused with a report that names it; with an arena of its own. */
static bool is_accepted(Help *h, const void *zip, int64_t n)
{
    DltArena *arena = dlt_arena_new();
    DltStatus status = dlt_npz_check(arena, zip, n, &h->err);
    if (status != DLT_OK) help_refused(h, status, DLT_E_DATA, "archive");
    dlt_arena_free(arena);
    return status == DLT_OK;
}

/* 8 bytes of lies at every place of the directory and the end record. */
static void lie_everywhere(Help *h, uint8_t *zip, int64_t n)
{
    for (int64_t at = directory_of(zip, n); at + 8 <= n; at++) {
        uint8_t keep[8];
        memcpy(keep, zip + at, 8);
        for (int i = 0; i < HELP_N_LIES; i++) {
            uint64_t lie = help_lie(i);
            memcpy(zip + at, &lie, i % 2 ? 8 : 4);
            (void)is_accepted(h, zip, n);
            memcpy(zip + at, keep, 8);
        }
    }
}

static void archives_survive(void **state)
{
    Help *h = *state;
    static const char *const files[] = {GOLDEN "stored.npz", GOLDEN "deflated.npz"};
    for (int f = 0; f < 2; f++) {
        int64_t n, silent = 0;
        uint8_t *z = help_file(h, files[f], &n);
        assert_true(is_accepted(h, z, n));
        help_bound_memory(16 << 20);
        for (int64_t cut = 0; cut < n; cut++)
            assert_false(is_accepted(h, z, cut));
        for (int64_t bit = 0; bit < 8 * n; bit++) {
            z[bit / 8] ^= (uint8_t)(1 << bit % 8);
            silent += is_accepted(h, z, n);
            z[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        /* times, versions, attributes, and sizes that the local headers repeat: no contents */
        assert_true(silent < 8 * 180);
        lie_everywhere(h, z, n);
        help_bound_memory(0);
    }
}

/* Pixel (c, y, x) of sample i is 100 i + 10 c + 2 y + x, written channels last. */
static void brings_channels_first(void **state)
{
    Help *h = *state;
    DltDataset ds;
    uint8_t file[400];
    char yaml[400];
    const char *dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 2, 3)}";
    int64_t n = make(file, dict, 24);
    uint8_t *p = file + n - 24;
    for (int i = 0; i < 24; i++)
        p[i] = (uint8_t)(100 * (i / 12) + 10 * (i % 3) + i / 3 % 4);
    const char *x = help_write("hwc.npy", file, n);
    n = make(file, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", 2);
    const char *y = help_write("hwc_y.npy", file, n);
    snprintf(yaml, sizeof yaml, "npy: %s\nlabels: %s\n", x, y);
    help_refused(h, help_open(h, "npy", yaml, &ds), DLT_E_DATA, "say `layout: hwc`");
    snprintf(yaml, sizeof yaml, "npy: %s\nlabels: %s\nlayout: hw\n", x, y);
    help_refused(h, help_open(h, "npy", yaml, &ds), DLT_E_DATA, "hw needs samples of rank 2");
    snprintf(yaml, sizeof yaml, "npy: %s\nlabels: %s\nlayout: chw\n", x, y);
    help_ok(h, help_open(h, "npy", yaml, &ds));
    assert_int_equal(ds.x_shape.dim[2], 3);
    snprintf(yaml, sizeof yaml, "npy: %s\nlabels: %s\nlayout: hwc\n", x, y);
    help_ok(h, help_open(h, "npy", yaml, &ds));
    assert_int_equal(ds.x_shape.dim[0], 3);
    uint8_t got[12];
    int32_t label;
    help_read(h, &ds, 1, got, &label);
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(got[4 * c + k], 100 + 10 * c + k);
    unlink(x);
    unlink(y);
}

/* Elements that straddle the reader's blocks of 4096 bytes, in both orders and with channels last. */
static void crosses_blocks(void **state)
{
    enum { H = 37, W = 29, C = 3, N = 3, ALL = N * H * W * C };
    Help *h = *state;
    uint8_t *file = DLT_NEW_ARRAY(h->arena, ALL * 8 + 400, uint8_t);
    const char *dict = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 37, 29, 3)}";
    int64_t head = make(file, dict, 0);
    for (int i = 0; i < ALL; i++)
        memcpy(file + head + 8 * i, &(double){i}, 8);
    const char *x = help_write("big.npy", file, head + ALL * 8);
    int64_t n = make(file, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", 3);
    const char *y = help_write("big_y.npy", file, n);
    char yaml[400];
    DltDataset ds;
    snprintf(yaml, sizeof yaml, "npy: %s\nlabels: %s\nlayout: hwc\n", x, y);
    help_ok(h, help_open(h, "npy", yaml, &ds));
    float *got = DLT_NEW_ARRAY(h->arena, H * W * C, float);
    int32_t label;
    for (int i = 0; i < N; i++) {
        help_read(h, &ds, i, got, &label);
        for (int c = 0; c < C; c++)
            for (int k = 0; k < H * W; k++)
                assert_true(got[c * H * W + k] == (float)((i * H * W + k) * C + c));
    }
    unlink(x);
    unlink(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(reads_every_type_and_order),
        help_test(reads_every_version_and_gzip),
        help_test(reads_archives),
        help_test(refuses_by_name),
        help_test(reads_header_literals),
        help_test(survives_cuts_and_flips),
        help_test(archives_survive),
        help_test(brings_channels_first),
        help_test(crosses_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
