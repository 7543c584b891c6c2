/* Everything decided: kernel, lane and memory slot of each node; the executor has no choices left.
 */
#ifndef DLT_PLAN_H
#define DLT_PLAN_H

#include "api/backend.h"
#include "graph/graph.h"

typedef struct DltSlot {
    int region;           /* DltRole */
    size_t offset, bytes; /* bytes 0: no memory (unused) */
    int first, last;      /* step indices between which the content lives; region TEMPS only */
} DltSlot;
typedef struct DltStep {
    const DltNode *node;
    const DltKernel *kernel; /* NULL for views */
    void *state;
    size_t work_bytes;
    int lane;
    uint32_t wait; /* bit l: the work so far on lane l must be finished first */
} DltStep;
typedef struct DltPlan {
    const DltGraph *graph;
    const DltBackend *backend;
    DltDevice *dev;
    DltStep *step;
    int n_step,
        n_batch_step; /* steps [0, n_batch_step) run each micro batch, the rest once an update */
    DltSlot *slot;    /* [n_tensor]; views point into their base */
    size_t region_bytes[DLT_REGIONS], work_bytes[DLT_LANES];
    size_t peak_bytes; /* sum of regions and work */
    int peak_step;     /* where TEMPS is fullest */
    uint64_t hash;     /* of nodes, kernels and slots */
} DltPlan;

typedef struct DltPlanOptions {
    const char
        *force_kernel; /* tests: substring a kernel's name must have where the list offers one */
    bool mean;         /* tests: no result takes its input's memory */
} DltPlanOptions;

/* Selects kernels (an op that no kernel accepts is CONFIG with every refusal's reason), computes
 * lifetimes, packs, verifies. Nothing is allocated on the device. */
DltStatus dlt_plan_make(DltArena *arena, const DltGraph *g, const DltBackend *backend,
                        DltDevice *dev, const DltPlanOptions *o, DltPlan **plan,
                        DltErr *err) DLT_CHECKED;
/* Replays the plan and rejects any overlap of two live tensors, reads of what was never written,
 * and slots outside their region. Knows nothing of how the packer works. BUG-status report on
 * failure. */
DltStatus dlt_plan_verify(const DltPlan *plan, DltErr *err) DLT_CHECKED;
/* Refuses (RESOURCE) when it does not fit, naming needed and free bytes and the ten largest
 * tensors. */
DltStatus dlt_plan_fits(const DltPlan *plan, int64_t free_bytes, DltErr *err) DLT_CHECKED;
void dlt_plan_dump(const DltPlan *plan, FILE *out);
double dlt_plan_flops(const DltPlan *plan); /* of one micro batch and update */

#endif
