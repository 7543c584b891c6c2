/* Small helpers that shape rules share: one-line errors that name both tensors, and copies of
 * shapes. */
#ifndef DLT_INFER_H
#define DLT_INFER_H

#include "graph/build.h"

/* "softmax of conv.weight [3, 4]: needs ..." at the node's place, status CONFIG. */
DltStatus dlt_infer_error(const DltNode *n, DltErr *err, const char *fmt, ...) DLT_PRINTF(3, 4);
/* a and b named with shapes: "add: fc.a [2, 3] and fc.b [2, 4]: <rule>". */
DltStatus dlt_infer_misfit(const DltNode *n, const DltTensor *a, const DltTensor *b, DltErr *err,
                           const char *rule);
/* out[0] like in[0]. */
DltStatus dlt_infer_same(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err);
/* The same, for ops that calculate: in[0] must be of a float type. */
DltStatus dlt_infer_like(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err);
/* No output at all (updates, metrics). */
DltStatus dlt_infer_none(const DltNode *n, DltShape out[DLT_MAX_OUT], DltDtype dtype[DLT_MAX_OUT],
                         DltErr *err);
/* `t` must be a vector of n elements ("weight of batch_norm"). */
DltStatus dlt_infer_vector(const DltNode *n, const DltTensor *t, int64_t size, DltErr *err);

/* The op needs tensors of rank lo or more: "needs rank 2 or more, but fc.x is [3]". */
DltStatus dlt_infer_rank(const DltNode *n, const DltTensor *t, int lo, DltErr *err);

/* Appends words to a node's attribute text, a blank between them. */
void dlt_attr_text(char *buf, size_t size, const char *fmt, ...) DLT_PRINTF(3, 4);

/* FLOP estimates: elements of out[0] (or in[0] when there is none) times a factor. */
double dlt_flops_1(const DltNode *n);
double dlt_flops_10(const DltNode *n);

#endif
