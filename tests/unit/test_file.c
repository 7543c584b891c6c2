/* Whole files: bounded reads; writes that appear whole or not at all. Failures come from the system
 * itself; tests/fault lets every call fail in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fatal.h"
#include "base/sys.h"
#include "folder.h"
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int setup(void **state)
{
    Folder *f = folder_new("file", "x.bin");
    write_plain(f->file, "old");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    return folder_remove(*state);
}

static const char *content(Folder *f)
{
    char *bytes = NULL;
    int64_t n = 0;
    DltStatus status = dlt_file_read(
        f->arena, f->file, (DltFileRule){1 << 20, DLT_E_DATA, DLT_NO_MARK}, &bytes, &n, &f->err);
    assert_int_equal(status, DLT_OK);
    return bytes;
}

static void reads_are_bounded_and_explained(void **state)
{
    Folder *f = *state;
    char *bytes = NULL;
    int64_t n = 0;
    DltMark at = {.file = "c.yaml", .line = 3, .col = 7};
    assert_int_equal(
        dlt_file_read(f->arena, f->file, (DltFileRule){3, DLT_E_DATA, at}, &bytes, &n, &f->err),
        DLT_OK);
    assert_int_equal(n, 3);
    assert_string_equal(bytes, "old");
    assert_int_equal(
        dlt_file_read(f->arena, f->file, (DltFileRule){2, DLT_E_DATA, at}, &bytes, &n, &f->err),
        DLT_E_DATA);
    assert_non_null(strstr(f->err.report[0].text, "3 bytes, more than the limit of 2"));
    assert_int_equal(f->err.report[0].at.line, 3);
    assert_int_equal(
        dlt_file_read(f->arena, f->path, (DltFileRule){9, DLT_E_CONFIG, at}, &bytes, &n, &f->err),
        DLT_E_CONFIG);
    assert_non_null(strstr(f->err.report[1].text, "no regular file"));
    assert_int_equal(dlt_file_read(f->arena, "none/x", (DltFileRule){9, DLT_E_CHECKPOINT, at},
                                   &bytes, &n, &f->err),
                     DLT_E_CHECKPOINT);
    char cwd[4096];
    assert_true(dlt_sys_cwd(cwd, sizeof cwd));
    assert_non_null(
        strstr(f->err.report[2].text, dlt_arena_printf(f->arena, "%s/none/x: No such", cwd)));
}

static void a_commit_replaces_the_file(void **state)
{
    Folder *f = *state;
    DltAtomic *file = NULL;
    assert_int_equal(dlt_atomic_open(f->arena, f->file, &file, &f->err), DLT_OK);
    assert_int_equal(dlt_atomic_write(file, "new ", 4, &f->err), DLT_OK);
    assert_int_equal(dlt_atomic_write(file, "text", 4, &f->err), DLT_OK);
    assert_string_equal(content(f), "old");
    assert_int_equal(n_entries(f->path), 2);
    assert_int_equal(dlt_atomic_commit(file, &f->err), DLT_OK);
    assert_string_equal(content(f), "new text");
    assert_int_equal(n_entries(f->path), 1);
    dlt_atomic_abandon(file); /* nothing to do any more */
    assert_string_equal(content(f), "new text");
}

static void abandoned_files_leave_nothing(void **state)
{
    Folder *f = *state;
    DltAtomic *file = NULL;
    assert_int_equal(dlt_atomic_open(f->arena, f->file, &file, &f->err), DLT_OK);
    dlt_atomic_abandon(file);
    assert_int_equal(n_entries(f->path), 1);
    dlt_atomic_abandon(NULL);

    DltArena *inner = dlt_arena_new();
    assert_int_equal(dlt_atomic_open(inner, f->file, &file, &f->err), DLT_OK);
    dlt_arena_free(inner); /* the arena's end abandons too */
    assert_int_equal(n_entries(f->path), 1);
    assert_string_equal(content(f), "old");
}

static void a_missing_folder_is_a_resource_error(void **state)
{
    Folder *f = *state;
    DltAtomic *file = NULL;
    const char *path = dlt_path_join(f->arena, f->path, "none/x");
    assert_int_equal(dlt_atomic_open(f->arena, path, &file, &f->err), DLT_E_RESOURCE);
    assert_non_null(strstr(f->err.report[0].text, path));
    assert_non_null(strstr(f->err.report[0].text, "No such file"));
}

/* A target that cannot be replaced: the rename fails after everything was written. */
static void a_failed_rename_removes_the_temporary_file(void **state)
{
    Folder *f = *state;
    DltAtomic *file = NULL;
    const char *folder = dlt_path_join(f->arena, f->path, "sub");
    assert_int_equal(mkdir(folder, 0755), 0);
    assert_int_equal(dlt_atomic_open(f->arena, folder, &file, &f->err), DLT_OK);
    assert_int_equal(dlt_atomic_write(file, "x", 1, &f->err), DLT_OK);
    assert_int_equal(dlt_atomic_commit(file, &f->err), DLT_E_RESOURCE);
    assert_int_equal(n_entries(f->path), 2);
    assert_int_equal(rmdir(folder), 0);
}

static void paths_are_joined_and_taken_apart(void **state)
{
    DltArena *a = ((Folder *)*state)->arena;
    assert_string_equal(dlt_path_join(a, "a/b", "../c"), "a/b/../c");
    assert_string_equal(dlt_path_join(a, "a/", "c"), "a/c");
    assert_string_equal(dlt_path_join(a, "/", "c"), "/c");
    assert_string_equal(dlt_path_join(a, ".", "c"), "c");
    assert_string_equal(dlt_path_join(a, "a", "/c"), "/c");
    assert_string_equal(dlt_path_folder(a, "a/b/c"), "a/b");
    assert_string_equal(dlt_path_folder(a, "c"), ".");
    assert_string_equal(dlt_path_folder(a, "/c"), "/");
    assert_string_equal(dlt_path_absolute(a, "/x"), "/x");
    char cwd[4096];
    assert_true(dlt_sys_cwd(cwd, sizeof cwd));
    assert_string_equal(dlt_path_absolute(a, "./x"), dlt_arena_printf(a, "%s/x", cwd));
}

static atomic_bool under_way;

static void *makes_slowly(void *path)
{
    dlt_fatal_file(path);
    under_way = true;
    dlt_sys_pause_ms(100);
    write_plain(path, "half");
    dlt_fatal_file_made();
    dlt_fatal_file("/nowhere/second"); /* never returns */
    write_plain("second", "never");
    return NULL;
}

/* One thread fails while another makes a temporary file, and would make more. */
static void failing_waits_for_files_that_are_made(void **state)
{
    Folder *f = *state;
    const char *temp = dlt_path_join(f->arena, f->path, ".x.bin.tmp");
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        if (chdir(f->path) != 0 || !dlt_sys_thread(&thread, makes_slowly, (void *)(uintptr_t)temp))
            _exit(1);
        while (!under_way)
            dlt_sys_pause_ms(1);
        dlt_fatal_run("a test", 0);
        dlt_sys_pause_ms(200); /* another thread may still run */
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
    assert_int_equal(n_entries(f->path), 1);
}

int main(void)
{
#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        FILE_TEST(reads_are_bounded_and_explained),
        FILE_TEST(a_commit_replaces_the_file),
        FILE_TEST(abandoned_files_leave_nothing),
        FILE_TEST(a_missing_folder_is_a_resource_error),
        FILE_TEST(a_failed_rename_removes_the_temporary_file),
        FILE_TEST(paths_are_joined_and_taken_apart),
        FILE_TEST(failing_waits_for_files_that_are_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
