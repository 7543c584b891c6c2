/* Lanes are CUDA streams; one event each orders them. Streams are non-blocking, so nothing here
 * touches the legacy default stream. */
#include "cuda/branch.h"

cudaError_t dlt_cuda_new_stream(cudaStream_t *stream, bool urgent)
{
    int low = 0, high = 0;
    cudaError_t e = cudaDeviceGetStreamPriorityRange(&low, &high);
    if (e != cudaSuccess) return e;
    return cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, urgent ? high : low);
}

DltStatus dlt_cuda_lanes_open(DltDevice *dev, DltErr *err)
{
    for (int i = 0; i < DLT_LANES; i++) {
        DltStream *s = &dev->lane[i];
        s->dev = dev;
        s->lane = i;
        cudaError_t e = dlt_cuda_new_stream(&s->handle, true);
        if (e == cudaSuccess) e = cudaEventCreateWithFlags(&s->event, cudaEventDisableTiming);
        DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: making a stream", err));
        void *ticket = NULL;
        DLT_TRY(dlt_cuda_alloc(dev, DLT_CUDA_TICKETS * sizeof(unsigned), &ticket, err));
        s->ticket = ticket;
    }
    return DLT_OK;
}

void dlt_cuda_lanes_close(DltDevice *dev)
{
    for (int i = 0; i < DLT_LANES; i++) {
        DltStream *s = &dev->lane[i];
        if (s->event) (void)cudaEventDestroy(s->event);
        if (s->handle) (void)cudaStreamDestroy(s->handle);
        s->event = NULL;
        s->handle = NULL;
    }
}

DltStream *dlt_cuda_stream(DltDevice *dev, int lane)
{
    DLT_BUG_ON(lane < 0 || lane >= DLT_LANES);
    return &dev->lane[lane];
}

DltStatus dlt_cuda_upload(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    if (bytes == 0) return DLT_OK;
    DLT_TRY(dlt_cuda_branches_barrier(s->dev, err));
    cudaError_t e = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, s->handle);
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: copying to the GPU", err);
}

DltStatus dlt_cuda_download(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err)
{
    if (bytes == 0) return DLT_OK;
    DLT_TRY(dlt_cuda_branches_barrier(s->dev, err));
    cudaError_t e = cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, s->handle);
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: copying from the GPU", err);
}

DltStatus dlt_cuda_zero(DltStream *s, void *dst, size_t bytes, DltErr *err)
{
    if (bytes == 0) return DLT_OK;
    DLT_TRY(dlt_cuda_branches_barrier(s->dev, err));
    return dlt_cuda_check(cudaMemsetAsync(dst, 0, bytes, s->handle), DLT_NO_MARK,
                          "cuda: clearing GPU memory", err);
}

static bool is_capturing(const DltStream *s)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(s->handle, &status) != cudaSuccess) (void)cudaGetLastError();
    return status == cudaStreamCaptureStatusActive;
}

/* While a step is recorded, a lane that has not taken part yet holds nothing to wait for; the first
 * wait of such a lane for a recorded one is what makes it take part. */
DltStatus dlt_cuda_wait(DltDevice *dev, int lane, int other, DltErr *err)
{
    if (lane == other) return DLT_OK;
    DltStream *s = dlt_cuda_stream(dev, lane), *o = dlt_cuda_stream(dev, other);
    if (dev->recording && !is_capturing(o)) return DLT_OK;
    if (dev->recording && other == 0) DLT_TRY(dlt_cuda_branches_join(dev, err));
    cudaError_t e = cudaEventRecord(o->event, o->handle);
    if (e == cudaSuccess) e = cudaStreamWaitEvent(s->handle, o->event, 0);
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: ordering two lanes", err);
}

DltStatus dlt_cuda_sync(DltDevice *dev, DltErr *err)
{
    DltStatus status = DLT_OK;
    for (int i = 0; i < DLT_LANES && status == DLT_OK; i++)
        status = dlt_cuda_check(cudaStreamSynchronize(dev->lane[i].handle), DLT_NO_MARK,
                                "cuda: work on the GPU failed", err);
    if (status != DLT_OK && !dev->option.eager)
        dlt_err_note(err, DLT_NO_MARK,
                     "with --eager every node is waited for, and the one that fails "
                     "is named");
    return status;
}
