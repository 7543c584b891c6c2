/* The k-th allocation, file call or thread start fails, once or from then on, for every k until all goes
 * well (T-OOM, T-IO): a RESOURCE or DATA report, never a crash. Needs the fault build (make faults). */
#include "data_help.h"
#include "ops/data_ops.h"
#include "tests/fuzz/data_target.h"
#include <sys/stat.h>

typedef struct Faults {
    Help help;
    DltDataset ds; /* outlives the loader's threads, which the arena ends */
    DltTokenizer tokenizer;
    jmp_buf no_memory;
} Faults;

static Faults *current; /* for the arena's handler, which takes no context */

static void no_memory(size_t bytes)
{
    (void)bytes;
    longjmp(current->no_memory, 1);
}

#define FOLDER "build/test-data-faults/"
/* Format, options; tokenizer, its options. */
static const char *const sets[][4] = {
    {"csv", "csv: datasets/samples/iris.csv\ntarget: species\n"},
    {"idx", "idx: datasets/samples/digits-images.idx3.gz\n"
            "labels: datasets/samples/digits-labels.idx1.gz\n"},
    {"npz", "npz: tests/golden/npy/deflated.npz\n"},
    {"npy", "npy: tests/golden/npy/lef8_F.npy\nlabels: tests/golden/npy/labels.npy\n"},
    {"cifar10", "cifar10: datasets/samples/cifar10_small_tes*.bin\n"},
    {"synthetic", "shape: [3]\nsamples: 120\nclasses: 3\n"},
    {"npz", "npz: tests/golden/npy/four.npz\nx: ids\nvocab: 24\n"},
    {"idx", "idx: " FOLDER "members.gz\nlabels: " FOLDER "labels\n"},
    {"csv", "csv: " FOLDER "gaps.csv\ntarget: y\nmissing: mean\ncategorical: k\n"},
    {"csv",
     "csv: " FOLDER "gaps.csv\ntarget: b\ntarget_type: values\nmissing: drop\nignore: [k, y]\n"},
    {"text", "text: " FOLDER "t*.txt\nwindow: 4\n", "bytes", ""},
    {"text", "text: " FOLDER "t*.txt\nwindow: 4\ndocuments: split\n", "gpt2",
     "vocab: tests/golden/gpt2/encoder.json\nmerges: tests/golden/gpt2/vocab.bpe\n"},
    {"tokens", "tokens: " FOLDER "ids*.bin\nwindow: 4\n"},
    {"tokens", "tokens: " FOLDER "ids*.bin\nwindow: 3\neot: 0\ndocuments: split\nvocab: 30\n"},
};
enum { N_SET = sizeof sets / sizeof sets[0] };

static DltStatus options(Help *h, const DltField *fields, size_t size, const char *text,
                         const char *name, DltOpts *o)
{
    DltYaml *tree = NULL;
    DLT_TRY(dlt_yaml_parse(h->arena, "o", text, (int64_t)strlen(text), &tree, &h->err));
    return dlt_schema_read(h->arena, fields, size, tree, (DltWhere){name, DLT_NO_MARK}, o, &h->err);
}

static DltStatus open_tokenizer(Help *h, const char *name, const char *text, DltTokenizer *t)
{
    DltOpts o;
    *t = (DltTokenizer){.def = dlt_tokenizer_find(name), .path = name, .eot = -1};
    DLT_TRY(options(h, t->def->fields, t->def->opt_size, text[0] ? text : "{}", name, &o));
    return t->def->open(h->arena, &o, ".", t, &h->err);
}

/* Opens, loads, measures, splits and streams a set; false with a report when something failed. */
static DltStatus use_set(Faults *f, int set)
{
    Help *h = &f->help;
    const DltDatasetDef *def = dlt_dataset_find(sets[set][0]);
    DltOpts o;
    DltSplit train, held;
    double *mean, *std;
    DLT_TRY(options(h, def->fields, def->opt_size, sets[set][1], def->name, &o));
    f->ds = (DltDataset){.bad = NULL};
    if (sets[set][2] != NULL) DLT_TRY(open_tokenizer(h, sets[set][2], sets[set][3], &f->tokenizer));
    if (sets[set][2] != NULL) f->ds.tokenizer = &f->tokenizer;
    DLT_TRY(def->open(h->arena, &o, ".", NULL, &f->ds, &h->err));
    DLT_TRY(def->load(h->arena, &f->ds, &h->err));
    DltLoaderConfig c = {.split = {&f->ds, f->ds.n, NULL}, .batch = 3, .n_thread = 2, .depth = 2};
    if (f->ds.vocab == 0) DLT_TRY(dlt_norm_measure(h->arena, &c.split, &mean, &std, &h->err));
    if (f->ds.n > 100) DLT_TRY(dlt_split_fraction(h->arena, &f->ds, 0.3, &train, &held, &h->err));
    int64_t n_shared, first;
    DLT_TRY(dlt_samples_shared(&c.split, &c.split, &n_shared, &first, &h->err));
    DltLoader *l;
    DltBatch b;
    DLT_TRY(dlt_loader_new(h->arena, &c, 0, &l, &h->err));
    for (int i = 0; i < 5; i++)
        DLT_TRY(dlt_loader_next(l, &b, &h->err));
    return DLT_OK;
}

/* One run with one fault. True when nothing failed. */
static bool survives(Faults *f, int set, const char *spec)
{
    volatile DltStatus status = DLT_E_RESOURCE;
    dlt_err_init(&f->help.err);
    f->help.arena = dlt_arena_new();
    if (f->help.arena == NULL) fail();
    if (setjmp(f->no_memory) == 0) {
        assert_true(dlt_sys_fault_set(spec));
        status = use_set(f, set);
        if (status != DLT_OK) assert_int_equal(f->help.err.n, 1);
    }
    assert_true(dlt_sys_fault_set(""));
    if (status != DLT_OK && status != DLT_E_RESOURCE && status != DLT_E_DATA)
        fail_msg("%s with %s: status %d: %s", sets[set][0], spec, (int)status,
                 f->help.err.report[0].text);
    dlt_arena_free(f->help.arena);
    return status == DLT_OK;
}

static void write_file(const char *name, const void *bytes, int64_t n)
{
    char path[200];
    snprintf(path, sizeof path, FOLDER "%s", name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, (size_t)n), n);
    close(fd);
}

/* An IDX file in two gzip members, a table with gaps, texts and shards of ids. */
static void write_files(void)
{
    enum { N = 24, SIDE = 2 };
    uint8_t idx[16 + N * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, N, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t labels[8 + N] = {0, 0, 8, 1, 0, 0, 0, N}, both[1024];
    uint16_t ids[64];
    char table[1024] = "a,b,k,y\n";
    Help h;
    int64_t n_one, n_two;
    h.arena = dlt_arena_new();
    for (int i = 0; i < N; i++) {
        labels[8 + i] = (uint8_t)(i % 3);
        char *row = table + strlen(table), b[8] = "";
        if (i % 5 > 0) snprintf(b, sizeof b, "%d", i * i);
        snprintf(row, sizeof table - (size_t)(row - table), "%d,%s,w%d,c%d\n", i, b, i % 2, i % 3);
    }
    for (int i = 0; i < 64; i++)
        ids[i] = (uint16_t)(i % 9);
    (void)mkdir("build", 0777);
    (void)mkdir(FOLDER, 0777);
    const uint8_t *one = help_gzip(&h, idx, 40, &n_one);
    memcpy(both, one, (size_t)n_one);
    const uint8_t *two = help_gzip(&h, idx + 40, sizeof idx - 40, &n_two);
    memcpy(both + n_one, two, (size_t)n_two);
    memset(both + n_one + n_two, 0, 9); /* padding */
    write_file("members.gz", both, n_one + n_two + 9);
    write_file("labels", labels, sizeof labels);
    write_file("gaps.csv", table, (int64_t)strlen(table));
    write_file("t1.txt", "the cat sat on the mat. the cat sat.", 36);
    write_file("t2.txt", "a dog.\n\nthe cat", 15);
    write_file("ids1.bin", ids, sizeof ids);
    write_file("ids2.bin", ids, 40);
    dlt_arena_free(h.arena);
}

static void every_call_may_fail(void **state)
{
    static const char *const classes[][2] = {
        {"mem", "ENOMEM"}, {"file", "EIO"}, {"thread", "EAGAIN"}};
    (void)state;
    if (!dlt_sys_fault_set("")) skip();
    Faults f;
    int points = 0;
    write_files();
    current = &f;
    dlt_arena_on_oom(no_memory);
    for (int set = 0; set < N_SET; set++)
        if (!survives(&f, set, "")) fail_msg("%s: %s", sets[set][1], f.help.err.report[0].text);
    for (int run = 0; run < N_SET * 3 * 2; run++) {
        const char *const *class = classes[run / 2 % 3];
        int k = 0;
        char spec[64];
        do {
            k++;
            snprintf(spec, sizeof spec, "%s:%d:%s:%s", class[0], k, class[1],
                     run % 2 ? "forever" : "once");
        } while (!survives(&f, run / 6, spec));
        assert_true(k > 1 || strcmp(sets[run / 6][0], "synthetic") == 0); /* opens no file */
        points += k - 1;
    }
    dlt_arena_on_oom(NULL);
    print_message("%d points of %d sets\n", points, N_SET);
    assert_true(points > 300);
}

/* One input of the fuzzers' corpus, whose first byte chooses the reader, with the k-th allocation failing. */
static bool corpus_survives(Faults *f, const uint8_t *bytes, int64_t n, const char *spec)
{
    volatile DltStatus status = DLT_E_RESOURCE;
    volatile bool failed = true;
    dlt_err_init(&f->help.err);
    f->help.arena = dlt_arena_new();
    if (f->help.arena == NULL) fail();
    if (setjmp(f->no_memory) == 0) {
        assert_true(dlt_sys_fault_set(spec));
        status = data_formats[bytes[0] % N_DATA_FORMAT].check(f->help.arena, bytes + 1, n - 1,
                                                              &f->help.err);
        failed = status == DLT_E_RESOURCE;
        assert_int_equal(status != DLT_OK, f->help.err.n > 0);
    }
    assert_true(dlt_sys_fault_set(""));
    dlt_arena_free(f->help.arena);
    return !failed;
}

static Faults corpus_faults;
static int corpus_points;

static void each_corpus_file(void *ctx, const char *path)
{
    (void)ctx;
    uint8_t bytes[1 << 16];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    int64_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(n > 0);
    for (int forever = 0; forever < 2; forever++) {
        char spec[64];
        int k = 0;
        do {
            k++;
            snprintf(spec, sizeof spec, "mem:%d:ENOMEM:%s", k, forever ? "forever" : "once");
        } while (!corpus_survives(&corpus_faults, bytes, n, spec));
        corpus_points += k - 1;
    }
}

static void every_reader_may_run_out(void **state)
{
    (void)state;
    if (!dlt_sys_fault_set("")) skip();
    current = &corpus_faults;
    dlt_arena_on_oom(no_memory);
    assert_true(dlt_sys_glob("tests/fuzz/corpus/data/*", each_corpus_file, NULL) > 20);
    dlt_arena_on_oom(NULL);
    print_message("%d allocations failed\n", corpus_points);
    assert_true(corpus_points > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_may_fail),
                                       cmocka_unit_test(every_reader_may_run_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
