/* From a node's run-time element types to compiled code, and from a call to a kernel launch. The
 * only place that switches over element types. */
#ifndef DLT_DISPATCH_CUH
#define DLT_DISPATCH_CUH

#include "cuda/branch.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;
using f16 = __half;

__device__ __forceinline__ float to_float(float v)
{
    return v;
}
__device__ __forceinline__ float to_float(bf16 v)
{
    return __bfloat162float(v);
}
__device__ __forceinline__ float to_float(f16 v)
{
    return __half2float(v);
}
template <typename T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v)
{
    return v;
}
template <> __device__ __forceinline__ bf16 from_float<bf16>(float v)
{
    return __float2bfloat16(v);
}
template <> __device__ __forceinline__ f16 from_float<f16>(float v)
{
    return __float2half(v);
}

/* Runs the statement(s) with T set to the C++ type of a float dtype; the accepts functions let no
 * other type through. */
#define DLT_FLOAT_TYPE(dtype, T, ...)                                                              \
    switch (dtype) {                                                                               \
    case DLT_F32: {                                                                                \
        using T = float;                                                                           \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case DLT_BF16: {                                                                               \
        using T = bf16;                                                                            \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case DLT_F16: {                                                                                \
        using T = f16;                                                                             \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    default:                                                                                       \
        dlt_bug(__FILE__, __LINE__, "not a float type of this backend");                           \
    }
/* The same for kernels of 16 bits. */
#define DLT_HALF_TYPE(dtype, T, ...)                                                               \
    if ((dtype) == DLT_BF16) {                                                                     \
        using T = bf16;                                                                            \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        using T = f16;                                                                             \
        __VA_ARGS__;                                                                               \
    }
/* The same by size, for kernels that only move elements. */
#define DLT_SIZED_TYPE(bytes, T, ...)                                                              \
    switch (bytes) {                                                                               \
    case 1: {                                                                                      \
        using T = uint8_t;                                                                         \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case 2: {                                                                                      \
        using T = uint16_t;                                                                        \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case 4: {                                                                                      \
        using T = uint32_t;                                                                        \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    default: {                                                                                     \
        using T = uint64_t;                                                                        \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    }
/* Index arithmetic in 32 bits where `count` elements (and a grid's overshoot) allow, else in 64. */
#define DLT_INDEX_TYPE(count, I, ...)                                                              \
    if ((count) < (int64_t)1 << 30) {                                                              \
        using I = uint32_t;                                                                        \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        using I = uint64_t;                                                                        \
        __VA_ARGS__;                                                                               \
    }

/* A tensor whose type is looked at when it is read: for the small ones (weights of a norm, labels,
 * masks), where one predictable branch costs nothing and saves compiling every mix. */
struct In {
    const void *p;
    int dtype;
    __device__ __forceinline__ float operator[](int64_t i) const
    {
        switch (dtype) {
        case DLT_F32:
            return ((const float *)p)[i];
        case DLT_BF16:
            return __bfloat162float(((const bf16 *)p)[i]);
        case DLT_F16:
            return __half2float(((const f16 *)p)[i]);
        case DLT_F64:
            return (float)((const double *)p)[i];
        case DLT_I32:
            return (float)((const int32_t *)p)[i];
        case DLT_I64:
            return (float)((const int64_t *)p)[i];
        default:
            return (float)((const uint8_t *)p)[i];
        }
    }
    /* Elements i to i + 3, which lie at a multiple of four elements' size. */
    __device__ __forceinline__ void quad(int64_t i, float v[4]) const
    {
        if (dtype == DLT_F32) {
            float4 x = *(const float4 *)((const float *)p + i);
            v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
        } else if (dtype == DLT_BF16) {
            quad_of((const bf16 *)p + i, v);
        } else if (dtype == DLT_F16) {
            quad_of((const f16 *)p + i, v);
        } else {
            for (int e = 0; e < 4; e++)
                v[e] = (*this)[i + e];
        }
    }

  private:
    template <typename T> __device__ __forceinline__ static void quad_of(const T *from, float v[4])
    {
        T x[4];
        uint2 raw = *(const uint2 *)from;
        memcpy(x, &raw, sizeof raw);
        for (int e = 0; e < 4; e++)
            v[e] = to_float(x[e]);
    }
};
struct Out {
    void *p;
    int dtype;
    __device__ __forceinline__ void set(int64_t i, float v) const
    {
        switch (dtype) {
        case DLT_F32:
            ((float *)p)[i] = v;
            break;
        case DLT_BF16:
            ((bf16 *)p)[i] = __float2bfloat16(v);
            break;
        case DLT_F16:
            ((f16 *)p)[i] = __float2half(v);
            break;
        case DLT_F64:
            ((double *)p)[i] = (double)v;
            break;
        case DLT_I32:
            ((int32_t *)p)[i] = (int32_t)v;
            break;
        case DLT_I64:
            ((int64_t *)p)[i] = (int64_t)v;
            break;
        default:
            ((uint8_t *)p)[i] = (uint8_t)v;
            break;
        }
    }
    /* Elements i to i + 3, which lie at a multiple of four elements' size. */
    __device__ __forceinline__ void set_quad(int64_t i, const float v[4]) const
    {
        if (dtype == DLT_F32) {
            *(float4 *)((float *)p + i) = make_float4(v[0], v[1], v[2], v[3]);
        } else if (dtype == DLT_BF16) {
            put_quad((bf16 *)p + i, v);
        } else if (dtype == DLT_F16) {
            put_quad((f16 *)p + i, v);
        } else {
            for (int e = 0; e < 4; e++)
                set(i + e, v[e]);
        }
    }

  private:
    template <typename T> __device__ __forceinline__ static void put_quad(T *to, const float v[4])
    {
        T x[4];
        uint2 raw;
        for (int e = 0; e < 4; e++)
            x[e] = from_float<T>(v[e]);
        memcpy(&raw, x, sizeof raw);
        *(uint2 *)to = raw;
    }
};

static inline In input(const DltCall *c, int i)
{
    return In{c->in[i], c->node->in[i] ? (int)c->node->in[i]->dtype : (int)DLT_F32};
}
static inline Out output(const DltCall *c, int i)
{
    return Out{c->out[i], c->node->out[i] ? (int)c->node->out[i]->dtype : (int)DLT_F32};
}

/* The shared memory a launch asked for, as `type *name`; tests/emulate has its own. */
#ifndef DLT_DYNAMIC_SHARED
#define DLT_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

/* Every kernel begins with this. On Hopper and later a kernel may start while the one before it
 * drains (programmatic dependent launch); begin() lets the next one start as early and then waits
 * until everything enqueued before is finished and visible. Elsewhere it is nothing. */
__device__ __forceinline__ void begin()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

/* Clusters: neighbours in z that run at the same time and see each other's shared memory (Hopper).
 * Elsewhere every block is a cluster of its own. */
static inline bool has_clusters(const DltCall *c)
{
#ifdef DLT_EMULATED
    (void)c;
    return false;
#else
    return c->stream->dev->capability >= 90;
#endif
}
/* A barrier of all threads of the cluster in two halves: shared memory of any block that was written before
 * the first is seen behind the second. */
__device__ __forceinline__ void cluster_arrive()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
/* *p = v in block `rank` of the cluster; p points into shared memory. */
__device__ __forceinline__ void cluster_write(float4 *p, int rank, float4 v)
{
#if __CUDA_ARCH__ >= 900
    unsigned own = (unsigned)__cvta_generic_to_shared(p), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(there), "f"(v.x), "f"(v.y),
                 "f"(v.z), "f"(v.w)
                 : "memory");
#else
    (void)rank;
    *p = v;
#endif
}

/* Enqueues kernel<<<grid, block, shared>>>(args...) on the call's lane, in clusters of `cluster` blocks
 * along z (1: none). */
template <typename... P, typename... A>
static DltStatus enqueue_clusters(const DltCall *c, DltErr *err, void (*kernel)(P...), dim3 grid,
                                  dim3 block, size_t shared, unsigned cluster, A... args)
{
    cudaLaunchAttribute attr[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = c->stream->handle;
    config.attrs = attr;
    if (c->stream->dev->overlap && !c->stream->joined) {
        attr[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attr[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
#ifndef DLT_EMULATED
    if (cluster > 1) {
        attr[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attr[config.numAttrs].val.clusterDim.x = attr[config.numAttrs].val.clusterDim.y = 1;
        attr[config.numAttrs++].val.clusterDim.z = cluster;
    }
#endif
    c->stream->joined = false;
    cudaError_t e = cudaSuccess;
    if (shared > 48 * 1024)
        e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)shared);
    if (e == cudaSuccess) e = cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
    return dlt_cuda_launched(c, e, err);
}
template <typename... P, typename... A>
static DltStatus enqueue(const DltCall *c, DltErr *err, void (*kernel)(P...), dim3 grid, dim3 block,
                         size_t shared, A... args)
{
    return enqueue_clusters(c, err, kernel, grid, block, shared, 1, args...);
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
/* Blocks for n work items of a grid-stride loop: enough to fill the device `waves` times over. */
static inline unsigned blocks_for(const DltCall *c, int64_t n, int per_block, int waves = 16)
{
    int64_t all = ceil_div(n, per_block), most = (int64_t)c->stream->dev->n_sm * waves;
    return (unsigned)(all < 1 ? 1 : all < most ? all : most);
}

#endif
