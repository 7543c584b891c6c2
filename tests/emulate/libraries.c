/* cuBLASLt and cuDNN as their doors (cuda/lt.h, cuda/dnn.h) show them, by loops: what is tested
 * with them is everything around the libraries (transpositions, strides, staging, epilogues). */
#include "base/half.h"
#include "cuda/dnn.h"
#include "cuda/lt.h"
#include "cuda/sdpa.h"

static float get(const void *p, DltDtype t, int64_t i)
{
    if (t == DLT_F32) return ((const float *)p)[i];
    uint16_t h = ((const uint16_t *)p)[i];
    return t == DLT_BF16 ? dlt_bf16_to(h) : dlt_f16_to(h);
}
static void put(void *p, DltDtype t, int64_t i, double v)
{
    if (t == DLT_F32)
        ((float *)p)[i] = (float)v;
    else
        ((uint16_t *)p)[i] = t == DLT_BF16 ? dlt_bf16_from((float)v) : dlt_f16_from((float)v);
}

struct DltLtPlan {
    DltLtProblem p;
};
bool dlt_lt_open(DltDevice *dev, DltWhy *why_not)
{
    (void)dev, (void)why_not;
    return true;
}
void dlt_lt_close(DltDevice *dev)
{
    (void)dev;
}
const char *dlt_lt_version(const DltDevice *dev)
{
    (void)dev;
    return "products by loops";
}
/* Refuses some epilogues, as the library does for some types. */
bool dlt_lt_can(DltDevice *dev, const DltLtProblem *p, DltWhy *why_not)
{
    (void)dev;
    return !p->bias || p->bias_dtype == p->c || dlt_cuda_refuse(why_not, "bias of another type");
}
DltStatus dlt_lt_prepare(DltDevice *dev, DltArena *arena, const DltLtProblem *p, DltLtPlan **plan,
                         size_t *work_bytes, DltErr *err)
{
    (void)dev, (void)err;
    *plan = DLT_NEW(arena, DltLtPlan);
    (*plan)->p = *p;
    *work_bytes = 0;
    return DLT_OK;
}
typedef struct Product {
    DltLtProblem p;
    const void *a, *b, *bias;
    void *c;
} Product;
static void product(const void *args)
{
    const Product *d = args;
    const DltLtProblem *p = &d->p;
    for (int64_t z = 0; z < p->batch; z++)
        for (int64_t i = 0; i < p->m * p->n; i++) {
            int64_t row = i / p->n, col = i % p->n, at = z * p->m * p->k, bt = z * p->k * p->n;
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++)
                sum += (double)get(d->a, p->ab, at + (p->ta ? k * p->m + row : row * p->k + k)) *
                       (double)get(d->b, p->ab, bt + (p->tb ? col * p->k + k : k * p->n + col));
            if (d->bias) sum += (double)get(d->bias, p->bias_dtype, col);
            if (p->relu && sum < 0) sum = 0;
            if (p->add) sum += (double)get(d->c, p->c, z * p->m * p->n + i);
            put(d->c, p->c, z * p->m * p->n + i, sum);
        }
}
DltStatus dlt_lt_run(DltLtPlan *plan, const DltCall *call, const void *a, const void *b, void *c,
                     const void *bias, DltErr *err)
{
    Product d = {plan->p, a, b, bias, c};
    (void)err;
    emulated_call(call->stream->handle, product, &d, sizeof d);
    return DLT_OK;
}

struct DltDnnPlan {
    DltDnnProblem p;
};
bool dlt_dnn_open(DltDevice *dev, DltWhy *why_not)
{
    (void)dev, (void)why_not;
    return true;
}
void dlt_dnn_close(DltDevice *dev)
{
    (void)dev;
}
const char *dlt_dnn_version(const DltDevice *dev)
{
    (void)dev;
    return "convolutions by loops";
}
bool dlt_dnn_can(DltDevice *dev, const DltDnnProblem *p, DltWhy *why_not)
{
    (void)dev, (void)p, (void)why_not;
    return true;
}
DltStatus dlt_dnn_prepare(DltDevice *dev, DltArena *arena, const DltDnnProblem *p,
                          DltDnnPlan **plan, size_t *work_bytes, DltErr *err)
{
    (void)dev, (void)err;
    *plan = DLT_NEW(arena, DltDnnPlan);
    (*plan)->p = *p;
    *work_bytes = 64; /* so that offsets behind it are tested */
    return DLT_OK;
}

/* Calls for every term of the convolution: y[yi] += x[xi] w[wi], offsets of NHWC memory. */
typedef struct Term {
    int64_t x, w, y;
} Term;
typedef void (*Visit)(const DltDnnProblem *p, const DltDnnArgs *a, double *sum, Term t);
static void walk(const DltDnnProblem *p, const DltDnnArgs *a, double *sum, Visit visit)
{
    int64_t cg = p->c / p->groups, kg = p->k / p->groups;
    for (int64_t i = 0; i < p->n * p->p * p->q * p->k; i++) {
        int64_t k = i % p->k, q = i / p->k % p->q, r = i / p->k / p->q % p->p;
        int64_t n = i / p->k / p->q / p->p;
        for (int64_t j = 0; j < p->r * p->s * cg; j++) {
            int64_t c = j % cg, fs = j / cg % p->s, fr = j / cg / p->s;
            int64_t h = r * p->stride[0] + fr * p->dilation[0] - p->pad[0];
            int64_t w = q * p->stride[1] + fs * p->dilation[1] - p->pad[2];
            if (h < 0 || h >= p->h || w < 0 || w >= p->w) continue;
            visit(p, a, sum,
                  (Term){((n * p->h + h) * p->w + w) * p->c + k / kg * cg + c,
                         k * p->r * p->s * cg + j, i});
        }
    }
}
static void add_y(const DltDnnProblem *p, const DltDnnArgs *a, double *sum, Term t)
{
    sum[t.y] += (double)get(a->x, p->dtype, t.x) * (double)get(a->w, p->dtype, t.w);
}
static void add_x(const DltDnnProblem *p, const DltDnnArgs *a, double *sum, Term t)
{
    sum[t.x] += (double)get(a->y, p->dtype, t.y) * (double)get(a->w, p->dtype, t.w);
}
static void add_w(const DltDnnProblem *p, const DltDnnArgs *a, double *sum, Term t)
{
    sum[t.w] += (double)get(a->y, p->dtype, t.y) * (double)get(a->x, p->dtype, t.x);
}

typedef struct Convolution {
    DltDnnProblem p;
    DltDnnArgs args;
} Convolution;
static void convolution(const void *args)
{
    static const Visit visit[] = {add_y, add_x, add_w};
    const Convolution *d = args;
    const DltDnnProblem *p = &d->p;
    const int64_t count[] = {p->n * p->p * p->q * p->k, p->n * p->h * p->w * p->c,
                             p->k * p->r * p->s * (p->c / p->groups)};
    void *const out[] = {d->args.y, d->args.x, d->args.w};
    int64_t n = count[p->kind];
    double *sum = calloc((size_t)n, sizeof *sum);
    walk(p, &d->args, sum, visit[p->kind]);
    for (int64_t i = 0; i < n; i++) {
        if (p->bias_relu) sum[i] += (double)get(d->args.bias, p->dtype, i % p->k);
        if (p->bias_relu && sum[i] < 0) sum[i] = 0;
        put(out[p->kind], p->dtype, i, sum[i]);
    }
    free(sum);
}
DltStatus dlt_dnn_run(DltDnnPlan *plan, const DltCall *call, const DltDnnArgs *args, DltErr *err)
{
    Convolution d = {plan->p, *args};
    (void)err;
    emulated_call(call->stream->handle, convolution, &d, sizeof d);
    return DLT_OK;
}

/* No attention: the own kernels serve. */
bool dlt_sdpa_can(DltDevice *dev, const DltSdpaProblem *p, DltWhy *why_not)
{
    (void)dev, (void)p;
    return dlt_cuda_refuse(why_not, "no attention in this library");
}
DltStatus dlt_sdpa_prepare(DltDevice *dev, DltArena *arena, const DltSdpaProblem *p,
                           DltSdpaPlan **plan, size_t *work_bytes, DltErr *err)
{
    (void)dev, (void)arena, (void)p, (void)plan, (void)work_bytes;
    return dlt_err(err, DLT_E_DEVICE, "no attention in this library");
}
DltStatus dlt_sdpa_run(DltSdpaPlan *plan, const DltCall *call, const DltSdpaArgs *args, DltErr *err)
{
    (void)plan, (void)call, (void)args;
    return dlt_err(err, DLT_E_DEVICE, "no attention in this library");
}
