/* Graph -> graph, one file each, in this order for training:
 * autodiff, update, layout, legalize, fuse, order. Evaluation: layout, legalize, fuse, order. */
#ifndef DLT_PASSES_H
#define DLT_PASSES_H

#include "api/backend.h"
#include "api/train.h"
#include "graph/build.h"

/* Gradient nodes for every trainable parameter that the loss reaches; grad[param->id] is its
 * gradient tensor (NULL: none). Several uses of a tensor are summed with `binary` adds, in graph
 * order. */
DltStatus dlt_pass_autodiff(DltBuild *b, DltTensor **grad[], DltErr *err) DLT_CHECKED;

typedef struct DltGroup {
    const char *const
        *match; /* patterns over parameter names: "*.bias", "*norm*"; NULL-terminated */
    DltMark at;
    double lr_factor;
    double weight_decay;
    bool freeze;
} DltGroup;
typedef struct DltUpdateConfig {
    const DltOptimDef *optim;
    const void *opts;
    double weight_decay;
    int n_group; /* first match wins; the rest form the base group */
    const DltGroup *group;
    double clip;     /* global norm, 0: off */
    double ema;      /* 0: off */
    int64_t n_micro; /* > 1: gradients are summed over micro batches */
} DltUpdateConfig;
/* Frozen parameters (call before autodiff: clears `trainable`). A pattern that matches nothing is
 * CONFIG. */
DltStatus dlt_pass_freeze(DltGraph *g, const DltUpdateConfig *c, DltErr *err) DLT_CHECKED;
/* Lays parameters, gradients, optimizer states and ema into slabs (views keep the names), adds
 * accumulate, sum_squares, grad_scale and the update nodes in DLT_PHASE_UPDATE. sets g->coef via
 * name "update.coef". */
DltStatus dlt_pass_update(DltBuild *b, const DltUpdateConfig *c, DltTensor **grad,
                          DltErr *err) DLT_CHECKED;

typedef struct DltPrecision {
    DltDtype compute; /* F32, BF16 or F16 for DLT_PREC_LOW ops and what lies between them */
} DltPrecision;
/* Gives rank-4 tensors of any_layout ops the device's image layout; inserts reorder nodes at
 * borders. */
DltStatus dlt_pass_layout(DltGraph *g, const DltDeviceInfo *info, DltErr *err) DLT_CHECKED;
DltStatus dlt_pass_legalize(DltGraph *g, const DltPrecision *p, DltErr *err) DLT_CHECKED;

/* Rule table {name, help, root op, replacement}; `off` names rules not to use. A rule looks at a node of
 * its root kind and its neighbours through readers, and edits the graph; removed nodes become NULL until
 * the pass ends. */
typedef struct DltFuse DltFuse;
typedef struct DltFuseRule {
    const char *name, *help;
    int root;                              /* op kind at which the rule is tried */
    bool (*apply)(DltFuse *f, DltNode *n); /* true when the graph changed */
} DltFuseRule;
extern const DltFuseRule dlt_fuse_rules[]; /* ends with a NULL name */
DltStatus dlt_pass_fuse(DltGraph *g, const char *const *off, DltErr *err) DLT_CHECKED;
/* Removes nodes whose outputs nobody reads, and moves each node as late or early as lifetimes like.
 */
DltStatus dlt_pass_order(DltGraph *g, DltErr *err) DLT_CHECKED;

#endif
