/* The k-th call fails, k = 1, 2, ... until nothing fails any more: file calls under atomic writes and
 * config loading, memory under arenas. Each failure has its status, and nothing is half done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/sys.h"
#include "config/expand.h"
#include "tests/unit/folder.h"

static int setup(void **state)
{
    *state = folder_new("fault", "x.yaml");
    return 0;
}

static int teardown(void **state)
{
    dlt_sys_fault_set("");
    return folder_remove(*state);
}

static void arm(Folder *f, const char *class, int k, const char *how)
{
    dlt_err_init(&f->err);
    assert_true(dlt_sys_fault_set(dlt_arena_printf(f->arena, "%s:%d:%s", class, k, how)));
}

static void disarm(void)
{
    assert_true(dlt_sys_fault_set(""));
}

static DltStatus write_whole(Folder *f)
{
    DltAtomic *file = NULL;
    DLT_TRY(dlt_atomic_open(f->arena, f->file, &file, &f->err));
    DLT_TRY(dlt_atomic_write(file, "new", 3, &f->err));
    return dlt_atomic_commit(file, &f->err);
}

/* The file is old or new, never else; a reported success is new; no temporary file stays. */
static void atomic_writes(void **state)
{
    Folder *f = *state;
    int n_failed = 0;
    for (DltStatus status = DLT_E_RESOURCE; status != DLT_OK; n_failed += status != DLT_OK) {
        write_plain(f->file, "old");
        arm(f, "file", n_failed + 1, "ENOSPC:once");
        status = write_whole(f);
        disarm();
        char *now = NULL;
        int64_t n = 0;
        assert_int_equal(dlt_file_read(f->arena, f->file, (DltFileRule){9, DLT_E_DATA, DLT_NO_MARK},
                                       &now, &n, &f->err),
                         DLT_OK);
        assert_true(strcmp(now, "old") == 0 || strcmp(now, "new") == 0);
        assert_int_equal(n_entries(f->path), 1);
        if (status == DLT_OK) {
            assert_string_equal(now, "new");
            continue;
        }
        assert_int_equal(status, DLT_E_RESOURCE);
        assert_non_null(strstr(f->err.report[0].text, "No space left on device"));
        assert_non_null(strstr(f->err.report[0].text, f->file));
    }
    assert_true(n_failed >= 6); /* open, write, fsync, close, rename, the folder's open and fsync */
}

/* A disk that stays full: whatever was reached, the old file is whole, and an error is told. */
static void disks_that_stay_broken(void **state)
{
    Folder *f = *state;
    for (int k = 1; k <= 5; k++) {
        write_plain(f->file, "old");
        arm(f, "file", k, "EIO:forever");
        assert_int_equal(write_whole(f), DLT_E_RESOURCE);
        disarm();
        char *now = NULL;
        int64_t n = 0;
        assert_int_equal(dlt_file_read(f->arena, f->file, (DltFileRule){9, DLT_E_DATA, DLT_NO_MARK},
                                       &now, &n, &f->err),
                         DLT_OK);
        assert_string_equal(now, "old");
        DIR *folder = opendir(f->path); /* the broken disk could not remove it either */
        for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
            if (e->d_name[0] == '.' && strstr(e->d_name, ".tmp.") != NULL) {
                unlinkat(dirfd(folder), e->d_name, 0);
            }
        }
        closedir(folder);
    }
}

static void config_files(void **state)
{
    Folder *f = *state;
    write_plain(f->file, "seed: 1\n");
    int n_failed = 0;
    for (DltStatus status = DLT_E_CONFIG; status != DLT_OK; n_failed += status != DLT_OK) {
        DltYaml *root = NULL;
        arm(f, "file", n_failed + 1, "EIO:once");
        status = dlt_config_load(f->arena, f->file, 0, NULL, &root, &f->err);
        disarm();
        if (status == DLT_OK) continue;
        assert_int_equal(status, DLT_E_CONFIG);
        assert_non_null(strstr(f->err.report[0].text, "Input/output error"));
    }
    assert_true(n_failed >= 2); /* open and read; a failed close after reading harms nothing */
}

/* No memory for a file's bytes is no fault of the file: the status is not the one of a bad file. */
static void files_without_memory(void **state)
{
    Folder *f = *state;
    char *bytes = NULL;
    int64_t n = 0;
    static char text[1 << 16]; /* more than an arena has ready */
    memset(text, 'x', sizeof text - 1);
    write_plain(f->file, text);
    arm(f, "mem", 1, "ENOMEM:once");
    assert_int_equal(dlt_file_read(f->arena, f->file,
                                   (DltFileRule){1 << 20, DLT_E_DATA, DLT_NO_MARK}, &bytes, &n,
                                   &f->err),
                     DLT_E_RESOURCE);
    disarm();
    assert_non_null(strstr(f->err.report[0].text, "out of memory"));
}

static jmp_buf out_of_memory;

static void on_oom(size_t bytes)
{
    assert_true(bytes > 0);
    longjmp(out_of_memory, 1);
}

static const char config[] =
    "vars: {d: 64, e: '${2*d}'}\nmodel: [{dense: $e}, relu]\nl: [1, 2, 3, 4, 5]\n";

/* Every allocation of the set-up phase may be the one that fails: the handler hears of it, and the
 * arena can still be freed (the leak checker of the asan build looks on). */
static void arenas(void **state)
{
    Folder *f = *state;
    dlt_arena_on_oom(on_oom);
    volatile int n_failed = 0;
    for (volatile bool done = false; !done;) {
        arm(f, "mem", n_failed + 1, "ENOMEM:once");
        DltArena *volatile arena = dlt_arena_new();
        if (arena == NULL) {
            n_failed++;
            continue;
        }
        if (setjmp(out_of_memory) == 0) {
            for (int i = 0; i < 2000; i++)
                dlt_arena_printf(arena, "%d: %s", i, config);
            dlt_arena_on_free(arena, (void (*)(void *))dlt_sys_free, dlt_sys_alloc(1));
            done = true;
        } else {
            n_failed++;
        }
        dlt_arena_free(arena);
    }
    disarm();
    dlt_arena_on_oom(NULL);
    assert_true(n_failed >= 4);
}

static void malformed_requests(void **state)
{
    (void)state;
    static const char *const bad[] = {"mem",
                                      "mem:1",
                                      "mem:1:ENOMEM",
                                      "mem:x:ENOMEM:once",
                                      "cpu:1:EIO:once",
                                      "file:1:EWHAT:once",
                                      "file:1:EIO:twice"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(dlt_sys_fault_set(bad[i]));
    assert_true(dlt_sys_fault_set("thread:1:EAGAIN:once"));
    pthread_t thread;
    assert_false(dlt_sys_thread(&thread, NULL, NULL));
    disarm();
}

int main(void)
{
#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        FAULT_TEST(atomic_writes), FAULT_TEST(disks_that_stay_broken),
        FAULT_TEST(config_files),  FAULT_TEST(files_without_memory),
        FAULT_TEST(arenas),        FAULT_TEST(malformed_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
