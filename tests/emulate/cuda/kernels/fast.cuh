/* The functions of cuda/kernels/fast.cuh by the library's. */
#ifndef EMULATED_FAST_CUH
#define EMULATED_FAST_CUH

#include <math.h>

static inline float fast_exp2(float x)
{
    return exp2f(x);
}
static inline float fast_reciprocal(float x)
{
    return 1.0f / x;
}

#endif
