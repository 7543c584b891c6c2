/* dltrain bench: the speed table, measured as a user trains: each workload is a process of its own that
 * runs `dltrain train` (batches gathered from the data set, metrics on, a run folder written), and its
 * figures are those of its rows: medians of windows between two rows. Whole processes are timed from
 * outside. On a GPU a second figure tells what determinism costs. */
#include "cmd/bench_work.h"
#include "cmd/cmd.h"

#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

enum { WINDOWS = 7, FIRST = 2 /* windows that warm up */, PROCESSES = 3 };

typedef struct Bench {
    const DltArgs *args;
    const char *program, *folder, *device; /* device: as --device takes it */
    DltDeviceInfo info;
    const char *backend;
    json_t *rows;
} Bench;

/* What was found of a workload: milliseconds of an update, or of a process. */
typedef struct Found {
    int n; /* windows, processes */
    double least, median, most;
    double memory_bytes;
} Found;

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *ms, int n, Found *f)
{
    qsort(ms, (size_t)n, sizeof *ms, by_value);
    f->n = n;
    f->least = ms[0];
    f->most = ms[n - 1];
    f->median = (ms[(n - 1) / 2] + ms[n / 2]) / 2;
}

/* ---- files ---- */

static DltStatus write_file(const Bench *b, const char *path, const char *text, size_t n,
                            DltErr *err)
{
    DltAtomic *file = NULL;
    DLT_TRY(dlt_atomic_open(b->args->arena, path, &file, err));
    DltStatus s = dlt_atomic_write(file, text, n, err);
    if (s == DLT_OK) return dlt_atomic_commit(file, err);
    dlt_atomic_abandon(file);
    return s;
}

/* A text of made-up words. */
static DltStatus write_text(const Bench *b, DltErr *err)
{
    enum { BYTES = 400000 };
    char *text = dlt_arena_new_bytes(b->args->arena, BYTES, 1);
    for (int i = 0; i < BYTES; i++) {
        DltRand4 r = dlt_philox(1, 1, (uint64_t)i);
        text[i] = r.v[0] % 6 == 0 ? ' ' : (char)('a' + r.v[1] % 26 * (r.v[2] % 3) / 2 % 26);
    }
    return write_file(b, dlt_path_join(b->args->arena, b->folder, "text.txt"), text, BYTES, err);
}

static DltStatus write_configs(const Bench *b, DltErr *err)
{
    for (const BenchConfig *c = dlt_bench_configs; c->name; c++) {
        const char *path = dlt_arena_printf(b->args->arena, "%s/%s.yaml", b->folder, c->name);
        DLT_TRY(write_file(b, path, c->text, strlen(c->text), err));
    }
    return write_text(b, err);
}

static void remove_one(void *ctx, const char *name)
{
    const Bench *b = ctx;
    (void)dlt_sys_unlink(dlt_path_join(b->args->arena, b->folder, name));
}

static void remove_all(Bench *b)
{
    if (dlt_sys_list(b->folder, remove_one, b)) (void)dlt_sys_rmdir(b->folder);
}

/* ---- one process ---- */

static const char *with_folder(const Bench *b, const char *set)
{
    const char *at = strchr(set, '@');
    if (!at) return set;
    return dlt_arena_printf(b->args->arena, "%.*s%s%s", (int)(at - set), set, b->folder, at + 1);
}

/* Trains; *ms is the time of the whole process. The run's folder stays. */
static DltStatus run(const Bench *b, const BenchWork *w, int64_t window, bool fast, double *ms,
                     DltErr *err)
{
    enum { MAX_WORDS = 24 };
    DltArena *a = b->args->arena;
    const char *out = dlt_path_join(a, b->folder, "run"), *word[MAX_WORDS];
    const char *log = dlt_path_join(a, b->folder, "log.txt");
    int n = 0;
    word[n++] = b->program;
    word[n++] = "train";
    word[n++] = dlt_arena_printf(a, "%s/%s.yaml", b->folder, w->config);
    for (int i = 0; i < BENCH_MAX_SET && w->set[i]; i++)
        word[n++] = with_folder(b, w->set[i]);
    word[n++] = dlt_arena_printf(a, "train.precision=%s", w->precision);
    word[n++] = dlt_arena_printf(a, "train.batch=%lld", (long long)w->batch);
    if (window > 0) {
        word[n++] =
            dlt_arena_printf(a, "train.for=%lld steps", (long long)(window * (WINDOWS + FIRST)));
        word[n++] = dlt_arena_printf(a, "log.every=%lld steps", (long long)window);
    }
    if (fast) word[n++] = "train.deterministic=false";
    const char *rest[] = {"--out",     out,
                          "--device",  b->device,
                          "--threads", dlt_arena_printf(a, "%lld", (long long)b->args->threads),
                          "--quiet"};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        word[n++] = rest[i];
    word[n] = NULL;
    dlt_run_folder_remove(a, out);
    int64_t begin = dlt_sys_now_ns();
    int code = dlt_sys_run(word, log);
    *ms = (double)(dlt_sys_now_ns() - begin) * 1e-6;
    if (code == 0) return DLT_OK;
    char *text = NULL;
    int64_t length = 0;
    DLT_TRY(dlt_file_read(a, log, (DltFileRule){1 << 20, DLT_E_RESOURCE, DLT_NO_MARK}, &text,
                          &length, err));
    return dlt_err(err, code > 0 && code <= DLT_E_NUMERIC ? (DltStatus)code : DLT_E_BUG,
                   "bench: %s (%s, batch %lld) ended with %d:\n%.600s", w->name, w->precision,
                   (long long)w->batch, code, text);
}

/* Milliseconds of an update in each window behind the first ones, from the run's rows. */
static DltStatus read_windows(const Bench *b, const BenchWork *w, Found *f, DltErr *err)
{
    char *text = NULL;
    int64_t n = 0;
    double ms[WINDOWS + FIRST];
    int n_row = 0, n_ms = 0;
    const char *path = dlt_path_join(b->args->arena, b->folder, "run/metrics.jsonl");
    DLT_TRY(dlt_file_read(b->args->arena, path,
                          (DltFileRule){16 << 20, DLT_E_RESOURCE, DLT_NO_MARK}, &text, &n, err));
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        double rate = json_number_value(json_object_get(row, "samples_per_s"));
        f->memory_bytes = json_number_value(json_object_get(row, "memory_bytes"));
        json_decref(row);
        if (n_row++ >= FIRST && n_ms < WINDOWS && rate > 0)
            ms[n_ms++] = 1e3 * (double)w->batch / rate;
    }
    if (n_ms == 0) return dlt_err(err, DLT_E_BUG, "bench: %s has no rows", path);
    summarise(ms, n_ms, f);
    return DLT_OK;
}

static DltStatus measure(const Bench *b, const BenchWork *w, bool fast, Found *f, DltErr *err)
{
    double ms[PROCESSES];
    int64_t window = b->args->steps > 0 ? b->args->steps : w->window;
    if (w->window > 0) {
        DLT_TRY(run(b, w, window, fast, &ms[0], err));
        return read_windows(b, w, f, err);
    }
    int n = b->args->steps > 0 ? 1 : PROCESSES;
    for (int i = 0; i < n; i++)
        DLT_TRY(run(b, w, 0, fast, &ms[i], err));
    summarise(ms, n, f);
    return DLT_OK;
}

/* ---- the table ---- */

static const char *number(char text[32], double v)
{
    snprintf(text, 32, "%.*f", v < 1 ? 4 : v < 100 ? 3 : 1, v);
    return text;
}

static void print_row(const Bench *b, const BenchWork *w, const Found *f, const Found *fast)
{
    char ms[32], range[70], low[32], high[32], other[32] = "-", bar[64] = "-";
    double counted = (double)w->batch * w->per_sample;
    bool h200 = strstr(b->info.name, "H200") != NULL && w->bar_ms > 0;
    snprintf(range, sizeof range, "%s..%s", number(low, f->least), number(high, f->most));
    if (fast->n > 0) number(other, fast->median);
    if (h200)
        snprintf(bar, sizeof bar, "%s %s", number(low, w->bar_ms),
                 f->median <= w->bar_ms ? "met" : "missed");
    printf("%-46s %-5s %5lld %9s %-19s", w->what, w->precision, (long long)w->batch,
           number(ms, f->median), range);
    if (w->window > 0)
        printf(" %11.0f", counted / f->median * 1e3);
    else
        printf(" %11s", "-");
    printf(" %9s %s\n", other, bar);
    fflush(stdout);
}

static DltStatus add_json(Bench *b, const BenchWork *w, const Found *f, const Found *fast,
                          DltErr *err)
{
    json_t *row = json_pack("{s:s,s:s,s:s,s:I,s:b,s:f,s:f,s:f,s:i}", "workload", w->name, "what",
                            w->what, "precision", w->precision, "batch", (json_int_t)w->batch,
                            "process", w->window == 0, "ms", f->median, "least_ms", f->least,
                            "most_ms", f->most, "windows", f->n);
    int failed = !row;
    if (w->window > 0) {
        failed |= json_object_set_new(
            row, "per_s", json_real((double)w->batch * w->per_sample / f->median * 1e3));
        failed |= json_object_set_new(row, "memory_bytes", json_real(f->memory_bytes));
    }
    if (fast->n > 0)
        failed |= json_object_set_new(row, "not_deterministic_ms", json_real(fast->median));
    if (w->bar_ms > 0) failed |= json_object_set_new(row, "h200_bar_ms", json_real(w->bar_ms));
    failed |= json_array_append_new(b->rows, row);
    return failed ? dlt_err(err, DLT_E_RESOURCE, "out of memory for the result") : DLT_OK;
}

static DltStatus print_json(const Bench *b, DltErr *err)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:O}", "program", dlt_version(), "backend", b->backend,
                          "device", b->info.name, "library", b->info.library, "rows", b->rows);
    int failed =
        !o || json_dumpf(o, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    json_decref(o);
    putchar('\n');
    return failed ? dlt_err(err, DLT_E_RESOURCE, "the JSON result could not be written") : DLT_OK;
}

static const char fashion[] = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz";

/* Why a workload is left out here, NULL: it is not. */
static const char *left_out(const Bench *b, const BenchWork *w)
{
    bool reads = strcmp(w->name, "process") == 0;
    if (strcmp(w->precision, "bf16") == 0 && !b->info.has_bf16)
        return "this device has no kernels for bf16";
    if (reads && access(fashion, R_OK) != 0)
        return "Fashion-MNIST is not there (`scripts/get-data.sh fashion`)";
    return NULL;
}

/* The next of the names in --only ("mlp,lenet"), n characters long; *at moves behind it. False: no more. */
static bool next_name(const char **at, const char **name, size_t *n)
{
    if (*at == NULL || **at == '\0') return false;
    *name = *at;
    *n = strcspn(*at, ",");
    *at += *n + ((*at)[*n] == ',');
    return true;
}

static bool is_called(const BenchWork *w, const char *name, size_t n)
{
    return strlen(w->name) == n && strncmp(w->name, name, n) == 0;
}

static bool is_wanted(const char *only, const BenchWork *w)
{
    const char *name;
    size_t n;
    if (only == NULL) return true;
    while (next_name(&only, &name, &n))
        if (is_called(w, name, n)) return true;
    return false;
}

static DltStatus check_only(const char *only, unsigned device, DltErr *err)
{
    const char *known = "", *name;
    char list[256] = "";
    size_t n;
    while (next_name(&only, &name, &n)) {
        bool found = false;
        for (const BenchWork *w = bench_works; w->name; w++)
            found |= w->devices & device && is_called(w, name, n);
        if (found) continue;
        for (const BenchWork *w = bench_works; w->name; w++) {
            size_t used = strlen(list);
            if (w->devices & device && strcmp(known, w->name) != 0)
                snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", w->name);
            if (w->devices & device) known = w->name;
        }
        return dlt_err(err, DLT_E_CONFIG, "bench: --only: no workload '%.*s' here; known: %s",
                       (int)n, name, list);
    }
    return DLT_OK;
}

static DltStatus all_rows(Bench *b, unsigned device, DltErr *err)
{
    if (!b->args->json)
        printf("bench on %s: %s, %s\n%-46s %-5s %5s %9s %-19s %11s %9s %s\n", b->backend,
               b->info.name, b->info.library, "workload", "type", "batch", "ms", "least..most",
               "samples/s", "free*", "H200 bar");
    for (const BenchWork *w = bench_works; w->name; w++) {
        Found f = {.n = 0}, fast = {.n = 0};
        if (!(w->devices & device) || !is_wanted(b->args->only, w)) continue;
        const char *why = left_out(b, w);
        if (why) {
            dlt_log("bench: %s, %s: left out: %s", w->what, w->precision, why);
            continue;
        }
        dlt_log_debug("bench: %s, %s, batch %lld", w->what, w->precision, (long long)w->batch);
        DLT_TRY(measure(b, w, false, &f, err));
        if (device == BENCH_CUDA && w->window > 0) DLT_TRY(measure(b, w, true, &fast, err));
        if (!b->args->json) print_row(b, w, &f, &fast);
        DLT_TRY(add_json(b, w, &f, &fast, err));
    }
    if (b->args->json) return print_json(b, err);
    if (device == BENCH_CUDA) puts("* ms with train.deterministic: false");
    return DLT_OK;
}

/* What device the workloads will run on: the smallest one is planned there. */
static DltStatus look_at_device(Bench *b, DltErr *err)
{
    DltArena *arena = dlt_arena_new();
    DltSpec *spec = NULL;
    DltModelGraph *model = NULL;
    DltPlan *plan = NULL;
    DltRunOptions o = dlt_run_options(b->args);
    const char *override[] = {bench_works[0].set[0], "train.batch=128"};
    if (!arena) return dlt_err(err, DLT_E_RESOURCE, "out of memory");
    DltStatus s =
        dlt_spec_read(arena, dlt_path_join(arena, b->folder, "mlp.yaml"), 2, override, &spec, err);
    if (s == DLT_OK) s = dlt_run_plan(arena, spec, &o, &model, &plan, err);
    if (s == DLT_OK) {
        plan->backend->info(plan->dev, &b->info);
        b->backend = dlt_arena_str(b->args->arena, plan->backend->name);
        b->device = b->args->device ? b->args->device : b->backend;
    }
    dlt_arena_free(arena);
    return s;
}

static DltStatus bench(Bench *b, DltErr *err)
{
    DLT_TRY(write_configs(b, err));
    DLT_TRY(look_at_device(b, err));
    unsigned device = strcmp(b->backend, "cuda") == 0 ? BENCH_CUDA : BENCH_CPU;
    DLT_TRY(check_only(b->args->only, device, err));
    return all_rows(b, device, err);
}

static DltStatus run_bench(const DltArgs *args, DltErr *err)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *tmp = getenv("TMPDIR");
    exe[n > 0 ? n : 0] = '\0';
    Bench b = {.args = args, .program = exe};
    b.folder = dlt_arena_printf(args->arena, "%s/dltrain-bench-%ld", tmp && *tmp ? tmp : "/tmp",
                                (long)getpid());
    if (dlt_sys_mkdir(b.folder, 0700) != 0)
        return dlt_err(err, DLT_E_RESOURCE, "bench: the folder %s cannot be made", b.folder);
    b.rows = json_array();
    DltStatus s = b.rows ? bench(&b, err) : dlt_err(err, DLT_E_RESOURCE, "out of memory");
    json_decref(b.rows);
    dlt_run_folder_remove(args->arena, dlt_path_join(args->arena, b.folder, "run"));
    remove_all(&b);
    return s;
}

const DltCommand dlt_command_bench = {
    .name = "bench",
    .words = "",
    .help = "the speed table: what training takes on this machine",
    .min_word = 0,
    .max_word = 0,
    .options = (const char *const[]){"device", "threads", "only", "steps", "json", NULL},
    .run = run_bench,
};
