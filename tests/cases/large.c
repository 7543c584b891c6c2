/* Larger rows: for times (tests/bench) and for tests that need many chunks. Sizes from an MLP, a
 * LeNet, a small ResNet and a small GPT. */
#include "cases.h"
#include "ops/conv.h"
#include "ops/data_ops.h"
#include "ops/dropout.h"
#include "ops/loss_ops.h"
#include "ops/norm.h"
#include "ops/shape_ops.h"
#include "ops/step.h"
#include "ops/update_ops.h"

#define CONV(size, step, padding, height, width)                                                   \
    ATTR(DltConv, .kernel = {size, size}, .stride = {step, step}, .dilation = {1, 1},              \
         .pad = {padding, padding, padding, padding}, .groups = 1, .in_hw = {height, width})
#define SLAB C(NORMAL, 1000003)

static const Case rows[] = {
    {OP(matmul), .why = "mlp", .in = {X(128, 784), W(512, 784)}, ATTR(DltMatmul, .tb = true)},
    {OP(matmul), .why = "classes", .in = {X(128, 512), W(10, 512)}, ATTR(DltMatmul, .tb = true)},
    {OP(matmul), .why = "gpt", .in = {X(512, 384), W(1536, 384)}, ATTR(DltMatmul, .tb = true)},
    {OP(matmul), .why = "attention", .in = {X(8, 6, 128, 64), X(8, 6, 128, 64)},
     ATTR(DltMatmul, .tb = true)},
    {OP(conv_fwd), .why = "lenet 1", .in = {X(64, 1, 28, 28), W(6, 1, 5, 5)},
     CONV(5, 1, 2, 28, 28)},
    {OP(conv_fwd), .why = "lenet 2", .in = {X(64, 6, 14, 14), W(16, 6, 5, 5)},
     CONV(5, 1, 0, 14, 14)},
    {OP(conv_fwd), .why = "resnet", .in = {X(8, 64, 32, 32), W(64, 64, 3, 3)},
     CONV(3, 1, 1, 32, 32)},
    {OP(conv_fwd), .why = "resnet stride 2", .in = {X(8, 64, 32, 32), W(128, 64, 3, 3)},
     CONV(3, 2, 1, 32, 32)},
    {OP(conv_fwd), .why = "1x1", .in = {X(8, 64, 32, 32), W(128, 64, 1, 1)}, CONV(1, 1, 0, 32, 32)},
    {OP(pool_fwd), .why = "max 2x2", .in = {XF(DISTINCT, 32, 16, 28, 28)},
     ATTR(DltPool, .max = true, .kernel = {2, 2}, .stride = {2, 2}, .in_hw = {28, 28})},
    {OP(batch_norm_fwd), .why = "resnet",
     .in = {X(8, 64, 32, 32), P(64), P(64), C(NORMAL, 64), C(POSITIVE, 64)},
     ATTR(DltNorm, .eps = 1e-5F, .momentum = 0.125F)},
    {OP(layer_norm_fwd), .why = "gpt", .in = {X(1024, 384), P(384), P(384)},
     ATTR(DltNorm, .eps = 1e-5F)},
    {OP(rms_norm_fwd), .why = "gpt", .in = {X(1024, 384), P(384)}, ATTR(DltNorm, .eps = 1e-5F)},
    {OP(group_norm_fwd), .why = "resnet", .in = {X(8, 64, 32, 32), P(64), P(64)},
     ATTR(DltNorm, .eps = 1e-5F, .groups = 8)},
    {OP(softmax_fwd), .why = "attention", .in = {X(8, 6, 128, 128)}},
    {OP(cross_entropy_fwd), .why = "gpt",
     .in = {X(4, 64, 4099), C_BELOW(4099, LABEL, 4, 64), C(WEIGHTS, 4), NONE, CASE_STEP},
     ATTR(DltCrossEntropy, .ignore = -100)},
    {OP(pointwise_loss_fwd), .why = "mse",
     .in = {X(64, 4097), C(NORMAL, 64, 4097), C(WEIGHTS, 64), CASE_STEP},
     ATTR(DltPointwiseLoss, .kind = DLT_LOSS_MSE)},
    {OP(metric_topk), .why = "gpt",
     .in = {X(4, 64, 4099), C_BELOW(4099, LABEL, 4, 64), C(WEIGHTS, 4), C(DOUBLE, 2)},
     ATTR(DltMetricTopk, 5, -100)},
    {OP(unary_fwd), .why = "relu", .in = {XF(AWAY, 512, 2049)}, ATTR(DltUnary, DLT_FN_RELU, 0)},
    {OP(unary_fwd), .why = "gelu_tanh", .in = {X(512, 1536)}, ATTR(DltUnary, DLT_FN_GELU_TANH, 0)},
    {OP(unary_fwd), .why = "silu", .in = {X(512, 1536)}, ATTR(DltUnary, DLT_FN_SILU, 0)},
    {OP(binary), .why = "residual", .in = {X(512, 2049), X(512, 2049)}, ATTR(DltBinary, DLT_ADD)},
    {OP(bias_fwd), .why = "gpt", .in = {X(512, 1536), P(1536)}, ATTR(DltBias, 1, 1536)},
    {OP(bias_fwd), .why = "resnet", .in = {X(8, 64, 32, 32), P(64)}, ATTR(DltBias, 1, 64)},
    {OP(reduce), .why = "mean of images", .in = {X(32, 64, 16, 16)}, ATTR(DltReduce, 12, true)},
    {OP(transpose), .why = "heads", .in = {X(8, 128, 6, 64)},
     ATTR(DltTranspose, .perm = {0, 2, 1, 3})},
    {OP(concat), .why = "channels", .in = {X(8, 64, 32, 32), X(8, 32, 32, 32)}, ATTR(DltConcat, 1)},
    {OP(embedding_fwd), .why = "gpt", .in = {C_BELOW(4096, ID, 4, 128), W(4096, 384)},
     ATTR(DltEmbedding, 4096)},
    {OP(dropout), .why = "gpt", .in = {X(512, 1537), CASE_STEP}, ATTR(DltDropout, 0.125F, 1)},
    {OP(fetch_x), .why = "mnist",
     .in = {C(BYTE, 1000, 1, 28, 28), C_BELOW(1000, TICKET, 128, 4), C(NORMAL, 1), C(POSITIVE, 1)},
     ATTR(DltFetch, .scale = 1 / 255.0F, .inner = 784, .batch = 128)},
    {OP(fetch_x), .why = "cifar, augmented",
     .in = {C(BYTE, 500, 3, 32, 32), C_BELOW(500, TICKET, 128, 4), C(NORMAL, 3), C(POSITIVE, 3)},
     ATTR(DltFetch, .scale = 1 / 255.0F, .inner = 1024, .batch = 128, .pad = 4, .cutout = 8,
          .flip = 1, .augment = 1)},
    {OP(sum_squares), .why = "slab", .in = {SLAB}},
    {OP(accumulate), .why = "slab", .in = {SLAB, SLAB, CASE_STEP}},
    {OP(sgd_update), .why = "slab", .in = {SLAB, SLAB, C(COEF, 4), CASE_STEP, SLAB},
     ATTR(DltUpdate, .lr_factor = 1, .momentum = 0.9)},
    {OP(adam_update), .why = "slab",
     .in = {SLAB, SLAB, C(COEF, 4), CASE_STEP, SLAB, C(POSITIVE, 1000003)},
     ATTR(DltUpdate, .lr_factor = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decoupled = true)},
};
CASE_LIST(large);
