/* Attention by cuDNN: plans of the graphs in sdpa_graph.c, one for each shape, and variant packs, one
 * for each node (and slice of its batch). The heuristics' first engine that builds is taken: their
 * order is right for attention, and building each of the list takes half a second. The one kernel
 * choice that is ours: the deterministic backward needs scratch for all scores of a launch, so a batch is
 * cut into slices that need no more than work_limit. */
#include "cuda/sdpa.h"
#include "cuda/sdpa_graph.h"
#include "cuda/tune.h"

#include <math.h>

enum { MAX_CONFIGS = 8, ALIGN = 256 };
static const int64_t work_limit = (int64_t)1 << 30; /* slices of 256 MiB take a third longer */
static const char no_engine[] = "none";             /* stored for a refused problem */

/* What nodes of one shape have in common. */
typedef struct DltSdpaShared {
    char key[DLT_TUNE_KEY];
    DltDnn *dnn;
    DltDnnGraph graph;
    cudnnBackendDescriptor_t plan;
    int64_t work_bytes;
    struct DltSdpaShared *next;
} DltSdpaShared;

struct DltSdpaPlan {
    DltSdpaShared *shared;
    DltSdpaProblem p; /* of one slice */
    int n_slice;
    float scale, one, minus_inf; /* read by the library when it enqueues */
    cudnnBackendDescriptor_t *pack;
    DltSdpaArgs bound; /* what the packs point to */
};

/* The largest part of the batch that may be worked on at a time. */
static DltSdpaProblem slice_of(const DltSdpaProblem *p)
{
    DltSdpaProblem s = *p;
    if (!p->backward || !p->deterministic) return s;
    int64_t one = p->h * p->t * p->t * (int64_t)dlt_dtype_bytes(p->dtype);
    while (s.b > 1 && (s.b * one > work_limit || p->b % s.b != 0))
        s.b--;
    return s;
}

static void key_of(const DltDevice *dev, const DltSdpaProblem *p, char key[DLT_TUNE_KEY])
{
    snprintf(key, DLT_TUNE_KEY,
             "sdpa %zu %s sm%d n%d | %s %s b%lld h%lld t%lld d%lld causal=%d det=%d",
             dev->dnn->version, dev->name, dev->capability, dev->n_sm, p->backward ? "bwd" : "fwd",
             dlt_dtype_name(p->dtype), (long long)p->b, (long long)p->h, (long long)p->t,
             (long long)p->d, (int)p->causal, (int)(p->backward && p->deterministic));
}

bool dlt_sdpa_can(DltDevice *dev, const DltSdpaProblem *whole, DltWhy *why_not)
{
    char key[DLT_TUNE_KEY];
    DltDnnGraph g;
    DltDnnConfig c;
    DltSdpaProblem p = slice_of(whole);
    if (!dlt_dnn_open(dev, why_not)) return false;
    key_of(dev, &p, key);
    const char *known = dlt_tune_find(dev, key);
    int n = known ? strcmp(known, no_engine) != 0 : 0;
    if (!known) {
        if (!dlt_sdpa_graph(dev->dnn, &p, &g, why_not)) return false;
        n = dlt_dnn_configs(&g, dev, p.dtype, &c, 1);
        if (n > 0) (void)dev->dnn->cudnnBackendDestroyDescriptor(c.config);
        dlt_tune_put(dev, key, n > 0 ? c.tag : no_engine);
        dlt_dnn_graph_free(&g);
    }
    return n > 0 || dlt_cuda_refuse(why_not, "cuDNN has no engine for this attention");
}

/* ---- plans ---- */

static void shared_release(void *ctx)
{
    DltSdpaShared *s = ctx;
    if (s->plan) (void)s->dnn->cudnnBackendDestroyDescriptor(s->plan);
    dlt_dnn_graph_free(&s->graph);
    s->plan = NULL;
}

/* The remembered engine, or the first of the list that builds. */
static bool build(DltDevice *dev, DltSdpaShared *s, DltDtype dtype)
{
    DltDnnConfig c[MAX_CONFIGS];
    const char *tag = dlt_tune_find(dev, s->key);
    cudnnBackendDescriptor_t config =
        tag && strcmp(tag, no_engine) != 0 ? dlt_dnn_config_of(&s->graph, tag) : NULL;
    if (config) s->plan = dlt_dnn_plan_of(s->dnn, config, &s->work_bytes);
    if (s->plan) return true;
    int n = dlt_dnn_configs(&s->graph, dev, dtype, c, MAX_CONFIGS);
    for (int i = 0; i < n; i++) {
        if (!s->plan) s->plan = dlt_dnn_plan_of(s->dnn, c[i].config, &s->work_bytes);
        (void)s->dnn->cudnnBackendDestroyDescriptor(c[i].config);
    }
    return s->plan != NULL;
}

static DltSdpaShared *find_shared(DltDevice *dev, const DltSdpaProblem *p, DltErr *err)
{
    char key[DLT_TUNE_KEY];
    DltWhy why;
    key_of(dev, p, key);
    for (DltSdpaShared *s = dev->dnn->sdpa; s; s = s->next)
        if (strcmp(s->key, key) == 0) return s;
    DltSdpaShared *s = DLT_NEW(dev->arena, DltSdpaShared);
    s->dnn = dev->dnn;
    memcpy(s->key, key, sizeof key);
    if (!dlt_sdpa_graph(dev->dnn, p, &s->graph, &why)) {
        (void)dlt_err(err, DLT_E_DEVICE, "%s", why.text);
        return NULL;
    }
    dlt_arena_on_free(dev->arena, shared_release, s);
    if (!build(dev, s, p->dtype)) {
        (void)dlt_err(err, DLT_E_DEVICE, "cuDNN builds no engine for this attention");
        return NULL;
    }
    s->next = dev->dnn->sdpa;
    dev->dnn->sdpa = s;
    return s;
}

static void plan_release(void *ctx)
{
    DltSdpaPlan *p = ctx;
    for (int i = 0; i < p->n_slice; i++)
        if (p->pack[i]) (void)p->shared->dnn->cudnnBackendDestroyDescriptor(p->pack[i]);
    p->n_slice = 0;
}

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}
/* Scratch: delta f32 [b, h, t], then the sum of dq f32 [b, h, t, d], then the library's. */
static size_t delta_bytes(const DltSdpaProblem *p)
{
    return p->backward ? round_up((size_t)(p->b * p->h * p->t) * sizeof(float)) : 0;
}
static size_t sum_bytes(const DltSdpaProblem *p)
{
    return p->backward && !p->deterministic
               ? round_up((size_t)(p->b * p->h * p->t * p->d) * sizeof(float))
               : 0;
}

DltStatus dlt_sdpa_prepare(DltDevice *dev, DltArena *arena, const DltSdpaProblem *p,
                           DltSdpaPlan **out, size_t *work_bytes, DltErr *err)
{
    DltWhy why;
    if (!dlt_dnn_open(dev, &why)) return dlt_err(err, DLT_E_DEVICE, "cuDNN: %s", why.text);
    DltSdpaPlan *plan = DLT_NEW(arena, DltSdpaPlan);
    plan->p = slice_of(p);
    plan->shared = find_shared(dev, &plan->p, err);
    if (!plan->shared) return DLT_E_DEVICE;
    plan->n_slice = (int)(p->b / plan->p.b);
    plan->scale = p->scale;
    plan->one = 1;
    plan->minus_inf = -INFINITY;
    plan->pack = DLT_NEW_ARRAY(arena, plan->n_slice, cudnnBackendDescriptor_t);
    dlt_arena_on_free(arena, plan_release, plan);
    *out = plan;
    *work_bytes = delta_bytes(&plan->p) + sum_bytes(&plan->p) + (size_t)plan->shared->work_bytes;
    return DLT_OK;
}

/* ---- running ---- */

/* Addresses of slice i by unique id; NULL where the graph has no such tensor. */
static void addresses(DltSdpaPlan *plan, const DltSdpaArgs *a, int i, void *ptr[DLT_SDPA_IDS])
{
    const DltSdpaProblem *p = &plan->p;
    size_t e = dlt_dtype_bytes(p->dtype), head = (size_t)(p->h * p->d) * e;
    size_t rows = (size_t)(i * p->b * p->t), in = rows * 3 * head, out = rows * head;
    size_t delta = delta_bytes(p), sum = sum_bytes(p);
    memset(ptr, 0, DLT_SDPA_IDS * sizeof *ptr);
    for (size_t k = 0; k < 3; k++) {
        ptr[DLT_SDPA_Q + k] = a->qkv + in + k * head;
        if (p->backward) ptr[DLT_SDPA_DQ + k] = a->dqkv + in + k * head;
    }
    ptr[DLT_SDPA_O] = a->o + out;
    ptr[DLT_SDPA_STATS] = a->stats + rows * (size_t)p->h * sizeof(float);
    ptr[DLT_SDPA_SCALE] = &plan->scale;
    if (p->causal) ptr[DLT_SDPA_MINUS_INF] = &plan->minus_inf;
    if (!p->backward) return;
    ptr[DLT_SDPA_DO] = a->d_o + out;
    ptr[DLT_SDPA_DELTA] = a->work;
    ptr[DLT_SDPA_ONE] = &plan->one;
    if (sum > 0) ptr[DLT_SDPA_DQ_SUM] = a->work + delta;
}

static cudnnStatus_t bind(DltSdpaPlan *plan, const DltSdpaArgs *a, int i)
{
    const DltDnn *d = plan->shared->dnn;
    void *ptr[DLT_SDPA_IDS], *set[DLT_SDPA_IDS];
    int64_t id[DLT_SDPA_IDS], n = 0;
    void *work = a->work + delta_bytes(&plan->p) + sum_bytes(&plan->p);
    if (plan->pack[i]) (void)d->cudnnBackendDestroyDescriptor(plan->pack[i]);
    plan->pack[i] = NULL;
    addresses(plan, a, i, ptr);
    for (int64_t k = 0; k < DLT_SDPA_IDS; k++) {
        if (!ptr[k]) continue;
        id[n] = k;
        set[n++] = ptr[k];
    }
    cudnnStatus_t s =
        d->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &plan->pack[i]);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(plan->pack[i], CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, n, id);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(plan->pack[i], CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, n, set);
    if (s == CUDNN_STATUS_SUCCESS)
        s = d->cudnnBackendSetAttribute(plan->pack[i], CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &work);
    if (s == CUDNN_STATUS_SUCCESS) s = d->cudnnBackendFinalize(plan->pack[i]);
    return s;
}

static bool same_args(const DltSdpaArgs *a, const DltSdpaArgs *b)
{
    return a->qkv == b->qkv && a->o == b->o && a->stats == b->stats && a->d_o == b->d_o &&
           a->dqkv == b->dqkv && a->work == b->work;
}

DltStatus dlt_sdpa_run(DltSdpaPlan *plan, const DltCall *call, const DltSdpaArgs *args, DltErr *err)
{
    DltDnn *d = plan->shared->dnn;
    bool bound = plan->pack[0] && same_args(args, &plan->bound);
    cudnnStatus_t s = CUDNN_STATUS_SUCCESS;
    for (int i = 0; !bound && i < plan->n_slice && s == CUDNN_STATUS_SUCCESS; i++)
        s = bind(plan, args, i);
    plan->bound = *args;
    if (s == CUDNN_STATUS_SUCCESS) s = d->cudnnSetStream(d->handle, call->stream->handle);
    for (int i = 0; i < plan->n_slice && s == CUDNN_STATUS_SUCCESS; i++)
        s = d->cudnnBackendExecute(d->handle, plan->shared->plan, plan->pack[i]);
    call->stream->joined = true; /* it may end in something else than a kernel */
    if (s == CUDNN_STATUS_SUCCESS) return DLT_OK;
    (void)cudaGetLastError();
    return dlt_err_at(err, DLT_E_DEVICE, call->node->at, "%s: cuDNN attention: %s",
                      call->node->name ? call->node->name : "attention", d->cudnnGetErrorString(s));
}
