/* What the own f32 products share: the problem as their tasks see it, and the epilogue of a strip of columns. */
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
/* Epilogue of c's columns [col, col + n) in `rows` rows, the first of which begins at `offset` of c (and saved, pre). */
void dlt_product_epilogue(const DltProductTask *p, int64_t offset, int64_t rows, int64_t col,
                          int64_t n);

#endif
