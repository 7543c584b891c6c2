/* Matrix products: cuBLASLt where it can, a plain tile kernel (kernels/matmul.cu) for the rest.
 * Bias and relu go into the library's epilogue; every other epilogue costs as much there as in one
 * pass of our own (GELU), or far more (gradients with bias sums), so it is a kernel of ours behind
 * the product. */
#include "ops/matmul.h"
#include "cuda/branch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lt.h"

typedef struct State {
    DltLtPlan *plan;
    bool bias_inside, finish; /* the library adds the bias; something is left for us */
} State;

/* The largest power of two up to 256 that divides the tensor's address. */
static uint32_t alignment(const DltTensor *t)
{
    uint64_t at = t->view_of ? (uint64_t)t->view_offset * dlt_dtype_bytes(t->dtype) : 0;
    uint32_t a = 256;
    while (at % a != 0)
        a /= 2;
    return a;
}

DltGemm dlt_cuda_gemm(const DltNode *n)
{
    return dlt_matmul_gemm(n);
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
                          .align_a = alignment(n->in[0]),
                          .align_b = alignment(n->in[1]),
                          .align_c = alignment(n->out[0])};
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
    p.align_bias = p.bias ? alignment(n->in[2]) : 256;
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
    DLT_TRY(dlt_lt_run(s->plan, c, c->in[0], c->in[1], c->out[0], s->bias_inside ? c->in[2] : NULL,
                       err));
    if (!s->finish) return DLT_OK;
    const DltEpilogue *ep = &((const DltMatmul *)c->node->attr)->ep;
    DltGemm g = dlt_matmul_gemm(c->node);
    DltCudaFinish f = {.src = array_out(c, 0),
                       .c = array_out(c, 0),
                       .bias = array_in(c, 2),
                       .saved = array_in(c, 3),
                       .pre = array_out(c, 1),
                       .act = ep->act,
                       .act_grad = ep->act_grad,
                       .rows = g.batch * g.m,
                       .cols = g.n};
    if (s->bias_inside) f.bias.ptr = NULL;
    return dlt_cuda_finish(c, &f, err);
}

DLT_CUDA_KERNEL(lt, "matmul.cuda.lt", accepts_lt, prepare_lt, launch_lt);
extern const DltKernel dlt_cuda_matmul_plain; /* kernels/matmul.cu */
const DltKernel *const dlt_cuda_matmul[] = {&lt, &dlt_cuda_matmul_plain, NULL};
