/* The CUDA backend's one exported row, and how a device is opened, described and closed. Every way
 * opening can fail (no driver, driver too old, no card, wrong number, a card this build has no code
 * for) has its own message. What runs on the device is elsewhere: lanes.c and record.c move and
 * order work, kernels/ and matmul.c, conv.c compute. */
#include "base/log.h"
#include "cuda/branch.h"
#include "cuda/devices.h"
#include "cuda/dnn.h"
#include "cuda/lt.h"
#include "cuda/tune.h"
#include <stdlib.h>

enum { MIN_CAPABILITY = 80 }; /* bf16 and tf32 in hardware: Ampere and later */

/* ---- errors ---- */

DltStatus dlt_cuda_check(cudaError_t e, DltMark at, const char *what, DltErr *err)
{
    if (e == cudaSuccess) return DLT_OK;
    (void)cudaGetLastError();
    DltStatus status = e == cudaErrorMemoryAllocation ? DLT_E_RESOURCE : DLT_E_DEVICE;
    return dlt_err_at(err, status, at, "%s: %s (%s)", what, cudaGetErrorString(e),
                      cudaGetErrorName(e));
}

DltStatus dlt_cuda_launched(const DltCall *call, cudaError_t e, DltErr *err)
{
    if (e == cudaSuccess) return DLT_OK;
    (void)cudaGetLastError();
    const DltNode *n = call->node;
    return dlt_err_at(err, DLT_E_DEVICE, n->at, "%s: launching %s failed: %s (%s)",
                      n->name ? n->name : "graph", n->op ? n->op->name : "kernel",
                      cudaGetErrorString(e), cudaGetErrorName(e));
}

/* ---- opening ---- */

static DltStatus no_device(cudaError_t e, DltErr *err)
{
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaGetLastError();
    if (driver == 0)
        return dlt_err(err, DLT_E_DEVICE,
                       "cuda: no NVIDIA driver is installed (libcuda.so.1 was not found); this "
                       "build needs one for CUDA %d.%d or newer; 'device: cpu' runs without",
                       runtime / 1000, runtime % 1000 / 10);
    if (e == cudaErrorInsufficientDriver)
        return dlt_err(err, DLT_E_DEVICE,
                       "cuda: the NVIDIA driver is too old: it supports CUDA %d.%d and this build "
                       "needs %d.%d; install a newer driver or use 'device: cpu'",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (e == cudaErrorNoDevice)
        return dlt_err(err, DLT_E_DEVICE,
                       "cuda: a driver for CUDA %d.%d is there, but it shows no GPU (look at "
                       "nvidia-smi, at /dev/nvidia0 and at CUDA_VISIBLE_DEVICES)",
                       driver / 1000, driver % 1000 / 10);
    return dlt_err(err, DLT_E_DEVICE, "cuda: the driver does not start: %s (%s)",
                   cudaGetErrorString(e), cudaGetErrorName(e));
}

static DltStatus pick(int index, DltErr *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0) return no_device(e == cudaSuccess ? cudaErrorNoDevice : e, err);
    if (index < 0 || index >= n)
        return dlt_err(err, DLT_E_DEVICE,
                       "cuda:%d: there is no such GPU; this machine shows %d: "
                       "cuda:0%s",
                       index, n, n > 1 ? " and up" : "");
    e = cudaSetDevice(index);
    if (e == cudaSuccess)
        e = cudaFree(NULL); /* makes the context now, so that its errors show here */
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: opening the GPU", err);
}

/* Making the context takes a quarter of a second. */
static void warm(int index)
{
    if (cudaSetDevice(index) == cudaSuccess) (void)cudaFree(NULL);
    (void)cudaGetLastError(); /* open tells */
}

static DltStatus describe(DltDevice *dev, DltErr *err)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, dev->index);
    DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: reading the GPU's properties", err));
    (void)cudaDriverGetVersion(&dev->driver);
    (void)cudaRuntimeGetVersion(&dev->runtime);
    dev->n_sm = p.multiProcessorCount;
    dev->capability = p.major * 10 + p.minor;
    dev->memory_bytes = p.totalGlobalMem;
    dev->l2_bytes = (size_t)p.l2CacheSize;
    dev->shared_bytes = p.sharedMemPerBlockOptin;
    dev->overlap = dev->capability >= 90;
    snprintf(dev->name, sizeof dev->name, "%.127s", p.name);
    if (dev->capability < MIN_CAPABILITY)
        return dlt_err(
            err, DLT_E_DEVICE,
            "cuda:%d: %s has compute capability %d.%d; this program needs %d.%d (Ampere) "
            "or newer",
            dev->index, dev->name, p.major, p.minor, MIN_CAPABILITY / 10, MIN_CAPABILITY % 10);
    e = dlt_cuda_probe();
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction ||
        e == cudaErrorUnsupportedPtxVersion || e == cudaErrorInvalidPtx) {
        (void)cudaGetLastError();
        return dlt_err(err, DLT_E_DEVICE,
                       "cuda:%d: this build holds no code for %s (compute capability %d.%d); build "
                       "with GENCODE=\"-gencode arch=compute_%d,code=sm_%d\"",
                       dev->index, dev->name, p.major, p.minor, dev->capability, dev->capability);
    }
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: running a first kernel", err);
}

static void close_device(DltDevice *dev)
{
    if (!dev) return;
    (void)cudaSetDevice(dev->index);
    (void)cudaDeviceSynchronize();
    dlt_cuda_programs_close(dev);
    dlt_cuda_branches_close(dev);
    dlt_dnn_close(dev);
    dlt_lt_close(dev);
    dlt_tune_close(dev);
    dlt_cuda_lanes_close(dev);
    for (DltCudaRegion *r = dev->region; r; r = r->next) {
        if (r->ptr) (void)cudaFree(r->ptr);
        r->ptr = NULL;
    }
    (void)cudaGetLastError();
    dev->closed = true;
}

static DltStatus open_device(DltArena *arena, const DltDeviceOptions *o, DltDevice **out,
                             DltErr *err)
{
    *out = NULL;
    DLT_TRY(pick(o->index, err));
    DltDevice *dev = DLT_NEW(arena, DltDevice);
    dev->arena = arena;
    dev->option = *o;
    dev->index = o->index;
    *out = dev;
    DLT_TRY(describe(dev, err));
    DLT_TRY(dlt_cuda_lanes_open(dev, err));
    return dlt_tune_open(dev, err);
}

/* ---- kernels ---- */

static const DltKernel *const *kernels(const DltDevice *dev, int kind)
{
    static const DltKernel *const *const list[DLT_N_OP] = {
#define OP(name) [DLT_OP_##name] = dlt_cuda_##name,
#include "ops/ops.def"
#undef OP
    };
    (void)dev;
    return list[kind];
}

/* Ops whose kernels take only what they are fast at. */
static bool fuses(const DltDevice *dev, const DltNode *n)
{
    DltWhy why;
    for (const DltKernel *const *k = kernels(dev, n->kind); *k; k++)
        if ((*k)->accepts(n, dev, &why)) return true;
    return false;
}

static void info(DltDevice *dev, DltDeviceInfo *out)
{
    size_t free_bytes = 0, total = 0;
    (void)cudaSetDevice(dev->index);
    if (cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) (void)cudaGetLastError();
    *out = (DltDeviceInfo){.memory_bytes = (int64_t)dev->memory_bytes,
                           .free_bytes = (int64_t)free_bytes,
                           .has_bf16 = true,
                           .has_f16 = true,
                           .has_tf32 = true,
                           .has_fp8 = dev->capability >= 89,
                           .image_layout = DLT_NHWC,
                           .image_block = 8,
                           .fuses = fuses,
                           .dev = dev};
    snprintf(out->name, sizeof out->name, "%s", dev->name);
    snprintf(out->library, sizeof out->library, "CUDA %d.%d, driver for CUDA %d.%d, sm_%d",
             dev->runtime / 1000, dev->runtime % 1000 / 10, dev->driver / 1000,
             dev->driver % 1000 / 10, dev->capability);
}

/* ---- memory ---- */

DltStatus dlt_cuda_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err)
{
    *ptr = NULL;
    cudaError_t e = cudaMalloc(ptr, bytes ? bytes : 1);
    if (e == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&free_bytes, &total);
        return dlt_err(err, DLT_E_RESOURCE,
                       "cuda:%d: %.1f MiB of GPU memory are needed and %.1f MiB of %.1f MiB are "
                       "free",
                       dev->index, (double)bytes / 1048576, (double)free_bytes / 1048576,
                       (double)total / 1048576);
    }
    DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: allocating GPU memory", err));
    cudaStream_t s = dev->lane[0].handle;
    e = cudaMemsetAsync(*ptr, 0, bytes ? bytes : 1, s);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s);
    if (e != cudaSuccess) {
        (void)cudaFree(*ptr);
        *ptr = NULL;
        return dlt_cuda_check(e, DLT_NO_MARK, "cuda: clearing GPU memory", err);
    }
    DltCudaRegion *r = dev->region;
    while (r && r->ptr)
        r = r->next;
    if (!r) {
        r = DLT_NEW(dev->arena, DltCudaRegion);
        r->next = dev->region;
        dev->region = r;
    }
    r->ptr = *ptr;
    return DLT_OK;
}

void dlt_cuda_release(DltDevice *dev, void *ptr)
{
    if (!ptr || dev->closed) return; /* closing has freed it */
    for (DltCudaRegion *r = dev->region; r; r = r->next) {
        if (r->ptr != ptr) continue;
        if (cudaFree(ptr) != cudaSuccess) (void)cudaGetLastError();
        r->ptr = NULL;
        return;
    }
    DLT_BUG_ON(true); /* not a region of this device */
}

static void *host_alloc(DltDevice *dev, size_t bytes)
{
    void *ptr = NULL;
    (void)cudaSetDevice(dev->index);
    if (cudaMallocHost(&ptr, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memset(ptr, 0, bytes);
    return ptr;
}

static void host_release(DltDevice *dev, void *ptr)
{
    (void)cudaSetDevice(dev->index);
    if (ptr && cudaFreeHost(ptr) != cudaSuccess) (void)cudaGetLastError();
}

const DltBackend dlt_backend_cuda_plugin = {.abi = DLT_BACKEND_ABI,
                                            .name = "cuda",
                                            .align = 256,
                                            .n_lane = DLT_LANES,
                                            .hold = 6, /* two layers of a backward pass */
                                            .open = open_device,
                                            .warm = warm,
                                            .close = close_device,
                                            .info = info,
                                            .kernels = kernels,
                                            .alloc = dlt_cuda_alloc,
                                            .release = dlt_cuda_release,
                                            .host_alloc = host_alloc,
                                            .host_release = host_release,
                                            .stream = dlt_cuda_stream,
                                            .upload = dlt_cuda_upload,
                                            .download = dlt_cuda_download,
                                            .zero = dlt_cuda_zero,
                                            .record_begin = dlt_cuda_record_begin,
                                            .record_end = dlt_cuda_record_end,
                                            .replay = dlt_cuda_replay,
                                            .wait = dlt_cuda_wait,
                                            .sync = dlt_cuda_sync,
                                            .choices = dlt_tune_text};
