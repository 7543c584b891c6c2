/* The emulated device. A kernel's block runs as one fiber a thread: a thread goes on until it meets
 * a barrier, then the next one runs; when all wait, the barrier opens. Threads run in ascending and
 * descending order by turns, so that a missing barrier shows. Streams are in order by nature; a
 * capture keeps the calls and replays them. */
#include "cuda_runtime.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;
unsigned char *emulated_shared;

namespace
{

enum State { READY, AT_WARP, AT_BLOCK, DONE };
constexpr size_t STACK = 64 << 10;
struct Fiber {
    ucontext_t start;
    jmp_buf at;
    bool started;
    State state;
    char *stack;
};
Fiber fiber[1024];
jmp_buf scheduler;
int current;
unsigned char slots[32][32][16]; /* [warp][lane] */
int or_value;
const std::function<void()> *body;

void enter()
{
    (*body)();
    fiber[current].state = DONE;
    _longjmp(scheduler, 1);
}

void set_thread(int t)
{
    current = t;
    threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y);
}

void resume(int t)
{
    Fiber &f = fiber[t];
    set_thread(t);
    if (_setjmp(scheduler) != 0) return;
    if (f.started) _longjmp(f.at, 1);
    f.started = true;
    setcontext(&f.start);
}

[[noreturn]] void stuck(int n)
{
    fprintf(stderr, "emulated kernel: barriers that not all threads reach; block %u,%u\n",
            blockIdx.x, blockIdx.y);
    for (int i = 0; i < n && i < 64; i++)
        fprintf(stderr, "%d", fiber[i].state);
    fprintf(stderr, "\n");
    abort();
}

/* Opens warp barriers, else the block's; false when every thread is done. */
bool open_barrier(int n)
{
    bool opened = false, all_block = true, any = false;
    for (int w = 0; w < n; w += 32) {
        int at = 0, alive = 0;
        for (int i = w; i < w + 32 && i < n; i++) {
            alive += fiber[i].state != DONE;
            at += fiber[i].state == AT_WARP;
        }
        if (at > 0 && at == alive) {
            opened = true;
            for (int i = w; i < w + 32 && i < n; i++)
                if (fiber[i].state == AT_WARP) fiber[i].state = READY;
        }
    }
    if (opened) return true;
    for (int i = 0; i < n; i++) {
        any |= fiber[i].state != DONE;
        all_block &= fiber[i].state == DONE || fiber[i].state == AT_BLOCK;
    }
    if (!any) return false;
    if (!all_block) stuck(n);
    for (int i = 0; i < n; i++)
        if (fiber[i].state == AT_BLOCK) fiber[i].state = READY;
    return true;
}

void run_block(int n)
{
    for (int i = 0; i < n; i++) {
        Fiber &f = fiber[i];
        if (!f.stack) f.stack = (char *)malloc(STACK);
        getcontext(&f.start);
        f.start.uc_stack.ss_sp = f.stack;
        f.start.uc_stack.ss_size = STACK;
        f.start.uc_link = nullptr;
        makecontext(&f.start, enter, 0);
        f.started = false;
        f.state = READY;
    }
    bool up = true;
    do {
        for (int k = 0; k < n; k++) {
            int t = up ? k : n - 1 - k;
            if (fiber[t].state == READY) resume(t);
        }
        up = !up;
    } while (open_barrier(n));
}

void run_grid(dim3 grid, dim3 block, size_t shared, const std::function<void()> &kernel)
{
    int n = (int)(block.x * block.y * block.z);
    std::vector<unsigned char> bytes(shared + 16, 0xFF);
    emulated_shared = (unsigned char *)(((uintptr_t)bytes.data() + 15) / 16 * 16);
    body = &kernel;
    gridDim = grid;
    blockDim = block;
    if (n > 1024 || n == 0 || grid.y > 65535 || grid.z > 65535 || grid.x == 0 || grid.y == 0) {
        fprintf(stderr, "emulated kernel: grid %ux%ux%u, block of %d\n", grid.x, grid.y, grid.z, n);
        abort();
    }
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                run_block(n);
            }
}

} // namespace

void emulated_barrier(bool of_warp)
{
    Fiber &f = fiber[current];
    f.state = of_warp ? AT_WARP : AT_BLOCK;
    int me = current;
    if (_setjmp(f.at) == 0) _longjmp(scheduler, 1);
    set_thread(me);
}
void *emulated_slot(int lane)
{
    return slots[current / 32][lane];
}
int emulated_lane()
{
    return current % 32;
}
int emulated_or(int value)
{
    or_value |= value;
    emulated_barrier(false);
    int all = or_value;
    emulated_barrier(false);
    or_value = 0;
    emulated_barrier(false);
    return all;
}

/* ---- streams, graphs, memory ---- */

/* A captured call and the calls it comes behind. Replay takes calls in an order that only these
 * edges bind, the latest first where there is a choice: a missing edge shows as a wrong result. */
struct EmulatedNode {
    std::function<void()> call;
    std::vector<size_t> after;
};
struct EmulatedGraph {
    std::vector<EmulatedNode> node;
};
struct EmulatedExec {
    std::vector<EmulatedNode> node;
};
struct EmulatedStream {
    EmulatedGraph *capture;
    std::vector<size_t> tail; /* what the next captured call comes behind */
};
struct EmulatedEvent {
    double us;
    EmulatedGraph *capture;
    std::vector<size_t> tail;
};
static std::vector<EmulatedStream *> joined; /* streams of the capture under way */

static void enqueue(cudaStream_t s, std::function<void()> call)
{
    if (!s || !s->capture) {
        call();
        return;
    }
    s->capture->node.push_back({call, s->tail});
    s->tail = {s->capture->node.size() - 1};
}

static void replay(const EmulatedExec &exec)
{
    size_t n = exec.node.size(), n_done = 0;
    std::vector<char> done(n, 0);
    while (n_done < n) {
        size_t pick = n;
        for (size_t i = n; i-- > 0 && pick == n;) {
            bool ready = !done[i];
            for (size_t a : exec.node[i].after)
                ready = ready && done[a];
            if (ready) pick = i;
        }
        exec.node[pick].call();
        done[pick] = 1;
        n_done++;
    }
}

void emulated_launch(cudaStream_t s, dim3 grid, dim3 block, size_t shared,
                     std::function<void()> kernel)
{
    enqueue(s, [=]() { run_grid(grid, block, shared, kernel); });
}

/* A fault that a test asked for (base/fault.h): the error this call answers with. After the errors
 * that cost the context every later call answers the same. */
extern "C" int dlt_sys_device_fault(void);
cudaError_t emulated_fault()
{
    static int dead;
    int error = dlt_sys_device_fault();
    if (dead) return (cudaError_t)dead;
    if (error >= 700 || (error >= 210 && error < 230)) dead = error;
    return (cudaError_t)error;
}
constexpr cudaError_t BAD_HANDLE = (cudaError_t)400; /* what CUDA says to handles that are none */
#define MAY_FAIL                                                                                   \
    if (cudaError_t fault_ = emulated_fault()) return fault_

extern "C" {
void emulated_call(cudaStream_t s, void (*run)(const void *args), const void *args, size_t bytes)
{
    std::vector<char> copy((const char *)args, (const char *)args + bytes);
    enqueue(s, [=]() { run(copy.data()); });
}
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t)
{
    return "emulated error";
}
const char *cudaGetErrorName(cudaError_t)
{
    return "emulated";
}
cudaError_t cudaDriverGetVersion(int *version)
{
    MAY_FAIL;
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    MAY_FAIL;
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    MAY_FAIL;
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int)
{
    MAY_FAIL;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    MAY_FAIL;
    /* few multiprocessors: grids stay small and loops over them are tested */
    *p = {"emulated GPU", 3, 9, 0, 60 << 20, (size_t)1 << 34, 227 << 10};
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    MAY_FAIL;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    MAY_FAIL;
    *free_bytes = *total = (size_t)1 << 34;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **ptr, size_t bytes)
{
    MAY_FAIL;
    *ptr = aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *ptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *ptr)
{
    MAY_FAIL;
    free(ptr);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **ptr, size_t bytes)
{
    MAY_FAIL;
    return cudaMalloc(ptr, bytes);
}
cudaError_t cudaFreeHost(void *ptr)
{
    MAY_FAIL;
    return cudaFree(ptr);
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t s)
{
    MAY_FAIL;
    enqueue(s, [=]() { memcpy(dst, src, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t s)
{
    MAY_FAIL;
    enqueue(s, [=]() { memset(dst, value, bytes); });
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = *high = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int)
{
    MAY_FAIL;
    *s = new EmulatedStream();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    MAY_FAIL;
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    MAY_FAIL;
    return cudaSuccess;
}
/* A wait for a captured event makes the stream take part in the capture. */
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    MAY_FAIL;
    if (!e) return BAD_HANDLE;
    if (!e->capture) return cudaSuccess;
    if (!s->capture) {
        s->capture = e->capture;
        s->tail.clear();
        joined.push_back(s);
    }
    s->tail.insert(s->tail.end(), e->tail.begin(), e->tail.end());
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    MAY_FAIL;
    *e = new EmulatedEvent();
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    MAY_FAIL;
    return cudaEventCreate(e);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    MAY_FAIL;
    if (!e) return BAD_HANDLE;
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    MAY_FAIL;
    if (!e) return BAD_HANDLE;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    e->us = 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
    e->capture = s->capture;
    e->tail = s->tail;
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    MAY_FAIL;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    MAY_FAIL;
    if (!from || !to) return BAD_HANDLE;
    *ms = (float)(to->us - from->us) * 1e-3f;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode)
{
    MAY_FAIL;
    s->capture = new EmulatedGraph();
    s->tail.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    MAY_FAIL;
    *graph = s->capture;
    s->capture = nullptr;
    for (EmulatedStream *j : joined)
        j->capture = nullptr;
    joined.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status)
{
    MAY_FAIL;
    *status = s->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    MAY_FAIL;
    *exec = new EmulatedExec{graph->node};
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    MAY_FAIL;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t)
{
    MAY_FAIL;
    if (!exec) return BAD_HANDLE;
    replay(*exec);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    MAY_FAIL;
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    MAY_FAIL;
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int)
{
    MAY_FAIL;
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *)
{
    MAY_FAIL;
    a->numRegs = 0;
    return cudaSuccess;
}
}
