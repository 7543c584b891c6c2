/* The attention graphs behind sdpa.c: numbers of their tensors, and how they are built. */
#ifndef DLT_CUDA_SDPA_GRAPH_H
#define DLT_CUDA_SDPA_GRAPH_H

#include "cuda/dnn_graph.h"
#include "cuda/sdpa.h"

/* Unique ids of what the variant pack points to; from SCALE on host scalars. */
typedef enum DltSdpaId {
    DLT_SDPA_Q = 1,
    DLT_SDPA_K,
    DLT_SDPA_V,
    DLT_SDPA_O,
    DLT_SDPA_STATS,
    DLT_SDPA_DO,
    DLT_SDPA_DQ,
    DLT_SDPA_DK,
    DLT_SDPA_DV,
    DLT_SDPA_DELTA,
    DLT_SDPA_DQ_SUM,
    DLT_SDPA_SCALE,
    DLT_SDPA_ONE,
    DLT_SDPA_MINUS_INF,
    DLT_SDPA_IDS
} DltSdpaId;
enum { DLT_SDPA_VIRTUAL = 100, DLT_SDPA_OPS = 32 };

/* Builds the graph of a problem; false with the reason, nothing to free then. */
bool dlt_sdpa_graph(const DltDnn *dnn, const DltSdpaProblem *p, DltDnnGraph *g, DltWhy *why_not);

#endif
