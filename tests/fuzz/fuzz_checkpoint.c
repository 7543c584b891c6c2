/* libFuzzer target for checkpoints: `make fuzz`, then build/.../tests/fuzz/fuzz_checkpoint CORPUS. */
#include "checkpoint_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    checkpoint_target(data, size);
    return 0;
}
