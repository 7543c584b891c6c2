/* Shapes: up to six dimensions, row-major, products checked for overflow. */
#ifndef DLT_SHAPE_H
#define DLT_SHAPE_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DLT_MAX_RANK = 6 };

typedef struct DltShape {
    int rank;
    int64_t dim[DLT_MAX_RANK];
} DltShape;

DltShape dlt_shape(int rank, ...); /* dlt_shape(2, (int64_t)3, (int64_t)4) */
DltShape dlt_shape1(int64_t a);
DltShape dlt_shape2(int64_t a, int64_t b);
DltShape dlt_shape3(int64_t a, int64_t b, int64_t c);
DltShape dlt_shape4(int64_t a, int64_t b, int64_t c, int64_t d);
int64_t dlt_shape_count(const DltShape *s); /* product; 1 for rank 0; BUG on overflow */
/* Product times element bytes with overflow check; false when it does not fit in int64_t. */
bool dlt_shape_bytes(const DltShape *s, size_t element_bytes, int64_t *bytes);
bool dlt_shape_equal(const DltShape *a, const DltShape *b);
int64_t dlt_shape_dim(const DltShape *s, int i); /* negative i counts from the end */
/* Product of dims [from, to). */
int64_t dlt_shape_span(const DltShape *s, int from, int to);
enum { DLT_SHAPE_TEXT = 128 };
const char *dlt_shape_text(const DltShape *s, char buf[DLT_SHAPE_TEXT]); /* "[3, 257]" */

#ifdef __cplusplus
}
#endif

#endif
