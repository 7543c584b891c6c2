/* The order of training samples: epoch e is a keyed permutation of (seed, e), so that any position of the
 * endless stream is found at once and a run can be resumed anywhere. */
#include "api/dataset.h"

#include "base/rng.h"

void dlt_order_at(const DltSplit *s, uint64_t seed, int64_t position, int64_t *sample,
                  int64_t *epoch)
{
    *epoch = position / s->n;
    uint64_t stream = dlt_rng_stream(DLT_RNG_ORDER, (uint64_t)*epoch);
    int64_t i = dlt_rng_permute(seed, stream, s->n, position % s->n);
    *sample = s->id ? s->id[i] : i;
}
