/* Elementwise functions of one argument, forward and gradient, and the epilogue that matmul and
 * convolution put behind their sums. One table row is all there is to know about a function. */
#include "cpu/plain.h"
#include "cpu/vmath.h"
#include <tgmath.h>

enum { BLOCK = 64 };

/* Blocks of BLOCK elements that do not overlap, so that the loops vectorise also in place. */
typedef struct UnaryRow {
    void (*forward)(const DltReal *restrict x, DltReal *restrict y, DltReal a);
    void (*backward)(const DltReal *restrict dy, const DltReal *restrict s, DltReal *restrict dx,
                     DltReal a);
} UnaryRow;

static const DltReal sqrt_half = (DltReal)0.70710678118654752440;        /* sqrt(1/2) */
static const DltReal inv_sqrt_two_pi = (DltReal)0.39894228040143267794;  /* 1 / sqrt(2 pi) */
static const DltReal sqrt_two_over_pi = (DltReal)0.79788456080286535588; /* sqrt(2 / pi) */
static const DltReal gelu_cubic = (DltReal)0.044715; /* Hendrycks & Gimpel 2016, section 2 */
static const DltReal softplus_linear = 20;           /* log(1 + exp(20)) - 20 < 2.1e-9 */

static DltReal sigmoid(DltReal x)
{
    return 1 / (1 + dlt_exp(-x));
}

/* Gaussian distribution function. */
static DltReal normal_cdf(DltReal x)
{
    return (1 + dlt_erf(x * sqrt_half)) / 2;
}

static DltReal gelu_grad(DltReal x)
{
    return normal_cdf(x) + x * inv_sqrt_two_pi * dlt_exp(-x * x / 2);
}

static DltReal gelu_tanh(DltReal x)
{
    return x * (1 + dlt_tanh(sqrt_two_over_pi * (x + gelu_cubic * x * x * x))) / 2;
}

static DltReal gelu_tanh_grad(DltReal x)
{
    DltReal t = dlt_tanh(sqrt_two_over_pi * (x + gelu_cubic * x * x * x));
    DltReal slope = sqrt_two_over_pi * (1 + 3 * gelu_cubic * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * slope / 2;
}

static DltReal silu_grad(DltReal x)
{
    DltReal y = sigmoid(x);
    return y * (1 + x * (1 - y));
}

static DltReal softplus(DltReal x, DltReal a)
{
    return a * x > softplus_linear ? x : log1p(exp(a * x)) / a;
}

static DltReal softplus_grad(DltReal x, DltReal a)
{
    return a * x > softplus_linear ? 1 : sigmoid(a * x);
}

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
ROW(RELU, x<0 ? 0 : x, s> 0 ? 1 : 0) /* NaN stays NaN */
ROW(LEAKY_RELU, x > 0 ? x : a * x, s > 0 ? 1 : a)
ROW(GELU, x *normal_cdf(x), gelu_grad(s))
ROW(GELU_TANH, gelu_tanh(x), gelu_tanh_grad(s))
ROW(SILU, x *sigmoid(x), silu_grad(s))
ROW(SIGMOID, sigmoid(x), s *(1 - s))
ROW(TANH, dlt_tanh(x), 1 - s * s)
ROW(SOFTPLUS, softplus(x, a), softplus_grad(s, a))
ROW(ELU, x > 0 ? x : a * expm1(x), s > 0 ? 1 : a * dlt_exp(s))
ROW(SCALE, a == 0 ? 0 : a * x, a) /* 0 for every x: see reduce_grad */
ROW(EXP, dlt_exp(x), s)
ROW(SQUARE, x *x, 2 * s)
ROW(SQRT, sqrt(x), 1 / (2 * s))
ROW(ABS, fabs(x), s > 0 ? 1 : s < 0 ? -1 : 0)
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
    for (int i = 0; i < BLOCK; i++)
        y[i] = dlt_exp(x[i] - shift);
}

double dlt_exp_run(const DltReal *x, DltReal shift, DltReal *y, int64_t n)
{
    DltReal in[BLOCK] = {0}, out[BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += BLOCK) {
        memcpy(in, x + i, block_bytes(n - i));
        exp_block(in, shift, out);
        sum += dlt_sum(out, n - i < BLOCK ? n - i : BLOCK);
        if (y != NULL) memcpy(y + i, out, block_bytes(n - i));
    }
    return sum;
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
