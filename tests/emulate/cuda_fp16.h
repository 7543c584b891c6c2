/* f16 as its bits. */
#ifndef EMULATED_CUDA_FP16_H
#define EMULATED_CUDA_FP16_H
#include "base/half.h"
struct __half {
    uint16_t bits;
};
static inline float __half2float(__half v)
{
    return dlt_f16_to(v.bits);
}
static inline __half __float2half(float v)
{
    return {dlt_f16_from(v)};
}
#endif
