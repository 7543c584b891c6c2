/* The seam to the system and the log: frozen memory, signals, threads, clocks, and the lines written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit code of `run` in a child process, or 128 + the signal that ended it. Its stderr is dropped. */
static int in_child(void (*run)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        signal(SIGABRT, SIG_DFL); /* cmocka catches it */
        run();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void allocate(void)
{
    dlt_sys_free(dlt_sys_alloc(10));
}

static void allocate_frozen(void)
{
    dlt_mem_freeze();
    allocate();
}

static void map_frozen(void)
{
    dlt_mem_freeze();
    dlt_sys_pages_free(dlt_sys_pages(10), 10);
}

static void allocate_half_thawed(void)
{
    dlt_mem_freeze();
    dlt_mem_freeze();
    dlt_mem_thaw();
    allocate();
}

static void allocate_thawed(void)
{
    dlt_mem_freeze();
    dlt_mem_thaw();
    allocate();
}

static void thaw_twice(void)
{
    dlt_mem_thaw();
}

static void frozen_memory_is_a_bug_to_touch(void **state)
{
    (void)state;
    assert_int_equal(in_child(allocate_frozen), 128 + SIGABRT);
    assert_int_equal(in_child(map_frozen), 128 + SIGABRT);
    assert_int_equal(in_child(allocate_half_thawed), 128 + SIGABRT);
    assert_int_equal(in_child(allocate_thawed), 0);
    assert_int_equal(in_child(thaw_twice), 128 + SIGABRT);
    uint64_t before = dlt_mem_count();
    allocate();
    assert_int_equal(dlt_mem_count() - before, 1);
}

/* Each scenario leaves with what dlt_sys_signal_seen says, unless the signal itself ends it. */
static void one_interrupt(void)
{
    dlt_sys_signals_install();
    if (dlt_sys_signal_seen() != 0) _exit(1);
    raise(SIGINT);
    _exit(dlt_sys_signal_seen());
}

static void two_interrupts(void)
{
    dlt_sys_signals_install();
    raise(SIGINT);
    raise(SIGINT);
    _exit(1);
}

static void interrupt_then_terminate(void)
{
    dlt_sys_signals_install();
    raise(SIGINT);
    raise(SIGTERM);
    _exit(1);
}

static void user_signal_then_terminate(void)
{
    dlt_sys_signals_install();
    raise(SIGUSR1);
    if (dlt_sys_signal_seen() != SIGUSR1) _exit(1);
    raise(SIGTERM);
    _exit(dlt_sys_signal_seen());
}

static void terminate_then_user_signal(void)
{
    dlt_sys_signals_install();
    raise(SIGTERM);
    raise(SIGUSR1);
    _exit(dlt_sys_signal_seen());
}

static void hang_ups(void)
{
    signal(SIGHUP, SIG_DFL); /* the tests may run under nohup */
    dlt_sys_signals_install();
    raise(SIGPIPE);
    if (dlt_sys_signal_seen() != 0) _exit(1);
    raise(SIGHUP);
    raise(SIGHUP);
    _exit(dlt_sys_signal_seen());
}

static void hang_up_under_nohup(void)
{
    signal(SIGHUP, SIG_IGN);
    dlt_sys_signals_install();
    raise(SIGHUP);
    _exit(dlt_sys_signal_seen());
}

static void signals_are_seen_and_the_second_one_leaves(void **state)
{
    (void)state;
    assert_int_equal(in_child(one_interrupt), SIGINT);
    assert_int_equal(in_child(two_interrupts), 130);
    assert_int_equal(in_child(interrupt_then_terminate), 143);
    assert_int_equal(in_child(user_signal_then_terminate), SIGTERM);
    assert_int_equal(in_child(terminate_then_user_signal), SIGTERM);
    assert_int_equal(in_child(hang_ups), SIGTERM);
    assert_int_equal(in_child(hang_up_under_nohup), 0);
}

static void *set_to_seven(void *ctx)
{
    *(int *)ctx = 7;
    return NULL;
}

static void threads_clocks_and_processors(void **state)
{
    (void)state;
    pthread_t thread;
    int value = 0;
    assert_true(dlt_sys_thread(&thread, set_to_seven, &value));
    pthread_join(thread, NULL);
    assert_int_equal(value, 7);
    assert_true(dlt_sys_n_cpu() >= 1 && dlt_sys_n_cpu() <= sysconf(_SC_NPROCESSORS_CONF));
    int64_t before = dlt_sys_now_ns();
    usleep(2000);
    assert_true(dlt_sys_now_ns() - before >= 2000000);
    assert_true(dlt_sys_wall_s() > 1.6e9); /* after 2020 */
    int64_t bytes = -1;
    assert_true(dlt_sys_free_bytes("/tmp", &bytes) && bytes >= 0);
    assert_false(dlt_sys_free_bytes("/no/such/folder", &bytes));
}

/* What fn writes to stderr and to the copy of the log. */
static void capture(void (*run)(void), char *to_stderr, char *to_copy, size_t n)
{
    int saved = dup(STDERR_FILENO), out[2], copy[2];
    assert_int_equal(pipe(out) + pipe(copy), 0);
    dup2(out[1], STDERR_FILENO);
    dlt_log_copy_to(copy[1]);
    run();
    dlt_log_copy_to(-1);
    dlt_log_level(DLT_LOG_INFO);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(out[1]);
    close(copy[1]);
    memset(to_stderr, 0, n);
    memset(to_copy, 0, n);
    assert_true(read(out[0], to_stderr, n - 1) >= 0);
    assert_true(read(copy[0], to_copy, n - 1) >= 0);
    close(out[0]);
    close(copy[0]);
}

static void log_some(void)
{
    dlt_log("step %d", 1);
    dlt_log_debug("hidden");
    dlt_log_live("live %d", 2); /* no terminal: nothing */
}

static void log_debug(void)
{
    dlt_log_level(DLT_LOG_DEBUG);
    dlt_log_debug("shown");
}

static void log_quiet(void)
{
    dlt_log_level(DLT_LOG_QUIET);
    dlt_log("only in the file");
}

static void log_long(void)
{
    dlt_log("%*d", 100000, 1);
}

static void lines_go_where_they_belong(void **state)
{
    (void)state;
    char out[16384], copy[16384];
    capture(log_some, out, copy, sizeof out);
    assert_string_equal(out, "step 1\n");
    assert_string_equal(copy, "step 1\n");
    capture(log_debug, out, copy, sizeof out);
    assert_string_equal(out, "shown\n");
    capture(log_quiet, out, copy, sizeof out);
    assert_string_equal(out, "");
    assert_string_equal(copy, "only in the file\n");
    capture(log_long, out, copy, sizeof out);
    assert_true(strlen(out) < 9000);
    assert_string_equal(out + strlen(out) - 4, "...\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_memory_is_a_bug_to_touch),
        cmocka_unit_test(signals_are_seen_and_the_second_one_leaves),
        cmocka_unit_test(threads_clocks_and_processors),
        cmocka_unit_test(lines_go_where_they_belong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
