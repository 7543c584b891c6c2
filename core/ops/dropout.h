/* dropout: x, step -> y = keep ? x / (1 - p) : 0. The mask is recomputed, never stored: its gradient is
 * the same op on dy with the same attributes. Srivastava et al. 2014. */
#ifndef DLT_DROPOUT_H
#define DLT_DROPOUT_H

#include "base/rng.h"
#include "graph/build.h"

typedef struct DltDropout {
    float p;
    uint32_t id; /* number of the layer: its own stream */
} DltDropout;

/* Element i of micro batch `batch` is kept when this returns true. Four elements share one draw. */
DLT_HD uint32_t dlt_dropout_threshold(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}
DLT_HD DltRand4 dlt_dropout_draw(uint64_t seed, uint32_t id, int64_t batch, uint64_t i4)
{
    return dlt_philox(seed ^ ((uint64_t)(id + 1) << 32),
                      dlt_rng_stream(DLT_RNG_DROPOUT, (uint64_t)batch), i4);
}
/* kept when dlt_dropout_draw(seed, id, batch, i / 4).v[i % 4] >= dlt_dropout_threshold(p) */

DltTensor *dlt_dropout(DltBuild *b, DltTensor *x,
                       float p); /* x itself when p is 0 or !b->training */

#endif
