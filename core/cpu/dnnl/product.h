/* What the own f32 products share: the problem as their tasks see it, the epilogue of a strip of columns, and (with
 * attention) packed strips and their products with rows. */
#ifndef DLT_PRODUCT_H
#define DLT_PRODUCT_H

#include "cpu/dnnl/tile.h"

typedef struct DltProductTask {
    const DltMatmul *attr;
    DltGemm g;
    const float *a, *b, *bias, *saved;
    float *c, *pre;
    int64_t bands, strips; /* of rows and of columns */
} DltProductTask;

DltProductTask dlt_product_of(const DltCall *c);
/* For AVX-512: where no operand or a is turned oneDNN's products reach 330 to 370 GFLOP/s on two cores that the tiles
 * here take to 240 to 330; with the weight turned it is the other way round. */
bool dlt_product_leaves(const DltNode *n);
/* True where one thread is done before another has begun: two starts of a team cost 6 to 8 us. */
bool dlt_product_is_small(const DltGemm *g);
/* Epilogue of c's columns [col, col + n) in `rows` rows, the first of which begins at `offset` of c (and saved, pre). */
void dlt_product_epilogue(const DltProductTask *p, int64_t offset, int64_t rows, int64_t col,
                          int64_t n);

enum { DLT_STRIP_VECTORS = 3, DLT_STRIP_ROWS = 8, DLT_STRIP_LANES = 16 };

/* A piece of b: rows [k, k + kc), columns [col, col + n), packed to out[kc][width], width whole vectors of 16, zeros
 * behind n. b's rows are `row` apart; turned: b[col][k] in memory. */
typedef struct DltStrip {
    const float *b;
    int64_t k, kc, col, n, width;
    float *out;
} DltStrip;
void dlt_strip_pack(const DltStrip *s, int64_t row, bool turned);

/* Rows of a against a packed strip of 16, 32 or 48 columns: c (+)= a b, of which n columns are written. */
typedef struct DltColumn {
    DltTileA a;
    const float *b;
    int64_t rows, kc, n, ldc, group; /* from a's row 0 to row DLT_STRIP_ROWS */
    float *c;
    bool add;
} DltColumn;
/* For AVX-512. */
void dlt_strip_columns(const DltColumn *k, int64_t width);
/* n = width here; on any processor with AVX2. */
void dlt_strip_multiply(const DltColumn *k, int64_t width);

#endif
