/* The blocked matrix product under matmul and convolution. Operands are packed into panels of
 * MR rows and NR columns, zero-padded at the edges, so one register tile serves every size; how an
 * operand is gathered (strides, or a convolution's windows) is the packer's business.
 * Method: Goto & van de Geijn 2008, without their outer cache blocking of B. */
#ifndef DLT_CPU_GEMM_H
#define DLT_CPU_GEMM_H

#include "cpu/plain.h"

enum {
    DLT_GEMM_MR = 6, /* with NR 16: twelve AVX2 accumulators */
    DLT_GEMM_NR = 16,
    DLT_GEMM_KC = 256, /* a tile's sum in DltReal; KC sums are added in double */
    DLT_GEMM_MC = 96,
    DLT_GEMM_NC = 128
};

/* out[MR][NR] = sum over k < kc of a[k][MR] b[k][NR] */
typedef void (*DltTile)(int64_t kc, const DltReal *a, const DltReal *b, DltReal *out);

/* An operand as rows (m of A, n of B) of k values each. pack writes out[k][width] for n_row <=
 * width rows and n_k values from (row, k) on, and zeros for the missing rows. */
typedef struct DltPanel DltPanel;
struct DltPanel {
    void (*pack)(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                 int64_t width, DltReal *out);
    const DltReal *x;
    int64_t row_stride, k_stride; /* dlt_pack_strided */
    const void *ctx;              /* other packers */
    int64_t batch, group;
};
void dlt_pack_strided(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                      int64_t width, DltReal *out);

/* n_batch products c[m][n] = A[m][k] B[k][n]. `batch` sets the operands and c of one of them;
 * `finish` gets finished pieces of rows while they are in the cache. */
typedef struct DltProduct DltProduct;
struct DltProduct {
    int64_t n_batch, m, n, k;
    DltTile tile;
    void (*batch)(const DltProduct *g, int64_t i, DltPanel *a, DltPanel *b, DltReal **c);
    void (*finish)(const DltProduct *g, int64_t i, int64_t row, int64_t col, DltReal *c, int64_t n);
    const DltCall *call;
};
void dlt_product_run(const DltProduct *g);

/* Tiles: the portable one, and the processor's own (NULL when it has none better). */
void dlt_tile_portable(int64_t kc, const DltReal *a, const DltReal *b, DltReal *out);
DltTile dlt_tile_simd(void);
/* accepts of the kernels that use it. */
bool dlt_tile_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not);

#endif
