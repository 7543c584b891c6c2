/* All facts about an op in one row; there is no switch over op kinds anywhere. */
#ifndef DLT_OP_H
#define DLT_OP_H

#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DltBuild DltBuild; /* graph under construction, name scope, sticky error */

typedef enum DltOpKind {
#define OP(name) DLT_OP_##name,
#include "ops/ops.def"
#undef OP
    DLT_N_OP
} DltOpKind;

typedef enum DltPrec {
    DLT_PREC_LOW,  /* matmul-like: runs in the compute type */
    DLT_PREC_KEEP, /* runs in the type of its first input */
    DLT_PREC_FULL  /* losses, statistics, updates: f32 */
} DltPrec;

typedef struct DltOpDef {
    const char *name;
    int n_in, n_out; /* at most; optional inputs are NULL */
    size_t attr_size;
    /* Shapes and dtypes of the outputs; an error names both tensors and their shapes. An output
     * whose rank is set to -1 does not exist for these attributes. */
    DltStatus (*infer)(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                       DltErr *err);
    /* Adds nodes that compute din[i] from dout[]; din[i] stays NULL where in[i] needs no gradient
     * (dlt_needs_grad). NULL: the op has no gradient. */
    void (*grad)(DltBuild *b, const DltNode *n, DltTensor *const dout[], DltTensor *din[]);
    double (*flops)(const DltNode *n);
    uint32_t optional; /* bit i: in[i] may be NULL */
    uint32_t inplace;  /* bit i: out[0] may take in[i]'s memory on its last use */
    uint32_t mutates;  /* bit i: in[i] is updated where it lies */
    DltPrec prec;
    uint32_t full_in; /* bit i: in[i] is f32 whatever type the node runs in (statistics, scales) */
    bool view;        /* out[0] is in[0] with another shape: no kernel runs */
    bool any_layout;  /* works on rank-4 tensors of every layout when all of them agree */
    /* Images: in[i], out[i] of bit i take the device's image layout each by itself, where its
     * channels allow; other rank-4 operands (filters) stay PLAIN. Such ops have any_layout too. */
    uint32_t image_in, image_out;
    /* The attributes as words for dumps, "tb act=relu"; NULL: nothing to say. */
    void (*text)(const void *attr, char *buf, size_t size);
} DltOpDef;

/* Which programs a node runs in: every micro batch, or once per update. */
typedef enum DltPhase { DLT_PHASE_BATCH, DLT_PHASE_UPDATE, DLT_N_PHASE } DltPhase;

struct DltNode {
    const DltOpDef *op;
    int kind, lane;
    DltPhase phase;
    const void *attr;
    DltTensor *in[DLT_MAX_IN], *out[DLT_MAX_OUT];
    DltMark at;       /* the layer's place in the config */
    const char *name; /* scope of the layer: "stage2.0.body.0.conv" */
};

/* What messages call a node: its layer, or the kind of its op where it belongs to none. */
const char *dlt_node_label(const DltNode *n);

extern const DltOpDef *const dlt_ops[DLT_N_OP];

#ifdef __cplusplus
}
#endif

#endif
