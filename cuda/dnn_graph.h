/* The descriptors behind dnn.c: cuDNN's functions, and graphs of one convolution built with a
 * sticky error. Only dnn.c, sdpa.c and their graph files include this. */
#ifndef DLT_CUDA_DNN_GRAPH_H
#define DLT_CUDA_DNN_GRAPH_H

#include "cuda/dnn.h"
#include <cudnn.h>

#define DNN_FUNCTIONS(F)                                                                           \
    F(cudnnCreate)                                                                                 \
    F(cudnnDestroy)                                                                                \
    F(cudnnSetStream)                                                                              \
    F(cudnnGetVersion)                                                                             \
    F(cudnnGetErrorString)                                                                         \
    F(cudnnGetLastErrorString)                                                                     \
    F(cudnnBackendCreateDescriptor)                                                                \
    F(cudnnBackendDestroyDescriptor)                                                               \
    F(cudnnBackendSetAttribute)                                                                    \
    F(cudnnBackendGetAttribute)                                                                    \
    F(cudnnBackendFinalize)                                                                        \
    F(cudnnBackendExecute)

struct DltDnn {
    void *library;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties; /* instead of a handle: a described device (tests) */
    size_t version;
    char text[64];
    struct DltSdpaShared *sdpa; /* attention plans, sdpa.c */
#define F(name) __typeof__(&name) name;
    DNN_FUNCTIONS(F)
#undef F
};

/* Loads the library and its functions into dnn, without a handle. */
bool dlt_dnn_load(DltDnn *dnn, DltWhy *why_not);

enum { DLT_DNN_X = 1, DLT_DNN_W, DLT_DNN_Y, DLT_DNN_BIAS, DLT_DNN_VIRTUAL }; /* unique ids */
enum { DLT_DNN_PARTS = 128 };
/* A finalized operation graph and every descriptor it is made of. */
typedef struct DltDnnGraph {
    const DltDnn *dnn;
    bool failed;
    bool
        composite; /* runs as one kernel compiled at run time; its form says what is deterministic */
    char why[160]; /* of the first failure */
    int n_part;
    cudnnBackendDescriptor_t part[DLT_DNN_PARTS], graph;
} DltDnnGraph;
/* Builds the graph of a problem; false with the reason, nothing to free then. */
bool dlt_dnn_graph(const DltDnn *dnn, const DltDnnProblem *p, DltDnnGraph *g, DltWhy *why_not);
void dlt_dnn_graph_free(DltDnnGraph *g);
/* Makes the graph of its operations; false with the reason of the first failure, all is freed then. */
bool dlt_dnn_close_graph(DltDnnGraph *g, cudnnBackendDescriptor_t *op, int n_op, DltWhy *why_not);

/* Steps of building, sticky: nothing happens after a failure. */
cudnnBackendDescriptor_t dlt_dnn_make(DltDnnGraph *g, cudnnBackendDescriptorType_t type);
void dlt_dnn_set(DltDnnGraph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t n, const void *value);
void dlt_dnn_finalize(DltDnnGraph *g, cudnnBackendDescriptor_t d);

/* An engine and its settings, as text ("eng28 2=4 7=1") that stays valid for one library version.
 */
enum { DLT_DNN_TAG = 160 };
typedef struct DltDnnConfig {
    cudnnBackendDescriptor_t config; /* owned */
    bool allowed, compiles;          /* by the device's options; at run time */
    char tag[DLT_DNN_TAG];
} DltDnnConfig;
/* At most `max` configurations the heuristics offer, best guess first. The caller destroys each. */
int dlt_dnn_configs(const DltDnnGraph *g, const DltDevice *dev, DltDtype dtype, DltDnnConfig *out,
                    int max);
/* The configuration of a tag, or NULL. Its parts join the graph's. */
cudnnBackendDescriptor_t dlt_dnn_config_of(DltDnnGraph *g, const char *tag);
/* A plan for a configuration and the scratch it needs, or NULL. */
cudnnBackendDescriptor_t dlt_dnn_plan_of(const DltDnn *dnn, cudnnBackendDescriptor_t config,
                                         int64_t *work_bytes);

#endif
