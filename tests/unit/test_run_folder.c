/* Run folders: exclusive names, locks of living and dead runs, rows that survive a rewind, rotation
 * that never removes the newest, the best or a stranger's file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "exec/run.h"
#include "full.h"

static char root[] = "/tmp/dltrain-folder-XXXXXX";
static DltMetricDef loss = {.name = "loss"}, top1 = {.name = "top1"};
static const DltMetricDef *const metrics[] = {&loss, &top1};
static DltDatasetDef set;

typedef struct Case {
    DltArena *arena;
    DltErr err;
    DltSpec spec;
} Case;

static Case *new_case(void)
{
    DltArena *arena = dlt_arena_new();
    Case *c = DLT_NEW(arena, Case);
    c->arena = arena;
    c->spec = (DltSpec){.name = "a b/c", .text = "x: 1\n", .n_metric = 2, .metric = metrics};
    c->spec.data.source[DLT_TRAIN].def = &set;
    c->spec.data.source[DLT_VAL].def = &set;
    return c;
}

static DltStatus try_open(Case *c, const char *out, bool resume, DltRunFolder **f)
{
    *f = NULL;
    dlt_err_init(&c->err);
    return dlt_run_folder_open(c->arena, &c->spec, out, resume, f, &c->err);
}

static DltRunFolder *open_folder(Case *c, const char *out, bool resume)
{
    DltRunFolder *f = NULL;
    DltStatus status = try_open(c, out, resume, &f);
    if (status != DLT_OK) print_message("%s\n", c->err.report[0].text);
    assert_int_equal(status, DLT_OK);
    return f;
}

static char *read_file(Case *c, const char *path)
{
    char *bytes = NULL;
    int64_t n = 0;
    assert_int_equal(dlt_file_read(c->arena, path, (DltFileRule){1 << 20, DLT_E_BUG, DLT_NO_MARK},
                                   &bytes, &n, &c->err),
                     DLT_OK);
    return bytes;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

static int start(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL || chdir(root) != 0) return -1;
    dlt_log_level(DLT_LOG_QUIET);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) execlp("rm", "rm", "-rf", root, (char *)NULL);
    int result;
    return waitpid(pid, &result, 0) == pid && result == 0 ? 0 : -1;
}

/* ---- places and locks --------------------------------------------------------------------- */

static void numbered(void **state)
{
    (void)state;
    Case *c = new_case();
    DltRunFolder *a = open_folder(c, NULL, false), *b = open_folder(c, NULL, false);
    assert_string_equal(dlt_run_folder_path(a), "runs/a-b-c-1");
    assert_string_equal(dlt_run_folder_path(b), "runs/a-b-c-2");
    assert_string_equal(read_file(c, "runs/a-b-c-1/config.yaml"), "x: 1\n");
    dlt_run_folder_discard(b);
    assert_false(there("runs/a-b-c-2"));
    dlt_run_folder_close(a);
    assert_string_equal(read_file(c, "runs/a-b-c-1/lock"), "");
    dlt_arena_free(c->arena);
}

/* 64 processes at once: as many folders. */
static void many_starts(int round)
{
    enum { N = 64 };
    Case *c = new_case();
    c->spec.name = dlt_arena_printf(c->arena, "many-%d", round);
    pid_t pid[N];
    for (int i = 0; i < N; i++) {
        pid[i] = fork();
        if (pid[i] != 0) continue;
        DltRunFolder *f = NULL;
        _exit(try_open(c, NULL, false, &f) == DLT_OK ? 0 : 1);
    }
    for (int i = 0; i < N; i++) {
        int result;
        assert_int_equal(waitpid(pid[i], &result, 0), pid[i]);
        assert_int_equal(result, 0);
    }
    /* which process made which folder is open, so all must have ended before one is looked at */
    for (int i = 0; i < N; i++)
        assert_true(
            there(dlt_arena_printf(c->arena, "runs/%s-%d/config.yaml", c->spec.name, i + 1)));
    assert_false(there(dlt_arena_printf(c->arena, "runs/%s-65", c->spec.name)));
    dlt_arena_free(c->arena);
}

/* DLT_FULL=1: 100 times. */
static void many_at_once(void **state)
{
    (void)state;
    int n = full() ? 100 : 1;
    for (int i = 0; i < n; i++)
        if (in_part(i)) many_starts(i);
    print_message("%lld starts, 64 at a time: as many folders\n", 64 * (long long)share(n));
}

/* A child that holds the folder until it is killed. */
static pid_t holder(Case *c, const char *out)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        DltRunFolder *f = NULL;
        bool ok = try_open(c, out, false, &f) == DLT_OK;
        write_file(dlt_arena_printf(c->arena, "%s/last.bin", out), "saved");
        write_file(dlt_arena_printf(c->arena, "%s/step-5.bin", out), "saved");
        if (write(ready[1], ok ? "y" : "n", 1) == 1) pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static void living_and_dead(void **state)
{
    (void)state;
    Case *c = new_case();
    pid_t pid = holder(c, "held/deep");
    DltRunFolder *f = NULL;
    for (int resume = 0; resume < 2; resume++) {
        assert_int_equal(try_open(c, "held/deep", resume, &f), DLT_E_RESOURCE);
        char who[32];
        snprintf(who, sizeof who, "process %ld on ", (long)pid);
        assert_non_null(strstr(c->err.report[0].text, who));
    }
    kill(pid, SIGKILL);
    int result;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    f = open_folder(c, "held/deep", false); /* taken over; what was saved is still there */
    assert_string_equal(read_file(c, "held/deep/previous-1/last.bin"), "saved");
    assert_true(there("held/deep/previous-1/step-5.bin"));
    assert_true(there("held/deep/previous-1/config.yaml"));
    assert_false(there("held/deep/last.bin"));
    dlt_run_folder_close(f);
    /* ended in order: taken, but it can be resumed */
    assert_int_equal(try_open(c, "held/deep", false, &f), DLT_E_RESOURCE);
    assert_non_null(strstr(c->err.report[0].text, "dltrain resume held/deep"));
    f = open_folder(c, "held/deep", true);
    dlt_run_folder_close(f);
    dlt_arena_free(c->arena);
}

static void locks_of_other_machines(void **state)
{
    (void)state;
    Case *c = new_case();
    DltRunFolder *f = NULL;
    assert_int_equal(mkdir("far", 0777), 0);
    write_file("far/lock", "pid 12 host elsewhere boot 1-2-3 since 1700000000\n");
    assert_int_equal(try_open(c, "far", false, &f), DLT_E_RESOURCE);
    assert_non_null(strstr(c->err.report[0].text, "another machine, elsewhere"));
    assert_true(there("far/lock")); /* not ours to remove */
    /* the same machine after a reboot: the pid means nothing any more */
    char host[128] = "";
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    write_file("far/lock", dlt_arena_printf(c->arena, "pid %ld host %s boot 1-2-3 since 17\n",
                                            (long)getpid(), host));
    f = open_folder(c, "far", false);
    dlt_run_folder_close(f);
    write_file("far/lock", "garbage\n");
    f = open_folder(c, "far", true);
    dlt_run_folder_close(f);
    dlt_arena_free(c->arena);
}

static void bad_places(void **state)
{
    (void)state;
    Case *c = new_case();
    DltRunFolder *f = NULL;
    char name[301];
    memset(name, 'n', sizeof name);
    name[300] = '\0';
    write_file("file", "");
    assert_int_equal(symlink("/nowhere/at/all", "dangling"), 0);
    const char *const bad[] = {"file", "file/below", "dangling", "/proc/run", name};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(try_open(c, bad[i], false, &f), DLT_E_RESOURCE);
        assert_int_equal(c->err.n, 1);
    }
    c->spec.name = name;
    assert_int_equal(try_open(c, NULL, false, &f), DLT_E_RESOURCE);
    f = open_folder(c, "room", false);
    assert_int_equal(dlt_run_folder_needs(f, 1000, &c->err), DLT_OK);
    assert_int_equal(dlt_run_folder_needs(f, INT64_MAX / 2, &c->err), DLT_E_RESOURCE);
    dlt_run_folder_discard(f);
    assert_false(there("room"));
    dlt_arena_free(c->arena);
}

/* ---- rows --------------------------------------------------------------------------------- */

static void row(Case *c, DltRunFolder *f, double step, double value)
{
    static const char *const names[] = {"step", "train.loss", "val.top1"};
    double values[] = {step, value, 0.25};
    DltMetricRow r = {3, names, values};
    assert_int_equal(dlt_run_folder_metrics(f, &r, &c->err), DLT_OK);
}

static void rows_and_rewind(void **state)
{
    (void)state;
    Case *c = new_case();
    DltRunFolder *f = open_folder(c, "rows", false);
    row(c, f, 9900, 1.0 / 3.0);
    row(c, f, 10000, (double)NAN);
    row(c, f, 10100, -(double)INFINITY);
    static const char csv[] =
        "step,epoch,time_s,samples,lr,train.loss,train.top1,val.loss,val.top1,grad_norm,"
        "samples_per_s,data_wait,memory_bytes\n"
        "9900,,,,,0.3333333333,,,0.25,,,,\n"
        "10000,,,,,,,,0.25,,,,\n";
    assert_int_equal(strncmp(read_file(c, "rows/metrics.csv"), csv, sizeof csv - 1), 0);
    int fd = open("rows/metrics.jsonl", O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "{\"step\": 10", 11), 11); /* killed while writing */
    close(fd);
    dlt_run_folder_close(f);
    f = open_folder(c, "rows", true);
    assert_int_equal(dlt_run_folder_rewind(f, 10000, &c->err), DLT_OK);
    assert_string_equal(read_file(c, "rows/metrics.csv"), csv);
    assert_string_equal(read_file(c, "rows/metrics.jsonl"),
                        "{\"step\": 9900, \"train.loss\": 0.3333333333, \"val.top1\": 0.25}\n"
                        "{\"step\": 10000, \"train.loss\": null, \"val.top1\": 0.25}\n");
    row(c, f, 10100, 2);
    assert_int_equal(dlt_run_folder_end(f, DLT_E_NUMERIC, "loss \"NaN\"\n\\", &c->err), DLT_OK);
    dlt_run_folder_close(f);
    char *line = read_file(c, "rows/metrics.jsonl");
    int n = 0;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1, n++) {
        json_t *json = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(json);
        json_decref(json);
    }
    assert_int_equal(n, 3);
    json_t *end = json_loads(read_file(c, "rows/status.json"), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(end, "exit")), 7);
    assert_int_equal(json_integer_value(json_object_get(end, "step")), 10100);
    assert_string_equal(json_string_value(json_object_get(end, "reason")), "loss \"NaN\"\n\\");
    json_decref(end);
    dlt_arena_free(c->arena);
}

/* ---- rotation ----------------------------------------------------------------------------- */

static void save(Case *c, DltRunFolder *f, int64_t step, uint64_t run, const DltKeep *keep,
                 bool best)
{
    DltCheckpoint ckpt = {.meta = {.step = step, .run = run}};
    assert_int_equal(dlt_run_folder_save(f, &ckpt, keep, best, &c->err), DLT_OK);
}

static int64_t step_of(Case *c, const char *path)
{
    DltCheckpoint *ckpt = NULL;
    assert_int_equal(dlt_checkpoint_read(c->arena, path, &ckpt, &c->err), DLT_OK);
    return ckpt->meta.step;
}

static int count_steps(const char *folder, int64_t from, int64_t to)
{
    int n = 0;
    for (int64_t s = from; s <= to; s += 100) {
        char path[64];
        snprintf(path, sizeof path, "%s/step-%lld.bin", folder, (long long)s);
        n += there(path);
    }
    return n;
}

static void rotation(void **state)
{
    (void)state;
    Case *c = new_case();
    for (int64_t last = 0; last <= 3; last++) {
        for (int64_t every = 0; every <= 500; every += 500) {
            DltKeep keep = {.last = last, .every = every};
            char *out = dlt_arena_printf(c->arena, "rot-%d-%d", (int)last, (int)every);
            DltRunFolder *f = open_folder(c, out, false);
            /* a stranger under a step's name, and another run's checkpoint */
            write_file(dlt_arena_printf(c->arena, "%s/step-1.bin", out), "a note");
            DltCheckpoint other = {.meta = {.step = 2, .run = 8}};
            const char *theirs = dlt_arena_printf(c->arena, "%s/step-2.bin", out);
            assert_int_equal(dlt_checkpoint_write(theirs, &other, &c->err), DLT_OK);
            for (int64_t s = 9500; s <= 10500; s += 100) {
                save(c, f, s, 7, &keep, s == 9600);
                assert_int_equal(step_of(c, dlt_arena_printf(c->arena, "%s/last.bin", out)), s);
            }
            dlt_run_folder_close(f);
            /* go on from 10200 in another process, so to say: later files stay until replaced */
            f = open_folder(c, out, true);
            DltCheckpoint from = {.meta = {.step = 10200, .run = 7}, .path = "last"};
            assert_int_equal(dlt_run_folder_adopt(f, &from, &c->err), DLT_OK);
            for (int64_t s = 10300; s <= 10700; s += 100)
                save(c, f, s, 7, &keep, false);
            dlt_run_folder_close(f);
            int64_t kept = last + (every ? 3 : 0); /* 9500, 10000, 10500 */
            assert_int_equal(count_steps(out, 9500, 10700), kept);
            assert_int_equal(count_steps(out, 10700 - 100 * (last - 1), 10700), last);
            assert_int_equal(step_of(c, dlt_arena_printf(c->arena, "%s/best.bin", out)), 9600);
            assert_string_equal(read_file(c, dlt_arena_printf(c->arena, "%s/step-1.bin", out)),
                                "a note");
            assert_true(there(theirs));
        }
    }
    dlt_arena_free(c->arena);
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbered),        cmocka_unit_test(many_at_once),
        cmocka_unit_test(living_and_dead), cmocka_unit_test(locks_of_other_machines),
        cmocka_unit_test(bad_places),      cmocka_unit_test(rows_and_rewind),
        cmocka_unit_test(rotation),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
