/* Fetch, accumulation, gradient scale and every optimizer with each of its switches. */
#include "cases.h"
#include "ops/data_ops.h"
#include "ops/step.h"
#include "ops/update_ops.h"

#define SLAB(...) C(NORMAL, 1031), C(NORMAL, 1031), C(COEF, 4), CASE_STEP, __VA_ARGS__
#define S C(NORMAL, 1031)
#define S_POSITIVE C(POSITIVE, 1031)
#define COMMON .lr_factor = 0.5, .weight_decay = 0.25
#define ADAM COMMON, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8

static const Case rows[] = {
    {OP(fetch_x), .why = "images, own mean for each channel",
     .in = {C(BYTE, 6, 3, 4, 5), C_BELOW(6, TICKET, 4, 4), C(NORMAL, 3), C(POSITIVE, 3)},
     ATTR(DltFetch, .scale = 1 / 255.0F, .inner = 20, .batch = 4)},
    {OP(fetch_x), .why = "one channel in fours",
     .in = {C(BYTE, 6, 1, 4, 5), C_BELOW(6, TICKET, 4, 4), C(NORMAL, 1), C(POSITIVE, 1)},
     ATTR(DltFetch, .scale = 1 / 255.0F, .inner = 20, .batch = 4)},
    {OP(fetch_x), .why = "crop, flip and cutout",
     .in = {C(BYTE, 6, 3, 8, 7), C_BELOW(6, TICKET, 9, 4), C(NORMAL, 3), C(POSITIVE, 3)},
     ATTR(DltFetch, .scale = 1 / 255.0F, .inner = 56, .batch = 9, .pad = 2, .cutout = 3, .flip = 1,
          .augment = 1, .seed = 99)},
    {OP(fetch_x), .why = "table, own mean for each column",
     .in = {C(NORMAL, 9, 5), C_BELOW(9, TICKET, 4, 4), C(NORMAL, 5), C(POSITIVE, 5)},
     ATTR(DltFetch, .scale = 1, .inner = 1, .batch = 4)},
    {OP(fetch_x), .why = "ids", .in = {C_BELOW(50, ID, 9, 5), C_BELOW(9, TICKET, 4, 4)},
     ATTR(DltFetch, .scale = 1, .inner = 1, .batch = 4)},
    {OP(fetch_y), .why = "labels", .in = {C_BELOW(10, ID, 9), C_BELOW(9, TICKET, 4, 4)},
     ATTR(DltFetch, .batch = 4)},
    {OP(fetch_y), .why = "values", .in = {C(NORMAL, 9, 2), C_BELOW(9, TICKET, 4, 4)},
     ATTR(DltFetch, .batch = 4)},

    {OP(accumulate), .why = "second micro batch", .in = {S, S, CASE_STEP}},
    {OP(accumulate), .why = "loss", .in = {C(DOUBLE, 2), C(DOUBLE, 2), CASE_STEP}},
    {OP(sum_squares), .why = "odd size", .in = {C(NORMAL, 33333)}},
    {OP(sum_squares), .why = "one", .in = {C(NORMAL, 1)}},
    {OP(grad_scale), .why = "no norm", .in = {C(LOSS_PAIR, 2), NONE, CASE_STEP},
     ATTR(DltGradScale, 0)},
    {OP(grad_scale), .why = "clipped", .in = {C(LOSS_PAIR, 2), C(NORMAL, 33333), CASE_STEP},
     ATTR(DltGradScale, 0.0625F)},
    {OP(grad_scale), .why = "running statistics",
     .in = {C(LOSS_PAIR, 2), S, CASE_STEP, C(LOSS_PAIR, 1)}, ATTR(DltGradScale, 0)},
    {OP(grad_scale), .why = "below the clip", .in = {C(LOSS_PAIR, 2), C(NORMAL, 1), CASE_STEP},
     ATTR(DltGradScale, 100)},

    {OP(sgd_update), .why = "plain", .in = {SLAB(NONE)}, ATTR(DltUpdate, COMMON)},
    {OP(sgd_update), .why = "momentum", .in = {SLAB(S)},
     ATTR(DltUpdate, COMMON, .momentum = 0.9, .dampening = 0.1)},
    {OP(sgd_update), .why = "nesterov", .in = {SLAB(S)},
     ATTR(DltUpdate, COMMON, .momentum = 0.9, .nesterov = true)},
    {OP(sgd_update), .why = "skipped",
     .in = {C(NORMAL, 1031), C(NORMAL, 1031), C(COEF_SKIP, 4), CASE_STEP, S},
     ATTR(DltUpdate, COMMON, .momentum = 0.9)},
    {OP(adam_update), .why = "adam", .in = {SLAB(S, S_POSITIVE)}, ATTR(DltUpdate, ADAM)},
    {OP(adam_update), .why = "adamw", .in = {SLAB(S, S_POSITIVE)},
     ATTR(DltUpdate, ADAM, .decoupled = true)},
    {OP(adam_update), .why = "adamw with a bf16 copy",
     .in = {SLAB(S, S_POSITIVE, NONE, INPUT(NARROW, NORMAL, 1031))},
     ATTR(DltUpdate, ADAM, .decoupled = true), .nmse = CASE_NMSE_BF16,
     .nmse_why = "the copy differs by a rounding where w is near the middle of two numbers"},
    {OP(adam_update), .why = "skipped",
     .in = {C(NORMAL, 1031), C(NORMAL, 1031), C(COEF_SKIP, 4), CASE_STEP, S, S_POSITIVE},
     ATTR(DltUpdate, ADAM)},
    {OP(rmsprop_update), .why = "plain", .in = {SLAB(S_POSITIVE)},
     ATTR(DltUpdate, COMMON, .alpha = 0.99, .eps = 1e-8)},
    {OP(rmsprop_update), .why = "momentum", .in = {SLAB(S_POSITIVE, S)},
     ATTR(DltUpdate, COMMON, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9)},
    {OP(rmsprop_update), .why = "centered", .in = {SLAB(S_POSITIVE, S, C(ZERO, 1031))},
     ATTR(DltUpdate, COMMON, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9, .centered = true)},
    {OP(adagrad_update), .why = "rate decay", .in = {SLAB(S_POSITIVE)},
     ATTR(DltUpdate, COMMON, .eps = 1e-10, .lr_decay = 0.1)},
    {OP(lion_update), .why = "lion", .in = {SLAB(S)},
     ATTR(DltUpdate, COMMON, .beta1 = 0.9, .beta2 = 0.99)},
    {OP(settle), .why = "kept", .in = {S, S, C(COEF, 4)}},
    {OP(settle), .why = "taken back", .in = {S, S, C(COEF_SKIP, 4)}},
    {OP(settle), .why = "sums taken back", .in = {C(DOUBLE, 7), C(DOUBLE, 7), C(COEF_SKIP, 4)}},
    {OP(ema_update), .why = "constant", .in = {S, S, C(COEF, 4), CASE_STEP},
     ATTR(DltUpdate, .decay = 0.99)},
    {OP(ema_update), .why = "warm", .in = {S, S, C(COEF, 4), CASE_STEP},
     ATTR(DltUpdate, .decay = 0.99, .warm = true)},
    {OP(ema_update), .why = "first update", .in = {S, S, C(COEF, 4), CASE_FIRST_STEP},
     ATTR(DltUpdate, .decay = 0.99)},
};
CASE_LIST(update);
