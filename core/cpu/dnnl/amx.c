/* Packing into tiles, and blocks of up to four tiles of sums: two tiles of A meet two of B, so that each tile that is
 * loaded is used twice. */
#include "cpu/dnnl/amx.h"

#include <immintrin.h>

bool dlt_amx_there(void)
{
    return dlt_dnnl_has_amx();
}

/* ---- packing ---- */

#ifndef DLT_AMX_WIDEN16 /* a build that emulates the instructions defines it; gcc 12 makes five of the conversion */
#define DLT_AMX_WIDEN16(x)                                                                         \
    ((DltU16)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(x))))
#endif

/* Rows 2p and 2p + 1 of 16 columns as pairs. */
DLT_AMX DLT_INLINE void pairs(const uint16_t *x, int64_t row, DltU16 y[16])
{
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++)
        y[p] = DLT_AMX_WIDEN16(x + 2 * p * row) | DLT_AMX_WIDEN16(x + (2 * p + 1) * row) << 16;
}

DLT_AMX DLT_INLINE void some_pairs(const DltAmxPairs *k, int64_t channels)
{
    uint16_t *out = k->out;
    for (int64_t j = 0; j < k->n; j++)
        for (int64_t c = 0; c < channels; c += 16, out += DLT_AMX_DEPTH)
            *(DltU16 *)out = DLT_AMX_WIDEN16(k->even + j * k->step + c) |
                             DLT_AMX_WIDEN16(k->odd + j * k->step + c) << 16;
}

DLT_AMX void dlt_amx_pairs(const DltAmxPairs *k)
{
    if (k->channels == 16)
        some_pairs(k, 16);
    else if (k->channels == 32)
        some_pairs(k, 32);
    else
        some_pairs(k, k->channels);
}

DLT_INLINE void read(const uint16_t *x, int64_t row, DltU16 y[16])
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        y[i] = *(const DltU16 *)(x + i * row);
}

DLT_INLINE void write(const DltU16 y[16], uint16_t *tile)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        *(DltU16 *)(tile + i * DLT_AMX_DEPTH) = y[i];
}

DLT_AMX static void pack_a(const uint16_t *x, int64_t row, uint16_t *tile)
{
    DltU16 y[16];
    read(x, row, y);
    write(y, tile);
}

DLT_AMX static void pack_a_turn(const uint16_t *x, int64_t row, uint16_t *tile)
{
    DltU16 y[16], z[16];
    pairs(x, row, y);
    dlt_u16_turn(y, z);
    write(z, tile);
}

DLT_AMX static void pack_b(const uint16_t *x, int64_t row, uint16_t *tile)
{
    DltU16 y[16];
    pairs(x, row, y);
    write(y, tile);
}

DLT_AMX static void pack_b_turn(const uint16_t *x, int64_t row, uint16_t *tile)
{
    DltU16 y[16], z[16];
    read(x, row, y);
    dlt_u16_turn(y, z);
    write(z, tile);
}

void dlt_amx_pack(DltAmxForm form, const uint16_t *x, int64_t row, int64_t n_row, int64_t n_col,
                  uint16_t *tile)
{
    static const struct {
        void (*pack)(const uint16_t *x, int64_t row, uint16_t *tile);
        int64_t rows, cols;
    } table[DLT_N_AMX_FORM] = {
        [DLT_AMX_A] = {pack_a, 16, 32},
        [DLT_AMX_A_TURN] = {pack_a_turn, 32, 16},
        [DLT_AMX_B] = {pack_b, 32, 16},
        [DLT_AMX_B_TURN] = {pack_b_turn, 16, 32},
    };
    int64_t rows = table[form].rows, cols = table[form].cols;
    if (n_row >= rows && n_col >= cols) {
        table[form].pack(x, row, tile);
        return;
    }
    _Alignas(64) uint16_t copy[DLT_AMX_TILE] = {0};
    if (n_row > rows) n_row = rows;
    if (n_col > cols) n_col = cols;
    for (int64_t i = 0; i < n_row && n_col > 0; i++)
        memcpy(copy + i * cols, x + i * row, (size_t)n_col * sizeof *copy);
    table[form].pack(copy, cols, tile);
}

/* ---- rounding ---- */

#ifndef DLT_AMX_ROUND32 /* a build that emulates the instructions defines it */
#define DLT_AMX_ROUND32(x, y)                                                                      \
    _mm512_storeu_si512(                                                                           \
        y, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps((x) + 16), _mm512_loadu_ps(x)))
#endif

DLT_AMX void dlt_amx_round(const float *x, int64_t x_row, uint16_t *y, int64_t y_row, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, x += x_row, y += y_row)
        DLT_AMX_ROUND32(x, y);
}

DLT_AMX void dlt_amx_widen(const uint16_t *x, int64_t x_row, float *y, int64_t y_row, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, x += x_row, y += y_row)
        for (int i = 0; i < 2 * DLT_AMX_ROWS; i += DLT_AMX_ROWS)
            *(DltU16 *)(void *)(y + i) = DLT_AMX_WIDEN16(x + i) << 16;
}

/* ---- products ---- */

/* The tile registers of a block: sums 0 to 3, A in 4 and 5, B in 6 and 7. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tiles = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

DLT_AMX void dlt_amx_begin(void)
{
    _tile_loadconfig(&tiles);
}

DLT_AMX void dlt_amx_end(void)
{
    _tile_release();
}

/* What was packed is in memory, as far as the compiler goes: the tile instructions don't say what they read. */
#define SETTLE __asm__ volatile("" ::: "memory")

/* One step of one or two tiles of A's rows and of B's columns: constants where it is called. */
DLT_AMX __attribute__((always_inline)) static inline void
step(const DltAmxBlock *k, const char *a, const char *b, bool two_m, bool two_n)
{
    _tile_loadd(4, a, k->a_row);
    _tile_loadd(6, b, k->b_row);
    _tile_dpbf16ps(0, 4, 6);
    if (two_n) _tile_loadd(7, b + k->b_half, k->b_row);
    if (two_n) _tile_dpbf16ps(1, 4, 7);
    if (two_m) _tile_loadd(5, a + k->a_half, k->a_row);
    if (two_m) _tile_dpbf16ps(2, 5, 6);
    if (two_m && two_n) _tile_dpbf16ps(3, 5, 7);
}

DLT_AMX __attribute__((always_inline)) static inline void block(const DltAmxBlock *k, float *c,
                                                                int64_t ldc, bool two_m, bool two_n)
{
    const char *a = k->a, *b = k->b;
    int64_t group = 0;
    do {
        for (int64_t i = 0; i + 1 < k->steps; i++, a += k->a_step, b += k->b_step)
            step(k, a, b, two_m, two_n);
        step(k, a - k->a_back, b, two_m, two_n);
        a += k->a_group - (k->steps - 1) * k->a_step;
        b += k->b_step;
    } while (++group < k->groups);
    _tile_stored(0, c, ldc * 4);
    if (two_n) _tile_stored(1, c + 16, ldc * 4);
    if (two_m) _tile_stored(2, c + 16 * ldc, ldc * 4);
    if (two_m && two_n) _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
}

DLT_AMX void dlt_amx_block(const DltAmxBlock *k, float *c, int64_t ldc, bool add)
{
    SETTLE;
    if (add) {
        _tile_loadd(0, c, ldc * 4);
        if (k->n_tiles == 2) _tile_loadd(1, c + 16, ldc * 4);
        if (k->m_tiles == 2) _tile_loadd(2, c + 16 * ldc, ldc * 4);
        if (k->m_tiles == 2 && k->n_tiles == 2) _tile_loadd(3, c + 16 * ldc + 16, ldc * 4);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    if (k->m_tiles == 2 && k->n_tiles == 2)
        block(k, c, ldc, true, true);
    else if (k->n_tiles == 2)
        block(k, c, ldc, false, true);
    else if (k->m_tiles == 2)
        block(k, c, ldc, true, false);
    else
        block(k, c, ldc, false, false);
    SETTLE;
}
