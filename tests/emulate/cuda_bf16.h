/* bf16 as its bits. */
#ifndef EMULATED_CUDA_BF16_H
#define EMULATED_CUDA_BF16_H
#include "base/half.h"
struct __nv_bfloat16 {
    uint16_t bits;
};
static inline float __bfloat162float(__nv_bfloat16 v)
{
    return dlt_bf16_to(v.bits);
}
static inline __nv_bfloat16 __float2bfloat16(float v)
{
    return {dlt_bf16_from(v)};
}
#endif
