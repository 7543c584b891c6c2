/* Elementwise functions of one argument, forward and gradient, and the epilogue that matmul and
 * convolution put behind their sums. One table row is all there is to know about a function. */
#include "cpu/act.h"
#include "cpu/plain.h"

enum { BLOCK = 64, EXP_BLOCK = 16 /* ten classes fill most of it */ };

/* Blocks of BLOCK elements that do not overlap, so that the loops vectorise also in place. */
typedef struct UnaryRow {
    void (*forward)(const DltReal *restrict x, DltReal *restrict y, DltReal a);
    void (*backward)(const DltReal *restrict dy, const DltReal *restrict s, DltReal *restrict dx,
                     DltReal a);
} UnaryRow;

/* Both loops of a function: y in terms of x (and a), dx in terms of the saved s and dy. */
#define ROW(id, y_of_x, slope_of_s)                                                                \
    static void id##_forward(const DltReal *restrict px, DltReal *restrict py, DltReal a)          \
    {                                                                                              \
        (void)a;                                                                                   \
        for (int i = 0; i < BLOCK; i++) {                                                          \
            DltReal x = px[i];                                                                     \
            py[i] = (y_of_x);                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void id##_backward(const DltReal *restrict dy, const DltReal *restrict ps,              \
                              DltReal *restrict dx, DltReal a)                                     \
    {                                                                                              \
        (void)a;                                                                                   \
        for (int i = 0; i < BLOCK; i++) {                                                          \
            DltReal s = ps[i];                                                                     \
            (void)s;                                                                               \
            dx[i] = dy[i] * (slope_of_s);                                                          \
        }                                                                                          \
    }

ROW(NONE, x, 1)
DLT_ACT_TABLE(ROW)
#undef ROW

#define F(id, name, y) [DLT_FN_##id] = {id##_forward, id##_backward},
static const UnaryRow rows[DLT_N_FN] = {F(NONE, "", 0) DLT_UNARY_TABLE(F)};
#undef F

static size_t block_bytes(int64_t left)
{
    return (size_t)(left < BLOCK ? left : BLOCK) * sizeof(DltReal);
}

void dlt_unary_run(const DltUnary *f, const DltReal *x, DltReal *y, int64_t n)
{
    DltReal in[BLOCK] = {0}, out[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        memcpy(in, x + i, block_bytes(n - i));
        rows[f->fn].forward(in, out, (DltReal)f->alpha);
        memcpy(y + i, out, block_bytes(n - i));
    }
}

void dlt_unary_grad_run(const DltUnary *f, const DltReal *dy, const DltReal *saved, DltReal *dx,
                        int64_t n)
{
    DltReal slope[BLOCK] = {0}, in[BLOCK] = {0}, out[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        memcpy(slope, dy + i, block_bytes(n - i));
        memcpy(in, saved + i, block_bytes(n - i));
        rows[f->fn].backward(slope, in, out, (DltReal)f->alpha);
        memcpy(dx + i, out, block_bytes(n - i));
    }
}

static void exp_block(const DltReal *restrict x, DltReal shift, DltReal *restrict y)
{
    for (int i = 0; i < EXP_BLOCK; i++)
        y[i] = dlt_exp(x[i] - shift);
}

double dlt_exp_run(const DltReal *x, DltReal shift, DltReal *y, int64_t n)
{
    DltReal in[EXP_BLOCK] = {0}, out[EXP_BLOCK];
    double sum = 0;
    int64_t i = 0;
    for (; i + EXP_BLOCK <= n; i += EXP_BLOCK) {
        exp_block(x + i, shift, out);
        sum += dlt_sum(out, EXP_BLOCK);
        if (y != NULL) memcpy(y + i, out, sizeof out);
    }
    if (i == n) return sum;
    memcpy(in, x + i, (size_t)(n - i) * sizeof *x);
    exp_block(in, shift, out);
    if (y != NULL) memcpy(y + i, out, (size_t)(n - i) * sizeof *y);
    return sum + dlt_sum(out, n - i);
}

void dlt_epilogue_run(const DltEpilogue *ep, const DltEpilogueRow *row, DltReal *c, int64_t n)
{
    for (int64_t i = 0; i < n && row->bias != NULL; i++)
        c[i] += row->bias[i * row->bias_step];
    for (int64_t i = 0; i < n && row->pre != NULL; i++)
        row->pre[i] = c[i];
    if (ep->act.fn != DLT_FN_NONE) dlt_unary_run(&ep->act, c, c, n);
    if (ep->act_grad.fn != DLT_FN_NONE) dlt_unary_grad_run(&ep->act_grad, c, row->saved, c, n);
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltReal *x = call->in[0];
    DltReal *y = call->out[0];
    dlt_unary_run(call->node->attr, x + begin, y + begin, end - begin);
}

/* y = f(x).  x, y f32 of any shape, one layout.  elementwise.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(4), forward_task,
                 (void *)call);
    return DLT_OK;
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltReal *dy = call->in[0], *s = call->in[1];
    DltReal *dx = call->out[0];
    dlt_unary_grad_run(call->node->attr, dy + begin, s + begin, dx + begin, end - begin);
}

/* dx = dy f'(.), from the saved x or y.  dy, s, dx f32 of one shape and layout.  elementwise.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(4), backward_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain_forward = {
    .name = "unary_fwd.cpu.plain", .accepts = dlt_cpu_accepts_flat, .launch = forward};
const DltKernel *const dlt_cpu_unary_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {
    .name = "unary_bwd.cpu.plain", .accepts = dlt_cpu_accepts_flat, .launch = backward};
const DltKernel *const dlt_cpu_unary_bwd[] = {&plain_backward, NULL};
