/* Recording: what the lanes enqueue between record_begin and record_end becomes a CUDA graph that
 * replay launches whole. Capture is thread-local, so that loader threads may copy meanwhile. Lanes
 * and branches that were forked are joined to lane 0 before the end, as CUDA demands. */
#include "cuda/branch.h"

struct DltCudaProgram {
    cudaGraphExec_t exec;
    DltCudaProgram *next;
};

DltStatus dlt_cuda_record_begin(DltDevice *dev, DltErr *err)
{
    DLT_BUG_ON(dev->recording);
    DLT_TRY(dlt_cuda_branches_prepare(dev, err));
    DLT_TRY(dlt_cuda_sync(dev, err));
    cudaError_t e = cudaStreamBeginCapture(dev->lane[0].handle, cudaStreamCaptureModeThreadLocal);
    DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: starting to record a step", err));
    dev->recording = true;
    return dlt_cuda_branches_begin(dev, err);
}

static DltStatus join_lanes(DltDevice *dev, DltErr *err)
{
    for (int i = 1; i < DLT_LANES; i++)
        DLT_TRY(dlt_cuda_wait(dev, 0, i, err));
    return dlt_cuda_branches_join(dev, err);
}

DltStatus dlt_cuda_record_end(DltDevice *dev, void **program, DltErr *err)
{
    DLT_BUG_ON(!dev->recording);
    *program = NULL;
    DltStatus joined = join_lanes(dev, err);
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamEndCapture(dev->lane[0].handle, &graph);
    dev->recording = false;
    if (joined != DLT_OK || e != cudaSuccess) {
        (void)cudaGetLastError();
        if (graph) (void)cudaGraphDestroy(graph);
        return joined != DLT_OK ? joined
                                : dlt_cuda_check(e, DLT_NO_MARK, "cuda: recording a step", err);
    }
    cudaGraphExec_t exec = NULL;
    e = cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaGraphDestroy(graph);
    DLT_TRY(dlt_cuda_check(e, DLT_NO_MARK, "cuda: building the recorded step", err));
    DltCudaProgram *p = DLT_NEW(dev->arena, DltCudaProgram);
    p->exec = exec;
    p->next = dev->program;
    dev->program = p;
    *program = p;
    e = cudaGraphUpload(exec, dev->lane[0].handle);
    return dlt_cuda_check(e, DLT_NO_MARK, "cuda: loading the recorded step", err);
}

DltStatus dlt_cuda_replay(DltDevice *dev, void *program, DltErr *err)
{
    const DltCudaProgram *p = program;
    return dlt_cuda_check(cudaGraphLaunch(p->exec, dev->lane[0].handle), DLT_NO_MARK,
                          "cuda: replaying a step", err);
}

void dlt_cuda_programs_close(DltDevice *dev)
{
    for (DltCudaProgram *p = dev->program; p; p = p->next) {
        if (p->exec) (void)cudaGraphExecDestroy(p->exec);
        p->exec = NULL;
    }
    dev->program = NULL;
}
