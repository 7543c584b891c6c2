/* What people do with the program, each with the k-th allocation, file call, thread or GPU call
 * failing, once and from then on, or with a signal there: the right exit, the reason told, nothing kept
 * (memory, descriptors, temporary files), and the newest checkpoint whole. The points come from counting a
 * run without a fault, so the loops grow with the program. A sample of them by default; DLT_FULL=1: all (of the GPU
 * calls every third for each kind of fault, a different third for each). DLT_SCENARIO="eval plan": these
 * alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "exec/checkpoint.h"
#include "tests/unit/full.h"

typedef struct Scenario {
    const char *name;
    const char *words[8];
    int code;       /* of a run without a fault */
    bool continues; /* begins from a copy of the stopped run */
    bool trains;
} Scenario;
static const Scenario scenarios[] = {
    {"check", {"check", "c.yaml"}, 0, false, false},
    {"train", {"train", "c.yaml", "--out", "work", "checkpoint.every=100 steps"}, 0, false, true},
    {"save", {"train", "c.yaml", "--out", "work"}, 0, false, true},
    {"resume", {"resume", "work"}, 0, true, true},
    {"init", {"train", "c.yaml", "--out", "work", "--init", "base/last.bin"}, 0, false, true},
    {"eval", {"eval", "base/last.bin"}, 0, false, false},
    {"predict", {"predict", "base/last.bin", "rows.csv"}, 0, false, false},
    {"plan", {"plan", "c.yaml"}, 0, false, false},
    {"inspect", {"inspect", "base/last.bin"}, 0, false, false},
};
enum { N_SCENARIO = sizeof scenarios / sizeof scenarios[0] };

typedef struct Kind { /* of fault, and the exits it may have besides 0, as bits */
    const char *class, *error, *how;
    unsigned codes;
} Kind;
#define BIT(status) (1u << (status))
enum {
    FILE_CODES = BIT(DLT_E_CONFIG) | BIT(DLT_E_DATA) | BIT(DLT_E_CHECKPOINT) | BIT(DLT_E_RESOURCE),
    GPU_CODES = BIT(DLT_E_DEVICE) | BIT(DLT_E_RESOURCE)
};
static const Kind kinds[] = {
    {"mem", "ENOMEM", "once", BIT(DLT_E_RESOURCE)},
    {"mem", "ENOMEM", "forever", BIT(DLT_E_RESOURCE)},
    {"file", "EIO", "once", FILE_CODES},
    {"file", "EIO", "forever", FILE_CODES},
    {"file", "ENOSPC", "once", FILE_CODES},
    {"file", "ENOSPC", "forever", FILE_CODES},
    {"file", "EACCES", "once", FILE_CODES},
    {"file", "EROFS", "forever", FILE_CODES},
    {"file", "EMFILE", "forever", FILE_CODES},
    {"file", "EDQUOT", "once", FILE_CODES},
    {"file", "SHORT", "once", 0},
    {"file", "EINTR", "once", 0},
    {"thread", "EAGAIN", "once", BIT(DLT_E_RESOURCE)},
    {"thread", "EAGAIN", "forever", BIT(DLT_E_RESOURCE)},
};
static const Kind gpu_kinds[] = {
    {"device", "2", "once", GPU_CODES},      {"device", "2", "forever", GPU_CODES},
    {"device", "46", "forever", GPU_CODES},  {"device", "214", "forever", GPU_CODES},
    {"device", "700", "once", GPU_CODES},    {"device", "700", "forever", GPU_CODES},
    {"device", "719", "forever", GPU_CODES}, {"device", "999", "once", GPU_CODES},
    {"device", "803", "forever", GPU_CODES},
};
static const Kind hang_kinds[] = {{"device", "HANG", "once", BIT(DLT_E_DEVICE)}};

/* Exits besides 0, that of a run which was over. */
static const Kind signal_kinds[] = {
    {"file", "SIGINT", "once", 130},          {"file", "SIGTERM", "once", 143},
    {"file", "SIGUSR1", "once", DLT_STOPPED}, {"mem", "SIGTERM", "once", 143},
    {"thread", "SIGINT", "once", 130},
};
static const Kind gpu_signal_kinds[] = {{"device", "SIGTERM", "once", 143}};

static char program[4096], root[64];
static bool gpu;

/* ---- files -------------------------------------------------------------------------------- */

static void each_entry(const char *folder, void (*each)(const char *path, void *ctx), void *ctx)
{
    char path[512];
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        each(path, ctx);
    }
    if (dir != NULL) closedir(dir);
}

static void remove_entry(const char *path, void *ctx)
{
    if (unlink(path) == 0) return;
    each_entry(path, remove_entry, ctx);
    rmdir(path);
}

static void remove_all(const char *folder)
{
    each_entry(folder, remove_entry, NULL);
    rmdir(folder);
}

static size_t read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : 0;
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = '\0';
    return (size_t)(n > 0 ? n : 0);
}

static void copy_entry(const char *path, void *to)
{
    static char bytes[1 << 20];
    char name[512];
    size_t n = read_file(path, bytes, sizeof bytes);
    snprintf(name, sizeof name, "%s/%s", (const char *)to, strrchr(path, '/') + 1);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void count_temps(const char *path, void *n)
{
    if (strstr(path, ".tmp.") != NULL) ++*(int *)n;
}

/* ---- one run ------------------------------------------------------------------------------ */

typedef struct Outcome {
    int result; /* of waitpid */
    bool told;  /* the process came to its end and wrote its report */
    long long calls[DLT_N_FAULT], blocks, files;
    int met;
    char out[4096];
} Outcome;

/* The child: everything into files, and an end after a minute. */
static void become(const Scenario *s, const char *fault)
{
    const char *words[16] = {program};
    int n = 1;
    for (int i = 0; i < 8 && s->words[i] != NULL; i++)
        words[n++] = s->words[i];
    if (strcmp(s->name, "inspect") != 0) {
        words[n++] = "--device";
        words[n++] = gpu ? "cuda" : "cpu";
    }
    if (s->trains && s->continues == false) words[n++] = "--quiet";
    int out = open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int error = open("err.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, 1);
    dup2(error, 2);
    close(out);
    close(error);
    setenv("DLT_FAULT", fault, 1);
    setenv("DLT_FAULT_REPORT", "report.txt", 1);
    alarm(60);
    execv(program, (char *const *)words);
    _exit(127);
}

static void run(const Scenario *s, const char *fault, Outcome *o)
{
    char text[512];
    *o = (Outcome){.result = 0};
    remove_all("work");
    unlink("report.txt");
    if (s->continues) {
        assert_int_equal(mkdir("work", 0755), 0);
        each_entry("base", copy_entry, (void *)"work");
    }
    pid_t pid = fork();
    if (pid == 0) become(s, fault);
    assert_int_equal(waitpid(pid, &o->result, 0), pid);
    read_file("out.txt", o->out, sizeof o->out);
    read_file("report.txt", text, sizeof text);
    o->told =
        sscanf(text, "mem %lld file %lld thread %lld device %lld met %d blocks %lld files %lld",
               &o->calls[0], &o->calls[1], &o->calls[2], &o->calls[3], &o->met, &o->blocks,
               &o->files) == 7;
}

static int loads(const char *path, int64_t *step)
{
    DltErr err;
    dlt_err_init(&err);
    DltArena *arena = dlt_arena_new();
    DltCheckpoint *c = NULL;
    int status = (int)dlt_checkpoint_read(arena, path, &c, &err);
    *step = status == DLT_OK ? c->meta.step : -1;
    dlt_arena_free(arena);
    return status;
}

static int n_wrong;

/* Tells the first ones; the test fails at its end, so that one look shows all. */
static void blame(const Scenario *s, const char *fault, const char *what, const Outcome *o)
{
    enum { SHOWN = 40 };
    char error[2000];
    read_file("err.txt", error, sizeof error);
    if (n_wrong++ < SHOWN)
        print_error("%s with DLT_FAULT=%s: %s (wait result %x)\n%s", s->name, fault, what,
                    (unsigned)o->result, error);
}

/* What must hold after any run. */
static void judge(const Scenario *s, const Kind *k, const char *fault, const Outcome *o,
                  const Outcome *good)
{
    char error[400];
    int64_t step = -1;
    int temps = 0;
    if (!WIFEXITED(o->result)) {
        blame(s, fault, "did not exit", o);
        return;
    }
    int code = WEXITSTATUS(o->result);
    if (code != 0 && (code > 7 || !(k->codes & BIT(code)))) blame(s, fault, "wrong exit", o);
    if (code != 0 && read_file("err.txt", error, sizeof error) == 0) blame(s, fault, "silent", o);
    if (o->told && o->blocks != 0) blame(s, fault, "memory was kept", o);
    if (o->told && o->files != 0) blame(s, fault, "descriptors were kept", o);
    each_entry("work", count_temps, &temps);
    bool cannot_remove = strcmp(k->class, "file") == 0 && strcmp(k->how, "forever") == 0;
    if (temps > 0 && !cannot_remove) blame(s, fault, "a temporary file was left", o);
    bool there = access("work/last.bin", F_OK) == 0;
    if (there && loads("work/last.bin", &step) != DLT_OK) blame(s, fault, "last.bin is broken", o);
    if (s->continues && !there) blame(s, fault, "last.bin is gone", o);
    if (code == 0 && s->trains && step != 4) blame(s, fault, "exit 0 without the last step", o);
    if (code == 0 && !s->trains && strcmp(o->out, good->out) != 0)
        blame(s, fault, "exit 0 with another result", o);
}

/* The step of the last row, 0: none. */
static int64_t reached(void)
{
    static char rows[1 << 16];
    long long step = 0;
    read_file("work/metrics.jsonl", rows, sizeof rows);
    for (char *line = rows, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        (void)(sscanf(line, "{\"step\": %lld", &step) == 1);
    return step;
}

static void payload_of(const char *path, char *bytes, size_t size, size_t *n)
{
    uint64_t head = 0;
    *n = read_file(path, bytes, size);
    memcpy(&head, bytes, *n >= sizeof head ? sizeof head : 0);
    head += sizeof head;
    *n = head < *n ? *n - head : 0;
    memmove(bytes, bytes + head, *n);
}

/* The run in "work" is finished (begun, where it has saved nothing), and ends with the bits of the run that
 * nothing befell. */
static bool goes_on(const Scenario *s)
{
    static char one[1 << 18], two[1 << 18];
    size_t n_one = 0, n_two = 0;
    bool saved = access("work/last.bin", F_OK) == 0;
    const Scenario rest = {"rest", {"resume", "work"}, 0, .continues = true};
    pid_t pid = fork();
    if (pid == 0) become(saved ? &rest : s, "");
    int result = -1;
    assert_int_equal(waitpid(pid, &result, 0), pid);
    payload_of("good.bin", one, sizeof one, &n_one);
    payload_of("work/last.bin", two, sizeof two, &n_two);
    return result == 0 && n_one > 0 && n_one == n_two && memcmp(one, two, n_one) == 0;
}

/* What must hold after a run that got a signal: its exit, a checkpoint at the step that was reached, and the
 * bits of the whole run when it goes on. */
static void judge_stopped(const Scenario *s, const Kind *k, const char *fault, const Outcome *o,
                          const Outcome *good)
{
    int64_t step = 0;
    int temps = 0;
    (void)good;
    int code = WIFEXITED(o->result) ? WEXITSTATUS(o->result) : -1;
    bool begun = fault[strcspn(fault, ":") + 2] != ':'; /* calls 1 to 9: the command line's */
    if (!begun && WIFSIGNALED(o->result)) code = 128 + WTERMSIG(o->result);
    if (code != 0 && code != (int)k->codes) blame(s, fault, "wrong exit", o);
    if (o->told && o->blocks != 0) blame(s, fault, "memory was kept", o);
    if (o->told && o->files != 0) blame(s, fault, "descriptors were kept", o);
    each_entry("work", count_temps, &temps);
    if (temps > 0) blame(s, fault, "a temporary file was left", o);
    bool there = access("work/last.bin", F_OK) == 0;
    if (there && loads("work/last.bin", &step) != DLT_OK) blame(s, fault, "last.bin is broken", o);
    if (there && reached() > step) blame(s, fault, "last.bin is older than the last row", o);
    if (code == 0 && step != 4) blame(s, fault, "exit 0 without the last step", o);
    if (!goes_on(s)) blame(s, fault, "does not go on to the same bits", o);
}

/* ---- the loops ---------------------------------------------------------------------------- */

typedef void (*Judge)(const Scenario *s, const Kind *k, const char *fault, const Outcome *o,
                      const Outcome *good);

static long long points, tolerated;

static long long calls_of(const Outcome *o, const char *class)
{
    static const char *const names[DLT_N_FAULT] = {"mem", "file", "thread", "device"};
    for (int i = 0; i < DLT_N_FAULT; i++)
        if (strcmp(class, names[i]) == 0) return o->calls[i];
    return 0;
}

static void loop(const Scenario *s, const Kind *k, const Outcome *good, Judge judge_it,
                 unsigned stride)
{
    long long n = calls_of(good, k->class), here = 0;
    static unsigned offset;
    char fault[64];
    Outcome o;
    if (n == 0) return;
    for (long long i = 1 + offset++ * 7 % stride, j = 0; i <= n; i += stride, j++) {
        if (!in_part(j)) continue;
        snprintf(fault, sizeof fault, "%s:%lld:%s:%s", k->class, i, k->error, k->how);
        run(s, fault, &o);
        judge_it(s, k, fault, &o, good);
        here++;
        tolerated += WEXITSTATUS(o.result) == 0;
    }
    points += here;
}

static void all_scenarios(const Kind *list, int n, Judge judge_it, unsigned stride)
{
    points = tolerated = n_wrong = 0;
    for (int i = 0; i < N_SCENARIO; i++) {
        const Scenario *s = &scenarios[i];
        const char *alone = getenv("DLT_SCENARIO");
        long long before = points;
        if (alone != NULL && strstr(alone, s->name) == NULL) continue;
        if (judge_it == judge_stopped && !s->trains) continue;
        Outcome good;
        run(s, "", &good);
        if (s->trains) rename("work/last.bin", "good.bin");
        if (WEXITSTATUS(good.result) != s->code || !good.told)
            blame(s, "", "the run without a fault", &good);
        assert_int_equal(good.blocks, 0);
        assert_int_equal(good.files, 0);
        for (int k = 0; k < n; k++)
            loop(s, &list[k], &good, judge_it, stride);
        print_message("%-8s %5lld allocations, %4lld file, %2lld thread, %5lld GPU calls: %6lld "
                      "points\n",
                      s->name, good.calls[0], good.calls[1], good.calls[2], good.calls[3],
                      points - before);
    }
    print_message("%lld points, %d with a wrong end; %lld of the faults did no harm\n", points,
                  n_wrong, tolerated);
    assert_int_equal(n_wrong, 0);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    gpu = false;
    all_scenarios(kinds, sizeof kinds / sizeof kinds[0], judge, full() ? 1 : 41);
}

/* The emulated one: make faulty-gpu. */
static bool has_gpu(void)
{
    char path[4200];
    snprintf(path, sizeof path, "%.*s/dltrain-cuda.so", (int)(strrchr(program, '/') - program),
             program);
    return access(path, F_OK) == 0;
}

static void every_gpu_call_may_fail(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    gpu = true;
    all_scenarios(gpu_kinds, sizeof gpu_kinds / sizeof gpu_kinds[0], judge, full() ? 3 : 997);
}

/* A call that never returns is found within train.guard.hang, a second here. */
static void every_gpu_call_may_hang(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    gpu = true;
    all_scenarios(hang_kinds, 1, judge, full() ? 29 : 1997);
}

/* A signal at each call: while the config is read, data are scanned, memory is planned, in training, evaluation,
 * saving and pruning. */
static void every_call_may_be_interrupted(void **state)
{
    (void)state;
    gpu = false;
    all_scenarios(signal_kinds, sizeof signal_kinds / sizeof signal_kinds[0], judge_stopped,
                  full() ? 1 : 61);
    gpu = has_gpu();
    if (gpu) all_scenarios(gpu_signal_kinds, 1, judge_stopped, full() ? 7 : 1499);
}

/* ---- set-up ------------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const char config[] =
    "dltrain: 1\nname: f\nseed: 1\ndata: {train: {csv: rows.csv, target: y}, val: 30% of train, "
    "normalize: from train}\nmodel: [{dense: 4}, batch_norm, relu, {dense: 3}]\n"
    "loss: cross_entropy\ntrain: {for: 4 steps, batch: 4, ema: 0.9, guard: {hang: 1 s}, "
    "optimizer: {adam: {lr: 0.01}}}\nlog: {every: 1 steps}\neval: {every: 2 steps}\ncheckpoint: "
    "{every: 1 steps, keep: "
    "{last: 1}}\n";

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/dltrain-fault-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(root) == NULL || chdir(root) != 0) return -1;
    write_text("c.yaml", config);
    FILE *f = fopen("rows.csv", "w");
    if (f == NULL) return -1;
    fprintf(f, "a,b,y\n");
    for (int i = 0; i < 24; i++)
        fprintf(f, "%d.5,%g,c%d\n", i, 1.0 / (i + 1), i % 3);
    if (fclose(f) != 0) return -1;
    char command[4400];
    snprintf(command, sizeof command,
             "'%s' train c.yaml --out base --stop-at 2 --quiet --device cpu >/dev/null", program);
    int code = system(command);
    return WIFEXITED(code) && WEXITSTATUS(code) == DLT_STOPPED ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    remove_all(root);
    return 0;
}

int main(int argc, char **argv)
{
    FILTER_TESTS(argc, argv);
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    *strstr(self, "/tests/fault/") = '\0';
    snprintf(program, sizeof program, "%s/fault/dltrain", self);
    setenv("DLTRAIN_CACHE", "none",
           1); /* what measures kernels belongs to the calls that may fail */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_call_may_be_interrupted),
        cmocka_unit_test(every_gpu_call_may_fail),
        cmocka_unit_test(every_gpu_call_may_hang),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
