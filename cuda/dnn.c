/* Convolutions by cuDNN: engines of the heuristics' list are measured in prepare (the first guess
 * is up to 45 % slower than the best), the choice is remembered by its tag, launch binds pointers
 * and enqueues. Engines that compile at run time are left out: they cost a second each at start-up
 * and were never the fastest for a single convolution. */
#include "cuda/dnn.h"
#include "cuda/dnn_graph.h"
#include "cuda/tune.h"

enum { MAX_CONFIGS = 48 };
static const int64_t work_limit = (int64_t)256 << 20;
static const char no_engine[] = "none"; /* stored for a refused problem */

struct DltDnnPlan {
    DltDnn *dnn;
    DltDnnGraph graph;
    cudnnBackendDescriptor_t plan, pack;
    DltDnnArgs bound; /* the pointers pack holds */
    bool has_bias;
    int64_t work_bytes;
};

bool dlt_dnn_open(DltDevice *dev, DltWhy *why_not)
{
    if (dev->dnn) return dev->dnn->handle || dlt_cuda_refuse(why_not, "cuDNN could not be opened");
    dev->dnn = DLT_NEW(dev->arena, DltDnn);
    if (!dlt_dnn_load(dev->dnn, why_not)) return false;
    cudnnStatus_t s = dev->dnn->cudnnCreate(&dev->dnn->handle);
    if (s == CUDNN_STATUS_SUCCESS) return true;
    dev->dnn->handle = NULL;
    return dlt_cuda_refuse(why_not, "cudnnCreate: %s", dev->dnn->cudnnGetErrorString(s));
}

void dlt_dnn_close(DltDevice *dev)
{
    if (!dev->dnn || !dev->dnn->handle) return;
    (void)dev->dnn->cudnnDestroy(dev->dnn->handle);
    dev->dnn->handle = NULL; /* the library stays mapped: plans are released after the device */
}

const char *dlt_dnn_version(const DltDevice *dev)
{
    return dev->dnn && dev->dnn->handle ? dev->dnn->text : "cuDNN not opened";
}

static void key_of(const DltDevice *dev, const DltDnnProblem *p, char key[DLT_TUNE_KEY])
{
    static const char *const kind[] = {"fwd", "data", "filter"};
    snprintf(key, DLT_TUNE_KEY,
             "dnn %zu %s sm%d n%d | %s%s %s n%lld c%lld %lldx%lld k%lld %lldx%lld g%lld "
             "s%lld,%lld d%lld,%lld p%lld,%lld,%lld,%lld tf32=%d det=%d",
             dev->dnn->version, dev->name, dev->capability, dev->n_sm, kind[p->kind],
             p->bias_relu ? "+bias+relu" : "", dlt_dtype_name(p->dtype), (long long)p->n,
             (long long)p->c, (long long)p->h, (long long)p->w, (long long)p->k, (long long)p->r,
             (long long)p->s, (long long)p->groups, (long long)p->stride[0],
             (long long)p->stride[1], (long long)p->dilation[0], (long long)p->dilation[1],
             (long long)p->pad[0], (long long)p->pad[1], (long long)p->pad[2], (long long)p->pad[3],
             (int)dev->option.tf32, (int)dev->option.deterministic);
}

/* The heuristics take some 15 ms a question: the answer is remembered, a refusal too. */
bool dlt_dnn_can(DltDevice *dev, const DltDnnProblem *p, DltWhy *why_not)
{
    char key[DLT_TUNE_KEY];
    DltDnnGraph g;
    DltDnnConfig c;
    if (!dlt_dnn_open(dev, why_not)) return false;
    key_of(dev, p, key);
    const char *known = dlt_tune_find(dev, key);
    if (known && strcmp(known, no_engine) != 0) return true;
    if (known) return dlt_cuda_refuse(why_not, "cuDNN has no engine for this convolution");
    if (!dlt_dnn_graph(dev->dnn, p, &g, why_not)) return false;
    int n = dlt_dnn_configs(&g, dev, p->dtype, &c, 1);
    if (n > 0)
        (void)dev->dnn->cudnnBackendDestroyDescriptor(c.config);
    else
        (void)dlt_tune_put(dev, key, no_engine);
    dlt_dnn_graph_free(&g);
    return n > 0 || dlt_cuda_refuse(why_not, "cuDNN has no engine for this convolution");
}

/* ---- running ---- */

static bool same_args(const DltDnnArgs *a, const DltDnnArgs *b)
{
    return a->x == b->x && a->w == b->w && a->y == b->y && a->bias == b->bias && a->work == b->work;
}

/* Pointers into a variant pack; kept as long as they stay the same, which in a run is for ever. */
static cudnnStatus_t bind(DltDnnPlan *p, const DltDnnArgs *args)
{
    const DltDnn *d = p->dnn;
    int64_t id[4] = {DLT_DNN_X, DLT_DNN_W, DLT_DNN_Y, DLT_DNN_BIAS}, n = p->has_bias ? 4 : 3;
    void *ptr[4] = {args->x, args->w, args->y, args->bias}, *work = args->work;
    if (p->pack && same_args(args, &p->bound)) return CUDNN_STATUS_SUCCESS;
    if (p->pack) (void)d->cudnnBackendDestroyDescriptor(p->pack);
    p->pack = NULL;
    cudnnStatus_t s =
        d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &p->pack);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, n, id);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, n, ptr);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(p->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &work);
    if (s == CUDNN_STATUS_SUCCESS) s = d->cudnnBackendFinalize(p->pack);
    p->bound = *args;
    return s;
}

static cudnnStatus_t execute(DltDnnPlan *p, cudaStream_t stream, const DltDnnArgs *args)
{
    cudnnStatus_t s = bind(p, args);
    if (s == CUDNN_STATUS_SUCCESS) s = p->dnn->cudnnSetStream(p->dnn->handle, stream);
    if (s == CUDNN_STATUS_SUCCESS)
        s = p->dnn->cudnnBackendExecute(p->dnn->handle, p->plan, p->pack);
    return s;
}

DltStatus dlt_dnn_run(DltDnnPlan *plan, const DltCall *call, const DltDnnArgs *args, DltErr *err)
{
    cudnnStatus_t s = execute(plan, call->stream->handle, args);
    call->stream->joined = true; /* it may end in something else than a kernel */
    if (s == CUDNN_STATUS_SUCCESS) return DLT_OK;
    (void)cudaGetLastError();
    return dlt_err_at(err, DLT_E_DEVICE, call->node->at, "%s: cuDNN convolution: %s",
                      call->node->name ? call->node->name : "conv",
                      plan->dnn->cudnnGetErrorString(s));
}

/* ---- choosing ---- */

static void plan_release(void *ctx)
{
    DltDnnPlan *p = ctx;
    if (p->pack) (void)p->dnn->cudnnBackendDestroyDescriptor(p->pack);
    if (p->plan) (void)p->dnn->cudnnBackendDestroyDescriptor(p->plan);
    dlt_dnn_graph_free(&p->graph);
    p->pack = p->plan = NULL;
}

static bool recall(DltDevice *dev, const char *key, DltDnnPlan *plan)
{
    const char *tag = dlt_tune_find(dev, key);
    if (!tag) return false;
    int n = plan->graph.n_part;
    cudnnBackendDescriptor_t config = dlt_dnn_config_of(&plan->graph, tag);
    if (config) plan->plan = dlt_dnn_plan_of(plan->dnn, config, &plan->work_bytes);
    if (plan->plan) return true;
    while (plan->graph.n_part > n) /* what was made for the tag */
        (void)plan->dnn->cudnnBackendDestroyDescriptor(plan->graph.part[--plan->graph.n_part]);
    plan->graph.failed = false;
    return false;
}

enum { BUF_X, BUF_W, BUF_Y, BUF_BIAS, BUF_WORK, N_BUF };
typedef struct Trial {
    DltDevice *dev;
    DltDnnPlan *plan;
    DltTuneBuffer buffer[N_BUF];
} Trial;

static bool trial_run(void *ctx)
{
    const Trial *t = ctx;
    DltDnnArgs args = {t->buffer[BUF_X].ptr, t->buffer[BUF_W].ptr, t->buffer[BUF_Y].ptr,
                       t->buffer[BUF_BIAS].ptr, t->buffer[BUF_WORK].ptr};
    return execute(t->plan, t->dev->lane[0].handle, &args) == CUDNN_STATUS_SUCCESS;
}

static void drop_plan(DltDnnPlan *p)
{
    if (p->pack) (void)p->dnn->cudnnBackendDestroyDescriptor(p->pack);
    if (p->plan) (void)p->dnn->cudnnBackendDestroyDescriptor(p->plan);
    p->pack = p->plan = NULL;
}

/* The most scratch that an allowed configuration asks for. */
static size_t most_work(DltDnnPlan *plan, const DltDnnConfig *c, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++) {
        int64_t bytes = 0;
        cudnnBackendDescriptor_t p = dlt_dnn_plan_of(plan->dnn, c[i].config, &bytes);
        if (!p) continue;
        if (bytes <= work_limit && bytes > most) most = bytes;
        (void)plan->dnn->cudnnBackendDestroyDescriptor(p);
    }
    return (size_t)most + 1;
}

/* Time of one configuration, or a negative value when it does not build, fit or run. */
static double try_config(DltDevice *dev, DltDnnPlan *plan, Trial *t, const DltDnnConfig *c)
{
    double us = -1;
    plan->plan = dlt_dnn_plan_of(plan->dnn, c->config, &plan->work_bytes);
    if (!plan->plan) return -1;
    bool fits =
        plan->work_bytes <= work_limit && plan->work_bytes <= (int64_t)t->buffer[BUF_WORK].bytes;
    if (!fits || !dlt_tune_time(dev, trial_run, t, &us)) us = -1;
    drop_plan(plan);
    return us;
}

/* Index of the fastest configuration, -1 when none runs. */
static int measure(DltDevice *dev, const DltDnnProblem *p, DltDnnPlan *plan, const DltDnnConfig *c,
                   int n)
{
    size_t e = dlt_dtype_bytes(p->dtype);
    Trial t = {dev,
               plan,
               {{(size_t)(p->n * p->c * p->h * p->w) * e, p->dtype, NULL},
                {(size_t)(p->k * (p->c / p->groups) * p->r * p->s) * e, p->dtype, NULL},
                {(size_t)(p->n * p->k * p->p * p->q) * e, p->dtype, NULL},
                {p->bias_relu ? (size_t)p->k * e : 0, p->dtype, NULL},
                {most_work(plan, c, n), DLT_U8, NULL}}};
    DltErr quiet;
    dlt_err_init(&quiet);
    int best = -1;
    double best_us = 1e30;
    bool ready = dlt_tune_buffers(dev, t.buffer, N_BUF, &quiet) == DLT_OK;
    for (int i = 0; ready && i < n; i++) {
        double us = try_config(dev, plan, &t, &c[i]);
        if (us < 0 || us >= best_us) continue;
        best = i;
        best_us = us;
    }
    dlt_tune_buffers_free(dev, t.buffer, N_BUF);
    return best;
}

/* The measured best, or, when there is no memory to measure in, the first that builds and fits. */
static bool choose(DltDevice *dev, const DltDnnProblem *p, DltDnnPlan *plan, const char *key)
{
    DltDnnConfig c[MAX_CONFIGS];
    int n = dlt_dnn_configs(&plan->graph, dev, p->dtype, c, MAX_CONFIGS);
    int best = measure(dev, p, plan, c, n);
    if (best >= 0 && !dlt_tune_put(dev, key, c[best].tag) && !recall(dev, key, plan))
        (void)dlt_tune_put(dev, key, c[best].tag);
    if (best >= 0 && !plan->plan)
        plan->plan = dlt_dnn_plan_of(plan->dnn, c[best].config, &plan->work_bytes);
    for (int i = 0; i < n && !plan->plan; i++) {
        plan->plan = dlt_dnn_plan_of(plan->dnn, c[i].config, &plan->work_bytes);
        if (plan->plan && plan->work_bytes > work_limit) drop_plan(plan);
    }
    for (int i = 0; i < n; i++)
        (void)plan->dnn->cudnnBackendDestroyDescriptor(c[i].config);
    return plan->plan != NULL;
}

DltStatus dlt_dnn_prepare(DltDevice *dev, DltArena *arena, const DltDnnProblem *p, DltDnnPlan **out,
                          size_t *work_bytes, DltErr *err)
{
    DltWhy why;
    if (!dlt_dnn_open(dev, &why)) return dlt_err(err, DLT_E_DEVICE, "cuDNN: %s", why.text);
    DltDnnPlan *plan = DLT_NEW(arena, DltDnnPlan);
    plan->dnn = dev->dnn;
    plan->has_bias = p->bias_relu;
    if (!dlt_dnn_graph(dev->dnn, p, &plan->graph, &why))
        return dlt_err(err, DLT_E_DEVICE, "%s", why.text);
    dlt_arena_on_free(arena, plan_release, plan);
    char key[DLT_TUNE_KEY];
    key_of(dev, p, key);
    if (!recall(dev, key, plan) && !choose(dev, p, plan, key))
        return dlt_err(err, DLT_E_DEVICE, "cuDNN has no engine that runs this convolution");
    *out = plan;
    *work_bytes = (size_t)plan->work_bytes;
    return DLT_OK;
}
