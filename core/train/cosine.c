/* cosine: from the start rate to `to` along half a cosine, `cycles` times with a restart at the
 * start rate in between.  Loshchilov & Hutter 2017 (SGDR), equation 5 with equal periods; PyTorch's
 * CosineAnnealingLR(T_max=n, eta_min=to) for one cycle. */
#include "train/pieces.h"

#include <math.h>

typedef struct Cosine {
    DltSpan span;
    double to;
    int64_t cycles;
} Cosine;

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(Cosine),
    DLT_PIECE_TO_ROW(Cosine),
    DLT_INT(Cosine, cycles, .def = "1", .lo = 1, .hi = 1000000,
            .help = "number of equal periods, each from the start rate to `to`",
            .example = "cycles: 3"),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)base;
    (void)before;
    const Cosine *c = opts;
    double period = (double)n / (double)c->cycles;
    double t = (double)i / period;
    return dlt_mix_cosine(start, c->to, i >= n ? 1.0 : t - floor(t));
}

const DltScheduleDef dlt_schedule_cosine = {
    .name = "cosine",
    .help = "fall to a rate along half a cosine, with restarts if wanted",
    .fields = fields,
    .opt_size = sizeof(Cosine),
    .span_offset = offsetof(Cosine, span),
    .rate = rate,
};
