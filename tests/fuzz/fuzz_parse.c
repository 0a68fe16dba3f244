/* fuzz_parse.c: attn_variant_parse on any bytes. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *const text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    if (size) {
        memcpy(text, data, size);
    }
    text[size] = 0;
    attn_variant *variant = NULL;
    const int status = attn_variant_parse(text, &variant);
    attn_fuzz_status(status);
    FUZZ_CHECK((status == ATTN_OK) == (variant != NULL));
    if (variant) {
        attn_fuzz_variant(variant, (uint32_t)size);
    }
    attn_variant_release(variant);
    free(text);
    return 0;
}
