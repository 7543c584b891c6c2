/* The stop watch: what a piece of work costs on this device, when nothing else runs there. What is
 * done with the answers is in choices.c. */
#include "cuda/tune.h"

struct DltWatch {
    cudaEvent_t begin, end;
};

static DltWatch *watch_of(DltDevice *dev)
{
    if (dev->watch) return dev->watch;
    DltWatch *w = DLT_NEW(dev->arena, DltWatch);
    if (cudaEventCreate(&w->begin) != cudaSuccess || cudaEventCreate(&w->end) != cudaSuccess)
        (void)cudaGetLastError();
    return dev->watch = w;
}

void dlt_tune_close(DltDevice *dev)
{
    DltWatch *w = dev->watch;
    if (!w) return;
    if (w->begin) (void)cudaEventDestroy(w->begin);
    if (w->end) (void)cudaEventDestroy(w->end);
    w->begin = w->end = NULL;
}

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
    const DltWatch *t = watch_of(dev);
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
        bool ok = cudaEventRecord(watch_of(dev)->begin, dev->lane[0].handle) == cudaSuccess;
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
