/* bf16: elementwise kernels that widen a piece into f32 on the stack, use the f32 loops and round once; bias
 * gradients with f32 sums; products through oneDNN where the processor has bf16 products (AVX-512 BF16 or AMX). */
#include "base/half.h"
#include "cpu/dnnl/tile.h"
#include "ops/elementwise.h"

enum { PIECE = 512 };

/* y = act(x), or x * act'(saved) where saved is there; all bf16. */
void dlt_fast_act_low(void *flat, int64_t begin, int64_t end)
{
    const DltFlatLow *f = flat;
    float x[PIECE], s[PIECE];
    for (int64_t i = begin; i < end; i += PIECE) {
        int64_t n = end - i < PIECE ? end - i : PIECE;
        dlt_widen_run(f->x + i, x, n);
        if (f->saved) dlt_widen_run(f->saved + i, s, n);
        DltFlat wide = {.fn = f->fn, .x = x, .saved = s, .y = x};
        if (f->saved)
            dlt_fast_act_grad(&wide, 0, n);
        else
            dlt_fast_act(&wide, 0, n);
        dlt_narrow_run(x, f->y + i, n);
    }
}

/* All floats are bf16 in one layout. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (!t || (t->dtype == DLT_BF16 && t->layout == n->in[0]->layout)) continue;
        snprintf(why_not->text, sizeof why_not->text, "%s is not bf16 in the same layout", t->name);
        return false;
    }
    return true;
}

static DltStatus unary(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltUnary *a = c->node->attr;
    DltFlatLow f = {.fn = *a, .x = c->in[0], .saved = c->in[1], .y = c->out[0]};
    dlt_pool_for(c->stream, dlt_count(c->node->out[0]), DLT_FLAT_GRAIN, dlt_fast_act_low, &f);
    return DLT_OK;
}

typedef struct Pair {
    const uint16_t *a, *b;
    uint16_t *y;
    DltBinaryFn fn;
    int64_t n_b; /* elements of b, which is repeated */
} Pair;

DLT_INLINE void combine(const Pair *p, int64_t begin, int64_t end, DltBinaryFn fn)
{
    float a[PIECE], b[PIECE];
    for (int64_t i = begin, n; i < end; i += n) {
        int64_t at = i % p->n_b;
        n = end - i < PIECE ? end - i : PIECE;
        if (n > p->n_b - at) n = p->n_b - at;
        dlt_widen_run(p->a + i, a, n);
        dlt_widen_run(p->b + at, b, n);
        for (int64_t j = 0; j < n; j++)
            a[j] = fn == DLT_ADD ? a[j] + b[j] : fn == DLT_SUB ? a[j] - b[j] : a[j] * b[j];
        dlt_narrow_run(a, p->y + i, n);
    }
}

DLT_CLONES static void pair_task(void *ctx, int64_t begin, int64_t end)
{
    const Pair *p = ctx;
    if (p->fn == DLT_ADD)
        combine(p, begin, end, DLT_ADD);
    else if (p->fn == DLT_SUB)
        combine(p, begin, end, DLT_SUB);
    else
        combine(p, begin, end, DLT_MUL);
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
    const DltBinary *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->in[1];
    bool same = dlt_shape_equal(&x->shape, &y->shape);
    bool flat = x->layout == DLT_PLAIN && repeats(&x->shape, &y->shape);
    if (a->fn <= DLT_MUL && (same || flat)) return accepts(n, dev, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "other broadcasts and division are left to the plain kernel");
    return false;
}

static DltStatus binary(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltBinary *a = c->node->attr;
    Pair p = {c->in[0], c->in[1], c->out[0], a->fn, dlt_count(c->node->in[1])};
    dlt_pool_for(c->stream, dlt_count(c->node->out[0]), DLT_FLAT_GRAIN, pair_task, &p);
    return DLT_OK;
}

/* db[C] = sums of dy over the rows of [rows][C] (PLAIN's last axis, NHWC), or over planes [rows][block] of channel
 * blocks, one task each. Rows are summed in f32 for a chunk and in f64 beyond it, in bands that depend on the shape
 * alone. */
typedef struct Columns {
    const uint16_t *dy;
    float *db;
    double *part; /* [bands][c] */
    int64_t c, rows, bands;
    int64_t planes, hw, block; /* channel blocks: samples, pixels, channels of one */
} Columns;

enum { BANDS = 16, CHUNK = 64, WIDTH = 32 /* channels at a time */ };

/* total[8 lanes] += sums of `rows` rows of 8 `lanes` neighbours. */
DLT_INLINE void chunk_sums(const uint16_t *x, int64_t row, int64_t rows, int lanes, double *total)
{
    DltV8 sum[WIDTH / 8], v;
    for (int l = 0; l < lanes; l++)
        sum[l] = (DltV8){0};
    for (int64_t i = 0; i < rows; i++)
        for (int l = 0; l < lanes; l++) {
            dlt_v8_load(x, i * row + 8 * l, true, &v);
            sum[l] += v;
        }
    for (int l = 0; l < lanes; l++)
        for (int j = 0; j < 8; j++)
            total[8 * l + j] += (double)sum[l][j];
}

DLT_CLONES static void rows_task(void *ctx, int64_t begin, int64_t end)
{
    const Columns *k = ctx;
    for (int64_t band = begin; band < end; band++) {
        double *total = k->part + band * k->c;
        memset(total, 0, (size_t)k->c * sizeof *total);
        int64_t last = (band + 1) * k->rows / k->bands;
        for (int64_t r = band * k->rows / k->bands; r < last; r += CHUNK) {
            int64_t n = last - r < CHUNK ? last - r : CHUNK, ch = 0;
            for (; ch + WIDTH <= k->c; ch += WIDTH)
                chunk_sums(k->dy + r * k->c + ch, k->c, n, WIDTH / 8, total + ch);
            for (; ch < k->c; ch += 8)
                chunk_sums(k->dy + r * k->c + ch, k->c, n, 1, total + ch);
        }
    }
}

/* Eight channels of blocked planes a task. */
DLT_CLONES static void planes_task(void *ctx, int64_t begin, int64_t end)
{
    const Columns *k = ctx;
    for (int64_t ch = 8 * begin; ch < 8 * end; ch += 8) {
        double total[8] = {0};
        const uint16_t *x = k->dy + ch / k->block * k->hw * k->block + ch % k->block;
        for (int64_t n = 0; n < k->planes; n++)
            chunk_sums(x + n * k->c * k->hw, k->block, k->hw, 1, total);
        for (int j = 0; j < 8; j++)
            k->db[ch + j] = (float)total[j];
    }
}

static bool bias_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltBias *a = n->attr;
    const DltTensor *dy = n->in[0];
    bool blocked = a->axis == 1 && dlt_fast_lanes(dy) > 0;
    bool last = dy->layout == DLT_PLAIN && a->axis == dy->shape.rank - 1 && a->channels % 8 == 0;
    if (dy->dtype == DLT_BF16 && n->out[0]->dtype == DLT_F32 && (blocked || last)) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "not bf16, or neither channel-blocked nor eights of the last axis");
    return false;
}

static DltStatus bias_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = BANDS * (size_t)((const DltBias *)n->attr)->channels * sizeof(double);
    return DLT_OK;
}

static DltStatus bias_bwd(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltTensor *dy = c->node->in[0];
    int64_t channels = ((const DltBias *)c->node->attr)->channels, block = dlt_fast_block(dy);
    Columns k = {.dy = c->in[0], .db = c->out[0], .part = c->work, .c = channels};
    if (block > 0) {
        k.planes = dy->shape.dim[0], k.hw = dy->shape.dim[2] * dy->shape.dim[3], k.block = block;
        dlt_pool_for(c->stream, channels / 8, 1, planes_task, &k);
        return DLT_OK;
    }
    k.rows = dlt_count(dy) / channels;
    k.bands = k.rows < BANDS * CHUNK ? (k.rows + CHUNK - 1) / CHUNK : BANDS;
    dlt_pool_for(c->stream, k.bands, 1, rows_task, &k);
    for (int64_t ch = 0; ch < channels; ch++) {
        double total = 0;
        for (int64_t b = 0; b < k.bands; b++)
            total += k.part[b * channels + ch];
        k.db[ch] = (float)total;
    }
    return DLT_OK;
}

/* ---- products ---- */

static bool product_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (!dlt_dnnl_has_bf16() || n->in[0]->dtype != DLT_BF16 || n->in[1]->dtype != DLT_BF16) {
        snprintf(why_not->text, sizeof why_not->text,
                 "only for bf16 operands, on processors with AVX-512 BF16 or AMX");
        return false;
    }
    DltArena *arena = dlt_arena_new();
    if (!arena) return false;
    size_t work = 0;
    bool good = dlt_dnnl_matmul(arena, n, &work, why_not) != NULL;
    dlt_arena_free(arena);
    return good;
}

static DltStatus product_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    DltWhy why = {""};
    p->state = dlt_dnnl_matmul(p->arena, n, &p->work_bytes, &why);
    return p->state ? DLT_OK : dlt_err(err, DLT_E_DEVICE, "%s: %s", n->name, why.text);
}

static DltStatus product(const DltCall *c, DltErr *err)
{
    const DltEpilogue *e = &((const DltMatmul *)c->node->attr)->ep;
    void *arg[4] = {c->in[0], c->in[1], c->in[2], e->save_pre ? c->out[1] : c->out[0]};
    DLT_TRY(dlt_dnnl_run(c->state, arg, c->work, err));
    DltEpilogue rest = *e;
    if (e->act.fn == DLT_FN_RELU && !e->save_pre) rest.act.fn = DLT_FN_NONE; /* a post-op */
    dlt_fast_finish(c, &rest, arg[3], c->in[3]);
    return DLT_OK;
}

/* out[0] = the activation of `made`, times the gradient's factor: what no post-op did. */
void dlt_fast_finish(const DltCall *c, const DltEpilogue *rest, const void *made, const void *saved)
{
    const DltTensor *y = c->node->out[0];
    const DltUnary *todo[2] = {&rest->act, &rest->act_grad};
    for (int i = 0; i < 2; i++) {
        if (!todo[i]->fn) continue;
        const void *s = i == 1 ? saved : NULL;
        DltFlat f = {.fn = *todo[i], .x = made, .saved = s, .y = c->out[0]};
        DltFlatLow low = {.fn = *todo[i], .x = made, .saved = s, .y = c->out[0]};
        bool is_low = y->dtype == DLT_BF16;
        dlt_pool_for(c->stream, dlt_count(y), DLT_FLAT_GRAIN,
                     is_low   ? dlt_fast_act_low
                     : i == 1 ? dlt_fast_act_grad
                              : dlt_fast_act,
                     is_low ? (void *)&low : (void *)&f);
        made = c->out[0];
    }
}

const DltKernel dlt_low_unary_fwd = {"unary_fwd.cpu.bf16", accepts, NULL, unary};
const DltKernel dlt_low_unary_bwd = {"unary_bwd.cpu.bf16", accepts, NULL, unary};
const DltKernel dlt_low_binary = {"binary.cpu.bf16", binary_accepts, NULL, binary};
const DltKernel dlt_low_bias_bwd = {"bias_bwd.cpu.bf16", bias_accepts, bias_prepare, bias_bwd};
const DltKernel dlt_low_matmul = {"matmul.cpu.onednn_bf16", product_accepts, product_prepare,
                                  product};
