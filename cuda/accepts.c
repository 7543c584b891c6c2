/* Which tensors the kernels of kernels/ take. All of them read f32, bf16 and f16 and know where an
 * element of a PLAIN or NHWC tensor lies; what they differ in is whether layouts may be mixed. */
#include "cuda/cuda.h"

bool dlt_cuda_refuse(DltWhy *why_not, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(why_not->text, sizeof why_not->text, fmt, args);
    va_end(args);
    return false;
}

static bool tensor_ok(const DltTensor *t, DltWhy *why_not)
{
    if (t->dtype == DLT_F8E4M3 || t->dtype == DLT_F8E5M2)
        return dlt_cuda_refuse(why_not, "%s is %s", t->name, dlt_dtype_name(t->dtype));
    if (t->layout != DLT_PLAIN && t->layout != DLT_NHWC)
        return dlt_cuda_refuse(why_not, "%s has a blocked layout", t->name);
    if (t->layout == DLT_NHWC && t->shape.rank != 4)
        return dlt_cuda_refuse(why_not, "%s is NHWC but not of rank 4", t->name);
    return true;
}

/* Calls ok on every tensor of the node until one refuses. */
static bool each(const DltNode *n, bool (*ok)(const DltNode *n, const DltTensor *t, DltWhy *why),
                 DltWhy *why_not)
{
    for (int i = 0; i < DLT_MAX_IN; i++)
        if (n->in[i] && !(tensor_ok(n->in[i], why_not) && ok(n, n->in[i], why_not))) return false;
    for (int i = 0; i < DLT_MAX_OUT; i++)
        if (n->out[i] && !(tensor_ok(n->out[i], why_not) && ok(n, n->out[i], why_not)))
            return false;
    return true;
}

static bool any(const DltNode *n, const DltTensor *t, DltWhy *why_not)
{
    (void)n, (void)t, (void)why_not;
    return true;
}

static bool same(const DltNode *n, const DltTensor *t, DltWhy *why_not)
{
    if (t->shape.rank != 4 || t->layout == n->in[0]->layout || n->in[0]->shape.rank != 4)
        return true;
    return dlt_cuda_refuse(why_not, "%s and %s have different layouts", n->in[0]->name, t->name);
}

static bool plain(const DltNode *n, const DltTensor *t, DltWhy *why_not)
{
    (void)n;
    return t->layout == DLT_PLAIN || dlt_cuda_refuse(why_not, "%s is NHWC", t->name);
}

bool dlt_cuda_accepts_any(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return each(n, any, why_not);
}

bool dlt_cuda_accepts_same_layout(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return each(n, same, why_not);
}

bool dlt_cuda_accepts_plain(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return each(n, plain, why_not);
}

uint32_t dlt_cuda_alignment_at(const DltTensor *t, int64_t element)
{
    int64_t first = t->view_of ? t->view_offset : 0;
    uint64_t at = (uint64_t)(first + element) * dlt_dtype_bytes(t->dtype);
    uint32_t a = 256;
    while (at % a != 0)
        a /= 2;
    return a;
}

uint32_t dlt_cuda_alignment(const DltTensor *t)
{
    return dlt_cuda_alignment_at(t, 0);
}
