/* A device whose calls do not return (C65): the run is ended with exit 5 within its limit, leaves a record
 * that names the call, an end record and its newest checkpoint, and going on gives the bits of the
 * unbroken run. A device that is merely slow, and a process that was stopped, are left alone. */
#include "runs.h"

#include "base/fatal.h"
#include "base/watch.h"

#include <signal.h>

/* The CPU behind a driver that hangs: the call number `at` of the kind `what` never comes back. */
static DltBackend lame;
static struct {
    const char *what;
    int at;
    int slow_us; /* each call takes so long */
} fault;

static void called(const char *what)
{
    if (fault.slow_us > 0) usleep((useconds_t)fault.slow_us);
    if (fault.what == NULL || strcmp(fault.what, what) != 0 || --fault.at != 0) return;
    for (;;)
        pause();
}

static DltStatus lame_open(DltArena *arena, const DltDeviceOptions *o, DltDevice **dev, DltErr *err)
{
    called("open");
    return dlt_backend_cpu.open(arena, o, dev, err);
}

static DltStatus lame_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    called("alloc");
    return dlt_backend_cpu.alloc(dev, bytes, ptr, err);
}

static DltStatus lame_upload(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    called("upload");
    return dlt_backend_cpu.upload(s, dst, src, bytes, err);
}

static DltStatus lame_download(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    called("download");
    return dlt_backend_cpu.download(s, dst, src, bytes, err);
}

static DltStatus lame_sync(DltDevice *dev, DltErr *err)
{
    called("sync");
    return dlt_backend_cpu.sync(dev, err);
}

static void lame_close(DltDevice *dev)
{
    called("close");
    dlt_backend_cpu.close(dev);
}

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    lame = dlt_backend_cpu;
    lame.name = "lame";
    lame.open = lame_open;
    lame.alloc = lame_alloc;
    lame.upload = lame_upload;
    lame.download = lame_download;
    lame.sync = lame_sync;
    lame.close = lame_close;
    *backend = &lame;
    return DLT_OK;
}

/* As the program does it. */
static void hangs(const char *what, double seconds)
{
    char cause[200];
    snprintf(cause, sizeof cause, "no answer for %g s in %.100s", seconds, what);
    dlt_fatal_run(cause, DLT_E_DEVICE);
    _exit(DLT_E_DEVICE);
}

static const char *hang_config(DltArena *arena, const char *limit)
{
    return config(arena, "", "12", "sgd: {lr: 0.1}",
                  dlt_arena_printf(arena, "  guard: {hang: %s}\n", limit), "");
}

static char *read_text(DltArena *arena, const char *path)
{
    DltErr err;
    dlt_err_init(&err);
    char *text = NULL;
    int64_t n = 0;
    DltStatus status =
        dlt_file_read(arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK}, &text, &n, &err);
    return status == DLT_OK ? text : NULL;
}

/* The child's exit code, and how long it took. */
static int run_child(const char *text, double *seconds)
{
    int result;
    int64_t before = dlt_sys_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        dlt_watch_on_hang(hangs);
        Run *r = train(text, (DltRunOptions){.out = "hang"});
        int status = (int)r->status;
        dlt_arena_free(r->arena);
        _exit(status);
    }
    assert_int_equal(waitpid(pid, &result, 0), pid);
    *seconds = 1e-9 * (double)(dlt_sys_now_ns() - before);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
}

static void c65_every_kind_of_call(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        int at;
        const char *told;
    } rows_[] = {{"open", 1, "opening it"},      {"alloc", 1, "getting memory"},
                 {"upload", 1, "an upload"},     {"upload", 60, "an upload"},
                 {"download", 20, "a download"}, {"sync", 9, "waiting for it"},
                 {"sync", 24, "waiting for it"}};
    DltArena *arena = dlt_arena_new();
    const char *text = hang_config(arena, "0.3 s");
    fault.what = NULL;
    remove_folder("whole");
    done(train(text, (DltRunOptions){.out = "whole"}), DLT_OK);
    int n_resumed = 0;
    for (size_t i = 0; i < sizeof rows_ / sizeof rows_[0]; i++) {
        double seconds;
        remove_folder("hang");
        fault.what = rows_[i].what;
        fault.at = rows_[i].at;
        int code = run_child(text, &seconds);
        if (code != DLT_E_DEVICE) fail_msg("%s %d: exit %d", rows_[i].what, rows_[i].at, code);
        assert_true(seconds < 10); /* 0.6 s and the time to get there, on a busy machine */
        fault.what = NULL;
        const char *crash = read_text(arena, "hang/crash.txt");
        const char *end = read_text(arena, "hang/status.json");
        assert_non_null(crash);
        assert_non_null(end);
        const char *cause =
            dlt_arena_printf(arena, "cause: no answer for 0.3 s in %s\n", rows_[i].told);
        if (strstr(crash, cause) == NULL) fail_msg("%s: %s", rows_[i].what, crash);
        json_t *o = json_loads(end, JSON_REJECT_DUPLICATES, NULL);
        assert_int_equal(json_integer_value(json_object_get(o, "exit")), DLT_E_DEVICE);
        assert_non_null(strstr(json_string_value(json_object_get(o, "reason")), "no answer"));
        bool saved = access("hang/last.bin", F_OK) == 0;
        assert_int_equal(json_is_string(json_object_get(o, "checkpoint")), saved);
        json_decref(o);
        n_resumed += saved;
        if (!saved) continue;
        done(resume(text, "hang/last.bin", (DltRunOptions){0}), DLT_OK);
        same_tensors("whole/last.bin", "hang/last.bin");
    }
    assert_true(n_resumed >= 2);
    dlt_arena_free(arena);
}

/* What closes the device is watched too: the run itself is done then. */
static void closing(void **state)
{
    (void)state;
    double seconds;
    DltArena *arena = dlt_arena_new();
    remove_folder("hang");
    fault.what = "close";
    fault.at = 1;
    assert_int_equal(run_child(hang_config(arena, "0.3 s"), &seconds), DLT_E_DEVICE);
    fault.what = NULL;
    assert_non_null(strstr(read_text(arena, "hang/status.json"), "\"exit\": 0"));
    dlt_arena_free(arena);
}

/* The key: a call that takes some time is a hang or not. 0 s: never one. */
static void limit_decides(void **state)
{
    (void)state;
    double seconds;
    DltArena *arena = dlt_arena_new();
    const char *once = "0.05 s";
    fault.slow_us = 200000;
    remove_folder("hang");
    assert_int_equal(run_child(hang_config(arena, once), &seconds), DLT_E_DEVICE);
    fault.slow_us = 1000; /* as a whole the run takes longer than its limit */
    remove_folder("hang");
    assert_int_equal(run_child(hang_config(arena, "0.25 s"), &seconds), DLT_OK);
    assert_true(seconds > 0.25);
    fault.slow_us = 0;
    fault.what = "sync";
    fault.at = 9;
    remove_folder("hang");
    pid_t pid = fork();
    if (pid == 0) {
        dlt_watch_on_hang(hangs);
        Run *r = train(hang_config(arena, "0 s"), (DltRunOptions){.out = "hang"});
        _exit((int)r->status);
    }
    int result;
    usleep(400000);
    assert_int_equal(waitpid(pid, &result, WNOHANG), 0); /* still waits */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    fault.what = NULL;
    dlt_arena_free(arena);
}

/* A process that was stopped inside a call for longer than the limit has not hung. */
static void stopped_is_not_hung(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        dlt_watch_on_hang(hangs);
        if (!dlt_watch_open(0.4)) _exit(99);
        dlt_watch_enter("a call");
        usleep(100000);
        raise(SIGSTOP);
        usleep(100000);
        dlt_watch_leave();
        dlt_watch_close();
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(pid, &result, WUNTRACED), pid);
    assert_true(WIFSTOPPED(result));
    usleep(1000000);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_int_equal(result, 0);
}

static void bad_limits(void **state)
{
    (void)state;
    static const char *const words[] = {"3 steps", "10%", "-1 s", "soon"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        Run *r = new_run();
        DltSpec *spec = NULL;
        const char *text = hang_config(r->arena, words[i]);
        DltStatus status = dlt_spec_read_stored(
            r->arena, &(DltStored){.name = "t.yaml", .text = text, .folder = "."}, 0, NULL, &spec,
            &r->err);
        assert_int_equal(status, DLT_E_CONFIG);
        assert_non_null(strstr(r->err.report[0].text, "train.guard.hang"));
        dlt_arena_free(r->arena);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c65_every_kind_of_call),
        cmocka_unit_test(closing),
        cmocka_unit_test(limit_decides),
        cmocka_unit_test(stopped_is_not_hung),
        cmocka_unit_test(bad_limits),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
