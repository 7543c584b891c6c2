/* Matrix tiles (Intel AMX): one instruction adds the product of a tile of A, 16 rows of 32 bf16, and a tile of B, 32
 * rows of 16 columns, to 16 x 16 f32 sums. In memory a tile has 16 rows of 64 bytes; B's hold pairs: row p is
 * b[2p][0], b[2p+1][0], b[2p][1], ... Packing brings any order of operands into tiles; oneDNN has asked the system for
 * the tiles before dlt_amx_there is true. Intel, Architecture Instruction Set Extensions, chapter 3. */
#ifndef DLT_AMX_H
#define DLT_AMX_H

#include "cpu/dnnl/tile.h"

#ifndef DLT_AMX /* a build that emulates the instructions defines it */
#define DLT_AMX __attribute__((target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")))
#endif

enum {
    DLT_AMX_ROWS = 16,
    DLT_AMX_DEPTH = 32,                           /* terms of a sum in a tile */
    DLT_AMX_TILE = DLT_AMX_ROWS * DLT_AMX_DEPTH,  /* elements, 1 KiB */
    DLT_AMX_BLOCK = 2 * DLT_AMX_ROWS,             /* rows and columns of four tiles of sums */
    DLT_AMX_SUMS = DLT_AMX_BLOCK * DLT_AMX_BLOCK, /* f32 sums of a block, in rows of 32 */
};

/* How a tile is made of the matrix x[][], `row` elements from one row to the next. */
typedef enum DltAmxForm {
    DLT_AMX_A,      /* A from a[m][k]: tile[i][k] = x[i][k] */
    DLT_AMX_A_TURN, /* A from a[k][m]: tile[i][k] = x[k][i] */
    DLT_AMX_B,      /* B from b[k][n]: tile[p][j] = x[2p][j], x[2p + 1][j] */
    DLT_AMX_B_TURN, /* B from b[n][k]: tile[p][j] = x[j][2p], x[j][2p + 1] */
    DLT_N_AMX_FORM
} DltAmxForm;

bool dlt_amx_there(void);
/* One tile from the first n_row rows and n_col columns of x (of 16 x 32 or 32 x 16), zeros for what is missing. */
void dlt_amx_pack(DltAmxForm form, const uint16_t *x, int64_t row, int64_t n_row, int64_t n_col,
                  uint16_t *tile);

/* out[j] = neighbours of even[j] and odd[j], which lie `step` apart, in turn: n pairs of `channels`, a multiple of 16. */
typedef struct DltAmxPairs {
    const uint16_t *even, *odd;
    int64_t step, channels, n;
    uint16_t *out;
} DltAmxPairs;
void dlt_amx_pairs(const DltAmxPairs *k);

/* Sums of up to 32 x 32: c[32][32] (+)= A B over `steps` tiles of depth. Strides in bytes. */
typedef struct DltAmxBlock {
    const void *a, *b;
    int64_t a_row, a_step, a_half; /* to A's next row, next 32 terms, rows 16 to 31 */
    int64_t b_row, b_step, b_half; /* to B's next pair of rows, next 32 terms, columns 16 to 31 */
    int64_t steps;
    int64_t a_back; /* A's last step lies so much before its place; B is 0 for what was there */
    int64_t groups,
        a_group; /* 0, 1: one; else so many times `steps`, A's first ones lying a_group apart, B's in a row */
    int m_tiles, n_tiles; /* 1 or 2 of each */
} DltAmxBlock;
/* The whole block of A and B that are packed, two tiles a step. */
static inline DltAmxBlock dlt_amx_packed(const uint16_t *a, const uint16_t *b, int64_t steps)
{
    const int64_t tile = DLT_AMX_TILE * (int64_t)sizeof *a;
    return (DltAmxBlock){.a = a,
                         .b = b,
                         .a_row = 64,
                         .a_step = 2 * tile,
                         .a_half = tile,
                         .b_row = 64,
                         .b_step = 2 * tile,
                         .b_half = tile,
                         .steps = steps,
                         .m_tiles = 2,
                         .n_tiles = 2};
}
/* Between dlt_amx_begin and dlt_amx_end on the same thread. ldc in elements. */
void dlt_amx_block(const DltAmxBlock *k, float *c, int64_t ldc, bool add);
/* Rows of 32 numbers rounded to bf16, nearest even, subnormal ones to 0; rows lie x_row and y_row elements apart. */
void dlt_amx_round(const float *x, int64_t x_row, uint16_t *y, int64_t y_row, int64_t rows);
/* Rows of 32 bf16 widened. */
void dlt_amx_widen(const uint16_t *x, int64_t x_row, float *y, int64_t y_row, int64_t rows);
/* Tiles are the thread's until the end; other users of them (oneDNN) set up their own. */
void dlt_amx_begin(void);
void dlt_amx_end(void);

#endif
