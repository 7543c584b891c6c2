/* step: the rate times gamma after every `every` updates; PyTorch's StepLR(step_size=every).
 * exponential: the same decay without steps, start * gamma^(i / every); with every: 1 steps it is
 * PyTorch's ExponentialLR. */
#include "train/pieces.h"

#include <math.h>

typedef struct Decay {
    DltSpan span, every;
    double gamma;
} Decay;

static const DltField step_fields[] = {
    DLT_PIECE_SPAN_ROW(Decay),
    DLT_SPAN(Decay, every, .required = true, .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "updates between two drops", .example = "every: 30 epochs"),
    DLT_FLOAT(Decay, gamma, .def = "0.1", .lo = 0, .hi = 1, .open_lo = true,
              .help = "factor of each drop", .example = "gamma: 0.5"),
    DLT_FIELDS_END,
};
static const DltField exponential_fields[] = {
    DLT_PIECE_SPAN_ROW(Decay),
    DLT_SPAN(Decay, every, .def = "1 steps", .lo = 0, .hi = 1e15, .open_lo = true,
             .help = "updates in which the rate falls by gamma", .example = "every: 1 epochs"),
    DLT_FLOAT(Decay, gamma, .required = true, .lo = 0, .hi = 1, .open_lo = true,
              .help = "factor over `every` updates", .example = "gamma: 0.97"),
    DLT_FIELDS_END,
};

/* Drops so far, with their fraction. */
static double drops(const Decay *c, int64_t i)
{
    DLT_BUG_ON(c->every.unit != DLT_U_STEPS);
    return (double)i / fmax(c->every.n, 1.0);
}

static double step_rate(const void *opts, double base, double start, int64_t before, int64_t i,
                        int64_t n)
{
    (void)base;
    (void)before;
    (void)n;
    const Decay *c = opts;
    return start * pow(c->gamma, floor(drops(c, i)));
}

static double exponential_rate(const void *opts, double base, double start, int64_t before,
                               int64_t i, int64_t n)
{
    (void)base;
    (void)before;
    (void)n;
    const Decay *c = opts;
    return start * pow(c->gamma, drops(c, i));
}

const DltScheduleDef dlt_schedule_step = {
    .name = "step",
    .help = "multiply the rate by gamma at equal distances",
    .fields = step_fields,
    .opt_size = sizeof(Decay),
    .span_offset = offsetof(Decay, span),
    .rate = step_rate,
};

const DltScheduleDef dlt_schedule_exponential = {
    .name = "exponential",
    .help = "multiply the rate by gamma^(1/every) at every update",
    .fields = exponential_fields,
    .opt_size = sizeof(Decay),
    .span_offset = offsetof(Decay, span),
    .rate = exponential_rate,
};
