/* Elementwise kernels on flat arrays of any layout: activations, adds, bias gradients. */
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

static bool same_layout(const DltNode *n, DltWhy *why_not)
{
    for (int i = 1; i < DLT_MAX_IN; i++)
        if (n->in[i] && n->in[i]->layout != n->in[0]->layout) {
            snprintf(why_not->text, sizeof why_not->text, "layouts differ");
            return false;
        }
    return n->out[0]->layout == n->in[0]->layout && dlt_fast_f32(n, why_not);
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

void dlt_fast_act(void *flat, int64_t begin, int64_t end)
{
    const DltFlat *f = flat;
    act_rows[f->fn.fn].forward(f->x + begin, f->y + begin, (float)f->fn.alpha, end - begin);
}

void dlt_fast_act_grad(void *flat, int64_t begin, int64_t end)
{
    const DltFlat *f = flat;
    act_rows[f->fn.fn].backward(f->x + begin, f->saved + begin, f->y + begin, (float)f->fn.alpha,
                                end - begin);
}

static bool unary_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return same_layout(n, why_not);
}

static DltStatus unary_fwd(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltUnary *a = c->node->attr;
    DltFlat f = {.fn = *a, .x = c->in[0], .y = c->out[0]};
    dlt_pool_for(c->stream, dlt_count(c->node->out[0]), DLT_FLAT_GRAIN, dlt_fast_act, &f);
    return DLT_OK;
}

static DltStatus unary_bwd(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltUnary *a = c->node->attr;
    DltFlat f = {.fn = *a, .x = c->in[0], .saved = c->in[1], .y = c->out[0]};
    dlt_pool_for(c->stream, dlt_count(c->node->out[0]), DLT_FLAT_GRAIN, dlt_fast_act_grad, &f);
    return DLT_OK;
}

typedef struct Pair {
    const float *a, *b;
    float *y;
    DltBinaryFn fn;
} Pair;

DLT_CLONES static void pair_loop(const Pair *p, int64_t begin, int64_t end)
{
    const float *a = p->a, *b = p->b;
    float *y = p->y;
    if (p->fn == DLT_ADD)
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] + b[i];
    else if (p->fn == DLT_SUB)
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] - b[i];
    else
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] * b[i];
}

static void pair_task(void *ctx, int64_t begin, int64_t end)
{
    pair_loop(ctx, begin, end);
}

static bool binary_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltBinary *a = n->attr;
    if (a->fn <= DLT_MUL && dlt_shape_equal(&n->in[0]->shape, &n->in[1]->shape))
        return same_layout(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "broadcast and division are left to the plain kernel");
    return false;
}

static DltStatus binary(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltBinary *a = c->node->attr;
    Pair p = {c->in[0], c->in[1], c->out[0], a->fn};
    dlt_pool_for(c->stream, dlt_count(c->node->out[0]), DLT_FLAT_GRAIN, pair_task, &p);
    return DLT_OK;
}

/* db[C] = column sums of dy [rows, C] (PLAIN, last axis): rows in BANDS fixed bands, then the bands in order. */
enum { BANDS = 8 };
typedef struct Columns {
    const float *dy;
    float *db, *part; /* part [BANDS, C] */
    int64_t rows, c;
} Columns;

DLT_CLONES static void add_rows(const float *dy, float *sum, int64_t rows, int64_t c)
{
    memset(sum, 0, (size_t)c * sizeof *sum);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < c; i++)
            sum[i] += dy[r * c + i];
}

static void band_task(void *ctx, int64_t begin, int64_t end)
{
    Columns *k = ctx;
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * k->rows / BANDS, to = (b + 1) * k->rows / BANDS;
        add_rows(k->dy + from * k->c, k->part + b * k->c, to - from, k->c);
    }
}

/* db[C] for blocked images [N][C/blk][HW][blk]: one task a channel block. */
typedef struct Channels {
    const float *dy;
    float *db;
    int64_t n, blocks, hw, blk;
} Channels;

DLT_CLONES static void channel_loop(const Channels *k, int64_t begin, int64_t end)
{
    for (int64_t cb = begin; cb < end; cb++) {
        double total[16] = {0};
        for (int64_t n = 0; n < k->n; n++) {
            const float *p = k->dy + (n * k->blocks + cb) * k->hw * k->blk;
            float sum[16] = {0};
            for (int64_t i = 0; i < k->hw; i++)
                for (int64_t j = 0; j < k->blk; j++)
                    sum[j] += p[i * k->blk + j];
            for (int64_t j = 0; j < k->blk; j++)
                total[j] += (double)sum[j];
        }
        for (int64_t j = 0; j < k->blk; j++)
            k->db[cb * k->blk + j] = (float)total[j];
    }
}

static void channel_task(void *ctx, int64_t begin, int64_t end)
{
    channel_loop(ctx, begin, end);
}

static bool bias_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltBias *a = n->attr;
    DltLayout l = n->in[0]->layout;
    bool blocked = a->axis == 1 && dlt_fast_block(n->in[0]) > 0;
    if (blocked || (l == DLT_PLAIN && a->axis == n->in[0]->shape.rank - 1))
        return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text, "neither the last axis nor blocked channels");
    return false;
}

static DltStatus bias_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    const DltBias *a = n->attr;
    p->work_bytes = BANDS * (size_t)a->channels * sizeof(float);
    return DLT_OK;
}

static DltStatus bias_bwd(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltTensor *dy = c->node->in[0];
    const DltBias *a = c->node->attr;
    if (dy->layout != DLT_PLAIN) {
        int64_t blk = dlt_fast_block(dy);
        Channels k = {c->in[0],
                      c->out[0],
                      dy->shape.dim[0],
                      a->channels / blk,
                      dy->shape.dim[2] * dy->shape.dim[3],
                      blk};
        dlt_pool_for(c->stream, k.blocks, 1, channel_task, &k);
        return DLT_OK;
    }
    Columns k = {c->in[0], c->out[0], c->work, dlt_count(dy) / a->channels, a->channels};
    dlt_pool_for(c->stream, BANDS, 1, band_task, &k);
    add_rows(k.part, k.db, BANDS, k.c);
    return DLT_OK;
}

static const DltKernel unary_fwd_k = {"unary_fwd.cpu.vector", unary_accepts, NULL, unary_fwd};
static const DltKernel unary_bwd_k = {"unary_bwd.cpu.vector", unary_accepts, NULL, unary_bwd};
static const DltKernel binary_k = {"binary.cpu.vector", binary_accepts, NULL, binary};
static const DltKernel bias_bwd_k = {"bias_bwd.cpu.vector", bias_accepts, bias_prepare, bias_bwd};
const DltKernel *const dlt_fast_unary_fwd[] = {&unary_fwd_k, &dlt_low_unary_fwd, NULL};
const DltKernel *const dlt_fast_unary_bwd[] = {&unary_bwd_k, &dlt_low_unary_bwd, NULL};
const DltKernel *const dlt_fast_binary[] = {&binary_k, &dlt_low_binary, NULL};
const DltKernel *const dlt_fast_bias_bwd[] = {&bias_bwd_k, &dlt_low_bias_bwd, NULL};
