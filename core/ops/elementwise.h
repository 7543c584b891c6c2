/* Elementwise ops.
 *   unary_fwd: x -> y = f(x), any shape and layout
 *   unary_bwd: dy, s -> dx = dy * f'(.), where s is x or y as dlt_unary_saves_y says
 *   act_bwd: dy, x [.., C] -> dx = dy f'(x), y = f(x) when attr.remake, db [C] = column sums of dx when
 *     attr.sums (made by the fuse pass of unary_bwd, so that y need not be kept and dx is not read again)
 *   binary: a, b -> c = a (op) b; shapes equal, or each dim of b equal to a's or 1 (broadcast; same rank)
 *   bias_fwd: x, b[C] -> y = x + b along `axis`;  bias_bwd: dy -> db[C] = sum over all other axes
 *   reduce: x -> y, sum or mean over the axes whose bit is set in `axes`, kept as size 1
 *   cast: x -> y in dtype;  copy: x -> y;  reorder: x -> y in another layout */
#ifndef DLT_ELEMENTWISE_H
#define DLT_ELEMENTWISE_H

#include "graph/build.h"

/* name, saves y instead of x, formula */
#define DLT_UNARY_TABLE(F)                                                                         \
    F(RELU, "relu", 1)                                                                             \
    F(LEAKY_RELU, "leaky_relu", 0) /* x > 0 ? x : alpha x */                                       \
    F(GELU, "gelu", 0)             /* x Phi(x), exact */                                           \
    F(GELU_TANH, "gelu_tanh", 0)   /* tanh form, Hendrycks & Gimpel 2016 */                        \
    F(SILU, "silu", 0)                                                                             \
    F(SIGMOID, "sigmoid", 1)                                                                       \
    F(TANH, "tanh", 1)                                                                             \
    F(SOFTPLUS, "softplus", 0) /* log(1 + exp(alpha x)) / alpha, linear above alpha x > 20 */      \
    F(ELU, "elu", 0)           /* x > 0 ? x : alpha (exp(x) - 1) */                                \
    F(SCALE, "scale", 0)       /* alpha x; 0 when alpha is 0, whatever x is */                     \
    F(EXP, "exp", 1)                                                                               \
    F(SQUARE, "square", 0)                                                                         \
    F(SQRT, "sqrt", 1)                                                                             \
    F(ABS, "abs", 0)

typedef enum DltUnaryFn {
    DLT_FN_NONE = 0,
#define F(id, name, y) DLT_FN_##id,
    DLT_UNARY_TABLE(F)
#undef F
        DLT_N_FN
} DltUnaryFn;

typedef struct DltUnary {
    DltUnaryFn fn;
    double alpha;
} DltUnary;

/* x is what dlt_unary_saves_y says, so remake needs a function that saves x. */
typedef struct DltActBwd {
    DltUnary unary;
    bool remake, sums;
} DltActBwd;

typedef enum DltBinaryFn { DLT_ADD, DLT_SUB, DLT_MUL, DLT_DIV, DLT_N_BINARY } DltBinaryFn;
typedef struct DltBinary {
    DltBinaryFn fn;
} DltBinary;

typedef struct DltBias {
    int axis;
    int64_t channels; /* bias_bwd: C */
} DltBias;

typedef struct DltReduce {
    uint32_t axes;
    bool mean;
} DltReduce;

typedef struct DltCast {
    DltDtype dtype;
} DltCast;
typedef struct DltReorder {
    DltLayout layout;
} DltReorder;

bool dlt_unary_saves_y(DltUnaryFn fn);
void dlt_act_bwd_text(const void *attr, char *buf, size_t size); /* DltActBwd, for dumps */
const char *dlt_unary_name(DltUnaryFn fn);

DltTensor *dlt_unary(DltBuild *b, DltTensor *x, DltUnaryFn fn, double alpha);
DltTensor *dlt_unary_grad(DltBuild *b, DltTensor *dy, DltTensor *saved, DltUnaryFn fn,
                          double alpha);
DltTensor *dlt_binary(DltBuild *b, DltTensor *a, DltTensor *c, DltBinaryFn fn);
DltTensor *dlt_add(DltBuild *b, DltTensor *a, DltTensor *c);
DltTensor *dlt_mul(DltBuild *b, DltTensor *a, DltTensor *c);
DltTensor *dlt_bias(DltBuild *b, DltTensor *x, DltTensor *bias, int axis);
DltTensor *dlt_bias_grad(DltBuild *b, DltTensor *dy, int axis); /* db [C] */
DltTensor *dlt_reduce(DltBuild *b, DltTensor *x, uint32_t axes, bool mean);
DltTensor *dlt_copy(DltBuild *b, DltTensor *x);
DltTensor *dlt_cast(DltBuild *b, DltTensor *x, DltDtype dtype);
DltTensor *dlt_reorder(DltBuild *b, DltTensor *x, DltLayout layout);

#endif
