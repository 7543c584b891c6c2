/* Reading and writing a checkpoint with the k-th allocation or file call failing, once and from then on, for
 * every k until all goes well: a report, never part of a checkpoint, the old file whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/fault.h"
#include "base/sys.h"
#include "exec/checkpoint.h"

/* Memory that is out leaves by longjmp here, past what would be freed; test_scenarios counts blocks. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static char path[64];
static jmp_buf memory_out;

static void no_memory(size_t bytes)
{
    (void)bytes;
    longjmp(memory_out, 1);
}

static const float weights[300] = {1, 2};

static DltStatus write_it(DltArena *arena, DltErr *err)
{
    static const char *const names[] = {"cat", "dog"};
    DltCheckpoint c = {.meta = {.config_text = "a: 1",
                                .config_path = "x.yaml",
                                .config_folder = ".",
                                .resolved = "a: 1",
                                .program = "dltrain",
                                .step = 7,
                                .n_class = 2,
                                .class_name = names}};
    DltCheckpointTensor t[2] = {
        {.name = "w", .dtype = DLT_F32, .shape = {1, {300}}, .bytes = weights, .n_bytes = 1200},
        {.name = "b", .dtype = DLT_F32, .shape = {1, {2}}, .bytes = weights, .n_bytes = 8}};
    (void)arena;
    c.n_tensor = 2;
    c.tensor = t;
    return dlt_checkpoint_write(path, &c, err);
}

/* Under two more names, by links where there are some. */
static DltStatus write_names(DltArena *arena, DltErr *err)
{
    static const char *const names[] = {"/tmp/dltrain-more-1.bin", "/tmp/dltrain-more-2.bin"};
    DltCheckpoint *c = NULL;
    DLT_TRY(dlt_checkpoint_read(arena, path, &c, err));
    int64_t bytes = 0;
    DLT_TRY(dlt_checkpoint_bytes(c, &bytes, err));
    DltStatus status = dlt_checkpoint_write_all(path, names, 2, c, err);
    for (int i = 0; i < 2 && status == DLT_OK; i++) {
        DltCheckpoint *more = NULL;
        DltErr unused;
        dlt_err_init(&unused);
        assert_true(dlt_sys_fault_set(""));
        assert_int_equal(dlt_checkpoint_read(arena, names[i], &more, &unused), DLT_OK);
    }
    unlink(names[0]);
    unlink(names[1]);
    return status;
}

static DltStatus read_it(DltArena *arena, DltErr *err)
{
    DltCheckpoint *c = NULL;
    DltStatus status = dlt_checkpoint_read(arena, path, &c, err);
    assert_true(status != DLT_OK || (c->n_tensor == 2 && c->meta.step == 7));
    return status;
}

static DltStatus verify_it(DltArena *arena, DltErr *err)
{
    DltCheckpoint *c = NULL;
    return dlt_checkpoint_verify(arena, path, &c, err);
}

static DltStatus read_head(DltArena *arena, DltErr *err)
{
    DltCheckpoint *c = NULL;
    return dlt_checkpoint_read_header(arena, path, &c, err);
}

/* True when nothing failed. */
static bool survives(DltStatus (*run)(DltArena *, DltErr *), const char *spec, bool file)
{
    static DltErr err;
    volatile DltStatus status = DLT_E_RESOURCE;
    dlt_err_init(&err);
    DltArena *arena = dlt_arena_new();
    assert_non_null(arena);
    if (setjmp(memory_out) == 0) {
        assert_true(dlt_sys_fault_set(spec));
        status = run(arena, &err);
    }
    assert_true(dlt_sys_fault_set(""));
    dlt_arena_free(arena);
    bool fits =
        status == DLT_OK || status == DLT_E_RESOURCE || (file && status == DLT_E_CHECKPOINT);
    if (!fits) fail_msg("%s: status %d", spec, (int)status);
    DltErr after;
    dlt_err_init(&after);
    arena = dlt_arena_new();
    assert_int_equal(read_it(arena, &after), DLT_OK); /* the file is whole whatever happened */
    dlt_arena_free(arena);
    return status == DLT_OK;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        DltStatus (*run)(DltArena *arena, DltErr *err);
        const char *name;
    } acts[] = {{write_it, "write"},
                {read_it, "read"},
                {verify_it, "verify"},
                {read_head, "header"},
                {write_names, "names"}};
    static const char *const faults[][2] = {
        {"mem", "ENOMEM"}, {"file", "EIO"}, {"file", "ENOSPC"}, {"file", "EPERM"}};
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    assert_int_equal(write_it(arena, &err), DLT_OK);
    dlt_arena_on_oom(no_memory);
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        int points = 0;
        for (int f = 0; f < 8; f++) {
            char spec[64];
            int k = 0;
            do {
                k++;
                snprintf(spec, sizeof spec, "%s:%d:%s:%s", faults[f / 2][0], k, faults[f / 2][1],
                         f % 2 ? "forever" : "once");
            } while (!survives(acts[i].run, spec, f >= 2) && k < 1000);
            /* a fault that does no harm (closing) may come before others: look at all of them */
            for (int more = k + 1; more < k + 8; more++) {
                snprintf(spec, sizeof spec, "%s:%d:%s:%s", faults[f / 2][0], more, faults[f / 2][1],
                         f % 2 ? "forever" : "once");
                survives(acts[i].run, spec, f >= 2);
            }
            points += k - 1;
        }
        print_message("%s: %d points\n", acts[i].name, points);
        assert_true(points > 8);
    }
    dlt_arena_on_oom(NULL);
    dlt_arena_free(arena);
}

/* Short reads are completed; a file that ends too early is told. */
static void short_reads(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    assert_int_equal(write_it(arena, &err), DLT_OK);
    for (int k = 1; k < 12; k++) {
        static const char *const kinds[] = {"SHORT", "EINTR"};
        for (int e = 0; e < 2; e++) {
            char spec[64];
            snprintf(spec, sizeof spec, "file:%d:%s:once", k, kinds[e]);
            assert_true(survives(read_it, spec, true));
            assert_true(survives(verify_it, spec, true));
            assert_true(survives(write_it, spec, true));
        }
    }
    dlt_arena_free(arena);
}

static int start(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/dltrain-ckpt-fault-%ld.bin", (long)getpid());
    return 0;
}

static int finish(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(short_reads),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
