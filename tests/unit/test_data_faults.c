/* The k-th allocation, file call or thread start fails, once or from then on, for every k until all goes
 * well (T-OOM, T-IO): a RESOURCE or DATA report, never a crash. Needs the fault build (make faults). */
#include "data_help.h"
#include "ops/data_ops.h"
#include "tests/fuzz/data_target.h"

typedef struct Faults {
    Help help;
    DltDataset ds; /* outlives the loader's threads, which the arena ends */
    jmp_buf no_memory;
} Faults;

static Faults *current; /* for the arena's handler, which takes no context */

static void no_memory(size_t bytes)
{
    (void)bytes;
    longjmp(current->no_memory, 1);
}

static const char *const sets[][2] = {
    {"csv", "csv: datasets/samples/iris.csv\ntarget: species\n"},
    {"idx", "idx: datasets/samples/digits-images.idx3.gz\n"
            "labels: datasets/samples/digits-labels.idx1.gz\n"},
    {"npz", "npz: tests/golden/npy/deflated.npz\n"},
    {"npy", "npy: tests/golden/npy/lef8_F.npy\nlabels: tests/golden/npy/labels.npy\n"},
    {"cifar10", "cifar10: datasets/samples/cifar10_small_tes*.bin\n"},
};
enum { N_SET = sizeof sets / sizeof sets[0] };

/* Opens, loads, measures, splits and streams a set; false with a report when something failed. */
static DltStatus use_set(Faults *f, int set)
{
    Help *h = &f->help;
    const DltDatasetDef *def = dlt_dataset_find(sets[set][0]);
    const char *text = sets[set][1];
    DltYaml *tree = NULL;
    DltOpts o;
    DltSplit train, held;
    double *mean, *std;
    DLT_TRY(dlt_yaml_parse(h->arena, "o", text, (int64_t)strlen(text), &tree, &h->err));
    DLT_TRY(dlt_schema_read(h->arena, def->fields, def->opt_size, tree,
                            (DltWhere){def->name, DLT_NO_MARK}, &o, &h->err));
    f->ds = (DltDataset){.bad = NULL};
    DLT_TRY(def->open(h->arena, &o, ".", NULL, &f->ds, &h->err));
    DLT_TRY(def->load(h->arena, &f->ds, &h->err));
    DltLoaderConfig c = {.split = {&f->ds, f->ds.n, NULL}, .batch = 3, .n_thread = 2, .depth = 2};
    DLT_TRY(dlt_norm_measure(h->arena, &c.split, &mean, &std, &h->err));
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
        fail_msg("%s with %s: status %d", sets[set][0], spec, (int)status);
    dlt_arena_free(f->help.arena);
    return status == DLT_OK;
}

static void every_call_may_fail(void **state)
{
    static const char *const classes[][2] = {
        {"mem", "ENOMEM"}, {"file", "EIO"}, {"thread", "EAGAIN"}};
    (void)state;
    if (!dlt_sys_fault_set("")) skip();
    Faults f;
    int points = 0;
    current = &f;
    dlt_arena_on_oom(no_memory);
    for (int run = 0; run < N_SET * 3 * 2; run++) {
        const char *const *class = classes[run / 2 % 3];
        int k = 0;
        char spec[64];
        do {
            k++;
            snprintf(spec, sizeof spec, "%s:%d:%s:%s", class[0], k, class[1],
                     run % 2 ? "forever" : "once");
        } while (!survives(&f, run / 6, spec));
        assert_true(k > 1);
        points += k - 1;
    }
    dlt_arena_on_oom(NULL);
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
