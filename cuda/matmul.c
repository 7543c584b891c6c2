/* Matrix products: cuBLASLt where it can, a plain tile kernel (kernels/matmul.cu) for the rest.
 * Bias and relu go into the library's epilogue; every other epilogue costs as much there as in one
 * pass of our own (GELU), or far more (gradients with bias sums), so it is a kernel of ours behind
 * the product. */
#include "ops/matmul.h"
#include "cuda/branch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lt.h"
#include "cuda/trial.h"
#include "cuda/tune.h"

typedef struct State {
    DltLtPlan *plan;
    bool bias_inside, finish; /* the library adds the bias; something is left for us */
} State;

DltGemm dlt_cuda_gemm(const DltNode *n)
{
    return dlt_matmul_gemm(n);
}

DltGemm dlt_cuda_linear_gemm(const DltNode *n)
{
    return dlt_linear_gemm(n);
}

/* What the library writes: the sum in front of the activation where that is kept, so that the activation has
 * one array to read and one to write. */
static const DltTensor *product_of(const DltNode *n)
{
    return ((const DltMatmul *)n->attr)->ep.save_pre ? n->out[1] : n->out[0];
}

static DltLtProblem problem_of(const DltNode *n)
{
    const DltMatmul *a = n->attr;
    DltGemm g = dlt_matmul_gemm(n);
    return (DltLtProblem){.ab = n->in[0]->dtype,
                          .c = n->out[0]->dtype,
                          .ta = a->ta,
                          .tb = a->tb,
                          .batch = g.batch,
                          .m = g.m,
                          .n = g.n,
                          .k = g.k,
                          .align_a = dlt_cuda_alignment(n->in[0]),
                          .align_b = dlt_cuda_alignment(n->in[1]),
                          .align_c = dlt_cuda_alignment(product_of(n))};
}

/* The problem with as much of the epilogue as the library takes: all or nothing of bias + relu,
 * then the bias alone. */
static DltLtProblem choose(DltDevice *dev, const DltNode *n, State *s)
{
    const DltEpilogue *ep = &((const DltMatmul *)n->attr)->ep;
    DltLtProblem bare = problem_of(n), p = bare;
    bool relu = ep->act.fn == DLT_FN_RELU && !ep->save_pre && ep->act_grad.fn == DLT_FN_NONE;
    bool more = ep->act.fn != DLT_FN_NONE || ep->act_grad.fn != DLT_FN_NONE || ep->save_pre;
    DltWhy why;
    p.bias = n->in[2] != NULL;
    p.bias_dtype = p.bias ? n->in[2]->dtype : DLT_F32;
    p.align_bias = p.bias ? dlt_cuda_alignment(n->in[2]) : 256;
    p.relu = relu;
    s->bias_inside = p.bias;
    s->finish = more && !relu;
    if ((!p.bias && !relu) || dlt_lt_can(dev, &p, &why)) return p;
    p.relu = false;
    s->finish = more;
    if (p.bias && dlt_lt_can(dev, &p, &why)) return p;
    s->bias_inside = false;
    s->finish = more || n->in[2] != NULL;
    return bare;
}

static bool accepts_lt(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype != n->in[1]->dtype)
        return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, n->in[1]->name);
    for (int i = 0; i < 2; i++) {
        const DltTensor *t = i == 0 ? n->in[3] : n->out[1];
        if (t && t->dtype != n->out[0]->dtype)
            return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->out[0]->name, t->name);
    }
    DltLtProblem p = problem_of(n);
    if (p.batch > INT32_MAX) return dlt_cuda_refuse(why_not, "more than 2^31 products");
    return dlt_lt_can((DltDevice *)(uintptr_t)dev, &p, why_not);
}

static DltStatus prepare_lt(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    State *s = DLT_NEW(p->arena, State);
    DltLtProblem problem = choose(dev, n, s);
    p->state = s;
    return dlt_lt_prepare(dev, p->arena, &problem, &s->plan, &p->work_bytes, err);
}

static DltCudaArray array_in(const DltCall *c, int i)
{
    return (DltCudaArray){c->in[i], c->node->in[i] ? c->node->in[i]->dtype : DLT_F32};
}
static DltCudaArray array_out(const DltCall *c, int i)
{
    return (DltCudaArray){c->out[i], c->node->out[i] ? c->node->out[i]->dtype : DLT_F32};
}

static DltStatus launch_lt(const DltCall *c, DltErr *err)
{
    const State *s = c->state;
    const DltEpilogue *ep = &((const DltMatmul *)c->node->attr)->ep;
    int product = ep->save_pre;
    DLT_TRY(dlt_lt_run(s->plan, c, c->in[0], c->in[1], c->out[product],
                       s->bias_inside ? c->in[2] : NULL, err));
    if (!s->finish) return DLT_OK;
    DltGemm g = dlt_matmul_gemm(c->node);
    DltCudaFinish f = {.src = array_out(c, product),
                       .c = array_out(c, 0),
                       .bias = array_in(c, 2),
                       .saved = array_in(c, 3),
                       .pre = array_out(c, 1),
                       .act = ep->act,
                       .act_grad = ep->act_grad,
                       .rows = g.batch * g.m,
                       .cols = g.n};
    if (s->bias_inside) f.bias.ptr = f.pre.ptr = NULL; /* the library wrote it */
    return dlt_cuda_finish(c, &f, err);
}

extern const DltKernel dlt_cuda_matmul_small; /* kernels/matmul_small.cu */
extern const DltKernel dlt_cuda_matmul_wide;  /* kernels/matmul_wide.cu */
extern const DltKernel dlt_cuda_matmul_plain; /* kernels/matmul.cu */

/* ---- the faster of two ---- */

static void choice_key(const DltNode *n, const DltDevice *dev, char key[DLT_TUNE_KEY])
{
    const DltMatmul *a = n->attr;
    DltGemm g = dlt_matmul_gemm(n);
    snprintf(key, DLT_TUNE_KEY,
             "small.3 %s %s sm%d n%d | %lldx%lldx%lld %s%s %s->%s bias%d act%d grad%d pre%d align "
             "%u,%u",
             dlt_lt_version(dev), dev->name, dev->capability, dev->n_sm, (long long)g.m,
             (long long)g.n, (long long)g.k, a->ta ? "T" : "N", a->tb ? "T" : "N",
             dlt_dtype_name(n->in[0]->dtype), dlt_dtype_name(n->out[0]->dtype), n->in[2] != NULL,
             (int)a->ep.act.fn, (int)a->ep.act_grad.fn, (int)a->ep.save_pre,
             dlt_cuda_alignment(n->in[0]), dlt_cuda_alignment(n->in[1]));
}

static bool accepts_best(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const double most = 4e9; /* operations; beyond, the library's larger tiles always win */
    DltGemm g = dlt_matmul_gemm(n);
    if (2.0 * (double)g.m * (double)g.n * (double)g.k > most)
        return dlt_cuda_refuse(why_not, "a large product");
    return dlt_cuda_matmul_small.accepts(n, dev, why_not) && accepts_lt(n, dev, why_not);
}

static const DltCudaWay ways[2] = {{accepts_lt, prepare_lt, launch_lt},
                                   {NULL, NULL, dlt_cuda_matmul_small_launch}};

static DltStatus prepare_best(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    char key[DLT_TUNE_KEY];
    choice_key(n, dev, key);
    return dlt_cuda_two_prepare(n, dev, p, ways, key, err);
}

DLT_CUDA_KERNEL(best, "matmul.cuda.best", accepts_best, prepare_best, dlt_cuda_two_launch);
DLT_CUDA_KERNEL(lt, "matmul.cuda.lt", accepts_lt, prepare_lt, launch_lt);
const DltKernel *const dlt_cuda_matmul[] = {
    &best, &dlt_cuda_matmul_wide, &lt, &dlt_cuda_matmul_small, &dlt_cuda_matmul_plain, NULL};
