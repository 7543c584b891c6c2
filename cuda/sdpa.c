/* Attention by cuDNN: plans of the graphs in sdpa_graph.c, one for each shape, and variant packs, one
 * for each node (and slice of its batch). The faster of the heuristics' first two engines that build
 * is taken (forward, GPT-2 124M: 175 us against 190); the others take half as long again, and building one takes
 * half a second. The one kernel choice that is ours: the deterministic backward needs scratch for all scores of
 * a launch, so a batch is cut into slices that need no more than work_limit. */
#include "cuda/sdpa.h"
#include "cuda/sdpa_graph.h"
#include "cuda/tune.h"

#include <math.h>

enum { MAX_CONFIGS = 8, TRIED = 2, ALIGN = 256 };
static const int64_t work_limit = (int64_t)1 << 30; /* slices of 256 MiB take a third longer */
static const char no_engine[] = "none";             /* stored for a refused problem */
static const char untried[] = "some";               /* stored while no engine was chosen */

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
             "sdpa.2 %zu %s sm%d n%d | %s %s b%lld h%lld t%lld d%lld causal=%d det=%d",
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
        (void)dlt_tune_put(dev, key, n > 0 ? untried : no_engine);
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

/* ---- binding ---- */

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

/* ---- choosing ---- */

enum { BUF_QKV, BUF_O, BUF_STATS, BUF_D_O, BUF_DQKV, BUF_WORK, N_BUF };
typedef struct Trial {
    DltDevice *dev;
    DltSdpaPlan *plan;
} Trial;

static bool trial_run(void *ctx)
{
    const Trial *t = ctx;
    DltDnn *d = t->dev->dnn;
    return d->cudnnSetStream(d->handle, t->dev->lane[0].handle) == CUDNN_STATUS_SUCCESS &&
           d->cudnnBackendExecute(d->handle, t->plan->shared->plan, t->plan->pack[0]) ==
               CUDNN_STATUS_SUCCESS;
}

static void init_plan(DltSdpaPlan *plan, DltSdpaShared *shared, const DltSdpaProblem *p)
{
    plan->shared = shared;
    plan->p = *p;
    plan->scale = p->scale;
    plan->one = 1;
    plan->minus_inf = -INFINITY;
}

/* Microseconds of the engine in s->plan on random operands; negative when it cannot be told. */
static double time_plan(DltDevice *dev, DltSdpaShared *s, const DltSdpaProblem *p)
{
    cudnnBackendDescriptor_t pack = NULL;
    DltSdpaPlan plan = {.n_slice = 1, .pack = &pack};
    size_t e = dlt_dtype_bytes(p->dtype), rows = (size_t)(p->b * p->t);
    size_t out = rows * (size_t)(p->h * p->d) * e, back = p->backward ? 1 : 0;
    init_plan(&plan, s, p);
    size_t work = delta_bytes(p) + sum_bytes(p) + (size_t)s->work_bytes + 1;
    DltTuneBuffer b[N_BUF] = {{3 * out, p->dtype, NULL},
                              {out, p->dtype, NULL},
                              {rows * (size_t)p->h * sizeof(float), DLT_F32, NULL},
                              {back * out, p->dtype, NULL},
                              {back * 3 * out, p->dtype, NULL},
                              {work, DLT_U8, NULL}};
    Trial t = {dev, &plan};
    DltErr quiet;
    double us = -1;
    dlt_err_init(&quiet);
    bool ready = dlt_tune_buffers(dev, b, N_BUF, &quiet) == DLT_OK;
    DltSdpaArgs args = {b[BUF_QKV].ptr, b[BUF_O].ptr,    b[BUF_STATS].ptr,
                        b[BUF_D_O].ptr, b[BUF_DQKV].ptr, b[BUF_WORK].ptr};
    if (ready && bind(&plan, &args, 0) == CUDNN_STATUS_SUCCESS &&
        !dlt_tune_time(dev, trial_run, &t, &us))
        us = -1;
    if (pack) (void)dev->dnn->cudnnBackendDestroyDescriptor(pack);
    dlt_tune_buffers_free(dev, b, N_BUF);
    return us;
}

static bool recall(DltDevice *dev, DltSdpaShared *s)
{
    const char *tag = dlt_tune_find(dev, s->key);
    bool known = tag && strcmp(tag, no_engine) != 0 && strcmp(tag, untried) != 0;
    cudnnBackendDescriptor_t config = known ? dlt_dnn_config_of(&s->graph, tag) : NULL;
    if (config) s->plan = dlt_dnn_plan_of(s->dnn, config, &s->work_bytes);
    return s->plan != NULL;
}

/* The remembered engine, or the faster of the first that build. */
static bool build(DltDevice *dev, DltSdpaShared *s, const DltSdpaProblem *p)
{
    DltDnnConfig c[MAX_CONFIGS];
    if (recall(dev, s)) return true;
    DltSdpaShared best = *s;
    double best_us = 0;
    int n = dlt_dnn_configs(&s->graph, dev, p->dtype, c, MAX_CONFIGS), tried = 0, chosen = -1;
    for (int i = 0; i < n; i++) {
        if (tried < TRIED) s->plan = dlt_dnn_plan_of(s->dnn, c[i].config, &s->work_bytes);
        (void)s->dnn->cudnnBackendDestroyDescriptor(c[i].config);
        if (!s->plan) continue;
        double us = time_plan(dev, s, p);
        bool better = tried++ == 0 || (us > 0 && (best_us <= 0 || us < best_us));
        if (better && best.plan) (void)s->dnn->cudnnBackendDestroyDescriptor(best.plan);
        if (!better) (void)s->dnn->cudnnBackendDestroyDescriptor(s->plan);
        if (better) best = *s, best_us = us, chosen = i;
        s->plan = NULL;
    }
    if (chosen >= 0 && !dlt_tune_put(dev, s->key, c[chosen].tag) && recall(dev, s)) {
        (void)s->dnn->cudnnBackendDestroyDescriptor(best.plan);
        return true;
    }
    s->plan = best.plan;
    s->work_bytes = best.work_bytes;
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
    if (!build(dev, s, p)) {
        (void)dlt_err(err, DLT_E_DEVICE, "cuDNN builds no engine for this attention");
        return NULL;
    }
    s->next = dev->dnn->sdpa;
    dev->dnn->sdpa = s;
    return s;
}

DltStatus dlt_sdpa_prepare(DltDevice *dev, DltArena *arena, const DltSdpaProblem *p,
                           DltSdpaPlan **out, size_t *work_bytes, DltErr *err)
{
    DltWhy why;
    if (!dlt_dnn_open(dev, &why)) return dlt_err(err, DLT_E_DEVICE, "cuDNN: %s", why.text);
    DltSdpaPlan *plan = DLT_NEW(arena, DltSdpaPlan);
    DltSdpaProblem slice = slice_of(p);
    DltSdpaShared *shared = find_shared(dev, &slice, err);
    if (!shared) return DLT_E_DEVICE;
    init_plan(plan, shared, &slice);
    plan->n_slice = (int)(p->b / slice.b);
    plan->pack = DLT_NEW_ARRAY(arena, plan->n_slice, cudnnBackendDescriptor_t);
    dlt_arena_on_free(arena, plan_release, plan);
    *out = plan;
    *work_bytes = delta_bytes(&plan->p) + sum_bytes(&plan->p) + (size_t)plan->shared->work_bytes;
    return DLT_OK;
}

/* ---- running ---- */

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
