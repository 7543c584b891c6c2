/* The graph: nodes in execution order and the tensors between them. Gradients and updates are
 * ordinary nodes. Passes edit it through these functions only. */
#ifndef DLT_GRAPH_H
#define DLT_GRAPH_H

#include "base/arena.h"
#include "graph/op.h"

typedef struct DltGraph {
    DltArena *arena;
    DltNode **node; /* execution order */
    DltTensor **tensor;
    int n_node, n_tensor, cap_node, cap_tensor;
    DltTensor *loss;    /* f64[2]: sum, weight */
    DltTensor *metrics; /* f64[*] STATE slab of accumulators, or NULL */
    DltTensor *output;  /* of the model: kept to the end of the step for predictions, or NULL */
} DltGraph;

DltGraph *dlt_graph_new(DltArena *arena);
DltTensor *dlt_graph_tensor(DltGraph *g, const char *name, const DltShape *shape, DltDtype dtype,
                            DltRole role);
/* A view: shape over base's memory from `offset` elements on. A view of a view refers to the base.
 */
DltTensor *dlt_graph_view(DltGraph *g, const char *name, const DltShape *shape, DltTensor *base,
                          int64_t offset);
/* Makes an existing tensor (not yet a base of views) a view of base. */
void dlt_graph_make_view(DltTensor *t, DltTensor *base, int64_t offset);
/* Inserts a node before position `at` (n_node appends); sets out[i]->producer. */
void dlt_graph_insert(DltGraph *g, int at, DltNode *node);
void dlt_graph_remove(DltGraph *g, int at);
int dlt_graph_index(const DltGraph *g, const DltNode *node); /* linear; passes keep own tables */
DltTensor *dlt_graph_find(const DltGraph *g, const char *name);
DltTensor *dlt_tensor_base(DltTensor *t); /* itself when no view */
int64_t dlt_tensor_bytes(const DltTensor *t);
/* Number of node inputs that read each tensor (views count for themselves), [n_tensor] in the
 * arena. */
int *dlt_graph_uses(const DltGraph *g);
/* Text dump, one line a node: "%12 f32[128,512] = matmul(%3 x, %7 dense.weight) {tb} @dense". */
void dlt_graph_dump(const DltGraph *g, FILE *out);

#endif
