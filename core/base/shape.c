/* Shapes by value; every product is checked for overflow. */
#include "base/shape.h"

DltShape dlt_shape(int rank, ...)
{
    DLT_BUG_ON(rank < 0 || rank > DLT_MAX_RANK);
    DltShape s = {.rank = rank};
    va_list args;
    va_start(args, rank);
    for (int i = 0; i < rank; i++)
        s.dim[i] = va_arg(args, int64_t);
    va_end(args);
    return s;
}

DltShape dlt_shape1(int64_t a)
{
    return (DltShape){.rank = 1, .dim = {a}};
}

DltShape dlt_shape2(int64_t a, int64_t b)
{
    return (DltShape){.rank = 2, .dim = {a, b}};
}

DltShape dlt_shape3(int64_t a, int64_t b, int64_t c)
{
    return (DltShape){.rank = 3, .dim = {a, b, c}};
}

DltShape dlt_shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (DltShape){.rank = 4, .dim = {a, b, c, d}};
}

int64_t dlt_shape_count(const DltShape *s)
{
    return dlt_shape_span(s, 0, s->rank);
}

bool dlt_shape_bytes(const DltShape *s, size_t element_bytes, int64_t *bytes)
{
    int64_t product = 1;
    if (__builtin_mul_overflow(product, element_bytes, &product)) return false;
    for (int i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0 || __builtin_mul_overflow(product, s->dim[i], &product)) return false;
    }
    *bytes = product;
    return true;
}

bool dlt_shape_equal(const DltShape *a, const DltShape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) return false;
    }
    return true;
}

int64_t dlt_shape_dim(const DltShape *s, int i)
{
    int at = i < 0 ? i + s->rank : i;
    DLT_BUG_ON(at < 0 || at >= s->rank);
    return s->dim[at];
}

int64_t dlt_shape_span(const DltShape *s, int from, int to)
{
    DLT_BUG_ON(from < 0 || to > s->rank);
    int64_t product = 1;
    for (int i = from; i < to; i++) {
        DLT_BUG_ON(__builtin_mul_overflow(product, s->dim[i], &product));
    }
    return product;
}

const char *dlt_shape_text(const DltShape *s, char buf[DLT_SHAPE_TEXT])
{
    int n = snprintf(buf, DLT_SHAPE_TEXT, "[");
    for (int i = 0; i < s->rank; i++) {
        n += snprintf(buf + n, (size_t)(DLT_SHAPE_TEXT - n), "%s%lld", i > 0 ? ", " : "",
                      (long long)s->dim[i]);
    }
    snprintf(buf + n, (size_t)(DLT_SHAPE_TEXT - n), "]");
    return buf;
}
