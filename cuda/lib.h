/* Opening a vendor library when a plan first needs it. The program links none of them, so a run
 * that uses no convolution never loads cuDNN. */
#ifndef DLT_CUDA_LIB_H
#define DLT_CUDA_LIB_H

#include "cuda/cuda.h"

/* dlopen of "<name>.so.<major>" by the loader's rules, then where CUDA is commonly installed. NULL
 * with the loader's reasons in why_not. */
void *dlt_cuda_library(const char *name, int major, DltWhy *why_not);
/* Stores the symbol's address in *fn (a function pointer); false with the reason when it is absent.
 */
bool dlt_cuda_symbol(void *library, const char *name, void *fn, DltWhy *why_not);

#endif
