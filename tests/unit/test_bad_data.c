/* T-DATA: more than a thousand generated bad data files. Each is refused with exit 3 before anything is
 * trained, and the message names the file (and the record, where there is one). Also what the data of
 * a run must not do: give held-out rows a say in missing cells (C28), stand in two splits unnoticed. */
#include "runs.h"

#include <fcntl.h>

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

static int n_refused;

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

/* A run over `data` (the section's text), up to where training would begin. */
static DltStatus prepare(Run *r, const char *data, int64_t classes)
{
    DltSpec *spec = NULL;
    const char *text = dlt_arena_printf(
        r->arena,
        "dltrain: 1\nname: b\ndata: %s\nmodel: [flatten, {dense: %lld}]\nloss: cross_entropy\n"
        "train: {for: 1 steps, batch: 2, optimizer: {sgd: {lr: 0.1}}}\n",
        data, (long long)classes);
    DLT_TRY(dlt_spec_read_stored(r->arena,
                                 &(DltStored){.name = "test.yaml", .text = text, .folder = "."}, 0,
                                 NULL, &spec, &r->err));
    return dlt_spec_load_data(spec, 7, &r->err);
}

static bool mentions(const DltErr *err, const char *word)
{
    for (int i = 0; i < err->n; i++) {
        const DltReport *report = &err->report[i];
        if (strstr(report->text, word) != NULL) return true;
        if (report->at.file != NULL && strstr(report->at.file, word) != NULL) return true;
    }
    return false;
}

static void refused(const char *data, int64_t classes, const char *file, const char *why)
{
    Run *r = new_run();
    DltStatus status = prepare(r, data, classes);
    if (status != DLT_E_DATA || !mentions(&r->err, file)) {
        dlt_err_print(&r->err, stderr);
        fail_msg("%s (%s): status %d", data, why, (int)status);
    }
    n_refused++;
    dlt_arena_free(r->arena);
}

static void accepted(const char *data, int64_t classes)
{
    Run *r = new_run();
    DltStatus status = prepare(r, data, classes);
    if (status != DLT_OK) dlt_err_print(&r->err, stderr);
    assert_int_equal(status, DLT_OK);
    dlt_arena_free(r->arena);
}

/* ---- tables ------------------------------------------------------------------------------- */

enum { ROWS = 12, COLUMNS = 4 };
static const char csv[] = "{train: {csv: t.csv, target: y, class_names: [c0, c1, c2]}}";

/* A table with one cell replaced; row 0 is the header. NULL: none. */
static void write_csv(int row, int column, const char *cell, const char *behind)
{
    static const char *const names[COLUMNS] = {"a", "b", "c", "y"};
    FILE *f = fopen("t.csv", "w");
    assert_non_null(f);
    for (int r = 0; r <= ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) {
            if (c > 0) fputc(',', f);
            if (r == row && c == column && cell != NULL)
                fputs(cell, f);
            else if (r == 0)
                fputs(names[c], f);
            else if (c == 3)
                fprintf(f, "c%d", r % 3);
            else
                fprintf(f, "%d.%d", r, c);
        }
        fprintf(f, "%s\n", r == row && cell == NULL ? behind : "");
    }
    assert_int_equal(fclose(f), 0);
}

static void tables(void **state)
{
    (void)state;
    static const char *const cells[] = {"",    "NA",       "nan",   "inf",        "-inf", "1e400",
                                        "abc", "1,5",      "0x10",  "1 2",        "\"",   "1e",
                                        "--1", "\xff\xfe", "1.2.3", "\"x\"\"y\"", "1;2"};
    write_csv(-1, 0, NULL, "");
    accepted(csv, 3);
    for (int r = 1; r <= ROWS; r++) {
        for (int c = 0; c < 3; c++)
            for (size_t k = 0; k < sizeof cells / sizeof cells[0]; k++) {
                write_csv(r, c, cells[k], "");
                refused(csv, 3, "t.csv", cells[k]);
            }
        static const char *const targets[] = {"", "c3", "C0", "c", "0", "\"c0\"x"};
        for (size_t k = 0; k < sizeof targets / sizeof targets[0]; k++) {
            write_csv(r, 3, targets[k], "");
            refused(csv, 3, "t.csv", targets[k]);
        }
        write_csv(r, 0, NULL, ",1");
        refused(csv, 3, "t.csv", "a long row");
    }
    static const char *const headers[] = {"b", "y"}; /* two columns of one name */
    for (size_t k = 0; k < sizeof headers / sizeof headers[0]; k++) {
        write_csv(0, 0, headers[k], "");
        refused(csv, 3, "t.csv", "a header");
    }
}

/* ---- idx ---------------------------------------------------------------------------------- */

enum { N_IMAGE = 6, SIDE = 4, IMAGES = 16 + N_IMAGE * SIDE * SIDE, LABELS = 8 + N_IMAGE };
static const char idx[] = "{train: {idx: x.idx, labels: y.idx}}";

static void make_idx(unsigned char x[IMAGES + 64], unsigned char y[LABELS + 64])
{
    static const unsigned char x_head[16] = {0, 0, 8, 3,    0, 0, 0, N_IMAGE,
                                             0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static const unsigned char y_head[8] = {0, 0, 8, 1, 0, 0, 0, N_IMAGE};
    memset(x, 7, IMAGES + 64);
    memset(y, 0, LABELS + 64);
    memcpy(x, x_head, sizeof x_head);
    memcpy(y, y_head, sizeof y_head);
    for (int i = 0; i < N_IMAGE; i++)
        y[8 + i] = (unsigned char)(i % 3);
}

static void images(void **state)
{
    (void)state;
    unsigned char x[IMAGES + 64], y[LABELS + 64];
    make_idx(x, y);
    write_bytes("x.idx", x, IMAGES);
    write_bytes("y.idx", y, LABELS);
    accepted(idx, 3);
    for (size_t n = 0; n < IMAGES; n++) {
        write_bytes("x.idx", x, n);
        refused(idx, 3, "x.idx", "cut");
    }
    for (size_t n = 1; n <= 40; n++) {
        write_bytes("x.idx", x, IMAGES + n);
        refused(idx, 3, "x.idx", "a tail");
    }
    for (int at = 0; at < 16; at++)
        for (int bit = 0; bit < 8; bit++) {
            if (at == 2) continue; /* other element types have their own sizes */
            x[at] ^= (unsigned char)(1 << bit);
            write_bytes("x.idx", x, IMAGES);
            refused(idx, 3, ".idx", "a flipped bit in the header");
            x[at] ^= (unsigned char)(1 << bit);
        }
    write_bytes("x.idx", x, IMAGES);
    for (size_t n = 0; n < LABELS; n++) {
        write_bytes("y.idx", y, n);
        refused(idx, 3, "y.idx", "cut labels");
    }
    for (int at = 0; at < 8; at++)
        for (int bit = 0; bit < 8; bit++) {
            if (at == 2) continue;
            y[at] ^= (unsigned char)(1 << bit);
            write_bytes("y.idx", y, LABELS);
            refused(idx, 3, ".idx", "a flipped bit in the labels' header");
            y[at] ^= (unsigned char)(1 << bit);
        }
    /* images and labels swapped */
    write_bytes("x.idx", y, LABELS);
    write_bytes("y.idx", x, IMAGES);
    refused(idx, 3, ".idx", "swapped");
}

/* ---- cifar -------------------------------------------------------------------------------- */

static void cifar(void **state)
{
    (void)state;
    enum { RECORD = 3073, N = 3 };
    static unsigned char bytes[RECORD * N + 64];
    static const char data[] = "{train: {cifar10: c.bin}}";
    for (int i = 0; i < N; i++)
        bytes[i * RECORD] = (unsigned char)i;
    write_bytes("c.bin", bytes, RECORD * N);
    accepted(data, 10);
    for (int i = 0; i < N; i++)
        for (int label = 10; label < 256; label += 9) { /* C25: labels beyond the classes */
            bytes[i * RECORD] = (unsigned char)label;
            write_bytes("c.bin", bytes, RECORD * N);
            refused(data, 10, "c.bin", "a label out of range");
            bytes[i * RECORD] = (unsigned char)i;
        }
    for (size_t n = 0; n < RECORD * N; n += 211) {
        if (n % RECORD == 0 && n > 0) continue; /* whole records: fewer images */
        write_bytes("c.bin", bytes, n);
        refused(data, 10, "c.bin", "cut");
    }
    for (size_t n = 1; n <= 40; n++) {
        write_bytes("c.bin", bytes, RECORD * N + n);
        refused(data, 10, "c.bin", "a tail");
    }
}

/* ---- foreign files ------------------------------------------------------------------------ */

static void foreign(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } files[] = {{"", 0},
                 {"<!DOCTYPE html><html><body>404</body></html>", 44}, /* C23 */
                 {"<html>\n", 7},
                 {"\x89PNG\r\n\x1a\n0000", 12},
                 {"\xff\xd8\xff\xe0", 4},
                 {"PK\x03\x04zip", 7},
                 {"\x7f"
                  "ELF",
                  4},
                 {"\x1f\x8b\x08", 3},
                 {"%PDF-1.4", 8},
                 {"\x93NUMPY", 6},
                 {"\0\0\0\0\0\0\0\0", 8},
                 {"hello\n", 6}};
    static const char *const sets[] = {"{train: {idx: f, labels: f}}", "{train: {cifar10: f}}",
                                       "{train: {npy: f, labels: f}}", "{train: {npz: f}}",
                                       "{train: {csv: f, target: y}}"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        for (size_t k = 0; k < sizeof sets / sizeof sets[0]; k++) {
            write_bytes("f", files[i].bytes, files[i].n);
            refused(sets[k], 3, "/f", "a foreign file");
        }
    print_message("%d bad files refused with exit 3 and their names\n", n_refused);
    assert_true(n_refused >= 1000);
}

/* ---- what data must not do ---------------------------------------------------------------- */

/* C28: a missing cell becomes the mean of the rows that are trained on, whatever is held out. */
static void c28_mean_of_the_training_split(void **state)
{
    (void)state;
    enum { N = 60 };
    FILE *f = fopen("m.csv", "w");
    assert_non_null(f);
    fprintf(f, "a,b,y\n");
    for (int i = 0; i < N; i++)
        fprintf(f, "%s%d,c%d\n", i % 7 == 3 ? "," : i % 2 ? "100," : "1,", i, i % 2);
    assert_int_equal(fclose(f), 0);
    Run *r = new_run();
    DltSpec *spec = read_spec(
        r, "dltrain: 1\nname: m\ndata: {train: {csv: m.csv, target: y, missing: mean}, val: 20% of "
           "train, test: 20% of train}\nmodel: [{dense: 2}]\nloss: cross_entropy\n"
           "train: {for: 1 steps, batch: 2, optimizer: {sgd: {lr: 0.1}}}\n");
    assert_int_equal(dlt_spec_load_data(spec, 7, &r->err), DLT_OK);
    const DltSource *s = spec->data.source;
    double sum = 0;
    int n = 0;
    for (int64_t i = 0; i < s[DLT_TRAIN].split.n; i++) {
        int64_t id = s[DLT_TRAIN].split.id[i];
        if (id % 7 == 3) continue;
        sum += id % 2 ? 100 : 1;
        n++;
    }
    assert_true(n < N - 9 && n > 20);
    for (int split = DLT_TRAIN; split < DLT_N_SPLIT; split++)
        for (int64_t i = 0; i < s[split].split.n; i++) {
            int64_t id = s[split].split.id[i];
            float x[2];
            int32_t y;
            assert_int_equal(s[split].ds.def->read(&s[split].ds, &id, 1, x, &y, &r->err), DLT_OK);
            double expected = id % 7 == 3 ? sum / n : id % 2 ? 100 : 1;
            assert_float_equal(x[0], expected, 1e-4);
        }
    dlt_arena_free(r->arena);
}

/* Samples that stand in two sets are counted, and the first is named. */
static void shared_samples(void **state)
{
    (void)state;
    FILE *a = fopen("a.csv", "w"), *b = fopen("b.csv", "w");
    for (int i = 0; i < 30; i++) {
        fprintf(a, i == 0 ? "x,z,y\n" : "%d,%d,c%d\n", i, 2 * i, i % 2);
        bool in_both = i == 12 || i == 25;
        fprintf(b, i == 0 ? "x,z,y\n" : "%d,%d,c%d\n", i, in_both ? 2 * i : -i, i % 2);
    }
    assert_int_equal(fclose(a) | fclose(b), 0);
    Run *r = new_run();
    DltSpec *spec = read_spec(
        r, "dltrain: 1\nname: s\ndata: {train: {csv: a.csv, target: y}, val: {csv: b.csv, target: "
           "y}}\nmodel: [{dense: 2}]\nloss: cross_entropy\n"
           "train: {for: 1 steps, batch: 2, optimizer: {sgd: {lr: 0.1}}}\n");
    assert_int_equal(dlt_spec_load_data(spec, 7, &r->err), DLT_OK);
    int64_t n = 0, first = -1;
    const DltSource *s = spec->data.source;
    assert_int_equal(
        dlt_samples_shared(&s[DLT_TRAIN].split, &s[DLT_VAL].split, &n, &first, &r->err), DLT_OK);
    assert_int_equal(n, 2);
    assert_int_equal(first, 11); /* row 12 of the file is sample 11 */
    dlt_arena_free(r->arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),
        cmocka_unit_test(images),
        cmocka_unit_test(cifar),
        cmocka_unit_test(foreign),
        cmocka_unit_test(c28_mean_of_the_training_split),
        cmocka_unit_test(shared_samples),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
