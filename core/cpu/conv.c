/* 2-D convolution and its two gradients by definition: each output element is one sum over its own
 * window, in double. The blocked kernels of conv_blocked.c stand in front of these. */
#include "cpu/conv.h"

static DltConvSizes sizes(const DltNode *n, const DltTensor *x, const DltTensor *w,
                          const DltTensor *y)
{
    const DltConv *attr = n->attr;
    const int64_t *dx = x->shape.dim, *dw = w->shape.dim, *dy = y->shape.dim;
    return (DltConvSizes){.n = dx[0],
                          .c = dx[1],
                          .h = dx[2],
                          .w = dx[3],
                          .k = dy[1],
                          .p = dy[2],
                          .q = dy[3],
                          .r = dw[2],
                          .s = dw[3],
                          .groups = attr->groups,
                          .cg = dw[1],
                          .kg = dy[1] / attr->groups,
                          .attr = attr};
}

DltConvSizes dlt_conv_fwd_sizes(const DltNode *n)
{
    return sizes(n, n->in[0], n->in[1], n->out[0]);
}

DltConvSizes dlt_conv_data_sizes(const DltNode *n)
{
    return sizes(n, n->out[0], n->in[1], n->in[0]);
}

DltConvSizes dlt_conv_filter_sizes(const DltNode *n)
{
    return sizes(n, n->in[0], n->out[0], n->in[1]);
}

void dlt_conv_fwd_finish(const DltCall *call, int64_t channel, int64_t offset, DltReal *c,
                         int64_t n)
{
    const DltConv *attr = call->node->attr;
    const DltReal *bias = call->in[2];
    DltReal *pre = call->out[1];
    DltEpilogueRow row = {.bias = bias != NULL ? bias + channel : NULL,
                          .pre = attr->ep.save_pre ? pre + offset : NULL};
    dlt_epilogue_run(&attr->ep, &row, c, n);
}

void dlt_conv_data_finish(const DltCall *call, int64_t offset, DltReal *c, int64_t n)
{
    const DltConv *attr = call->node->attr;
    const DltReal *saved = call->in[2];
    DltEpilogueRow row = {.saved = saved != NULL ? saved + offset : NULL};
    dlt_epilogue_run(&attr->ep, &row, c, n);
}

/* Sum over c, r, s of x[c, h0 + r dilation, w0 + s dilation] w[c, r, s] inside the image. */
static double window_sum(const DltConvSizes *z, const DltReal *x, const DltReal *w, int64_t h0,
                         int64_t w0)
{
    double sum = 0;
    for (int64_t i = 0; i < z->cg * z->r; i++) {
        int64_t c = i / z->r, h = h0 + i % z->r * z->attr->dilation[0];
        if (h < 0 || h >= z->h) continue;
        for (int64_t s = 0; s < z->s; s++) {
            int64_t at = w0 + s * z->attr->dilation[1];
            if (at < 0 || at >= z->w) continue;
            sum += (double)x[(c * z->h + h) * z->w + at] * (double)w[i * z->s + s];
        }
    }
    return sum;
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltConvSizes z = dlt_conv_fwd_sizes(call->node);
    const DltConv *attr = z.attr;
    for (int64_t plane = begin; plane < end; plane++) { /* of y: n, k */
        int64_t n = plane / z.k, k = plane % z.k, first = k / z.kg * z.cg;
        const DltReal *x = (const DltReal *)call->in[0] + (n * z.c + first) * z.h * z.w;
        const DltReal *w = (const DltReal *)call->in[1] + k * z.cg * z.r * z.s;
        DltReal *y = (DltReal *)call->out[0] + plane * z.p * z.q;
        for (int64_t i = 0; i < z.p * z.q; i++) {
            y[i] = (DltReal)window_sum(&z, x, w, i / z.q * attr->stride[0] - attr->pad[0],
                                       i % z.q * attr->stride[1] - attr->pad[2]);
        }
        dlt_conv_fwd_finish(call, k, plane * z.p * z.q, y, z.p * z.q);
    }
}

/* y[n,k,p,q] = epilogue(sum over c,r,s of x[n, c, p stride + r dilation - pad, ..] w[k,c,r,s]).
 * x, w, y f32 PLAIN, bias f32[K] or NULL.  conv.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    DltConvSizes z = dlt_conv_fwd_sizes(call->node);
    dlt_pool_for(call->stream, z.n * z.k, dlt_grain(z.p * z.q * z.cg * z.r * z.s), forward_task,
                 (void *)call);
    return DLT_OK;
}

/* Output row p that reads input row h through filter row r, or -1. */
static int64_t reader(int64_t h, int64_t r, int64_t stride, int64_t dilation, int64_t pad,
                      int64_t n_out)
{
    int64_t top = h + pad - r * dilation;
    return top >= 0 && top % stride == 0 && top / stride < n_out ? top / stride : -1;
}

/* Sum over k, r, s of dy[k, p, q] w[k, r, s] for the (p, q) that read (h, w); w steps by filters.
 */
static double readers_sum(const DltConvSizes *z, const DltReal *dy, const DltReal *w, int64_t h,
                          int64_t at)
{
    const DltConv *a = z->attr;
    double sum = 0;
    for (int64_t i = 0; i < z->kg * z->r; i++) {
        int64_t k = i / z->r, r = i % z->r;
        int64_t p = reader(h, r, a->stride[0], a->dilation[0], a->pad[0], z->p);
        const DltReal *wr = w + (k * z->cg * z->r + r) * z->s;
        for (int64_t s = 0; s < z->s && p >= 0; s++) {
            int64_t q = reader(at, s, a->stride[1], a->dilation[1], a->pad[2], z->q);
            if (q >= 0) sum += (double)dy[(k * z->p + p) * z->q + q] * (double)wr[s];
        }
    }
    return sum;
}

static void data_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltConvSizes z = dlt_conv_data_sizes(call->node);
    for (int64_t plane = begin; plane < end; plane++) { /* of dx: n, c */
        int64_t n = plane / z.c, c = plane % z.c, first = c / z.cg * z.kg;
        const DltReal *dy = (const DltReal *)call->in[0] + (n * z.k + first) * z.p * z.q;
        const DltReal *w = (const DltReal *)call->in[1] + (first * z.cg + c % z.cg) * z.r * z.s;
        DltReal *dx = (DltReal *)call->out[0] + plane * z.h * z.w;
        for (int64_t i = 0; i < z.h * z.w; i++) {
            dx[i] = (DltReal)readers_sum(&z, dy, w, i / z.w, i % z.w);
        }
        dlt_conv_data_finish(call, plane * z.h * z.w, dx, z.h * z.w);
    }
}

/* dx[n,c,h,w] = act_grad'(s) times the sum over k,r,s of dy[n,k,p,q] w[k,c,r,s] where (p,q) reads
 * (h,w) through (r,s).  dy, w, dx, s f32 PLAIN.  conv.h */
static DltStatus data(const DltCall *call, DltErr *err)
{
    (void)err;
    DltConvSizes z = dlt_conv_data_sizes(call->node);
    dlt_pool_for(call->stream, z.n * z.c, dlt_grain(z.h * z.w * z.kg * z.r * z.s), data_task,
                 (void *)call);
    return DLT_OK;
}

/* Sum over p, q of x[p stride + h0, q stride + w0] dy[p, q] inside the image. */
static double plane_sum(const DltConvSizes *z, const DltReal *x, const DltReal *dy, int64_t h0,
                        int64_t w0)
{
    double sum = 0;
    for (int64_t p = 0; p < z->p; p++) {
        int64_t h = p * z->attr->stride[0] + h0;
        if (h < 0 || h >= z->h) continue;
        for (int64_t q = 0; q < z->q; q++) {
            int64_t at = q * z->attr->stride[1] + w0;
            if (at < 0 || at >= z->w) continue;
            sum += (double)x[h * z->w + at] * (double)dy[p * z->q + q];
        }
    }
    return sum;
}

static void filter_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltConvSizes z = dlt_conv_filter_sizes(call->node);
    const DltConv *a = z.attr;
    DltReal *dw = call->out[0];
    for (int64_t i = begin; i < end; i++) { /* of dw: k, c, r, s */
        int64_t s = i % z.s, r = i / z.s % z.r, c = i / (z.s * z.r) % z.cg;
        int64_t k = i / (z.s * z.r * z.cg);
        double sum = 0;
        for (int64_t n = 0; n < z.n; n++) {
            const DltReal *x =
                (const DltReal *)call->in[0] + (n * z.c + k / z.kg * z.cg + c) * z.h * z.w;
            const DltReal *dy = (const DltReal *)call->in[1] + (n * z.k + k) * z.p * z.q;
            sum += plane_sum(&z, x, dy, r * a->dilation[0] - a->pad[0],
                             s * a->dilation[1] - a->pad[2]);
        }
        dw[i] = (DltReal)sum;
    }
}

/* dw[k,c,r,s] = sum over n,p,q of x[n, c, p stride + r dilation - pad, ..] dy[n,k,p,q].
 * x, dy, dw f32 PLAIN.  conv.h */
static DltStatus filter(const DltCall *call, DltErr *err)
{
    (void)err;
    DltConvSizes z = dlt_conv_filter_sizes(call->node);
    dlt_pool_for(call->stream, z.k * z.cg * z.r * z.s, dlt_grain(z.n * z.p * z.q), filter_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain_forward = {.name = "conv_fwd.cpu.plain", .launch = forward};
const DltKernel *const dlt_cpu_conv_fwd[] = {&dlt_cpu_conv_simd[0], &dlt_cpu_conv_blocked[0],
                                             &plain_forward, NULL};

static const DltKernel plain_data = {.name = "conv_bwd_data.cpu.plain", .launch = data};
const DltKernel *const dlt_cpu_conv_bwd_data[] = {&dlt_cpu_conv_simd[1], &dlt_cpu_conv_blocked[1],
                                                  &plain_data, NULL};

static const DltKernel plain_filter = {.name = "conv_bwd_filter.cpu.plain", .launch = filter};
const DltKernel *const dlt_cpu_conv_bwd_filter[] = {&dlt_cpu_conv_simd[2], &dlt_cpu_conv_blocked[2],
                                                    &plain_filter, NULL};
