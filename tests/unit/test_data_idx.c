/* IDX and gzip: right values, every way of being damaged, lying headers (RELIABILITY.md 2.7, 2.9). */
#include "data_help.h"

/* n samples of 2x3 with pixel = 6 i + k, labels i % 3. */
enum { N = 6, PIXELS = 6, X_BYTES = 16 + N * PIXELS, Y_BYTES = 8 + N };

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void make_x(uint8_t x[X_BYTES])
{
    memcpy(x, "\0\0\x08\x03", 4);
    put32(x + 4, N);
    put32(x + 8, 2);
    put32(x + 12, 3);
    for (int i = 0; i < N * PIXELS; i++)
        x[16 + i] = (uint8_t)i;
}

static void make_y(uint8_t y[Y_BYTES])
{
    memcpy(y, "\0\0\x08\x01", 4);
    put32(y + 4, N);
    for (int i = 0; i < N; i++)
        y[8 + i] = (uint8_t)(i % 3);
}

static void check_good(Help *h, const char *x, const char *y)
{
    DltDataset ds;
    uint8_t pixel[PIXELS];
    int32_t label;
    char yaml[600];
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", x, y);
    help_ok(h, help_open(h, "idx", yaml, &ds));
    assert_int_equal(ds.n, N);
    assert_int_equal(ds.x_shape.rank, 3);
    assert_int_equal(ds.x_shape.dim[0], 1);
    assert_int_equal(ds.x_shape.dim[1], 2);
    assert_int_equal(ds.x_shape.dim[2], 3);
    assert_int_equal(ds.x_dtype, DLT_U8);
    assert_true(ds.x_scale == 1.0f / 255.0f);
    assert_int_equal(ds.channel_axis, 0);
    assert_int_equal(ds.y_shape.rank, 0);
    assert_int_equal(ds.y_dtype, DLT_I32);
    assert_int_equal(ds.classes, 3);
    for (int i = N - 1; i >= 0; i--) {
        help_read(h, &ds, i, pixel, &label);
        assert_int_equal(label, i % 3);
        for (int k = 0; k < PIXELS; k++)
            assert_int_equal(pixel[k], PIXELS * i + k);
    }
}

static void reads_plain_and_gzip(void **state)
{
    Help *h = *state;
    uint8_t x[X_BYTES], y[Y_BYTES];
    int64_t n_x, n_y;
    make_x(x);
    make_y(y);
    const uint8_t *gx = help_gzip(h, x, X_BYTES, &n_x), *gy = help_gzip(h, y, Y_BYTES, &n_y);
    const char *px = help_write("x", x, X_BYTES), *py = help_write("y", y, Y_BYTES);
    const char *zx = help_write("x.gz", gx, n_x), *zy = help_write("y.gz", gy, n_y);
    check_good(h, px, py);
    check_good(h, zx, zy);
    check_good(h, px, zy);
    unlink(px);
    unlink(py);
    unlink(zx);
    unlink(zy);
}

/* Fashion-MNIST's published counts: 60,000 of 28x28 in 10 classes of 6,000; its first label is 9 (an
 * ankle boot). Mean 0.2860 and deviation 0.3530 are the usual normalisation of the set. */
static void reads_fashion_mnist(void **state)
{
    Help *h = *state;
    DltDataset ds;
    const char folder[] = "/usr/share/datasets/fashion-mnist";
    if (access(folder, R_OK) != 0) skip();
    help_ok(h, help_open(h, "idx",
                         "idx: /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz\n"
                         "labels: /usr/share/datasets/fashion-mnist/train-labels-idx1-ubyte.gz\n",
                         &ds));
    assert_int_equal(ds.n, 60000);
    assert_int_equal(ds.classes, 10);
    uint8_t pixel[784];
    int32_t label;
    int64_t count[10] = {0};
    for (int64_t i = ds.n - 1; i >= 0; i--) {
        help_read(h, &ds, i, pixel, &label);
        count[label]++;
    }
    assert_int_equal(label, 9);
    for (int i = 0; i < 10; i++)
        assert_int_equal(count[i], 6000);
    double *mean, *std;
    DltSplit all = {&ds, ds.n, NULL};
    help_ok(h, dlt_norm_measure(h->arena, &all, &mean, &std, &h->err));
    assert_true(mean[0] > 0.28595 && mean[0] < 0.28605 && std[0] > 0.35295 && std[0] < 0.35305);
}

static void reads_other_types(void **state)
{
    Help *h = *state;
    DltDataset ds;
    uint8_t x[16 + 12] = "\0\0\x0d\x02\0\0\0\x03\0\0\0\x01"; /* f32 [3, 1] */
    uint8_t y[16 + 12] = "\0\0\x0c\x01\0\0\0\x03";           /* i32 [3] */
    put32(x + 12, 0x3f800000);                               /* 1 */
    put32(x + 16, 0xc0200000);                               /* -2.5 */
    put32(x + 20, 0x00000000);
    for (uint32_t i = 0; i < 3; i++)
        put32(y + 8 + 4 * i, i);
    float v;
    int32_t label;
    char yaml[600];
    const char *px = help_write("f32", x, 24), *py = help_write("i32", y, 20);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", px, py);
    help_ok(h, help_open(h, "idx", yaml, &ds));
    assert_int_equal(ds.x_dtype, DLT_F32);
    assert_int_equal(ds.classes, 3);
    help_read(h, &ds, 1, &v, &label);
    assert_true(v == -2.5f);
    assert_int_equal(label, 1);
    /* the same numbers as values to regress, and i32 as samples */
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", py, px);
    help_ok(h, help_open(h, "idx", yaml, &ds));
    assert_int_equal(ds.y_dtype, DLT_F32);
    assert_int_equal(ds.classes, 0);
    float target;
    help_read(h, &ds, 1, &v, &target);
    assert_true(v == 1.0f && target == -2.5f);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\nclasses: 3\n", py, px);
    help_refused(h, help_open(h, "idx", yaml, &ds), DLT_E_CONFIG, "not classes");
    /* NaN is found at load, 2^24 + 1 is not exact in f32 */
    put32(x + 16, 0x7fc00000);
    help_refused(h, dlt_idx_check(h->arena, x, 24, y, 20, &h->err), DLT_E_DATA,
                 "record 1 (from 0): element 0 of the sample is NaN");
    put32(y + 12, (1 << 24) + 1);
    help_refused(h, dlt_idx_check(h->arena, y, 20, x, 24, &h->err), DLT_E_DATA, "beyond 2^24");
    unlink(px);
    unlink(py);
}

static DltStatus check(Help *h, const void *x, int64_t n_x, const void *y, int64_t n_y)
{
    return dlt_idx_check(h->arena, x, n_x, y, n_y, &h->err);
}

static void refuses_wrong_labels(void **state)
{
    Help *h = *state;
    uint8_t x[X_BYTES], y[8 + 4 * N];
    make_x(x);
    make_y(y);
    help_ok(h, check(h, x, X_BYTES, y, Y_BYTES));
    for (int i = 0; i < N; i++)
        y[8 + i] = (uint8_t)(i % 3 + 1);
    help_refused(h, check(h, x, X_BYTES, y, Y_BYTES), DLT_E_DATA, "labels run from 1 to 3");
    for (int i = 0; i < N; i++)
        y[8 + i] = (uint8_t)(i % 2 * 2);
    help_refused(h, check(h, x, X_BYTES, y, Y_BYTES), DLT_E_DATA, "(1 does not)");
    memset(y + 8, 0, N);
    help_refused(h, check(h, x, X_BYTES, y, Y_BYTES), DLT_E_DATA, "every label is 0");
    static const int32_t bad[][2] = {{1456, 1580}, {-1, 0}, {INT32_MAX, 0}, {INT32_MIN, 0}};
    memcpy(y, "\0\0\x0c\x01", 4);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        for (int i = 0; i < N; i++)
            put32(y + 8 + 4 * i, (uint32_t)bad[k][i % 2]);
        help_refused(h, check(h, x, X_BYTES, y, sizeof y), DLT_E_DATA, "must be 0..C-1");
    }
}

static void stated_classes_are_law(void **state)
{
    Help *h = *state;
    DltDataset train, val;
    uint8_t x[X_BYTES], y[Y_BYTES];
    char yaml[600];
    make_x(x);
    make_y(y);
    const char *px = help_write("sx", x, X_BYTES), *py = help_write("sy", y, Y_BYTES);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\nclasses: 10\n", px, py);
    help_ok(h, help_open(h, "idx", yaml, &train));
    assert_int_equal(train.classes, 10);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\nclasses: 2\n", px, py);
    help_refused(h, help_open(h, "idx", yaml, &val), DLT_E_DATA,
                 "record 2 (from 0): label 2 is out of range 0..1 (2 classes, as stated)");
    /* val takes the training set's number, may lack classes, and must not contradict */
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", px, py);
    help_ok(h, help_open_like(h, "idx", yaml, &train, &val));
    assert_int_equal(val.classes, 10);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\nclasses: 3\n", px, py);
    help_refused(h, help_open_like(h, "idx", yaml, &train, &val), DLT_E_CONFIG,
                 "3 is stated here, but the training set has 10");
    train.classes = 2;
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", px, py);
    help_refused(h, help_open_like(h, "idx", yaml, &train, &val), DLT_E_DATA,
                 "2 classes, as in the training set");
    train.classes = 3;
    train.x_shape.dim[1] = 28;
    help_refused(h, help_open_like(h, "idx", yaml, &train, &val), DLT_E_DATA,
                 "a sample has shape [1, 2, 3], the training set has [1, 28, 3]");
    unlink(px);
    unlink(py);
}

static void refuses_every_cut_and_tail(void **state)
{
    Help *h = *state;
    uint8_t x[X_BYTES + 1] = {0}, y[Y_BYTES + 1] = {0};
    make_x(x);
    make_y(y);
    for (int64_t n = 0; n <= X_BYTES + 1; n++) {
        if (n != X_BYTES) help_refused(h, check(h, x, n, y, Y_BYTES), DLT_E_DATA, "samples: ");
    }
    for (int64_t n = 0; n <= Y_BYTES + 1; n++) {
        if (n != Y_BYTES) help_refused(h, check(h, x, X_BYTES, y, n), DLT_E_DATA, "labels: ");
    }
    help_refused(h, check(h, y, Y_BYTES, x, X_BYTES), DLT_E_DATA, "rank 1");
    put32(y + 4, N - 1);
    help_refused(h, check(h, x, X_BYTES, y, Y_BYTES - 1), DLT_E_DATA, "5 labels for the 6 samples");
}

static void names_what_it_is_not(void **state)
{
    Help *h = *state;
    uint8_t y[Y_BYTES];
    make_y(y);
    static const struct {
        const char *bytes;
        int n;
        const char *part;
    } rows[] = {
        {"<!DOCTYPE html><html>404 not found</html>", 41, "HTML (a web page"},
        {"\n  <html><body>moved</body>", 26, "HTML (a web page"},
        {"a,b\n1,2\n", 8, "this is text, not an IDX file"},
        {"\x89PNG\r\n\x1a\n????????", 16, "a PNG image"},
        {"PK\x03\x04????????????", 16, "a zip archive"},
        {"", 0, "empty"},
        {"\0\0\x08", 3, "not an IDX file"},
        {"\0\0\x08\0", 4, "rank 0 is out of range"},
        {"\0\0\x08\x09", 4, "rank 9 is out of range"},
        {"\0\0\x0e\x01\0\0\0\x01", 8, "type 0x0e is not supported"},
        {"\0\0\x0b\x01\0\0\0\x01", 8, "type 0x0b is not supported"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        help_refused(h, check(h, rows[i].bytes, rows[i].n, y, Y_BYTES), DLT_E_DATA, rows[i].part);
        int64_t n;
        const uint8_t *gz = help_gzip(h, rows[i].bytes, rows[i].n, &n);
        help_refused(h, check(h, gz, n, y, Y_BYTES), DLT_E_DATA,
                     i < 5 ? " inside gzip, not" : rows[i].part);
    }
}

/* Every header integer with every power of two and its neighbours, alone and in pairs: a DATA report,
 * and no memory beyond the file and 16 MiB. */
static void survives_lying_headers(void **state)
{
    Help *h = *state;
    uint8_t x[X_BYTES], y[Y_BYTES];
    make_y(y);
    help_bound_memory(16 << 20);
    for (int field = 0; field < 4; field++) {
        for (int i = 0; i < 33 * 3; i++) {
            make_x(x);
            if ((uint32_t)help_lie(i) == (field == 3 ? N : field == 0 ? N : field == 1 ? 2 : 3))
                continue;
            if (field < 3)
                put32(x + 4 + 4 * field, (uint32_t)help_lie(i));
            else
                put32(y + 4, (uint32_t)help_lie(i));
            help_refused(h, check(h, x, X_BYTES, y, Y_BYTES), DLT_E_DATA, "s: ");
            make_y(y);
        }
    }
    for (int i = 0; i < 33 * 3; i++) {
        for (int k = 0; k < 33 * 3; k++) {
            make_x(x);
            put32(x + 4, (uint32_t)help_lie(i));
            put32(x + 8, (uint32_t)help_lie(k));
            put32(x + 12, (uint32_t)help_lie((i + k) % (33 * 3)));
            DltStatus status = check(h, x, X_BYTES, y, Y_BYTES);
            if (status == DLT_OK) fail_msg("accepted sizes %d %d", i, k);
            help_refused(h, status, DLT_E_DATA, "samples: ");
        }
    }
    help_bound_memory(0);
}

/* A rank of 5 and sizes whose product wraps to the right number of bytes modulo 2^64. */
static void survives_wrapping_products(void **state)
{
    Help *h = *state;
    uint8_t x[24 + 4] = "\0\0\x08\x05", y[Y_BYTES];
    static const uint32_t sizes[][5] = {
        {1u << 31, 1u << 31, 4, 1, 1}, /* 2^64 = 0 */
        {1u << 31, 1u << 31, 2, 1, 1}, /* 2^63: negative */
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
        {641, 6700417, 1u << 31, 2, 1}, /* (2^32 + 1) * 2^32 = 2^32 modulo 2^64 */
        {1u << 16, 1u << 16, 1u << 16, 1u << 16, 4},
    };
    make_y(y);
    help_bound_memory(16 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int k = 0; k < 5; k++)
            put32(x + 4 + 4 * k, sizes[i][k]);
        help_refused(h, check(h, x, sizeof x, y, Y_BYTES), DLT_E_DATA, "samples: ");
    }
    help_bound_memory(0);
}

/* ---- gzip --------------------------------------------------------------------------------- */

/* The contents through the own loop, or NULL. */
static const uint8_t *inflated(Help *h, const void *gz, int64_t n, int64_t expected)
{
    DltBlob *b = dlt_blob_memory(h->arena, "file.gz", gz, n);
    DltStatus status = dlt_blob_load_memory(h->arena, b, expected, &h->err);
    if (status != DLT_OK) {
        assert_int_equal(status, DLT_E_DATA);
        return NULL;
    }
    if (expected < 0) assert_true(b->bytes > 0);
    return b->mem;
}

static void gz_refused(Help *h, const void *gz, int64_t n, int64_t expected, const char *part)
{
    assert_null(inflated(h, gz, n, expected));
    help_refused(h, DLT_E_DATA, DLT_E_DATA, part);
}

enum { CONTENT = 3000 };

static void make_content(char text[CONTENT])
{
    for (int i = 0; i < CONTENT; i++)
        text[i] = (char)(i * i / 7 + i);
}

static void gzip_traps(void **state)
{
    Help *h = *state;
    char text[CONTENT];
    int64_t n;
    make_content(text);
    uint8_t *gz = help_gzip(h, text, CONTENT, &n);
    assert_memory_equal(inflated(h, gz, n, CONTENT), text, CONTENT);
    assert_memory_equal(inflated(h, gz, n, -1), text, CONTENT);
    gz_refused(h, gz, n, CONTENT - 1, "holds more than the 2999 bytes");
    gz_refused(h, gz, n, CONTENT + 1, "holds 3000 bytes where its header announces 3001");
    gz_refused(h, gz, n, (int64_t)1 << 50, "more than");
    /* cut at every byte, the trailer's last included; with and without the size known */
    for (int64_t cut = 18; cut < n; cut++) {
        gz_refused(h, gz, cut, CONTENT, "file.gz: the file is cut");
        gz_refused(h, gz, cut, -1, "file.gz: the file is cut");
    }
    /* two members are joined, zeros may follow, nothing else may */
    uint8_t *more = DLT_NEW_ARRAY(h->arena, 2 * n + 600, uint8_t);
    memcpy(more, gz, (size_t)n);
    memcpy(more + n, gz, (size_t)n);
    const uint8_t *both = inflated(h, more, 2 * n, 2 * CONTENT);
    assert_memory_equal(both + CONTENT, text, CONTENT);
    assert_non_null(inflated(h, more, 2 * n + 512, 2 * CONTENT));
    gz_refused(h, more, 2 * n - 1, 2 * CONTENT, "the file is cut");
    more[2 * n] = 'x';
    gz_refused(h, more, 2 * n + 1, 2 * CONTENT, "1 bytes of something else follow");
    more[2 * n] = 0;
    more[2 * n + 5] = 0x1f;
    gz_refused(h, more, 2 * n + 6, 2 * CONTENT, "6 bytes of something else follow");
}

/* A flipped bit is found, or was in a part of the header that means nothing (time, system, name). */
static void gzip_flips(void **state)
{
    Help *h = *state;
    char text[CONTENT];
    int64_t n, silent = 0;
    make_content(text);
    uint8_t *gz = help_gzip(h, text, CONTENT, &n);
    for (int64_t bit = 0; bit < 8 * n; bit++) {
        gz[bit / 8] ^= (uint8_t)(1 << bit % 8);
        DltBlob *b = dlt_blob_memory(h->arena, "f", gz, n);
        bool gzip = b->coding == DLT_GZIP;
        const uint8_t *mem = gzip ? inflated(h, gz, n, CONTENT) : NULL;
        if (mem != NULL) {
            assert_memory_equal(mem, text, CONTENT);
            assert_true(bit < 80);
            silent++;
        }
        dlt_err_init(&h->err);
        gz[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(silent >= 32 &&
                silent <= 56); /* time 32 bits, extra flags 8, system 8, FTEXT ... */
}

/* Kilobytes that the process has held at most since the last call with `forget`. */
static long most_kib(bool forget)
{
    char line[128];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        (void)(sscanf(line, forget ? "VmRSS: %ld" : "VmHWM: %ld", &kib) == 1);
    fclose(f);
    if (!forget) return kib;
    f = fopen("/proc/self/clear_refs", "w");
    if (f == NULL || fputs("5", f) < 0 || fclose(f) != 0) skip();
    return kib;
}

/* Besides what the header announces a mebibyte at most. */
static void gzip_bombs(void **state)
{
    enum { MEGA = 1 << 20, BOMB = 100, KIB = 1024 };
    static const struct {
        int64_t expected;
        const char *part; /* of the refusal, NULL: all is well */
    } rows[] = {{-1, "decompression bomb"},
                {MEGA, "holds more than the 1048576 bytes"},
                {4 * MEGA + 1, "holds more than the 4194305 bytes"},
                {BOMB * MEGA, NULL}};
    Help *h = *state;
    uint8_t *zeros = DLT_NEW_ARRAY(h->arena, BOMB * MEGA, uint8_t);
    int64_t n;
    uint8_t *gz = help_gzip(h, zeros, BOMB * MEGA, &n);
    assert_true(n < MEGA); /* about a factor of 1,000 */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        long before = most_kib(true);
        if (rows[i].part != NULL)
            gz_refused(h, gz, n, rows[i].expected, rows[i].part);
        else
            assert_non_null(inflated(h, gz, n, rows[i].expected));
        int64_t beside = most_kib(false) - before;
        if (rows[i].expected > 0) beside -= rows[i].expected / KIB;
        print_message("a bomb with %lld bytes announced: %lld KiB beside them\n",
                      (long long)rows[i].expected, (long long)beside);
#ifndef __SANITIZE_ADDRESS__
        assert_true(beside <= MEGA / KIB);
#endif
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(reads_plain_and_gzip),
        help_test(reads_fashion_mnist),
        help_test(reads_other_types),
        help_test(refuses_wrong_labels),
        help_test(stated_classes_are_law),
        help_test(refuses_every_cut_and_tail),
        help_test(names_what_it_is_not),
        help_test(survives_lying_headers),
        help_test(survives_wrapping_products),
        help_test(gzip_traps),
        help_test(gzip_flips),
        help_test(gzip_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
