/* The plug-in's only door to oneDNN: onednn.c alone knows the library's API version. A DltDnnl is one
 * prepared primitive whose arguments are numbered slots; filters that the library wants in its own
 * order are reordered inside the booked scratch. */
#ifndef DLT_ONEDNN_H
#define DLT_ONEDNN_H

#include "cpu/cpu.h"
#include "ops/conv.h"

typedef struct DltDnnl DltDnnl;

/* Engine, stream and threads, once per process. False with the reason. */
bool dlt_dnnl_open(int n_thread, DltWhy *why_not);
const char *dlt_dnnl_version(char text[64]);
/* 16 with AVX-512, 8 with AVX2, else 0: the channel block of the convolutions' layout. */
int dlt_dnnl_block(void);
bool dlt_dnnl_has_bf16(void);
bool dlt_dnnl_has_amx(void); /* matrix tiles */

typedef enum DltDnnlConvKind {
    DLT_DNNL_FWD,
    DLT_DNNL_BWD_DATA,
    DLT_DNNL_BWD_FILTER
} DltDnnlConvKind;

/* A convolution x [N,C,H,W] * w [K,C/g,R,S] -> y [N,K,P,Q]; x and y in their layouts, w plain.
 * FWD: slots x, w, bias (NULL pointer when !bias), y. BWD_DATA: y, w, -, x. BWD_FILTER: x, y, -, w.
 * NULL when the library offers only its reference code, with the reason. work_bytes: scratch. */
typedef struct DltDnnlConv {
    DltDnnlConvKind kind;
    const DltTensor *x, *w, *y;
    const DltConv *attr;
    const DltTensor *bias; /* f32, or bf16 with bf16 images; NULL: none */
    bool relu;
} DltDnnlConv;
DltDnnl *dlt_dnnl_conv(DltArena *arena, const DltDnnlConv *c, size_t *work_bytes, DltWhy *why_not);
/* The product of a matmul node: slots a, b, bias (NULL: none), c; relu as a post-op where pre is not saved. */
DltDnnl *dlt_dnnl_matmul(DltArena *arena, const DltNode *n, size_t *work_bytes, DltWhy *why_not);
/* arg[i] is the pointer of slot i. */
DltStatus dlt_dnnl_run(const DltDnnl *d, void *const arg[4], void *work, DltErr *err);

/* Row-major C[m,n] = op(A) op(B) in f32; single-threaded when called inside a parallel region. */
typedef struct DltSgemm {
    bool ta, tb;
    int64_t m, n, k, lda, ldb, ldc;
} DltSgemm;
bool dlt_dnnl_sgemm(const DltSgemm *g, const float *a, const float *b, float *c);

#endif
