/* data.on_bad: skip. A set with bad records among its good ones trains to the bits of the set without
 * them, in every format that has records; the ledger names each with its reason, in the run's folder and
 * in the checkpoint; damage to the file as a whole stops the run as ever. */
#include "on_bad.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

/* ---- tables ------------------------------------------------------------------------------- */

static const char *const bad_rows[] = {
    "x,1,red,c0\n",       "1,2\n",       "1,2,red,c1,9\n", "1e999,2,red,c1\n",
    "1,\"1,5\",red,c2\n", ",2,red,c0\n", "1,2,red,\n",     "1,2,,c1\n",
};
static const char *const bad_why[] = {
    "'x' is no number",          "2 cells where there are 4",
    "5 cells where there are 4", "does not fit",
    "decimals are written with", "missing value",
    "the target is missing",     "missing value",
};
enum { N_BAD_ROW = sizeof bad_rows / sizeof bad_rows[0] };

/* 20 good rows; with `bad` a bad one in front of every second. */
static void write_rows(const char *path, bool bad)
{
    char text[4000] = "a,b,color,y\n";
    for (int i = 0, k = 0; i < 20; i++) {
        size_t n = strlen(text);
        if (bad && i % 2 == 0 && k < N_BAD_ROW)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", bad_rows[k++]);
        snprintf(text + n, sizeof text - n, "%d.5,%d,%s,c%d\n", i, 20 - i,
                 i % 3 == 0 ? "blue" : "red", i % 3);
    }
    put_file(path, text, strlen(text));
}

static void tables(void **state)
{
    (void)state;
    write_rows("bad.csv", true);
    write_rows("clean.csv", false);
    Pair p = {"train: {csv: bad.csv, target: y, categorical: color}, normalize: from train",
              "train: {csv: clean.csv, target: y, categorical: color}, normalize: from train",
              "3",
              "cross_entropy",
              "train",
              .n = N_BAD_ROW};
    for (int i = 0; i < N_BAD_ROW; i++) {
        p.record[i] = 1 + 3 * i;
        p.why[i] = bad_why[i];
    }
    compare_pair(&p);
    p.bad = "train: {csv: clean.csv, target: y, categorical: color}, "
            "val: {csv: bad.csv, target: y, categorical: color}";
    p.clean = "train: {csv: clean.csv, target: y, categorical: color}, "
              "val: {csv: clean.csv, target: y, categorical: color}";
    p.set = "val";
    compare_pair(&p);
    p.bad = "train: {csv: bad.csv, target: y, categorical: color}, val: 30% of train";
    p.clean = "train: {csv: clean.csv, target: y, categorical: color}, val: 30% of train";
    p.set = "train";
    compare_pair(&p);
}

/* What a bad row alone holds, leaves no trace: a category, a class, a word among values. */
static void no_trace(void **state)
{
    (void)state;
    static const char good[] = "a,w,y\n1,p,0.5\n2,q,1.5\n3,p,2.5\n4,q,0.25\n5,p,1\n6,q,2\n";
    char bad[300];
    snprintf(bad, sizeof bad, "%s",
             "a,w,y\nx,unheard,0.5\n1,p,0.5\n2,q,much\n2,q,1.5\n3,p,2.5\n"
             "4,q,0.25\n5,p,1\n6,q,2\n");
    put_file("clean.csv", good, strlen(good));
    put_file("bad.csv", bad, strlen(bad));
    Pair p = {"train: {csv: bad.csv, target: y, target_type: values, categorical: w}",
              "train: {csv: clean.csv, target: y, target_type: values, categorical: w}",
              "1",
              "mse",
              "train",
              2,
              {1, 3},
              {"'x' is no number", "'much' is no number, and the target is numbers"}};
    compare_pair(&p);
    static const char named[] = "a,w,y\n1,p,u\n2,q,v\n3,p,u\n4,q,v\n5,p,v\n6,q,u\n";
    static const char alien[] = "a,w,y\n1,p,u\n2,q,v\n3,p,u\n9,q,w\n4,q,v\n5,p,v\n6,q,u\n";
    put_file("clean.csv", named, strlen(named));
    put_file("bad.csv", alien, strlen(alien));
    p = (Pair){"train: {csv: bad.csv, target: y, categorical: w, class_names: [u, v]}",
               "train: {csv: clean.csv, target: y, categorical: w, class_names: [u, v]}",
               "2",
               "cross_entropy",
               "train",
               1,
               {4},
               {"class 'w' is not among the 2 classes in `class_names:`"}};
    compare_pair(&p);
}

/* ---- binary formats ----------------------------------------------------------------------- */

enum { SIDE = 3, N_GOOD = 12 };

static void big_endian(uint8_t *to, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* f32 samples of SIDE values; NaN in number `nan`, which -1 leaves out. */
static void write_idx(const char *x_path, const char *y_path, const int *label, int n, int nan)
{
    uint8_t x[12 + 4 * SIDE * 32] = {0, 0, 0x0d, 2}, y[8 + 32] = {0, 0, 8, 1};
    big_endian(x + 4, (uint32_t)n);
    big_endian(x + 8, SIDE);
    big_endian(y + 4, (uint32_t)n);
    for (int i = 0, good = 0; i < n; i++) {
        bool sound = label[i] < 3 && i != nan;
        for (int k = 0; k < SIDE; k++) {
            float v = (float)(good * 7 % 5) - 0.25f * (float)k;
            uint32_t bits;
            memcpy(&bits, &v, 4);
            big_endian(x + 12 + 4 * (i * SIDE + k), i == nan && k == 1 ? 0x7fc00000u : bits);
        }
        good += sound;
        y[8 + i] = (uint8_t)label[i];
    }
    put_file(x_path, x, (size_t)(12 + 4 * SIDE * n));
    put_file(y_path, y, (size_t)(8 + n));
}

static void idx_files(void **state)
{
    (void)state;
    static const int bad[] = {7, 0, 1, 2, 9, 0, 1, 2, 0, 2, 1, 0, 1, 2, 2, 255};
    static const int clean[] = {0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 2, 2};
    write_idx("bad.idx", "bad.lab", bad, 16, 9);
    write_idx("clean.idx", "clean.lab", clean, N_GOOD, -1);
    Pair p = {"train: {idx: bad.idx, labels: bad.lab, classes: 3}, normalize: from train",
              "train: {idx: clean.idx, labels: clean.lab, classes: 3}, normalize: from train",
              "3",
              "cross_entropy",
              "train",
              4,
              {0, 4, 9, 15},
              {"label 7 is out of range 0..2", "label 9 is out of",
               "element 1 of the sample is NaN", "label 255 is out of"}};
    compare_pair(&p);
    p.bad = "train: {idx: bad.idx, labels: bad.lab, classes: 3}, cache: host, threads: 2";
    p.clean = "train: {idx: clean.idx, labels: clean.lab, classes: 3}, cache: host, threads: 2";
    compare_pair(&p);
    p.bad = "train: {idx: bad.idx, labels: bad.lab, classes: 3}, val: 40% of train";
    p.clean = "train: {idx: clean.idx, labels: clean.lab, classes: 3}, val: 40% of train";
    compare_pair(&p);
    p.bad = "train: {idx: clean.idx, labels: clean.lab}, test: {idx: bad.idx, labels: bad.lab}";
    p.clean = "train: {idx: clean.idx, labels: clean.lab}, test: {idx: clean.idx, labels: "
              "clean.lab}";
    p.set = "test";
    compare_pair(&p);
}

/* A .npy of version 1.0 with one dimension of n, or two. */
static void write_npy(const char *path, const char *type, int n, int width, const void *bytes,
                      size_t size)
{
    char head[129];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    int used =
        snprintf(head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%d,%s), }",
                 type, n, width > 0 ? (char[]){' ', (char)('0' + width), '\0'} : "");
    head[10 + used] = ' ';
    head[127] = '\n';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, 128, f), 128);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void npy_files(void **state)
{
    (void)state;
    float bad[14 * 2], clean[12 * 2], y_bad[14], y_clean[12];
    int32_t label[14], label_clean[12];
    for (int i = 0, good = 0; i < 14; i++) {
        bool sound = i != 3 && i != 11;
        for (int k = 0; k < 2; k++) {
            bad[2 * i + k] = (float)(good % 5) + 0.5f * (float)k;
            if (sound) clean[2 * good + k] = bad[2 * i + k];
        }
        y_bad[i] = 0.1f * (float)good;
        label[i] = good % 3;
        if (sound) y_clean[good] = y_bad[i];
        if (sound) label_clean[good] = label[i];
        good += sound;
    }
    bad[7] = INFINITY;
    y_bad[11] = NAN;
    label[3] = -4;
    label[11] = -1;
    write_npy("bad.npy", "<f4", 14, 2, bad, sizeof bad);
    write_npy("bad_y.npy", "<f4", 14, 0, y_bad, sizeof y_bad);
    write_npy("bad_l.npy", "<i4", 14, 0, label, sizeof label);
    write_npy("clean.npy", "<f4", 12, 2, clean, sizeof clean);
    write_npy("clean_y.npy", "<f4", 12, 0, y_clean, sizeof y_clean);
    write_npy("clean_l.npy", "<i4", 12, 0, label_clean, sizeof label_clean);
    Pair p = {"train: {npy: bad.npy, labels: bad_y.npy}",
              "train: {npy: clean.npy, labels: clean_y.npy}",
              "1",
              "mse",
              "train",
              2,
              {3, 11},
              {"element 1 of the sample is infinite", "of the target is NaN"}};
    compare_pair(&p);
    p = (Pair){"train: {npy: bad.npy, labels: bad_l.npy}",
               "train: {npy: clean.npy, labels: clean_l.npy}",
               "3",
               "cross_entropy",
               "train",
               2,
               {3, 11},
               {"label -4 is negative", "label -1 is negative"}};
    compare_pair(&p);
}

static void write_cifar(const char *path, const int *label, int n)
{
    enum { RECORD = 3073 };
    uint8_t *bytes = calloc((size_t)n, RECORD);
    for (int i = 0, good = 0; i < n; i++) {
        bytes[i * RECORD] = (uint8_t)label[i];
        memset(bytes + i * RECORD + 1, good * 20 % 251, RECORD - 1);
        good += label[i] < 10;
    }
    put_file(path, bytes, (size_t)n * RECORD);
    free(bytes);
}

static void cifar_files(void **state)
{
    (void)state;
    static const int bad[] = {3, 10, 1, 9, 0, 200, 4, 4}, clean[] = {3, 1, 9, 0, 4, 4};
    write_cifar("bad.bin", bad, 8);
    write_cifar("clean.bin", clean, 6);
    Pair p = {"train: {cifar10: bad.bin}",
              "train: {cifar10: clean.bin}",
              "10",
              "cross_entropy",
              "train",
              2,
              {1, 5},
              {"label 10 is out of range 0..9", "label 200 is out of range"}};
    compare_pair(&p);
}

/* ---- limits ------------------------------------------------------------------------------- */

/* One more than max_bad stops the run after all, and says how many there were. */
static void limit(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    write_rows("bad.csv", true);
    for (int max = 1; max <= N_BAD_ROW; max++) {
        const char *text = data_config(
            arena,
            dlt_arena_printf(arena,
                             "train: {csv: bad.csv, target: y, categorical: color}, on_bad: skip, "
                             "max_bad: %d",
                             max),
            "3", "cross_entropy");
        Run *r = new_run();
        DltSpec *spec = NULL;
        DltStatus status = dlt_spec_read_stored(
            r->arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "."}, 0, NULL, &spec,
            &r->err);
        assert_int_equal(status, max < N_BAD_ROW ? DLT_E_DATA : DLT_OK);
        if (max < N_BAD_ROW) {
            assert_int_equal(r->err.n, 2);
            const char *said = dlt_arena_printf(arena, "data.max_bad: %d bad record", max);
            assert_non_null(strstr(r->err.report[1].text, said));
            assert_non_null(strstr(r->err.report[0].text, bad_why[max]));
        }
        dlt_arena_free(r->arena);
    }
    dlt_arena_free(arena);
}

/* A set of which nothing is left, and files that are damaged as a whole. */
static void nothing_left(void **state)
{
    (void)state;
    static const int label[] = {7, 8, 9};
    static const char cut[] = "a,y\n1,2\n\"3,4\n";
    static const struct {
        const char *data, *outputs, *part;
    } rows_[] = {
        {"train: {idx: all.idx, labels: all.lab, classes: 3}", "3",
         "no record has a label that can"},
        {"train: {npy: nan.npy, labels: y.npy}", "1", "every one of its 4 records is bad"},
        {"train: {csv: words.csv, target: y}", "1", "every row"},
        {"train: {csv: cut.csv, target: y}", "1", "quote"},
        {"train: {idx: cut.idx, labels: all.lab, classes: 3}", "3", "cut"},
    };
    float nan[] = {NAN, 1, 2, NAN, NAN, NAN, 3, INFINITY}, y[] = {1, 2, 3, 4};
    DltArena *arena = dlt_arena_new();
    write_idx("all.idx", "all.lab", label, 3, -1);
    put_file("cut.idx", "\0\0\x0d\2\0\0", 6);
    write_npy("nan.npy", "<f4", 4, 2, nan, sizeof nan);
    write_npy("y.npy", "<f4", 4, 0, y, sizeof y);
    put_file("words.csv", "a,y\nx,1\ny,2\n", 12);
    put_file("cut.csv", cut, strlen(cut));
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        const char *text =
            data_config(arena, dlt_arena_printf(arena, "%s, on_bad: skip", rows_[i].data),
                        rows_[i].outputs, rows_[i].outputs[0] == '1' ? "mse" : "cross_entropy");
        refused(text, rows_[i].part);
    }
    dlt_arena_free(arena);
}

/* The ledger is part of what a run was trained on. */
static void resume_wants_the_same(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *data = "train: {csv: bad.csv, target: y, categorical: color}, on_bad: skip";
    const char *text = data_config(arena, data, "3", "cross_entropy");
    const char *higher =
        data_config(arena, dlt_arena_printf(arena, "%s, max_bad: 50", data), "3", "cross_entropy");
    write_rows("bad.csv", true);
    remove_folder("same");
    done(train(text, (DltRunOptions){.out = "same", .stop_at = 4}), DLT_STOPPED);
    done(resume(higher, "same/last.bin", (DltRunOptions){.stop_at = 6}), DLT_STOPPED);
    char *bytes = text_of(arena, "bad.csv");
    *strchr(strchr(bytes, '\n') + 1, 'x') = '7'; /* the first bad row is good now */
    put_file("bad.csv", bytes, strlen(bytes));
    done(resume(text, "same/last.bin", (DltRunOptions){0}), DLT_E_CHECKPOINT);
    dlt_arena_free(arena);
}

/* Long lists are cut in checkpoints, whole in the folder; bytes that are no UTF-8 do no harm. */
static void long_ledger(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    char *text = dlt_arena_new_bytes(arena, 1 << 16, 1);
    int n = snprintf(text, 100, "a,y\n");
    for (int i = 0; i < 80; i++)
        n += snprintf(text + n, 100, "%s\n%d,%d\n", i == 0 ? "\xff\xfe,1" : "x,1", i, i % 2);
    put_file("long.csv", text, (size_t)n);
    remove_folder("long");
    done(train(data_config(arena, "train: {csv: long.csv, target: y}, on_bad: skip", "2",
                           "cross_entropy"),
               (DltRunOptions){.out = "long"}),
         DLT_OK);
    const char *ledger = text_of(arena, "long/skipped.jsonl");
    assert_non_null(ledger);
    int lines = 0;
    for (const char *c = ledger; c != NULL && *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 80);
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, "long/last.bin", &c, &err), DLT_OK);
    assert_non_null(strstr(c->meta.skipped, "train: and 30 more\n"));
    assert_non_null(strstr(c->meta.skipped, "'?"
                                            "?' is no number"));
    dlt_arena_free(arena);
}

static void bad_words(void **state)
{
    (void)state;
    static const struct {
        const char *data, *part;
    } rows_[] = {
        {"train: {csv: clean.csv, target: y}, max_bad: 3", "has no effect without on_bad: skip"},
        {"train: {csv: clean.csv, target: y}, on_bad: skip, max_bad: 0", "data.max_bad"},
        {"train: {csv: clean.csv, target: y}, on_bad: leave", "data.on_bad"},
        {"train: {synthetic: {shape: [4], classes: 2, samples: 8}}, on_bad: skip",
         "synthetic has no records that could be left out"},
    };
    DltArena *arena = dlt_arena_new();
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        Run *r = new_run();
        DltSpec *spec = NULL;
        const char *text = data_config(arena, rows_[i].data, "2", "cross_entropy");
        DltStatus status = dlt_spec_read_stored(
            r->arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "."}, 0, NULL, &spec,
            &r->err);
        assert_int_equal(status, DLT_E_CONFIG);
        if (strstr(r->err.report[0].text, rows_[i].part) == NULL)
            fail_msg("%s: %s", rows_[i].data, r->err.report[0].text);
        dlt_arena_free(r->arena);
    }
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables),       cmocka_unit_test(no_trace),
        cmocka_unit_test(idx_files),    cmocka_unit_test(npy_files),
        cmocka_unit_test(cifar_files),  cmocka_unit_test(limit),
        cmocka_unit_test(nothing_left), cmocka_unit_test(resume_wants_the_same),
        cmocka_unit_test(long_ledger),  cmocka_unit_test(bad_words),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
