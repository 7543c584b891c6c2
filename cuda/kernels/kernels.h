/* Launchers of kernels that host files of cuda/ call beside a library. Valid C17 and C++17. */
#ifndef DLT_CUDA_KERNELS_H
#define DLT_CUDA_KERNELS_H

#include "cuda/cuda.h"
#include "ops/conv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dlt_matmul_gemm and its like, for callers in C++. */
DltGemm dlt_cuda_gemm(const DltNode *n);
DltGemm dlt_cuda_linear_gemm(const DltNode *n); /* dlt_linear_gemm */

/* The own tensor core product, for nodes that its row dlt_cuda_matmul_small accepts. */
DltStatus dlt_cuda_matmul_small_launch(const DltCall *c, DltErr *err);

/* A tensor of a call: address and element type. */
typedef struct DltCudaArray {
    void *ptr;
    DltDtype dtype;
} DltCudaArray;

/* What is left to do behind a product, on c [rows, cols]: c = act(src + bias) act_grad'(saved), pre
 * = src + bias. src may be c or pre. bias [cols]; bias, saved, pre: ptr NULL when there is none. */
typedef struct DltCudaFinish {
    DltCudaArray src, c, bias, saved, pre;
    DltUnary act, act_grad;
    int64_t rows, cols;
} DltCudaFinish;
DltStatus dlt_cuda_finish(const DltCall *call, const DltCudaFinish *f, DltErr *err);

/* c = op(a) op(b), or c += that: row-major [m, k] [k, n] of any float types. */
typedef struct DltCudaProduct {
    DltCudaArray a, b, c;
    bool ta, tb, add;
    int64_t m, n, k;
} DltCudaProduct;
DltStatus dlt_cuda_product(const DltCall *call, const DltCudaProduct *p, DltErr *err);

/* Cross entropy of the rows [first, first + rows) of a batch, and its gradient in place of the logits
 * [rows, classes]: ops/loss_ops.h. y i32 [rows]; w of samples, per_sample rows each; loss f64[2] gets the rows'
 * sum and weight, or them added. part: scratch of dlt_cuda_row_loss_bytes. */
typedef struct DltCudaRowLoss {
    DltCudaArray logits, w;
    const int32_t *y;
    const void *step;
    double *loss, *part;
    int64_t first, rows, classes, per_sample;
    int32_t ignore;
    bool add;
} DltCudaRowLoss;
DltStatus dlt_cuda_row_loss(const DltCall *call, const DltCudaRowLoss *l, DltErr *err);
/* The same by the kernel for rows of any length. */
DltStatus dlt_cuda_row_loss_any(const DltCall *call, const DltCudaRowLoss *l, DltErr *err);
size_t dlt_cuda_row_loss_bytes(const DltDevice *dev);

/* act_bwd for nodes that its row accepts, and its scratch. */
DltStatus dlt_cuda_act_bwd_launch(const DltCall *c, DltErr *err);
size_t dlt_cuda_act_bwd_bytes(const DltNode *n, const DltDevice *dev);

/* y = f(x), n elements of one float type. */
DltStatus dlt_cuda_act(const DltCall *call, DltUnary f, DltCudaArray x, DltCudaArray y, int64_t n,
                       DltErr *err);

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
