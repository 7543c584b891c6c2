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
    int *by_name;       /* hash table of tensor ids + 1 (0: empty), open addressing */
    int cap_name;       /* its size, a power of two */
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
/* Gives t another name under which dlt_graph_find knows it. */
void dlt_graph_rename(DltGraph *g, DltTensor *t, const char *name);
/* A node with a copy of attr (NULL: zeros), in no list yet; inputs and outputs are the caller's. */
DltNode *dlt_graph_node(DltGraph *g, int kind, const void *attr);
/* Replaces the whole node list (taken over, arena memory); NULL entries are left out. Passes that
 * insert or remove many nodes build a new list and hand it over once. */
void dlt_graph_set_nodes(DltGraph *g, DltNode **node, int n);
/* Inserts a node before position `at` (n_node appends); sets out[i]->producer. */
void dlt_graph_insert(DltGraph *g, int at, DltNode *node);
void dlt_graph_remove(DltGraph *g, int at);
int dlt_graph_index(const DltGraph *g, const DltNode *node); /* linear; passes keep own tables */
/* The first tensor that got this name, or NULL. Constant time. */
DltTensor *dlt_graph_find(const DltGraph *g, const char *name);
DltTensor *dlt_tensor_base(DltTensor *t); /* itself when no view */
int64_t dlt_tensor_bytes(const DltTensor *t);
/* Copies the values of a NHWC tensor between its own order and the row-major one. */
void dlt_tensor_reorder(const DltTensor *t, void *dst, const void *src, bool to_plain);
/* Number of node inputs that read each tensor (views count for themselves), [n_tensor] in the
 * arena. */
int *dlt_graph_uses(const DltGraph *g);
/* Text dump: a line for each input, parameter, gradient and state, then one for each node:
 * "%12 f32[128, 512] = matmul(%3 x, %7 dense.weight) {tb} @dense", "[update]" behind those of
 * DLT_PHASE_UPDATE. */
void dlt_graph_dump(const DltGraph *g, FILE *out);

#endif
