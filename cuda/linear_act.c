/* linear_act_bwd (ops/matmul.h) in two steps: the product into scratch, by the library where it can, and the
 * activation's gradient behind it. For what the wide product (kernels/matmul_wide.cu) does not take. */
#include "cuda/branch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lt.h"
#include "ops/matmul.h"

enum { ALIGN = 256 };

typedef struct State {
    DltLtPlan *plan; /* NULL: by our plain product */
    DltNode rest;    /* act_bwd */
    DltTensor dy;    /* its first operand, in scratch */
    size_t dy_bytes, lt_bytes;
} State;

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static DltLtProblem problem_of(const DltNode *n)
{
    DltGemm g = dlt_linear_gemm(n);
    return (DltLtProblem){.ab = n->in[0]->dtype,
                          .c = n->in[2]->dtype,
                          .batch = 1,
                          .m = g.m,
                          .n = g.n,
                          .k = g.k,
                          .align_a = dlt_cuda_alignment(n->in[0]),
                          .align_b = dlt_cuda_alignment(n->in[1]),
                          .align_c = ALIGN,
                          .align_bias = ALIGN};
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    State s = {.rest = *n, .dy = *n->in[2]};
    s.rest.in[0] = &s.dy;
    s.rest.in[1] = n->in[2];
    s.rest.in[2] = NULL;
    return dlt_cuda_accepts_plain(n, dev, why_not) &&
           dlt_cuda_act_bwd[0]->accepts(&s.rest, dev, why_not);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    DltWhy why;
    State *s = DLT_NEW(p->arena, State);
    *s = (State){.rest = *n, .dy = *n->in[2]};
    s->rest.in[0] = &s->dy;
    s->rest.in[1] = n->in[2];
    s->rest.in[2] = NULL;
    s->dy_bytes = round_up((size_t)dlt_shape_count(&s->dy.shape) * dlt_dtype_bytes(s->dy.dtype));
    DltLtProblem problem = problem_of(n);
    bool same = n->in[0]->dtype == n->in[1]->dtype;
    if (same && dlt_lt_can(dev, &problem, &why))
        DLT_TRY(dlt_lt_prepare(dev, p->arena, &problem, &s->plan, &s->lt_bytes, err));
    size_t rest = dlt_cuda_act_bwd_bytes(&s->rest, dev);
    p->state = s;
    p->work_bytes = s->dy_bytes + (rest > s->lt_bytes ? rest : s->lt_bytes);
    return DLT_OK;
}

/* dx = (dz w) f'(x), y = f(x), db = column sums of dx. */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    const State *s = call->state;
    const DltNode *n = call->node;
    DltGemm g = dlt_linear_gemm(n);
    void *dy = call->work, *in[DLT_MAX_IN] = {dy, call->in[2]};
    DltCall own = *call;
    own.work = (char *)call->work + s->dy_bytes;
    DltCudaProduct plain = {.a = {call->in[0], n->in[0]->dtype},
                            .b = {call->in[1], n->in[1]->dtype},
                            .c = {dy, s->dy.dtype},
                            .m = g.m,
                            .n = g.n,
                            .k = g.k};
    if (s->plan)
        DLT_TRY(dlt_lt_run(s->plan, &own, call->in[0], call->in[1], dy, NULL, err));
    else
        DLT_TRY(dlt_cuda_product(&own, &plain, err));
    own.node = &s->rest;
    own.in = in;
    return dlt_cuda_act_bwd_launch(&own, err);
}

DLT_CUDA_KERNEL(parts, "linear_act_bwd.cuda.parts", accepts, prepare, launch);

extern const DltKernel dlt_cuda_linear_act_bwd_wide; /* kernels/matmul_wide.cu */
const DltKernel *const dlt_cuda_linear_act_bwd[] = {&dlt_cuda_linear_act_bwd_wide, &parts, NULL};
