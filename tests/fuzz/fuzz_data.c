/* libFuzzer target for data files: `make fuzz`, then build/.../tests/fuzz/fuzz_data CORPUS. */
#include "data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    data_target(data, size);
    return 0;
}
