/* Windows of tokens: every token is a target exactly once an epoch, whatever the order, the threads and
 * the place where reading begins; shards of each layout give the same; faults are told with file and
 * offset before a window is read. */
#include "data_help.h"

#include "api/tokenizer.h"
#include "base/rng.h"
#include "datasets/shards.h"

static const char magic_bytes[] = {(char)0x88, (char)0xD8, 0x34, 0x01}; /* 20240520 */

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* A shard file of n ids id[i]; width 2 or 4, with llm.c's header or without. */
static const char *shard(Help *h, const char *name, const int32_t *id, int64_t n, int width,
                         bool header)
{
    uint8_t *bytes = DLT_NEW_ARRAY(h->arena, DLT_SHARD_HEADER + 4 * n, uint8_t), *at = bytes;
    if (header) {
        put32(at, width == 2 ? DLT_SHARD_MAGIC16 : DLT_SHARD_MAGIC32);
        put32(at + 4, width == 2 ? DLT_SHARD_VERSION16 : DLT_SHARD_VERSION32);
        put32(at + 8, (uint32_t)n);
        at += DLT_SHARD_HEADER;
    }
    for (int64_t i = 0; i < n; i++, at += width)
        for (int k = 0; k < width; k++)
            at[k] = (uint8_t)(id[i] >> 8 * k);
    return help_write(name, bytes, at - bytes);
}

/* Tokens 0, 1, 2 .. n - 1, so that a token tells its place. */
static int32_t *counting(Help *h, int64_t n)
{
    int32_t *id = DLT_NEW_ARRAY(h->arena, n, int32_t);
    for (int64_t i = 0; i < n; i++)
        id[i] = (int32_t)i;
    return id;
}

static void open_counting(Help *h, int64_t n, const char *more, DltDataset *ds)
{
    const char *path = shard(h, "count.bin", counting(h, n), n, 4, true);
    help_ok(h,
            help_open(h, "tokens", dlt_arena_printf(h->arena, "{tokens: %s, %s}", path, more), ds));
}

/* N tokens for N = k T + r, all r: every token but the first is the target of one place. */
static void every_token_is_a_target_once(void **state)
{
    enum { T = 5, MOST = 4 * T };
    Help *h = *state;
    for (int64_t n = T + 1; n <= MOST; n++) {
        DltDataset ds = {0};
        int seen[MOST] = {0};
        open_counting(h, n, "window: 5", &ds);
        assert_int_equal(ds.n, (n - 1 + T - 1) / T);
        assert_int_equal(ds.vocab, n);
        for (int64_t i = 0; i < ds.n; i++) {
            int32_t x[T], y[T];
            help_read(h, &ds, i, x, y);
            for (int k = 0; k < T; k++) {
                if (y[k] == DLT_IGNORED) continue;
                assert_int_equal(x[k], i * T + k);
                assert_int_equal(y[k], x[k] + 1);
                seen[y[k]]++;
            }
        }
        assert_int_equal(seen[0], 0);
        for (int64_t k = 1; k < n; k++)
            assert_int_equal(seen[k], 1);
    }
}

/* Moved windows: no token is a target twice, the first ones always are, fewer than T at the end are not. */
static void moved_windows_do_not_overlap(void **state)
{
    enum { T = 5, N = 23 };
    Help *h = *state;
    DltDataset ds = {0};
    open_counting(h, N, "window: 5, shift: epoch", &ds);
    assert_int_equal(ds.n_shift, T);
    for (int64_t shift = 0; shift < T; shift++) {
        int seen[N] = {0};
        for (int64_t i = 0; i < ds.n; i++) {
            int32_t x[T], y[T];
            help_read(h, &ds, i + shift * ds.n, x, y);
            for (int k = 0; k < T; k++) {
                if (y[k] == DLT_IGNORED) continue;
                assert_int_equal(y[k], x[k] + 1);
                seen[y[k]]++;
            }
        }
        for (int k = 1; k < N; k++)
            assert_int_equal(seen[k], k <= ds.n * T - shift);
    }
}

/* Own targets (masked text): N tokens give ceil(N / T) windows, each token is its own target once. */
static void every_token_is_its_own_target(void **state)
{
    enum { T = 5, MOST = 4 * T };
    Help *h = *state;
    for (int64_t n = T; n <= MOST; n++) {
        DltDataset ds = {.own_targets = true};
        int seen[MOST] = {0};
        open_counting(h, n, "window: 5", &ds);
        assert_int_equal(ds.n, (n + T - 1) / T);
        assert_true(ds.own_targets);
        for (int64_t i = 0; i < ds.n; i++) {
            int32_t x[T], y[T];
            help_read(h, &ds, i, x, y);
            for (int k = 0; k < T; k++) {
                if (y[k] == DLT_IGNORED) continue;
                assert_int_equal(y[k], i * T + k);
                assert_int_equal(x[k], y[k]);
                seen[y[k]]++;
            }
        }
        for (int64_t k = 0; k < n; k++)
            assert_int_equal(seen[k], 1);
    }
}

static void layouts_agree(void **state)
{
    enum { N = 100, T = 7 };
    Help *h = *state;
    int32_t *id = counting(h, N);
    const char *all = shard(h, "l16.bin", id, N, 2, true);
    const char *rows[] = {
        dlt_arena_printf(h->arena, "{tokens: %s, window: 7}", all),
        dlt_arena_printf(h->arena, "{tokens: %s, window: 7, layout: llmc}",
                         shard(h, "l32.bin", id, N, 4, true)),
        dlt_arena_printf(h->arena, "{tokens: %s, window: 7}", shard(h, "r16.bin", id, N, 2, false)),
        dlt_arena_printf(h->arena, "{tokens: %s, window: 7, layout: raw32}",
                         shard(h, "r32.bin", id, N, 4, false)),
    };
    uint64_t fingerprint = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        DltDataset ds = {0};
        int32_t x[T], y[T];
        help_ok(h, help_open(h, "tokens", rows[i], &ds));
        assert_int_equal(ds.vocab, N);
        assert_int_equal(ds.n, (N - 1 + T - 1) / T);
        help_read(h, &ds, 3, x, y);
        assert_int_equal(x[0], 3 * T);
        assert_int_equal(y[T - 1], 4 * T);
        assert_true(i == 0 || ds.fingerprint == fingerprint);
        fingerprint = ds.fingerprint;
    }
}

/* Three shards are one stream; a window may lie in two of them. */
static void shards_are_one_stream(void **state)
{
    enum { T = 4 };
    Help *h = *state;
    int32_t *id = counting(h, 25);
    char *pattern = dlt_arena_printf(h->arena, "/tmp/dlt_data_%ld_part*.bin", (long)getpid());
    shard(h, "part1.bin", id, 5, 2, true);
    shard(h, "part2.bin", id + 5, 11, 2, false);
    shard(h, "part3.bin", id + 16, 9, 4, true);
    DltDataset ds = {0};
    help_ok(h, help_open(h, "tokens",
                         dlt_arena_printf(h->arena, "{tokens: '%s', window: 4}", pattern), &ds));
    assert_int_equal(ds.n, 6);
    for (int64_t i = 0; i < ds.n; i++) {
        int32_t x[T], y[T];
        help_read(h, &ds, i, x, y);
        for (int k = 0; k < T; k++) {
            assert_int_equal(x[k], i * T + k);
            assert_int_equal(y[k], i * T + k + 1);
        }
    }
}

/* documents: split; 9 ends one. No window holds tokens of two; the rest is padding that counts nothing. */
static void documents_are_kept_apart(void **state)
{
    static const int32_t id[] = {1, 2, 9, 3, 9, 9, 4, 5, 6, 7, 8, 9, 1, 2};
    static const int32_t want_x[][3] = {{1, 2, 9}, {3, 9, 9}, {4, 5, 6}, {7, 8, 9}, {1, 9, 9}};
    static const int32_t want_y[][3] = {
        {2, 9, -1}, {9, -1, -1}, {5, 6, 7}, {8, 9, -1}, {2, -1, -1}};
    Help *h = *state;
    DltDataset ds = {0};
    const char *path = shard(h, "docs.bin", id, 14, 2, true);
    help_ok(h, help_open(h, "tokens",
                         dlt_arena_printf(
                             h->arena, "{tokens: %s, window: 3, documents: split, eot: 9}", path),
                         &ds));
    assert_int_equal(ds.n, 5);
    for (int64_t i = 0; i < ds.n; i++) {
        int32_t x[3], y[3];
        help_read(h, &ds, i, x, y);
        assert_memory_equal(y, want_y[i], sizeof y);
        for (int k = 0; k < 3; k++)
            if (y[k] != DLT_IGNORED || x[k] == 9) assert_int_equal(x[k], want_x[i][k]);
    }
    help_refused(
        h,
        help_open(h, "tokens",
                  dlt_arena_printf(h->arena, "{tokens: %s, window: 3, documents: split}", path),
                  &ds),
        DLT_E_CONFIG, "tokens.documents: split needs the id that ends a document; write eot:");
}

static void limit_takes_the_first_tokens(void **state)
{
    Help *h = *state;
    DltDataset ds = {0};
    open_counting(h, 50, "window: 4, limit: 21 tokens", &ds);
    assert_int_equal(ds.n, 5);
    const char *path = shard(h, "few.bin", counting(h, 50), 50, 4, true);
    help_refused(
        h,
        help_open(h, "tokens",
                  dlt_arena_printf(h->arena, "{tokens: %s, window: 4, limit: 4 tokens}", path),
                  &ds),
        DLT_E_DATA,
        "has 4 tokens within limit, fewer than the 5 of one window and the token behind it");
    help_refused(
        h,
        help_open(h, "tokens",
                  dlt_arena_printf(h->arena, "{tokens: %s, window: 4, limit: 4 steps}", path), &ds),
        DLT_E_CONFIG, "tokens.limit: is counted in tokens: 2e6 tokens");
}

/* What reading and its order must not depend on: where it begins, and the threads. */
static void batches_depend_on_nothing_else(void **state)
{
    enum { T = 4, N = 130, BATCH = 3, STEPS = 60 };
    Help *h = *state;
    DltDataset *ds = DLT_NEW(h->arena, DltDataset); /* outlives the threads, which the arena ends */
    open_counting(h, N, "window: 4, shift: epoch", ds);
    DltLoaderConfig c = {.split = {ds, ds->n, NULL}, .seed = 7, .batch = BATCH, .shuffle = true};
    int32_t all[STEPS][BATCH * T];
    DltLoader *l;
    DltBatch b;
    help_ok(h, dlt_loader_new(h->arena, &c, 0, &l, &h->err));
    for (int i = 0; i < STEPS; i++) {
        help_ok(h, dlt_loader_next(l, &b, &h->err));
        memcpy(all[i], b.y, sizeof all[i]);
    }
    c.n_thread = 3;
    c.depth = 5;
    for (int from = 0; from < STEPS; from += 13) {
        help_ok(h, dlt_loader_new(h->arena, &c, (int64_t)from * BATCH, &l, &h->err));
        for (int i = from; i < STEPS; i++) {
            help_ok(h, dlt_loader_next(l, &b, &h->err));
            assert_memory_equal(b.y, all[i], sizeof all[i]);
        }
    }
    /* an epoch has every window once: no target twice */
    int64_t per_epoch = ds->n / BATCH;
    int seen[N] = {0};
    for (int64_t i = 0; i < per_epoch; i++)
        for (int k = 0; k < BATCH * T; k++)
            if (all[i][k] >= 0) seen[all[i][k]]++;
    for (int k = 0; k < N; k++)
        assert_in_range(seen[k], 0, 1);
}

/* A sparse file of 5 GiB with known tokens around 2^31 and 2^32 bytes. */
static void five_gigabytes_are_read_right(void **state)
{
    enum { T = 1024 };
    static const int64_t at[] = {(1LL << 31) - 2, 1LL << 31, (1LL << 32) - 2, 1LL << 32,
                                 (5LL << 30) - 2};
    Help *h = *state;
    char *path = dlt_arena_printf(h->arena, "/tmp/dlt_data_%ld_sparse.bin", (long)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 5LL << 30), 0);
    for (int i = 0; i < 5; i++) {
        uint8_t id[2] = {(uint8_t)(i + 1), 3};
        assert_int_equal(pwrite(fd, id, 2, at[i]), 2);
    }
    close(fd);
    DltDataset ds = {0};
    const DltOpts *o = help_opts(
        h, "tokens", dlt_arena_printf(h->arena, "{tokens: %s, window: 1024, vocab: 65536}", path));
    help_ok(h, ds.def == NULL ? dlt_dataset_tokens.open(h->arena, o, ".", NULL, &ds, &h->err)
                              : DLT_OK);
    int64_t n = (5LL << 30) / 2;
    assert_int_equal(ds.n, (n - 1 + T - 1) / T);
    for (int i = 0; i < 5; i++) {
        int32_t x[T], y[T];
        int64_t token = at[i] / 2 - 1; /* the place whose target it is */
        help_read(h, &ds, token / T, x, y);
        assert_int_equal(y[token % T], 0x300 + i + 1);
    }
    unlink(path);
}

static void bad_shards_are_refused(void **state)
{
    Help *h = *state;
    int32_t *id = counting(h, 40);
    char *bytes = (char *)help_file(h, shard(h, "good.bin", id, 40, 2, true), &(int64_t){0});
    uint8_t version[DLT_SHARD_HEADER + 80], count[DLT_SHARD_HEADER + 80];
    memcpy(version, bytes, sizeof version);
    memcpy(count, bytes, sizeof count);
    version[4] = 2;
    count[8] = 41;
    const struct {
        const char *path, *more, *message;
    } cases[] = {
        {shard(h, "v.bin", id, 40, 2, false), "window: 8, vocab: 39",
         "byte 78: token 39 is id 39, but the vocabulary has 39 ids"},
        {help_write("odd.bin", bytes, 1023), "window: 8, layout: raw16",
         "1023 bytes are no whole number of 16-bit ids: 1 are left over at byte 1022"},
        {help_write("odd4.bin", bytes, 1022), "window: 8, layout: raw32",
         "1022 bytes are no whole number of 32-bit ids: 2 are left over at byte 1020"},
        {help_write("cut.bin", bytes, 1000), "window: 8",
         "the file is cut inside its header: 1000 of 1024 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DltDataset ds = {0};
        const char *yaml =
            dlt_arena_printf(h->arena, "{tokens: %s, %s}", cases[i].path, cases[i].more);
        help_refused(h, help_open(h, "tokens", yaml, &ds), DLT_E_DATA, cases[i].message);
    }
    const struct {
        const char *path, *more, *message;
    } more[] = {
        {help_write("version.bin", version, sizeof version), "window: 8",
         "byte 4: version 2 of a token shard is not known; 1 is"},
        {help_write("count.bin", count, sizeof count), "window: 8",
         "byte 8: the header announces 41 ids, so 1106 bytes, but the file has 1104"},
        {shard(h, "raw.bin", id, 40, 2, false), "window: 8, layout: llmc",
         "byte 0: magic 65536 is not that of a token shard (20240520 for 16-bit ids, 20240801 for "
         "32-bit ids)"},
        {shard(h, "short.bin", id, 8, 2, true), "window: 8",
         "has 8 tokens, fewer than the 9 of one window and the token behind it"},
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        DltDataset ds = {0};
        const char *yaml =
            dlt_arena_printf(h->arena, "{tokens: %s, %s}", more[i].path, more[i].more);
        help_refused(h, help_open(h, "tokens", yaml, &ds), DLT_E_DATA, more[i].message);
    }
    assert_memory_equal(bytes, magic_bytes, 4);
}

static void vocabularies_must_fit(void **state)
{
    Help *h = *state;
    DltDataset ds = {0};
    int32_t *id = counting(h, 40);
    id[39] = 38;
    const char *path = shard(h, "fit.bin", id, 40, 2, true);
    help_ok(h,
            help_open(h, "tokens",
                      dlt_arena_printf(h->arena, "{tokens: %s, window: 8, vocab: 39}", path), &ds));
    help_refused(
        h,
        help_open(h, "tokens",
                  dlt_arena_printf(h->arena, "{tokens: %s, window: 8, vocab: 65537}", path), &ds),
        DLT_E_DATA, "its ids have 16 bits, which cannot hold a vocabulary of 65537");
    DltTokenizer chars = {.def = dlt_tokenizer_find("chars"), .eot = -1};
    ds = (DltDataset){.tokenizer = &chars};
    help_refused(
        h, help_open(h, "tokens", dlt_arena_printf(h->arena, "{tokens: %s, window: 8}", path), &ds),
        DLT_E_CONFIG, "tokens: the tokenizer chars learns from text, and this set is ids");
    help_refused(h, help_open(h, "tokens", dlt_arena_printf(h->arena, "{tokens: %s}", path), &ds),
                 DLT_E_CONFIG, "tokens: needs a window: the number of tokens of a sample");
}

static void text_follows_its_tokenizer(void **state)
{
    enum { T = 4 };
    Help *h = *state;
    static const char text[] = "to be or not to be", alien[] = "to be or NOT";
    const char *path = help_write("a.txt", text, sizeof text - 1);
    DltTokenizer t = {.def = dlt_tokenizer_find("chars"), .eot = -1};
    DltDataset ds = {.tokenizer = &t}, val = {0};
    char *yaml = dlt_arena_printf(h->arena, "{text: %s, window: 4}", path);
    help_ok(h, help_open(h, "text", yaml, &ds));
    assert_int_equal(ds.vocab, 7); /* " beonrt" */
    assert_int_equal(ds.classes, 7);
    assert_int_equal(ds.n, 5);
    int32_t x[T], y[T];
    static const int32_t first[] = {6, 4, 0, 1};
    help_read(h, &ds, 0, x, y);
    assert_memory_equal(x, first, sizeof first);
    const char *other = help_write("b.txt", alien, sizeof alien - 1);
    help_refused(
        h,
        help_open_like(h, "text", dlt_arena_printf(h->arena, "{text: %s, window: 4}", other), &ds,
                       &val),
        DLT_E_DATA, "byte 9: the character 'N' (U+004E) is not among the 7 of the training text");
    ds = (DltDataset){0};
    help_refused(
        h, help_open(h, "text", yaml, &ds), DLT_E_CONFIG,
        "text: needs a tokenizer; write data.tokenizer: bytes, chars, {bpe: FILE} or gpt2");
}

/* The end of a text is held out as a whole. */
static void a_share_is_the_tail(void **state)
{
    Help *h = *state;
    DltDataset ds = {0};
    DltSplit train, val;
    open_counting(h, 401, "window: 4", &ds);
    help_ok(h, dlt_split_fraction(h->arena, &ds, 0.1, &train, &val, &h->err));
    assert_int_equal(train.n, 90);
    assert_int_equal(val.n, 10);
    for (int64_t i = 0; i < train.n; i++)
        assert_int_equal(train.id[i], i);
    for (int64_t i = 0; i < val.n; i++)
        assert_int_equal(val.id[i], 90 + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        help_test(every_token_is_a_target_once),  help_test(moved_windows_do_not_overlap),
        help_test(every_token_is_its_own_target), help_test(layouts_agree),
        help_test(shards_are_one_stream),         help_test(documents_are_kept_apart),
        help_test(limit_takes_the_first_tokens),  help_test(batches_depend_on_nothing_else),
        help_test(five_gigabytes_are_read_right), help_test(bad_shards_are_refused),
        help_test(vocabularies_must_fit),         help_test(text_follows_its_tokenizer),
        help_test(a_share_is_the_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
