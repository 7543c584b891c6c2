/* Max and average pooling on channel-blocked images: the inner loop runs over the block of 8 or 16 channels,
 * which the compiler turns into vectors. Windows and padding as ops/conv.h says; plain layout is left to
 * the plain kernel. */
#include "cpu/dnnl/fast.h"

enum { MAX_BLOCK = 16 };

typedef struct Pool {
    const DltPool *a;
    int64_t h, w, p, q, blk; /* of x and y */
    const float *x;          /* fwd: input; bwd: dy */
    float *y;                /* fwd: output; bwd: dx */
    uint8_t *index;
} Pool;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltPool *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (dlt_fast_block(x) && x->layout == y->layout && a->kernel[0] * a->kernel[1] < 255)
        return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "not channel-blocked, or a window of 255 pixels or more");
    return false;
}

/* Window of output row/column i along axis d, cut to the image. */
static void window(const Pool *k, int d, int64_t i, int64_t *from, int64_t *to)
{
    int64_t size = d == 0 ? k->h : k->w, begin = i * k->a->stride[d] - k->a->pad[2 * d];
    *from = begin < 0 ? 0 : begin;
    *to = begin + k->a->kernel[d] < size ? begin + k->a->kernel[d] : size;
}

/* One output pixel of the max: y, and the position of the first maximum inside the window. */
static inline __attribute__((always_inline)) void max_pixel(const Pool *k, int64_t blk,
                                                            const float *x, int64_t i, int64_t j,
                                                            float *y, uint8_t *index)
{
    int64_t r0, r1, s0, s1;
    window(k, 0, i, &r0, &r1);
    window(k, 1, j, &s0, &s1);
    int64_t top = i * k->a->stride[0] - k->a->pad[0], left = j * k->a->stride[1] - k->a->pad[2];
    float best[MAX_BLOCK];
    uint32_t at[MAX_BLOCK];
    for (int64_t c = 0; c < blk; c++)
        best[c] = -3.402823466e38f, at[c] = 0;
    bool first = true;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t s = s0; s < s1; s++, first = false) {
            const float *p = x + (r * k->w + s) * blk;
            uint32_t here = (uint32_t)((r - top) * k->a->kernel[1] + s - left);
            for (int64_t c = 0; c < blk; c++) {
                /* NaN wins and stays, as in the plain kernel */
                bool take = first | (p[c] > best[c]) | (p[c] != p[c] && best[c] == best[c]);
                best[c] = take ? p[c] : best[c];
                at[c] = take ? here : at[c];
            }
        }
    for (int64_t c = 0; c < blk; c++) {
        bool dead = k->a->ep_relu && best[c] <= 0;
        y[c] = dead ? 0.0f : best[c];
        if (index) index[c] = dead ? 255 : (uint8_t)at[c];
    }
}

/* True when windows touch neither each other nor the padding: every input pixel belongs to one window or none. */
static bool is_tiled(const Pool *k)
{
    const DltPool *a = k->a;
    return a->kernel[0] == a->stride[0] && a->kernel[1] == a->stride[1] && a->kernel[0] <= 3 &&
           a->kernel[1] <= 3 && a->pad[0] + a->pad[1] + a->pad[2] + a->pad[3] == 0 &&
           k->p * a->stride[0] <= k->h && k->q * a->stride[1] <= k->w;
}

/* Eight channels; comparisons give masks of the same width. */
typedef float V8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t I8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint8_t B8 __attribute__((vector_size(8), aligned(1), may_alias));

/* One output pixel of a tiled max pool, eight channels: the first maximum wins, NaN wins and stays. */
static inline __attribute__((always_inline)) void tile_fwd(const Pool *k, const float *x, float *y,
                                                           uint8_t *index)
{
    int64_t step = k->w * k->blk;
    V8 best = *(const V8 *)x;
    I8 at = {0};
    for (int r = 0; r < k->a->kernel[0]; r++)
        for (int s = 0; s < k->a->kernel[1]; s++) {
            V8 v = *(const V8 *)(x + r * step + s * k->blk);
            /* NaN alone is neither above nor below: !(v <= best) takes it, and best == best keeps it */
            I8 take = ~(v <= best) & (best <= best);
            I8 here = (I8){0} + (int32_t)(r * k->a->kernel[1] + s);
            best = (V8)(((I8)v & take) | ((I8)best & ~take));
            at = (here & take) | (at & ~take);
        }
    if (k->a->ep_relu) {
        I8 live = ~(best <= 0.0f);
        best = (V8)((I8)best & live);
        at = (at & live) | (255 & ~live);
    }
    *(V8 *)y = best;
    if (index) *(B8 *)index = __builtin_convertvector(at, B8);
}

static inline __attribute__((always_inline)) void tile_bwd(const Pool *k, const float *dy,
                                                           const uint8_t *index, float *dx)
{
    int64_t step = k->w * k->blk;
    I8 at = __builtin_convertvector(*(const B8 *)index, I8), d;
    memcpy(&d, dy, sizeof d);
    for (int r = 0; r < k->a->kernel[0]; r++)
        for (int s = 0; s < k->a->kernel[1]; s++) {
            I8 here = (I8){0} + (int32_t)(r * k->a->kernel[1] + s);
            I8 masked = d & (at == here);
            memcpy(dx + r * step + s * k->blk, &masked, sizeof masked);
        }
}

DLT_CLONES static void tiled_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t row = begin * k->p; row < end * k->p; row++)
        for (int64_t j = 0; j < k->q; j++)
            for (int64_t c = 0; c < k->blk; c += 8) {
                int64_t o = (row * k->q + j) * k->blk + c;
                int64_t i = ((row / k->p * k->h + row % k->p * k->a->stride[0]) * k->w +
                             j * k->a->stride[1]) *
                                k->blk +
                            c;
                tile_fwd(k, k->x + i, k->y + o, k->index ? k->index + o : NULL);
            }
}

DLT_CLONES static void tiled_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    bool covered = k->p * k->a->stride[0] == k->h && k->q * k->a->stride[1] == k->w;
    int64_t plane = k->h * k->w * k->blk;
    if (!covered) memset(k->y + begin * plane, 0, (size_t)((end - begin) * plane) * sizeof *k->y);
    for (int64_t row = begin * k->p; row < end * k->p; row++)
        for (int64_t j = 0; j < k->q; j++)
            for (int64_t c = 0; c < k->blk; c += 8) {
                int64_t o = (row * k->q + j) * k->blk + c;
                int64_t i = ((row / k->p * k->h + row % k->p * k->a->stride[0]) * k->w +
                             j * k->a->stride[1]) *
                                k->blk +
                            c;
                tile_bwd(k, k->x + o, k->index + o, k->y + i);
            }
}

/* Task: planes [begin, end) of N * C / blk. */
DLT_CLONES static void max_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t i = 0; i < k->p; i++)
            for (int64_t j = 0; j < k->q; j++) {
                int64_t o = ((plane * k->p + i) * k->q + j) * k->blk;
                const float *x = k->x + plane * k->h * k->w * k->blk;
                uint8_t *index = k->index ? k->index + o : NULL;
                if (k->blk == 8)
                    max_pixel(k, 8, x, i, j, k->y + o, index);
                else
                    max_pixel(k, 16, x, i, j, k->y + o, index);
            }
}

DLT_CLONES static void max_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++) {
        float *dx = k->y + plane * k->h * k->w * k->blk;
        memset(dx, 0, (size_t)(k->h * k->w * k->blk) * sizeof *dx);
        for (int64_t i = 0; i < k->p; i++)
            for (int64_t j = 0; j < k->q; j++) {
                int64_t o = ((plane * k->p + i) * k->q + j) * k->blk;
                int64_t top = i * k->a->stride[0] - k->a->pad[0],
                        left = j * k->a->stride[1] - k->a->pad[2];
                int64_t r0, r1, s0, s1;
                window(k, 0, i, &r0, &r1);
                window(k, 1, j, &s0, &s1);
                for (int64_t r = r0; r < r1; r++)
                    for (int64_t s = s0; s < s1; s++) {
                        uint8_t here = (uint8_t)((r - top) * k->a->kernel[1] + s - left);
                        float *d = dx + (r * k->w + s) * k->blk;
                        for (int64_t c = 0; c < k->blk; c++)
                            d[c] += k->index[o + c] == here ? k->x[o + c] : 0.0f;
                    }
            }
    }
}

static float share(const Pool *k, int64_t i, int64_t j)
{
    int64_t r0, r1, s0, s1;
    window(k, 0, i, &r0, &r1);
    window(k, 1, j, &s0, &s1);
    int64_t area = k->a->count_pad ? k->a->kernel[0] * k->a->kernel[1] : (r1 - r0) * (s1 - s0);
    return 1.0f / (float)area;
}

DLT_CLONES static void avg_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t i = 0; i < k->p; i++)
            for (int64_t j = 0; j < k->q; j++) {
                float sum[MAX_BLOCK] = {0}, part = share(k, i, j);
                int64_t r0, r1, s0, s1;
                window(k, 0, i, &r0, &r1);
                window(k, 1, j, &s0, &s1);
                for (int64_t r = r0; r < r1; r++)
                    for (int64_t s = s0; s < s1; s++)
                        for (int64_t c = 0; c < k->blk; c++)
                            sum[c] += k->x[((plane * k->h + r) * k->w + s) * k->blk + c];
                for (int64_t c = 0; c < k->blk; c++)
                    k->y[((plane * k->p + i) * k->q + j) * k->blk + c] = sum[c] * part;
            }
}

DLT_CLONES static void avg_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++) {
        float *dx = k->y + plane * k->h * k->w * k->blk;
        memset(dx, 0, (size_t)(k->h * k->w * k->blk) * sizeof *dx);
        for (int64_t i = 0; i < k->p; i++)
            for (int64_t j = 0; j < k->q; j++) {
                const float *dy = k->x + ((plane * k->p + i) * k->q + j) * k->blk;
                float part = share(k, i, j);
                int64_t r0, r1, s0, s1;
                window(k, 0, i, &r0, &r1);
                window(k, 1, j, &s0, &s1);
                for (int64_t r = r0; r < r1; r++)
                    for (int64_t s = s0; s < s1; s++)
                        for (int64_t c = 0; c < k->blk; c++)
                            dx[(r * k->w + s) * k->blk + c] += dy[c] * part;
            }
    }
}

static Pool describe(const DltCall *c, const DltTensor *big, const DltTensor *small)
{
    Pool k = {.a = c->node->attr,
              .h = big->shape.dim[2],
              .w = big->shape.dim[3],
              .p = small->shape.dim[2],
              .q = small->shape.dim[3],
              .blk = dlt_fast_block(big),
              .x = c->in[0],
              .y = c->out[0]};
    return k;
}

static int64_t planes(const Pool *k, const DltTensor *t)
{
    return t->shape.dim[0] * t->shape.dim[1] / k->blk;
}

static DltStatus fwd(const DltCall *c, DltErr *err)
{
    (void)err;
    Pool k = describe(c, c->node->in[0], c->node->out[0]);
    k.index = c->out[1];
    dlt_pool_for(c->stream, planes(&k, c->node->in[0]), 4,
                 !k.a->max      ? avg_fwd
                 : is_tiled(&k) ? tiled_fwd
                                : max_fwd,
                 &k);
    return DLT_OK;
}

static DltStatus bwd(const DltCall *c, DltErr *err)
{
    (void)err;
    Pool k = describe(c, c->node->out[0], c->node->in[0]);
    k.index = c->in[1];
    dlt_pool_for(c->stream, planes(&k, c->node->out[0]), 4,
                 !k.a->max      ? avg_bwd
                 : is_tiled(&k) ? tiled_bwd
                                : max_bwd,
                 &k);
    return DLT_OK;
}

static const DltKernel fwd_k = {"pool_fwd.cpu.blocked", accepts, NULL, fwd};
static const DltKernel bwd_k = {"pool_bwd.cpu.blocked", accepts, NULL, bwd};
const DltKernel *const dlt_fast_pool_fwd[] = {&fwd_k, NULL};
const DltKernel *const dlt_fast_pool_bwd[] = {&bwd_k, NULL};
