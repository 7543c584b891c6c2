/* Pooling: windows cut by the border, overlapping windows, indices of one byte and of four. */
#include "cases.h"
#include "ops/conv.h"

#define SQUARE(size) .kernel = {size, size}
#define STRIDE(size) .stride = {size, size}
#define PAD(size) .pad = {size, size, size, size}
#define TIES .kink = "equal values in a window"

static const Case rows[] = {
    {OP(pool_fwd), .why = "max 2x2", .in = {XF(DISTINCT, 2, 3, 4, 6)},
     ATTR(DltPool, .max = true, SQUARE(2), STRIDE(2), .in_hw = {4, 6}), TIES},
    {OP(pool_fwd), .why = "max 2x2, rest dropped", .in = {XF(DISTINCT, 2, 16, 5, 7)},
     ATTR(DltPool, .max = true, SQUARE(2), STRIDE(2), .in_hw = {5, 7}), TIES},
    {OP(pool_fwd), .why = "max 3x3 stride 2 pad 1", .in = {XF(DISTINCT, 1, 16, 6, 7)},
     ATTR(DltPool, .max = true, SQUARE(3), STRIDE(2), PAD(1), .in_hw = {6, 7}), TIES},
    {OP(pool_fwd), .why = "max 3x3 stride 1, overlapping", .in = {XF(DISTINCT, 1, 2, 5, 4)},
     ATTR(DltPool, .max = true, SQUARE(3), STRIDE(1), PAD(1), .in_hw = {5, 4}), TIES},
    {OP(pool_fwd), .why = "max, ceil", .in = {XF(DISTINCT, 1, 3, 5, 6)},
     ATTR(DltPool, .max = true, .ceil = true, SQUARE(3), STRIDE(2), .in_hw = {5, 6}), TIES},
    {OP(pool_fwd), .why = "max, pad on one side", .in = {XF(DISTINCT, 1, 3, 5, 6)},
     ATTR(DltPool, .max = true, .kernel = {2, 3}, .stride = {2, 2}, .pad = {0, 1, 1, 0},
          .in_hw = {5, 6}),
     TIES},
    {OP(pool_fwd), .why = "max over 289 places, i32 index", .in = {XF(DISTINCT, 1, 2, 18, 17)},
     ATTR(DltPool, .max = true, SQUARE(17), STRIDE(1), .in_hw = {18, 17}), TIES},
    {OP(pool_fwd), .why = "max of one place", .in = {XF(DISTINCT, 3, 1, 1, 1)},
     ATTR(DltPool, .max = true, SQUARE(1), STRIDE(1), .in_hw = {1, 1}), TIES},
    {OP(pool_fwd), .why = "max and relu", .in = {XF(DISTINCT, 2, 16, 4, 6)},
     ATTR(DltPool, .max = true, .ep_relu = true, SQUARE(2), STRIDE(2), .in_hw = {4, 6}),
     .kink = "equal values in a window; 0"},
    {OP(pool_fwd), .why = "average 2x2", .in = {X(2, 3, 4, 6)},
     ATTR(DltPool, SQUARE(2), STRIDE(2), .in_hw = {4, 6})},
    {OP(pool_fwd), .why = "average 3x3 pad 1", .in = {X(1, 16, 5, 7)},
     ATTR(DltPool, SQUARE(3), STRIDE(2), PAD(1), .in_hw = {5, 7})},
    {OP(pool_fwd), .why = "average 3x3 pad 1 counted", .in = {X(1, 16, 5, 7)},
     ATTR(DltPool, .count_pad = true, SQUARE(3), STRIDE(2), PAD(1), .in_hw = {5, 7})},
    {OP(pool_fwd), .why = "average, ceil, pad counted", .in = {X(1, 3, 6, 6)},
     ATTR(DltPool, .count_pad = true, .ceil = true, SQUARE(3), STRIDE(2), PAD(1), .in_hw = {6, 6})},
    {OP(pool_fwd), .why = "average of a whole image", .in = {X(2, 5, 3, 4)},
     ATTR(DltPool, .kernel = {3, 4}, .stride = {1, 1}, .in_hw = {3, 4})},
};
CASE_LIST(pool);
