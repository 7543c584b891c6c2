/* Cases of public reports (tests/cases.txt) that whole runs show best: token files (C31, C32), a batch of one
 * sample with batch norm (C41), sequences of unequal length in micro batches (C44), every optimizer
 * resumed with every other (C49), a run that writes what it reads (C58), checkpoints of other networks
 * (C61), one batch however it is divided (C68). */
#include "runs.h"

#include <sys/stat.h>

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Reads the config, trains: the status, and that the first report has `part`. */
static void ends(const char *text, DltStatus want, const char *part)
{
    Run *r = new_run();
    DltSpec *spec = NULL;
    DltRunOptions o = {.n_thread = 1, .out = "case"};
    remove_folder("case");
    r->status =
        dlt_spec_read_stored(r->arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "."},
                             0, NULL, &spec, &r->err);
    if (r->status == DLT_OK) r->status = dlt_train(r->arena, spec, NULL, &o, &r->result, &r->err);
    if (part != NULL && (r->err.n == 0 || strstr(r->err.report[0].text, part) == NULL))
        fail_msg("status %d, '%s' is not in '%s'", (int)r->status, part,
                 r->err.n > 0 ? r->err.report[0].text : "");
    done(r, want);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static const char *token_config(DltArena *arena, int batch, const char *more)
{
    return dlt_arena_printf(arena,
                            "dltrain: 1\nname: k\ndata: {train: {tokens: {tokens: t.bin, layout: "
                            "raw16, window: 8, vocab: 50%s}}}\nmodel: [{embedding: 4}, {dense: "
                            "50}]\nloss: cross_entropy\ntrain: {for: 1 epochs, batch: %d, "
                            "optimizer: {sgd: {lr: 0.1}}}\n",
                            more, batch);
}

static void write_tokens(int n, int at, uint16_t id)
{
    uint16_t t[300];
    for (int i = 0; i < n; i++)
        t[i] = (uint16_t)(i * 7 % 49);
    if (at >= 0) t[at] = id;
    put_file("t.bin", t, 2 * (size_t)n);
}

/* An id beyond the table anywhere, the very last token included: its byte and id, on the host. */
static void c31_ids_are_checked(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const int places[] = {0, 1, 7, 8, 77, 128};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        static const uint16_t ids[] = {50, 51, 65535};
        for (int k = 0; k < 3; k++) {
            write_tokens(129, places[i], ids[k]);
            ends(token_config(arena, 2, ""), DLT_E_DATA,
                 dlt_arena_printf(arena, "byte %d: token %d is id %d, but the vocabulary has 50",
                                  2 * places[i], places[i], ids[k]));
        }
        write_tokens(129, places[i], 49);
        ends(token_config(arena, 2, ""), DLT_OK, NULL);
    }
    dlt_arena_free(arena);
}

/* Windows of T = 8: T + 1 tokens make the first sample; nothing wraps below it. */
static void c32_short_token_files(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const int counts[] = {0, 1, 2, 7, 8, 9, 10, 11};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int batch = 1; batch <= 8; batch += 7) {
            int n = counts[i], n_window = n > 8 ? (n - 1 + 7) / 8 : 0; /* the last is padded */
            write_tokens(n, -1, 0);
            if (n == 0)
                ends(token_config(arena, batch, ""), DLT_E_DATA, "the file is empty");
            else if (n_window == 0)
                ends(token_config(arena, batch, ""), DLT_E_DATA,
                     dlt_arena_printf(arena, "has %d token", n));
            else if (batch > n_window)
                ends(token_config(arena, batch, ""), DLT_E_CONFIG,
                     dlt_arena_printf(arena, "is more than the %d sample", n_window));
            else
                ends(token_config(arena, batch, ""), DLT_OK, NULL);
        }
    write_tokens(40, -1, 0);
    assert_int_equal(truncate("t.bin", 79), 0);
    ends(token_config(arena, 1, ""), DLT_E_DATA, "1 are left over at byte 78");
    dlt_arena_free(arena);
}

/* ---- sums over batches -------------------------------------------------------------------- */

static double metric(const char *folder, int row, const char *key)
{
    DltArena *arena = dlt_arena_new();
    json_t *list = rows(arena, folder);
    json_t *v = json_object_get(json_array_get(list, (size_t)row), key);
    assert_true(json_is_number(v));
    double value = json_number_value(v);
    json_decref(list);
    dlt_arena_free(arena);
    return value;
}

/* Every weight of two checkpoints, relative to the largest of its tensor. */
static void near_tensors(const char *a, const char *b, double tolerance)
{
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *x = NULL, *y = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, a, &x, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, b, &y, &err), DLT_OK);
    for (int i = 0; i < x->n_tensor; i++) {
        const DltCheckpointTensor *t = &x->tensor[i], *u = dlt_checkpoint_find(y, t->name);
        assert_non_null(u);
        if (t->dtype != DLT_F32) continue;
        int64_t n = t->n_bytes / 4;
        float *v = DLT_NEW_ARRAY(arena, n, float), *w = DLT_NEW_ARRAY(arena, n, float);
        memcpy(v, t->bytes, (size_t)t->n_bytes);
        memcpy(w, u->bytes, (size_t)t->n_bytes);
        double largest = 1e-3;
        for (int64_t k = 0; k < n; k++)
            if (fabs((double)v[k]) > largest) largest = fabs((double)v[k]);
        for (int64_t k = 0; k < n; k++)
            if (fabs((double)v[k] - (double)w[k]) > tolerance * largest)
                fail_msg("%s[%lld]: %g and %g", t->name, (long long)k, (double)v[k], (double)w[k]);
    }
    dlt_arena_free(arena);
}

/* Documents of 1 and of 99 tokens in windows of 100, padding behind them: in one batch, and in two micro
 * batches, the same loss and update within 1e-6; padding weighs nothing. */
static void c44_lengths_differ(void **state)
{
    (void)state;
    enum { EOT = 49, T = 100 };
    DltArena *arena = dlt_arena_new();
    uint16_t t[206];
    int n = 0;
    for (int k = 0; k < 2; k++) { /* a document of one token, then one of 99 */
        t[n++] = 3;
        t[n++] = EOT;
        for (int i = 0; i < 99; i++)
            t[n++] = (uint16_t)(i * 11 % 48);
        t[n++] = EOT;
    }
    put_file("t.bin", t, 2 * (size_t)n);
    static const char *const batches[] = {"{global: 4, micro: 4}", "{global: 4, micro: 2}",
                                          "{global: 4, micro: 1}"};
    for (int i = 0; i < 3; i++) {
        const char *text = dlt_arena_printf(
            arena,
            "dltrain: 1\nname: k\nseed: 2\ndata: {train: {tokens: {tokens: t.bin, layout: raw16, "
            "window: %d, vocab: 50, eot: %d, documents: split}}}\nmodel: [{embedding: 6}, {dense: "
            "50}]\nloss: cross_entropy\ntrain: {for: 2 steps, batch: %s, optimizer: {sgd: {lr: "
            "1}}}\nlog: {every: 1 steps}\n",
            T, EOT, batches[i]);
        const char *out = dlt_arena_printf(arena, "lengths-%d", i);
        done(train(text, (DltRunOptions){.out = out}), DLT_OK);
        assert_true(isfinite(metric(out, 1, "train.loss")));
        if (i == 0) continue;
        assert_true(fabs(metric(out, 0, "train.loss") - metric("lengths-0", 0, "train.loss")) <
                    1e-6 * metric("lengths-0", 0, "train.loss"));
        near_tensors("lengths-0/last.bin", dlt_arena_printf(arena, "%s/last.bin", out), 1e-5);
    }
    dlt_arena_free(arena);
}

/* batch is of the whole run, however it is divided: as many updates an epoch, the same rates and losses. What
 * does not divide is an error. */
static void c68_batch_is_global(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const char *const batches[] = {"12", "{global: 12, micro: 6}", "{global: 12, micro: 3}"};
    for (int i = 0; i < 3; i++) {
        char *text = (char *)config(arena, "  last: drop\n", batches[i], "sgd: {lr: 0.05}", "", "");
        memcpy(strstr(text, "{dropout: 0.3}"), "flatten       ", 14);
        memcpy(strstr(text, "batch_norm"), "tanh      ", 10);
        text = dlt_arena_printf(arena, "%.*s12 epochs%s", (int)(strstr(text, "20 steps") - text),
                                text, strstr(text, "20 steps") + 8);
        const char *out = dlt_arena_printf(arena, "global-%d", i);
        Run *r = train(text, (DltRunOptions){.out = out});
        assert_int_equal(r->result.step, 12 * (50 / 12));
        done(r, DLT_OK);
        for (int row = 0; row < 16; row++) {
            assert_true(metric(out, row, "lr") == metric("global-0", row, "lr"));
            assert_true(fabs(metric(out, row, "train.loss") -
                             metric("global-0", row, "train.loss")) < 1e-5);
        }
    }
    ends(config(arena, "", "{global: 10, micro: 4}", "sgd: {lr: 0.1}", "", ""), DLT_E_CONFIG,
         "4 does not divide global 10");
    dlt_arena_free(arena);
}

/* Batch norm and a remainder of one sample: batches straddle epochs, so none is short; one value a channel
 * is refused before the first step. */
static void c41_remainder_of_one(void **state)
{
    (void)state;
    static const struct {
        int n, batch;
        const char *more, *part;
        DltStatus status;
    } rows_[] = {{65, 64, "", NULL, DLT_OK},
                 {65, 64, ", last: drop", NULL, DLT_OK},
                 {65, 13, "", NULL, DLT_OK},
                 {2, 2, "", NULL, DLT_OK},
                 {1, 1, "", "has no variance", DLT_E_CONFIG},
                 {65, 1, "", "has no variance", DLT_E_CONFIG}};
    DltArena *arena = dlt_arena_new();
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        const char *text = dlt_arena_printf(
            arena,
            "dltrain: 1\nname: o\ndata: {train: {synthetic: {shape: [4], classes: 3, samples: "
            "%d}}%s}\nmodel: [{dense: 4}, batch_norm, relu, {dense: 3}]\nloss: cross_entropy\n"
            "train: {for: 3 epochs, batch: %d, optimizer: {sgd: {lr: 0.1}}}\n",
            rows_[i].n, rows_[i].more, rows_[i].batch);
        ends(text, rows_[i].status, rows_[i].part);
        if (rows_[i].status != DLT_OK) continue;
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = NULL;
        assert_int_equal(dlt_checkpoint_read(arena, "case/last.bin", &c, &err), DLT_OK);
        const DltCheckpointTensor *var = dlt_checkpoint_find(c, "batch_norm.running_var");
        assert_non_null(var);
        float v[4];
        memcpy(v, var->bytes, sizeof v);
        for (int k = 0; k < 4; k++)
            assert_true(isfinite(v[k]) && v[k] > 0);
    }
    dlt_arena_free(arena);
}

/* ---- resuming ----------------------------------------------------------------------------- */

/* Each optimizer with each other: the diagonal goes on to the same bits, all else is exit 4. */
static void c49_every_pair(void **state)
{
    (void)state;
    static const char *const optimizers[] = {
#define OPTIM(name) #name ": {lr: 1e-3}",
#include "train/optim.def"
#undef OPTIM
    };
    enum { N = sizeof optimizers / sizeof optimizers[0] };
    DltArena *arena = dlt_arena_new();
    int n = 0;
    for (int a = 0; a < N; a++) {
        const char *text = config(arena, "", "12", optimizers[a], "", "");
        remove_folder("whole");
        remove_folder("cut");
        done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = 7}), DLT_STOPPED);
        for (int b = 0; b < N; b++, n++) {
            if (a == b) continue;
            Run *r = resume(config(arena, "", "12", optimizers[b], "", ""), "cut/last.bin",
                            (DltRunOptions){0});
            if (r->err.n == 0 || strstr(r->err.report[0].text, "train.optimizer") == NULL)
                fail_msg("%s with %s", optimizers[a], optimizers[b]);
            done(r, DLT_E_CHECKPOINT);
        }
        done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        same_tensors("whole/last.bin", "cut/last.bin");
    }
    print_message("%d pairs of optimizers\n", n);
    dlt_arena_free(arena);
}

/* A file is never written while it is read: other names of it keep the old bytes. */
static void c58_other_names(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    static const char *const ways[] = {"hard", "symbolic", "relative"};
    for (int i = 0; i < 3; i++) {
        remove_folder("cut");
        remove_folder("kept");
        assert_int_equal(mkdir("kept", 0755), 0);
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = 6}), DLT_STOPPED);
        assert_int_equal(link("cut/last.bin", "kept/first.bin"), 0);
        assert_int_equal(link("cut/last.bin", "kept/original.bin"), 0);
        if (i == 1) {
            assert_int_equal(unlink("cut/last.bin"), 0);
            assert_int_equal(symlink("../kept/first.bin", "cut/last.bin"), 0);
        }
        const char *from = i == 2 ? "kept/../cut/../cut/last.bin" : "cut/last.bin";
        Run *r = new_run();
        DltCheckpoint *c = NULL;
        DltRunOptions o = {.n_thread = 1, .out = "cut"};
        assert_int_equal(dlt_checkpoint_read(r->arena, from, &c, &r->err), DLT_OK);
        r->status = dlt_train(r->arena, read_spec(r, text), c, &o, &r->result, &r->err);
        done(r, DLT_OK);
        same_tensors("whole/last.bin", "cut/last.bin");
        same_tensors("kept/original.bin", "kept/first.bin"); /* both at update 6 */
        DltErr err;
        dlt_err_init(&err);
        assert_int_equal(dlt_checkpoint_read(arena, "kept/first.bin", &c, &err), DLT_OK);
        if (c->meta.step != 6) fail_msg("%s: the old name has step %d", ways[i], (int)c->meta.step);
    }
    dlt_arena_free(arena);
}

/* ---- checkpoints of other networks -------------------------------------------------------- */

typedef void (*Spoil)(DltArena *arena, DltCheckpoint *c);

static void drop_one(DltArena *arena, DltCheckpoint *c)
{
    (void)arena;
    c->n_tensor--;
}
static void add_one(DltArena *arena, DltCheckpoint *c)
{
    DltCheckpointTensor *list = DLT_NEW_ARRAY(arena, c->n_tensor + 1, DltCheckpointTensor);
    memcpy(list, c->tensor, (size_t)c->n_tensor * sizeof *list);
    list[c->n_tensor] = list[0];
    list[c->n_tensor++].name = "dense_7.weight";
    c->tensor = list;
}
static DltCheckpointTensor *weight(DltCheckpoint *c)
{
    int i = 0;
    while (strcmp(c->tensor[i].name, "dense.weight") != 0)
        i++;
    return &c->tensor[i];
}
static void rename_one(DltArena *arena, DltCheckpoint *c)
{
    (void)arena;
    weight(c)->name = "dense.weights";
}
static void transpose(DltArena *arena, DltCheckpoint *c)
{
    (void)arena;
    DltShape *s = &weight(c)->shape;
    int64_t rows_ = s->dim[0];
    s->dim[0] = s->dim[1];
    s->dim[1] = rows_;
}
static void retype(DltArena *arena, DltCheckpoint *c)
{
    (void)arena;
    weight(c)->dtype = DLT_I32;
}

/* All or nothing: what fits does not come in with what does not. Every way to use the file refuses. */
static void c61_misfits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        Spoil spoil;
        bool unused; /* evaluation passes over what only training needs */
    } rows_[] = {{"missing", drop_one, true},
                 {"extra", add_one, true},
                 {"renamed", rename_one, false},
                 {"transposed", transpose, false},
                 {"of another type", retype, false}};
    DltArena *arena = dlt_arena_new();
    const char *text = config(arena, "", "12", "adam: {lr: 0.01}", "", "");
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        remove_folder("cut");
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = 6}), DLT_STOPPED);
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = NULL;
        assert_int_equal(dlt_checkpoint_read(arena, "cut/last.bin", &c, &err), DLT_OK);
        rows_[i].spoil(arena, c);
        assert_int_equal(dlt_checkpoint_write("cut/last.bin", c, &err), DLT_OK);
        Run *r = resume(text, "cut/last.bin", (DltRunOptions){0});
        if (r->status != DLT_E_CHECKPOINT) fail_msg("%s: %d", rows_[i].name, (int)r->status);
        done(r, DLT_E_CHECKPOINT);
        if (rows_[i].unused) continue;
        r = new_run();
        DltRunOptions o = {.n_thread = 1};
        assert_int_equal(dlt_checkpoint_read(r->arena, "cut/last.bin", &c, &r->err), DLT_OK);
        r->status = dlt_evaluate(r->arena, read_spec(r, text), c, DLT_VAL, &o, &r->result, &r->err);
        done(r, DLT_E_CHECKPOINT);
    }
    dlt_arena_free(arena);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c31_ids_are_checked),  cmocka_unit_test(c32_short_token_files),
        cmocka_unit_test(c41_remainder_of_one), cmocka_unit_test(c44_lengths_differ),
        cmocka_unit_test(c49_every_pair),       cmocka_unit_test(c58_other_names),
        cmocka_unit_test(c61_misfits),          cmocka_unit_test(c68_batch_is_global),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
