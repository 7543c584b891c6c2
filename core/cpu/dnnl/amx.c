/* Packing into tiles, and blocks of up to four tiles of sums: two tiles of A meet two of B, so that each tile that is
 * loaded is used twice. */
#include "cpu/dnnl/amx.h"

#include <immintrin.h>

typedef uint32_t U16 __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t H16 __attribute__((vector_size(32), aligned(2), may_alias));

bool dlt_amx_there(void)
{
    return dlt_dnnl_has_amx();
}

/* ---- packing ---- */

#define MIX(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#define TURN __attribute__((always_inline)) static inline

/* y[c][r] = x[r][c] of 16 x 16 numbers of 32 bits: pairs, fours, then quarters of the vectors change places. */
TURN void turn(U16 x[16], U16 y[16])
{
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = MIX(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        y[i + 1] = MIX(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            x[i + 2 * k] = MIX(y[i + k], y[i + 2 + k], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12,
                               13, 28, 29);
            x[i + 2 * k + 1] = MIX(y[i + k], y[i + 2 + k], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26,
                                   27, 14, 15, 30, 31);
        }
        /* x[4q + c], quarter l: column 4l + c of rows 4q to 4q + 3 */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        U16 a = MIX(x[c], x[4 + c], 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        U16 b = MIX(x[8 + c], x[12 + c], 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        U16 d = MIX(x[c], x[4 + c], 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        U16 e =
            MIX(x[8 + c], x[12 + c], 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
        y[c] = MIX(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        y[4 + c] = MIX(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        y[8 + c] = MIX(d, e, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        y[12 + c] = MIX(d, e, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
}

/* Rows 2p and 2p + 1 of 16 columns as pairs. */
TURN void pairs(const uint16_t *x, int64_t row, U16 y[16])
{
#pragma GCC unroll 16
    for (int p = 0; p < 16; p++) {
        H16 even = *(const H16 *)(x + 2 * p * row), odd = *(const H16 *)(x + (2 * p + 1) * row);
        y[p] = __builtin_convertvector(even, U16) | __builtin_convertvector(odd, U16) << 16;
    }
}

TURN void read(const uint16_t *x, int64_t row, U16 y[16])
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        y[i] = *(const U16 *)(x + i * row);
}

TURN void write(const U16 y[16], uint16_t *tile)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        *(U16 *)(tile + i * DLT_AMX_DEPTH) = y[i];
}

DLT_CLONES static void pack_a(const uint16_t *x, int64_t row, uint16_t *tile)
{
    U16 y[16];
    read(x, row, y);
    write(y, tile);
}

DLT_CLONES static void pack_a_turn(const uint16_t *x, int64_t row, uint16_t *tile)
{
    U16 y[16], z[16];
    pairs(x, row, y);
    turn(y, z);
    write(z, tile);
}

DLT_CLONES static void pack_b(const uint16_t *x, int64_t row, uint16_t *tile)
{
    U16 y[16];
    pairs(x, row, y);
    write(y, tile);
}

DLT_CLONES static void pack_b_turn(const uint16_t *x, int64_t row, uint16_t *tile)
{
    U16 y[16], z[16];
    read(x, row, y);
    turn(y, z);
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

DLT_AMX static void block_2x2(const DltAmxBlock *k, float *c, int64_t ldc)
{
    const char *a = k->a, *b = k->b;
    for (int64_t i = 0; i < k->steps; i++, a += k->a_step, b += k->b_step) {
        _tile_loadd(4, a, k->a_row);
        _tile_loadd(6, b, k->b_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + k->b_half, k->b_row);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + k->a_half, k->a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + 16, ldc * 4);
    _tile_stored(2, c + 16 * ldc, ldc * 4);
    _tile_stored(3, c + 16 * ldc + 16, ldc * 4);
}

DLT_AMX static void block_1x2(const DltAmxBlock *k, float *c, int64_t ldc)
{
    const char *a = k->a, *b = k->b;
    for (int64_t i = 0; i < k->steps; i++, a += k->a_step, b += k->b_step) {
        _tile_loadd(4, a, k->a_row);
        _tile_loadd(6, b, k->b_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + k->b_half, k->b_row);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(1, c + 16, ldc * 4);
}

DLT_AMX static void block_2x1(const DltAmxBlock *k, float *c, int64_t ldc)
{
    const char *a = k->a, *b = k->b;
    for (int64_t i = 0; i < k->steps; i++, a += k->a_step, b += k->b_step) {
        _tile_loadd(4, a, k->a_row);
        _tile_loadd(6, b, k->b_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + k->a_half, k->a_row);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, c, ldc * 4);
    _tile_stored(2, c + 16 * ldc, ldc * 4);
}

DLT_AMX static void block_1x1(const DltAmxBlock *k, float *c, int64_t ldc)
{
    const char *a = k->a, *b = k->b;
    for (int64_t i = 0; i < k->steps; i++, a += k->a_step, b += k->b_step) {
        _tile_loadd(4, a, k->a_row);
        _tile_loadd(6, b, k->b_row);
        _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, c, ldc * 4);
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
        block_2x2(k, c, ldc);
    else if (k->n_tiles == 2)
        block_1x2(k, c, ldc);
    else if (k->m_tiles == 2)
        block_2x1(k, c, ldc);
    else
        block_1x1(k, c, ldc);
    SETTLE;
}
