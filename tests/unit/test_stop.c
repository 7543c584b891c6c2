/* Ends that nobody planned: signals, kill -9, a full disk. What was saved loads, and going on from it
 * gives the same bits as the unbroken run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>

#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

static bool full(void)
{
    return getenv("DLT_FULL") != NULL;
}

/* A signal at a random moment: the right exit, at once, and a checkpoint that loads, at the step that
 * was reached. DLT_FULL=1: 1,000 of each. */
static void signals(void **state)
{
    (void)state;
    static const struct {
        int signal;
        DltStatus status;
    } rows_[] = {{SIGINT, DLT_SIGINT}, {SIGTERM, DLT_SIGTERM}, {SIGUSR1, DLT_STOPPED}};
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    char *at = strstr(text, "for: 20 steps");
    memcpy(at, "for: 9e6 steps", 13);
    text = dlt_arena_printf(arena, "%.*sfor: 900000 steps%s", (int)(at - text), text, at + 13);
    int n = full() ? 3000 : 12;
    for (int i = 0; i < n; i++) {
        remove_folder("signal");
        pid_t pid = fork();
        if (pid == 0) _exit((int)train(text, (DltRunOptions){.out = "signal"})->status);
        while (access("signal/step-4.bin", F_OK) != 0 && access("signal/last.bin", F_OK) != 0)
            usleep(1000);
        usleep(737u * (unsigned)i % 20000u);
        int64_t before = dlt_sys_now_ns();
        kill(pid, rows_[i % 3].signal);
        int result;
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_true(dlt_sys_now_ns() - before < (int64_t)5000000000);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), rows_[i % 3].status);
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = NULL;
        assert_int_equal(dlt_checkpoint_read(arena, "signal/last.bin", &c, &err), DLT_OK);
        assert_true(c->meta.step >= 4);
    }
    dlt_arena_free(arena);
}

/* C55. Killed at a random moment, 50 times (DLT_FULL=1: 1,000): what was saved loads, and going on gives
 * the same bits. */
static void killed(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    char *every = strstr(text, "{every: 4 steps, keep");
    memcpy(every, "{every: 1 steps, keep", 21);
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    int n_resumed = 0;
    unsigned n = full() ? 1000 : 50;
    for (unsigned i = 0; i < n; i++) {
        remove_folder("killed");
        pid_t pid = fork();
        if (pid == 0) _exit((int)train(text, (DltRunOptions){.out = "killed"})->status);
        usleep(1000 + 750 * (i * 7919 % 50) + i / 50 * 13);
        kill(pid, SIGKILL);
        int result;
        assert_int_equal(waitpid(pid, &result, 0), pid);
        bool saved = access("killed/last.bin", F_OK) == 0;
        bool ended = access("killed/status.json", F_OK) == 0;
        n_resumed += saved && !ended;
        if (saved) done(resume(text, "killed/last.bin", (DltRunOptions){0}), DLT_OK);
        if (!saved) done(train(text, (DltRunOptions){.out = "killed"}), DLT_OK);
        same_tensors("whole/last.bin", "killed/last.bin");
        same_tensors("whole/best.bin", "killed/best.bin");
        assert_int_equal(same_rows("whole", "killed"), 9);
    }
    print_message("%d of %u were cut between their first checkpoint and their end\n", n_resumed, n);
    dlt_arena_free(arena);
}

static int count_files(const char *folder, const char *part)
{
    char command[100];
    snprintf(command, sizeof command, "test $(ls -A %s | grep -c '%s') -eq 0", folder, part);
    return system(command);
}

/* No checkpoint fits any more: exit 6, the one before is untouched, nothing half-written is left. */
static void disk_full(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = setup_config(arena, &setups[0]);
    remove_folder("cut");
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    done(train(text, (DltRunOptions){.out = "cut", .stop_at = 7}), DLT_STOPPED);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {8192, 8192};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(99);
        Run *r = resume(text, "cut/last.bin", (DltRunOptions){0});
        bool said = strstr(r->err.report[0].text, "cannot write") != NULL &&
                    strstr(r->err.report[0].text, "File too large") != NULL;
        _exit(said ? (int)r->status : 98);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(WEXITSTATUS(result), DLT_E_RESOURCE);
    assert_int_equal(count_files("cut", "tmp"), 0);
    done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
    same_tensors("whole/last.bin", "cut/last.bin");
    assert_int_equal(same_rows("whole", "cut"), 9);
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals),
        cmocka_unit_test(killed),
        cmocka_unit_test(disk_full),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
