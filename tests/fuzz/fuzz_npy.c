/* libFuzzer target for NumPy files and archives: `make fuzz`, then build/.../tests/fuzz/fuzz_npy CORPUS. */
#include "data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return data_target_of("np", data, size);
}
