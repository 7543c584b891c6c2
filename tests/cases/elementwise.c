/* Elementwise ops, biases, reductions, casts and copies. */
#include "ops/elementwise.h"
#include "cases.h"

#define UNARY(fn_, alpha_, why_, ...)                                                              \
    {                                                                                              \
        OP(unary_fwd), .why = why_, .in = {__VA_ARGS__},                                           \
                       ATTR(DltUnary, .fn = fn_, .alpha = alpha_)                                  \
    }
#define KINK .kink = "0"

#define ACT_BWD(fn_, ...) ATTR(DltActBwd, .unary = {fn_, 0}, __VA_ARGS__)

static const Case rows[] = {
    {OP(act_bwd), .why = "gelu_tanh, again, sums", .forward_only = true, .in = {X(5, 33), X(5, 33)},
     ACT_BWD(DLT_FN_GELU_TANH, .remake = true, .sums = true)},
    {OP(act_bwd), .why = "silu, sums, tokens", .forward_only = true,
     .in = {X(3, 37, 40), X(3, 37, 40)}, ACT_BWD(DLT_FN_SILU, .sums = true)},
    {OP(act_bwd), .why = "gelu, again", .forward_only = true, .in = {X(7, 16), X(7, 16)},
     ACT_BWD(DLT_FN_GELU, .remake = true)},
    {OP(unary_fwd), .why = "relu", .in = {XF(AWAY, 3, 37)}, ATTR(DltUnary, DLT_FN_RELU, 0), KINK},
    {OP(unary_fwd), .why = "relu of an image", .in = {XF(AWAY, 2, 16, 3, 5)},
     ATTR(DltUnary, DLT_FN_RELU, 0), KINK},
    {OP(unary_fwd), .why = "leaky_relu", .in = {XF(AWAY, 257)},
     ATTR(DltUnary, DLT_FN_LEAKY_RELU, 0.125F), KINK},
    UNARY(DLT_FN_GELU, 0, "gelu", X(3, 37)),
    UNARY(DLT_FN_GELU_TANH, 0, "gelu_tanh", X(3, 37)),
    UNARY(DLT_FN_SILU, 0, "silu", X(3, 37)),
    UNARY(DLT_FN_SILU, 0, "silu of an image", X(1, 8, 3, 3)),
    UNARY(DLT_FN_SIGMOID, 0, "sigmoid", X(1)),
    UNARY(DLT_FN_SIGMOID, 0, "sigmoid with zero rows", XF(ZERO_ROWS, 4, 5)),
    UNARY(DLT_FN_TANH, 0, "tanh", X(3, 37)),
    UNARY(DLT_FN_SOFTPLUS, 2, "softplus", X(3, 37)),
    {OP(unary_fwd), .why = "elu", .in = {XF(AWAY, 3, 37)}, ATTR(DltUnary, DLT_FN_ELU, 0.75F), KINK},
    UNARY(DLT_FN_SCALE, -1.5F, "scale", X(2, 3, 1, 1, 5)),
    UNARY(DLT_FN_EXP, 0, "exp", X(3, 37)),
    UNARY(DLT_FN_SQUARE, 0, "square", X(3, 37)),
    UNARY(DLT_FN_SQRT, 0, "sqrt", XF(POSITIVE, 3, 37)),
    {OP(unary_fwd), .why = "abs", .in = {XF(AWAY, 3, 37)}, ATTR(DltUnary, DLT_FN_ABS, 0), KINK},

    {OP(binary), .why = "add", .in = {X(5, 7), X(5, 7)}, ATTR(DltBinary, DLT_ADD)},
    {OP(binary), .why = "add images", .in = {X(2, 16, 3, 3), X(2, 16, 3, 3)},
     ATTR(DltBinary, DLT_ADD)},
    {OP(binary), .why = "sub", .in = {X(257), X(257)}, ATTR(DltBinary, DLT_SUB)},
    {OP(binary), .why = "mul", .in = {X(5, 7), X(5, 7)}, ATTR(DltBinary, DLT_MUL)},
    {OP(binary), .why = "div", .in = {X(5, 7), XF(POSITIVE, 5, 7)}, ATTR(DltBinary, DLT_DIV)},
    {OP(binary), .why = "add a row", .in = {X(4, 5, 7), X(1, 1, 7)}, ATTR(DltBinary, DLT_ADD)},
    {OP(binary), .why = "add positions in packs", .in = {X(3, 5, 8), X(1, 5, 8)},
     ATTR(DltBinary, DLT_ADD)},
    {OP(binary), .why = "sub a column", .in = {X(4, 5, 7), X(4, 5, 1)}, ATTR(DltBinary, DLT_SUB)},
    {OP(binary), .why = "mul by a channel gate", .in = {X(2, 16, 3, 5), X(2, 16, 1, 1)},
     ATTR(DltBinary, DLT_MUL)},
    {OP(binary), .why = "div by the middle", .in = {X(4, 5, 7), XF(POSITIVE, 1, 5, 1)},
     ATTR(DltBinary, DLT_DIV)},
    {OP(binary), .why = "mul by one number", .in = {X(3, 4), X(1, 1)}, ATTR(DltBinary, DLT_MUL)},

    {OP(bias_fwd), .why = "last axis", .in = {X(5, 37), P(37)}, ATTR(DltBias, 1, 37)},
    {OP(bias_fwd), .why = "one channel", .in = {X(5, 1), P(1)}, ATTR(DltBias, 1, 1)},
    {OP(bias_fwd), .why = "channels", .in = {X(2, 16, 3, 5), P(16)}, ATTR(DltBias, 1, 16)},
    {OP(bias_fwd), .why = "odd channels", .in = {X(3, 35, 1, 7), P(35)}, ATTR(DltBias, 1, 35)},
    {OP(bias_fwd), .why = "tokens", .in = {X(2, 5, 33), P(33)}, ATTR(DltBias, 2, 33)},

    {OP(reduce), .why = "sum all", .in = {X(3, 5, 7)}, ATTR(DltReduce, 7, false)},
    {OP(reduce), .why = "mean of rows", .in = {X(3, 5, 8)}, ATTR(DltReduce, 4, true)},
    {OP(reduce), .why = "mean of images", .in = {X(2, 6, 4, 4)}, ATTR(DltReduce, 12, true)},
    {OP(reduce), .why = "sum of columns", .in = {X(17, 5)}, ATTR(DltReduce, 1, false)},
    {OP(reduce), .why = "sum outside", .in = {X(3, 1, 5, 7)}, ATTR(DltReduce, 9, false)},
    {OP(reduce), .why = "sum outside, wide", .in = {X(5, 3, 1, 529)}, ATTR(DltReduce, 3, false)},
    {OP(reduce), .why = "mean of samples", .in = {X(6, 7, 96)}, ATTR(DltReduce, 1, true)},
    {OP(reduce), .why = "sum of one", .in = {X(3, 1)}, ATTR(DltReduce, 2, false)},

    {OP(copy), .why = "odd size", .in = {X(3, 37)}},
    {OP(copy), .why = "image", .in = {X(2, 16, 3, 3)}},
    {OP(cast), .why = "f32 to f32", .in = {X(3, 37)}, ATTR(DltCast, DLT_F32)},
    {OP(cast), .why = "f32 to bf16", .in = {X(3, 300)}, ATTR(DltCast, DLT_BF16),
     .forward_only = true},
    {OP(cast), .why = "f32 to f16", .in = {X(3, 300)}, ATTR(DltCast, DLT_F16),
     .forward_only = true},
    {OP(cast), .why = "i32 to f32", .in = {C_BELOW(1000, ID, 3, 300)}, ATTR(DltCast, DLT_F32),
     .forward_only = true},
    {OP(cast), .why = "u8 to f32", .in = {C(BYTE, 3, 300)}, ATTR(DltCast, DLT_F32),
     .forward_only = true},
    {OP(cast), .why = "f64 to f32", .in = {C(DOUBLE, 3, 5)}, ATTR(DltCast, DLT_F32),
     .forward_only = true},
    {OP(cast), .why = "f32 to i32", .in = {C(WHOLE, 3, 5)}, ATTR(DltCast, DLT_I32),
     .forward_only = true},
    {OP(reorder), .why = "to nhwc", .in = {X(2, 16, 3, 5)}, ATTR(DltReorder, DLT_NHWC),
     .forward_only = true},
    {OP(reorder), .why = "to nhwc, an odd number of places", .in = {X(3, 64, 7, 7)},
     ATTR(DltReorder, DLT_NHWC), .forward_only = true},
    {OP(reorder), .why = "to row-major", .in = {X(3, 64, 7, 7)}, ATTR(DltReorder, DLT_PLAIN),
     .forward_only = true},
    {OP(reorder), .why = "to nchw8c", .in = {X(2, 16, 3, 5)}, ATTR(DltReorder, DLT_NCHW8C),
     .forward_only = true},
    {OP(reorder), .why = "to nchw16c", .in = {X(2, 32, 3, 5)}, ATTR(DltReorder, DLT_NCHW16C),
     .forward_only = true},
    {OP(reorder), .why = "odd channels to nhwc", .in = {X(2, 5, 1, 7)}, ATTR(DltReorder, DLT_NHWC),
     .forward_only = true},
};
CASE_LIST(elementwise);
