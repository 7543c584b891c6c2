/* Launchers of kernels that host files of cuda/ call beside a library. Valid C17 and C++17. */
#ifndef DLT_CUDA_KERNELS_H
#define DLT_CUDA_KERNELS_H

#include "cuda/cuda.h"
#include "ops/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dlt_matmul_gemm, for callers in C++. */
DltGemm dlt_cuda_gemm(const DltNode *n);

/* The own tensor core product, for nodes that its row dlt_cuda_matmul_small accepts. */
DltStatus dlt_cuda_matmul_small_launch(const DltCall *c, DltErr *err);

/* A tensor of a call: address and element type. */
typedef struct DltCudaArray {
    void *ptr;
    DltDtype dtype;
} DltCudaArray;

/* What is left to do behind a product, on c [rows, cols]: c = act(src + bias) act_grad'(saved), pre
 * = src + bias. src may be c. bias [cols]; bias, saved, pre: ptr NULL when there is none. */
typedef struct DltCudaFinish {
    DltCudaArray src, c, bias, saved, pre;
    DltUnary act, act_grad;
    int64_t rows, cols;
} DltCudaFinish;
DltStatus dlt_cuda_finish(const DltCall *call, const DltCudaFinish *f, DltErr *err);

/* dst = src in another order and type: four logical dims with strides of their own; src counts as
 * zero beyond src_dim (padding of channels). */
typedef struct DltCudaOrder {
    DltCudaArray src, dst;
    int64_t dim[4], src_dim[4], src_stride[4], dst_stride[4];
} DltCudaOrder;
DltStatus dlt_cuda_order(const DltCall *call, const DltCudaOrder *o, DltErr *err);

#ifdef __cplusplus
}
#endif

#endif
