/* Batch norm on channel-blocked images [N][C/blk][H W][blk] (NHWC: one block of all), with residual and relu: one pass for the
 * statistics, one to apply. Sums run in f32 over one plane around the channel's first value and in double
 * across planes, in a fixed order. Formulas in ops/norm.h. */
#include "ops/norm.h"
#include "base/half.h"
#include "cpu/dnnl/amx.h"

#include <immintrin.h>
#include <math.h>

enum { SPLITS = 8, STRANDS = 4 /* sums side by side, for the adder's latency */ };

typedef struct Norm {
    int64_t n, blocks, hw, blk, splits; /* splits of N for the sums */
    const void *x, *y, *dy, *dy2, *res; /* f32 or bf16 */
    void *out, *dres;
    bool low; /* bf16 */
    const float *w, *b;
    float *mean, *rstd;  /* [C] */
    double *sum;         /* [splits][2][C] */
    float *a1, *a2, *a3; /* [C] coefficients of the second pass */
    bool relu;
} Norm;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (((const DltNorm *)n->attr)->bits) {
        snprintf(why_not->text, sizeof why_not->text, "relu's mask is bits");
        return false;
    }
    for (int i = 0; i < DLT_MAX_IN; i++) {
        const DltTensor *t = n->in[i];
        if (t && t->shape.rank == 4 && (t->layout != n->out[0]->layout)) {
            snprintf(why_not->text, sizeof why_not->text, "layouts differ");
            return false;
        }
    }
    bool low;
    if (dlt_fast_lanes(n->out[0]) > 0) return dlt_fast_images(n, &low, why_not);
    snprintf(why_not->text, sizeof why_not->text, "neither channel-blocked nor NHWC of eights");
    return false;
}

static Norm describe(const DltNode *n)
{
    const DltShape *s = &n->out[0]->shape;
    const DltNorm *a = n->attr;
    int64_t blk = dlt_fast_lanes(n->out[0]);
    return (Norm){.n = s->dim[0],
                  .blocks = s->dim[1] / blk,
                  .hw = s->dim[2] * s->dim[3],
                  .blk = blk,
                  .splits = s->dim[0] < SPLITS ? s->dim[0] : SPLITS,
                  .low = n->in[0]->dtype == DLT_BF16,
                  .relu = a->relu};
}

/* Scratch: sums in double, then three vectors of coefficients. */
static void book(Norm *k, void *work)
{
    int64_t c = k->blocks * k->blk;
    k->sum = work;
    k->a1 = (float *)(void *)(k->sum + 2 * SPLITS * c);
    k->a2 = k->a1 + c;
    k->a3 = k->a2 + c;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    size_t c = (size_t)n->out[0]->shape.dim[1];
    p->work_bytes = c * (2 * SPLITS * sizeof(double) + 3 * sizeof(float));
    return DLT_OK;
}

/* Of bf16, by the processor's own conversions: one for five of gcc 12's, and one for eleven, which makes subnormal numbers
 * 0. */
DLT_AMX DLT_INLINE void low_load(const void *x, int64_t i, bool low, DltV16 *v)
{
    (void)low;
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)x + i));
    *v = (DltV16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

DLT_AMX DLT_INLINE void low_store(void *x, int64_t i, bool low, const DltV16 *v)
{
    (void)low;
    *(DltH16 *)((uint16_t *)x + i) = (DltH16)_mm512_cvtneps_pbh((__m512)*v);
}

static bool converts(const Norm *k)
{
    return k->low && k->blk % 16 == 0 && __builtin_cpu_supports("avx512bf16");
}

#define INLINE DLT_INLINE
#define LANES 8
#define V DltV8
#define I DltI8
#define LOAD dlt_v8_load
#define STORE dlt_v8_store
#define RELU dlt_v8_relu
#define NAME(f) f##_8
#include "cpu/dnnl/norm_loops.h"
#undef LANES
#undef V
#undef I
#undef LOAD
#undef STORE
#undef RELU
#undef NAME
#define LANES 16
#define V DltV16
#define I DltI16
#define LOAD dlt_v16_load
#define STORE dlt_v16_store
#define RELU dlt_v16_relu
#define NAME(f) f##_16
#include "cpu/dnnl/norm_loops.h"
#undef LOAD
#undef STORE
#undef NAME
#undef INLINE
#define LOAD low_load
#define STORE low_store
#define NAME(f) f##_low
#define INLINE DLT_AMX DLT_INLINE
#include "cpu/dnnl/norm_loops.h"

/* Calls f(k, ..., blk, low) with type and (8, 16) block known to the compiler. */
#define BY_BLOCK(f, k, low, ...)                                                                   \
    do {                                                                                           \
        if ((k)->blk == 8)                                                                         \
            f(k, __VA_ARGS__, 8, low);                                                             \
        else if ((k)->blk == 16)                                                                   \
            f(k, __VA_ARGS__, 16, low);                                                            \
        else                                                                                       \
            f(k, __VA_ARGS__, (int)(k)->blk, low);                                                 \
    } while (0)
#define BY_TYPE(f, k, ...)                                                                         \
    do {                                                                                           \
        if ((k)->low)                                                                              \
            BY_BLOCK(f, k, true, __VA_ARGS__);                                                     \
        else                                                                                       \
            BY_BLOCK(f, k, false, __VA_ARGS__);                                                    \
    } while (0)

/* Channels at a time: 16 where they come so, which only processors with AVX-512 ask for. */
#define BY_WIDTH(f, blk, ...)                                                                      \
    do {                                                                                           \
        if (blk % 16 == 0)                                                                         \
            f##_16(__VA_ARGS__);                                                                   \
        else                                                                                       \
            f##_8(__VA_ARGS__);                                                                    \
    } while (0)

DLT_INLINE void part_stats(const Norm *k, int64_t cb, int64_t part, int blk, bool low)
{
    BY_WIDTH(part_stats, blk, k, cb, part, blk, low);
}

DLT_INLINE void apply_plane(const Norm *k, int64_t plane, int blk, bool low)
{
    BY_WIDTH(apply_plane, blk, k, plane, blk, low);
}

DLT_INLINE void part_grad_sums(const Norm *k, int64_t cb, int64_t part, int blk, bool low)
{
    BY_WIDTH(part_grad_sums, blk, k, cb, part, blk, low);
}

DLT_INLINE void grad_plane(const Norm *k, int64_t plane, int blk, bool low)
{
    BY_WIDTH(grad_plane, blk, k, plane, blk, low);
}

/* The loops over tasks with the processor's conversions. */
#define LOW_TASK(name, f, ...)                                                                     \
    DLT_AMX static void name(void *ctx, int64_t begin, int64_t end)                                \
    {                                                                                              \
        const Norm *k = ctx;                                                                       \
        for (int64_t t = begin; t < end; t++)                                                      \
            if (k->blk == 16)                                                                      \
                f##_low(k, __VA_ARGS__, 16, true);                                                 \
            else                                                                                   \
                f##_low(k, __VA_ARGS__, (int)k->blk, true);                                        \
    }
LOW_TASK(low_stats_task, part_stats, t / k->splits, t % k->splits)
LOW_TASK(low_apply_task, apply_plane, t)
LOW_TASK(low_grad_sums_task, part_grad_sums, t / k->splits, t % k->splits)
LOW_TASK(low_grad_task, grad_plane, t)

/* Task t: channel block t / splits, part t % splits of the samples. */
DLT_CLONES static void stats_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t t = begin; t < end; t++)
        BY_TYPE(part_stats, k, t / k->splits, t % k->splits);
}

static float first_value(const Norm *k, int64_t channel)
{
    int64_t at = channel / k->blk * k->hw * k->blk + channel % k->blk;
    return k->low ? dlt_bf16_to(((const uint16_t *)k->x)[at]) : ((const float *)k->x)[at];
}

static double total(const Norm *k, int which, int64_t channel)
{
    double sum = 0;
    int64_t c = k->blocks * k->blk;
    for (int64_t p = 0; p < k->splits; p++)
        sum += k->sum[(2 * p + which) * c + channel];
    return sum;
}

DLT_CLONES static void apply_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t p = begin; p < end; p++)
        BY_TYPE(apply_plane, k, p);
}

static DltStatus fwd(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNorm *a = call->node->attr;
    Norm k = describe(call->node);
    book(&k, call->work);
    k.x = call->in[0], k.w = call->in[1], k.b = call->in[2], k.res = call->in[5];
    k.out = call->out[0], k.mean = call->out[1], k.rstd = call->out[2];
    float *run_mean = call->in[3], *run_var = call->in[4];
    dlt_pool_for(call->stream, k.blocks * k.splits, 1, converts(&k) ? low_stats_task : stats_task,
                 &k);
    double count = (double)(k.n * k.hw);
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double pivot = (double)first_value(&k, c);
        double shift = total(&k, 0, c) / count, mean = pivot + shift;
        double var = total(&k, 1, c) / count - shift * shift;
        if (var < 0) var = 0;
        double rstd = 1.0 / sqrt(var + (double)a->eps), m = (double)a->momentum;
        k.mean[c] = (float)mean;
        k.rstd[c] = (float)rstd;
        run_mean[c] = (float)((1 - m) * (double)run_mean[c] + m * mean);
        run_var[c] =
            (float)((1 - m) * (double)run_var[c] + m * var * count / (count > 1 ? count - 1 : 1));
        k.a1[c] = (float)((double)k.w[c] * rstd);
        k.a2[c] = (float)((double)k.b[c] - mean * (double)k.w[c] * rstd);
    }
    dlt_pool_back(call->stream, k.n * k.blocks, 4, converts(&k) ? low_apply_task : apply_task, &k);
    return DLT_OK;
}

static DltStatus infer(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNorm *a = call->node->attr;
    Norm k = describe(call->node);
    book(&k, call->work);
    const float *w = call->in[1], *b = call->in[2], *mean = call->in[3], *var = call->in[4];
    k.x = call->in[0], k.res = call->in[5], k.out = call->out[0];
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double scale = (double)w[c] / sqrt((double)var[c] + (double)a->eps);
        k.a1[c] = (float)scale;
        k.a2[c] = (float)((double)b[c] - (double)mean[c] * scale);
    }
    dlt_pool_for(call->stream, k.n * k.blocks, 4, converts(&k) ? low_apply_task : apply_task, &k);
    return DLT_OK;
}

DLT_CLONES static void grad_sums_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t t = begin; t < end; t++)
        BY_TYPE(part_grad_sums, k, t / k->splits, t % k->splits);
}

DLT_CLONES static void grad_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t p = begin; p < end; p++)
        BY_TYPE(grad_plane, k, p);
}

static DltStatus bwd(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm k = describe(call->node);
    book(&k, call->work);
    k.dy = call->in[0], k.x = call->in[1], k.w = call->in[2], k.mean = call->in[3],
    k.rstd = call->in[4];
    k.y = call->in[5], k.dy2 = call->in[6], k.out = call->out[0], k.dres = call->out[3];
    float *dw = call->out[1], *db = call->out[2];
    dlt_pool_for(call->stream, k.blocks * k.splits, 1,
                 converts(&k) ? low_grad_sums_task : grad_sums_task, &k);
    double count = (double)(k.n * k.hw);
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double s = total(&k, 0, c), q = total(&k, 1, c), r = (double)k.rstd[c],
               g = (double)k.w[c] * r;
        dw[c] = (float)(q * r);
        db[c] = (float)s;
        /* dx = g (d - s/count - (x - mean) r^2 q/count) */
        double slope = -g * r * r * q / count;
        k.a1[c] = (float)g;
        k.a2[c] = (float)slope;
        k.a3[c] = (float)(-g * s / count - slope * (double)k.mean[c]);
    }
    dlt_pool_back(call->stream, k.n * k.blocks, 4, converts(&k) ? low_grad_task : grad_task, &k);
    return DLT_OK;
}

static const DltKernel fwd_k = {"batch_norm_fwd.cpu.blocked", accepts, prepare, fwd};
static const DltKernel bwd_k = {"batch_norm_bwd.cpu.blocked", accepts, prepare, bwd};
static const DltKernel infer_k = {"batch_norm_infer.cpu.blocked", accepts, prepare, infer};
const DltKernel *const dlt_fast_batch_norm_fwd[] = {&fwd_k, NULL};
const DltKernel *const dlt_fast_batch_norm_bwd[] = {&bwd_k, NULL};
const DltKernel *const dlt_fast_batch_norm_infer[] = {&infer_k, NULL};
