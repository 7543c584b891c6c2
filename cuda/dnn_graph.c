/* Graphs, engine configurations and plans of cuDNN's backend interface (probed recipes: a tensor
 * has NCHW dimensions and NHWC strides; a heuristics query that offers nothing is no error). */
#include "cuda/dnn_graph.h"
#include "cuda/lib.h"

bool dlt_dnn_load(DltDnn *dnn, DltWhy *why_not)
{
    dnn->library = dlt_cuda_library("libcudnn", CUDNN_MAJOR, why_not);
    if (!dnn->library) return false;
#define F(name)                                                                                    \
    if (!dlt_cuda_symbol(dnn->library, #name, &dnn->name, why_not)) return false;
    DNN_FUNCTIONS(F)
#undef F
    dnn->version = dnn->cudnnGetVersion();
    snprintf(dnn->text, sizeof dnn->text, "cuDNN %zu.%zu.%zu", dnn->version / 10000,
             dnn->version / 100 % 100, dnn->version % 100);
    return true;
}

/* ---- building ---- */

static void fail(DltDnnGraph *g, cudnnStatus_t s, const char *what)
{
    char text[512] = "";
    if (g->failed) return;
    g->failed = true;
    g->dnn->cudnnGetLastErrorString(text, sizeof text);
    char *line = strchr(text, '\n');
    if (line) *line = '\0';
    snprintf(g->why, sizeof g->why, "%s: %s %.90s", what, g->dnn->cudnnGetErrorString(s), text);
}

cudnnBackendDescriptor_t dlt_dnn_make(DltDnnGraph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->failed) return NULL;
    DLT_BUG_ON(g->n_part == DLT_DNN_PARTS);
    cudnnStatus_t s = g->dnn->cudnnBackendCreateDescriptor(type, &d);
    if (s != CUDNN_STATUS_SUCCESS) {
        fail(g, s, "create");
        return NULL;
    }
    g->part[g->n_part++] = d;
    return d;
}

void dlt_dnn_set(DltDnnGraph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                 cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (g->failed) return;
    cudnnStatus_t s = g->dnn->cudnnBackendSetAttribute(d, name, type, n, value);
    if (s != CUDNN_STATUS_SUCCESS) fail(g, s, "set");
}

static void set_part(DltDnnGraph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendDescriptor_t part)
{
    dlt_dnn_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

void dlt_dnn_finalize(DltDnnGraph *g, cudnnBackendDescriptor_t d)
{
    if (g->failed) return;
    cudnnStatus_t s = g->dnn->cudnnBackendFinalize(d);
    if (s != CUDNN_STATUS_SUCCESS) fail(g, s, "finalize");
}

static cudnnDataType_t type_of(DltDtype t)
{
    return t == DLT_BF16 ? CUDNN_DATA_BFLOAT16 : t == DLT_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

/* Dims n, c, h, w in NHWC memory. Virtual tensors (ids from DLT_DNN_VIRTUAL on) exist only inside.
 */
static cudnnBackendDescriptor_t tensor(DltDnnGraph *g, int64_t id, cudnnDataType_t type, int64_t n,
                                       int64_t c, int64_t h, int64_t w)
{
    int64_t dim[4] = {n, c, h, w}, stride[4] = {c * h * w, 1, c * w, c}, align = 16;
    bool is_virtual = id >= DLT_DNN_VIRTUAL;
    cudnnBackendDescriptor_t d = dlt_dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (is_virtual)
        dlt_dnn_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    dlt_dnn_finalize(g, d);
    return d;
}

static cudnnBackendDescriptor_t convolution(DltDnnGraph *g, const DltDnnProblem *p)
{
    cudnnBackendDescriptor_t d = dlt_dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dims = 2, before[2] = {p->pad[0], p->pad[2]}, after[2] = {p->pad[1], p->pad[3]};
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, p->dilation);
    dlt_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, p->stride);
    dlt_dnn_finalize(g, d);
    return d;
}

/* The operation's own names of the same five attributes. */
typedef struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, conv, alpha, beta;
} Names;
static const Names names[] = {
    [DLT_DNN_FWD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [DLT_DNN_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [DLT_DNN_FILTER] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/* y = mode(x [, b]); b NULL: none. */
static cudnnBackendDescriptor_t pointwise(DltDnnGraph *g, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t d = dlt_dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dlt_dnn_set(g, d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dlt_dnn_set(g, d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dlt_dnn_finalize(g, d);
    cudnnBackendDescriptor_t o = dlt_dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_part(g, o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dlt_dnn_finalize(g, o);
    return o;
}

bool dlt_dnn_close_graph(DltDnnGraph *g, cudnnBackendDescriptor_t *op, int n_op, DltWhy *why_not)
{
    g->graph = dlt_dnn_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    dlt_dnn_set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_op,
                op);
    if (g->dnn->handle)
        dlt_dnn_set(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                    &g->dnn->handle);
    dlt_dnn_finalize(g, g->graph);
    if (!g->failed) return true;
    dlt_cuda_refuse(why_not, "cuDNN: %s", g->why);
    dlt_dnn_graph_free(g);
    return false;
}

bool dlt_dnn_graph(const DltDnn *dnn, const DltDnnProblem *p, DltDnnGraph *g, DltWhy *why_not)
{
    const Names *n = &names[p->kind];
    const float one = 1, zero = 0;
    const cudnnDataType_t type = type_of(p->dtype), full = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t op[3], y;
    int n_op = 1;
    *g = (DltDnnGraph){.dnn = dnn};
    y = tensor(g, DLT_DNN_Y, type, p->n, p->k, p->p, p->q);
    cudnnBackendDescriptor_t sum =
        p->bias_relu ? tensor(g, DLT_DNN_VIRTUAL, full, p->n, p->k, p->p, p->q) : y;
    op[0] = dlt_dnn_make(g, n->type);
    set_part(g, op[0], n->x, tensor(g, DLT_DNN_X, type, p->n, p->c, p->h, p->w));
    set_part(g, op[0], n->w, tensor(g, DLT_DNN_W, type, p->k, p->c / p->groups, p->r, p->s));
    set_part(g, op[0], n->y, sum);
    set_part(g, op[0], n->conv, convolution(g, p));
    dlt_dnn_set(g, op[0], n->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dlt_dnn_set(g, op[0], n->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    dlt_dnn_finalize(g, op[0]);
    if (p->bias_relu) {
        cudnnBackendDescriptor_t v = tensor(g, DLT_DNN_VIRTUAL + 1, full, p->n, p->k, p->p, p->q);
        cudnnBackendDescriptor_t bias = tensor(g, DLT_DNN_BIAS, type, 1, p->k, 1, 1);
        op[n_op++] = pointwise(g, CUDNN_POINTWISE_ADD, sum, bias, v);
        op[n_op++] = pointwise(g, CUDNN_POINTWISE_RELU_FWD, v, NULL, y);
    }
    return dlt_dnn_close_graph(g, op, n_op, why_not);
}

void dlt_dnn_graph_free(DltDnnGraph *g)
{
    while (g->n_part > 0)
        (void)g->dnn->cudnnBackendDestroyDescriptor(g->part[--g->n_part]);
    g->graph = NULL;
}

/* ---- engines ---- */

/* Reads the engine's notes and number. */
static bool read_engine(const DltDnnGraph *g, const DltDevice *dev, DltDtype dtype, DltDnnConfig *c,
                        int64_t *index)
{
    const DltDnn *d = g->dnn;
    cudnnBackendDescriptor_t e = NULL;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t n = 0;
    bool f32 = dtype == DLT_F32, strict = f32 && !dev->option.tf32, ok = false;
    if (d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &e) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (d->cudnnBackendGetAttribute(c->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                    &e) == CUDNN_STATUS_SUCCESS &&
        d->cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                    index) == CUDNN_STATUS_SUCCESS)
        ok = true;
    c->allowed = ok;
    if (ok && d->cudnnBackendGetAttribute(
                  e, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                  CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, note) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n; i++) {
            bool bad = note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
                       (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
                        dev->option.deterministic && !g->composite) ||
                       (note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && f32) ||
                       (note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && strict);
            if (bad) c->allowed = false;
        }
    if (ok && d->cudnnBackendGetAttribute(e, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                          CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                          &n, behavior) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < n; i++)
            c->compiles |= behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    (void)d->cudnnBackendDestroyDescriptor(e);
    return ok;
}

enum { MAX_KNOBS = CUDNN_KNOB_TYPE_COUNTS };

/* Writes "eng28 2=4 7=1" into c->tag. */
static void write_tag(const DltDnnGraph *g, DltDnnConfig *c, int64_t index)
{
    const DltDnn *d = g->dnn;
    cudnnBackendDescriptor_t knob[MAX_KNOBS];
    int64_t n = 0, got = 0;
    int at = snprintf(c->tag, sizeof c->tag, "eng%lld", (long long)index);
    for (int i = 0; i < MAX_KNOBS; i++) {
        knob[i] = NULL;
        (void)d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i]);
    }
    if (d->cudnnBackendGetAttribute(c->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, &n,
                                    knob) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < n && i < MAX_KNOBS && at > 0 && at < DLT_DNN_TAG; i++) {
        cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
        int64_t value = 0;
        if (d->cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                        CUDNN_TYPE_KNOB_TYPE, 1, &got,
                                        &type) == CUDNN_STATUS_SUCCESS &&
            d->cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                        CUDNN_TYPE_INT64, 1, &got, &value) == CUDNN_STATUS_SUCCESS)
            at += snprintf(c->tag + at, (size_t)(DLT_DNN_TAG - at), " %d=%lld", (int)type,
                           (long long)value);
    }
    for (int i = 0; i < MAX_KNOBS; i++)
        if (knob[i]) (void)d->cudnnBackendDestroyDescriptor(knob[i]);
}

/* One heuristics mode; returns how many were added. */
static int ask(const DltDnnGraph *g, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *out,
               int max)
{
    const DltDnn *d = g->dnn;
    cudnnBackendDescriptor_t h = NULL;
    int64_t n = 0, got = 0;
    if (d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h) !=
        CUDNN_STATUS_SUCCESS)
        return 0;
    bool ok = d->cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &g->graph) == CUDNN_STATUS_SUCCESS &&
              d->cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                          &mode) == CUDNN_STATUS_SUCCESS;
    if (ok && d->properties)
        ok = d->cudnnBackendSetAttribute(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                         &d->properties) == CUDNN_STATUS_SUCCESS;
    ok =
        ok && d->cudnnBackendFinalize(h) == CUDNN_STATUS_SUCCESS &&
        d->cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                    0, &n, NULL) == CUDNN_STATUS_SUCCESS;
    int made = 0;
    for (; ok && made < n && made < max; made++)
        if (d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[made]) !=
            CUDNN_STATUS_SUCCESS)
            break;
    if (made > 0 &&
        d->cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                    made, &got, out) != CUDNN_STATUS_SUCCESS)
        got = 0;
    while (made > got)
        (void)d->cudnnBackendDestroyDescriptor(out[--made]);
    (void)d->cudnnBackendDestroyDescriptor(h);
    return made;
}

/* Adds the allowed ones of a list to out and destroys the others. */
static int keep_allowed(const DltDnnGraph *g, const DltDevice *dev, DltDtype dtype,
                        const cudnnBackendDescriptor_t *all, int n, DltDnnConfig *out, int max)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        DltDnnConfig c = {.config = all[i]};
        int64_t index = -1;
        bool ok = kept < max && read_engine(g, dev, dtype, &c, &index) && c.allowed &&
                  (g->composite || !c.compiles);
        if (ok) write_tag(g, &c, index);
        for (int j = 0; ok && j < kept; j++)
            ok = strcmp(out[j].tag, c.tag) != 0;
        if (ok)
            out[kept++] = c;
        else
            (void)g->dnn->cudnnBackendDestroyDescriptor(all[i]);
    }
    return kept;
}

int dlt_dnn_configs(const DltDnnGraph *g, const DltDevice *dev, DltDtype dtype, DltDnnConfig *out,
                    int max)
{
    enum { MOST = 64 };
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t all[MOST];
    int kept = 0;
    for (int i = 0; i < 2 && kept == 0; i++)
        kept = keep_allowed(g, dev, dtype, all, ask(g, mode[i], all, MOST), out, max);
    return kept;
}

cudnnBackendDescriptor_t dlt_dnn_config_of(DltDnnGraph *g, const char *tag)
{
    char *at = NULL;
    cudnnBackendDescriptor_t knob[MAX_KNOBS];
    int64_t n = 0;
    if (strncmp(tag, "eng", 3) != 0) return NULL;
    int64_t index = strtoll(tag + 3, &at, 10);
    if (at == tag + 3) return NULL;
    cudnnBackendDescriptor_t e = dlt_dnn_make(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    set_part(g, e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph);
    dlt_dnn_set(g, e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
    if (g->dnn->properties) set_part(g, e, CUDNN_ATTR_ENGINE_DEVICEPROP, g->dnn->properties);
    dlt_dnn_finalize(g, e);
    while (*at == ' ' && n < MAX_KNOBS && g->n_part < DLT_DNN_PARTS - 1) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)strtol(at + 1, &at, 10);
        if (*at != '=') return NULL;
        int64_t value = strtoll(at + 1, &at, 10);
        cudnnBackendDescriptor_t k = dlt_dnn_make(g, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        dlt_dnn_set(g, k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
        dlt_dnn_set(g, k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
        dlt_dnn_finalize(g, k);
        knob[n++] = k;
    }
    if (*at != '\0') return NULL;
    cudnnBackendDescriptor_t c = dlt_dnn_make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_part(g, c, CUDNN_ATTR_ENGINECFG_ENGINE, e);
    if (n > 0)
        dlt_dnn_set(g, c, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                    knob);
    dlt_dnn_finalize(g, c);
    return g->failed ? NULL : c;
}

cudnnBackendDescriptor_t dlt_dnn_plan_of(const DltDnn *dnn, cudnnBackendDescriptor_t config,
                                         int64_t *work_bytes)
{
    cudnnBackendDescriptor_t plan = NULL;
    int64_t n = 0;
    if (dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return NULL;
    bool ok = dnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                            &config) == CUDNN_STATUS_SUCCESS;
    if (ok && dnn->handle)
        ok =
            dnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                                          1, &dnn->handle) == CUDNN_STATUS_SUCCESS;
    if (ok && dnn->properties)
        ok = dnn->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                           &dnn->properties) == CUDNN_STATUS_SUCCESS;
    ok = ok && dnn->cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
         dnn->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                       CUDNN_TYPE_INT64, 1, &n, work_bytes) == CUDNN_STATUS_SUCCESS;
    if (ok) return plan;
    (void)dnn->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}
