/* libFuzzer target for tokenizer files: `make fuzz`, then build/.../tests/fuzz/fuzz_vocabulary CORPUS. */
#include "data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return data_target_of("vocabulary", data, size);
}
