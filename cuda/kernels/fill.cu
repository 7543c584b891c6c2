/* Pseudo-random contents for measuring: GPUs run faster on zeros than on data, so choices made on
 * cleared memory would be wrong ones. Also the first kernel ever launched, which tells whether this
 * build has code for the card. */
#include "cuda/kernels/prim.cuh"

namespace
{

/* dst[i] = hash(seed, i) as a value in [-1, 1), or a small integer. */
__global__ void fill_k(Out dst, int64_t n, uint32_t seed, bool integer)
{
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t h = (uint32_t)i * 0x9E3779B1u + seed * 0x85EBCA77u;
        h ^= h >> 15;
        h *= 0x2C1B3C6Du;
        h ^= h >> 12;
        h *= 0x297A2D39u;
        h ^= h >> 15;
        dst.set(i, integer ? (float)(h & 7) : (float)(h >> 8) * (2.0f / 16777216.0f) - 1.0f);
    }
}
__global__ void probe_k(void)
{
}
} // namespace

extern "C" cudaError_t dlt_cuda_fill(cudaStream_t stream, void *dst, int64_t n, DltDtype dtype,
                                     uint32_t seed)
{
    bool integer = !dlt_dtype_is_float(dtype);
    int64_t blocks = ceil_div(n, BLOCK * 4);
    if (n == 0) return cudaSuccess;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(blocks < 4096 ? blocks : 4096));
    config.blockDim = dim3(BLOCK);
    config.stream = stream;
    return cudaLaunchKernelEx(&config, fill_k, Out{dst, (int)dtype}, n, seed, integer);
}

extern "C" cudaError_t dlt_cuda_probe(void)
{
    cudaFuncAttributes a;
    return cudaFuncGetAttributes(&a, (const void *)probe_k);
}
