/* The plug-in's second exported symbol, for `dltrain devices`. */
#ifndef DLT_CUDA_DEVICES_H
#define DLT_CUDA_DEVICES_H

#include "cuda/cuda.h"

extern const DltBackend dlt_backend_cuda_plugin; /* backend.c */

/* Prints versions, cards and a short copy and product test to out. DEVICE with the reason when
 * there is no usable card. o->index is ignored. */
DltStatus dlt_cuda_report(DltArena *arena, const DltDeviceOptions *o, FILE *out, DltErr *err);
typedef DltStatus (*DltCudaReport)(DltArena *arena, const DltDeviceOptions *o, FILE *out,
                                   DltErr *err);

#endif
