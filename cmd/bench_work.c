/* Data is made up, never zeros, and lies where training puts it; only whole processes read Fashion-MNIST.
 * Windows take some tenths of a second on the machines that the bars are for. */
#include "cmd/bench_work.h"

#include <stddef.h>

#define GRAY                                                                                       \
    "data={train: {synthetic: {shape: [1, 28, 28], classes: 10, samples: 60000, dtype: u8}}, "     \
    "normalize: {mean: 0.5, std: 0.3}}"
#define COLOUR                                                                                     \
    "data={train: {synthetic: {shape: [3, 32, 32], classes: 10, samples: 10000, dtype: u8}}, "     \
    "normalize: {mean: 0.5, std: 0.3}}"
#define SGD "train.optimizer={sgd: {lr: 0.01, momentum: 0.9}}", "train.schedule=[constant]"
#define TEXT                                                                                       \
    "data={tokenizer: chars, window: 256, train: {text: @/text.txt, shift: epoch}}",               \
        "eval={metrics: [loss]}", "checkpoint={keep: {last: 1}}"
#define MLP "MLP 784-512-256-10", "mlp"
#define LENET "LeNet", "lenet"
#define RESNET18 "ResNet-18, 32x32", "resnet18"
#define BOTH (BENCH_CPU | BENCH_CUDA)

const BenchWork bench_works[] = {
    {"mlp", MLP, BENCH_CUDA, "tf32", 128, 4000, 1, 0.030, {GRAY}},
    {"mlp", MLP, BENCH_CUDA, "bf16", 128, 4000, 1, 0.030, {GRAY}},
    {"mlp", MLP, BENCH_CUDA, "tf32", 4096, 1000, 1, 0.085, {GRAY}},
    {"lenet", LENET, BENCH_CUDA, "tf32", 128, 1000, 1, 0.120, {GRAY}},
    {"lenet", LENET, BENCH_CUDA, "bf16", 128, 1000, 1, 0.120, {GRAY}},
    {"lenet", LENET, BENCH_CUDA, "tf32", 1024, 250, 1, 0.40, {GRAY}},
    {"lenet", LENET, BENCH_CUDA, "bf16", 1024, 250, 1, 0.40, {GRAY}},
    {"resnet18", RESNET18, BENCH_CUDA, "bf16", 128, 200, 1, 1.2, {COLOUR}},
    {"resnet18", RESNET18, BENCH_CUDA, "bf16", 1024, 40, 1, 8.0, {COLOUR}},
    {"mlp", MLP, BENCH_CPU, "tf32", 128, 100, 1, 0, {GRAY, SGD}},
    {"mlp", MLP, BENCH_CPU, "bf16", 128, 100, 1, 0, {GRAY, SGD}},
    {"lenet", LENET, BENCH_CPU, "tf32", 128, 8, 1, 0, {GRAY, SGD}},
    {"lenet", LENET, BENCH_CPU, "bf16", 128, 8, 1, 0, {GRAY, SGD}},
    {"resnet8", "ResNet-8, 32x32", "resnet8", BENCH_CPU, "tf32", 128, 6, 1, 0, {COLOUR, SGD}},
    {"resnet8", "ResNet-8, 32x32", "resnet8", BENCH_CPU, "bf16", 128, 6, 1, 0, {COLOUR, SGD}},
    {"resnet20", "ResNet-20, 32x32", "resnet20", BENCH_CPU, "tf32", 128, 3, 1, 0, {COLOUR, SGD}},
    {"resnet20", "ResNet-20, 32x32", "resnet20", BENCH_CPU, "bf16", 128, 3, 1, 0, {COLOUR, SGD}},
    {"gpt",
     "char GPT 6 x 384, 256 tokens",
     "gpt",
     BENCH_CPU,
     "tf32",
     16,
     1,
     256,
     0,
     {TEXT,
      "vars={layers: 6, heads: 6, d: 384, ctx: 256, batch: 16, steps: 1, lr: 1e-3, drop: 0.0}",
      "train.schedule=[constant]"}},
    {"start",
     "start to the end of one update, MLP",
     "mlp",
     BOTH,
     "tf32",
     128,
     0,
     1,
     800,
     {GRAY, "train.for=1 steps"}},
    {"process",
     "whole process, Fashion-MNIST, MLP, 5 epochs",
     "mlp",
     BENCH_CUDA,
     "tf32",
     128,
     0,
     1,
     1500,
     {"train.for=5 epochs"}},
    {"process",
     "whole process, Fashion-MNIST, LeNet, 5 epochs",
     "lenet",
     BENCH_CUDA,
     "tf32",
     128,
     0,
     1,
     1800,
     {"train.for=5 epochs"}},
    {"process",
     "whole process, Fashion-MNIST, MLP, 1 epoch",
     "mlp",
     BENCH_CPU,
     "tf32",
     128,
     0,
     1,
     0,
     {"train.for=1 epochs", SGD}},
    {"process",
     "whole process, Fashion-MNIST, LeNet, 1 epoch",
     "lenet",
     BENCH_CPU,
     "tf32",
     128,
     0,
     1,
     0,
     {"train.for=1 epochs", SGD}},
    {NULL, NULL, NULL, 0, NULL, 0, 0, 0, 0, {NULL}},
};
