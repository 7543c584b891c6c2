/* Devices and kernels. prepare thinks, launch only enqueues. */
#ifndef DLT_BACKEND_H
#define DLT_BACKEND_H

#include "base/arena.h"
#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DLT_BACKEND_ABI = 9 };

typedef struct DltDevice DltDevice;
typedef struct DltStream DltStream;
typedef struct DltWhy {
    char text[160];
} DltWhy;
typedef struct DltPrep {
    DltArena *arena;
    size_t work_bytes; /* scratch booked for launch */
    void *state;       /* given back in DltCall; release hooks go into the arena */
} DltPrep;
typedef struct DltCall {
    const DltNode *node;
    void *const *in, *const *out; /* [DLT_MAX_IN], [DLT_MAX_OUT]; NULL where the node has none */
    void *work;
    const void *state;
    DltStream *stream;
} DltCall;

typedef struct DltKernel {
    const char *name; /* "layer_norm.cuda.warp_row", "matmul.cpu.plain" */
    /* May refuse, with the reason in why_not. NULL accepts f32 (or integer where the op has
     * integers) tensors in PLAIN layout. */
    bool (*accepts)(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
    DltStatus (*prepare)(const DltNode *n, DltDevice *dev, DltPrep *p,
                         DltErr *err); /* may be NULL */
    DltStatus (*launch)(const DltCall *call,
                        DltErr *err); /* no malloc, no sync, no device read-back */
} DltKernel;
/* accepts == NULL: this rule. Every float tensor F32 (loss, metric, sumsq: F64), all PLAIN. */
bool dlt_kernel_accepts_plain(const DltNode *n, DltWhy *why_not);

typedef struct DltDeviceInfo {
    char name[128];
    int64_t memory_bytes, free_bytes;
    bool has_bf16, has_f16, has_tf32, has_fp8; /* fast compute types */
    DltLayout image_layout; /* preferred for rank-4 tensors whose channels are a multiple of
                               image_block */
    int64_t image_block;
    DltLayout low_layout; /* the same for graphs that compute in 16 bits; low_block 0: no other */
    int64_t low_block;
    char library[128]; /* "oneDNN 2.6.3, 2 threads" */
    /* Whether a node that stands for several is worth making: a fast kernel takes it. NULL: none is. */
    bool (*fuses)(const DltDevice *dev, const DltNode *n);
    const DltDevice *dev; /* that fuses is asked with */
} DltDeviceInfo;

typedef struct DltDeviceOptions {
    int index;    /* cuda:1 */
    int n_thread; /* CPU; 0: all */
    bool deterministic, eager;
    bool tf32;                 /* f32 matrix products may use TF32 */
    const char *cache_folder;  /* measured choices on disk, or NULL */
    const char *choices;       /* text of `choices` below: they come before all others; or NULL */
    const char *plugin_folder; /* where the program lies */
} DltDeviceOptions;

typedef struct DltBackend {
    int abi;
    const char *name; /* "cpu", "cuda" */
    size_t align;     /* of tensor slots: 64 on the CPU, 256 on CUDA */
    int n_lane;
    int hold; /* steps for which the memory of a temporary rests before another gets it */
    DltStatus (*open)(DltArena *arena, const DltDeviceOptions *o, DltDevice **dev, DltErr *err);
    /* Begins what opening takes, on any thread, so that it is quicker; tells nothing. May be NULL. */
    void (*warm)(int index);
    void (*close)(DltDevice *dev); /* frees its regions and programs; safe after a failed open */
    void (*info)(DltDevice *dev, DltDeviceInfo *info);
    /* NULL-terminated list for an op kind, best first, plain one last. */
    const DltKernel *const *(*kernels)(const DltDevice *dev, int kind);
    DltStatus (*alloc)(DltDevice *dev, size_t bytes, void **ptr, DltErr *err); /* zeroed */
    void (*release)(DltDevice *dev, void *ptr);
    void *(*host_alloc)(DltDevice *dev, size_t bytes); /* pinned where that helps */
    void (*host_release)(DltDevice *dev, void *ptr);
    DltStream *(*stream)(DltDevice *dev, int lane);
    /* Ordered on the stream. upload: src must stay until the next sync or two steps later. */
    DltStatus (*upload)(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err);
    DltStatus (*download)(DltStream *s, void *dst, const void *src, size_t bytes,
                          DltErr *err); /* then sync */
    DltStatus (*zero)(DltStream *s, void *dst, size_t bytes, DltErr *err);
    /* Recording; NULL on the CPU means run eagerly. */
    DltStatus (*record_begin)(DltDevice *dev, DltErr *err);
    DltStatus (*record_end)(DltDevice *dev, void **program, DltErr *err);
    DltStatus (*replay)(DltDevice *dev, void *program, DltErr *err);
    /* Lane order: lane `lane` waits for everything enqueued so far on `other`. NULL with one lane.
     */
    DltStatus (*wait)(DltDevice *dev, int lane, int other, DltErr *err);
    DltStatus (*sync)(DltDevice *dev, DltErr *err);
    /* Which of several algorithms were measured to be the fastest, as text: a run that is given it back
     * computes the same bits. NULL: nothing is measured. */
    const char *(*choices)(DltDevice *dev, DltArena *arena);
} DltBackend;

/* The backend for "cpu" or "cuda"; "auto" takes cuda when a card is there. Defined by
 * cmd/backends.c. */
DltStatus dlt_backend_find(const char *name, DltMark at, const DltBackend **backend,
                           DltErr *err) DLT_CHECKED;
extern const DltBackend dlt_backend_cpu;

#ifdef __cplusplus
}
#endif

#endif
