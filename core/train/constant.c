/* constant: the rate where the piece before ended stays. */
#include "train/pieces.h"

typedef struct Constant {
    DltSpan span;
} Constant;

static const DltField fields[] = {
    DLT_PIECE_SPAN_ROW(Constant),
    DLT_FIELDS_END,
};

static double rate(const void *opts, double base, double start, int64_t before, int64_t i,
                   int64_t n)
{
    (void)opts;
    (void)base;
    (void)before;
    (void)i;
    (void)n;
    return start;
}

const DltScheduleDef dlt_schedule_constant = {
    .name = "constant",
    .help = "keep the rate",
    .fields = fields,
    .opt_size = sizeof(Constant),
    .span_offset = offsetof(Constant, span),
    .rate = rate,
};
