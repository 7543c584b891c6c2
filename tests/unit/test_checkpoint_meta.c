/* What a checkpoint says about the run, with each field impossible in turn: the file is sealed again (right
 * length and checksum), so the field alone is wrong, and refused by its name. Also tensors that lie, and
 * what cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/rng.h"
#include "checkpoint_help.h"
#include "exec/checkpoint.h"
#include "exec/safetensors.h"
#include "full.h"

static char path[64];

static DltCheckpoint *sample(DltArena *arena)
{
    static const char *const overrides[] = {"a=1"};
    static const char *const names[] = {"cat", "dog"};
    static const float weights[4] = {1, 2, 3, 4};
    static const uint8_t bytes[2] = {7, 8};
    DltCheckpoint *c = DLT_NEW(arena, DltCheckpoint);
    c->meta = (DltCheckpointMeta){.config_text = "a: 1",
                                  .config_path = "x.yaml",
                                  .config_folder = ".",
                                  .resolved = "a: 1",
                                  .n_override = 1,
                                  .override = overrides,
                                  .program = "dltrain",
                                  .step = 1234,
                                  .seed = 5678,
                                  .epoch = 0.25,
                                  .n_class = 2,
                                  .class_name = names,
                                  .rollbacks = 3,
                                  .lineage = "step 1",
                                  .run = 99};
    static const DltCheckpointTensor tensors[] = {
        {.name = "w", .dtype = DLT_F32, .shape = {2, {2, 2}}, .bytes = weights, .n_bytes = 16},
        {.name = "b", .dtype = DLT_U8, .shape = {1, {2}}, .bytes = bytes, .n_bytes = 2},
    };
    c->n_tensor = 2;
    c->tensor = DLT_NEW_ARRAY(arena, c->n_tensor, DltCheckpointTensor);
    memcpy(c->tensor, tensors, sizeof tensors);
    return c;
}

static char *sample_file(DltArena *arena, int64_t *n)
{
    return checkpoint_bytes(arena, path, sample(arena), n);
}

/* The header's checksum anew. */
static void seal(char *file)
{
    static const char key[] = "\"dltrain.header_crc32\":\"";
    int64_t head = 8;
    for (int i = 0; i < 8; i++)
        head += (int64_t)(uint8_t)file[i] << 8 * i;
    char *crc = memmem(file, (size_t)head, key, sizeof key - 1), digits[9];
    assert_non_null(crc);
    crc += sizeof key - 1;
    memcpy(crc, "00000000", 8);
    snprintf(digits, sizeof digits, "%08x", dlt_safetensors_crc(0, file, head));
    memcpy(crc, digits, 8);
}

/* `from` becomes `to`, of the same length. */
static void spoilt(const char *from, const char *to, const char *reason)
{
    DltArena *arena = dlt_arena_new();
    int64_t n = 0;
    char *file = sample_file(arena, &n), text[DLT_ERR_TEXT];
    char *at = memmem(file, (size_t)n, from, strlen(from));
    if (at == NULL) fail_msg("'%s' is not in the file", from);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    seal(file);
    DltStatus status = parse(file, n, text);
    if (status != (reason != NULL ? DLT_E_CHECKPOINT : DLT_OK) ||
        (reason != NULL && strstr(text, reason) == NULL))
        fail_msg("%s -> %s: status %d, %s", from, to, (int)status, text);
    dlt_arena_free(arena);
}

static void every_field_may_lie(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"step\":\"1234\"", "step\":\"12x4\"", "dltrain.step has an impossible value"},
        {"step\":\"1234\"", "step\":\"+234\"", "dltrain.step has an impossible value"},
        {"step\":\"1234\"", "step\":\"-   \"", "dltrain.step has an impossible value"},
        {"step\":\"1234\"", "step\":\"-\"   ", "dltrain.step has an impossible value"},
        {"step\":\"1234\"", "step\":\"\"    ", "dltrain.step has an impossible value"},
        {"step\":\"1234\"", "step\":\"-123\"", NULL},
        {"\"dltrain.step\":\"1234\"", "\"dltrain.step\":123456",
         "metadata dltrain.step is no string"},
        {"\"dltrain.step\":\"1234\"", "\"dltrain.stop\":\"1234\"", "dltrain.step is missing"},
        {"seed\":\"5678\"", "seed\":\"-678\"", "dltrain.seed has an impossible value"},
        {"seed\":\"5678\"", "seed\":\"\"    ", "dltrain.seed has an impossible value"},
        {"epoch\":\"0.25\"", "epoch\":\"0,25\"", "dltrain.epoch has an impossible value"},
        {"epoch\":\"0.25\"", "epoch\":\"\"    ", "dltrain.epoch has an impossible value"},
        {"epoch\":\"0.25\"", "epoch\":\"inf\" ", "dltrain.epoch has an impossible value"},
        {"epoch\":\"0.25\"", "epoch\":\"nan\" ", "dltrain.epoch has an impossible value"},
        {"epoch\":\"0.25\"", "epoch\":\"9e99\"", NULL},
        {"dltrain.rollbacks", "dltrain.rollbackz", "dltrain.rollbackz is not known"},
        {"dltrain.rollbacks\":\"3\"", "dltrain.rollbacks\":\"x\"", "dltrain.rollbacks has an imp"},
        {"\"[\\\"a=1\\\"]\"", "\"{\\\"a=1\\\"]\"", "dltrain.overrides is no list of strings"},
        {"\"[\\\"a=1\\\"]\"", "\"{\\\"a\\\":1}\"", "dltrain.overrides is no list of strings"},
        {"\"[\\\"a=1\\\"]\"", "\"[1,2,3,4]\"", "dltrain.overrides is no list of strings"},
        {"\"[\\\"a=1\\\"]\"", "\"[\\\"a\\\",4]\"", "dltrain.overrides is no list of strings"},
        {"\"[\\\"cat\\\",\\\"dog\\\"]\"", "\"[\\\"cat\\\", \\\"d\\\"]\" ", NULL},
        {"\"[\\\"cat\\\",\\\"dog\\\"]\"", "\"[\\\"cat\\\"       ]\" ",
         "does not have a name for each"},
        {"\"[\\\"cat\\\",\\\"dog\\\"]\"", "\"[\\\"cat\\\",   42 ]\" ",
         "class_names is no list of str"},
        {"\"[\\\"cat\\\",\\\"dog\\\"]\"", "\"[               ]\"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        /* escaped quotes make the lengths differ: pad with blanks behind the value */
        char to[128];
        snprintf(to, sizeof to, "%-*s", (int)strlen(rows[i][0]), rows[i][1]);
        spoilt(rows[i][0], to, rows[i][2]);
    }
}

static void numbers_out_of_range(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = sample(arena), *back = NULL;
    c->meta.step = INT64_MAX;
    c->meta.seed = UINT64_MAX;
    c->meta.best_value = 1.0 / 0.0 * (double)c->n_tensor; /* has no number in the file: 0 */
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    assert_true(back->meta.step == INT64_MAX && back->meta.seed == UINT64_MAX);
    assert_true(back->meta.best_value == 0.0);
    int64_t n = 0;
    char *file = NULL, text[DLT_ERR_TEXT];
    assert_int_equal(
        dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK}, &file, &n, &err),
        DLT_OK);
    char *at = memmem(file, (size_t)n, "9223372036854775807", 19);
    at[18] = '8'; /* one beyond */
    seal(file);
    assert_int_equal(parse(file, n, text), DLT_E_CHECKPOINT);
    at[18] = '7';
    at = memmem(file, (size_t)n, "18446744073709551615", 20);
    at[19] = '6';
    seal(file);
    assert_int_equal(parse(file, n, text), DLT_E_CHECKPOINT);
    assert_non_null(strstr(text, "dltrain.seed has an impossible value"));
    dlt_arena_free(arena);
}

static void tensors_may_lie(void **state)
{
    (void)state;
    static const char w[] = "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}";
    static const char *const rows[][2] = {
        {"\"w\":[{\"dtype\":\"F32\",\"shape\":[2,2]}]", "w: it is not {dtype"},
        {"\"w\":{\"dtype\":32,\"shape\":[2,2],\"data_offsets\":[0,16]}", "w: it is not {dtype"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":16}", "w: it is not {dtype"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0]}", "w: it is not {dtype"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[\"\",6]}", "w: it is not {"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,\"\"]}", "w: it is not {"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,15]}", "does not lie at"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,\"\"],\"data_offsets\":[0,8]}", "dimension 1"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,-1],\"data_offsets\":[0,8]}", "dimension 1"},
        {"\"w\":{\"dtype\":\"F3\",\"shape\":[2,2],\"data_offsets\":[0,16]}", "unknown type F3"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,16]}", "its shape is no list"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[9e9],\"data_offsets\":[0,9]}", "dimension 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char to[128];
        snprintf(to, sizeof to, "%-*s", (int)sizeof w - 1, rows[i][0]);
        spoilt(w, to, rows[i][1]);
    }
    spoilt("\"dltrain.format\":\"1\"", "\"dltrain.format\":\"7\"", "format '7'");
    static const char both[] = "\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[16,18]}";
    static const char *const wide[][2] = {
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[4398046511104],\"data_offsets\":[0,16]},\"b\":1",
         "dimension 0"},
        {"\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16],\"x\":1},\"b\":1",
         "w: it is not {dtype"},
    };
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        char to[200];
        snprintf(to, sizeof to, "%-*s", (int)sizeof both - 1, wide[i][0]);
        spoilt(both, to, wide[i][1]);
    }
}

/* More tensors than the format has room for, and more values than its tensors can have. */
static void too_much(void **state)
{
    (void)state;
    enum { ROOM = 8 << 20, TOO_MANY = DLT_SAFE_TENSOR_MAX + 1 };
    DltArena *arena = dlt_arena_new();
    char *file = dlt_arena_new_bytes(arena, ROOM, 1), text[DLT_ERR_TEXT];
    for (int kind = 0; kind < 2; kind++) {
        int n_crc = kind == 0 ? TOO_MANY : 0;
        int64_t n = 8;
        n += snprintf(file + n, 200,
                      "{\"__metadata__\":{\"dltrain.header_crc32\":\"00000000\","
                      "\"dltrain.tensor_crc32\":\"");
        memset(file + n, '0', (size_t)n_crc * 8);
        n += (int64_t)n_crc * 8;
        n += snprintf(file + n, 10, "\"}");
        for (int i = 0; i < TOO_MANY; i++)
            n += snprintf(file + n, 30, kind == 0 ? ",\"t%d\":1" : ",\"t%d\":[1]", i);
        file[n++] = '}';
        for (int i = 0; i < 8; i++)
            file[i] = (char)((n - 8) >> 8 * i);
        seal(file);
        assert_int_equal(parse(file, n, text), DLT_E_CHECKPOINT);
        const char *part = kind == 0 ? "65537 tensors; at most 65536" : "too many for 0 tensors";
        if (strstr(text, part) == NULL) fail_msg("%s", text);
    }
    dlt_arena_free(arena);
}

/* A payload that changed is found by everyone who reads tensors, and by nobody who does not. */
static void payload(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    int64_t n = 0;
    char *file = sample_file(arena, &n);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_verify(arena, path, &c, &err), DLT_OK);
    file[n - 1] ^= 4;
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(file, 1, (size_t)n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(dlt_checkpoint_verify(arena, path, &c, &err), DLT_E_CHECKPOINT);
    assert_non_null(strstr(err.report[0].text, "checksum"));
    dlt_err_init(&err);
    assert_int_equal(dlt_checkpoint_read(arena, path, &c, &err), DLT_E_CHECKPOINT);
    dlt_err_init(&err);
    assert_int_equal(dlt_checkpoint_read_header(arena, path, &c, &err), DLT_OK);
    assert_int_equal(c->meta.step, 1234);
    enum { LARGE = 300 << 10 }; /* more than is read at once */
    c = sample(arena);
    c->tensor[1].shape = dlt_shape1(LARGE);
    c->tensor[1].n_bytes = LARGE;
    c->tensor[1].bytes = dlt_arena_new_bytes(arena, LARGE, 1);
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_verify(arena, path, &c, &err), DLT_OK);
    dlt_arena_free(arena);
}

static void many_tensors(DltArena *arena, DltCheckpoint *c)
{
    DltCheckpointTensor *t = DLT_NEW_ARRAY(arena, DLT_SAFE_TENSOR_MAX + 1, DltCheckpointTensor);
    for (int i = 0; i <= DLT_SAFE_TENSOR_MAX; i++)
        t[i] = c->tensor[0];
    c->tensor = t;
    c->n_tensor = DLT_SAFE_TENSOR_MAX + 1;
}

/* A file of some 68 KiB whose header is longer than 4 KiB, its payload from `seed`. */
static char *large_file(DltArena *arena, uint64_t seed, int64_t *n)
{
    enum { FLOATS = 16 << 10 };
    DltCheckpoint *c = sample(arena);
    char *config = dlt_arena_new_bytes(arena, 4097, 1);
    memset(config, 'c', 4096);
    float *big = DLT_NEW_ARRAY(arena, FLOATS, float);
    for (uint64_t i = 0; i < FLOATS; i++)
        big[i] = (float)dlt_philox(seed, 3, i).v[0];
    c->meta.config_text = config;
    c->meta.step = (int64_t)seed;
    c->tensor[0] = (DltCheckpointTensor){.name = "w",
                                         .dtype = DLT_F32,
                                         .shape = dlt_shape1(FLOATS),
                                         .bytes = big,
                                         .n_bytes = 4 * FLOATS};
    return checkpoint_bytes(arena, path, c, n);
}

static void must_be_refused(const char *file, int64_t n, const char *what, int64_t which)
{
    char text[DLT_ERR_TEXT];
    if (parse(file, n, text) != DLT_E_CHECKPOINT) fail_msg("%s %lld", what, (long long)which);
}

/* G6. Every bit of 4 KiB of header, 10,000 bits of payload, 65,536 cuts, 4,096 tails: all refused; good files:
 * none. DLT_FULL=1; else a part of each. */
static void g6_damage(void **state)
{
    (void)state;
    enum { BITS = 32768, FLIPS = 10000, CUTS = 65536, TAILS = 4096, GOOD = 10000 };
    DltArena *arena = dlt_arena_new();
    char text[DLT_ERR_TEXT];
    int64_t n = 0, count[5] = {0};
    char *good = large_file(arena, 1, &n);
    char *file = dlt_arena_new_bytes(arena, (size_t)n + TAILS, 1);
    memcpy(file, good, (size_t)n);
    assert_true(n > CUTS);
    int stride = full() ? 1 : 101;
    for (int i = 0; i < BITS; i += stride, count[0]++) {
        file[i / 8] = (char)(file[i / 8] ^ 1 << i % 8);
        must_be_refused(file, n, "header bit", i);
        file[i / 8] = good[i / 8];
    }
    for (uint64_t i = 0; i < FLIPS; i += (uint64_t)stride, count[1]++) {
        int64_t at = n - 1 - dlt_rng_below(dlt_philox(2, 2, i).v[0], 16 << 12);
        file[at] = (char)(file[at] ^ 1 << i % 8);
        must_be_refused(file, n, "payload byte", at);
        file[at] = good[at];
    }
    for (int64_t cut = 0; cut < CUTS; cut += stride, count[2]++)
        must_be_refused(file, cut, "cut", cut);
    for (int64_t tail = 1; tail <= TAILS; tail += stride, count[3]++)
        must_be_refused(file, n + tail, "tail", tail);
    for (uint64_t i = 0; i < GOOD; i += (uint64_t)stride, count[4]++) {
        DltArena *own = dlt_arena_new();
        int64_t size = 0;
        char *bytes = large_file(own, i, &size);
        assert_int_equal(parse(bytes, size, text), DLT_OK);
        dlt_arena_free(own);
    }
    print_message("%lld header bits, %lld payload bits, %lld cuts, %lld tails refused; %lld good "
                  "files read\n",
                  (long long)count[0], (long long)count[1], (long long)count[2],
                  (long long)count[3], (long long)count[4]);
    dlt_arena_free(arena);
}

/* What the format has no room for is refused before a byte is written. */
static void cannot_be_written(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    char *longest = dlt_arena_new_bytes(arena, DLT_SAFE_NAME_MAX + 2, 1);
    memset(longest, 'n', DLT_SAFE_NAME_MAX + 1);
    char *huge = dlt_arena_new_bytes(arena, DLT_SAFE_HEADER_MAX + 1, 1);
    memset(huge, 'x', DLT_SAFE_HEADER_MAX);
    for (int i = 0; i < 4; i++) {
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = sample(arena);
        int64_t bytes = 0;
        if (i == 0) c->tensor[1].name = longest;
        if (i == 1) c->tensor[1].name = "";
        if (i == 2) c->meta.metrics = huge;
        if (i == 3) many_tensors(arena, c);
        unlink(path);
        DltStatus want = DLT_E_CONFIG;
        assert_int_equal(dlt_checkpoint_bytes(c, &bytes, &err), want);
        if (i < 3) assert_int_equal(dlt_checkpoint_write(path, c, &err), want);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    longest[DLT_SAFE_NAME_MAX] = '\0'; /* the longest that may be */
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = sample(arena), *back = NULL;
    c->tensor[1].name = longest;
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    assert_non_null(dlt_checkpoint_find(back, longest));
    dlt_arena_free(arena);
}

/* Two checkpoints of one moment are the same; the first difference is named. */
static void differences(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    static const char *const reasons[] = {NULL, "step", "w", "w", "tensors", "b"};
    for (int i = 0; i < 6; i++) {
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *a = sample(arena), *b = sample(arena), *x = NULL, *y = NULL;
        static const float other[4] = {1, 2, 3, 5};
        static const uint8_t one[1] = {7};
        if (i == 1) b->meta.step++;
        if (i == 2) b->tensor[0].bytes = other;
        if (i == 3) b->tensor[0].shape = (DltShape){1, {4}};
        if (i == 4) b->n_tensor = 1;
        if (i == 5)
            b->tensor[1] = (DltCheckpointTensor){
                .name = "other", .dtype = DLT_U8, .shape = {1, {1}}, .bytes = one, .n_bytes = 1};
        assert_int_equal(dlt_checkpoint_write(path, a, &err), DLT_OK);
        assert_int_equal(dlt_checkpoint_read(arena, path, &x, &err), DLT_OK);
        assert_int_equal(dlt_checkpoint_write(path, b, &err), DLT_OK);
        assert_int_equal(dlt_checkpoint_read(arena, path, &y, &err), DLT_OK);
        DltStatus status = dlt_checkpoint_same(x, y, &err);
        if (reasons[i] == NULL) {
            assert_int_equal(status, DLT_OK);
            continue;
        }
        assert_int_equal(status, DLT_E_CHECKPOINT);
        if (strstr(err.report[0].text, reasons[i]) == NULL)
            fail_msg("%d: %s", i, err.report[0].text);
    }
    dlt_arena_free(arena);
}

static int start(void **state)
{
    (void)state;
    bool in_memory = access("/dev/shm", W_OK) == 0;
    snprintf(path, sizeof path, "%s/dltrain-meta-%ld.bin", in_memory ? "/dev/shm" : "/tmp",
             (long)getpid());
    return 0;
}

static int finish(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_may_lie),
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(tensors_may_lie),
        cmocka_unit_test(payload),
        cmocka_unit_test(too_much),
        cmocka_unit_test(g6_damage),
        cmocka_unit_test(cannot_be_written),
        cmocka_unit_test(differences),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
