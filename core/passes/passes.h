/* Graph -> graph, one file each, in this order for training:
 * freeze, autodiff, filters, recompute, update, layout, legalize, fuse, order. Evaluation: filters,
 * layout, legalize, fuse, order. update stands before legalize, because low-precision copies of
 * parameters lie in slabs like the parameters', kept by the update nodes; layout before legalize, so that casts are made in the
 * layout their readers want; fuse behind both, so that it sees what really runs. All are linear in
 * nodes and tensors. */
#ifndef DLT_PASSES_H
#define DLT_PASSES_H

#include "api/backend.h"
#include "api/train.h"
#include "graph/build.h"

/* Gradient nodes for every trainable parameter that the loss reaches; grad[param->id] is its
 * gradient tensor (NULL: none); the table has a place for each tensor that was there before.
 * Several uses of a tensor are summed with `binary` adds, the last reader's gradient first. CONFIG
 * when the loss reaches no trainable parameter. */
DltStatus dlt_pass_autodiff(DltBuild *b, DltTensor **grad[], DltErr *err) DLT_CHECKED;

typedef enum DltRecompute {
    DLT_RECOMPUTE_NONE,
    DLT_RECOMPUTE_MLP,    /* elementwise nodes and row norms */
    DLT_RECOMPUTE_BLOCKS, /* everything between residual sums (DltTensor.residual) */
    DLT_RECOMPUTE_AUTO    /* the first of these whose plan fits the device; for specs only */
} DltRecompute;
/* Behind autodiff: the backward nodes [n_forward, n_node) read copies of forward results, made again
 * in front of their first reader, so that the originals need not be kept. */
DltStatus dlt_pass_recompute(DltGraph *g, int n_forward, DltRecompute mode,
                             DltErr *err) DLT_CHECKED;

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
    /* f16: how the loss scale moves (ops/update_ops.h), and where it begins */
    double scale_init, scale_growth, scale_backoff;
    int64_t scale_interval;
    bool settle; /* updates may be left out: what their batches left in states goes with them */
} DltUpdateConfig;
/* Frozen parameters (call before autodiff: clears `trainable`). Patterns are those of fnmatch(3). A
 * pattern that matches nothing, or a group that gets nothing, is CONFIG. */
DltStatus dlt_pass_freeze(DltGraph *g, const DltUpdateConfig *c, DltErr *err) DLT_CHECKED;
/* Lays parameters, gradients, optimizer states and ema into slabs (views keep the names), adds
 * accumulate, sum_squares, grad_scale and the update nodes in DLT_PHASE_UPDATE; the tensor of
 * grad_scale is named "update.coef". Slabs are "slab/weight.K" of group K (the base group is the
 * last), "slab/running" of running statistics, "slab/grad" of all groups one behind the other, "slab/<state>.K", "slab/ema.K"; views in
 * them begin at multiples of 64 elements, what is between stays zero. Parameters that the loss does
 * not reach stay outside: they have no gradient and no decay. */
DltStatus dlt_pass_update(DltBuild *b, const DltUpdateConfig *c, DltTensor **grad,
                          DltErr *err) DLT_CHECKED;

/* Filters that one convolution alone reads, and their gradients, lie in the device's image layout
 * when that is NHWC and their channels are multiples of image_block. grad: autodiff's table, NULL
 * for evaluation; the same model gives the same choice in both. */
DltStatus dlt_pass_filters(DltGraph *g, const DltDeviceInfo *info, DltTensor *const *grad,
                           DltErr *err) DLT_CHECKED;

typedef struct DltPrecision {
    DltDtype compute; /* F32, BF16 or F16 for DLT_PREC_LOW ops and what lies between them */
} DltPrecision;
/* Gives image operands (DltOpDef.image_in, image_out), and what elementwise ops make of them, the
 * device's image layout where channels are a multiple of image_block; inserts reorder nodes at
 * borders. Parameters and their gradients stay as they are, the model's output stays PLAIN. */
DltStatus dlt_pass_layout(DltGraph *g, const DltDeviceInfo *info, DltErr *err) DLT_CHECKED;
/* Types of tensors, casts between them, low-precision copies of parameters (DltTensor.low): see
 * legalize.c. Kernels meet: LOW ops with all inputs in `compute` and an f32 result where it is the
 * gradient of a parameter or only f32 readers follow; KEEP ops with full_in operands in f32. */
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
/* info: the device, which is asked where a rule makes nodes that not every device has kernels for. */
DltStatus dlt_pass_fuse(DltGraph *g, const DltDeviceInfo *info, const char *const *off,
                        DltErr *err) DLT_CHECKED;
/* Removes nodes whose outputs nobody reads; keeps the order of the rest. */
DltStatus dlt_pass_order(DltGraph *g, DltErr *err) DLT_CHECKED;

#endif
