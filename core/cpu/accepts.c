/* What kernels accept: the rule for plain rows and its two relatives. Shapes, optional inputs and
 * integer types were settled by the op's own shape rule; here only dtypes and layouts count. */
#include "cpu/plain.h"

typedef bool (*Rule)(const DltTensor *t, const DltTensor *first);

static const char *const layout_names[] = {"plain", "nhwc", "nchw8c", "nchw16c"};

bool dlt_cpu_refuse(DltWhy *why_not, const char *fmt, ...)
{
    va_list args;
    if (why_not == NULL) return false;
    va_start(args, fmt);
    vsnprintf(why_not->text, sizeof why_not->text, fmt, args);
    va_end(args);
    return false;
}

static bool is_low(DltDtype dtype)
{
    return dlt_dtype_is_float(dtype) && dtype != DLT_F32 && dtype != DLT_F64;
}

static bool plain_rule(const DltTensor *t, const DltTensor *first)
{
    (void)first;
    return !is_low(t->dtype) && t->layout == DLT_PLAIN;
}

static bool flat_rule(const DltTensor *t, const DltTensor *first)
{
    return !is_low(t->dtype) && t->layout == first->layout;
}

static bool move_rule(const DltTensor *t, const DltTensor *first)
{
    (void)first;
    return t->layout == DLT_PLAIN;
}

static bool all_tensors(const DltNode *n, Rule rule, DltWhy *why_not)
{
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (t == NULL || rule(t, n->in[0])) continue;
        return dlt_cpu_refuse(why_not, "%s %d is %s %s", i < DLT_MAX_IN ? "input" : "output",
                              i < DLT_MAX_IN ? i : i - DLT_MAX_IN, dlt_dtype_name(t->dtype),
                              layout_names[t->layout]);
    }
    return true;
}

bool dlt_kernel_accepts_plain(const DltNode *n, DltWhy *why_not)
{
    return all_tensors(n, plain_rule, why_not);
}

bool dlt_cpu_accepts_flat(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return all_tensors(n, flat_rule, why_not);
}

bool dlt_cpu_accepts_update(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    DltNode without_low = *n;
    (void)dev;
    without_low.in[7] = NULL;
    return dlt_kernel_accepts_plain(&without_low, why_not);
}

bool dlt_cpu_accepts_move(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return all_tensors(n, move_rule, why_not);
}

bool dlt_cpu_accepts(const DltKernel *k, const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return k->accepts != NULL ? k->accepts(n, dev, why_not) : dlt_kernel_accepts_plain(n, why_not);
}
