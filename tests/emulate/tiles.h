/* Matrix tiles in plain C, so that the kernels that use them run, and are checked, on any machine: put before
 * core/cpu/dnnl/amx.c (-include), in place of the instructions. Eight registers a thread of 16 rows of 64 bytes, as
 * dlt_amx_begin sets them up; a product adds pairs of bf16 in f32, first the pair's even term. */
#ifndef DLT_EMULATE_TILES_H
#define DLT_EMULATE_TILES_H

#include "base/half.h"
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DLT_AMX

typedef union EmulatedTile {
    uint16_t low[16][32];
    float sum[16][16];
} EmulatedTile;
static _Thread_local EmulatedTile emulated_tile[8];
static _Thread_local bool emulated_ready;

static inline void emulated_load(int t, const void *base, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy(emulated_tile[t].low[r], (const char *)base + r * stride, 64);
}

static inline void emulated_store(int t, void *base, int64_t stride)
{
    for (int r = 0; r < 16; r++)
        memcpy((char *)base + r * stride, emulated_tile[t].sum[r], 64);
}

/* An end without a beginning, or a product before it, is an illegal instruction on the real thing. */
static inline void emulated_product(int c, int a, int b)
{
    if (!emulated_ready) __builtin_trap();
    for (int i = 0; i < 16; i++)
        for (int p = 0; p < 16; p++)
            for (int odd = 0; odd < 2; odd++) {
                float x = dlt_bf16_to(emulated_tile[a].low[i][2 * p + odd]);
                for (int j = 0; j < 16; j++)
                    emulated_tile[c].sum[i][j] +=
                        x * dlt_bf16_to(emulated_tile[b].low[p][2 * j + odd]);
            }
}

static inline void emulated_round(const float *x, uint16_t *y)
{
    for (int i = 0; i < 32; i++)
        y[i] = dlt_bf16_from(x[i]);
}
#define DLT_AMX_ROUND32(x, y) emulated_round(x, y)
#define DLT_AMX_WIDEN16(x) __builtin_convertvector(*(const DltH16 *)(x), DltU16)

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ((void)(config), emulated_ready = true)
#define _tile_release() (emulated_ready = false)
#define _tile_loadd(t, base, stride) emulated_load(t, base, stride)
#define _tile_stored(t, base, stride) emulated_store(t, base, stride)
#define _tile_zero(t) memset(&emulated_tile[t], 0, sizeof(EmulatedTile))
#define _tile_dpbf16ps(c, a, b) emulated_product(c, a, b)

/* What the processor has, asked of these in place of oneDNN (the linker's --wrap). */
int __wrap_dlt_dnnl_block(void);
bool __wrap_dlt_dnnl_has_bf16(void);
bool __wrap_dlt_dnnl_has_amx(void);

int __wrap_dlt_dnnl_block(void)
{
    return 16;
}

bool __wrap_dlt_dnnl_has_bf16(void)
{
    return true;
}

bool __wrap_dlt_dnnl_has_amx(void)
{
    return true;
}

#endif
