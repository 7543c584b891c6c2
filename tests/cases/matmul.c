/* Matrix products: transpositions, shared and batched right operands, sizes around the tiles of the
 * CPU (6 x 16, 96 x 128, 256) and of GPUs, and every epilogue. */
#include "ops/matmul.h"
#include "cases.h"

#define NN ATTR(DltMatmul, .ta = false)
#define NT ATTR(DltMatmul, .tb = true)
#define EPILOGUE(...) ATTR(DltMatmul, .tb = true, .ep = {__VA_ARGS__}), .forward_only = true

#define LINEAR(why_, rows_, k_, cols_, fn_, ...)                                                   \
    {                                                                                              \
        OP(linear_act_bwd), .why = why_, .forward_only = true,                                     \
                            .in = {X(rows_, k_), W(k_, cols_), X(rows_, cols_)},                   \
                            ATTR(DltActBwd, .unary = {fn_, 0}, __VA_ARGS__), .nmse_low = 4,        \
                            .nmse_why = "the product may be rounded before the activation's "      \
                                        "gradient meets it"                                        \
    }

static const Case rows[] = {
    {OP(matmul), .why = "odd sizes", .in = {X(5, 7), W(7, 3)}, NN},
    {OP(matmul), .why = "b transposed", .in = {X(5, 7), W(3, 7)}, NT},
    {OP(matmul), .why = "a transposed", .in = {X(7, 5), X(7, 3)}, ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "both transposed", .in = {X(3, 7, 5), X(3, 6, 7)},
     ATTR(DltMatmul, .ta = true, .tb = true)},
    {OP(matmul), .why = "one by one", .in = {X(1, 1), W(1, 1)}, NN},
    {OP(matmul), .why = "one row", .in = {X(1, 33), W(17, 33)}, NT},
    {OP(matmul), .why = "one column", .in = {X(9, 8), W(8, 1)}, NN},
    {OP(matmul), .why = "k is one", .in = {X(6, 1), W(1, 16)}, NN},
    {OP(matmul), .why = "zero rows", .in = {XF(ZERO_ROWS, 6, 9), W(5, 9)}, NT},
    {OP(matmul), .why = "tokens, shared b", .in = {X(2, 3, 5), W(7, 5)}, NT},
    {OP(matmul), .why = "tokens, shared b not transposed", .in = {X(2, 3, 5), W(5, 7)}, NN},
    {OP(matmul), .why = "batched", .in = {X(2, 3, 4, 5), X(2, 3, 5, 6)}, NN},
    {OP(matmul), .why = "batched, b transposed", .in = {X(2, 3, 4, 5), X(2, 3, 6, 5)}, NT},
    {OP(matmul), .why = "batched, a transposed", .in = {X(3, 5, 4), X(3, 5, 6)},
     ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "past the tiles", .in = {X(101, 259), W(131, 259)}, NT},
    {OP(matmul), .why = "past the tiles, not transposed", .in = {X(97, 300), W(300, 129)}, NN},
    {OP(matmul), .why = "whole tiles", .in = {X(96, 256), W(128, 256)}, NT},

    {OP(matmul), .why = "many rows", .in = {X(301, 410), W(410, 101)}, NN},
    {OP(matmul), .why = "many rows, bias, times gelu gradient",
     .in = {X(269, 70), W(101, 70), P(101), X(269, 101)}, EPILOGUE(.act_grad = {DLT_FN_GELU, 0})},
    {OP(matmul), .why = "many rows, a transposed", .in = {X(210, 293), X(210, 52)},
     ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "the sum ends within a tile", .in = {X(50, 74), W(96, 74)}, NT},
    {OP(matmul), .why = "the sum ends within a tile, long, bias, relu",
     .in = {X(64, 550), W(33, 550), P(33)}, EPILOGUE(.act = {DLT_FN_RELU, 0})},
    {OP(matmul), .why = "some rows, columns in sixteens, bias, relu",
     .in = {X(70, 90), W(48, 90), P(48)}, EPILOGUE(.act = {DLT_FN_RELU, 0})},
    {OP(matmul), .why = "some rows, columns in sixteens, long sums, bias, gelu, pre saved",
     .in = {X(130, 500), W(208, 500), P(208)}, EPILOGUE(.act = {DLT_FN_GELU, 0}, .save_pre = true)},
    {OP(matmul), .why = "a weight's gradient of long sums", .in = {X(1590, 48), X(1590, 80)},
     ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "a large weight's gradient of long sums",
     .in = {X(1700, 134), X(1700, 150)}, ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "a large weight's gradient, taller than wide",
     .in = {X(1030, 270), X(1030, 130)}, ATTR(DltMatmul, .ta = true)},
    {OP(matmul), .why = "long sums over the rows", .in = {X(1100, 34), W(40, 34)}, NT},
    {OP(matmul), .why = "few rows, whole tiles of columns, long sums, relu",
     .in = {X(37, 544), W(272, 544), P(272)}, EPILOGUE(.act = {DLT_FN_RELU, 0})},
    {OP(matmul), .why = "long sums, many columns, bias, gelu, pre saved",
     .in = {X(3, 600), W(513, 600), P(513)}, EPILOGUE(.act = {DLT_FN_GELU, 0}, .save_pre = true),
     .nmse_low = 4, .nmse_why = "pre may be rounded before the activation reads it"},

    {OP(matmul), .why = "bias", .in = {X(5, 33), W(17, 33), P(17)}, EPILOGUE(.save_pre = false)},
    {OP(matmul), .why = "relu", .in = {XF(NORMAL, 5, 33), W(17, 33)},
     EPILOGUE(.act = {DLT_FN_RELU, 0})},
    {OP(matmul), .why = "bias, gelu_tanh, pre saved", .in = {X(2, 5, 33), W(17, 33), P(17)},
     EPILOGUE(.act = {DLT_FN_GELU_TANH, 0}, .save_pre = true), .nmse_low = 4,
     .nmse_why = "pre may be rounded before the activation reads it"},
    {OP(matmul), .why = "bias, gelu", .in = {X(101, 33), W(133, 33), P(133)},
     EPILOGUE(.act = {DLT_FN_GELU, 0})},
    {OP(matmul), .why = "silu", .in = {X(5, 33), W(17, 33)}, EPILOGUE(.act = {DLT_FN_SILU, 0})},
    {OP(matmul), .why = "times relu gradient", .in = {X(5, 17), W(33, 17), NONE, XF(AWAY, 5, 33)},
     EPILOGUE(.act_grad = {DLT_FN_RELU, 0})},
    {OP(matmul), .why = "times gelu_tanh gradient",
     .in = {X(101, 17), W(133, 17), NONE, X(101, 133)},
     EPILOGUE(.act_grad = {DLT_FN_GELU_TANH, 0})},
    {OP(matmul), .why = "wide tiles, bias, gelu_tanh, pre saved",
     .in = {X(2048, 128), W(448, 128), P(448)},
     EPILOGUE(.act = {DLT_FN_GELU_TANH, 0}, .save_pre = true), .nmse_low = 4,
     .nmse_why = "pre may be rounded before the activation reads it"},
    {OP(matmul), .why = "wide tiles, silu", .in = {X(2, 1024, 64), W(448, 64)},
     EPILOGUE(.act = {DLT_FN_SILU, 0}), .nmse_low = 4,
     .nmse_why = "the sum may be rounded before the activation reads it"},
    LINEAR("odd sizes, gelu_tanh, again, sums", 5, 7, 33, DLT_FN_GELU_TANH, .remake = true,
           .sums = true),
    LINEAR("wide tiles, gelu_tanh, again, sums", 2048, 128, 448, DLT_FN_GELU_TANH, .remake = true,
           .sums = true),
    LINEAR("wide tiles, gelu, sums", 2048, 64, 448, DLT_FN_GELU, .sums = true),
    LINEAR("wide tiles, silu, again", 2048, 64, 448, DLT_FN_SILU, .remake = true),
    {OP(matmul), .why = "batched with bias and tanh", .in = {X(3, 4, 5), X(3, 7, 5), P(7)},
     EPILOGUE(.act = {DLT_FN_TANH, 0})},
};
CASE_LIST(matmul);
