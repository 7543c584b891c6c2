/* What `dltrain devices` shows: versions of driver, runtime and libraries, each card, and a
 * two-second test of the first things that go wrong: memory that does not copy at speed, matrix
 * units that do not deliver. */
#include "cuda/devices.h"
#include "cuda/dnn.h"
#include "cuda/lt.h"
#include "cuda/tune.h"

/* One card measured: host copy, device copy, bf16 product. */
typedef struct Bench {
    DltDevice *dev;
    void *a, *b, *host;
    size_t bytes;
} Bench;

static bool copy_up(void *ctx)
{
    const Bench *b = ctx;
    return cudaMemcpyAsync(b->a, b->host, b->bytes, cudaMemcpyHostToDevice,
                           b->dev->lane[0].handle) == cudaSuccess;
}
static bool copy_inside(void *ctx)
{
    const Bench *b = ctx;
    return cudaMemcpyAsync(b->b, b->a, b->bytes, cudaMemcpyDeviceToDevice,
                           b->dev->lane[0].handle) == cudaSuccess;
}

static void print_rate(FILE *out, const char *what, double amount, double us, const char *unit)
{
    if (us > 0)
        fprintf(out, "    %-28s %8.1f %s\n", what, amount / us, unit);
    else
        fprintf(out, "    %-28s failed\n", what);
}

static void bench_copies(DltDevice *dev, FILE *out, DltErr *err)
{
    enum { MIB = 256 };
    Bench b = {.dev = dev, .bytes = (size_t)MIB << 20};
    double up = -1, inside = -1;
    bool ready = dlt_cuda_alloc(dev, b.bytes, &b.a, err) == DLT_OK &&
                 dlt_cuda_alloc(dev, b.bytes, &b.b, err) == DLT_OK &&
                 cudaMallocHost(&b.host, b.bytes) == cudaSuccess;
    if (ready) {
        memset(b.host, 1, b.bytes);
        if (!dlt_tune_time(dev, copy_up, &b, &up)) up = -1;
        if (!dlt_tune_time(dev, copy_inside, &b, &inside)) inside = -1;
    }
    print_rate(out, "pinned host to device", (double)b.bytes / 1e3, up, "GB/s");
    print_rate(out, "device copy (read + write)", 2 * (double)b.bytes / 1e3, inside, "GB/s");
    if (b.host && cudaFreeHost(b.host) != cudaSuccess) (void)cudaGetLastError();
    dlt_cuda_release(dev, b.a);
    dlt_cuda_release(dev, b.b);
}

typedef struct Product {
    DltLtPlan *plan;
    DltCall call;
    DltTuneBuffer buffer[4];
    DltErr err;
} Product;

static bool run_product(void *ctx)
{
    Product *p = ctx;
    return dlt_lt_run(p->plan, &p->call, p->buffer[0].ptr, p->buffer[1].ptr, p->buffer[2].ptr, NULL,
                      &p->err) == DLT_OK;
}

static void bench_product(DltDevice *dev, FILE *out, DltErr *err)
{
    enum { N = 8192 };
    static const DltNode node = {.name = "devices"};
    DltLtProblem problem = {.ab = DLT_BF16,
                            .c = DLT_BF16,
                            .tb = true,
                            .batch = 1,
                            .m = N,
                            .n = N,
                            .k = N,
                            .align_a = 256,
                            .align_b = 256,
                            .align_c = 256,
                            .align_bias = 256};
    size_t work = 0, bytes = (size_t)N * N * 2;
    double us = -1;
    Product *p = DLT_NEW(dev->arena, Product);
    if (dlt_lt_prepare(dev, dev->arena, &problem, &p->plan, &work, err) != DLT_OK) return;
    for (int i = 0; i < 3; i++)
        p->buffer[i] = (DltTuneBuffer){bytes, DLT_BF16, NULL};
    p->buffer[3] = (DltTuneBuffer){work, DLT_F32, NULL};
    if (dlt_tune_buffers(dev, p->buffer, 4, err) == DLT_OK) {
        p->call = (DltCall){.node = &node, .work = p->buffer[3].ptr, .stream = &dev->lane[0]};
        if (!dlt_tune_time(dev, run_product, p, &us)) us = -1;
    }
    print_rate(out, "bf16 product 8192^3", 2.0 * N * N * N / 1e6, us, "TFLOP/s");
    dlt_tune_buffers_free(dev, p->buffer, 4);
}

static DltStatus report_one(DltArena *arena, const DltDeviceOptions *o, FILE *out, DltErr *err)
{
    DltDevice *dev = NULL;
    DltDeviceInfo info;
    DltWhy lt = {""}, dnn = {""};
    DltStatus s = dlt_backend_cuda_plugin.open(arena, o, &dev, err);
    if (s == DLT_OK) {
        dlt_backend_cuda_plugin.info(dev, &info);
        fprintf(out, "  cuda:%d %s, %d multiprocessors, %.1f GiB (%.1f free)\n", o->index,
                info.name, dev->n_sm, (double)info.memory_bytes / 1073741824,
                (double)info.free_bytes / 1073741824);
        fprintf(out, "    %s\n", info.library);
        bool has_lt = dlt_lt_open(dev, &lt), has_dnn = dlt_dnn_open(dev, &dnn);
        fprintf(out, "    %s%s\n",
                has_lt ? dlt_lt_version(dev) : "no cuBLASLt: ", has_lt ? "" : lt.text);
        fprintf(out, "    %s%s\n",
                has_dnn ? dlt_dnn_version(dev) : "no cuDNN: ", has_dnn ? "" : dnn.text);
        bench_copies(dev, out, err);
        if (has_lt) bench_product(dev, out, err);
        s = dlt_cuda_sync(dev, err);
    }
    dlt_backend_cuda_plugin.close(dev);
    return s;
}

DltStatus dlt_cuda_report(DltArena *arena, const DltDeviceOptions *o, FILE *out, DltErr *err)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1)
        n = 1; /* opening it tells why there is none */
    for (int i = 0; i < n; i++) {
        DltDeviceOptions one = *o;
        one.index = i;
        DLT_TRY(report_one(arena, &one, out, err));
    }
    return DLT_OK;
}
