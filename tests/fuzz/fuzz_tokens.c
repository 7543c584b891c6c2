/* libFuzzer target for shards of token ids: `make fuzz`, then build/.../tests/fuzz/fuzz_tokens CORPUS. */
#include "data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return data_target_of("tokens", data, size);
}
