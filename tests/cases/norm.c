/* Normalisations and softmax: with and without residual, odd and single channels, zero rows. */
#include "ops/norm.h"
#include "cases.h"

#define EPS .eps = 1e-5F
#define BN ATTR(DltNorm, EPS, .momentum = 0.125F)
#define BN_RELU ATTR(DltNorm, EPS, .momentum = 0.125F, .relu = true)
#define BN_BITS ATTR(DltNorm, EPS, .momentum = 0.125F, .relu = true, .bits = true)
#define BN_GRAD(...) ATTR(DltNorm, EPS, .momentum = 0.125F, __VA_ARGS__)
#define RUNNING(c) C(NORMAL, c), C(POSITIVE, c)
#define WIDE .nmse_low = 16, .nmse_why = "differences of nearly equal sums"

static const Case rows[] = {
    {OP(batch_norm_fwd), .why = "table", .in = {X(9, 5), P(5), P(5), RUNNING(5)}, BN, WIDE},
    {OP(batch_norm_fwd), .why = "image", .in = {X(3, 16, 4, 5), P(16), P(16), RUNNING(16)}, BN,
     WIDE},
    {OP(batch_norm_fwd), .why = "one channel", .in = {X(4, 1, 3, 3), P(1), P(1), RUNNING(1)}, BN,
     WIDE},
    {OP(batch_norm_fwd), .why = "odd channels, one place",
     .in = {X(7, 35, 1, 1), P(35), P(35), RUNNING(35)}, BN, WIDE},
    {OP(batch_norm_fwd), .why = "sequence", .in = {X(3, 4, 7), P(4), P(4), RUNNING(4)}, BN, WIDE},
    {OP(batch_norm_fwd), .why = "relu", .in = {X(3, 16, 4, 5), P(16), P(16), RUNNING(16)}, BN_RELU,
     WIDE, .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "residual",
     .in = {X(3, 16, 3, 3), P(16), P(16), RUNNING(16), X(3, 16, 3, 3)}, BN, WIDE},
    {OP(batch_norm_fwd), .why = "residual and relu",
     .in = {X(3, 16, 3, 3), P(16), P(16), RUNNING(16), X(3, 16, 3, 3)}, BN_RELU, WIDE,
     .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "relu, bits", .in = {X(3, 16, 4, 5), P(16), P(16), RUNNING(16)},
     BN_BITS, WIDE, .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "relu, bits, many rows",
     .in = {X(9, 72, 13, 11), P(72), P(72), RUNNING(72)}, BN_BITS, .nmse = 1e-11, .nmse_low = 16,
     .nmse_why = "means near 0 are sums of differences near 1: relative error 3e-6",
     .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "table, bits, odd channels",
     .in = {X(9, 13), P(13), P(13), RUNNING(13)}, BN_BITS, WIDE,
     .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "table, bits", .in = {X(9, 24), P(24), P(24), RUNNING(24)}, BN_BITS,
     WIDE, .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_fwd), .why = "residual and relu, bits",
     .in = {X(3, 16, 3, 3), P(16), P(16), RUNNING(16), X(3, 16, 3, 3)}, BN_BITS, WIDE,
     .kink = "y = 0, nowhere within 1e-5"},
    {OP(batch_norm_bwd), .why = "two gradients", .forward_only = true,
     .in = {X(3, 16, 4, 5), X(3, 16, 4, 5), P(16), RUNNING(16), NONE, X(3, 16, 4, 5)}, BN_GRAD(),
     WIDE},
    {OP(batch_norm_bwd), .why = "two gradients, relu, residual", .forward_only = true,
     .in = {X(3, 16, 4, 5), X(3, 16, 4, 5), P(16), RUNNING(16), X(3, 16, 4, 5), X(3, 16, 4, 5)},
     BN_GRAD(.relu = true, .has_res = true), WIDE},
    {OP(batch_norm_bwd), .why = "two gradients, relu, odd channels", .forward_only = true,
     .in = {X(4, 5, 3, 3), X(4, 5, 3, 3), P(5), RUNNING(5), X(4, 5, 3, 3), X(4, 5, 3, 3)},
     BN_GRAD(.relu = true), WIDE},
    {OP(batch_norm_infer), .why = "image", .in = {X(3, 16, 4, 5), P(16), P(16), RUNNING(16)}, BN},
    {OP(batch_norm_infer), .why = "table, relu", .in = {X(9, 5), P(5), P(5), RUNNING(5)}, BN_RELU},
    {OP(batch_norm_infer), .why = "residual and relu",
     .in = {X(3, 16, 3, 3), P(16), P(16), RUNNING(16), X(3, 16, 3, 3)}, BN_RELU},

    {OP(layer_norm_fwd), .why = "odd width", .in = {X(3, 257), P(257), P(257)}, ATTR(DltNorm, EPS)},
    {OP(layer_norm_fwd), .why = "tokens", .in = {X(2, 5, 64), P(64), P(64)}, ATTR(DltNorm, EPS)},
    {OP(layer_norm_fwd), .why = "width 2", .in = {X(4, 2), P(2), P(2)}, ATTR(DltNorm, .eps = 0.1F)},
    {OP(layer_norm_fwd), .why = "zero rows", .in = {XF(ZERO_ROWS, 4, 9), P(9), P(9)},
     ATTR(DltNorm, .eps = 0.1F)},
    {OP(layer_norm_fwd), .why = "no bias", .in = {X(3, 33), P(33)}, ATTR(DltNorm, EPS)},
    {OP(layer_norm_fwd), .why = "residual", .in = {X(3, 33), P(33), P(33), X(3, 33)},
     ATTR(DltNorm, EPS), .dout = 1 | 1 << 3},
    {OP(rms_norm_fwd), .why = "odd width", .in = {X(3, 257), P(257)}, ATTR(DltNorm, EPS)},
    {OP(rms_norm_fwd), .why = "tokens", .in = {X(2, 5, 64), P(64)}, ATTR(DltNorm, EPS)},
    {OP(rms_norm_fwd), .why = "width 1", .in = {X(4, 1), P(1)}, ATTR(DltNorm, .eps = 0.5F)},
    {OP(rms_norm_fwd), .why = "zero rows", .in = {XF(ZERO_ROWS, 4, 9), P(9)},
     ATTR(DltNorm, .eps = 0.1F)},
    {OP(rms_norm_fwd), .why = "residual", .in = {X(3, 33), P(33), X(3, 33)}, ATTR(DltNorm, EPS),
     .dout = 1 | 1 << 2},
    {OP(group_norm_fwd), .why = "two groups", .in = {X(2, 6, 3, 5), P(6), P(6)},
     ATTR(DltNorm, EPS, .groups = 2)},
    {OP(group_norm_fwd), .why = "one group", .in = {X(2, 5, 3, 3), P(5), P(5)},
     ATTR(DltNorm, EPS, .groups = 1)},
    {OP(group_norm_fwd), .why = "instance", .in = {X(2, 16, 4, 3), P(16), P(16)},
     ATTR(DltNorm, EPS, .groups = 16)},
    {OP(group_norm_fwd), .why = "table", .in = {X(3, 12), P(12), P(12)},
     ATTR(DltNorm, EPS, .groups = 3)},

    {OP(softmax_fwd), .why = "odd width", .in = {X(3, 257)}},
    {OP(softmax_fwd), .why = "attention", .in = {X(2, 3, 5, 5)}},
    {OP(softmax_fwd), .why = "one class", .in = {X(4, 1)}},
    {OP(softmax_fwd), .why = "zero rows", .in = {XF(ZERO_ROWS, 4, 10)}},
};
CASE_LIST(norm);
