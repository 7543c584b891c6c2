/* Convolution and pooling: odd sizes, size-1 dims, strides that leave rows over, dilation, padding
 * that differs on each side, groups, depthwise, every epilogue, windows cut by the border. */
#include "ops/conv.h"
#include "cases.h"

#define SQUARE(size) .kernel = {size, size}
#define STRIDE(size) .stride = {size, size}
#define DENSE .dilation = {1, 1}
#define PAD(size) .pad = {size, size, size, size}
#define SIMPLE(size, padding) SQUARE(size), STRIDE(1), DENSE, PAD(padding), .groups = 1

static const Case rows[] = {
    {OP(conv_fwd), .why = "3x3 pad 1", .in = {X(2, 3, 5, 7), W(4, 3, 3, 3)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {5, 7})},
    {OP(conv_fwd), .why = "5x5 no pad", .in = {X(2, 1, 9, 6), W(6, 1, 5, 5)},
     ATTR(DltConv, SIMPLE(5, 0), .in_hw = {9, 6})},
    {OP(conv_fwd), .why = "1x1", .in = {X(2, 5, 4, 3), W(7, 5, 1, 1)},
     ATTR(DltConv, SIMPLE(1, 0), .in_hw = {4, 3})},
    {OP(conv_fwd), .why = "1x1 of one place", .in = {X(3, 5, 1, 1), W(7, 5, 1, 1)},
     ATTR(DltConv, SIMPLE(1, 0), .in_hw = {1, 1})},
    {OP(conv_fwd), .why = "all ones", .in = {X(1, 1, 1, 1), W(1, 1, 1, 1)},
     ATTR(DltConv, SIMPLE(1, 0), .in_hw = {1, 1})},
    {OP(conv_fwd), .why = "stride 2, a row left over", .in = {X(2, 3, 8, 7), W(5, 3, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(2), DENSE, PAD(1), .groups = 1, .in_hw = {8, 7})},
    {OP(conv_fwd), .why = "stride 2 1x1 skips places", .in = {X(2, 3, 6, 5), W(4, 3, 1, 1)},
     ATTR(DltConv, SQUARE(1), STRIDE(2), DENSE, .groups = 1, .in_hw = {6, 5})},
    {OP(conv_fwd), .why = "strides differ", .in = {X(1, 2, 9, 8), W(3, 2, 3, 2)},
     ATTR(DltConv, .kernel = {3, 2}, .stride = {3, 1}, DENSE, .groups = 1, .in_hw = {9, 8})},
    {OP(conv_fwd), .why = "dilation 2", .in = {X(1, 2, 9, 8), W(3, 2, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(1), .dilation = {2, 2}, PAD(2), .groups = 1, .in_hw = {9, 8})},
    {OP(conv_fwd), .why = "dilation and stride", .in = {X(2, 2, 11, 10), W(3, 2, 3, 2)},
     ATTR(DltConv, .kernel = {3, 2}, .stride = {2, 3}, .dilation = {2, 3}, .pad = {1, 1, 2, 2},
          .groups = 1, .in_hw = {11, 10})},
    {OP(conv_fwd), .why = "pad on one side", .in = {X(2, 3, 6, 5), W(4, 3, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(2), DENSE, .pad = {0, 1, 2, 1}, .groups = 1, .in_hw = {6, 5})},
    {OP(conv_fwd), .why = "two groups", .in = {X(2, 4, 5, 5), W(6, 2, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(1), DENSE, PAD(1), .groups = 2, .in_hw = {5, 5})},
    {OP(conv_fwd), .why = "depthwise", .in = {X(2, 16, 6, 5), W(16, 1, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(1), DENSE, PAD(1), .groups = 16, .in_hw = {6, 5})},
    {OP(conv_fwd), .why = "depthwise, two filters, stride 2", .in = {X(1, 3, 7, 7), W(6, 1, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(2), DENSE, PAD(1), .groups = 3, .in_hw = {7, 7})},
    {OP(conv_fwd), .why = "blocked channels", .in = {X(2, 16, 6, 6), W(32, 16, 3, 3)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {6, 6})},
    {OP(conv_fwd), .why = "blocked channels, stride 2", .in = {X(2, 32, 7, 7), W(16, 32, 3, 3)},
     ATTR(DltConv, SQUARE(3), STRIDE(2), DENSE, PAD(1), .groups = 1, .in_hw = {7, 7})},
    {OP(conv_fwd), .why = "image into blocks", .in = {X(2, 3, 12, 12), W(16, 3, 5, 5)},
     ATTR(DltConv, SIMPLE(5, 2), .in_hw = {12, 12})},
    {OP(conv_fwd), .why = "past the tiles", .in = {X(1, 30, 13, 11), W(100, 30, 3, 3)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {13, 11})},

    {OP(conv_fwd), .why = "bias", .in = {X(2, 16, 5, 5), W(16, 16, 3, 3), P(16)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {5, 5}), .forward_only = true},
    {OP(conv_fwd), .why = "bias and relu", .in = {X(2, 16, 5, 5), W(16, 16, 3, 3), P(16)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {5, 5}, .ep = {.act = {DLT_FN_RELU, 0}}),
     .forward_only = true},
    {OP(conv_fwd), .why = "bias, silu, pre saved", .in = {X(2, 3, 5, 5), W(5, 3, 3, 3), P(5)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {5, 5},
          .ep = {.act = {DLT_FN_SILU, 0}, .save_pre = true}),
     .forward_only = true, .nmse_low = 4,
     .nmse_why = "pre may be rounded before the activation reads it"},
    {OP(conv_fwd), .why = "groups with bias and leaky_relu",
     .in = {X(2, 4, 5, 5), W(6, 2, 3, 3), P(6)},
     ATTR(DltConv, SQUARE(3), STRIDE(1), DENSE, PAD(1), .groups = 2, .in_hw = {5, 5},
          .ep = {.act = {DLT_FN_LEAKY_RELU, 0.125F}}),
     .forward_only = true},
    {OP(conv_bwd_data), .why = "times relu gradient",
     .in = {X(2, 16, 5, 5), W(16, 16, 3, 3), XF(AWAY, 2, 16, 5, 5)},
     ATTR(DltConv, SIMPLE(3, 1), .in_hw = {5, 5}, .ep = {.act_grad = {DLT_FN_RELU, 0}}),
     .forward_only = true},
    {OP(conv_bwd_data), .why = "groups, times silu gradient",
     .in = {X(2, 6, 3, 3), W(6, 2, 3, 3), X(2, 4, 6, 5)},
     ATTR(DltConv, SQUARE(3), STRIDE(2), DENSE, PAD(1), .groups = 2, .in_hw = {6, 5},
          .ep = {.act_grad = {DLT_FN_SILU, 0}}),
     .forward_only = true},
};
CASE_LIST(conv);
