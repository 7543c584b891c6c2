/* warmup: from 0 to the full rate along a line. Update i of n (0 first) runs at base (i + 1) / n:
 * the first one already moves, the n-th runs at the full rate. This is llm.c's rule, and PyTorch's
 * LinearLR(start_factor=1/n, total_iters=n-1). */
#include "train/pieces.h"

typedef struct Warmup {
    DltSpan span;
} Warmup;

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(Warmup),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)opts;
    (void)before;
    return i + 1 >= n ? base : dlt_mix(start, base, (double)(i + 1) / (double)n);
}

const DltScheduleDef dlt_schedule_warmup = {
    .name = "warmup",
    .help = "rise from 0 to lr along a line; update n of n runs at lr",
    .fields = fields,
    .opt_size = sizeof(Warmup),
    .span_offset = offsetof(Warmup, span),
    .starts_at_zero = true,
    .rate = rate,
};
