/* Layout changes of rank-4 tensors. A layout is five strides: N, block of C, H, W, and C inside its
 * block; the output is written front to back in rows, each row gathered from the input. */
#include "cpu/plain.h"

enum { SEGMENT = 256, MAX_BYTES = 8 }; /* elements gathered at once; widest dtype */

typedef struct Order {
    int64_t n, c, h, w; /* strides in elements; c of a whole block */
    int shift;          /* block = 1 << shift */
} Order;

static Order order_of(DltLayout layout, const DltShape *s)
{
    int64_t c = s->dim[1], h = s->dim[2], w = s->dim[3];
    const Order orders[] = {
        [DLT_PLAIN] = {c * h * w, h * w, w, 1, 0},
        [DLT_NHWC] = {c * h * w, 1, w * c, c, 0},
        [DLT_NCHW8C] = {c * h * w, 8 * h * w, 8 * w, 8, 3},
        [DLT_NCHW16C] = {c * h * w, 16 * h * w, 16 * w, 16, 4},
    };
    return orders[layout];
}

static int64_t channel_offset(const Order *o, int64_t c)
{
    return (c >> o->shift) * o->c + (c & ((1 << o->shift) - 1));
}

/* Logical place of the element at `at` in memory order. */
typedef struct Place {
    int64_t n, c, h, w;
} Place;

static Place place_at(DltLayout layout, const DltShape *s, int64_t at)
{
    int64_t c = s->dim[1], h = s->dim[2], w = s->dim[3];
    if (layout == DLT_PLAIN) return (Place){at / (c * h * w), at / (h * w) % c, at / w % h, at % w};
    if (layout == DLT_NHWC) return (Place){at / (c * h * w), at % c, at / (w * c) % h, at / c % w};
    int64_t block = layout == DLT_NCHW8C ? 8 : 16;
    return (Place){at / (c * h * w), at / (h * w * block) % (c / block) * block + at % block,
                   at / (w * block) % h, at / block % w};
}

/* Length of the rows in which one index runs in the output: w, all channels, or a block of them. */
static int64_t row_length(DltLayout layout, const DltShape *s)
{
    const int64_t lengths[] = {s->dim[3], s->dim[1], 8, 16};
    return lengths[layout];
}

/* out[i] = src[at[i]], elements of 1, 2, 4 or 8 bytes. */
typedef void (*Copy)(const void *src, const int64_t *at, void *out, int64_t n);

#define COPY(bits)                                                                                 \
    static void copy_##bits(const void *src, const int64_t *at, void *out, int64_t n)              \
    {                                                                                              \
        const uint##bits##_t *x = src;                                                             \
        uint##bits##_t *y = out;                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[at[i]];                                                                       \
    }
COPY(8)
COPY(16)
COPY(32)
COPY(64)
#undef COPY

static const Copy copies[MAX_BYTES + 1] = {
    [1] = copy_8, [2] = copy_16, [4] = copy_32, [8] = copy_64};

/* Places in `from` of the n elements that follow p in a row of the output. */
static void row_places(const Order *from, bool along_w, Place p, int64_t *at, int64_t n)
{
    int64_t base = p.n * from->n + p.h * from->h + p.w * from->w;
    if (along_w) base += channel_offset(from, p.c);
    for (int64_t i = 0; i < n; i++) {
        at[i] = base + (along_w ? i * from->w : channel_offset(from, p.c + i));
    }
}

typedef struct Convert {
    const DltTensor *from, *to;
    const char *src;
    char *dst;
} Convert;

static void flat_task(void *ctx, int64_t begin, int64_t end)
{
    const Convert *c = ctx;
    DltDtype from = c->from->dtype, to = c->to->dtype;
    dlt_cast_run(from, c->src + (size_t)begin * dlt_dtype_bytes(from), to,
                 c->dst + (size_t)begin * dlt_dtype_bytes(to), end - begin);
}

static void gather_task(void *ctx, int64_t begin, int64_t end)
{
    const Convert *c = ctx;
    const DltShape *shape = &c->to->shape;
    Order from = order_of(c->from->layout, shape);
    size_t from_bytes = dlt_dtype_bytes(c->from->dtype), to_bytes = dlt_dtype_bytes(c->to->dtype);
    int64_t row = row_length(c->to->layout, shape);
    _Alignas(MAX_BYTES) char segment[SEGMENT * MAX_BYTES];
    int64_t places[SEGMENT];
    for (int64_t at = begin; at < end;) {
        int64_t n = row - at % row;
        if (n > SEGMENT) n = SEGMENT;
        if (n > end - at) n = end - at;
        Place p = place_at(c->to->layout, shape, at);
        row_places(&from, c->to->layout == DLT_PLAIN, p, places, n);
        copies[from_bytes](c->src, places, segment, n);
        dlt_cast_run(c->from->dtype, segment, c->to->dtype, c->dst + (size_t)at * to_bytes, n);
        at += n;
    }
}

void dlt_convert(DltStream *s, const DltTensor *from, const void *src, const DltTensor *to,
                 void *dst)
{
    Convert c = {from, to, src, dst};
    dlt_pool_for(s, dlt_count(to), dlt_grain(4),
                 from->layout == to->layout ? flat_task : gather_task, &c);
}

/* y = x in another layout.  x, y [N,C,H,W] of one dtype, any; C a multiple of the block.
 * tensor.h, DltLayout */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNode *n = call->node;
    dlt_convert(call->stream, n->in[0], call->in[0], n->out[0], call->out[0]);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return n->in[0]->shape.rank == 4 || dlt_cpu_refuse(why_not, "layouts are for rank 4");
}

static const DltKernel plain = {.name = "reorder.cpu.plain", .accepts = accepts, .launch = launch};
const DltKernel *const dlt_cpu_reorder[] = {&plain, NULL};
