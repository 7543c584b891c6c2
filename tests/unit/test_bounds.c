/* How long and how large the worst inputs may get (G2 of the goal figures): a config or a checkpoint's
 * header of at most 1 MiB is read, or refused, within 0.1 s of processor time and with at most its own
 * size and 16 MiB of memory. Each input is what some parser is slow at. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "exec/checkpoint.h"
#include "exec/safetensors.h"
#include "full.h"
#include "spec/spec.h"

/* Processor time of a busy machine is longer: 0.1 s is asked for with DLT_FULL=1, on a quiet one. Sanitizers and
 * tiny arena blocks take twenty times as long, and memory of their own. */
enum { MIB = 1 << 20, MS_MAX = 100, MS_MAX_BUSY = 400, MORE_BYTES = 16 << 20 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DLT_MEAN)
enum { SLOWER = 20, MEMORY_TELLS = 0 };
#else
enum { SLOWER = 1, MEMORY_TELLS = 1 };
#endif

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

static char text[MIB + 1];
static size_t n_text;

static void put(const char *part)
{
    size_t n = strlen(part);
    if (n_text + n > MIB) n = MIB - n_text;
    memcpy(text + n_text, part, n);
    n_text += n;
    text[n_text] = '\0';
}

/* `fmt` with 0, 1, 2, ... up to the limit; `times` 0: until the file is full. */
static void repeat(const char *fmt, int64_t times) __attribute__((format(printf, 1, 0)));

static void repeat(const char *fmt, int64_t times)
{
    char part[200];
    for (int64_t i = 0; times == 0 || i < times; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(part, sizeof part, fmt, (int)i);
#pragma GCC diagnostic pop
        if (n_text + strlen(part) > MIB) return;
        put(part);
    }
}

static void read_config(void)
{
    DltArena *arena = dlt_arena_new();
    static DltErr err;
    dlt_err_init(&err);
    DltSpec *spec = NULL;
    DltStatus status = dlt_spec_read_stored(
        arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "/nonexistent"}, 0, NULL,
        &spec, &err);
    if (status != DLT_OK && err.n == 0) _exit(99);
    dlt_arena_free(arena);
}

static void read_checkpoint(void)
{
    DltArena *arena = dlt_arena_new();
    static DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    DltStatus status = dlt_checkpoint_parse(arena, "t.bin", text, (int64_t)n_text, &c, &err);
    if (status == DLT_OK || err.n == 0) _exit(99);
    dlt_arena_free(arena);
}

static const char head[] =
    "dltrain: 1\ndata: {train: {synthetic: {shape: [4], classes: 3, samples: "
    "9}}}\nloss: cross_entropy\ntrain: {for: 1 steps, batch: 3, optimizer: "
    "{sgd: {lr: 0.1}}}\n";

static void begin_header(const char *more)
{
    n_text = 0;
    put("........{\"__metadata__\":{\"dltrain.header_crc32\":\"00000000\",\"dltrain.file_"
        "bytes\":"
        "\"TOTAL_LENGTH_IN_FILE\",\"dltrain.format\":\"1\",\"dltrain.tensor_crc32\":");
    put(more);
}

/* The file's length and the checksum of the header, where they stand in it: nothing is refused before
 * the whole of it was read. */
static void seal(void)
{
    uint64_t n = n_text - 8;
    char digits[24];
    memcpy(text, &n, 8);
    snprintf(digits, sizeof digits, "%020zu", n_text);
    memcpy(strstr(text + 8, "TOTAL_LENGTH_IN_FILE"), digits, 20);
    snprintf(digits, sizeof digits, "%08x", dlt_safetensors_crc(0, text, (int64_t)n_text));
    memcpy(strstr(text + 8, "00000000"), digits, 8);
}

/* The same on next to nothing: what the program itself needs is not the input's. */
static void read_little_config(void)
{
    n_text = 0;
    put(head);
    put("model: [{dense: 3}]\n");
    read_config();
}

static void read_little_checkpoint(void)
{
    begin_header("\"\"},\"a\":[1]}");
    seal();
    read_checkpoint();
}

typedef struct Cost {
    double ms;
    long kib;
} Cost;

/* Of a process that does it. */
static Cost cost_of(void (*read)(void))
{
    int result;
    struct rusage used;
    pid_t pid = fork();
    if (pid == 0) {
        read();
        _exit(0);
    }
    assert_int_equal(wait4(pid, &result, 0, &used), pid);
    assert_int_equal(result, 0);
    double s = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return (Cost){1e3 * s, used.ru_maxrss};
}

static double slowest;
static long largest;

/* The best of three: a busy machine makes single runs slower. */
static void check_cost(const char *name, void (*read)(void), void (*read_little)(void))
{
    Cost base = cost_of(read_little), best = {1e9, 0};
    for (int i = 0; i < 3 && best.ms > MS_MAX / 2; i++) {
        Cost c = cost_of(read);
        if (c.ms < best.ms) best = c;
    }
    double ms = best.ms - base.ms;
    long kib = best.kib - base.kib;

    if (ms > slowest) slowest = ms;
    if (kib > largest) largest = kib;
    if (ms > SLOWER * (full() ? MS_MAX : MS_MAX_BUSY))
        fail_msg("%s of %zu bytes took %.0f ms", name, n_text, ms);
    if (MEMORY_TELLS && kib > (long)(n_text + MORE_BYTES) / 1024)
        fail_msg("%s took %ld KiB", name, kib);
}

static void configs(void **state)
{
    (void)state;
    static const struct {
        const char *name, *before, *part, *after;
        int64_t times;
    } rows[] = {
        {"nested lists", "", "[", "", 0},
        {"nested maps", "", "{a: ", "", 0},
        {"nested block lists", "", "- ", "", 0},
        {"anchors", "", "a%d: &a%d x\n", "", 0},
        {"many anchors of lists", "", "a%1$d: &b%1$d [x]\n", "", 0},
        {"aliases", "a: &a [x, x, x, x, x, x, x, x]\n", "b%d: *a\n", "", 0},
        {"keys", "", "k%d: 1\n", "", 0},
        {"the same key", "", "key: 1\n", "", 0},
        {"long words", "", "abcdefghij%d", "", 0},
        {"a long quoted word", "a: \"", "\\x41%d", "\"", 0},
        {"a long comment", "#", " comment %d", "\n", 0},
        {"empty lines", "", "\n", "", 0},
        {"blanks", "a: ", " ", "", 0},
        {"a long list", "model: [", "relu, ", "relu]\n", 0},
        {"a list of numbers", "vars: {x: [", "%d, ", "1]}\n", 0},
        {"documents", "", "---\na: 1\n", "", 0},
        {"tags", "", "- !!str x%d\n", "", 0},
        {"variables", "vars:\n", "  v%d: 1\n", "", 0},
        {"merge keys", "a: &a {x: 1}\n", "b%d: {<<: *a}\n", "", 0},
        {"an expression", "vars: {x: \"${", "1 + ", "1}\"}\n", 0},
        {"brackets of an expression", "vars: {x: \"${", "(", "1}\"}\n", 0},
        {"references", "vars: {x: \"", "${y}", "\"}\n", 0},
        {"unknown keys of a section", "train:\n", "  batchh%d: 1\n", "", 0},
        {"literal text", "a: |\n", "  line %d\n", "", 0},
        {"questions", "", "? a%d\n", "", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        n_text = 0;
        put(rows[i].before);
        repeat(rows[i].part, rows[i].times);
        n_text -= n_text + strlen(rows[i].after) > MIB ? strlen(rows[i].after) : 0;
        put(rows[i].after);
        check_cost(rows[i].name, read_config, read_little_config);
    }
    static const struct {
        const char *name, *before, *part, *after;
    } whole[] = {
        {"a model of many layers", "model: [", "{dense: 4}, relu, ", "{dense: 3}]\n"},
        {"a model of many named layers", "model:\n", "  - {dense: 3, name: l%d}\n", ""},
        {"many blocks", "model: [{dense: 3}]\nblocks:\n",
         "  b%d: {params: {n: 1}, layers: [{dense: $n}]}\n", ""},
        {"many groups", "model: [{dense: 3}]\n", "# %d\n", ""},
        {"misspelt layers", "model: [", "{densee: 4}, ", "relu]\n"},
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        n_text = 0;
        put(head);
        put(whole[i].before);
        repeat(whole[i].part, 0);
        n_text -= n_text + strlen(whole[i].after) > MIB ? strlen(whole[i].after) : 0;
        put(whole[i].after);
        check_cost(whole[i].name, read_config, read_little_config);
    }
    print_message("configs of 1 MiB: %.0f ms and %ld KiB at most\n", slowest, largest);
}

static void headers(void **state)
{
    (void)state;
    static const struct {
        const char *name, *before, *part, *after;
    } rows[] = {
        {"tensors", "\"\"}", ",\"t%d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
         "}"},
        {"the same tensor", "\"\"}",
         ",\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", "}"},
        {"nested lists", "\"\"},\"a\":", "[", ""},
        {"nested objects", "\"\"},\"a\":", "{\"a\":", ""},
        {"metadata", "\"\"", ",\"k%d\":\"v\"", "}}"},
        {"checksums", "\"", "0123456789abcdef", "\"}}"},
        {"a long shape", "\"00000000\"},\"a\":{\"dtype\":\"F32\",\"shape\":[1", ",1",
         "],\"data_offsets\":[0,4]}}"},
        {"a long name", "\"00000000\"},\"", "abc%d",
         "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"},
        {"escapes", "\"\"},\"", "\\u0041", "\":1}"},
        {"numbers", "\"\"},\"a\":[0", ",1e%d", "]}"},
        {"blanks", "\"\"},", " ", "\"a\":1}"},
    };
    slowest = 0;
    largest = 0;
    enum { TENSORS = 15200 };
    begin_header("\"");
    repeat("%08d", TENSORS);
    put("\"}");
    repeat(",\"t%d\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", TENSORS);
    put("}");
    assert_true(n_text > MIB - 65536);
    seal();
    check_cost("tensors with their checksums", read_checkpoint, read_little_checkpoint);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin_header(rows[i].before);
        repeat(rows[i].part, 0);
        n_text -= n_text + strlen(rows[i].after) > MIB ? strlen(rows[i].after) : 0;
        put(rows[i].after);
        seal();
        check_cost(rows[i].name, read_checkpoint, read_little_checkpoint);
    }
    print_message("headers of 1 MiB: %.0f ms and %ld KiB at most\n", slowest, largest);
}

int main(void)
{
    dlt_log_level(DLT_LOG_QUIET);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs),
        cmocka_unit_test(headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
