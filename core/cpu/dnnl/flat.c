/* Elementwise kernels on flat arrays of any layout, f32 or bf16: activations and adds. bf16 is widened into f32 on the
 * stack, a piece at a time, goes through the same loops and is rounded once. */
#include "cpu/dnnl/fast.h"

#include "cpu/act.h"
#include "ops/elementwise.h"

int64_t dlt_fast_block(const DltTensor *t)
{
    return t->layout == DLT_NCHW8C ? 8 : t->layout == DLT_NCHW16C ? 16 : 0;
}

int64_t dlt_fast_lanes(const DltTensor *t)
{
    bool last = t->layout == DLT_NHWC && t->shape.dim[1] % 8 == 0;
    return last ? t->shape.dim[1] : dlt_fast_block(t);
}

bool dlt_fast_f32(const DltNode *n, DltWhy *why_not)
{
    for (int i = 0; i < DLT_MAX_IN; i++)
        if (n->in[i] && n->in[i]->dtype != DLT_F32 && dlt_dtype_is_float(n->in[i]->dtype) &&
            n->in[i]->dtype != DLT_F64) {
            snprintf(why_not->text, sizeof why_not->text, "%s is not f32", n->in[i]->name);
            return false;
        }
    return true;
}

bool dlt_fast_images(const DltNode *n, bool *low, DltWhy *why_not)
{
    *low = n->in[0]->dtype == DLT_BF16;
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (!t || !dlt_dtype_is_float(t->dtype) || t->dtype == DLT_F64) continue;
        bool image = t->shape.rank == 4 && dlt_fast_lanes(t) > 0;
        if (t->dtype == (image ? n->in[0]->dtype : DLT_F32) &&
            (t->dtype == DLT_F32 || t->dtype == DLT_BF16))
            continue;
        snprintf(why_not->text, sizeof why_not->text, "%s is %s", t->name,
                 dlt_dtype_name(t->dtype));
        return false;
    }
    return true;
}

/* All floats f32 or all bf16, in one layout. */
static bool one_kind(const DltNode *n, DltWhy *why_not)
{
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (!t || (t->dtype == n->in[0]->dtype && t->layout == n->in[0]->layout)) continue;
        snprintf(why_not->text, sizeof why_not->text, "types or layouts differ");
        return false;
    }
    return n->in[0]->dtype == DLT_BF16 || dlt_fast_f32(n, why_not);
}

/* Both loops of an activation over [0, n): y may be x, dx may be dy or saved; element i meets element i
 * only, so the loops are free of dependences. */
typedef struct ActRow {
    void (*forward)(const float *x, float *y, float a, int64_t n);
    void (*backward)(const float *dy, const float *saved, float *dx, float a, int64_t n);
} ActRow;

#define ROW(id, y_of_x, slope_of_s)                                                                \
    DLT_CLONES static void id##_forward(const float *px, float *py, float a, int64_t n)            \
    {                                                                                              \
        (void)a;                                                                                   \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                       \
        {                                                                                          \
            float x = px[i];                                                                       \
            py[i] = (y_of_x);                                                                      \
        }                                                                                          \
    }                                                                                              \
    DLT_CLONES static void id##_backward(const float *dy, const float *ps, float *dx, float a,     \
                                         int64_t n)                                                \
    {                                                                                              \
        (void)a;                                                                                   \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                       \
        {                                                                                          \
            float s = ps[i];                                                                       \
            (void)s;                                                                               \
            dx[i] = dy[i] * (slope_of_s);                                                          \
        }                                                                                          \
    }
ROW(NONE, x, 1)
DLT_ACT_TABLE(ROW)
#undef ROW

#define F(id, name, y) [DLT_FN_##id] = {id##_forward, id##_backward},
static const ActRow act_rows[DLT_N_FN] = {F(NONE, "", 0) DLT_UNARY_TABLE(F)};
#undef F

enum { PIECE = 512 };

void dlt_fast_flat(void *flat, int64_t begin, int64_t end)
{
    const DltFlat *f = flat;
    const ActRow *row = &act_rows[f->fn.fn];
    float a = (float)f->fn.alpha, x[PIECE], s[PIECE];
    if (!f->low) {
        const float *from = (const float *)f->x + begin, *saved = (const float *)f->saved;
        float *y = (float *)f->y + begin;
        if (saved)
            row->backward(from, saved + begin, y, a, end - begin);
        else
            row->forward(from, y, a, end - begin);
        return;
    }
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PIECE ? end - i : PIECE;
        dlt_widen_run((const uint16_t *)f->x + i, x, n);
        if (f->saved) {
            dlt_widen_run((const uint16_t *)f->saved + i, s, n);
            row->backward(x, s, x, a, n);
        } else {
            row->forward(x, x, a, n);
        }
        dlt_narrow_run(x, (uint16_t *)f->y + i, n);
    }
}

void dlt_fast_finish(const DltCall *c, const DltEpilogue *rest, const void *made, const void *saved)
{
    const DltTensor *y = c->node->out[0];
    const DltUnary *todo[2] = {&rest->act, &rest->act_grad};
    for (int i = 0; i < 2; i++) {
        if (!todo[i]->fn) continue;
        DltFlat f = {.fn = *todo[i],
                     .low = y->dtype == DLT_BF16,
                     .x = made,
                     .saved = i == 1 ? saved : NULL,
                     .y = c->out[0]};
        dlt_pool_for(c->stream, dlt_count(y), DLT_FLAT_GRAIN, dlt_fast_flat, &f);
        made = c->out[0];
    }
}

static bool unary_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return one_kind(n, why_not);
}

/* unary_fwd: x, y; unary_bwd: dy, saved, dx.  elementwise.h */
static DltStatus unary(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltTensor *y = c->node->out[0];
    const DltUnary *a = c->node->attr;
    DltFlat f = {
        .fn = *a, .low = y->dtype == DLT_BF16, .x = c->in[0], .saved = c->in[1], .y = c->out[0]};
    dlt_pool_for(c->stream, dlt_count(y), DLT_FLAT_GRAIN, dlt_fast_flat, &f);
    return DLT_OK;
}

typedef struct Pair {
    const void *a, *b;
    void *y;
    DltBinaryFn fn;
    bool low;
    int64_t n_b; /* elements of b, which is repeated */
} Pair;

DLT_CLONES static void pair_loop(DltBinaryFn fn, const float *a, const float *b, float *y,
                                 int64_t n)
{
    if (fn == DLT_ADD)
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
    else if (fn == DLT_SUB)
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] - b[i];
    else
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] * b[i];
}

static void pair_task(void *ctx, int64_t begin, int64_t end)
{
    const Pair *p = ctx;
    float a[PIECE], b[PIECE];
    for (int64_t i = begin, n; i < end; i += n) {
        int64_t at = i % p->n_b;
        n = end - i < p->n_b - at ? end - i : p->n_b - at;
        if (!p->low) {
            pair_loop(p->fn, (const float *)p->a + i, (const float *)p->b + at, (float *)p->y + i,
                      n);
            continue;
        }
        if (n > PIECE) n = PIECE;
        dlt_widen_run((const uint16_t *)p->a + i, a, n);
        dlt_widen_run((const uint16_t *)p->b + at, b, n);
        pair_loop(p->fn, a, b, a, n);
        dlt_narrow_run(a, (uint16_t *)p->y + i, n);
    }
}

/* b is a repeated: all of its dims are a's behind those that are 1. */
static bool repeats(const DltShape *a, const DltShape *b)
{
    int i = 0;
    while (i < b->rank && b->dim[i] == 1)
        i++;
    while (i < b->rank && b->dim[i] == a->dim[i])
        i++;
    return i == b->rank;
}

static bool binary_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltBinary *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->in[1];
    bool same = dlt_shape_equal(&x->shape, &y->shape);
    bool flat = x->layout == DLT_PLAIN && repeats(&x->shape, &y->shape);
    if (a->fn <= DLT_MUL && (same || flat)) return one_kind(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "other broadcasts and division are left to the plain kernel");
    return false;
}

static DltStatus binary(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltBinary *a = c->node->attr;
    const DltTensor *y = c->node->out[0];
    Pair p = {.a = c->in[0], .b = c->in[1], .y = c->out[0], .fn = a->fn};
    p.low = y->dtype == DLT_BF16;
    p.n_b = dlt_count(c->node->in[1]);
    dlt_pool_for(c->stream, dlt_count(y), DLT_FLAT_GRAIN, pair_task, &p);
    return DLT_OK;
}

static const DltKernel unary_fwd_k = {"unary_fwd.cpu.vector", unary_accepts, NULL, unary};
static const DltKernel unary_bwd_k = {"unary_bwd.cpu.vector", unary_accepts, NULL, unary};
static const DltKernel binary_k = {"binary.cpu.vector", binary_accepts, NULL, binary};
const DltKernel *const dlt_fast_unary_fwd[] = {&unary_fwd_k, NULL};
const DltKernel *const dlt_fast_unary_bwd[] = {&unary_bwd_k, NULL};
const DltKernel *const dlt_fast_binary[] = {&binary_k, NULL};
