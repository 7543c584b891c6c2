/* Conversion between element types. Every type is read into doubles and written from doubles in
 * small blocks, so that each pair rounds once; the pairs that lie on the way of each step have
 * direct loops. */
#include "base/half.h"
#include "cpu/plain.h"
#include "ops/elementwise.h"

enum { BLOCK = 256 };

typedef struct Converter {
    void (*read)(const void *src, double *out, int64_t n);
    void (*write)(const double *in, void *dst, int64_t n);
} Converter;

#define NUMBER(id, type)                                                                           \
    static void read_##id(const void *src, double *out, int64_t n)                                 \
    {                                                                                              \
        const type *x = src;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = (double)x[i];                                                                 \
    }                                                                                              \
    static void write_##id(const double *in, void *dst, int64_t n)                                 \
    {                                                                                              \
        type *y = dst;                                                                             \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (type)in[i];                                                                    \
    }
NUMBER(real, DltReal)
NUMBER(f64, double)
NUMBER(i32, int32_t)
NUMBER(i64, int64_t)
NUMBER(u8, uint8_t)
#undef NUMBER

#define SMALL_FLOAT(id, type)                                                                      \
    static void read_##id(const void *src, double *out, int64_t n)                                 \
    {                                                                                              \
        const type *x = src;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = (double)dlt_##id##_to(x[i]);                                                  \
    }                                                                                              \
    static void write_##id(const double *in, void *dst, int64_t n)                                 \
    {                                                                                              \
        type *y = dst;                                                                             \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = dlt_##id##_from((float)in[i]);                                                  \
    }
SMALL_FLOAT(bf16, uint16_t)
SMALL_FLOAT(f16, uint16_t)
SMALL_FLOAT(f8e4m3, uint8_t)
SMALL_FLOAT(f8e5m2, uint8_t)
#undef SMALL_FLOAT

static const Converter converters[DLT_N_DTYPE] = {
    [DLT_F32] = {read_real, write_real},
    [DLT_BF16] = {read_bf16, write_bf16},
    [DLT_F16] = {read_f16, write_f16},
    [DLT_F8E4M3] = {read_f8e4m3, write_f8e4m3},
    [DLT_F8E5M2] = {read_f8e5m2, write_f8e5m2},
    [DLT_F64] = {read_f64, write_f64},
    [DLT_I32] = {read_i32, write_i32},
    [DLT_I64] = {read_i64, write_i64},
    [DLT_U8] = {read_u8, write_u8},
};

void dlt_cast_run(DltDtype from, const void *src, DltDtype to, void *dst, int64_t n)
{
    double block[BLOCK];
    size_t from_bytes = dlt_dtype_bytes(from), to_bytes = dlt_dtype_bytes(to);
    if (from == to) {
        memcpy(dst, src, (size_t)n * from_bytes);
    } else if (from == DLT_F32 && to == DLT_BF16) {
        dlt_narrow_run(src, dst, n);
    } else if (from == DLT_BF16 && to == DLT_F32) {
        dlt_widen_run(src, dst, n);
    } else {
        for (int64_t i = 0; i < n; i += BLOCK) {
            int64_t m = n - i < BLOCK ? n - i : BLOCK;
            converters[from].read((const char *)src + (size_t)i * from_bytes, block, m);
            converters[to].write(block, (char *)dst + (size_t)i * to_bytes, m);
        }
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltDtype from = call->node->in[0]->dtype, to = call->node->out[0]->dtype;
    const char *x = call->in[0];
    char *y = call->out[0];
    dlt_cast_run(from, x + (size_t)begin * dlt_dtype_bytes(from), to,
                 y + (size_t)begin * dlt_dtype_bytes(to), end - begin);
}

/* y = x in another dtype; any shape, any pair of dtypes, one layout. Floats round to nearest even;
 * floats to integers truncate.  elementwise.h */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(2), task, (void *)call);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return n->in[0]->layout == n->out[0]->layout ||
           dlt_cpu_refuse(why_not, "input and output differ in layout");
}

static const DltKernel plain_cast = {
    .name = "cast.cpu.plain", .accepts = accepts, .launch = launch};
const DltKernel *const dlt_cpu_cast[] = {&plain_cast, NULL};

/* y = x; any dtype and layout, both equal.  elementwise.h */
static const DltKernel plain_copy = {
    .name = "copy.cpu.plain", .accepts = accepts, .launch = launch};
const DltKernel *const dlt_cpu_copy[] = {&plain_copy, NULL};
