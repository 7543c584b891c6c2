/* Matrices described to the copy engine (TMA) of Hopper. The description lies in the kernel's parameters, so it is
 * made anew at each launch, on the host: no memory, no wait. */
#ifndef DLT_TENSOR_MAP_CUH
#define DLT_TENSOR_MAP_CUH

#include "cuda/kernels/dispatch.cuh"
#include <cuda.h>

namespace
{

using TensorMapEncode = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                     const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                     const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                     CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's function that describes a matrix; NULL where it has none. */
inline TensorMapEncode tensor_map_encoder()
{
    void *f = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault,
                                         &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess)
        return (TensorMapEncode)f;
    (void)cudaGetLastError();
    return nullptr;
}

/* One row-major matrix [rows, cols] of a 16-bit type, to go in boxes of 64 columns. */
struct Matrix {
    const void *p;
    DltDtype type;
    int64_t rows, cols;
    unsigned box_rows;
};

/* Boxes lie in rows of 128 bytes, swizzled. */
inline DltStatus tensor_map(const DltCall *c, const Matrix &m, CUtensorMap *map, DltErr *err)
{
    cuuint64_t dim[2] = {(cuuint64_t)m.cols, (cuuint64_t)m.rows};
    cuuint64_t stride[1] = {(cuuint64_t)m.cols * 2};
    cuuint32_t box[2] = {64, m.box_rows}, step[2] = {1, 1};
    auto type =
        m.type == DLT_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    TensorMapEncode encode = tensor_map_encoder();
    if (encode && encode(map, type, 2, (void *)(uintptr_t)m.p, dim, stride, box, step,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
        return DLT_OK;
    return dlt_err_at(err, DLT_E_DEVICE, c->node->at, "cuTensorMapEncodeTiled refuses %lld x %lld",
                      (long long)m.rows, (long long)m.cols);
}

} // namespace

#endif
