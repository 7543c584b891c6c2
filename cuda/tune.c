/* The store of measured choices and the stop watch. The file is plain text, one "key<TAB>value" a
 * line under a first line that names the format; unknown or damaged files are ignored and written
 * anew. */
#include "cuda/tune.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/sys.h"

static const char first_line[] = "dltrain cuda choices 1";
enum { MAX_FILE_BYTES = 16 << 20 };

typedef struct Entry {
    uint64_t hash;
    const char *key, *value;
    struct Entry *next;
} Entry;

enum { BUCKETS = 256 };
struct DltTune {
    Entry *bucket[BUCKETS];
    const char *path; /* NULL: not kept on disk */
    bool changed;
    cudaEvent_t begin, end;
};

static uint64_t key_hash(const char *key)
{
    return dlt_hash(key, strlen(key), 0);
}

static void insert(DltDevice *dev, const char *key, const char *value)
{
    DltTune *t = dev->tune;
    Entry *e = DLT_NEW(dev->arena, Entry);
    e->hash = key_hash(key);
    e->key = dlt_arena_str(dev->arena, key);
    e->value = dlt_arena_str(dev->arena, value);
    e->next = t->bucket[e->hash % BUCKETS];
    t->bucket[e->hash % BUCKETS] = e;
}

const char *dlt_tune_find(const DltDevice *dev, const char *key)
{
    uint64_t hash = key_hash(key);
    for (const Entry *e = dev->tune->bucket[hash % BUCKETS]; e; e = e->next)
        if (e->hash == hash && strcmp(e->key, key) == 0) return e->value;
    return NULL;
}

void dlt_tune_put(DltDevice *dev, const char *key, const char *value)
{
    insert(dev, key, value);
    dev->tune->changed = true;
}

/* ---- file ---- */

static void parse(DltDevice *dev, char *text)
{
    char *line = text;
    for (int i = 0; line && *line; i++) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        char *tab = strchr(line, '\t');
        if (i == 0 && strcmp(line, first_line) != 0) return;
        if (i > 0 && tab && strlen(tab + 1) < DLT_TUNE_VALUE) {
            *tab = '\0';
            if (!dlt_tune_find(dev, line)) insert(dev, line, tab + 1);
        }
        line = end ? end + 1 : NULL;
    }
}

void dlt_tune_open(DltDevice *dev)
{
    DltTune *t = DLT_NEW(dev->arena, DltTune);
    dev->tune = t;
    if (cudaEventCreate(&t->begin) != cudaSuccess || cudaEventCreate(&t->end) != cudaSuccess)
        (void)cudaGetLastError();
    if (!dev->option.cache_folder) return;
    t->path = dlt_path_join(dev->arena, dev->option.cache_folder, "cuda-choices.txt");
    int fd = dlt_sys_open(t->path, 0 /* O_RDONLY */, 0);
    if (fd < 0) return; /* no cache yet */
    dlt_sys_close(fd);
    DltErr quiet;
    dlt_err_init(&quiet);
    char *text = NULL;
    int64_t n = 0;
    if (dlt_file_read(dev->arena, t->path, MAX_FILE_BYTES, DLT_E_DATA, DLT_NO_MARK, &text, &n,
                      &quiet) == DLT_OK)
        parse(dev, text);
}

static DltStatus write_all(DltAtomic *file, const DltTune *t, DltErr *err)
{
    DLT_TRY(dlt_atomic_write(file, first_line, strlen(first_line), err));
    for (int i = 0; i < BUCKETS; i++)
        for (const Entry *e = t->bucket[i]; e; e = e->next) {
            char line[DLT_TUNE_KEY + DLT_TUNE_VALUE + 3];
            int n = snprintf(line, sizeof line, "\n%s\t%s", e->key, e->value);
            DLT_TRY(dlt_atomic_write(file, line, (size_t)n, err));
        }
    return dlt_atomic_write(file, "\n", 1, err);
}

void dlt_tune_save(DltDevice *dev)
{
    DltTune *t = dev->tune;
    if (!t || !t->path || !t->changed) return;
    t->changed = false;
    (void)dlt_sys_mkdir(dev->option.cache_folder, 0777); /* there already, as a rule */
    DltErr quiet;
    dlt_err_init(&quiet);
    DltAtomic *file = NULL;
    DltStatus s = dlt_atomic_open(dev->arena, t->path, &file, &quiet);
    if (s == DLT_OK) {
        s = write_all(file, t, &quiet);
        if (s == DLT_OK)
            s = dlt_atomic_commit(file, &quiet);
        else
            dlt_atomic_abandon(file);
    }
    if (s != DLT_OK) dlt_log_debug("%s: choices not kept: %s", t->path, quiet.report[0].text);
}

void dlt_tune_close(DltDevice *dev)
{
    DltTune *t = dev->tune;
    if (!t) return;
    dlt_tune_save(dev);
    if (t->begin) (void)cudaEventDestroy(t->begin);
    if (t->end) (void)cudaEventDestroy(t->end);
    t->begin = t->end = NULL;
}

/* ---- measuring ---- */

DltStatus dlt_tune_buffers(DltDevice *dev, DltTuneBuffer *buffer, int n, DltErr *err)
{
    for (int i = 0; i < n; i++)
        buffer[i].ptr = NULL;
    for (int i = 0; i < n; i++) {
        if (buffer[i].bytes == 0) continue;
        DLT_TRY(dlt_cuda_alloc(dev, buffer[i].bytes, &buffer[i].ptr, err));
        int64_t count = (int64_t)(buffer[i].bytes / dlt_dtype_bytes(buffer[i].dtype));
        cudaError_t e = dlt_cuda_fill(dev->lane[0].handle, buffer[i].ptr, count, buffer[i].dtype,
                                      (uint32_t)i + 1);
        DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: filling scratch for measuring", err));
    }
    return DLT_OK;
}

void dlt_tune_buffers_free(DltDevice *dev, DltTuneBuffer *buffer, int n)
{
    for (int i = 0; i < n; i++) {
        dlt_cuda_release(dev, buffer[i].ptr);
        buffer[i].ptr = NULL;
    }
}

static bool elapsed(DltDevice *dev, double *us)
{
    float ms = 0;
    DltTune *t = dev->tune;
    bool ok = cudaEventRecord(t->end, dev->lane[0].handle) == cudaSuccess &&
              cudaEventSynchronize(t->end) == cudaSuccess &&
              cudaEventElapsedTime(&ms, t->begin, t->end) == cudaSuccess;
    if (!ok) (void)cudaGetLastError();
    *us = (double)ms * 1e3;
    return ok;
}

/* Best of `tries` windows of `inner` runs each, enqueued one by one or as a graph. */
static bool best_of(DltDevice *dev, cudaGraphExec_t graph, bool (*run)(void *ctx), void *ctx,
                    int inner, double *us)
{
    enum { TRIES = 3 };
    *us = 1e30;
    for (int i = 0; i < TRIES; i++) {
        double t = 0;
        bool ok = cudaEventRecord(dev->tune->begin, dev->lane[0].handle) == cudaSuccess;
        if (graph) ok = ok && cudaGraphLaunch(graph, dev->lane[0].handle) == cudaSuccess;
        for (int j = 0; !graph && ok && j < inner; j++)
            ok = run(ctx);
        if (!ok || !elapsed(dev, &t)) {
            (void)cudaGetLastError();
            return false;
        }
        if (t / inner < *us) *us = t / inner;
    }
    return true;
}

static cudaGraphExec_t capture(DltDevice *dev, bool (*run)(void *ctx), void *ctx, int inner)
{
    cudaStream_t s = dev->lane[0].handle;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
        bool ok = true;
        for (int j = 0; ok && j < inner; j++)
            ok = run(ctx);
        if (cudaStreamEndCapture(s, &graph) == cudaSuccess && ok && graph &&
            cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
            exec = NULL;
    }
    if (graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return exec;
}

bool dlt_tune_time(DltDevice *dev, bool (*run)(void *ctx), void *ctx, double *us)
{
    const double short_us = 60; /* below this, launching (3 us a call) would be measured instead */
    enum { INNER = 16 };
    cudaStream_t s = dev->lane[0].handle;
    if (!run(ctx) || cudaStreamSynchronize(s) != cudaSuccess ||
        !best_of(dev, NULL, run, ctx, 1, us)) {
        (void)cudaGetLastError();
        return false;
    }
    if (*us > short_us) return true;
    cudaGraphExec_t graph = capture(dev, run, ctx, INNER);
    if (!graph) return true; /* the coarse figure stands */
    bool ok = best_of(dev, graph, run, ctx, INNER, us);
    (void)cudaGraphExecDestroy(graph);
    return ok;
}
