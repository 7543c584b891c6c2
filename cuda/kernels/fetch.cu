/* The first nodes of a step: rows of the raw data set become the batch. A block works on one sample
 * (or a part of it); the random choices of augmentation are drawn once a block, by the same
 * function as on the CPU. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/data_ops.h"

namespace
{

struct Sample {
    int64_t count, channels, h, w; /* elements; image dims (1, 1, count when it is none) */
    int64_t means, rows;           /* length of mean and rstd; samples in data */
    bool nhwc;                     /* the output's order */
    int raw_dtype;
};

/* x[n, ..] = (raw scale - mean) rstd, cropped, flipped and cut out as ops/data_ops.h says.
 * data [S, ..] u8|f32|i32, ticket i32[N, 4], mean, rstd f32[c] or NULL.  Grid: parts x N. */
__global__ void fetch_x_k(DltFetch a, Sample s, In data, const int32_t *ticket, In mean, In rstd,
                          Out x)
{
    begin();
    __shared__ DltAugment g;
    int64_t n = blockIdx.y;
    const int32_t *t = ticket + n * DLT_TICKET_INTS;
    int64_t row = t[DLT_TICKET_ROW];
    if (a.augment && threadIdx.x == 0)
        g = dlt_augment_draw(a.seed, t[DLT_TICKET_EPOCH], t[DLT_TICKET_SAMPLE], a.pad, a.flip,
                             (int32_t)s.h, (int32_t)s.w);
    __syncthreads();
    bool there = row >= 0 && row < s.rows;
    uint32_t count = (uint32_t)s.count, area = (uint32_t)(s.h * s.w), width = (uint32_t)s.w;
    for (uint32_t e = blockIdx.x * blockDim.x + threadIdx.x; e < count;
         e += gridDim.x * blockDim.x) {
        /* e counts the output in memory order; (c, p) is its place */
        uint32_t c, p;
        if (s.nhwc)
            p = e / (uint32_t)s.channels, c = e - p * (uint32_t)s.channels;
        else
            c = e / area, p = e - c * area;
        int32_t py = (int32_t)(p / width), px = (int32_t)(p - (uint32_t)py * width);
        int32_t qy = py, qx = px;
        bool inside = there, hole = false;
        if (a.augment) {
            qx = g.flip ? (int32_t)s.w - 1 - px : px;
            qy = py + g.dy - a.pad;
            qx = qx + g.dx - a.pad;
            inside = there && qy >= 0 && qy < s.h && qx >= 0 && qx < s.w;
            int32_t top = g.cut_y - a.cutout / 2, left = g.cut_x - a.cutout / 2;
            hole = py >= top && py < top + a.cutout && px >= left && px < left + a.cutout;
        }
        int64_t in = (int64_t)c * area + (int64_t)qy * width + qx;
        float v = inside ? data[row * s.count + in] * a.scale : 0.0f;
        if (mean.p) {
            int64_t k = (int64_t)(c * area + p) / a.inner % s.means;
            v = (v - mean[k]) * rstd[k];
        }
        x.set(n * s.count + e, hole ? 0.0f : v);
    }
}
/* The same for bytes that stay in their order, with one mean or none: four at a time.  data u8[S,
 * count], x T, count a multiple of 4, rows aligned to 4 bytes.  Grid: parts x N. */
template <typename T>
__global__ void fetch_bytes_k(float scale, int64_t rows, uint32_t count, const uint8_t *data,
                              const int32_t *ticket, In mean, In rstd, T *x)
{
    begin();
    uint32_t e = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (e >= count) return;
    int64_t n = blockIdx.y, row = ticket[n * DLT_TICKET_INTS + DLT_TICKET_ROW];
    float shift = mean.p ? mean[0] : 0.0f, factor = mean.p ? rstd[0] : 1.0f;
    uint32_t four = 0;
    if (row >= 0 && row < rows) four = *reinterpret_cast<const uint32_t *>(data + row * count + e);
    T *to = x + n * count + e;
#pragma unroll
    for (int k = 0; k < 4; k++)
        to[k] = from_float<T>(((float)(four >> 8 * k & 255) * scale - shift) * factor);
}
/* Ids and other integers as they are, and masked where a says so.  data i32[S, count], x i32[N, count].  Grid:
 * parts x N. */
__global__ void fetch_int_k(DltFetch a, Sample s, const int32_t *data, const int32_t *ticket,
                            int32_t *x)
{
    begin();
    const int32_t *t = ticket + (int64_t)blockIdx.y * DLT_TICKET_INTS;
    int64_t n = blockIdx.y, row = t[DLT_TICKET_ROW];
    bool there = row >= 0 && row < s.rows;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; e < s.count; e += step) {
        int32_t id = there ? data[row * s.count + e] : 0;
        if (a.mask.share > 0.0f) dlt_mask_place(&a, t, s.count, e, &id);
        x[n * s.count + e] = id;
    }
}

/* y[n, ..] = target[row], 4-byte elements, at masked places alone where a says so; w[n] = 1, or 0 for padding
 * rows. */
__global__ void fetch_y_k(DltFetch a, Sample s, const uint32_t *target, const int32_t *ticket,
                          int64_t n, uint32_t *y, Out w)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * s.count; i += step) {
        int64_t r = i / s.count, e = i - r * s.count;
        const int32_t *t = ticket + r * DLT_TICKET_INTS;
        int64_t row = t[DLT_TICKET_ROW];
        int32_t shown = 0;
        uint32_t v = row >= 0 && row < s.rows ? target[row * s.count + e] : 0;
        if (a.mask.share > 0.0f && !dlt_mask_place(&a, t, s.count, e, &shown))
            v = (uint32_t)a.mask.ignored;
        y[i] = v;
        if (e == 0 && w.p) w.set(r, t[DLT_TICKET_VALID] ? 1.0f : 0.0f);
    }
}

static Sample sample_of(const DltNode *n, const DltTensor *x)
{
    const DltTensor *data = n->in[0];
    Sample s = {};
    int rank = data->shape.rank;
    s.rows = data->shape.dim[0];
    s.count = dlt_shape_span(&data->shape, 1, rank);
    s.channels = rank == 4 ? data->shape.dim[1] : 1;
    s.h = rank == 4 ? data->shape.dim[2] : 1;
    s.w = rank == 4 ? data->shape.dim[3] : s.count;
    s.means = n->in[2] ? count_of(n->in[2]) : 1;
    s.nhwc = x->layout == DLT_NHWC;
    s.raw_dtype = data->dtype;
    return s;
}
static int64_t batch_of(const DltNode *n)
{
    return n->in[1]->shape.dim[0];
}

static bool is_bytes(const DltCall *c, const Sample &s)
{
    const DltFetch *a = (const DltFetch *)c->node->attr;
    return s.raw_dtype == DLT_U8 && !a->augment && s.means == 1 && (!s.nhwc || s.channels == 1) &&
           s.count % 4 == 0 && (uintptr_t)c->in[0] % 4 == 0;
}

static bool accepts_x(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (n->in[0]->layout != DLT_PLAIN) return dlt_cuda_refuse(why_not, "raw data is not plain");
    if (dlt_shape_span(&n->in[0]->shape, 1, n->in[0]->shape.rank) >= (int64_t)1 << 30)
        return dlt_cuda_refuse(why_not, "a sample has more than 2^30 elements");
    return true;
}
static DltStatus launch_x(const DltCall *c, DltErr *err)
{
    Sample s = sample_of(c->node, c->node->out[0]);
    int64_t n = batch_of(c->node), done = 0;
    const int64_t most = 65535; /* of grid.y */
    while (done < n) {
        int64_t part = n - done < most ? n - done : most;
        dim3 grid((unsigned)(s.count <= 4 * BLOCK ? 1 : ceil_div(s.count, 4 * BLOCK)),
                  (unsigned)part);
        const int32_t *ticket = (const int32_t *)c->in[1] + done * DLT_TICKET_INTS;
        Out x = output(c, 0);
        x.p = (char *)x.p + (size_t)(done * s.count) * dlt_dtype_bytes((DltDtype)x.dtype);
        if (x.dtype == DLT_I32)
            DLT_TRY(enqueue(c, err, fetch_int_k, grid, BLOCK, 0, *(const DltFetch *)c->node->attr,
                            s, (const int32_t *)c->in[0], ticket, (int32_t *)x.p));
        else if (is_bytes(c, s))
            DLT_FLOAT_TYPE(x.dtype, T,
                           DLT_TRY(enqueue(c, err, fetch_bytes_k<T>, grid, BLOCK, 0,
                                           ((const DltFetch *)c->node->attr)->scale, s.rows,
                                           (uint32_t)s.count, (const uint8_t *)c->in[0], ticket,
                                           input(c, 2), input(c, 3), (T *)x.p)))
        else
            DLT_TRY(enqueue(c, err, fetch_x_k, grid, BLOCK, 0, *(const DltFetch *)c->node->attr, s,
                            input(c, 0), ticket, input(c, 2), input(c, 3), x));
        done += part;
    }
    return DLT_OK;
}

static bool accepts_y(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype && dlt_dtype_bytes(n->in[0]->dtype) == 4) return true;
    return dlt_cuda_refuse(why_not, "targets are %s, not i32 or f32",
                           dlt_dtype_name(n->in[0]->dtype));
}
static DltStatus launch_y(const DltCall *c, DltErr *err)
{
    Sample s = sample_of(c->node, c->node->out[0]);
    int64_t n = batch_of(c->node);
    return enqueue(c, err, fetch_y_k, blocks_for(c, n * s.count, BLOCK), BLOCK, 0,
                   *(const DltFetch *)c->node->attr, s, (const uint32_t *)c->in[0],
                   (const int32_t *)c->in[1], n, (uint32_t *)c->out[0], output(c, 1));
}

DLT_CUDA_KERNEL(x_kernel, "fetch_x.cuda.sample", accepts_x, nullptr, launch_x);
DLT_CUDA_KERNEL(y_kernel, "fetch_y.cuda.flat", accepts_y, nullptr, launch_y);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_fetch_x[] = {&x_kernel, nullptr};
const DltKernel *const dlt_cuda_fetch_y[] = {&y_kernel, nullptr};
}
