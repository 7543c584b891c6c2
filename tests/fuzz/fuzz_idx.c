/* libFuzzer target for IDX files, plain and gzip: `make fuzz`, then build/.../tests/fuzz/fuzz_idx CORPUS. */
#include "data_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return data_target_of("idx", data, size);
}
