/* Max and average pooling on channel-blocked images: the inner loop runs over the block of 8 or 16 channels,
 * which the compiler turns into vectors. Windows and padding as ops/conv.h says; plain layout is left to
 * the plain kernel. */
#include "cpu/dnnl/tile.h"

enum { MAX_BLOCK = 16 };

typedef struct Pool {
    const DltPool *a;
    int64_t h, w, p, q, blk; /* of x and y */
    bool low;                /* x and y are bf16: tiled maxima and averages only */
    const void *x;           /* fwd: input; bwd: dy */
    void *y;                 /* fwd: output; bwd: dx */
    uint8_t *index;
} Pool;

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

/* Eight channels at a time on every processor: gcc 12 takes comparisons of sixteen apart, 5.6 in place of 1.2 ms for LeNet's
 * first pooling.
 * One output pixel of a tiled max pool with windows of rows x cols, eight channels of x at i, to y at o: the first
 * maximum wins, NaN wins and stays. */
DLT_INLINE void tile_fwd(const Pool *k, int64_t i, int64_t o, int rows, int cols, bool low)
{
    int64_t step = k->w * k->blk;
    DltV8 best, v;
    DltI8 at = {0};
    dlt_v8_load(k->x, i, low, &best);
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < cols; s++) {
            dlt_v8_load(k->x, i + r * step + s * k->blk, low, &v);
            /* NaN alone is neither above nor below: !(v <= best) takes it, and best == best keeps it */
            DltI8 take = ~(v <= best) & (best <= best); /* NOLINT(misc-redundant-expression) */
            DltI8 here = (DltI8){0} + (int32_t)(r * cols + s);
            best = (DltV8)(((DltI8)v & take) | ((DltI8)best & ~take));
            at = (here & take) | (at & ~take);
        }
    if (k->a->ep_relu) {
        DltI8 live = ~(best <= 0.0f);
        best = (DltV8)((DltI8)best & live);
        at = (at & live) | (255 & ~live);
    }
    dlt_v8_cut(k->y, o, low, &best);
    if (k->index) *(DltB8 *)(k->index + o) = __builtin_convertvector(at, DltB8);
}

DLT_INLINE void tile_bwd(const Pool *k, int64_t i, int64_t o, int rows, int cols, bool low)
{
    int64_t step = k->w * k->blk;
    DltI8 at = __builtin_convertvector(*(const DltB8 *)(k->index + o), DltI8);
    DltV8 d;
    dlt_v8_load(k->x, o, low, &d);
    for (int r = 0; r < rows; r++)
        for (int s = 0; s < cols; s++) {
            DltI8 here = (DltI8){0} + (int32_t)(r * cols + s);
            DltV8 part = (DltV8)((DltI8)d & (at == here));
            dlt_v8_cut(k->y, i + r * step + s * k->blk, low, &part);
        }
}

/* One output row: big and small index of each pixel go to tile_fwd or tile_bwd. */
DLT_INLINE void tiled_row(const Pool *k, int64_t row, bool back, bool low, int rows, int cols)
{
    int64_t o = row * k->q * k->blk;
    int64_t i = (row / k->p * k->h + row % k->p * rows) * k->w * k->blk;
    for (int64_t j = 0; j < k->q; j++, i += (cols - 1) * k->blk)
        for (int64_t c = 0; c < k->blk; c += 8, i += 8, o += 8) {
            if (back)
                tile_bwd(k, i, o, rows, cols, low);
            else
                tile_fwd(k, i, o, rows, cols, low);
        }
}

/* Output rows [begin, end) of all planes; windows of 2 x 2 are known to the compiler. */
DLT_INLINE void tiled(const Pool *k, int64_t begin, int64_t end, bool back, bool low)
{
    int rows = (int)k->a->kernel[0], cols = (int)k->a->kernel[1];
    for (int64_t row = begin; row < end; row++) {
        if (rows == 2 && cols == 2)
            tiled_row(k, row, back, low, 2, 2);
        else
            tiled_row(k, row, back, low, rows, cols);
    }
}

DLT_CLONES static void tiled_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    if (k->low)
        tiled(k, begin * k->p, end * k->p, false, true);
    else
        tiled(k, begin * k->p, end * k->p, false, false);
}

static size_t bytes(const Pool *k)
{
    return k->low ? sizeof(uint16_t) : sizeof(float);
}

DLT_CLONES static void tiled_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    bool covered = k->p * k->a->stride[0] == k->h && k->q * k->a->stride[1] == k->w;
    size_t plane = (size_t)(k->h * k->w * k->blk) * bytes(k);
    if (!covered) memset((char *)k->y + (size_t)begin * plane, 0, (size_t)(end - begin) * plane);
    if (k->low)
        tiled(k, begin * k->p, end * k->p, true, true);
    else
        tiled(k, begin * k->p, end * k->p, true, false);
}

/* Task: planes [begin, end) of N * C / blk. */
DLT_CLONES static void max_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t i = 0; i < k->p; i++)
            for (int64_t j = 0; j < k->q; j++) {
                int64_t o = ((plane * k->p + i) * k->q + j) * k->blk;
                const float *x = (const float *)k->x + plane * k->h * k->w * k->blk;
                float *y = (float *)k->y + o;
                uint8_t *index = k->index ? k->index + o : NULL;
                if (k->blk == 8)
                    max_pixel(k, 8, x, i, j, y, index);
                else
                    max_pixel(k, 16, x, i, j, y, index);
            }
}

DLT_CLONES static void max_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++) {
        float *dx = (float *)k->y + plane * k->h * k->w * k->blk;
        const float *dy = k->x;
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
                            d[c] += k->index[o + c] == here ? dy[o + c] : 0.0f;
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

/* The window of output pixel (i, j) of a plane, eight channels: y = mean of x, or (back) dx += dy / area. */
DLT_INLINE void avg_pixel(const Pool *k, int64_t big, int64_t small, int64_t i, int64_t j,
                          bool back, bool low)
{
    int64_t r0, r1, s0, s1;
    float part = share(k, i, j);
    DltV8 sum = {0}, v;
    if (back) dlt_v8_load(k->x, small, low, &sum);
    window(k, 0, i, &r0, &r1);
    window(k, 1, j, &s0, &s1);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t s = s0; s < s1; s++) {
            int64_t at = big + (r * k->w + s) * k->blk;
            dlt_v8_load(back ? k->y : k->x, at, low, &v);
            if (!back) {
                sum += v;
                continue;
            }
            v += sum * part;
            dlt_v8_store(k->y, at, low, &v);
        }
    sum *= part;
    if (!back) dlt_v8_store(k->y, small, low, &sum);
}

DLT_INLINE void avg_plane(const Pool *k, int64_t plane, bool back, bool low)
{
    for (int64_t i = 0; i < k->p; i++)
        for (int64_t j = 0; j < k->q; j++)
            for (int64_t c = 0; c < k->blk; c += 8)
                avg_pixel(k, plane * k->h * k->w * k->blk + c,
                          ((plane * k->p + i) * k->q + j) * k->blk + c, i, j, back, low);
}

DLT_CLONES static void avg_fwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    for (int64_t plane = begin; plane < end; plane++)
        if (k->low)
            avg_plane(k, plane, false, true);
        else
            avg_plane(k, plane, false, false);
}

DLT_CLONES static void avg_bwd(void *ctx, int64_t begin, int64_t end)
{
    const Pool *k = ctx;
    size_t plane_bytes = (size_t)(k->h * k->w * k->blk) * bytes(k);
    memset((char *)k->y + (size_t)begin * plane_bytes, 0, (size_t)(end - begin) * plane_bytes);
    for (int64_t plane = begin; plane < end; plane++)
        if (k->low)
            avg_plane(k, plane, true, true);
        else
            avg_plane(k, plane, true, false);
}

static Pool describe(const DltNode *n, const DltTensor *big, const DltTensor *small)
{
    Pool k = {.a = n->attr,
              .h = big->shape.dim[2],
              .w = big->shape.dim[3],
              .p = small->shape.dim[2],
              .q = small->shape.dim[3],
              .blk = dlt_fast_lanes(big),
              .low = big->dtype == DLT_BF16};
    return k;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    bool low, back = n->kind == DLT_OP_pool_bwd;
    const DltPool *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (!dlt_fast_lanes(x) || x->layout != y->layout || a->kernel[0] * a->kernel[1] >= 255) {
        snprintf(why_not->text, sizeof why_not->text,
                 "not channel-blocked, or a window of 255 pixels or more");
        return false;
    }
    if (!dlt_fast_images(n, &low, why_not)) return false;
    Pool k = back ? describe(n, y, x) : describe(n, x, y);
    if (a->max && !is_tiled(&k) && k.blk > MAX_BLOCK) {
        snprintf(why_not->text, sizeof why_not->text, "maxima of NHWC in windows that overlap");
        return false;
    }
    /* overlapping gradients would be rounded at each sum */
    bool apart = a->stride[0] >= a->kernel[0] && a->stride[1] >= a->kernel[1];
    if (!low || (a->max ? is_tiled(&k) : apart || !back)) return true;
    snprintf(why_not->text, sizeof why_not->text, "bf16 with windows that overlap");
    return false;
}

static int64_t planes(const Pool *k, const DltTensor *t)
{
    return t->shape.dim[0] * t->shape.dim[1] / k->blk;
}

static DltStatus fwd(const DltCall *c, DltErr *err)
{
    (void)err;
    Pool k = describe(c->node, c->node->in[0], c->node->out[0]);
    k.x = c->in[0], k.y = c->out[0], k.index = c->out[1];
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
    Pool k = describe(c->node, c->node->out[0], c->node->in[0]);
    k.x = c->in[0], k.y = c->out[0], k.index = c->in[1];
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
