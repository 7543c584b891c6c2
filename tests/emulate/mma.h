/* Tensor core products by loops: the warp's first lane holds the whole matrices. */
#ifndef EMULATED_MMA_H
#define EMULATED_MMA_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace nvcuda
{
namespace wmma
{
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major };
namespace precision
{
struct tf32;
}
template <typename T> struct Stored {
    using type = T;
};
template <> struct Stored<precision::tf32> {
    using type = float;
};
template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
    static constexpr int num_elements = 256;
    typename Stored<T>::type x[num_elements];
};
static inline float value(float v)
{
    return v;
}
static inline float value(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
static inline float value(__half v)
{
    return __half2float(v);
}
/* Round to 10 bits of mantissa, ties away from zero, as cvt.rna does. */
static inline float __float_to_tf32(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    u = (u + 0x1000) & ~0x1FFFu;
    memcpy(&v, &u, 4);
    return v;
}
template <int M, int N, int K> void fill_fragment(fragment<accumulator, M, N, K, float> &f, float v)
{
    for (float &e : f.x)
        e = v;
}
template <int M, int N, int K, typename T, typename L, typename P>
void load_matrix_sync(fragment<matrix_a, M, N, K, T, L> &f, const P *p, unsigned ld)
{
    bool row = std::is_same<L, row_major>::value;
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            f.x[m * K + k] = p[row ? m * ld + k : k * ld + m];
}
template <int M, int N, int K, typename T, typename L, typename P>
void load_matrix_sync(fragment<matrix_b, M, N, K, T, L> &f, const P *p, unsigned ld)
{
    bool row = std::is_same<L, row_major>::value;
    for (int k = 0; k < K; k++)
        for (int n = 0; n < N; n++)
            f.x[k * N + n] = p[row ? k * ld + n : n * ld + k];
}
template <int M, int N, int K, typename T, typename LA, typename LB>
void mma_sync(fragment<accumulator, M, N, K, float> &d, const fragment<matrix_a, M, N, K, T, LA> &a,
              const fragment<matrix_b, M, N, K, T, LB> &b,
              const fragment<accumulator, M, N, K, float> &c)
{
    if (emulated_lane() != 0) return;
    for (int i = 0; i < M * N; i++) {
        float s = c.x[i];
        for (int k = 0; k < K; k++)
            s += value(a.x[i / N * K + k]) * value(b.x[k * N + i % N]);
        d.x[i] = s;
    }
}
template <int M, int N, int K>
void store_matrix_sync(float *p, const fragment<accumulator, M, N, K, float> &f, unsigned ld,
                       layout_t)
{
    if (emulated_lane() != 0) return;
    for (int i = 0; i < M * N; i++)
        p[i / N * ld + i % N] = f.x[i];
}
} // namespace wmma
} // namespace nvcuda

#endif
