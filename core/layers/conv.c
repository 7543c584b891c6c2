/* conv: 2-D convolution (cross-correlation, as the field does it).  x [N,C,H,W] -> y [N,filters,
 * P,Q]; weight [filters, C/groups, R, S], bias [filters].  P and Q: window.h. */
#include "ops/conv.h"
#include "layers/window.h"

#include <inttypes.h>
#include <string.h>

typedef struct Conv {
    int64_t filters, groups;
    DltDims kernel, stride, dilation;
    DltStrs pad;
    bool bias;
    int bias_init;
    DLT_INIT_MEMBERS;
} Conv;

static const DltField fields[] = {
    DLT_INT(Conv, filters, .required = true, .main = true, .lo = 1, .hi = 1 << 24,
            .help = "number of output channels", .example = "filters: 64"),
    DLT_DIMS(Conv, kernel, .required = true, .lo = 1, .hi = DLT_MAX_WINDOW,
             .help = "size of the filter: a number or [height, width]", .example = "kernel: 3"),
    DLT_DIMS(Conv, stride, .def = "1", .lo = 1, .hi = DLT_MAX_WINDOW,
             .help = "step of the filter: a number or [height, width]", .example = "stride: 2"),
    DLT_STRS(Conv, pad, .def = "0", .help = DLT_PAD_HELP, .example = "pad: same"),
    DLT_DIMS(Conv, dilation, .def = "1", .lo = 1, .hi = DLT_MAX_WINDOW,
             .help = "distance between the filter's points: a number or [height, width]",
             .example = "dilation: 2"),
    DLT_INT(Conv, groups, .def = "1", .lo = 1, .hi = 1 << 24,
            .help = "blocks of channels convolved apart; must divide the input channels and "
                    "filters",
            .example = "groups: 32"),
    DLT_BOOL(Conv, bias, .def = "true", .help = "add a bias to each output channel",
             .example = "bias: false"),
    DLT_INIT_ROWS(Conv, "fan_in_uniform", NULL),
    DLT_BIAS_INIT_ROW(Conv),
    DLT_FIELDS_END,
};

static DltWindowOpts window_of(const Conv *c)
{
    return (DltWindowOpts){.kernel = c->kernel,
                           .stride = c->stride,
                           .dilation = c->dilation,
                           .pad = c->pad,
                           .kernel_at = offsetof(Conv, kernel),
                           .pad_at = offsetof(Conv, pad)};
}

static DltStatus check(const DltOpts *o, DltErr *err)
{
    const Conv *c = o->v;
    DltWindowOpts window = window_of(c);
    DLT_TRY(dlt_window_check(o, &window, err));
    if (c->filters % c->groups != 0)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Conv, groups)),
                          "%s.groups: %" PRId64 " does not divide filters %" PRId64, o->name,
                          c->groups, c->filters);
    if (!c->bias && dlt_opts_given(o, offsetof(Conv, bias_init)))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(Conv, bias_init)),
                          "%s.bias_init has no effect with bias: false", o->name);
    DltWeightInit w = DLT_WEIGHT_INIT(Conv, c);
    return dlt_weight_init_check(o, &w, err);
}

static DltTensor *build(DltBuild *b, const DltOpts *o, DltTensor *const in[], int n_in)
{
    (void)n_in;
    const Conv *c = o->v;
    DltTensor *x = in[0];
    DltWindowOpts opts = window_of(c);
    DltWindow window;
    if (!dlt_window_resolve(b, o, &opts, x, &window)) return dlt_build_poison(b);
    int64_t channels = dlt_dim(x, 1);
    char text[DLT_TENSOR_TEXT];
    if (channels % c->groups != 0)
        return dlt_build_error(
            b, "%s.groups: %" PRId64 " does not divide the %" PRId64 " channels of its input %s",
            o->name, c->groups, channels, dlt_tensor_text(x, text));
    DltShape shape =
        dlt_shape4(c->filters, channels / c->groups, window.kernel[0], window.kernel[1]);
    DltWeightInit init = DLT_WEIGHT_INIT(Conv, c);
    DltTensor *w = dlt_param(b, "weight", shape, dlt_weight_init(&init, &shape));
    DltTensor *bias =
        c->bias ? dlt_param(b, "bias", dlt_shape1(c->filters), dlt_bias_init(c->bias_init, &shape))
                : NULL;
    DltConv attr = {.groups = c->groups};
    memcpy(attr.kernel, window.kernel, sizeof(attr.kernel));
    memcpy(attr.stride, window.stride, sizeof(attr.stride));
    memcpy(attr.dilation, window.dilation, sizeof(attr.dilation));
    memcpy(attr.pad, window.pad, sizeof(attr.pad));
    return dlt_conv(b, x, w, bias, &attr);
}

const DltLayerDef dlt_layer_conv = {
    .name = "conv",
    .help = "2-D convolution of [N, C, H, W]",
    .fields = fields,
    .opt_size = sizeof(Conv),
    .check = check,
    .build = build,
};
