/* Device code as host C++: qualifiers vanish, a block's threads are fibers that meet at barriers.
 * Shared memory is static, since one block runs at a time. */
#ifndef EMULATED_CUDA_RUNTIME_H
#define EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define DLT_DYNAMIC_SHARED(type, name) type *name = (type *)emulated_shared

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

extern dim3 threadIdx, blockIdx, blockDim, gridDim;
extern unsigned char *emulated_shared;

/* emulate.cc */
void emulated_barrier(bool of_warp); /* of the block otherwise */
void *emulated_slot(int lane);       /* 16 bytes of the calling thread's warp */
int emulated_lane();
int emulated_or(int value); /* over the block */
void emulated_launch(cudaStream_t s, dim3 grid, dim3 block, size_t shared,
                     std::function<void()> body);

static inline void __syncthreads()
{
    emulated_barrier(false);
}
static inline int __syncthreads_or(int v)
{
    return emulated_or(v);
}
static inline void __syncwarp()
{
    emulated_barrier(true);
}
static inline void __threadfence()
{
}
template <typename T> T __shfl_sync(unsigned, T v, int from)
{
    memcpy(emulated_slot(emulated_lane()), &v, sizeof v);
    emulated_barrier(true);
    memcpy(&v, emulated_slot(from & 31), sizeof v);
    emulated_barrier(true);
    return v;
}
template <typename T> T __shfl_xor_sync(unsigned mask, T v, int o)
{
    return __shfl_sync(mask, v, emulated_lane() ^ o);
}
template <typename T> T __shfl_down_sync(unsigned mask, T v, int o)
{
    int from = emulated_lane() + o;
    return __shfl_sync(mask, v, from > 31 ? emulated_lane() : from);
}
static inline unsigned __ballot_sync(unsigned, int v)
{
    unsigned all = 0;
    *(int *)emulated_slot(emulated_lane()) = v;
    emulated_barrier(true);
    for (int i = 0; i < 32; i++)
        all |= (unsigned)(*(int *)emulated_slot(i) != 0) << i;
    emulated_barrier(true);
    return all;
}
static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}
template <typename T> T __ldcg(const T *p)
{
    return *p;
}
template <typename T> T __ldg(const T *p)
{
    return *p;
}
template <typename T> T atomicAdd(T *p, T v)
{
    T old = *p;
    *p = old + v;
    return old;
}
static inline float __uint_as_float(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
template <typename T> T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> T max(T a, T b)
{
    return a < b ? b : a;
}

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
cudaError_t emulated_fault(); /* that a test asked for, cudaSuccess: none */
template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *c, void (*kernel)(P...), A... args)
{
    if (cudaError_t fault = emulated_fault()) return fault;
    emulated_launch(c->stream, c->gridDim, c->blockDim, c->dynamicSmemBytes,
                    [=]() { kernel(args...); });
    return cudaSuccess;
}
#endif

#endif
