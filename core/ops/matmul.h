/* matmul: c = epilogue(op(a) op(b)).
 *   a [.., M, K] (ta: [.., K, M]), b [K, N] (tb: [N, K]) or batched [.., K, N] -> c [.., M, N]
 * When b has rank 2 the leading dims of a fold into M. Otherwise both have the same rank and leading
 * dims, and so it always is with ta: the weight gradient of folded operands, a [R, M], b [R, N] ->
 * c [M, N], is made over views of rank 2.
 * Epilogue, in this order: + bias[N] (in[2]); out[1] = value here when save_pre; act(.);
 * multiply by act_grad'(in[3]) (the data gradient through an activation; in[3] has c's shape and is
 * what dlt_unary_saves_y says). The fuse pass sets them; layers do not.
 * linear_act_bwd: dz [.., K], w [K, N], x [.., N] -> what act_bwd (elementwise.h) makes of dz w and x. Made by
 * the fuse pass, where the device has kernels for it; attributes DltActBwd. */
#ifndef DLT_MATMUL_H
#define DLT_MATMUL_H

#include "ops/elementwise.h"

typedef struct DltEpilogue {
    DltUnary act;      /* DLT_FN_NONE: none */
    DltUnary act_grad; /* DLT_FN_NONE: none */
    bool save_pre;
} DltEpilogue;

typedef struct DltMatmul {
    bool ta, tb;
    DltEpilogue ep;
} DltMatmul;

/* The problem as kernels see it: batch x (M x K) (K x N), row-major with leading dimensions. */
typedef struct DltGemm {
    int64_t batch, m, n, k;
} DltGemm;
DltGemm dlt_matmul_gemm(const DltNode *n);
DltGemm dlt_linear_gemm(const DltNode *n);                            /* of linear_act_bwd */
void dlt_epilogue_text(const DltEpilogue *e, char *buf, size_t size); /* words for dumps */

DltTensor *dlt_matmul(DltBuild *b, DltTensor *a, DltTensor *c, bool ta, bool tb);
/* y[.., units] = x[.., C] w[units, C]^T + bias; makes parameters "<name>.weight" and "<name>.bias". */
DltTensor *dlt_linear(DltBuild *b, const char *name, DltTensor *x, int64_t units, bool bias);

#endif
