/* one_cycle: up from lr / div_factor to lr, then down to lr / div_factor / final_div_factor; a
 * whole schedule in one piece.  Smith & Topin 2019; PyTorch's OneCycleLR(max_lr=lr, total_steps=n)
 * with its defaults, but the momentum stays as it is. */
#include "train/pieces.h"

typedef struct OneCycle {
    DltSpan span;
    double pct_start, div_factor, final_div_factor;
    int anneal;
} OneCycle;

enum { ANNEAL_COSINE, ANNEAL_LINEAR };
static const DltEnum anneals[] = {
    {"cosine", ANNEAL_COSINE},
    {"linear", ANNEAL_LINEAR},
    {NULL, 0},
};
static double (*const mixes[])(double a, double b, double t) = {
    [ANNEAL_COSINE] = dlt_mix_cosine,
    [ANNEAL_LINEAR] = dlt_mix,
};

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(OneCycle),
    DLT_FLOAT(OneCycle, pct_start, .def = "0.3", .lo = 0, .hi = 1,
              .help = "part of the piece in which the rate rises", .example = "pct_start: 0.1"),
    DLT_FLOAT(OneCycle, div_factor, .def = "25", .lo = 1, .hi = 1e9,
              .help = "the first rate is lr / div_factor", .example = "div_factor: 10"),
    DLT_FLOAT(OneCycle, final_div_factor, .def = "1e4", .lo = 1, .hi = 1e12,
              .help = "the last rate is the first / final_div_factor",
              .example = "final_div_factor: 100"),
    DLT_ENUM(OneCycle, anneal, .def = "cosine", .choices = anneals, .help = "shape of both parts",
             .example = "anneal: linear"),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)start;
    (void)before;
    const OneCycle *c = opts;
    double first = base / c->div_factor, last = first / c->final_div_factor;
    double peak_at = c->pct_start * (double)n - 1.0, end = (double)n - 1.0, u = (double)i;
    if (u >= end) return last;
    if (u < peak_at) return mixes[c->anneal](first, base, u / peak_at);
    return mixes[c->anneal](base, last, (u - peak_at) / (end - peak_at));
}

const DltScheduleDef dlt_schedule_one_cycle = {
    .name = "one_cycle",
    .help = "rise to lr, then fall far below where it began",
    .fields = fields,
    .opt_size = sizeof(OneCycle),
    .span_offset = offsetof(OneCycle, span),
    .rate = rate,
};
