/* Faults on request, for tests: the seam to the system asks here before each call, and tells here what
 * it did. Only the fault build (-DDLT_FAULTS) has them; elsewhere both are nothing.
 *
 *   DLT_FAULT=class:k:error:once|forever    the k-th call of a class fails, or all from it on
 *     class   mem, file, thread, device (calls of the emulated GPU)
 *     error   a name below; SHORT moves half of what a read or write was asked for; a number for
 *             device (CUDA's code), or HANG: the call never returns; SIGINT, SIGTERM, SIGUSR1: the
 *             process gets that signal, and the call goes on
 *   DLT_FAULT_REPORT=FILE                   at the end of the process: calls of each class, whether
 *                                           the fault was met, what was not given back */
#ifndef DLT_FAULT_H
#define DLT_FAULT_H

#include "base/err.h"

typedef enum DltFaultClass {
    DLT_FAULT_MEM,
    DLT_FAULT_FILE,
    DLT_FAULT_THREAD,
    DLT_FAULT_DEVICE,
    DLT_N_FAULT
} DltFaultClass;
enum { DLT_FAULT_SHORT = -1, DLT_FAULT_HANG = -2, DLT_FAULT_SIGNAL = -100 /* less its number */ };

/* A file call that succeeded. */
typedef struct DltSysCall {
    const char *what; /* "open", "write", "fsync", "close", "rename", "link", "unlink", ... */
    const char *path, *to;
    int fd;
    const void *data; /* of a write */
    int64_t bytes;
} DltSysCall;

#ifdef DLT_FAULTS
/* 0: the call goes on; else the error it fails with, or DLT_FAULT_SHORT. */
int dlt_fault(DltFaultClass class);
void dlt_fault_done(const DltSysCall *call);
void dlt_fault_memory(int blocks); /* given out (+1) or back (-1) */
/* each(ctx, call) for every successful file call of the process; NULL ends it. */
void dlt_fault_watch(void (*each)(void *ctx, const DltSysCall *call), void *ctx);
#else
static inline int dlt_fault(DltFaultClass class)
{
    (void)class;
    return 0;
}
static inline void dlt_fault_done(const DltSysCall *call)
{
    (void)call;
}
static inline void dlt_fault_memory(int blocks)
{
    (void)blocks;
}
#endif

#endif
