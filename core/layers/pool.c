/* max_pool and avg_pool: largest or mean value of a sliding window.  x [N,C,H,W] -> y [N,C,P,Q]; P
 * and Q: window.h, or rounded up with ceil_mode (a window then still starts inside the image or its
 * top and left padding, as in PyTorch). */
#include "layers/window.h"
#include "ops/conv.h"

#include <string.h>

typedef struct Pool {
    DltDims kernel, stride;
    DltStrs pad;
    bool ceil_mode;
    bool count_include_pad; /* avg_pool */
} Pool;

#define POOL_ROWS                                                                                  \
    DLT_DIMS(Pool, kernel, .required = true, .main = true, .lo = 1, .hi = DLT_MAX_WINDOW,          \
             .help = "size of the window: a number or [height, width]", .example = "kernel: 2"),   \
        DLT_DIMS(Pool, stride, .lo = 1, .hi = DLT_MAX_WINDOW,                                      \
                 .help = "step of the window: a number or [height, width]; default: the kernel",   \
                 .example = "stride: 2"),                                                          \
        DLT_STRS(Pool, pad, .def = "0", .help = DLT_PAD_HELP "; at most half the kernel",          \
                 .example = "pad: 1"),                                                             \
        DLT_BOOL(Pool, ceil_mode, .def = "false", .help = "round the output size up",              \
                 .example = "ceil_mode: true")

static const DltField max_fields[] = {
    POOL_ROWS,
    DLT_FIELDS_END,
};
static const DltField avg_fields[] = {
    POOL_ROWS,
    DLT_BOOL(Pool, count_include_pad, .def = "true",
             .help = "divide by the whole window, padding counting as zeros",
             .example = "count_include_pad: false"),
    DLT_FIELDS_END,
};

static DltWindowOpts window_of(const Pool *c)
{
    return (DltWindowOpts){.kernel = c->kernel,
                           .stride = c->stride,
                           .pad = c->pad,
                           .kernel_at = offsetof(Pool, kernel),
                           .pad_at = offsetof(Pool, pad),
                           .half_pad = true};
}

static DltStatus check(const DltOpts *o, DltErr *err)
{
    DltWindowOpts window = window_of(o->v);
    return dlt_window_check(o, &window, err);
}

static DltTensor *pool(DltBuild *b, const DltOpts *o, DltTensor *x, DltPool attr)
{
    const Pool *c = o->v;
    DltWindowOpts opts = window_of(c);
    DltWindow window;
    if (!dlt_window_resolve(b, o, &opts, x, &window)) return dlt_build_poison(b);
    attr.ceil = c->ceil_mode;
    memcpy(attr.kernel, window.kernel, sizeof(attr.kernel));
    memcpy(attr.stride, window.stride, sizeof(attr.stride));
    memcpy(attr.pad, window.pad, sizeof(attr.pad));
    return dlt_pool(b, x, &attr);
}

static DltTensor *build_max(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    return pool(b, o, in[0], (DltPool){.max = true});
}

static DltTensor *build_avg(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Pool *c = o->v;
    return pool(b, o, in[0], (DltPool){.count_pad = c->count_include_pad});
}

const DltLayerDef dlt_layer_max_pool = {
    .name = "max_pool",
    .help = "largest value of each window of [N, C, H, W]",
    .fields = max_fields,
    .opt_size = sizeof(Pool),
    .check = check,
    .build = build_max,
};

const DltLayerDef dlt_layer_avg_pool = {
    .name = "avg_pool",
    .help = "mean value of each window of [N, C, H, W]",
    .fields = avg_fields,
    .opt_size = sizeof(Pool),
    .check = check,
    .build = build_avg,
};
