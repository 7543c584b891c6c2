/* Tensor metadata. Memory is the plan's business, so there is no data pointer. */
#ifndef DLT_TENSOR_H
#define DLT_TENSOR_H

#include "base/dtype.h"
#include "base/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DLT_MAX_IN = 8, DLT_MAX_OUT = 4, DLT_LANES = 3 };

/* What a tensor is for; also the index of the memory region that holds it. */
typedef enum DltRole { DLT_INPUT, DLT_PARAM, DLT_GRAD, DLT_STATE, DLT_TEMP, DLT_REGIONS } DltRole;

/* Physical order of a rank-4 tensor whose dims are always N, C, H, W. Everything else is PLAIN
 * (row-major). NCHW8C/NCHW16C: [N][C/8][H][W][8], C a multiple of the block. */
typedef enum DltLayout { DLT_PLAIN, DLT_NHWC, DLT_NCHW8C, DLT_NCHW16C } DltLayout;

/* How a parameter or state starts. Fans count as in PyTorch: fan_in = prod(shape[1..]). */
typedef enum DltInitKind {
    DLT_INIT_ZEROS,
    DLT_INIT_ONES,
    DLT_INIT_CONSTANT /* a */,
    DLT_INIT_UNIFORM /* [a, b) */,
    DLT_INIT_NORMAL /* mean a, std b */,
    DLT_INIT_TRUNC_NORMAL /* mean a, std b, cut at 2 std */,
    DLT_INIT_SCALED /* mean 0, std b / sqrt(residuals of the model): NORMAL once they are counted */
    ,
    DLT_INIT_VALUES /* values[n], broadcast when n is 1 */
} DltInitKind;
typedef struct DltInit {
    DltInitKind kind;
    double a, b;
    const double *values; /* arena */
    int64_t n_values;
} DltInit;

typedef struct DltNode DltNode;
typedef struct DltTensor DltTensor;
struct DltTensor {
    const char *name; /* "block3.mlp.fc.weight": checkpoint key and error label */
    DltShape shape;
    DltDtype dtype;
    DltLayout layout;
    DltRole role;
    int id;              /* index into per-tensor tables of the graph */
    DltNode *producer;   /* NULL for inputs, parameters and states */
    DltTensor *view_of;  /* shares the memory of this tensor (never itself a view), or NULL */
    int64_t view_offset; /* in elements of dtype */
    const DltInit *init; /* PARAM and STATE */
    bool saved;     /* belongs into checkpoints under its name (slabs do not, their views do) */
    bool residual;  /* a residual's input or sum: recompute: blocks keeps it */
    bool trainable; /* PARAM: has a gradient and an update */
    DltTensor *low; /* PARAM: a copy in the compute type that nodes read, or NULL. Updates keep it;
                       whoever writes the parameter from the host writes the copy too */
};

#ifdef __cplusplus
}
#endif

#endif
