/* The warp's products and operand loads of cuda/kernels/warp_mma.cuh by loops. */
#ifndef EMULATED_WARP_MMA_CUH
#define EMULATED_WARP_MMA_CUH

#include "cuda/kernels/prim.cuh"

/* sum += a b, a [16, K], b [K, 8]: words of both hold K / 8 neighbours each, element e of a word is
 * value(word, e). */
template <int K, typename V>
void emulated_mma(float sum[4], const uint32_t a[4], const uint32_t b[2], V value)
{
    static uint32_t other[32][32][2]; /* [warp][lane] */
    constexpr int EACH = K / 8, HALF = K / 2;
    int lane = emulated_lane(), warp = (int)(threadIdx.x / 32);
    memcpy(emulated_slot(lane), a, 16);
    memcpy(other[warp][lane], b, 8);
    emulated_barrier(true);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (int k = 0; k < K; k++) {
            uint32_t word[4];
            int from = k % HALF / EACH;
            memcpy(word, emulated_slot(row % 8 * 4 + from), 16);
            float x = value(word[row / 8 + k / HALF * 2], k % EACH);
            sum[i] += x * value(other[warp][col * 4 + from][k / HALF], k % EACH);
        }
    }
    emulated_barrier(true);
}

template <typename T> void warp_mma(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma<16>(sum, a, b, [](uint32_t pair, int high) {
        uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
        T v;
        memcpy(&v, &bits, sizeof v);
        return to_float(v);
    });
}

static inline uint32_t to_tf32(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return v == v ? (bits + 0x1000) & ~0x1FFFu : bits;
}
static inline void warp_mma_tf32(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma<8>(sum, a, b, [](uint32_t word, int) { return __uint_as_float(word); });
}

static inline void emulated_load(uint32_t r[4], const void *row, bool turned)
{
    int lane = emulated_lane(), g = lane / 4, c = lane % 4 * 2;
    memcpy(emulated_slot(lane), &row, sizeof row);
    emulated_barrier(true);
    for (int m = 0; m < 4; m++) {
        uint16_t v[2];
        for (int i = 0; i < 2; i++) {
            const uint16_t *from;
            memcpy(&from, emulated_slot(m * 8 + (turned ? c + i : g)), sizeof from);
            v[i] = from[turned ? g : c + i];
        }
        r[m] = (uint32_t)v[1] << 16 | v[0];
    }
    emulated_barrier(true);
}
static inline void warp_load(uint32_t r[4], const void *row)
{
    emulated_load(r, row, false);
}
static inline void warp_load_turned(uint32_t r[4], const void *row)
{
    emulated_load(r, row, true);
}

#endif
