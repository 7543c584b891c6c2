/* CIFAR, synthetic sets, the samples in datasets/samples, paths, large files and the table of
 * formats. */
#include "data_help.h"
#include <math.h>
#include <sys/stat.h>

#define SAMPLES "datasets/samples/"

/* ---- CIFAR --------------------------------------------------------------------------------- */

enum { RECORD10 = 3073, RECORD100 = 3074, PIXELS = 3072 };

static void make_record(uint8_t *r, int label_bytes, int label, int seed)
{
    memset(r, 0, (size_t)label_bytes);
    r[label_bytes - 1] = (uint8_t)label;
    for (int i = 0; i < PIXELS; i++)
        r[label_bytes + i] = (uint8_t)(seed * 7 + i);
}

static void reads_cifar_files_in_order(void **state)
{
    enum { N = 45 }; /* more than one run of the reader, over three files */
    Help *h = *state;
    uint8_t *r = DLT_NEW_ARRAY(h->arena, N * RECORD10, uint8_t);
    for (int i = 0; i < N; i++)
        make_record(r + i * RECORD10, 1, i % 10, i);
    const char *a = help_write("batch_1.bin", r, 20 * RECORD10);
    const char *b = help_write("batch_2.bin", r + 20 * RECORD10, RECORD10);
    const char *c = help_write("batch_3.bin", r + 21 * RECORD10, 24 * RECORD10);
    char yaml[300];
    DltDataset ds;
    snprintf(yaml, sizeof yaml, "cifar10: /tmp/dlt_data_%ld_batch_*.bin\n", (long)getpid());
    help_ok(h, help_open(h, "cifar10", yaml, &ds));
    assert_int_equal(ds.n, N);
    assert_int_equal(ds.classes, 10);
    assert_string_equal(ds.class_name[6], "frog");
    uint8_t *x = DLT_NEW_ARRAY(h->arena, N * PIXELS, uint8_t);
    int32_t y[N];
    int64_t id[N];
    for (int pass = 0; pass < 2; pass++) { /* in order, and shuffled */
        for (int i = 0; i < N; i++)
            id[i] = pass == 0 ? i : i * 7 % N;
        help_ok(h, ds.def->read(&ds, id, N, x, y, &h->err));
        for (int i = 0; i < N; i++) {
            assert_int_equal(y[i], id[i] % 10);
            assert_memory_equal(x + i * PIXELS, r + id[i] * RECORD10 + 1, PIXELS);
        }
    }
    r[33 * RECORD10] = 255; /* record 12 of the third file */
    unlink(c);
    c = help_write("batch_3.bin", r + 21 * RECORD10, 24 * RECORD10);
    help_refused(h, help_open(h, "cifar10", yaml, &ds), DLT_E_DATA,
                 "batch_3.bin: record 12 (from 0): label 255 is out of range 0..9");
    unlink(a);
    unlink(b);
    unlink(c);
    help_refused(h, help_open(h, "cifar10", yaml, &ds), DLT_E_DATA, "no file matches /tmp/dlt");
    help_refused(h, help_open(h, "cifar10", "cifar10: /tmp/no_such_folder/*.bin\n", &ds),
                 DLT_E_DATA, "/tmp/no_such_folder/*.bin");
}

static void tells_cifar_variants_apart(void **state)
{
    Help *h = *state;
    DltDataset ds;
    uint8_t *r = DLT_NEW_ARRAY(h->arena, 2 * RECORD100, uint8_t);
    char yaml[300];
    make_record(r, 2, 99, 1);
    make_record(r + RECORD100, 2, 7, 2);
    r[0] = 19;
    const char *p = help_write("c100.bin", r, 2 * RECORD100);
    int32_t y;
    uint8_t x[PIXELS];
    snprintf(yaml, sizeof yaml, "cifar100: %s\n", p);
    help_ok(h, help_open(h, "cifar100", yaml, &ds));
    help_read(h, &ds, 0, x, &y);
    assert_int_equal(y, 99);
    assert_int_equal(ds.classes, 100);
    assert_string_equal(ds.class_name[99], "worm");
    snprintf(yaml, sizeof yaml, "cifar100: %s\nlabels: coarse\n", p);
    help_ok(h, help_open(h, "cifar100", yaml, &ds));
    help_read(h, &ds, 0, x, &y);
    assert_int_equal(y, 19);
    assert_string_equal(ds.class_name[19], "vehicles_2");
    snprintf(yaml, sizeof yaml, "cifar10: %s\n", p);
    help_refused(h, help_open(h, "cifar10", yaml, &ds), DLT_E_DATA, "this is CIFAR-100");
    unlink(p);
    /* cut anywhere, and other kinds of files */
    for (int64_t n = 0; n <= RECORD10 + 1; n += n < 5 ? 1 : 307)
        if (n != RECORD10)
            help_refused(h, dlt_cifar10_check(h->arena, r, n, &h->err), DLT_E_DATA, "records: ");
    help_refused(h, dlt_cifar10_check(h->arena, "<html>gone</html>", 17, &h->err), DLT_E_DATA,
                 "it looks like HTML");
    help_refused(h, dlt_cifar10_check(h->arena, "\x1f\x8b\x08?", 4, &h->err), DLT_E_DATA, "gunzip");
}

/* ---- samples ------------------------------------------------------------------------------- */

static void samples_are_what_they_say(void **state)
{
    Help *h = *state;
    DltDataset ds;
    float x[13];
    int32_t y;
    help_ok(h, help_open(h, "csv", "csv: " SAMPLES "iris.csv\ntarget: species\n", &ds));
    assert_int_equal(ds.n, 150);
    assert_int_equal(ds.x_shape.dim[0], 4);
    assert_string_equal(ds.class_name[0], "setosa");
    assert_string_equal(ds.class_name[2], "virginica");
    help_read(h, &ds, 149, x, &y);
    assert_true(x[0] == 5.9f && x[1] == 3.0f && x[2] == 5.1f && x[3] == 1.8f && y == 2);
    /* means of Fisher's table: 5.843, 3.057, 3.758, 1.199 */
    static const double iris_mean[] = {5.8433333, 3.0573333, 3.758, 1.1993333};
    double *mean, *std;
    DltSplit all = {&ds, ds.n, NULL};
    help_ok(h, dlt_norm_measure(h->arena, &all, &mean, &std, &h->err));
    for (int i = 0; i < 4; i++)
        assert_true(fabs(mean[i] - iris_mean[i]) < 1e-6);
    help_ok(h, help_open(h, "csv", "csv: " SAMPLES "wine.csv\ntarget: cultivar\n", &ds));
    assert_int_equal(ds.n, 178);
    assert_int_equal(ds.x_shape.dim[0], 13);
    assert_int_equal(ds.classes, 3);
    help_ok(h, help_open(h, "idx",
                         "idx: " SAMPLES "digits-images.idx3.gz\nlabels: " SAMPLES
                         "digits-labels.idx1.gz\n",
                         &ds));
    assert_int_equal(ds.n, 1797);
    assert_int_equal(ds.classes, 10);
    assert_int_equal(ds.x_shape.dim[1], 8);
    help_ok(h, help_open(h, "cifar10", "cifar10: " SAMPLES "cifar10_small_train.bin\n", &ds));
    assert_int_equal(ds.n, 1000);
    help_ok(h, help_open(h, "cifar10", "cifar10: " SAMPLES "cifar10_small_test.bin\n", &ds));
    assert_int_equal(ds.n, 300);
}

/* ---- synthetic ----------------------------------------------------------------------------- */

/* The nearest of the training set's class means. */
static int nearest(const float *x, const double *mean, int classes, int width)
{
    int best = 0;
    double least = INFINITY;
    for (int c = 0; c < classes; c++) {
        double d = 0;
        for (int k = 0; k < width; k++)
            d += ((double)x[k] - mean[c * width + k]) * ((double)x[k] - mean[c * width + k]);
        if (d < least) {
            least = d;
            best = c;
        }
    }
    return best;
}

/* Class means of 1,000 samples tell the classes of 300 others: the set can be learnt, and val is made of
 * other samples of the same classes. */
static void synthetic_can_be_learnt(void **state)
{
    enum { CLASSES = 5, WIDTH = 30, VAL = 300 };
    Help *h = *state;
    DltDataset train, again, val;
    double mean[CLASSES * WIDTH] = {0};
    int count[CLASSES] = {0}, right = 0;
    float x[WIDTH], x2[WIDTH];
    int32_t y, y2;
    const char *yaml = "shape: 30\nclasses: 5\nsamples: 1000\nseed: 3\n";
    help_ok(h, help_open(h, "synthetic", yaml, &train));
    help_ok(h, help_open(h, "synthetic", yaml, &again));
    assert_true(train.fingerprint == again.fingerprint);
    help_ok(h,
            help_open_like(h, "synthetic", "shape: 30\nclasses: 5\nsamples: 300\n", &train, &val));
    for (int64_t i = 0; i < train.n; i++) {
        help_read(h, &train, i, x, &y);
        help_read(h, &again, i, x2, &y2);
        assert_int_equal(y, y2);
        assert_memory_equal(x, x2, sizeof x);
        count[y]++;
        for (int k = 0; k < WIDTH; k++)
            mean[y * WIDTH + k] += (double)x[k];
    }
    for (int c = 0; c < CLASSES; c++) {
        assert_true(count[c] > 150);
        for (int k = 0; k < WIDTH; k++)
            mean[c * WIDTH + k] /= count[c];
    }
    for (int64_t i = 0; i < val.n; i++) {
        help_read(h, &val, i, x, &y);
        help_read(h, &train, i, x2, &y2);
        assert_memory_not_equal(x, x2, sizeof x);
        right += nearest(x, mean, CLASSES, WIDTH) == y;
    }
    assert_true(right > VAL * 9 / 10);
    help_refused(h,
                 help_open_like(h, "synthetic", "shape: 30\nclasses: 5\nseed: 4\n", &train, &val),
                 DLT_E_CONFIG, "4 here, 3 in the training set");
}

/* Noise has mean 0 and deviation 1; values are linear in x: the same samples twice as noisy give twice
 * the value. */
static void synthetic_values(void **state)
{
    enum { WIDTH = 7 };
    Help *h = *state;
    DltDataset one, two;
    float x[WIDTH], v1, v2;
    double *mean, *std;
    help_ok(h, help_open(h, "synthetic", "shape: 7\nclasses: 0\nsamples: 3000\n", &one));
    help_ok(h, help_open(h, "synthetic", "shape: 7\nclasses: 0\nsamples: 3000\nnoise: 2\n", &two));
    assert_int_equal(one.y_dtype, DLT_F32);
    assert_int_equal(one.classes, 0);
    for (int64_t i = 0; i < 50; i++) {
        help_read(h, &one, i, x, &v1);
        help_read(h, &two, i, x, &v2);
        assert_true(fabsf(2 * v1 - v2) <= 1e-5f * fabsf(v2));
    }
    DltSplit all = {&one, one.n, NULL};
    help_ok(h, dlt_norm_measure(h->arena, &all, &mean, &std, &h->err));
    for (int k = 0; k < WIDTH; k++)
        assert_true(fabs(mean[k]) < 0.08 && fabs(std[k] - 1) < 0.06); /* 4 sigma of 3,000 draws */
    DltDataset bytes;
    uint8_t b[12];
    int32_t y;
    help_ok(h, help_open(h, "synthetic", "shape: [3, 2, 2]\ndtype: u8\n", &bytes));
    assert_int_equal(bytes.x_dtype, DLT_U8);
    assert_true(bytes.x_scale == 1.0f / 255.0f);
    help_read(h, &bytes, 999, b, &y);
}

/* ---- paths and sizes ----------------------------------------------------------------------- */

static void only_regular_files(void **state)
{
    Help *h = *state;
    DltDataset ds;
    char fifo[100], yaml[300];
    snprintf(fifo, sizeof fifo, "/tmp/dlt_data_%ld_fifo", (long)getpid());
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {"/dev/zero", "/dev/stdin", "/tmp", fifo};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        snprintf(yaml, sizeof yaml, "csv: %s\ntarget: y\n", paths[i]);
        DltStatus status = help_open(h, "csv", yaml, &ds);
        if (i == 1)
            dlt_err_init(&h->err); /* stdin may be a regular file here */
        else
            help_refused(h, status, DLT_E_DATA, "is no regular file");
    }
    unlink(fifo);
    help_refused(h, help_open(h, "csv", "csv: no/such.csv\ntarget: y\n", &ds), DLT_E_DATA,
                 "/no/such.csv: No such file or directory");
    const char *empty = help_write("empty", "", 0);
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", empty, empty);
    help_refused(h, help_open(h, "idx", yaml, &ds), DLT_E_DATA, "the file is empty");
    unlink(empty);
}

/* The report for a missing file stands at its place in the config and shows the absolute path (C14). */
static void missing_files_have_a_place(void **state)
{
    Help *h = *state;
    DltDataset ds;
    char cwd[1000];
    assert_true(dlt_sys_cwd(cwd, sizeof cwd));
    assert_int_equal(help_open(h, "idx", "labels: y\nidx: no/x\n", &ds), DLT_E_DATA);
    assert_string_equal(h->err.report[0].at.file, "test.yaml");
    assert_int_equal(h->err.report[0].at.line, 2);
    assert_non_null(strstr(h->err.report[0].text, cwd));
    dlt_err_init(&h->err);
}

/* Records behind 2^31, 2^32 and 5 GiB of a sparse file (C35). */
static void offsets_have_64_bits(void **state)
{
    enum { N = 5200, SIDE = 1024 };
    Help *h = *state;
    uint8_t head[16] = "\0\0\x08\x03\0\0\x14\x50\0\0\x04\0\0\0\x04\0"; /* 5200 x 1024 x 1024 */
    static const int64_t ids[] = {0, 2047, 2048, 4095, 4096, N - 1};
    const char *x = help_write("large", head, sizeof head);
    int fd = open(x, O_WRONLY);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        uint8_t mark[2] = {(uint8_t)(i + 1), (uint8_t)(i + 101)};
        assert_int_equal(pwrite(fd, mark, 1, 16 + ids[i] * SIDE * SIDE), 1);
        assert_int_equal(pwrite(fd, mark + 1, 1, 16 + (ids[i] + 1) * SIDE * SIDE - 1), 1);
    }
    close(fd);
    uint8_t *labels = DLT_NEW_ARRAY(h->arena, 8 + N, uint8_t);
    memcpy(labels, "\0\0\x08\x01\0\0\x14\x50", 8);
    for (int i = 0; i < N; i++)
        labels[8 + i] = (uint8_t)(i % 2);
    const char *y = help_write("large_y", labels, 8 + N);
    char yaml[300];
    DltDataset ds;
    snprintf(yaml, sizeof yaml, "idx: %s\nlabels: %s\n", x, y);
    DltStatus status = help_open(h, "idx", yaml, &ds);
    unlink(x);
    unlink(y);
    help_ok(h, status);
    uint8_t *image = DLT_NEW_ARRAY(h->arena, SIDE * SIDE, uint8_t);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        int32_t label;
        help_read(h, &ds, ids[i], image, &label);
        assert_int_equal(image[0], i + 1);
        assert_int_equal(image[SIDE * SIDE - 1], i + 101);
        assert_int_equal(label, ids[i] % 2);
    }
}

/* A file that shrinks after it was opened is an error of that read, not a crash. */
static void a_shrinking_file_is_an_error(void **state)
{
    Help *h = *state;
    DltDataset ds;
    uint8_t *r = DLT_NEW_ARRAY(h->arena, 3 * RECORD10, uint8_t);
    const char *p = help_write("shrink.bin", r, 3 * RECORD10);
    char yaml[300];
    snprintf(yaml, sizeof yaml, "cifar10: %s\n", p);
    help_ok(h, help_open(h, "cifar10", yaml, &ds));
    assert_int_equal(truncate(p, RECORD10), 0);
    uint8_t x[PIXELS];
    int32_t y;
    int64_t id = 2;
    help_refused(h, ds.def->read(&ds, &id, 1, x, &y, &h->err), DLT_E_DATA, "became shorter");
    unlink(p);
}

/* ---- prediction ----------------------------------------------------------------------------- */

/* With x_only in `like` the samples are read without targets; without it they are missed as ever. */
static void prediction_needs_no_targets(void **state)
{
    Help *h = *state;
    DltDataset train, ds;
    float x[8];
    int32_t y = 7;
    char yaml[400];
    static const char text[] =
        "petal_width,sepal_length,sepal_width,petal_length\n0.2,5.1,3.5,1.4\n";
    const char *path = help_write("new.csv", text, sizeof text - 1);
    help_ok(h, help_open(h, "csv", "csv: " SAMPLES "iris.csv\ntarget: species\n", &train));
    snprintf(yaml, sizeof yaml, "csv: %s\ntarget: species\n", path);
    help_refused(h, help_open_like(h, "csv", yaml, &train, &ds), DLT_E_DATA, "no column 'species'");
    train.x_only = true;
    help_ok(h, help_open_like(h, "csv", yaml, &train, &ds));
    unlink(path);
    help_read(h, &ds, 0, x, &y);
    assert_true(x[0] == 5.1f && x[3] == 0.2f && y == 0);
    assert_string_equal(ds.class_name[2], "virginica");
    help_ok(h,
            help_open_like(h, "csv", "csv: " SAMPLES "iris.csv\ntarget: species\n", &train, &ds));
    assert_int_equal(ds.x_shape.dim[0], 4); /* the target is no feature although it is there */
    static const char *const sets[][3] = {
        {"idx", "idx: " SAMPLES "digits-images.idx3.gz\nlabels: " SAMPLES "digits-labels.idx1.gz\n",
         "idx: " SAMPLES "digits-images.idx3.gz\nlabels: no/such/file\n"},
        {"npy", "npy: tests/golden/npy/lef4_F.npy\nlabels: tests/golden/npy/labels.npy\n",
         "npy: tests/golden/npy/bef4_C.npy\nlabels: no/such/file\n"},
        {"npz", "npz: tests/golden/npy/stored.npz\n",
         "npz: tests/golden/npy/deflated.npz\ny: none\n"},
    };
    for (int i = 0; i < 3; i++) {
        float sample[64];
        help_ok(h, help_open(h, sets[i][0], sets[i][1], &train));
        assert_int_equal(help_open_like(h, sets[i][0], sets[i][2], &train, &ds), DLT_E_DATA);
        dlt_err_init(&h->err);
        train.x_only = true;
        help_ok(h, help_open_like(h, sets[i][0], sets[i][2], &train, &ds));
        assert_int_equal(ds.classes, train.classes);
        assert_int_equal(ds.n, train.n);
        y = 7;
        help_read(h, &ds, ds.n - 1, sample, &y);
        assert_int_equal(y, 0);
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static void the_table_is_sound(void **state)
{
    Help *h = *state;
    int n = 0;
    for (; dlt_datasets[n] != NULL; n++) {
        const DltDatasetDef *d = dlt_datasets[n];
        assert_ptr_equal(dlt_dataset_find(d->name), d);
        assert_true(strlen(d->help) > 10);
        assert_non_null(d->open);
        assert_non_null(d->load);
        assert_non_null(d->read);
        assert_true(d->fields[0].main && d->fields[0].required);
        for (const DltField *f = d->fields; f->key != NULL; f++) {
            DltYaml *tree = NULL;
            assert_true(strlen(f->help) > 5);
            assert_true(f->offset < d->opt_size);
            help_ok(h, dlt_yaml_parse(h->arena, "example", f->example, (int64_t)strlen(f->example),
                                      &tree, &h->err));
            assert_string_equal(tree->key[0], f->key);
        }
    }
    assert_int_equal(n, 9);
    assert_null(dlt_dataset_find("mnist"));
}

/* Another label, another order, another name: another fingerprint. */
static void fingerprints_differ(void **state)
{
    Help *h = *state;
    static const char *const texts[] = {"a,y\n1,0\n2,1\n", "a,y\n2,1\n1,0\n", "a,y\n1,1\n2,0\n",
                                        "b,y\n1,0\n2,1\n", "a,y\n1,0\n2,1\n3,1\n"};
    uint64_t seen[5];
    for (int i = 0; i < 5; i++) {
        DltDataset ds;
        char yaml[300];
        const char *path = help_write("f.csv", texts[i], (int64_t)strlen(texts[i]));
        snprintf(yaml, sizeof yaml, "csv: %s\ntarget: y\n", path);
        help_ok(h, help_open(h, "csv", yaml, &ds));
        unlink(path);
        seen[i] = ds.fingerprint;
        for (int k = 0; k < i; k++)
            assert_true(seen[k] != seen[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(reads_cifar_files_in_order),
        help_test(tells_cifar_variants_apart),
        help_test(samples_are_what_they_say),
        help_test(synthetic_can_be_learnt),
        help_test(synthetic_values),
        help_test(only_regular_files),
        help_test(missing_files_have_a_place),
        help_test(offsets_have_64_bits),
        help_test(a_shrinking_file_is_an_error),
        help_test(prediction_needs_no_targets),
        help_test(the_table_is_sound),
        help_test(fingerprints_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
