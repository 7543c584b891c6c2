/* The classifier of ops/loss_ops.h: three products and a loss for each chunk of rows, whose logits live in the
 * node's scratch. The gradient of the weights adds up over the chunks. */
#include "cuda/branch.h"
#include "cuda/kernels/kernels.h"
#include "cuda/lt.h"
#include "ops/loss_ops.h"

enum { LOGITS, DX, DW, DW_MORE, N_PRODUCT, ALIGN = 256 }; /* DW_MORE adds to earlier chunks' */
enum { WHOLE, LAST, N_SIZE };

/* Chunks have `rows` rows each but for the last, which may have fewer. */
typedef struct Chunks {
    int64_t total, rows, last, n, c, v;
    size_t logit_bytes, loss_bytes;
} Chunks;

typedef struct State {
    Chunks k;
    DltLtPlan *plan[N_SIZE][N_PRODUCT]; /* by the library; NULL: by our plain product */
} State;

static size_t round_up(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static Chunks chunks_of(const DltNode *n, const DltDevice *dev)
{
    int64_t most = ((const DltClassifier *)n->attr)->rows;
    Chunks k = {.total = dlt_shape_count(&n->in[2]->shape),
                .c = dlt_shape_dim(&n->in[0]->shape, -1),
                .v = n->in[1]->shape.dim[0]};
    k.rows = most > 0 && most < k.total ? most : k.total;
    k.n = k.rows > 0 ? (k.total + k.rows - 1) / k.rows : 0;
    k.last = k.total - (k.n - 1) * k.rows;
    k.logit_bytes = round_up((size_t)(k.rows * k.v) * dlt_dtype_bytes(n->in[0]->dtype));
    k.loss_bytes = round_up(dlt_cuda_row_loss_bytes(dev));
    return k;
}

/* Product `which` of a chunk of `rows` rows. */
static DltLtProblem problem_of(const DltNode *n, const Chunks *k, int which, int64_t rows)
{
    const DltTensor *x = n->in[0], *w = n->in[1];
    uint32_t x_align = dlt_cuda_alignment_at(x, k->rows * k->c);
    uint32_t dx_align = dlt_cuda_alignment_at(n->out[0], k->rows * k->c);
    DltLtProblem p = {.ab = x->dtype, .c = x->dtype, .batch = 1, .align_bias = 256};
    if (dlt_cuda_alignment(x) < x_align) x_align = dlt_cuda_alignment(x);
    if (dlt_cuda_alignment(n->out[0]) < dx_align) dx_align = dlt_cuda_alignment(n->out[0]);
    p.m = rows, p.n = k->v, p.k = k->c;
    p.align_a = x_align, p.align_b = dlt_cuda_alignment(w), p.align_c = ALIGN;
    p.tb = which == LOGITS;
    if (which == LOGITS) return p;
    p.n = k->c, p.k = k->v;
    p.align_a = ALIGN, p.align_c = dx_align;
    if (which == DX) return p;
    p.m = k->v, p.k = rows;
    p.align_b = x_align, p.align_c = dlt_cuda_alignment(n->out[1]);
    p.c = DLT_F32;
    p.ta = true;
    p.add = which == DW_MORE;
    return p;
}

static bool accepts_lt(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    Chunks k = chunks_of(n, dev);
    if (k.total == 0) return dlt_cuda_refuse(why_not, "no rows");
    for (int i = 0; i < N_PRODUCT; i++) {
        DltLtProblem p = problem_of(n, &k, i, k.rows);
        if (!dlt_lt_can((DltDevice *)(uintptr_t)dev, &p, why_not)) return false;
    }
    return true;
}

static DltStatus prepare_plain(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    State *s = DLT_NEW(p->arena, State);
    s->k = chunks_of(n, dev);
    p->state = s;
    p->work_bytes = s->k.logit_bytes + s->k.loss_bytes;
    return DLT_OK;
}

static DltStatus prepare_lt(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    size_t most = 0;
    DLT_TRY(prepare_plain(n, dev, p, err));
    State *s = p->state;
    for (int size = WHOLE; size < N_SIZE; size++)
        for (int i = 0; i < N_PRODUCT; i++) {
            size_t bytes = 0;
            DltLtProblem problem = problem_of(n, &s->k, i, size == LAST ? s->k.last : s->k.rows);
            s->plan[size][i] = s->plan[WHOLE][i];
            if (size == LAST && s->k.last == s->k.rows) continue;
            DLT_TRY(dlt_lt_prepare(dev, p->arena, &problem, &s->plan[size][i], &bytes, err));
            if (bytes > most) most = bytes;
        }
    p->work_bytes += most;
    return DLT_OK;
}

/* ---- running ---- */

/* One product of the chunk that begins with row `first`. */
static DltStatus multiply(const DltCall *call, const State *s, int which, int64_t first,
                          DltErr *err)
{
    const DltNode *n = call->node;
    const Chunks *k = &s->k;
    int size = first + k->rows > k->total ? LAST : WHOLE;
    size_t at = (size_t)(first * k->c) * dlt_dtype_bytes(n->in[0]->dtype);
    char *logits = call->work, *x = (char *)call->in[0] + at, *dx = (char *)call->out[0] + at;
    DltLtProblem p = problem_of(n, k, which, size == LAST ? k->last : k->rows);
    const struct {
        void *a, *b, *c;
    } operand[N_PRODUCT] = {{x, call->in[1], logits},
                            {logits, call->in[1], dx},
                            {logits, x, call->out[1]},
                            {logits, x, call->out[1]}};
    void *a = operand[which].a, *b = operand[which].b, *c = operand[which].c;
    if (s->plan[size][which]) {
        DltCall own = *call;
        own.work = logits + k->logit_bytes + k->loss_bytes;
        return dlt_lt_run(s->plan[size][which], &own, a, b, c, NULL, err);
    }
    DltCudaProduct plain = {
        {a, p.ab}, {b, p.ab}, {c, p.c}, p.ta, p.tb, p.add, p.m, p.n, p.k,
    };
    return dlt_cuda_product(call, &plain, err);
}

static DltStatus launch(const DltCall *call, DltErr *err)
{
    const DltNode *n = call->node;
    const State *s = call->state;
    const Chunks *k = &s->k;
    char *work = call->work;
    for (int64_t first = 0; first < k->total; first += k->rows) {
        DltCudaRowLoss l = {.logits = {work, n->in[0]->dtype},
                            .w = {call->in[3], n->in[3]->dtype},
                            .y = (const int32_t *)call->in[2] + first,
                            .step = call->in[4],
                            .loss = call->out[2],
                            .part = (double *)(void *)(work + k->logit_bytes),
                            .first = first,
                            .rows = first + k->rows > k->total ? k->last : k->rows,
                            .classes = k->v,
                            .per_sample = k->total / dlt_shape_count(&n->in[3]->shape),
                            .ignore = ((const DltClassifier *)n->attr)->ignore,
                            .add = first > 0};
        DLT_TRY(multiply(call, s, LOGITS, first, err));
        DLT_TRY(dlt_cuda_row_loss(call, &l, err));
        DLT_TRY(multiply(call, s, DX, first, err));
        DLT_TRY(multiply(call, s, first > 0 ? DW_MORE : DW, first, err));
    }
    return DLT_OK;
}

DLT_CUDA_KERNEL(lt, "classifier.cuda.lt", accepts_lt, prepare_lt, launch);
DLT_CUDA_KERNEL(plain, "classifier.cuda.plain", dlt_cuda_accepts_plain, prepare_plain, launch);
const DltKernel *const dlt_cuda_classifier[] = {&lt, &plain, NULL};
