/* Ops that move data.
 *   reshape (a view): x -> y of equal count
 *   concat: up to 8 inputs -> y along axis;  slice: x -> y = x[begin, begin + size) along axis
 *   slice_bwd: dy -> dx, zero outside (full = size of x along the axis)
 *   transpose: x -> y, y.dim[i] = x.dim[perm[i]]
 *   expand: x -> y of a shape of the same rank; axes of size 1 in x are repeated
 *   embedding_fwd: ids i32[..], w [V, D] -> y [.., D];  embedding_bwd: dy, ids, base [V, D] or NULL -> dw
 *     [V, D] (+ base: a tied table's other gradient, put there by the fuse pass), in a fixed order of
 *     additions */
#ifndef DLT_SHAPE_OPS_H
#define DLT_SHAPE_OPS_H

#include "graph/build.h"

typedef struct DltReshape {
    DltShape shape;
} DltReshape;
typedef struct DltConcat {
    int axis;
} DltConcat;
typedef struct DltSlice {
    int axis;
    int64_t begin, size, full;
} DltSlice;
typedef struct DltTranspose {
    int perm[DLT_MAX_RANK];
} DltTranspose;
typedef struct DltEmbedding {
    int64_t vocab;
} DltEmbedding;

DltTensor *dlt_reshape(DltBuild *b, DltTensor *x, DltShape shape); /* one dim may be -1 */
DltTensor *dlt_concat(DltBuild *b, DltTensor *const in[], int n_in, int axis); /* any n_in >= 1 */
DltTensor *dlt_slice(DltBuild *b, DltTensor *x, int axis, int64_t begin, int64_t size);
DltTensor *dlt_expand_axes(DltBuild *b, DltTensor *x, DltShape shape); /* attr: DltReshape */
DltTensor *dlt_transpose(DltBuild *b, DltTensor *x, const int perm[]);
DltTensor *dlt_embedding(DltBuild *b, DltTensor *ids, DltTensor *w);

#endif
