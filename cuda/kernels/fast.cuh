/* Functions the hardware has by itself, for kernels that would wait for the longer ones and whose results are
 * rounded further anyway. tests/emulate has them by the library's. */
#ifndef DLT_FAST_CUH
#define DLT_FAST_CUH

/* 2^x to 2 ulp; results below 2^-126 become 0 (PTX ISA, ex2.approx.ftz). */
__device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* 1 / x to 1 ulp; 0 for |x| above 2^126 (PTX ISA, rcp.approx.ftz). */
__device__ __forceinline__ float fast_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif
