/* The table of element types. */
#include "base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
} types[DLT_N_DTYPE] = {
    [DLT_F32] = {"f32", sizeof(DltReal), true},
    [DLT_BF16] = {"bf16", 2, true},
    [DLT_F16] = {"f16", 2, true},
    [DLT_F8E4M3] = {"f8e4m3", 1, true},
    [DLT_F8E5M2] = {"f8e5m2", 1, true},
    [DLT_F64] = {"f64", 8, true},
    [DLT_I32] = {"i32", 4, false},
    [DLT_I64] = {"i64", 8, false},
    [DLT_U8] = {"u8", 1, false},
};

size_t dlt_dtype_bytes(DltDtype dtype)
{
    DLT_BUG_ON((unsigned)dtype >= DLT_N_DTYPE);
    return types[dtype].bytes;
}

const char *dlt_dtype_name(DltDtype dtype)
{
    DLT_BUG_ON((unsigned)dtype >= DLT_N_DTYPE);
    return types[dtype].name;
}

bool dlt_dtype_is_float(DltDtype dtype)
{
    DLT_BUG_ON((unsigned)dtype >= DLT_N_DTYPE);
    return types[dtype].is_float;
}
