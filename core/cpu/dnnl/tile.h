/* The register tile under the plug-in's own products: up to 6 rows of 16 columns, twelve sums of eight, written
 * so that the compiler keeps them in registers. Measured on a Zen 3 core: 98 to 102 of 102 GFLOP/s from 32
 * terms on. To be inlined into functions marked DLT_CLONES. Each sum runs over k in order, and
 * is then stored or added. */
#ifndef DLT_TILE_H
#define DLT_TILE_H

#include "cpu/dnnl/fast.h"

#define DLT_INLINE static inline __attribute__((always_inline))

/* Eight neighbours; the memory need not be aligned. */
typedef float DltV8 __attribute__((vector_size(32), aligned(4), may_alias));

typedef int32_t DltI8 __attribute__((vector_size(32), aligned(4), may_alias));

/* v = max(v, 0); NaN stays. */
DLT_INLINE void dlt_v8_relu(DltV8 *v)
{
    *v = (DltV8)((DltI8)*v & ~(*v <= 0.0F));
}

typedef uint32_t DltU8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t DltH8 __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint8_t DltB8 __attribute__((vector_size(8), aligned(1), may_alias));

/* Elements i to i + 7 of f32 or (low) bf16. */
DLT_INLINE void dlt_v8_load(const void *x, int64_t i, bool low, DltV8 *v)
{
    if (low)
        *v = (DltV8)(__builtin_convertvector(*(const DltH8 *)((const uint16_t *)x + i), DltU8)
                     << 16);
    else
        *v = *(const DltV8 *)((const float *)x + i);
}

/* The same back; bf16 rounds to nearest even, NaN stays one. */
DLT_INLINE void dlt_v8_store(void *x, int64_t i, bool low, const DltV8 *v)
{
    if (!low) {
        *(DltV8 *)((float *)x + i) = *v;
        return;
    }
    DltU8 u = (DltU8)*v, nan = (DltU8)(*v != *v);
    DltU8 rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
    *(DltH8 *)((uint16_t *)x + i) =
        __builtin_convertvector((rounded & ~nan) | (quiet & nan), DltH8);
}

/* The same of numbers that are bf16 already. */
DLT_INLINE void dlt_v8_cut(void *x, int64_t i, bool low, const DltV8 *v)
{
    if (low)
        *(DltH8 *)((uint16_t *)x + i) = __builtin_convertvector((DltU8)*v >> 16, DltH8);
    else
        *(DltV8 *)((float *)x + i) = *v;
}

/* Sixteen of them, for AVX-512. */
typedef float DltV16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t DltI16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t DltU16 __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t DltH16 __attribute__((vector_size(32), aligned(2), may_alias));

DLT_INLINE void dlt_v16_relu(DltV16 *v)
{
    *v = (DltV16)((DltI16)*v & ~(*v <= 0.0F));
}

DLT_INLINE void dlt_v16_load(const void *x, int64_t i, bool low, DltV16 *v)
{
    if (low)
        *v = (DltV16)(__builtin_convertvector(*(const DltH16 *)((const uint16_t *)x + i), DltU16)
                      << 16);
    else
        *v = *(const DltV16 *)((const float *)x + i);
}

DLT_INLINE void dlt_v16_store(void *x, int64_t i, bool low, const DltV16 *v)
{
    if (!low) {
        *(DltV16 *)((float *)x + i) = *v;
        return;
    }
    DltU16 u = (DltU16)*v, nan = (DltU16)(*v != *v);
    DltU16 rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
    *(DltH16 *)((uint16_t *)x + i) =
        __builtin_convertvector((rounded & ~nan) | (quiet & nan), DltH16);
}

DLT_INLINE void dlt_v16_cut(void *x, int64_t i, bool low, const DltV16 *v)
{
    if (low)
        *(DltH16 *)((uint16_t *)x + i) = __builtin_convertvector((DltU16)*v >> 16, DltH16);
    else
        *(DltV16 *)((float *)x + i) = *v;
}

#define DLT_MIX(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)

/* y[c][r] = x[r][c] of 16 x 16 numbers: pairs, fours, then quarters of the vectors change places; x is used up. */
DLT_INLINE void dlt_u16_turn(DltU16 x[16], DltU16 y[16])
{
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        y[i] = DLT_MIX(x[i], x[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        y[i + 1] =
            DLT_MIX(x[i], x[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            DltU16 a = y[i + k], b = y[i + 2 + k];
            x[i + 2 * k] = DLT_MIX(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            x[i + 2 * k + 1] =
                DLT_MIX(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
        /* x[4q + c], quarter l: column 4l + c of rows 4q to 4q + 3 */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++)
#pragma GCC unroll 2
        for (int l = 0; l < 2; l++) {
            DltU16 a = x[c], b = x[4 + c], d = x[8 + c], e = x[12 + c];
            DltU16 top =
                l ? DLT_MIX(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31)
                  : DLT_MIX(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
            DltU16 low =
                l ? DLT_MIX(d, e, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31)
                  : DLT_MIX(d, e, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
            y[8 * l + c] =
                DLT_MIX(top, low, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
            y[8 * l + 4 + c] =
                DLT_MIX(top, low, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        }
}

enum { DLT_TILE_ROWS = 6, DLT_TILE_TALL = 12, DLT_TILE_COLS = 16 };

/* a(i,k) = a[i row + k step] */
typedef struct DltTileA {
    const float *a;
    int64_t row, step;
} DltTileA;

/* Where sums go: stored, or added to what is there. */
typedef struct DltTileC {
    float *c;
    int64_t row;
    bool add;
} DltTileC;

/* c[rows][16] (+)= sum over k < kc of a(i,k) b[k ldb + 0..15], `rows` known to the compiler. */
DLT_INLINE void dlt_tile_rows(int rows, DltTileA a, const float *b, int64_t ldb, int64_t kc,
                              DltTileC to)
{
    DltV8 l[DLT_TILE_ROWS], r[DLT_TILE_ROWS];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        l[i] = r[i] = (DltV8){0};
    for (int64_t k = 0; k < kc; k++) {
        DltV8 x = *(const DltV8 *)(b + k * ldb), y = *(const DltV8 *)(b + k * ldb + 8);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            float s = a.a[i * a.row + k * a.step];
            l[i] += x * s;
            r[i] += y * s;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        DltV8 *left = (DltV8 *)(to.c + i * to.row), *right = left + 1;
        if (to.add) l[i] += *left, r[i] += *right;
        *left = l[i];
        *right = r[i];
    }
}

/* The same with sixteen columns in one vector and up to 12 rows: for AVX-512, whose 32 registers hold them. */
DLT_INLINE void dlt_tile_tall(int rows, DltTileA a, const float *b, int64_t ldb, int64_t kc,
                              DltTileC to)
{
    DltV16 sum[DLT_TILE_TALL];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
        sum[i] = (DltV16){0};
    for (int64_t k = 0; k < kc; k++) {
        DltV16 x = *(const DltV16 *)(b + k * ldb);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++)
            sum[i] += x * a.a[i * a.row + k * a.step];
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        DltV16 *at = (DltV16 *)(to.c + i * to.row);
        if (to.add) sum[i] += *at;
        *at = sum[i];
    }
}

/* m rows: twelve at a time, then eight, four, and what is left one by one. */
DLT_INLINE void dlt_tile_tall_column(int64_t m, DltTileA a, const float *b, int64_t ldb, int64_t kc,
                                     DltTileC to)
{
    for (int64_t row = 0, rows; row < m; row += rows) {
        DltTileA at = {a.a + row * a.row, a.row, a.step};
        DltTileC part = {to.c + row * to.row, to.row, to.add};
        rows = m - row >= 12 ? 12 : m - row >= 8 ? 8 : m - row >= 4 ? 4 : 1;
        if (rows == 12)
            dlt_tile_tall(12, at, b, ldb, kc, part);
        else if (rows == 8)
            dlt_tile_tall(8, at, b, ldb, kc, part);
        else if (rows == 4)
            dlt_tile_tall(4, at, b, ldb, kc, part);
        else
            dlt_tile_tall(1, at, b, ldb, kc, part);
    }
}

/* The same for m rows: as few tiles as may be, of nearly equal height. */
DLT_INLINE void dlt_tile_column(int64_t m, DltTileA a, const float *b, int64_t ldb, int64_t kc,
                                DltTileC to)
{
    int64_t tiles = (m + DLT_TILE_ROWS - 1) / DLT_TILE_ROWS;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t row = t * m / tiles, rows = (t + 1) * m / tiles - row;
        DltTileA at = {a.a + row * a.row, a.row, a.step};
        DltTileC part = {to.c + row * to.row, to.row, to.add};
        if (rows == 6)
            dlt_tile_rows(6, at, b, ldb, kc, part);
        else if (rows == 5)
            dlt_tile_rows(5, at, b, ldb, kc, part);
        else if (rows == 4)
            dlt_tile_rows(4, at, b, ldb, kc, part);
        else if (rows == 3)
            dlt_tile_rows(3, at, b, ldb, kc, part);
        else if (rows == 2)
            dlt_tile_rows(2, at, b, ldb, kc, part);
        else
            dlt_tile_rows(1, at, b, ldb, kc, part);
    }
}

#endif
