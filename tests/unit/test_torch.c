/* Layers, losses, metrics and optimizers against PyTorch's float64, in f32: tests/golden/torch_cases.h
 * says how, and by which criterion. */
#include "tests/golden/torch_cases.h"

int main(void)
{
    return torch_main();
}
