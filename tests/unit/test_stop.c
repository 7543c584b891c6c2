/* Ends that nobody planned: signals, kill -9, a full disk. What was saved loads, and going on from it
 * gives the same bits as the unbroken run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "full.h"
#include "runs.h"

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = &dlt_backend_cpu;
    return DLT_OK;
}

/* The set-up of a run that would go on for long. */
static const char *long_text(DltArena *arena, const char *steps)
{
    const char *text = setup_config(arena, &setups[0]);
    const char *at = strstr(text, "for: 20 steps");
    return dlt_arena_printf(arena, "%.*sfor: %s steps%s", (int)(at - text), text, steps,
                            at + strlen("for: 20 steps"));
}

/* Trains to a signal; the step that was reached goes into the pipe. */
static _Noreturn void train_to_signal(const char *text, int out)
{
    Run *r = train(text, (DltRunOptions){.out = "signal"});
    bool told = write(out, &r->result.step, sizeof r->result.step) == sizeof r->result.step;
    _exit(told ? (int)r->status : 99);
}

/* A signal at a random moment, of the start too: the right exit, at once, and a checkpoint that loads, at
 * the step that was reached. DLT_FULL=1: 1,000 of each. */
static void signals(void **state)
{
    (void)state;
    static const struct {
        int signal;
        DltStatus status;
    } rows_[] = {{SIGINT, DLT_SIGINT}, {SIGTERM, DLT_SIGTERM}, {SIGUSR1, DLT_STOPPED}};
    DltArena *arena = dlt_arena_new();
    const char *text = long_text(arena, "900000");
    int n = full() ? 3000 : 24, n_sent = 0, n_early = 0;
    int64_t longest = 0;
    dlt_sys_signals_install(); /* as the program does when it starts */
    for (int i = 0; i < n; i++) {
        if (!in_part(i)) continue;
        remove_folder("signal");
        int told[2], result;
        int64_t reached = -1;
        assert_int_equal(pipe(told), 0);
        pid_t pid = fork();
        if (pid == 0) train_to_signal(text, told[1]);
        close(told[1]);
        while (i % 2 == 0 && access("signal/last.bin", F_OK) != 0)
            usleep(1000);
        usleep(737u * (unsigned)i % 20000u);
        int64_t before = dlt_sys_now_ns();
        kill(pid, rows_[i % 3].signal);
        assert_int_equal(waitpid(pid, &result, 0), pid);
        int64_t took = dlt_sys_now_ns() - before;
        if (took > longest) longest = took;
        assert_true(took < (int64_t)5000000000);
        assert_true(WIFEXITED(result));
        assert_int_equal(WEXITSTATUS(result), rows_[i % 3].status);
        assert_int_equal(read(told[0], &reached, sizeof reached), sizeof reached);
        close(told[0]);
        DltErr err;
        dlt_err_init(&err);
        DltCheckpoint *c = NULL;
        DltArena *read = dlt_arena_new();
        bool saved = i % 2 == 0 || access("signal/last.bin", F_OK) == 0;
        if (saved) assert_int_equal(dlt_checkpoint_read(read, "signal/last.bin", &c, &err), DLT_OK);
        assert_int_equal(saved ? c->meta.step : 0, reached);
        n_early += !saved;
        dlt_arena_free(read);
        n_sent++;
    }
    print_message("%d signals, %d of them before the first update: the right exit after %.0f ms at "
                  "most, the newest checkpoint at the step that was reached\n",
                  n_sent, n_early, 1e-6 * (double)longest);
    dlt_arena_free(arena);
}

/* The weights of a large model take longer to begin than a signal may wait: no more of them are made then. */
static void signal_while_weights_begin(void **state)
{
    enum { N = 1 << 22 };
    (void)state;
    int result;
    pid_t pid = fork();
    if (pid == 0) {
        static float made[N];
        DltInit init = dlt_init_normal(1.0, 0.1);
        DltTensor t = {.name = "w", .dtype = DLT_F32, .shape = dlt_shape1(N), .init = &init};
        int n = 0;
        dlt_sys_signals_install();
        raise(SIGTERM);
        dlt_init_fill(&t, 1, made);
        for (int i = 0; i < N; i++)
            n += made[i] != 0.0f;
        _exit(n < N / 2 && dlt_sys_asked_to_stop() == DLT_SIGTERM ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
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
    int n_resumed = 0, n_killed = 0;
    unsigned n = full() ? 1000 : 50;
    for (unsigned i = 0; i < n; i++) {
        if (!in_part(i)) continue;
        n_killed++;
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
    print_message("%d kills, %d of them between the first checkpoint and the end\n", n_killed,
                  n_resumed);
    dlt_arena_free(arena);
}

/* C22, G12. A second run in the folder of a living one is refused within a second, at whatever moment it
 * comes, and the first ends as if nothing had been. DLT_FULL=1: 500 moments. */
static void two_runs(void **state)
{
    (void)state;
    DltArena *arena = dlt_arena_new();
    const char *text = long_text(arena, "400");
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    int n = full() ? 500 : 8;
    int64_t longest = 0;
    for (int i = 0; i < n; i++) {
        if (!in_part(i)) continue;
        struct stat lock = {.st_size = 0};
        int result;
        remove_folder("two");
        pid_t pid = fork();
        if (pid == 0) _exit((int)train(text, (DltRunOptions){.out = "two"})->status);
        while (stat("two/lock", &lock) != 0 || lock.st_size == 0)
            usleep(100);
        usleep(531u * (unsigned)i % 10000u);
        int64_t before = dlt_sys_now_ns();
        Run *r = train(text, (DltRunOptions){.out = "two"});
        int64_t took = dlt_sys_now_ns() - before;
        if (took > longest) longest = took;
        assert_int_equal(r->status, DLT_E_RESOURCE);
        const char *holder = dlt_arena_printf(arena, "process %d on", (int)pid);
        if (strstr(r->err.report[0].text, holder) == NULL) fail_msg("%s", r->err.report[0].text);
        dlt_arena_free(r->arena);
        assert_int_equal(waitpid(pid, &result, 0), pid);
        assert_int_equal(result, 0);
        assert_true(took < (int64_t)1000000000);
        same_tensors("whole/last.bin", "two/last.bin");
        same_rows("whole", "two");
    }
    print_message(
        "%lld second runs refused, the slowest after %.1f ms; the first ones undisturbed\n",
        (long long)share(n), 1e-6 * (double)longest);
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

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals),   cmocka_unit_test(signal_while_weights_begin),
        cmocka_unit_test(killed),    cmocka_unit_test(two_runs),
        cmocka_unit_test(disk_full),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
