/* Copies from global to shared memory that run beside what the thread does next (cp.async, PTX ISA). A thread
 * that waits sees what it copied itself; others need a barrier. tests/emulate has the same by memcpy. */
#ifndef DLT_ASYNC_CUH
#define DLT_ASYNC_CUH

#include <stdint.h>

/* 16 bytes; both addresses are multiples of 16. */
__device__ __forceinline__ void async_copy(void *shared, const void *global)
{
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
/* The same, or 16 zeros where `inside` is false; `global` may be read in either case. */
__device__ __forceinline__ void async_copy_or_zero(void *shared, const void *global, bool inside)
{
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global),
                 "r"(inside ? 16 : 0)
                 : "memory");
}
/* Ends a group of copies. */
__device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Until at most N of the thread's groups are under way. */
template <int N> __device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#endif
