/* Checkpoints: what is written comes back; any flipped bit, cut, tail, duplicate, lie about a size
 * or foreign file is refused with exit code 4. Sealed files (right checksums around a wrong header)
 * reach the checks behind the checksum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "checkpoint_help.h"
#include "exec/checkpoint.h"
#include "exec/safetensors.h"

static const float weights[6] = {1.5f, -2, 3, 4, 5, 6};
static const double sums[3] = {0.1, 0.2, 1e300};
static const int32_t ids[2] = {-1, 1 << 30};
static const uint8_t bytes5[5] = {0, 1, 2, 254, 255};
static const uint16_t halves[2] = {0x3f80, 0x4000};

static DltCheckpoint *sample(DltArena *arena)
{
    static const char *const overrides[] = {"lr=1e-3", "vars.name=\"\xc3\xa4\""};
    static const char *const names[] = {"cat", "dog"};
    DltCheckpoint *c = DLT_NEW(arena, DltCheckpoint);
    c->meta = (DltCheckpointMeta){.config_text = "a: 1\n# \xe2\x82\xac \"quoted\" \\ \n",
                                  .config_path = "configs/x.yaml",
                                  .config_folder = "configs",
                                  .resolved = "a: 1\n",
                                  .n_override = 2,
                                  .override = overrides,
                                  .program = "dltrain 1",
                                  .step = 1234567890123,
                                  .position = 77,
                                  .epoch = 0.1,
                                  .seed = UINT64_MAX,
                                  .batch_count = 5,
                                  .data_fingerprint = {1, 2, UINT64_MAX - 1},
                                  .n_class = 2,
                                  .class_name = names,
                                  .best_metric = "val.top1",
                                  .best_value = 1.0 / 3.0,
                                  .best_step = -1,
                                  .train_time_s = 1e-9,
                                  .metrics = "{\"step\": 3}",
                                  .loss_scale = 65536,
                                  .run = 99,
                                  .plan_hash = 3};
    static const DltCheckpointTensor tensors[] = {
        {.name = "b.weight",
         .dtype = DLT_F32,
         .shape = {2, {2, 3}},
         .bytes = weights,
         .n_bytes = 24},
        {.name = "state/u8", .dtype = DLT_U8, .shape = {1, {5}}, .bytes = bytes5, .n_bytes = 5},
        {.name = "state/sum", .dtype = DLT_F64, .shape = {1, {3}}, .bytes = sums, .n_bytes = 24},
        {.name = "a \"odd\" name",
         .dtype = DLT_I32,
         .shape = {3, {1, 2, 1}},
         .bytes = ids,
         .n_bytes = 8},
        {.name = "half", .dtype = DLT_BF16, .shape = {1, {2}}, .bytes = halves, .n_bytes = 4},
        {.name = "scalar", .dtype = DLT_F32, .shape = {0, {0}}, .bytes = weights, .n_bytes = 4},
    };
    c->n_tensor = sizeof tensors / sizeof tensors[0];
    c->tensor = DLT_NEW_ARRAY(arena, c->n_tensor, DltCheckpointTensor);
    memcpy(c->tensor, tensors, sizeof tensors);
    return c;
}

static const char *temp_path(DltArena *arena, const char *name)
{
    return dlt_arena_printf(arena, "/tmp/dltrain-test-%ld-%s", (long)getpid(), name);
}

/* The sample as bytes of a file. */
static char *sample_file(DltArena *arena, int64_t *n)
{
    const char *path = temp_path(arena, "sample");
    char *bytes = checkpoint_bytes(arena, path, sample(arena), n);
    unlink(path);
    return bytes;
}

static void check_same(const DltCheckpoint *a, const DltCheckpoint *b)
{
    const DltCheckpointMeta *x = &a->meta, *y = &b->meta;
    assert_string_equal(x->config_text, y->config_text);
    assert_string_equal(x->resolved, y->resolved);
    assert_int_equal(y->n_override, 2);
    assert_string_equal(x->override[1], y->override[1]);
    assert_string_equal(y->class_name[1], "dog");
    assert_true(x->step == y->step && x->seed == y->seed && x->position == y->position);
    assert_memory_equal(x->data_fingerprint, y->data_fingerprint, sizeof x->data_fingerprint);
    assert_memory_equal(&x->best_value, &y->best_value, sizeof(double));
    assert_memory_equal(&x->epoch, &y->epoch, sizeof(double));
    assert_memory_equal(&x->train_time_s, &y->train_time_s, sizeof(double));
    assert_int_equal(y->best_step, -1);
    assert_string_equal(y->metrics, "{\"step\": 3}");
    assert_null(y->device);
    assert_int_equal(a->n_tensor, b->n_tensor);
    for (int i = 0; i < a->n_tensor; i++) {
        const DltCheckpointTensor *t = dlt_checkpoint_find(b, a->tensor[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, a->tensor[i].dtype);
        assert_true(dlt_shape_equal(&t->shape, &a->tensor[i].shape));
        assert_int_equal(t->n_bytes, a->tensor[i].n_bytes);
        assert_memory_equal(t->bytes, a->tensor[i].bytes, (size_t)t->n_bytes);
        assert_true(
            ((uintptr_t)t->bytes - (uintptr_t)b->tensor[0].bytes) % dlt_dtype_bytes(t->dtype) == 0);
    }
    assert_null(dlt_checkpoint_find(b, "nothing"));
}

static void round_trip(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    const char *path = temp_path(arena, "round");
    DltCheckpoint *c = sample(arena), *back = NULL;
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK); /* over the old one */
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    check_same(c, back);
    int64_t bytes = 0;
    assert_int_equal(dlt_checkpoint_bytes(c, &bytes, &err), DLT_OK);
    assert_int_equal(bytes, back->file_bytes);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(bytes, info.st_size);
    DltCheckpoint *head = NULL;
    assert_int_equal(dlt_checkpoint_read_header(arena, path, &head, &err), DLT_OK);
    assert_int_equal(head->n_tensor, c->n_tensor);
    assert_int_equal(head->tensor[0].crc, back->tensor[0].crc);
    assert_int_equal(err.n, 0);
    unlink(path);
    c->n_tensor = 0; /* a run without tensors is still a file */
    c->meta = (DltCheckpointMeta){.step = 1};
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    assert_null(back->meta.best_metric);
    assert_null(back->meta.class_name);
    assert_string_equal(back->meta.config_text, "");
    unlink(path);
    dlt_arena_free(arena);
}

static void every_flipped_bit(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    int64_t n = 0;
    char *file = sample_file(arena, &n);
    assert_int_equal(parse(file, n, NULL), DLT_OK);
    for (int64_t bit = 0; bit < 8 * n; bit++) { /* header and payload */
        file[bit / 8] = (char)(file[bit / 8] ^ 1 << bit % 8);
        if (parse(file, n, NULL) != DLT_E_CHECKPOINT) fail_msg("bit %lld", (long long)bit);
        file[bit / 8] = (char)(file[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(parse(file, n, NULL), DLT_OK);
    dlt_arena_free(arena);
}

static void payload_flips(void **state)
{
    (void)state;
    enum { FLOATS = 1 << 16 };
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = sample(arena);
    float *big = DLT_NEW_ARRAY(arena, FLOATS, float);
    for (int i = 0; i < FLOATS; i++)
        big[i] = (float)i;
    c->n_tensor = 1;
    c->tensor[0] = (DltCheckpointTensor){
        .name = "w", .shape = dlt_shape1(FLOATS), .bytes = big, .n_bytes = 4 * FLOATS};
    const char *path = temp_path(arena, "big");
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    char *file = NULL, text[DLT_ERR_TEXT];
    int64_t n = 0;
    assert_int_equal(
        dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK}, &file, &n, &err),
        DLT_OK);
    unlink(path);
    for (uint64_t i = 0; i < 1000; i++) {
        uint32_t bit = dlt_rng_below(dlt_philox(1, 2, i).v[0], 32 * FLOATS);
        char *at = file + n - 4 * FLOATS + bit / 8;
        *at = (char)(*at ^ 1 << bit % 8);
        assert_int_equal(parse(file, n, text), DLT_E_CHECKPOINT);
        assert_non_null(strstr(text, "the bytes of w have checksum"));
        *at = (char)(*at ^ 1 << bit % 8);
    }
    assert_int_equal(parse(file, n, NULL), DLT_OK);
    dlt_arena_free(arena);
}

static void every_cut_and_tails(void **state)
{
    (void)state;
    enum { TAIL = 4096 };
    DltArena *arena = dlt_arena_new();
    int64_t n = 0;
    char *file = sample_file(arena, &n);
    for (int64_t cut = 0; cut < n; cut++) {
        char *copy = memcpy(dlt_arena_new_bytes(arena, (size_t)cut + 1, 1), file, (size_t)cut);
        if (parse(copy, cut, NULL) != DLT_E_CHECKPOINT) fail_msg("cut at %lld", (long long)cut);
    }
    char *longer = dlt_arena_new_bytes(arena, (size_t)n + TAIL, 1);
    memcpy(longer, file, (size_t)n);
    for (int64_t tail = 1; tail <= TAIL; tail++)
        if (parse(longer, n + tail, NULL) != DLT_E_CHECKPOINT)
            fail_msg("tail of %lld", (long long)tail);
    dlt_arena_free(arena);
}

/* ---- sealed files ------------------------------------------------------------------------- */

/* A file with this header behind the checksum field, right checksum and length, and n_data bytes. */
static char *seal(DltArena *arena, const char *json_rest, int64_t n_data, int64_t *n)
{
    char *text = dlt_arena_printf(
        arena, "{\"__metadata__\":{\"dltrain.header_crc32\":\"00000000\"%s", json_rest);
    int64_t length = (int64_t)strlen(text);
    char *total = strstr(text, "TOTAL_LENGTH_IN_FILE"), digits[24];
    snprintf(digits, sizeof digits, "%020lld", (long long)(8 + length + n_data));
    if (total != NULL) memcpy(total, digits, 20);
    char *file = dlt_arena_new_bytes(arena, (size_t)(8 + length + n_data), 1);
    for (int i = 0; i < 8; i++)
        file[i] = (char)(length >> 8 * i);
    memcpy(file + 8, text, (size_t)length);
    snprintf(digits, sizeof digits, "%08x", dlt_safetensors_crc(0, file, 8 + length));
    memcpy(strstr(file + 8, "00000000"), digits, 8);
    *n = 8 + length + n_data;
    return file;
}

#define OWN                                                                                        \
    ",\"dltrain.file_bytes\":\"TOTAL_LENGTH_IN_FILE\",\"dltrain.format\":\"1\","                   \
    "\"dltrain.tensor_crc32\":"

typedef struct Lie {
    const char *rest, *reason;
    int64_t n_data;
} Lie;
static const Lie lies[] = {
    /* reaches the last check: only the caller's metadata is missing */
    {OWN "\"d202ef8d\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "dltrain.program is missing", 1},
    {OWN "\"\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "number of checksums", 1},
    {OWN "\"D202EF8D\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "checksum is no number", 1},
    {OWN "\"0000000000000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     "duplicate object key", 2},
    {OWN "\"\",\"x\":\"1\",\"x\":\"1\"}}", "duplicate object key", 0},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"F32\",\"shape\":[4194305,4194305,211106198978564],"
         "\"data_offsets\":[0,16]}}",
     "dimension 2", 16},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
         "\"data_offsets\":[0,0]}}",
     "more bytes than the file", 0},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"F64\",\"shape\":[1099511627776,1099511627776,2],"
         "\"data_offsets\":[0,0]}}",
     "more bytes than the file", 0},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     "dimension 0", 0},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}",
     "dimension 0", 0},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
     "list of at most", 1},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":3,\"data_offsets\":[0,3]}}",
     "list of at most", 3},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}",
     "dimension 0", 1},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1]}}",
     "more bytes than the file", 1},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     "does not lie at [0, 1)", 2},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "tensors end", 2},
    {OWN "\"0000000000000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
     "b: it does not lie at [2, 4)", 4},
    {OWN "\"0000000000000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
     "b: it does not lie at [1, 2)", 3},
    {OWN
     "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18446744073709551615,"
     "1]}}",
     "too big integer", 1},
    {OWN "\"00000000\"},\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}",
     "unknown type F128", 16},
    {OWN "\"00000000\"},\"a\":{\"shape\":[1],\"data_offsets\":[0,16]}}", "it is not {dtype", 16},
    {OWN
     "\"00000000\"},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"file\":\"x\"}}",
     "it is not {dtype", 1},
    {OWN "\"00000000\"},\"a\":[1]}", "it is not {dtype", 1},
    {OWN "\"00000000\"},\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     "tensor name has 0", 1},
    {OWN "\"\",\"x\":{\"y\":1}}}", "metadata x", 0},
    {OWN "\"\"}} x", "no JSON", 0},
    {OWN "\"\"}", "no JSON", 0},
    {",\"dltrain.file_bytes\":\"TOTAL_LENGTH_IN_FILE\",\"dltrain.format\":\"2\","
     "\"dltrain.tensor_crc32\":\"\"}}",
     "checkpoint of format '2'; this dltrain reads format 1", 0},
    {",\"dltrain.file_bytes\":\"00000000000000000012\",\"dltrain.format\":\"1\","
     "\"dltrain.tensor_crc32\":\"\"}}",
     "cut, or with something behind", 0},
};

static void lying_headers(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        int64_t n = 0;
        char text[DLT_ERR_TEXT];
        char *file = seal(arena, lies[i].rest, lies[i].n_data, &n);
        DltStatus status = parse(file, n, text);
        if (status != DLT_E_CHECKPOINT || strstr(text, lies[i].reason) == NULL)
            fail_msg("lie %zu: status %d, %s", i, (int)status, text);
    }
    char name[300], rest[600], text[DLT_ERR_TEXT];
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    int64_t n = 0;
    snprintf(rest, sizeof rest,
             OWN "\"00000000\"},\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
             name);
    char *file = seal(arena, rest, 1, &n);
    assert_int_equal(parse(file, n, text), DLT_E_CHECKPOINT);
    assert_non_null(strstr(text, "has 256 bytes"));
    dlt_arena_free(arena);
}

/* The length field with all powers of two and their neighbours. */
static void lying_length(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    int64_t n = 0;
    char *file = sample_file(arena, &n);
    uint64_t real = 0;
    memcpy(&real, file, 8);
    for (int bit = 0; bit < 64; bit++) {
        for (int by = -1; by <= 1; by++) {
            uint64_t length = ((uint64_t)1 << bit) + (uint64_t)(int64_t)by;
            if (length == real) continue;
            memcpy(file, &length, 8);
            assert_int_equal(parse(file, n, NULL), DLT_E_CHECKPOINT);
        }
    }
    dlt_arena_free(arena);
}

static void too_many_tensors(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = sample(arena);
    c->n_tensor = DLT_SAFE_TENSOR_MAX + 1;
    c->tensor = DLT_NEW_ARRAY(arena, c->n_tensor, DltCheckpointTensor);
    for (int i = 0; i < c->n_tensor; i++) {
        c->tensor[i] = (DltCheckpointTensor){.name = dlt_arena_printf(arena, "t%d", i),
                                             .dtype = DLT_U8,
                                             .shape = dlt_shape1(1),
                                             .bytes = bytes5,
                                             .n_bytes = 1};
    }
    int64_t bytes = 0;
    assert_int_equal(dlt_checkpoint_bytes(c, &bytes, &err), DLT_E_CONFIG);
    c->n_tensor--;
    const char *path = temp_path(arena, "many");
    DltCheckpoint *back = NULL;
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    assert_int_equal(back->n_tensor, DLT_SAFE_TENSOR_MAX);
    assert_non_null(dlt_checkpoint_find(back, "t65535"));
    unlink(path);
    dlt_arena_free(arena);
}

static void foreign_files(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int64_t n;
        const char *kind;
    } rows[] = {{"", 0, "empty"},
                {"data:\n  train: {idx: x}\n", 24, "a text file"},
                {"\x1f\x8b\x08\0\0\0\0\0\0\0", 10, "gzip"},
                {"\x89PNG\r\n\x1a\n\0\0", 10, "PNG"},
                {"\x7f"
                 "ELF\2\1\1\0\0\0",
                 10, "ELF"},
                {"PK\x03\x04\0\0\0\0\0\0", 10, "zip archive"},
                {"<!DOCTYPE html><html>", 21, "HTML"},
                {"\x93NUMPY\1\0v\0{", 11, "NumPy"},
                {"GGUF\3\0\0\0\0\0", 10, "GGUF"},
                {"\x10\0\0\0\0\0\0\0{\"a\":{}}        ", 24, "no checkpoint"},
                {"\1\0\0\0\5\0\0\0\0\0", 10, "does not begin like"},
                {"\xff\xff\xff\xff\xff\xff\xff\xff{\"__meta", 16, "does not begin like"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[DLT_ERR_TEXT];
        assert_int_equal(parse(rows[i].bytes, rows[i].n, text), DLT_E_CHECKPOINT);
        if (strstr(text, rows[i].kind) == NULL) fail_msg("%s: %s", rows[i].kind, text);
    }
    /* a whole safetensors file of another program */
    DltArena *arena = dlt_arena_new();
    static const char other[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}   "
        "                                               ";
    char file[8 + sizeof other + 3] = {(char)(sizeof other - 1)}, text[DLT_ERR_TEXT];
    memcpy(file + 8, other, sizeof other - 1);
    assert_int_equal(parse(file, 8 + (int64_t)sizeof other + 3, text), DLT_E_CHECKPOINT);
    assert_non_null(strstr(text, "a safetensors file, but not one of dltrain's"));
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, "/nowhere/x.bin", &c, &err), DLT_E_CHECKPOINT);
    assert_int_equal(dlt_checkpoint_read(arena, "/tmp", &c, &err), DLT_E_CHECKPOINT);
    assert_int_equal(dlt_checkpoint_read(arena, "/dev/null", &c, &err), DLT_E_CHECKPOINT);
    assert_null(c);
    dlt_arena_free(arena);
}

static void failed_write_keeps_the_old(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    const char *path = temp_path(arena, "keep");
    DltCheckpoint *c = sample(arena), *back = NULL;
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_OK);
    char name[300];
    memset(name, 'n', sizeof name);
    name[299] = '\0';
    c->tensor[0].name = name;
    assert_int_equal(dlt_checkpoint_write(path, c, &err), DLT_E_CONFIG);
    assert_int_equal(dlt_checkpoint_write("/nowhere/x.bin", sample(arena), &err), DLT_E_RESOURCE);
    assert_int_equal(dlt_checkpoint_read(arena, path, &back, &err), DLT_OK);
    check_same(sample(arena), back);
    unlink(path);
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(every_flipped_bit),
        cmocka_unit_test(payload_flips),
        cmocka_unit_test(every_cut_and_tails),
        cmocka_unit_test(lying_headers),
        cmocka_unit_test(lying_length),
        cmocka_unit_test(too_many_tensors),
        cmocka_unit_test(foreign_files),
        cmocka_unit_test(failed_write_keeps_the_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
