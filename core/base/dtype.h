/* Element types of tensors and the plain CPU kernels' scalar. */
#ifndef DLT_DTYPE_H
#define DLT_DTYPE_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum DltDtype {
    DLT_F32,
    DLT_BF16,
    DLT_F16,
    DLT_F8E4M3,
    DLT_F8E5M2,
    DLT_F64,
    DLT_I32,
    DLT_I64,
    DLT_U8,
    DLT_N_DTYPE
} DltDtype;

/* The scalar of the plain kernels. Compiled a second time with DLT_REAL_DOUBLE for the gradient
 * checks: there an f32 element *is* a double, and dlt_dtype_bytes(DLT_F32) is 8. */
#ifdef DLT_REAL_DOUBLE
typedef double DltReal;
#else
typedef float DltReal;
#endif

size_t dlt_dtype_bytes(DltDtype dtype);
const char *dlt_dtype_name(DltDtype dtype); /* "f32", "bf16", ... */
bool dlt_dtype_is_float(DltDtype dtype);

#ifdef __cplusplus
}
#endif

#endif
