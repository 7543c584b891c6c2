/* Max and average pooling, one image plane at a time. Max remembers where each maximum lay, so the
 * gradient is one scatter. */
#include "cpu/plain.h"
#include "ops/conv.h"

enum { NO_GRADIENT = 255 }; /* index of a window that ep_relu cut off */

typedef struct Window {
    int64_t h0, h1, w0, w1; /* inside the image */
    int64_t top, left;      /* of the whole window: may be negative */
    int64_t area;           /* divisor of an average */
} Window;

/* PyTorch's rule for count_pad: the window is cut at the padded border. */
static Window window_at(const DltPool *a, int64_t h, int64_t w, int64_t p, int64_t q)
{
    Window v = {.top = p * a->stride[0] - a->pad[0], .left = q * a->stride[1] - a->pad[2]};
    int64_t bottom = v.top + a->kernel[0], right = v.left + a->kernel[1];
    v.h0 = v.top < 0 ? 0 : v.top;
    v.h1 = bottom > h ? h : bottom;
    v.w0 = v.left < 0 ? 0 : v.left;
    v.w1 = right > w ? w : right;
    v.area = (v.h1 - v.h0) * (v.w1 - v.w0);
    if (a->count_pad) {
        int64_t rows = (bottom > h + a->pad[1] ? h + a->pad[1] : bottom) - v.top;
        int64_t cols = (right > w + a->pad[3] ? w + a->pad[3] : right) - v.left;
        v.area = rows * cols;
    }
    return v;
}

/* Maximum of a window; *index becomes its position r * S + s, the first of equal ones. NaN wins. A window
 * always reaches into the image: padding is at most half of it. */
static DltReal window_max(const DltPool *a, const Window *v, const DltReal *x, int64_t w,
                          int64_t *index)
{
    int64_t at = v->h0 * w + v->w0;
    for (int64_t h = v->h0; h < v->h1; h++) {
        for (int64_t i = h * w + v->w0; i < h * w + v->w1; i++) {
            int64_t wins = (x[i] > x[at]) | (x[i] != x[i]);
            at += (i - at) & -wins; /* no branch: it would be mispredicted once a window */
        }
    }
    *index = (at / w - v->top) * a->kernel[1] + at % w - v->left;
    return x[at];
}

static double window_mean(const Window *v, const DltReal *x, int64_t w)
{
    double sum = 0;
    for (int64_t h = v->h0; h < v->h1; h++) {
        for (int64_t c = v->w0; c < v->w1; c++)
            sum += (double)x[h * w + c];
    }
    return sum / (double)v->area;
}

static void put_index(const DltTensor *t, void *index, int64_t i, int64_t value)
{
    if (index == NULL) return;
    if (t->dtype == DLT_U8) {
        ((uint8_t *)index)[i] = (uint8_t)value;
    } else {
        ((int32_t *)index)[i] = (int32_t)value;
    }
}

static int64_t get_index(const DltTensor *t, const void *index, int64_t i)
{
    return t->dtype == DLT_U8 ? ((const uint8_t *)index)[i] : ((const int32_t *)index)[i];
}

/* Output row p of one plane; i is its first element's place in y. */
static void forward_row(const DltCall *call, const DltReal *x, int64_t p, int64_t i)
{
    const DltNode *n = call->node;
    const DltPool *a = n->attr;
    int64_t h = n->in[0]->shape.dim[2], w = n->in[0]->shape.dim[3], n_q = n->out[0]->shape.dim[3];
    DltReal *y = call->out[0];
    for (int64_t q = 0; q < n_q; q++, i++) {
        Window v = window_at(a, h, w, p, q);
        int64_t index = 0;
        y[i] = a->max ? window_max(a, &v, x, w, &index) : (DltReal)window_mean(&v, x, w);
        if (a->ep_relu && y[i] <= 0) {
            y[i] = 0;
            index = NO_GRADIENT;
        }
        put_index(n->out[1], call->out[1], i, index);
    }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const int64_t *dx = call->node->in[0]->shape.dim, *dy = call->node->out[0]->shape.dim;
    for (int64_t plane = begin; plane < end; plane++) {
        const DltReal *x = (const DltReal *)call->in[0] + plane * dx[2] * dx[3];
        for (int64_t p = 0; p < dy[2]; p++)
            forward_row(call, x, p, (plane * dy[2] + p) * dy[3]);
    }
}

/* y[n,c,p,q] = max or mean of x over its window, padding left out (counted by an average with
 * count_pad); index = place of the maximum in the window.  x, y f32 PLAIN, index u8|i32.  conv.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltPool *a = call->node->attr;
    const int64_t *dy = call->node->out[0]->shape.dim;
    dlt_pool_for(call->stream, dy[0] * dy[1],
                 dlt_grain(dy[2] * dy[3] * a->kernel[0] * a->kernel[1]), forward_task,
                 (void *)call);
    return DLT_OK;
}

static void scatter_mean(const Window *v, DltReal dy, DltReal *dx, int64_t w)
{
    for (int64_t h = v->h0; h < v->h1; h++) {
        for (int64_t c = v->w0; c < v->w1; c++)
            dx[h * w + c] += dy / (DltReal)v->area;
    }
}

/* Adds row p of one plane of dy, whose first element is dy[i], into the plane dx. */
static void backward_row(const DltCall *call, DltReal *dx, int64_t p, int64_t i)
{
    const DltNode *n = call->node;
    const DltPool *a = n->attr;
    int64_t h = n->out[0]->shape.dim[2], w = n->out[0]->shape.dim[3], n_q = n->in[0]->shape.dim[3];
    const DltReal *dy = call->in[0];
    for (int64_t q = 0; q < n_q; q++, i++) {
        Window v = window_at(a, h, w, p, q);
        if (!a->max) {
            scatter_mean(&v, dy[i], dx, w);
            continue;
        }
        int64_t index = get_index(n->in[1], call->in[1], i);
        if (a->ep_relu && index == NO_GRADIENT) continue;
        dx[(v.top + index / a->kernel[1]) * w + v.left + index % a->kernel[1]] += dy[i];
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const int64_t *sx = call->node->out[0]->shape.dim, *sy = call->node->in[0]->shape.dim;
    for (int64_t plane = begin; plane < end; plane++) {
        DltReal *dx = (DltReal *)call->out[0] + plane * sx[2] * sx[3];
        memset(dx, 0, (size_t)(sx[2] * sx[3]) * sizeof *dx);
        for (int64_t p = 0; p < sy[2]; p++)
            backward_row(call, dx, p, (plane * sy[2] + p) * sy[3]);
    }
}

/* dx = dy put back where each maximum lay, or spread evenly over each window.  dy, dx f32 PLAIN,
 * index u8|i32 (max).  conv.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltPool *a = call->node->attr;
    const int64_t *dy = call->node->in[0]->shape.dim;
    dlt_pool_for(call->stream, dy[0] * dy[1],
                 dlt_grain(dy[2] * dy[3] * a->kernel[0] * a->kernel[1]), backward_task,
                 (void *)call);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltPool *a = n->attr;
    if (a->ep_relu && a->kernel[0] * a->kernel[1] > NO_GRADIENT) {
        return dlt_cpu_refuse(why_not, "index 255 marks cut windows, this one has more places");
    }
    return dlt_kernel_accepts_plain(n, why_not);
}

static const DltKernel plain_forward = {
    .name = "pool_fwd.cpu.plain", .accepts = accepts, .launch = forward};
const DltKernel *const dlt_cpu_pool_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {
    .name = "pool_bwd.cpu.plain", .accepts = accepts, .launch = backward};
const DltKernel *const dlt_cpu_pool_bwd[] = {&plain_backward, NULL};
