/* Convolution as a blocked matrix product whose packers gather the windows, so that the unfolded
 * image is never stored:
 *   fwd:    y[k, pq]  = sum over crs  of w[k, crs] x(crs, pq)      one product an image and group
 *   data:   dx[c, hw] = sum over krs  of w[krs -> c] dy(krs, hw)   one product an image and group
 *   filter: dw[k, crs] = sum over npq of dy[k, npq] x(npq, crs)    one product a group */
#include "cpu/conv.h"
#include "cpu/gemm.h"

static int64_t clamp(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i > n ? n : i;
}

/* out[i * step] = x[first + i stride] of a line of n_line, 0 outside, i in [0, n) */
static void copy_line(const DltReal *x, int64_t n_line, int64_t first, int64_t stride, DltReal *out,
                      int64_t step, int64_t n)
{
    if (stride != 1 || step != 1) {
        for (int64_t i = 0; i < n; i++) {
            int64_t at = first + i * stride;
            out[i * step] = at >= 0 && at < n_line ? x[at] : 0;
        }
        return;
    }
    int64_t begin = clamp(-first, n), end = clamp(n_line - first, n);
    if (begin > 0 || end < n) memset(out, 0, (size_t)n * sizeof *out);
    if (begin < end) memcpy(out + begin, x + first + begin, (size_t)(end - begin) * sizeof *out);
}

/* A place in the filters: channel (or filter), row, column; counted without dividing. */
typedef struct Tap {
    int64_t c, r, s;
} Tap;

static Tap tap_at(const DltConvSizes *z, int64_t i)
{
    return (Tap){i / (z->r * z->s), i / z->s % z->r, i % z->s};
}

static void next_tap(const DltConvSizes *z, Tap *t)
{
    if (++t->s < z->s) return;
    t->s = 0;
    if (++t->r < z->r) return;
    t->r = 0;
    t->c++;
}

/* Rows pq, values crs of one image and group: out[crs][pq]. */
static void pack_windows(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                         int64_t width, DltReal *out)
{
    const DltConvSizes *z = p->ctx;
    const DltConv *a = z->attr;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    for (int64_t j = 0; j < n_row;) { /* runs of one output row */
        int64_t q = (row + j) % z->q, n = z->q - q < n_row - j ? z->q - q : n_row - j;
        int64_t top = (row + j) / z->q * a->stride[0] - a->pad[0];
        int64_t left = q * a->stride[1] - a->pad[2];
        Tap t = tap_at(z, k);
        for (int64_t i = 0; i < n_k; i++, next_tap(z, &t)) {
            int64_t h = top + t.r * a->dilation[0];
            bool inside = h >= 0 && h < z->h;
            copy_line(p->x + (t.c * z->h + (inside ? h : 0)) * z->w, inside ? z->w : 0,
                      left + t.s * a->dilation[1], a->stride[1], out + i * width + j, 1, n);
        }
        j += n;
    }
}

/* Rows c, values krs: out[krs][c] = w[k, c, r, s]. */
static void pack_filters(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                         int64_t width, DltReal *out)
{
    const DltConvSizes *z = p->ctx;
    int64_t rs = z->r * z->s;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    for (int64_t i = 0; i < n_k; i++) {
        const DltReal *w = p->x + ((k + i) / rs * z->cg + row) * rs + (k + i) % rs;
        for (int64_t c = 0; c < n_row; c++)
            out[i * width + c] = w[c * rs];
    }
}

/* out[i] = line[(first + i) / stride] where that is whole and inside [0, n_line), else 0 */
static void spread_line(const DltReal *line, int64_t n_line, int64_t first, int64_t stride,
                        DltReal *out, int64_t n)
{
    if (stride == 1) {
        copy_line(line, n_line, first, 1, out, 1, n);
        return;
    }
    memset(out, 0, (size_t)n * sizeof *out);
    int64_t at = first > 0 ? (first + stride - 1) / stride : 0; /* the first whole place */
    for (int64_t i = at * stride - first; i < n && at < n_line; i += stride)
        out[i] = line[at++];
}

/* Rows hw, values krs of one image and group: out[krs][hw] = dy[k, p, q] where (p, q) reads it. */
static void pack_readers(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                         int64_t width, DltReal *out)
{
    const DltConvSizes *z = p->ctx;
    const DltConv *a = z->attr;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    for (int64_t j = 0; j < n_row;) { /* runs of one row of dx */
        int64_t w = (row + j) % z->w, n = z->w - w < n_row - j ? z->w - w : n_row - j;
        int64_t h = (row + j) / z->w + a->pad[0];
        Tap t = tap_at(z, k);
        for (int64_t i = 0; i < n_k; i++, next_tap(z, &t)) {
            int64_t top = h - t.r * a->dilation[0],
                    line = a->stride[0] > 1 ? top / a->stride[0] : top;
            bool reads = top >= 0 && line * a->stride[0] == top && line < z->p;
            spread_line(p->x + (t.c * z->p + (reads ? line : 0)) * z->q, reads ? z->q : 0,
                        w + a->pad[2] - t.s * a->dilation[1], a->stride[1], out + i * width + j, n);
        }
        j += n;
    }
}

/* Rows k, values npq: out[npq][k] = dy[n, k, pq]. */
static void pack_planes(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                        int64_t width, DltReal *out)
{
    const DltConvSizes *z = p->ctx;
    int64_t pq = z->p * z->q;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    for (int64_t i = 0; i < n_k;) {
        int64_t n = (k + i) / pq, at = (k + i) % pq;
        int64_t run = pq - at < n_k - i ? pq - at : n_k - i;
        const DltReal *dy = p->x + (n * z->k + row) * pq + at;
        for (int64_t j = 0; j < n_row; j++) {
            for (int64_t t = 0; t < run; t++)
                out[(i + t) * width + j] = dy[j * pq + t];
        }
        i += run;
    }
}

/* Rows crs, values npq of one group: out[npq][crs]. */
static void pack_unfolded(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                          int64_t width, DltReal *out)
{
    const DltConvSizes *z = p->ctx;
    const DltConv *a = z->attr;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    for (int64_t j = 0; j < n_row; j++) {
        Tap tap = tap_at(z, row + j);
        for (int64_t i = 0; i < n_k;) {
            int64_t line = (k + i) / z->q, oq = (k + i) % z->q; /* line: n, p */
            int64_t n = z->q - oq < n_k - i ? z->q - oq : n_k - i;
            int64_t h = line % z->p * a->stride[0] + tap.r * a->dilation[0] - a->pad[0];
            bool inside = h >= 0 && h < z->h;
            int64_t plane = line / z->p * z->c + tap.c;
            copy_line(p->x + (plane * z->h + (inside ? h : 0)) * z->w, inside ? z->w : 0,
                      oq * a->stride[1] + tap.s * a->dilation[1] - a->pad[2], a->stride[1],
                      out + i * width + j, width, n);
            i += n;
        }
    }
}

typedef struct ConvProduct {
    DltProduct g; /* first member */
    DltConvSizes z;
} ConvProduct;

static void forward_batch(const DltProduct *g, int64_t i, DltPanel *a, DltPanel *b, DltReal **c)
{
    const DltConvSizes *z = &((const ConvProduct *)g)->z;
    int64_t n = i / z->groups, group = i % z->groups, crs = z->cg * z->r * z->s;
    const DltReal *x = g->call->in[0], *w = g->call->in[1];
    *a = (DltPanel){
        .pack = dlt_pack_strided, .x = w + group * z->kg * crs, .row_stride = crs, .k_stride = 1};
    *b = (DltPanel){
        .pack = pack_windows, .x = x + (n * z->c + group * z->cg) * z->h * z->w, .ctx = z};
    *c = (DltReal *)g->call->out[0] + i * z->kg * z->p * z->q;
}

static void data_batch(const DltProduct *g, int64_t i, DltPanel *a, DltPanel *b, DltReal **c)
{
    const DltConvSizes *z = &((const ConvProduct *)g)->z;
    int64_t n = i / z->groups, group = i % z->groups;
    const DltReal *dy = g->call->in[0], *w = g->call->in[1];
    *a = (DltPanel){.pack = pack_filters, .x = w + group * z->kg * z->cg * z->r * z->s, .ctx = z};
    *b = (DltPanel){
        .pack = pack_readers, .x = dy + (n * z->k + group * z->kg) * z->p * z->q, .ctx = z};
    *c = (DltReal *)g->call->out[0] + i * z->cg * z->h * z->w;
}

static void filter_batch(const DltProduct *g, int64_t i, DltPanel *a, DltPanel *b, DltReal **c)
{
    const DltConvSizes *z = &((const ConvProduct *)g)->z;
    const DltReal *x = g->call->in[0], *dy = g->call->in[1];
    *a = (DltPanel){.pack = pack_planes, .x = dy + i * z->kg * z->p * z->q, .ctx = z};
    *b = (DltPanel){.pack = pack_unfolded, .x = x + i * z->cg * z->h * z->w, .ctx = z};
    *c = (DltReal *)g->call->out[0] + i * z->kg * z->cg * z->r * z->s;
}

static void forward_finish(const DltProduct *g, int64_t i, int64_t row, int64_t col, DltReal *c,
                           int64_t n)
{
    const DltConvSizes *z = &((const ConvProduct *)g)->z;
    int64_t channel = i % z->groups * z->kg + row;
    dlt_conv_fwd_finish(g->call, channel, (i * g->m + row) * g->n + col, c, n);
}

static void data_finish(const DltProduct *g, int64_t i, int64_t row, int64_t col, DltReal *c,
                        int64_t n)
{
    dlt_conv_data_finish(g->call, (i * g->m + row) * g->n + col, c, n);
}

static void filter_finish(const DltProduct *g, int64_t i, int64_t row, int64_t col, DltReal *c,
                          int64_t n)
{
    (void)g, (void)i, (void)row, (void)col, (void)c, (void)n; /* it has no epilogue */
}

static DltStatus forward(const DltCall *call, DltTile tile)
{
    DltConvSizes z = dlt_conv_fwd_sizes(call->node);
    ConvProduct p = {{z.n * z.groups, z.kg, z.p * z.q, z.cg * z.r * z.s, tile, forward_batch,
                      forward_finish, call},
                     z};
    dlt_product_run(&p.g);
    return DLT_OK;
}

static DltStatus data(const DltCall *call, DltTile tile)
{
    DltConvSizes z = dlt_conv_data_sizes(call->node);
    ConvProduct p = {
        {z.n * z.groups, z.cg, z.h * z.w, z.kg * z.r * z.s, tile, data_batch, data_finish, call},
        z};
    dlt_product_run(&p.g);
    return DLT_OK;
}

static DltStatus filter(const DltCall *call, DltTile tile)
{
    DltConvSizes z = dlt_conv_filter_sizes(call->node);
    ConvProduct p = {{z.groups, z.kg, z.cg * z.r * z.s, z.n * z.p * z.q, tile, filter_batch,
                      filter_finish, call},
                     z};
    dlt_product_run(&p.g);
    return DLT_OK;
}

/* The three of conv.c by blocks: partial sums of KC products in f32, their sum in double.  gemm.h
 */
static DltStatus forward_blocked(const DltCall *call, DltErr *err)
{
    (void)err;
    return forward(call, dlt_tile_portable);
}

static DltStatus data_blocked(const DltCall *call, DltErr *err)
{
    (void)err;
    return data(call, dlt_tile_portable);
}

static DltStatus filter_blocked(const DltCall *call, DltErr *err)
{
    (void)err;
    return filter(call, dlt_tile_portable);
}

/* And with the processor's own tile. */
static DltStatus forward_simd(const DltCall *call, DltErr *err)
{
    (void)err;
    return forward(call, dlt_tile_simd());
}

static DltStatus data_simd(const DltCall *call, DltErr *err)
{
    (void)err;
    return data(call, dlt_tile_simd());
}

static DltStatus filter_simd(const DltCall *call, DltErr *err)
{
    (void)err;
    return filter(call, dlt_tile_simd());
}

const DltKernel dlt_cpu_conv_blocked[3] = {
    {.name = "conv_fwd.cpu.blocked", .launch = forward_blocked},
    {.name = "conv_bwd_data.cpu.blocked", .launch = data_blocked},
    {.name = "conv_bwd_filter.cpu.blocked", .launch = filter_blocked},
};
const DltKernel dlt_cpu_conv_simd[3] = {
    {.name = "conv_fwd.cpu.simd", .accepts = dlt_tile_accepts, .launch = forward_simd},
    {.name = "conv_bwd_data.cpu.simd", .accepts = dlt_tile_accepts, .launch = data_simd},
    {.name = "conv_bwd_filter.cpu.simd", .accepts = dlt_tile_accepts, .launch = filter_simd},
};
