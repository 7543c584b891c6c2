/* linear: from the start rate to `to` along a line; PyTorch's LinearLR(start_factor=1,
 * end_factor=to/lr, total_iters=n). */
#include "train/pieces.h"

typedef struct Linear {
    DltSpan span;
    double to;
} Linear;

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(Linear),
    DLT_PIECE_TO_ROW(Linear),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)base;
    (void)before;
    const Linear *c = opts;
    return dlt_mix(start, c->to, (double)i / (double)n);
}

const DltScheduleDef dlt_schedule_linear = {
    .name = "linear",
    .help = "go to a rate along a line",
    .fields = fields,
    .opt_size = sizeof(Linear),
    .span_offset = offsetof(Linear, span),
    .rate = rate,
};
