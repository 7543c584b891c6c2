/* What becomes of a block of 32 x 32 sums that the matrix tiles made: the epilogue of matmul, and its place in c, whose
 * values, as those of the other operands, are f32 or bf16. */
#ifndef DLT_SUMS_H
#define DLT_SUMS_H

#include "cpu/dnnl/amx.h"

/* Values in the graph, f32 or bf16. */
typedef struct DltValues {
    void *at; /* NULL: none */
    bool low;
} DltValues;

typedef struct DltSums {
    DltEpilogue ep;
    int64_t n;   /* columns of c */
    bool turned; /* sums are those of c turned */
    bool add;    /* to what c holds */
    DltValues bias, saved, c, pre;
} DltSums;

/* The call's c, bias, and what else its epilogue reads and writes. */
DltSums dlt_sums_of(const DltCall *c, bool turned);

/* Where sums lie among all of them (turned: in c turned), and how much of the block is there. */
typedef struct DltPiece {
    int64_t row, col, rows, cols;
} DltPiece;

/* Block (i, j) of rows x cols sums. */
DltPiece dlt_sums_piece(int64_t i, int64_t j, int64_t rows, int64_t cols);
/* True where sums may be made in c itself: whole tiles of f32 without an epilogue. */
bool dlt_sums_are_direct(const DltSums *s, const DltPiece *at);
/* The element of c where the piece begins; not for turned sums. */
int64_t dlt_sums_place(const DltSums *s, const DltPiece *at);
/* c's piece = epilogue(sums, + c where that is asked for); sums [32][32] are used up. */
void dlt_sums_end(const DltSums *s, const DltPiece *at, float *sums);

#endif
