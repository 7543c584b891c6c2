/* The loader: one stream whatever the threads, every sample once an epoch, any position reached at once,
 * nothing allocated on the way (CASES.md C34, C50, C67; T-DET, T-RESUME). */
#include "data_help.h"
#include "ops/data_ops.h"

static void open_set(Help *h, int64_t n, DltDataset *ds)
{
    char yaml[100];
    snprintf(yaml, sizeof yaml, "shape: 5\nclasses: 3\nsamples: %lld\n", (long long)n);
    help_ok(h, help_open(h, "synthetic", yaml, ds));
}

static DltLoader *start(Help *h, const DltLoaderConfig *c, int64_t position)
{
    DltLoader *l = NULL;
    help_ok(h, dlt_loader_new(h->arena, c, position, &l, &h->err));
    return l;
}

static DltBatch next(Help *h, DltLoader *l)
{
    DltBatch b;
    help_ok(h, dlt_loader_next(l, &b, &h->err));
    return b;
}

static int32_t field(const DltBatch *b, int64_t row, int what)
{
    return b->ticket[row * DLT_TICKET_INTS + what];
}

/* The samples of a streamed batch are those that its tickets name. */
static void check_contents(Help *h, const DltDataset *ds, const DltBatch *b)
{
    for (int64_t i = 0; i < b->n_valid; i++) {
        float x[5];
        int32_t y;
        help_read(h, ds, field(b, i, DLT_TICKET_SAMPLE), x, &y);
        assert_int_equal(field(b, i, DLT_TICKET_ROW), i);
        assert_memory_equal((const float *)b->x + i * 5, x, sizeof x);
        assert_int_equal(((const int32_t *)b->y)[i], y);
    }
}

static void same_stream_for_any_threads(void **state)
{
    enum { BATCHES = 60, BATCH = 7 };
    Help *h = *state;
    static const int threads[] = {0, 1, 2, 8};
    int32_t want[BATCHES][BATCH][DLT_TICKET_INTS];
    DltDataset ds;
    open_set(h, 50, &ds);
    for (int t = 0; t < 4; t++) {
        DltLoaderConfig c = {.split = {&ds, ds.n, NULL},
                             .seed = 11,
                             .batch = BATCH,
                             .shuffle = true,
                             .n_thread = threads[t],
                             .depth = 4};
        DltLoader *l = start(h, &c, 0);
        for (int i = 0; i < BATCHES; i++) {
            DltBatch b = next(h, l);
            assert_int_equal(b.n_valid, BATCH);
            assert_int_equal(dlt_loader_position(l), (i + 1) * BATCH);
            check_contents(h, &ds, &b);
            if (t == 0) memcpy(want[i], b.ticket, sizeof want[i]);
            assert_memory_equal(want[i], b.ticket, sizeof want[i]);
        }
        assert_true(dlt_loader_wait_ns(l) > 0);
        dlt_loader_free(l);
    }
    /* resident: the same samples, rows are ids, no data */
    DltLoaderConfig c = {
        .split = {&ds, ds.n, NULL}, .seed = 11, .batch = BATCH, .shuffle = true, .resident = true};
    DltLoader *l = start(h, &c, 0);
    for (int i = 0; i < BATCHES; i++) {
        DltBatch b = next(h, l);
        assert_null(b.x);
        assert_null(b.y);
        for (int k = 0; k < BATCH; k++) {
            assert_int_equal(field(&b, k, DLT_TICKET_ROW), want[i][k][DLT_TICKET_SAMPLE]);
            assert_memory_equal(b.ticket + k * DLT_TICKET_INTS + 1, want[i][k] + 1, 12);
        }
    }
    assert_int_equal(dlt_loader_wait_ns(l), 0);
}

/* Every sample once an epoch, in another order each epoch; with and without the remainder. */
static void epochs_are_permutations(void **state)
{
    enum { EPOCHS = 5 };
    Help *h = *state;
    for (int64_t n = 1; n <= 40; n++) {
        for (int64_t batch = 1; batch <= n + 3; batch += 3) {
            for (int drop = 0; drop < 2; drop++) {
                DltDataset ds;
                int seen[EPOCHS][40] = {{0}};
                int32_t order[EPOCHS][40];
                int64_t per_epoch = drop ? n - n % batch : n, at = 0;
                if (per_epoch == 0) continue;
                open_set(h, n, &ds);
                DltLoaderConfig c = {.split = {&ds, n, NULL},
                                     .seed = (uint64_t)n,
                                     .batch = batch,
                                     .shuffle = true,
                                     .resident = true,
                                     .drop_last = drop != 0};
                DltLoader *l = start(h, &c, 0);
                while (at + batch <= EPOCHS * per_epoch) {
                    DltBatch b = next(h, l);
                    assert_int_equal(b.n_valid, batch);
                    for (int64_t i = 0; i < batch; i++, at++) {
                        int32_t sample = field(&b, i, DLT_TICKET_SAMPLE);
                        assert_int_equal(field(&b, i, DLT_TICKET_EPOCH), at / per_epoch);
                        assert_int_equal(field(&b, i, DLT_TICKET_VALID), 1);
                        assert_true(sample >= 0 && sample < n);
                        assert_int_equal(seen[at / per_epoch][sample]++, 0);
                        order[at / per_epoch][at % per_epoch] = sample;
                    }
                }
                dlt_loader_free(l);
                if (n == 40 && batch == 1)
                    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
            }
        }
    }
}

/* Cut at every position, resumed there (by a new loader, and by seek): the rest is the same. */
static void resumes_at_every_position(void **state)
{
    enum { N = 23, BATCH = 4, BATCHES = 30 };
    Help *h = *state;
    int32_t want[BATCHES][BATCH * DLT_TICKET_INTS];
    DltDataset ds;
    open_set(h, N, &ds);
    for (int drop = 0; drop < 2; drop++) {
        for (int threads = 0; threads < 3; threads += 2) {
            DltLoaderConfig c = {.split = {&ds, N, NULL},
                                 .seed = 5,
                                 .batch = BATCH,
                                 .shuffle = true,
                                 .drop_last = drop != 0,
                                 .n_thread = threads,
                                 .depth = 3};
            DltLoader *l = start(h, &c, 0);
            for (int i = 0; i < BATCHES; i++)
                memcpy(want[i], next(h, l).ticket, sizeof want[i]);
            for (int i = 0; i < BATCHES; i++) {
                DltLoader *fresh = start(h, &c, i * BATCH);
                dlt_loader_seek(l, i * BATCH);
                assert_int_equal(dlt_loader_position(l), i * BATCH);
                for (int k = i; k < BATCHES && k < i + 3; k++) {
                    DltBatch a = next(h, l), b = next(h, fresh);
                    assert_memory_equal(a.ticket, want[k], sizeof want[k]);
                    assert_memory_equal(b.ticket, want[k], sizeof want[k]);
                    check_contents(h, &ds, &a);
                }
                dlt_loader_free(fresh);
            }
            dlt_loader_free(l);
        }
    }
    /* far out in a long run, in no time */
    DltLoaderConfig c = {.split = {&ds, N, NULL}, .batch = 1, .shuffle = true, .resident = true};
    DltLoader *l = start(h, &c, (int64_t)1 << 40);
    int64_t sample, epoch;
    DltSplit all = {&ds, N, NULL};
    dlt_order_at(&all, 0, ((int64_t)1 << 40) + 1, &sample, &epoch);
    (void)next(h, l);
    DltBatch b = next(h, l);
    assert_int_equal(field(&b, 0, DLT_TICKET_SAMPLE), sample);
    assert_int_equal(epoch, (((int64_t)1 << 40) + 1) / N);
}

/* One pass: every sample of the split once and in order, the last batch padded with valid 0. */
static void evaluation_counts_every_sample_once(void **state)
{
    Help *h = *state;
    int64_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = 2 * i + 1;
    DltDataset ds;
    open_set(h, 80, &ds);
    for (int64_t n = 1; n <= 40; n++) {
        for (int64_t batch = 1; batch <= n + 2; batch += 2) {
            for (int mode = 0; mode < 3; mode++) { /* resident, no thread, two threads */
                DltLoaderConfig c = {.split = {&ds, n, ids},
                                     .batch = batch,
                                     .resident = mode == 0,
                                     .n_thread = mode == 2 ? 2 : 0,
                                     .depth = 2};
                int64_t at = 0;
                DltLoader *l = start(h, &c, 0);
                for (DltBatch b = next(h, l); b.n_valid > 0; b = next(h, l)) {
                    assert_int_equal(b.n_valid, n - at < batch ? n - at : batch);
                    for (int64_t i = 0; i < batch; i++) {
                        bool valid = i < b.n_valid;
                        int32_t row = field(&b, i, DLT_TICKET_ROW);
                        assert_int_equal(field(&b, i, DLT_TICKET_VALID), valid);
                        if (valid) assert_int_equal(field(&b, i, DLT_TICKET_SAMPLE), ids[at + i]);
                        assert_true(row >= 0 && row < (mode == 0 ? 80 : batch));
                    }
                    if (mode > 0) check_contents(h, &ds, &b);
                    at += b.n_valid;
                    assert_int_equal(dlt_loader_position(l), at);
                }
                assert_int_equal(at, n);
                assert_int_equal(next(h, l).n_valid, 0);
                dlt_loader_seek(l, 0);
                DltBatch again = next(h, l);
                assert_int_equal(field(&again, 0, DLT_TICKET_SAMPLE), 1);
                dlt_loader_free(l);
            }
        }
    }
}

/* A batch stays as it is until the call after next. */
static void batches_stay_valid(void **state)
{
    Help *h = *state;
    DltDataset ds;
    open_set(h, 100, &ds);
    for (int threads = 0; threads < 9; threads += 4) {
        DltLoaderConfig c = {.split = {&ds, 100, NULL},
                             .batch = 8,
                             .shuffle = true,
                             .n_thread = threads,
                             .depth = 1};
        DltLoader *l = start(h, &c, 0);
        DltBatch before = next(h, l);
        for (int i = 0; i < 300; i++) {
            int32_t ticket[8 * DLT_TICKET_INTS];
            memcpy(ticket, before.ticket, sizeof ticket);
            DltBatch now = next(h, l);
            assert_ptr_not_equal(now.x, before.x);
            assert_memory_equal(before.ticket, ticket, sizeof ticket);
            check_contents(h, &ds, &before);
            before = now;
        }
        dlt_loader_free(l);
    }
}

static void nothing_is_allocated_on_the_way(void **state)
{
    Help *h = *state;
    DltDataset ds;
    open_set(h, 100, &ds);
    for (int threads = 0; threads < 3; threads++) {
        DltLoaderConfig c = {.split = {&ds, 100, NULL},
                             .batch = 8,
                             .shuffle = true,
                             .n_thread = threads,
                             .depth = 3};
        DltLoader *l = start(h, &c, 0);
        dlt_mem_freeze();
        for (int i = 0; i < 100; i++) {
            if (i % 10 == 9) dlt_loader_seek(l, i * 3);
            (void)next(h, l);
        }
        dlt_mem_thaw();
        dlt_loader_free(l);
        dlt_loader_free(l); /* the arena frees it once more */
    }
    dlt_loader_free(NULL);
}

/* The device's own memory: every piece comes from it and goes back to it. */
typedef struct Pinned {
    int live, total;
} Pinned;

static void *pinned_alloc(void *ctx, size_t bytes)
{
    Pinned *p = ctx;
    p->live++;
    p->total++;
    return dlt_sys_alloc(bytes);
}

static void pinned_release(void *ctx, void *ptr)
{
    ((Pinned *)ctx)->live--;
    dlt_sys_free(ptr);
}

static void takes_the_devices_memory(void **state)
{
    Help *h = *state;
    DltDataset ds;
    Pinned pinned = {0, 0};
    open_set(h, 100, &ds);
    DltLoaderConfig c = {.split = {&ds, 100, NULL},
                         .batch = 8,
                         .shuffle = true,
                         .n_thread = 2,
                         .depth = 3,
                         .alloc = pinned_alloc,
                         .release = pinned_release,
                         .ctx = &pinned};
    DltLoader *l = start(h, &c, 0);
    (void)next(h, l);
    dlt_loader_free(l);
    assert_int_equal(pinned.live, 0);
    assert_int_equal(pinned.total, 3 * (3 + 2));
    c.batch = INT64_MAX / 10;
    help_refused(h, dlt_loader_new(h->arena, &c, 0, &l, &h->err), DLT_E_RESOURCE,
                 "larger than any");
    c.batch = 101;
    c.drop_last = true;
    help_refused(h, dlt_loader_new(h->arena, &c, 0, &l, &h->err), DLT_E_CONFIG,
                 "would drop them all");
}

/* A set whose sample 13 cannot be read: its batch fails, in its place in the stream, every time. */
static DltStatus read_or_fail(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                              DltErr *err)
{
    for (int64_t i = 0; i < n; i++) {
        if (id[i] == 13)
            return dlt_err_at(err, DLT_E_DATA, (DltMark){.file = "bad.bin"}, "record 13 is bad");
    }
    return dlt_dataset_synthetic.read(ds, id, n, x, y, err);
}

static void errors_come_in_stream_order(void **state)
{
    Help *h = *state;
    static const int threads[] = {0, 1, 8};
    DltDataset ds;
    open_set(h, 40, &ds);
    DltDatasetDef def = dlt_dataset_synthetic;
    def.read = read_or_fail;
    ds.def = &def;
    for (int t = 0; t < 3; t++) {
        DltLoaderConfig c = {
            .split = {&ds, 40, NULL}, .batch = 4, .n_thread = threads[t], .depth = 8};
        DltLoader *l = start(h, &c, 0);
        for (int round = 0; round < 2; round++) {
            DltBatch b;
            for (int i = 0; i < 3; i++)
                (void)next(h, l);
            help_refused(h, dlt_loader_next(l, &b, &h->err), DLT_E_DATA,
                         "bad.bin: record 13 is bad");
            dlt_loader_seek(l, 0);
        }
        dlt_loader_free(l);
    }
}

/* Random numbers of augmentation are keyed by (seed, epoch, sample): no repeats beyond chance between
 * samples and epochs (C67). 40 samples x 50 epochs of 81 offsets x 2 flips x 1024 centres. */
static void augmentation_does_not_repeat(void **state)
{
    enum { SAMPLES = 40, EPOCHS = 50 };
    (void)state;
    int equal = 0;
    for (int s = 0; s < SAMPLES; s++) {
        for (int e = 1; e < EPOCHS; e++) {
            DltAugment a = dlt_augment_draw(1, e, s, 4, 1, 32, 32);
            DltAugment b = dlt_augment_draw(1, e - 1, s, 4, 1, 32, 32);
            DltAugment c = dlt_augment_draw(1, e, s + 1, 4, 1, 32, 32);
            equal += memcmp(&a, &b, sizeof a) == 0;
            equal += memcmp(&a, &c, sizeof a) == 0;
        }
    }
    assert_true(equal <= 2); /* expected 3920 / 165888 = 0.02 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(same_stream_for_any_threads),  help_test(epochs_are_permutations),
        help_test(resumes_at_every_position),    help_test(evaluation_counts_every_sample_once),
        help_test(batches_stay_valid),           help_test(nothing_is_allocated_on_the_way),
        help_test(takes_the_devices_memory),     help_test(errors_come_in_stream_order),
        help_test(augmentation_does_not_repeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
