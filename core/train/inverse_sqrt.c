/* inverse_sqrt: start * sqrt(k / (k + i)), where k is the number of updates before this piece (the
 * warm-up), at least 1: the rate then falls as 1 / sqrt(update). Vaswani et al. 2017, equation 3.
 */
#include "train/pieces.h"

#include <math.h>

typedef struct InverseSqrt {
    DltSpan span, timescale;
} InverseSqrt;

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(InverseSqrt),
    DLT_SPAN(InverseSqrt, timescale, .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "k of sqrt(k / (k + i)); default: the updates before this piece",
             .example = "timescale: 10000 steps"),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)base;
    (void)n;
    const InverseSqrt *c = opts;
    double k = c->timescale.unit == DLT_U_NONE ? (double)before : c->timescale.n;
    k = fmax(k, 1.0);
    return start * sqrt(k / (k + (double)i));
}

const DltScheduleDef dlt_schedule_inverse_sqrt = {
    .name = "inverse_sqrt",
    .help = "fall as 1 / sqrt(update) after a warm-up",
    .fields = fields,
    .opt_size = sizeof(InverseSqrt),
    .span_offset = offsetof(InverseSqrt, span),
    .rate = rate,
};
