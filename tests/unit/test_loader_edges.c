/* The loader at its edges: orders of subsets, seeking to positions inside a batch while threads are busy,
 * evaluation started anywhere, memory refused at each piece, sets too large for tickets. Samples are
 * made by a reader of its own whose content tells the id; test_loader.c has the plain course. */
#include "data_help.h"
#include "ops/data_ops.h"

enum { WIDTH = 3, MAX_N = 64 };

/* ---- a data set that is a function of the id ------------------------------------------------- */

static float made_x(int64_t id, int k)
{
    return (float)(id * 10 + k);
}

static int32_t made_y(int64_t id)
{
    return (int32_t)(id * id % 7);
}

/* Some samples take longer, so that threads overtake each other. */
static DltStatus read_made(const DltDataset *ds, const int64_t *id, int64_t n, void *x, void *y,
                           DltErr *err)
{
    (void)ds;
    (void)err;
    for (int64_t i = 0; i < n; i++) {
        if (id[i] % 5 == 0) usleep((useconds_t)(id[i] * 7 % 300));
        for (int k = 0; k < WIDTH; k++)
            ((float *)x)[i * WIDTH + k] = made_x(id[i], k);
        ((int32_t *)y)[i] = made_y(id[i]);
    }
    return DLT_OK;
}

static const DltDatasetDef made_def = {.name = "made", .help = "made here", .read = read_made};

static DltDataset *made(Help *h, int64_t n)
{
    DltDataset *ds = DLT_NEW(h->arena, DltDataset);
    *ds = (DltDataset){.def = &made_def,
                       .n = n,
                       .x_shape = dlt_shape1(WIDTH),
                       .x_dtype = DLT_F32,
                       .x_scale = 1,
                       .y_dtype = DLT_I32,
                       .classes = 7,
                       .path = "made"};
    return ds;
}

static DltLoader *loader(Help *h, const DltLoaderConfig *c, int64_t position)
{
    DltLoader *l = NULL;
    help_ok(h, dlt_loader_new(h->arena, c, position, &l, &h->err));
    return l;
}

static DltBatch next(Help *h, DltLoader *l)
{
    DltBatch b = {0};
    help_ok(h, dlt_loader_next(l, &b, &h->err));
    return b;
}

static int32_t ticket(const DltBatch *b, int64_t row, int field)
{
    return b->ticket[row * DLT_TICKET_INTS + field];
}

/* The content of a streamed batch is that of the samples its tickets name. */
static void check_content(const DltBatch *b, int64_t batch)
{
    for (int64_t i = 0; i < batch; i++) {
        int64_t id = ticket(b, i, DLT_TICKET_SAMPLE);
        assert_int_equal(ticket(b, i, DLT_TICKET_ROW), i);
        assert_int_equal(((int32_t *)b->y)[i], made_y(id));
        for (int k = 0; k < WIDTH; k++)
            assert_true(((float *)b->x)[i * WIDTH + k] == made_x(id, k));
    }
}

/* A training batch is what dlt_order_at says of the positions from `position` on. */
static void check_stream(const DltBatch *b, const DltLoaderConfig *c, int64_t position)
{
    assert_int_equal(b->n_valid, c->batch);
    for (int64_t i = 0; i < c->batch; i++) {
        int64_t sample, epoch;
        dlt_order_at(&c->split, c->seed, position + i, &sample, &epoch);
        assert_int_equal(ticket(b, i, DLT_TICKET_SAMPLE), sample);
        assert_int_equal(ticket(b, i, DLT_TICKET_EPOCH), epoch);
        assert_int_equal(ticket(b, i, DLT_TICKET_VALID), 1);
    }
}

/* Each of the first epochs is a permutation of the split, and they are not all the same one. */
static void every_sample_once_an_epoch(void **state)
{
    enum { EPOCHS = 6 };
    static const int64_t ids[MAX_N] = {3, 1000000, 7, 8, 2, 90, 41, 5, 6, 0, 11};
    Help *h = *state;
    for (int64_t n = 1; n <= MAX_N; n++) {
        DltSplit s = {made(h, 2000000), n, n <= 11 ? ids : NULL};
        int n_moved = 0;
        int64_t before[MAX_N] = {0};
        for (int64_t e = 0; e < EPOCHS; e++) {
            bool seen[MAX_N] = {false};
            for (int64_t p = 0; p < n; p++) {
                int64_t sample, epoch, place = 0;
                dlt_order_at(&s, 7, e * n + p, &sample, &epoch);
                assert_int_equal(epoch, e);
                while (place < n && (s.id != NULL ? s.id[place] : place) != sample)
                    place++;
                assert_true(place < n && !seen[place]);
                seen[place] = true;
                n_moved += e > 0 && before[p] != place;
                before[p] = place;
            }
        }
        if (n > 8) assert_true(n_moved > EPOCHS * n / 2);
    }
}

/* Ranks of the first place over many epochs are even: no sample is preferred. Chi-square with 15
 * degrees of freedom stays below 37.7 with probability 0.999. */
static void orders_prefer_nobody(void **state)
{
    enum { N = 16, EPOCHS = 3200 };
    Help *h = *state;
    DltSplit s = {made(h, N), N, NULL};
    for (int place = 0; place < N; place += 5) {
        double chi = 0, want = (double)EPOCHS / N;
        int count[N] = {0};
        for (int64_t e = 0; e < EPOCHS; e++) {
            int64_t sample, epoch;
            dlt_order_at(&s, 1, e * N + place, &sample, &epoch);
            count[sample]++;
        }
        for (int i = 0; i < N; i++)
            chi += (count[i] - want) * (count[i] - want) / want;
        assert_true(chi < 37.7);
    }
}

/* Every position of three epochs, by seeking forth and back and by starting there. */
static void seeks_to_every_position(void **state)
{
    enum { N = 11, BATCH = 4 };
    Help *h = *state;
    for (int t = 0; t < 3; t++) {
        DltLoaderConfig c = {.split = {made(h, N), N, NULL},
                             .seed = 5,
                             .batch = BATCH,
                             .shuffle = true,
                             .n_thread = t == 2 ? 8 : t,
                             .depth = 2};
        DltLoader *l = loader(h, &c, 0);
        for (int64_t k = 0; k < 3 * N; k++) {
            int64_t p = k % 2 ? 3 * N - k : k;
            dlt_loader_seek(l, p);
            for (int64_t i = 0; i < 1 + k % 3; i++) {
                assert_int_equal(dlt_loader_position(l), p + i * BATCH);
                DltBatch b = next(h, l);
                check_stream(&b, &c, p + i * BATCH);
                check_content(&b, BATCH);
            }
            DltLoader *there = loader(h, &c, p);
            DltBatch b = next(h, there);
            check_stream(&b, &c, p);
            dlt_loader_free(there);
        }
        /* far away: epochs beyond 2^32 positions */
        dlt_loader_seek(l, ((int64_t)1 << 34) + 3);
        DltBatch b = next(h, l);
        check_stream(&b, &c, ((int64_t)1 << 34) + 3);
        dlt_loader_free(l);
    }
}

/* One pass from `from`: each later sample once and valid, in order; padding is invalid and repeats a
 * sample that exists; then the pass is over, and stays so. */
static void check_pass(Help *h, DltLoader *l, const DltLoaderConfig *c, int64_t from)
{
    int64_t n = c->split.n, at = from;
    while (at < n) {
        DltBatch b = next(h, l);
        assert_int_equal(b.n_valid, n - at < c->batch ? n - at : c->batch);
        if (!c->resident) check_content(&b, c->batch);
        for (int64_t i = 0; i < c->batch; i++) {
            bool valid = i < b.n_valid;
            int64_t place = valid ? at + i : n - 1;
            int64_t id = c->split.id != NULL ? c->split.id[place] : place;
            assert_int_equal(ticket(&b, i, DLT_TICKET_VALID), valid);
            assert_int_equal(ticket(&b, i, DLT_TICKET_SAMPLE), id);
            if (c->resident) assert_int_equal(ticket(&b, i, DLT_TICKET_ROW), id);
        }
        at += b.n_valid;
        assert_int_equal(dlt_loader_position(l), at);
    }
    for (int i = 0; i < 3; i++) {
        DltBatch b = next(h, l);
        assert_int_equal(b.n_valid, 0);
        assert_int_equal(dlt_loader_position(l), n);
    }
}

static void evaluation_starts_anywhere(void **state)
{
    static const int64_t ids[] = {9, 4, 30, 2, 17, 1, 0, 28, 3, 6, 5, 33, 8};
    Help *h = *state;
    for (int64_t n = 1; n <= 13; n++) {
        for (int64_t batch = 1; batch <= 14; batch += 1 + (batch > 4)) {
            for (int t = 0; t < 4; t++) {
                DltLoaderConfig c = {.split = {made(h, 40), n, t % 2 ? ids : NULL},
                                     .batch = batch,
                                     .resident = t == 3,
                                     .n_thread = t,
                                     .depth = 2};
                DltLoader *l = loader(h, &c, 0);
                check_pass(h, l, &c, 0);
                for (int64_t from = 0; from <= n; from++) {
                    dlt_loader_seek(l, from);
                    check_pass(h, l, &c, from);
                }
                dlt_loader_free(l);
            }
        }
    }
}

/* Memory of the device: counted, and refused from the k-th piece on. */
typedef struct Pinned {
    int n_held, n_taken, refuse;
} Pinned;

static void *pinned_alloc(void *ctx, size_t bytes)
{
    Pinned *p = ctx;
    if (p->n_taken == p->refuse) return NULL;
    p->n_taken++;
    p->n_held++;
    return dlt_sys_alloc(bytes);
}

static void pinned_release(void *ctx, void *ptr)
{
    Pinned *p = ctx;
    p->n_held--;
    dlt_sys_free(ptr);
}

static void memory_is_given_back(void **state)
{
    enum { N = 20 };
    Help *h = *state;
    int k = 0;
    for (bool done = false; !done; k++) {
        Pinned p = {.refuse = k};
        DltLoaderConfig c = {.split = {made(h, N), N, NULL},
                             .batch = 3,
                             .shuffle = true,
                             .n_thread = 2,
                             .depth = 2,
                             .alloc = pinned_alloc,
                             .release = pinned_release,
                             .ctx = &p};
        DltArena *arena = dlt_arena_new();
        DltLoader *l = NULL;
        DltStatus status = dlt_loader_new(arena, &c, 0, &l, &h->err);
        if (status != DLT_OK) help_refused(h, status, DLT_E_RESOURCE, "out of memory");
        done = status == DLT_OK;
        if (done) (void)next(h, l);
        if (done) dlt_loader_free(l);
        dlt_arena_free(arena); /* frees it once more, or what a failed start left */
        assert_int_equal(p.n_held, 0);
    }
    assert_int_equal(k - 1, 3 * (2 + 2)); /* x, y, tickets of 2 batches and 2 held ones */
    dlt_loader_free(NULL);
}

static void tickets_name_31_bits(void **state)
{
    Help *h = *state;
    DltLoader *l = NULL;
    DltDataset *ds = made(h, (int64_t)INT32_MAX + 1);
    DltLoaderConfig c = {.split = {ds, ds->n, NULL}, .batch = 2, .shuffle = true, .resident = true};
    help_refused(h, dlt_loader_new(h->arena, &c, 0, &l, &h->err), DLT_E_DATA,
                 "more than the 2147483647 that tickets can name");
    ds->n = INT32_MAX;
    c.split.n = ds->n;
    l = loader(h, &c, 3 * (int64_t)INT32_MAX - 1); /* a batch that straddles two epochs */
    DltBatch b = next(h, l);
    check_stream(&b, &c, 3 * (int64_t)INT32_MAX - 1);
    assert_int_equal(ticket(&b, 0, DLT_TICKET_EPOCH), 2);
    assert_int_equal(ticket(&b, 1, DLT_TICKET_EPOCH), 3);
    dlt_loader_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(every_sample_once_an_epoch), help_test(orders_prefer_nobody),
        help_test(seeks_to_every_position),    help_test(evaluation_starts_anywhere),
        help_test(memory_is_given_back),       help_test(tickets_name_31_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
