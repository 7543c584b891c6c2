/* The same as tests/unit/test_torch.c with the kernels compiled in double: formulas, not rounding.
 * tests/golden/torch_cases.h says how, and by which criterion. */
#include "tests/golden/torch_cases.h"

int main(void)
{
    return torch_main();
}
