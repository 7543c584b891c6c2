/* The warp's products and operand loads of cuda/kernels/warp_mma.cuh by loops. */
#ifndef EMULATED_WARP_MMA_CUH
#define EMULATED_WARP_MMA_CUH

#include "cuda/kernels/prim.cuh"

template <typename T> float emulated_half(uint32_t pair, int high)
{
    uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
    T v;
    memcpy(&v, &bits, sizeof v);
    return to_float(v);
}

template <typename T> void warp_mma(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    static uint32_t other[32][32][2]; /* [warp][lane] */
    int lane = emulated_lane(), warp = (int)(threadIdx.x / 32);
    memcpy(emulated_slot(lane), a, 16);
    memcpy(other[warp][lane], b, 8);
    emulated_barrier(true);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; k++) {
            uint32_t pair[4];
            memcpy(pair, emulated_slot(row % 8 * 4 + k % 8 / 2), 16);
            float x = emulated_half<T>(pair[row / 8 + k / 8 * 2], k % 2);
            sum[i] += x * emulated_half<T>(other[warp][col * 4 + k % 8 / 2][k / 8], k % 2);
        }
    }
    emulated_barrier(true);
}

static inline uint32_t to_tf32(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return v == v ? (bits + 0x1000) & ~0x1FFFu : bits;
}
static inline void warp_mma_tf32(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    static float other[32][32][2]; /* [warp][lane] */
    int lane = emulated_lane(), warp = (int)(threadIdx.x / 32);
    memcpy(emulated_slot(lane), a, 16);
    memcpy(other[warp][lane], b, 8);
    emulated_barrier(true);
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 8; k++) {
            float x[4];
            memcpy(x, emulated_slot(row % 8 * 4 + k % 4), 16);
            sum[i] += x[row / 8 + k / 4 * 2] * other[warp][col * 4 + k % 4][k / 4];
        }
    }
    emulated_barrier(true);
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
