/* Fetch: gathers a batch out of the raw samples by ticket, normalises and augments. Random numbers
 * are keyed by (seed, epoch, sample), so the batch depends on nothing else. */
#include "ops/data_ops.h"
#include "cpu/device.h"
#include "cpu/plain.h"

enum {
    PIECE = 1024,     /* numbers between two types */
    ASK_BYTES = 1024, /* of a sample; more of it is read ahead by itself */
    LINE = 64
};

typedef struct Fetch {
    const DltFetch *attr;
    const DltTensor *data;
    const void *raw;
    const int32_t *ticket;
    const DltReal *mean, *rstd; /* NULL: 0 and 1 */
    int64_t n_mean, per_sample;
    void *x; /* DltReal, or bf16 in the low kernel */
} Fetch;

static const int32_t *ticket_of(const int32_t *tickets, int64_t n)
{
    return tickets + n * DLT_TICKET_INTS;
}

/* Raw element i of the sample in `row`, u8 or f32. */
static DltReal raw_at(const Fetch *f, int64_t row, int64_t i)
{
    int64_t at = row * f->per_sample + i;
    return f->data->dtype == DLT_U8 ? (DltReal)((const uint8_t *)f->raw)[at]
                                    : ((const DltReal *)f->raw)[at];
}

/* Asks for a sample that comes later: it lies anywhere in the data set. */
static void ask(const Fetch *f, int64_t n, int64_t end)
{
    if (n >= end) return;
    int64_t bytes = f->per_sample * (int64_t)dlt_dtype_bytes(f->data->dtype);
    const char *row = (const char *)f->raw + ticket_of(f->ticket, n)[DLT_TICKET_ROW] * bytes;
    for (int64_t i = 0; i < bytes && i < ASK_BYTES; i += LINE)
        __builtin_prefetch(row + i);
}

static DltReal mean_at(const Fetch *f, int64_t i)
{
    return f->mean != NULL ? f->mean[i / f->attr->inner % f->n_mean] : 0;
}

static DltReal rstd_at(const Fetch *f, int64_t i)
{
    return f->rstd != NULL ? f->rstd[i / f->attr->inner % f->n_mean] : 1;
}

static void plain_sample(const Fetch *f, const int32_t *ticket, DltReal *x)
{
    int64_t inner = f->attr->inner;
    DltReal scale = (DltReal)f->attr->scale;
    for (int64_t first = 0; first < f->per_sample; first += inner) {
        DltReal mean = mean_at(f, first), rstd = rstd_at(f, first);
        int64_t end = first + inner < f->per_sample ? first + inner : f->per_sample;
        if (f->data->dtype == DLT_U8) {
            int64_t at = ticket[DLT_TICKET_ROW] * f->per_sample + first;
            dlt_cpu_normalize_bytes((const uint8_t *)f->raw + at, x + first, end - first, scale,
                                    mean, rstd);
            continue;
        }
        for (int64_t i = first; i < end; i++)
            x[i] = (raw_at(f, ticket[DLT_TICKET_ROW], i) * scale - mean) * rstd;
    }
}

/* One row of one channel: the raw row that begins at `from` (-1: padding), moved by dx, flipped, normalised. */
static void augmented_row(const Fetch *f, const DltAugment *r, int64_t from, int64_t first,
                          DltReal *x)
{
    int64_t w = f->data->shape.dim[3];
    DltReal scale = (DltReal)f->attr->scale, mean = mean_at(f, first), rstd = rstd_at(f, first);
    for (int64_t i = 0; i < w; i++) {
        int64_t ix = (r->flip ? w - 1 - i : i) + r->dx - f->attr->pad;
        DltReal raw = from >= 0 && ix >= 0 && ix < w ? raw_at(f, 0, from + ix) : 0;
        x[i] = (raw * scale - mean) * rstd;
    }
}

/* Places [*begin, *end) of a line of n that a cutout of `size` around `centre` covers. */
static void cut_range(int32_t centre, int32_t size, int64_t n, int64_t *begin, int64_t *end)
{
    int64_t first = centre - size / 2, last = first + size;
    *begin = first < 0 ? 0 : first;
    *end = last > n ? n : last;
}

static void augmented_sample(const Fetch *f, const int32_t *ticket, DltReal *x)
{
    const DltFetch *a = f->attr;
    int64_t h = f->data->shape.dim[2], w = f->data->shape.dim[3]; /* S, C, H, W */
    int64_t y0, y1, x0, x1, sample = ticket[DLT_TICKET_ROW] * f->per_sample;
    DltAugment r = dlt_augment_draw(a->seed, ticket[DLT_TICKET_EPOCH], ticket[DLT_TICKET_SAMPLE],
                                    a->pad, a->flip, (int32_t)h, (int32_t)w);
    cut_range(r.cut_y, a->cutout, h, &y0, &y1);
    cut_range(r.cut_x, a->cutout, w, &x0, &x1);
    for (int64_t row = 0; row < f->per_sample / w; row++) { /* c, y */
        int64_t y = row % h, iy = y + r.dy - a->pad;
        int64_t from = iy >= 0 && iy < h ? sample + (row - y + iy) * w : -1;
        augmented_row(f, &r, from, row * w, x + row * w);
        if (y >= y0 && y < y1 && x0 < x1) {
            memset(x + row * w + x0, 0, (size_t)(x1 - x0) * sizeof *x);
        }
    }
}

static void x_task(void *ctx, int64_t begin, int64_t end)
{
    const Fetch *f = ctx;
    for (int64_t n = begin; n < end; n++) {
        DltReal *x = (DltReal *)f->x + n * f->per_sample;
        ask(f, n + 1, end);
        if (f->attr->augment) {
            augmented_sample(f, ticket_of(f->ticket, n), x);
        } else {
            plain_sample(f, ticket_of(f->ticket, n), x);
        }
    }
}

/* Bytes without augmentation to bf16, a piece of a channel at a time. */
static void low_task(void *ctx, int64_t begin, int64_t end)
{
    const Fetch *f = ctx;
    DltReal piece[PIECE], scale = (DltReal)f->attr->scale;
    int64_t inner = f->attr->inner;
    for (int64_t n = begin; n < end; n++) {
        int64_t row = ticket_of(f->ticket, n)[DLT_TICKET_ROW] * f->per_sample;
        ask(f, n + 1, end);
        for (int64_t i = 0, count; i < f->per_sample; i += count) {
            int64_t left = inner - i % inner, rest = f->per_sample - i;
            count = left < rest ? left : rest;
            if (count > PIECE) count = PIECE;
            dlt_cpu_normalize_bytes((const uint8_t *)f->raw + row + i, piece, count, scale,
                                    mean_at(f, i), rstd_at(f, i));
            dlt_narrow_run(piece, (uint16_t *)f->x + n * f->per_sample + i, count);
        }
    }
}

/* y[n] = data[ticket[n].row], whole samples of any dtype */
static void copy_rows(const DltTensor *data, const void *raw, const int32_t *tickets, void *out,
                      int64_t batch)
{
    int64_t per_sample = dlt_shape_span(&data->shape, 1, data->shape.rank);
    size_t bytes = (size_t)per_sample * dlt_dtype_bytes(data->dtype);
    for (int64_t n = 0; n < batch; n++) {
        size_t row = (size_t)ticket_of(tickets, n)[DLT_TICKET_ROW];
        memcpy((char *)out + (size_t)n * bytes, (const char *)raw + row * bytes, bytes);
    }
}

typedef struct Masked {
    const DltFetch *attr;
    const int32_t *ticket;
    int64_t per_sample;
    int32_t *x, *y; /* one of them: ids to change, or targets to hide */
} Masked;

static void mask_task(void *ctx, int64_t begin, int64_t end)
{
    const Masked *m = ctx;
    int32_t unused = 0;
    for (int64_t n = begin; n < end; n++) {
        const int32_t *ticket = ticket_of(m->ticket, n);
        for (int64_t i = 0; i < m->per_sample; i++) {
            int64_t at = n * m->per_sample + i;
            int32_t *id = m->x != NULL ? &m->x[at] : &unused;
            bool masked = dlt_mask_place(m->attr, ticket, m->per_sample, i, id) != 0;
            if (m->y != NULL && !masked) m->y[at] = m->attr->mask.ignored;
        }
    }
}

/* Where the op masks: x and y of one call; the other is NULL. */
static void mask_places(const DltCall *call, int32_t *x, int32_t *y)
{
    const DltNode *n = call->node;
    const DltFetch *attr = n->attr;
    Masked m = {attr, call->in[1], dlt_shape_span(&n->in[0]->shape, 1, n->in[0]->shape.rank), x, y};
    if (attr->mask.share > 0)
        dlt_pool_for(call->stream, attr->batch, dlt_grain(64 * m.per_sample), mask_task, &m);
}

static Fetch fetch_of(const DltCall *call)
{
    const DltNode *n = call->node;
    return (Fetch){.attr = n->attr,
                   .data = n->in[0],
                   .raw = call->in[0],
                   .ticket = call->in[1],
                   .mean = call->in[2],
                   .rstd = call->in[3],
                   .n_mean = n->in[2] != NULL ? dlt_count(n->in[2]) : 1,
                   .per_sample = dlt_shape_span(&n->in[0]->shape, 1, n->in[0]->shape.rank),
                   .x = call->out[0]};
}

/* x = (raw scale - mean[k]) rstd[k] with k = (element / inner) % c, cropped, flipped and cut where
 * augment says so; i32 is copied, and masked where mask says so.  data u8|f32|i32 [S, d..], ticket i32 [N,4], mean, rstd f32[c] or
 * missing, x f32|i32 [N, d..].  data_ops.h */
static DltStatus fetch_x(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNode *n = call->node;
    const DltFetch *attr = n->attr;
    if (n->in[0]->dtype == DLT_I32) {
        copy_rows(n->in[0], call->in[0], call->in[1], call->out[0], attr->batch);
        mask_places(call, call->out[0], NULL);
        return DLT_OK;
    }
    Fetch f = fetch_of(call);
    dlt_pool_for(call->stream, attr->batch, dlt_grain(4 * f.per_sample), x_task, &f);
    return DLT_OK;
}

static bool accepts_low(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltTensor *x = n->out[0];
    bool images = x->shape.rank == 4 && x->shape.dim[1] == 1; /* one channel: all layouts are one */
    bool fits = n->in[0]->dtype == DLT_U8 && x->dtype == DLT_BF16 &&
                !((const DltFetch *)n->attr)->augment && (x->layout == DLT_PLAIN || images);
    return fits || dlt_cpu_refuse(why_not, "for bytes to bf16 without augmentation, row by row");
}

/* The same from bytes to bf16, rounded once. */
static DltStatus fetch_low(const DltCall *call, DltErr *err)
{
    (void)err;
    Fetch f = fetch_of(call);
    dlt_pool_for(call->stream, f.attr->batch, dlt_grain(4 * f.per_sample), low_task, &f);
    return DLT_OK;
}

/* y[n] = target[ticket[n].row], at masked places alone where mask says so; w[n] = 1 for a sample and 0 for
 * padding.  target, y i32|f32 [S,
 * t..] and [N, t..], ticket i32 [N,4], w f32[N].  data_ops.h */
static DltStatus fetch_y(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNode *n = call->node;
    const DltFetch *attr = n->attr;
    DltReal *w = call->out[1];
    copy_rows(n->in[0], call->in[0], call->in[1], call->out[0], attr->batch);
    mask_places(call, NULL, call->out[0]);
    for (int64_t i = 0; i < attr->batch; i++) {
        w[i] = ticket_of(call->in[1], i)[DLT_TICKET_VALID] != 0 ? 1 : 0;
    }
    return DLT_OK;
}

static const DltKernel plain_x = {.name = "fetch_x.cpu.plain", .launch = fetch_x};
static const DltKernel low_x = {"fetch_x.cpu.low", accepts_low, NULL, fetch_low};
const DltKernel *const dlt_cpu_fetch_x[] = {&low_x, &plain_x, NULL};

static const DltKernel plain_y = {.name = "fetch_y.cpu.plain", .launch = fetch_y};
const DltKernel *const dlt_cpu_fetch_y[] = {&plain_y, NULL};
