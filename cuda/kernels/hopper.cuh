/* Hopper's own instructions as small device functions: barriers that count bytes, the copy engine (TMA), matrix
 * products of a warpgroup (wgmma) and the moving of registers between warpgroups. Only for code compiled for
 * sm_90a. PTX ISA 8, sections 9.7.8.24 (mbarrier), 9.7.9.25 and 9.7.9.27 (bulk copies), 9.7.15 (wgmma). */
#ifndef DLT_HOPPER_CUH
#define DLT_HOPPER_CUH

#include "cuda/kernels/fast.cuh"
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/warp_mma.cuh"
#include <cuda.h>

namespace hopper
{

enum { GROUP = 128, WARPS = GROUP / WARP, STRIPE = 64 /* 16-bit elements in 128 bytes */ };

__device__ __forceinline__ unsigned at(const void *shared)
{
    return (unsigned)__cvta_generic_to_shared(shared);
}

/* ---- barriers ---- */

__device__ __forceinline__ void bar_init(void *bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_expect(void *bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void bar_arrive(void *bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}
/* One arrival for the whole warp, once all its lanes are here. */
__device__ __forceinline__ void bar_arrive_warp(void *bar)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) bar_arrive(bar);
}
/* The same barrier of block `rank` of the cluster. */
__device__ __forceinline__ void bar_arrive_at(void *bar, int rank)
{
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(at(bar)),
                 "r"(rank)
                 : "memory");
}
__device__ __forceinline__ void bar_wait(void *bar, unsigned phase)
{
    asm volatile("{\n.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(at(bar)),
                 "r"(phase)
                 : "memory");
}
/* Place in a ring of N slots and the phase of its barriers. */
template <int N> struct Turn {
    int slot = 0;
    unsigned phase = 0;
    __device__ __forceinline__ void next()
    {
        if (++slot == N) slot = 0, phase ^= 1;
    }
    __device__ __forceinline__ void skip(int n)
    {
        phase ^= (unsigned)((slot + n) / N) & 1;
        slot = (slot + n) % N;
    }
};

/* ---- copies ---- */

/* A box of a matrix into shared memory; ONCE: nobody else will want it, the second-level cache may drop it first. */
constexpr unsigned long long EVICT_FIRST = 0x12f0000000000000ull;
template <bool ONCE>
__device__ __forceinline__ void bring(void *to, const CUtensorMap *map, void *bar, int x, int y)
{
    if constexpr (ONCE)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(at(to)),
                     "l"(map), "r"(at(bar)), "r"(x), "r"(y), "l"(EVICT_FIRST)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%3, %4}], [%2];" ::"r"(at(to)),
                     "l"(map), "r"(at(bar)), "r"(x), "r"(y)
                     : "memory");
}
/* To the same place in both blocks of the cluster, whose barriers both count the bytes. */
__device__ __forceinline__ void bring_both(void *to, const CUtensorMap *map, void *bar, int x,
                                           int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(at(to)),
                 "l"(map), "r"(at(bar)), "r"(x), "r"(y), "h"((unsigned short)3)
                 : "memory");
}
/* A box of shared memory, published, into a matrix; what lies outside is left out. Boxes up to take_end() are a
 * group; take_wait() waits until all but the thread's last LEFT groups may be written again, taken() for all. */
template <bool ONCE>
__device__ __forceinline__ void take_box(const CUtensorMap *map, const void *from, int x, int y)
{
    if constexpr (ONCE)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint"
                     " [%0, {%2, %3}], [%1], %4;" ::"l"(map),
                     "r"(at(from)), "r"(x), "r"(y), "l"(EVICT_FIRST)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
                     " [%0, {%2, %3}], [%1];" ::"l"(map),
                     "r"(at(from)), "r"(x), "r"(y)
                     : "memory");
}
__device__ __forceinline__ void take_end()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void take_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
template <bool ONCE>
__device__ __forceinline__ void take(const CUtensorMap *map, const void *from, int x, int y)
{
    take_box<ONCE>(map, from, x, y);
    take_end();
}
__device__ __forceinline__ void taken()
{
    take_wait<0>();
}
/* Until all of the thread's boxes are in their matrices. */
__device__ __forceinline__ void take_wait_written()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
__device__ __forceinline__ void bring_bytes(void *to, const void *from, void *bar, int bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %3, [%2];" ::"r"(at(to)),
                 "l"(from), "r"(at(bar)), "r"(bytes)
                 : "memory");
}
/* What this thread wrote into shared memory is seen by the copy engine and the products. */
__device__ __forceinline__ void publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Four 8 x 8 matrices, as warp_load_at takes them. */
__device__ __forceinline__ void store_matrices(unsigned to, const unsigned r[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* ---- products ---- */

/* An operand in shared memory in rows of 128 bytes, swizzled: rows of the depth ("straight"), which go on every 32
 * bytes, or rows of m or n ("turned"), which go on every 16 rows; lead: bytes from one stripe of these to the
 * next. */
__device__ __forceinline__ unsigned long long operand(unsigned p, unsigned lead = 16)
{
    return (unsigned long long)(p >> 4 & 0x3fff) | (unsigned long long)(lead >> 4) << 16 |
           (unsigned long long)(8 * STRIPE * 2 >> 4) << 32 | 1ull << 62;
}
enum { STRAIGHT_STEP = 32, TURNED_STEP = 16 * STRIPE * 2 }; /* bytes for a depth of 16 */

__device__ __forceinline__ void product_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void product_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> __device__ __forceinline__ void product_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* The compiler may not move what uses these registers across here. */
template <int N> __device__ __forceinline__ void settle(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> __device__ __forceinline__ void settle(unsigned (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(d[i])::"memory");
}

#define HOPPER_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HOPPER_16(i) HOPPER_4(i), HOPPER_4(i + 4), HOPPER_4(i + 8), HOPPER_4(i + 12)
#define HOPPER_64 "wgmma.mma_async.sync.aligned.m64n64k16.f32."
#define HOPPER_SUMS                                                                                \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"      \
    "%24,%25,%26,%27,%28,%29,%30,%31}, "

/* PRODUCT(name of the 16-bit type T) */
#define HOPPER_OF_TYPE(T)                                                                          \
    if constexpr (std::is_same<T, bf16>::value)                                                    \
        PRODUCT("bf16");                                                                           \
    else                                                                                           \
        PRODUCT("f16")

/* d [64, 64] (+)= a [64, 16] b [16, 64], a in registers; ADD 0: without what d was. */
template <typename T, int TURNED, int ADD>
__device__ __forceinline__ void multiply(float (&d)[32], const unsigned *a, unsigned long long b)
{
#define PRODUCT(type)                                                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %38, 0;\n" HOPPER_64 type "." type              \
                 " " HOPPER_SUMS "{%32,%33,%34,%35}, %36, p, 1, 1, %37;\n}"                        \
                 : HOPPER_16(0), HOPPER_16(16)                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED), "n"(ADD))
    HOPPER_OF_TYPE(T);
#undef PRODUCT
}
/* d [64, 64] += a [64, 16] b [16, 64], both in shared memory, b turned. */
template <typename T, int TURNED>
__device__ __forceinline__ void multiply_shared(float (&d)[32], unsigned long long a,
                                                unsigned long long b)
{
#define PRODUCT(type)                                                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n" HOPPER_64 type "." type                \
                 " " HOPPER_SUMS "%32, %33, p, 1, 1, %34, 1;\n}"                                   \
                 : HOPPER_16(0), HOPPER_16(16)                                                     \
                 : "l"(a), "l"(b), "n"(TURNED))
    HOPPER_OF_TYPE(T);
#undef PRODUCT
}
/* d [64, 192] += a [64, 16] b [16, 192], both in shared memory. */
template <typename T, int TURNED>
__device__ __forceinline__ void multiply_192(float (&d)[96], unsigned long long a,
                                             unsigned long long b)
{
#define PRODUCT(type)                                                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                        \
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {"                 \
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                          \
                 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"                \
                 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                \
                 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"                \
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                \
                 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, "              \
                 "%96, %97, p, 1, 1, 0, %98;\n}"                                                   \
                 : HOPPER_16(0), HOPPER_16(16), HOPPER_16(32), HOPPER_16(48), HOPPER_16(64),       \
                   HOPPER_16(80)                                                                   \
                 : "l"(a), "l"(b), "n"(TURNED))
    HOPPER_OF_TYPE(T);
#undef PRODUCT
}
#undef HOPPER_OF_TYPE
#undef HOPPER_SUMS
#undef HOPPER_64
#undef HOPPER_16
#undef HOPPER_4

/* ---- registers ---- */

template <int REGISTERS> __device__ __forceinline__ void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> __device__ __forceinline__ void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
/* Waits for that many threads; id 1 to 15. group_arrive: is one of them, but does not wait. */
template <int COUNT> __device__ __forceinline__ void group_barrier(int id)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(COUNT) : "memory");
}
template <int COUNT> __device__ __forceinline__ void group_arrive(int id)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(COUNT) : "memory");
}
/* Two neighbours, rounded, the lower one in the lower half. */
template <typename T> __device__ __forceinline__ unsigned pair(float lo, float hi)
{
    unsigned both;
    if constexpr (std::is_same<T, bf16>::value)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(hi), "f"(lo));
    return both;
}
/* The two again. */
__device__ __forceinline__ float2 apart(unsigned both, bf16)
{
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}
__device__ __forceinline__ float2 apart(unsigned both, f16)
{
    __half2 h;
    memcpy(&h, &both, sizeof h);
    return __half22float2(h);
}

} // namespace hopper

#endif
