/* fuzz_safetensors.c: the reader of .safetensors files on any bytes. */
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    attn_fuzz_file("safetensors", data, size);
    return 0;
}
