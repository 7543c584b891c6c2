/* Training on a device that works behind the host's back: a thread executes what was enqueued, in
 * order but at its own pace, and reads host memory only then. Steps are recorded and replayed. It is
 * the CPU backend inside, so results must have the same bits as on the CPU; host memory that is
 * reused too early, or flags that are read too early, would show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "runs.h"

enum { MAX_JOBS = 4096, MAX_PROGRAM = 512, MAX_PROGRAMS = 16 };

typedef struct Inner { /* what the wrapped kernel needs */
    const DltKernel *kernel;
    void *state;
} Inner;
typedef struct Job {
    const Inner *inner; /* a launch, */
    DltCall call;
    void *in[DLT_MAX_IN], *out[DLT_MAX_OUT]; /* of the launch: as it was when it was enqueued */
    void *dst;                               /* or a copy, or zeros when src is NULL */
    const void *src;
    size_t bytes;
} Job;
typedef struct Program {
    int n;
    Job job[MAX_PROGRAM];
} Program;

struct DltStream {
    DltDevice *dev;
};
struct DltDevice {
    DltDevice *cpu;
    DltStream stream;
    DltArena *arena;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    Job job[MAX_JOBS];
    int64_t n_put, n_done, n_replay, lag; /* lag: most jobs under way at once */
    bool stop;
    Program *recording;
    int n_program;
    uint64_t random;
};

static bool slow; /* which device dlt_backend_find gives */
static int64_t n_replay, lag;

/* ---- the worker --------------------------------------------------------------------------- */

/* A device moves bytes by itself, and the host sees them come: no thread of the program does that, so the
 * thread sanitizer does not look on. */
__attribute__((no_sanitize("thread"))) static void move(volatile char *to,
                                                        const volatile char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from != NULL ? from[i] : 0;
}

static void execute(DltDevice *dev, Job *j)
{
    DltErr err;
    dlt_err_init(&err);
    if (j->inner != NULL) {
        DltCall call = j->call;
        call.in = j->in;
        call.out = j->out;
        call.state = j->inner->state;
        call.stream = dlt_backend_cpu.stream(dev->cpu, 0);
        if (j->inner->kernel->launch(&call, &err) != DLT_OK) abort();
    } else {
        move(j->dst, j->src, j->bytes);
    }
}

static void *work(void *ctx)
{
    DltDevice *dev = ctx;
    pthread_mutex_lock(&dev->lock);
    while (!dev->stop) {
        if (dev->n_done == dev->n_put) {
            pthread_cond_wait(&dev->changed, &dev->lock);
            continue;
        }
        Job job = dev->job[dev->n_done % MAX_JOBS];
        pthread_mutex_unlock(&dev->lock);
        dev->random = dev->random * 6364136223846793005u + 1442695040888963407u;
        if (dev->random >> 60 == 0) usleep(300);
        execute(dev, &job);
        pthread_mutex_lock(&dev->lock);
        dev->n_done++;
        pthread_cond_broadcast(&dev->changed);
    }
    pthread_mutex_unlock(&dev->lock);
    return NULL;
}

static DltStatus enqueue(DltDevice *dev, const Job *j)
{
    if (dev->recording != NULL) {
        assert_true(dev->recording->n < MAX_PROGRAM);
        dev->recording->job[dev->recording->n++] = *j;
        return DLT_OK;
    }
    pthread_mutex_lock(&dev->lock);
    while (dev->n_put - dev->n_done == MAX_JOBS)
        pthread_cond_wait(&dev->changed, &dev->lock);
    dev->job[dev->n_put++ % MAX_JOBS] = *j;
    if (dev->n_put - dev->n_done > dev->lag) dev->lag = dev->n_put - dev->n_done;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->lock);
    return DLT_OK;
}

/* ---- kernels ------------------------------------------------------------------------------ */

static bool slow_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why)
{
    (void)n, (void)dev, (void)why;
    return true;
}

static DltStatus slow_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    const DltKernel *const *list = dlt_backend_cpu.kernels(dev->cpu, n->kind);
    Inner *inner = DLT_NEW(dev->arena, Inner);
    for (int i = 0; list[i] != NULL; i++) {
        DltWhy why;
        DltPrep prep = {.arena = p->arena};
        bool ok = list[i]->accepts ? list[i]->accepts(n, dev->cpu, &why)
                                   : dlt_kernel_accepts_plain(n, &why);
        if (!ok || (list[i]->prepare && list[i]->prepare(n, dev->cpu, &prep, err) != DLT_OK))
            continue;
        *inner = (Inner){list[i], prep.state};
        p->work_bytes = prep.work_bytes;
        p->state = inner;
        return DLT_OK;
    }
    return DLT_E_BUG;
}

static DltStatus slow_launch(const DltCall *call, DltErr *err)
{
    (void)err;
    Job job = {.inner = call->state, .call = *call};
    memcpy(job.in, call->in, sizeof job.in);
    memcpy(job.out, call->out, sizeof job.out);
    return enqueue(call->stream->dev, &job);
}

static const DltKernel slow_kernel = {
    .name = "slow", .accepts = slow_accepts, .prepare = slow_prepare, .launch = slow_launch};
static const DltKernel *const slow_list[] = {&slow_kernel, NULL};

static const DltKernel *const *slow_kernels(const DltDevice *dev, int kind)
{
    (void)dev, (void)kind;
    return slow_list;
}

/* ---- the device --------------------------------------------------------------------------- */

static DltStatus slow_open(DltArena *arena, const DltDeviceOptions *o, DltDevice **out, DltErr *err)
{
    DltDevice *dev = DLT_NEW(arena, DltDevice);
    dev->arena = arena;
    dev->stream.dev = dev;
    DLT_TRY(dlt_backend_cpu.open(arena, o, &dev->cpu, err));
    pthread_mutex_init(&dev->lock, NULL);
    pthread_cond_init(&dev->changed, NULL);
    if (pthread_create(&dev->thread, NULL, work, dev) != 0) abort();
    *out = dev;
    return DLT_OK;
}

static void slow_close(DltDevice *dev)
{
    pthread_mutex_lock(&dev->lock);
    dev->stop = true;
    n_replay += dev->n_replay;
    if (dev->lag > lag) lag = dev->lag;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->lock);
    pthread_join(dev->thread, NULL);
    dlt_backend_cpu.close(dev->cpu);
}

static void slow_info(DltDevice *dev, DltDeviceInfo *info)
{
    dlt_backend_cpu.info(dev->cpu, info);
}
static DltStatus slow_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    return dlt_backend_cpu.alloc(dev->cpu, bytes, ptr, err);
}
static DltStatus slow_sync(DltDevice *dev, DltErr *err)
{
    (void)err;
    pthread_mutex_lock(&dev->lock);
    while (dev->n_done < dev->n_put)
        pthread_cond_wait(&dev->changed, &dev->lock);
    pthread_mutex_unlock(&dev->lock);
    return DLT_OK;
}
static void slow_release(DltDevice *dev, void *ptr)
{
    DltErr err;
    if (slow_sync(dev, &err) == DLT_OK) dlt_backend_cpu.release(dev->cpu, ptr);
}
static void *slow_host_alloc(DltDevice *dev, size_t bytes)
{
    return dlt_backend_cpu.host_alloc(dev->cpu, bytes);
}
static void slow_host_release(DltDevice *dev, void *ptr)
{
    DltErr err;
    if (slow_sync(dev, &err) == DLT_OK) dlt_backend_cpu.host_release(dev->cpu, ptr);
}
static DltStream *slow_stream(DltDevice *dev, int lane)
{
    (void)lane;
    return &dev->stream;
}
static DltStatus slow_copy(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    (void)err;
    return enqueue(s->dev, &(Job){.dst = dst, .src = src, .bytes = bytes});
}
static DltStatus slow_zero(DltStream *s, void *dst, size_t bytes, DltErr *err)
{
    return slow_copy(s, dst, NULL, bytes, err);
}
static DltStatus slow_record_begin(DltDevice *dev, DltErr *err)
{
    (void)err;
    assert_true(dev->n_program++ < MAX_PROGRAMS);
    dev->recording = DLT_NEW(dev->arena, Program);
    return DLT_OK;
}
static DltStatus slow_record_end(DltDevice *dev, void **program, DltErr *err)
{
    (void)err;
    *program = dev->recording;
    dev->recording = NULL;
    return DLT_OK;
}
static DltStatus slow_replay(DltDevice *dev, void *program, DltErr *err)
{
    (void)err;
    const Program *p = program;
    dev->n_replay++;
    for (int i = 0; i < p->n; i++)
        DLT_TRY(enqueue(dev, &p->job[i]));
    return DLT_OK;
}

static const DltBackend slow_backend = {.abi = DLT_BACKEND_ABI,
                                        .name = "slow",
                                        .align = 64,
                                        .n_lane = 1,
                                        .open = slow_open,
                                        .close = slow_close,
                                        .info = slow_info,
                                        .kernels = slow_kernels,
                                        .alloc = slow_alloc,
                                        .release = slow_release,
                                        .host_alloc = slow_host_alloc,
                                        .host_release = slow_host_release,
                                        .stream = slow_stream,
                                        .upload = slow_copy,
                                        .download = slow_copy,
                                        .zero = slow_zero,
                                        .record_begin = slow_record_begin,
                                        .record_end = slow_record_end,
                                        .replay = slow_replay,
                                        .sync = slow_sync};

DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend, DltErr *err)
{
    (void)name, (void)at, (void)err;
    *backend = slow ? &slow_backend : &dlt_backend_cpu;
    return DLT_OK;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void same_bits(void **state)
{
    (void)state;
    static const char sgd[] = "sgd: {lr: 0.1, momentum: 0.9}";
    static const struct {
        const char *data, *batch;
    } rows_[] = {{"", "12"},
                 {"  cache: host\n", "12"},
                 {"  cache: host\n  threads: 4\n", "{global: 12, micro: 2}"},
                 {"", "{global: 12, micro: 3}"}};
    for (int i = 0; i < 4; i++) {
        DltArena *arena = dlt_arena_new();
        const char *text = config(arena, rows_[i].data, rows_[i].batch, sgd, "  ema: 0.9\n", "");
        remove_folder("quick");
        remove_folder("slow");
        remove_folder("cut");
        n_replay = lag = 0;
        slow = false;
        done(train(text, (DltRunOptions){.out = "quick"}), DLT_OK);
        slow = true;
        done(train(text, (DltRunOptions){.out = "slow"}), DLT_OK);
        assert_true(n_replay > 10); /* 20 updates, the first two not, some in series of four */
        assert_true(lag > 30);      /* the host did run ahead by more than a step */
        same_tensors("quick/last.bin", "slow/last.bin");
        assert_int_equal(same_rows("quick", "slow"), 9);
        done(train(text, (DltRunOptions){.out = "cut", .stop_at = 7}), DLT_STOPPED);
        done(resume(text, "cut/last.bin", (DltRunOptions){0}), DLT_OK);
        same_tensors("quick/last.bin", "cut/last.bin");
        assert_int_equal(same_rows("quick", "cut"), 9);
        dlt_arena_free(arena);
    }
}

/* Flags are looked at two updates late: the step named, the samples and what was saved are those of
 * the CPU all the same. */
static void late_flags(void **state)
{
    (void)state;
    char said[2][DLT_ERR_TEXT], file[2][DLT_ERR_TEXT];
    write_table();
    for (int i = 0; i < 2; i++) {
        slow = i == 1;
        remove_folder("late");
        Run *r = train(table_config("nonfinite: stop", 4, 3), (DltRunOptions){.out = "late"});
        snprintf(said[i], DLT_ERR_TEXT, "%s", r->err.report[0].text);
        snprintf(file[i], DLT_ERR_TEXT, "%s", r->err.report[1].text);
        done(r, DLT_E_NUMERIC);
    }
    assert_string_equal(said[0], said[1]);
    assert_string_equal(file[0], file[1]);
    remove_folder("skip");
    done(train(table_config("nonfinite: skip, limit: 1", 4, 20), (DltRunOptions){.out = "skip"}),
         DLT_OK);
    DltArena *arena = dlt_arena_new();
    DltErr err;
    dlt_err_init(&err);
    DltCheckpoint *c = NULL;
    assert_int_equal(dlt_checkpoint_read(arena, "skip/last.bin", &c, &err), DLT_OK);
    assert_int_equal(c->meta.nonfinite_skipped, 4);
    dlt_arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits),
        cmocka_unit_test(late_flags),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
