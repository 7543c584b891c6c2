/* Helpers of the shape rules. */
#include "ops/infer.h"

DltStatus dlt_infer_error(const DltNode *n, DltErr *err, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dlt_err_at(err, DLT_E_CONFIG, n->at, "%s: %s", dlt_node_label(n), text);
}

DltStatus dlt_infer_misfit(const DltNode *n, const DltTensor *a, const DltTensor *b, DltErr *err,
                           const char *rule)
{
    char sa[DLT_SHAPE_TEXT], sb[DLT_SHAPE_TEXT];
    return dlt_infer_error(n, err, "%s %s and %s %s: %s", a->name, dlt_shape_text(&a->shape, sa),
                           b->name, dlt_shape_text(&b->shape, sb), rule);
}

DltStatus dlt_infer_same(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err)
{
    (void)err;
    out[0] = n->in[0]->shape;
    dtype[0] = n->in[0]->dtype;
    return DLT_OK;
}

DltStatus dlt_infer_like(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err)
{
    const DltTensor *x = n->in[0];
    if (!dlt_dtype_is_float(x->dtype))
        return dlt_infer_error(n, err,
                               "%s needs numbers of a float type, but %s is %s (ids need an "
                               "embedding in front)",
                               n->op->name, x->name, dlt_dtype_name(x->dtype));
    return dlt_infer_same(n, out, dtype, err);
}

DltStatus dlt_infer_none(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err)
{
    (void)n;
    (void)out;
    (void)dtype;
    (void)err;
    return DLT_OK;
}

DltStatus dlt_infer_vector(const DltNode *n, const DltTensor *t, int64_t size, DltErr *err)
{
    if (t->shape.rank == 1 && t->shape.dim[0] == size) return DLT_OK;
    char s[DLT_SHAPE_TEXT];
    return dlt_infer_error(n, err, "%s has shape %s, needs [%lld] for %s", t->name,
                           dlt_shape_text(&t->shape, s), (long long)size, n->in[0]->name);
}

DltStatus dlt_infer_rank(const DltNode *n, const DltTensor *t, int lo, DltErr *err)
{
    if (t->shape.rank >= lo) return DLT_OK;
    char s[DLT_SHAPE_TEXT];
    return dlt_infer_error(n, err, "%s needs rank %d or more, but %s is %s", n->op->name, lo,
                           t->name, dlt_shape_text(&t->shape, s));
}

void dlt_attr_text(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    if (used > 0 && used + 1 < size) buf[used++] = ' ';
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf + used, size - used, fmt, args);
    va_end(args);
}

double dlt_flops_1(const DltNode *n)
{
    return (double)dlt_shape_count(n->out[0] ? &n->out[0]->shape : &n->in[0]->shape);
}

double dlt_flops_10(const DltNode *n)
{
    return 10.0 * dlt_flops_1(n);
}
