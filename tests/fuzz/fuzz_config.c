/* libFuzzer target for configs: `make fuzz`, then build/.../tests/fuzz/fuzz_config CORPUS. */
#include "config_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    config_target(data, size);
    return 0;
}
