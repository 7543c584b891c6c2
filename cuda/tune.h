/* Measured choices: which of a library's algorithms is the fastest for one problem on this device.
 * A choice is a line of text under a key that names everything it depends on (device, library
 * version, problem). Choices are remembered for the process; in the user's cache folder, so that the
 * next run measures nothing; and in checkpoints, so that a resumed run takes the same ones whatever
 * the cache says. */
#ifndef DLT_CUDA_TUNE_H
#define DLT_CUDA_TUNE_H

#include "cuda/cuda.h"

enum { DLT_TUNE_KEY = 384, DLT_TUNE_VALUE = 512 };

/* ---- choices.c ---- */

/* Takes the choices of the device's options and reads the cache file if there is one; damage is told and
 * left out. RESOURCE when memory is out. */
DltStatus dlt_tune_open(DltDevice *dev, DltErr *err);

/* The value stored under key, or NULL. It lives as long as the device's arena. Any thread. */
const char *dlt_tune_find(const DltDevice *dev, const char *key);
/* Stores a choice under key, in the cache file too (one that cannot be written is told in the debug log
 * only). False: another program was first, its choice is stored and found from now on; the caller takes that,
 * or puts its own again where the other's is of no use. */
bool dlt_tune_put(DltDevice *dev, const char *key, const char *value);
/* Choices that were found or put so far, as DltDeviceOptions.choices takes them. */
const char *dlt_tune_text(DltDevice *dev, DltArena *arena);

/* ---- tune.c ---- */

void dlt_tune_close(DltDevice *dev); /* the stop watch */

/* Scratch for measuring: device memory of `bytes` filled with random values of dtype. */
typedef struct DltTuneBuffer {
    size_t bytes;
    DltDtype dtype;
    void *ptr;
} DltTuneBuffer;
DltStatus dlt_tune_buffers(DltDevice *dev, DltTuneBuffer *buffer, int n, DltErr *err);
void dlt_tune_buffers_free(DltDevice *dev, DltTuneBuffer *buffer, int n);

/* Microseconds of one run(ctx), which enqueues on lane 0 and returns false when the library refuses
 * it. Short work is measured as a recorded graph of several runs, so that launching does not hide
 * the kernels. False when it does not run. */
bool dlt_tune_time(DltDevice *dev, bool (*run)(void *ctx), void *ctx, double *us);

#endif
