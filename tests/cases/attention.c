/* Attention, rotary positions, gated units: odd lengths, grouped queries, windows, masks, dropout. */
#include "cases.h"
#include "ops/decode.h"
#include "ops/gated.h"
#include "ops/step.h"

#define ATTENTION(hq, hkv, d, ...)                                                                 \
    ATTR(DltAttention, .heads = hq, .kv_heads = hkv, .head_dim = d, .scale = 0.25, __VA_ARGS__)
#define LOW .nmse_low = 4, .nmse_why = "o is rounded before delta is made of it"

static const Case rows[] = {
    {OP(attention_fwd), .why = "one token", .in = {X(2, 1, 24)}, ATTENTION(2, 2, 4, .window = 0),
     LOW},
    {OP(attention_fwd), .why = "7 tokens, causal", .in = {X(2, 7, 24)},
     ATTENTION(2, 2, 4, .causal = true), LOW},
    {OP(attention_fwd), .why = "7 tokens, both ways", .in = {X(1, 7, 15)},
     ATTENTION(1, 1, 5, .causal = false), LOW},
    {OP(attention_fwd), .why = "33 tokens, causal", .in = {X(1, 33, 48)},
     ATTENTION(1, 1, 16, .causal = true), LOW},
    {OP(attention_fwd), .why = "grouped queries", .in = {X(2, 9, 48)},
     ATTENTION(4, 2, 6, .causal = true), LOW},
    {OP(attention_fwd), .why = "one key head", .in = {X(1, 5, 40)},
     ATTENTION(3, 1, 8, .causal = false), LOW},
    {OP(attention_fwd), .why = "window 4, causal", .in = {X(1, 33, 24)},
     ATTENTION(1, 1, 8, .causal = true, .window = 4), LOW},
    {OP(attention_fwd), .why = "window 3, both ways", .in = {X(1, 11, 24)},
     ATTENTION(2, 2, 4, .window = 3), LOW},
    {OP(attention_fwd), .why = "window 1", .in = {X(2, 5, 6)}, ATTENTION(1, 1, 2, .window = 1),
     LOW},
    {OP(attention_fwd), .why = "wider than a block", .in = {X(1, 130, 96)},
     ATTENTION(1, 1, 32, .causal = true), LOW},
    {OP(attention_fwd), .why = "wider than a block, both ways, grouped", .in = {X(1, 131, 60)},
     ATTENTION(2, 1, 15, .window = 0), LOW},
    {OP(attention_fwd), .why = "window across blocks", .in = {X(1, 140, 24)},
     ATTENTION(1, 1, 8, .causal = true, .window = 70), LOW},
    {OP(attention_fwd), .why = "130 tokens, heads of 64", .in = {X(2, 130, 384)},
     ATTENTION(2, 2, 64, .causal = true), LOW},
    {OP(attention_fwd), .why = "77 tokens, heads of 128, both ways", .in = {X(1, 77, 384)},
     ATTR(DltAttention, .heads = 1, .kv_heads = 1, .head_dim = 128, .scale = 0.09), LOW},
    {OP(attention_fwd), .why = "66 heads of 64, two tiles of keys", .in = {X(22, 256, 576)},
     ATTENTION(3, 3, 64, .causal = true), LOW},
    {OP(attention_fwd), .why = "69 heads of 64, both ways", .in = {X(23, 128, 576)},
     ATTENTION(3, 3, 64, .window = 0), LOW},
    {OP(attention_fwd), .why = "zero rows", .in = {XF(ZERO_ROWS, 1, 6, 12)},
     ATTENTION(1, 1, 4, .causal = true), LOW},
    {OP(attention_fwd), .why = "dropout", .in = {X(2, 7, 24), CASE_STEP},
     ATTENTION(2, 2, 4, .causal = true, .drop = {0.25F, 2}), LOW},
    {OP(attention_fwd), .why = "dropout, wider than a block, grouped",
     .in = {X(1, 101, 40), CASE_STEP}, ATTENTION(3, 1, 8, .causal = true, .drop = {0.5F, 1}), LOW},
    {OP(attention_fwd), .why = "dropout, heads of 64, odd length",
     .in = {X(1, 147, 192), CASE_STEP}, ATTENTION(1, 1, 64, .causal = true, .drop = {0.2F, 3}),
     LOW},

    {OP(attention_fwd), .why = "column sums, odd width", .in = {X(2, 7, 30)},
     ATTENTION(2, 2, 5, .causal = true, .bias = true), LOW},
    {OP(attention_fwd), .why = "column sums, grouped", .in = {X(1, 9, 48)},
     ATTENTION(4, 2, 6, .window = 0, .bias = true), LOW},
    {OP(attention_fwd), .why = "column sums, 136 heads of 64", .in = {X(34, 128, 768)},
     ATTENTION(4, 4, 64, .causal = true, .bias = true), LOW},

    {OP(rope), .why = "all heads", .in = {X(2, 5, 12)}, ATTR(DltRope, 2, 6, 10000, false)},
    {OP(rope), .why = "heads in front of values", .in = {X(2, 33, 24)},
     ATTR(DltRope, 2, 8, 100, false)},
    {OP(rope), .why = "back", .in = {X(1, 7, 4)}, ATTR(DltRope, 1, 2, 10000, true)},

    {OP(rope), .why = "one token, somewhere", .in = {X(2, 1, 24), C_BELOW(1000, ID, 1)},
     ATTR(DltRope, 2, 8, 100, false)},

    {OP(attention_step), .why = "one token over 7", .forward_only = true,
     .in = {C(NORMAL, 2, 1, 24), C(NORMAL, 2, 7, 16), C_BELOW(7, ID, 1)},
     ATTENTION(2, 2, 4, .causal = true)},
    {OP(attention_step), .why = "grouped, window, odd width", .forward_only = true,
     .in = {C(NORMAL, 1, 1, 56), C(NORMAL, 1, 133, 28), C_BELOW(133, ID, 1)},
     ATTENTION(4, 2, 7, .causal = true, .window = 20)},
    {OP(attention_step), .why = "wide heads, one key head", .forward_only = true,
     .in = {C(NORMAL, 3, 1, 640), C(NORMAL, 3, 40, 256), C_BELOW(40, ID, 1)},
     ATTENTION(3, 1, 128, .causal = true)},
    {OP(attention_step), .why = "the first token", .forward_only = true,
     .in = {C(NORMAL, 1, 1, 12), C(NORMAL, 1, 5, 8), C_BELOW(1, ID, 1)},
     ATTENTION(1, 1, 4, .causal = true)},

    {OP(gated_fwd), .why = "silu", .in = {X(3, 37), X(3, 37)}, ATTR(DltUnary, DLT_FN_SILU, 0)},
    {OP(gated_fwd), .why = "gelu", .in = {X(2, 5, 300), X(2, 5, 300)},
     ATTR(DltUnary, DLT_FN_GELU, 0)},
    {OP(gated_fwd), .why = "gelu_tanh, zero rows", .in = {XF(ZERO_ROWS, 4, 9), X(4, 9)},
     ATTR(DltUnary, DLT_FN_GELU_TANH, 0)},
};
CASE_LIST(attention);
