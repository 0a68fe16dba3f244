/* fuzz_npy.c: the reader of .npy files on any bytes. */
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    attn_fuzz_file("npy", data, size);
    return 0;
}
