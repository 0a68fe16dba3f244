/* fuzz_file.c: what the two fuzzers of files share: parse, then read every element.

   Who calls it: fuzz_npy.c, fuzz_safetensors.c. */
#include "fuzz_file.h"

#include <stdlib.h>
#include <string.h>

static volatile uint64_t sink;

/* Reads the first and the last byte of every element. */
static void read_tensor(const attn_tensor *t) {
    const int bytes = t->dtype.bits / 8;
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        FUZZ_CHECK(t->shape[i] >= 0);
        n = t->shape[i] == 0 ? 0 : n * t->shape[i];
    }
    if (n > 0) {
        FUZZ_CHECK((uintptr_t)t->data % (uintptr_t)bytes == 0);
    }
    for (int64_t e = 0; e < n; e++) {
        int64_t offset = 0, rest = e;
        int64_t compact = 1;
        for (int i = t->ndim - 1; i >= 0; i--) {
            const int64_t index = rest % t->shape[i];
            offset += index * (t->strides ? t->strides[i] : compact);
            rest /= t->shape[i];
            compact *= t->shape[i];
        }
        const uint8_t *const at = (const uint8_t *)t->data + offset * bytes;
        sink += at[0] + at[bytes - 1];
    }
}

/* `shift` bytes behind what malloc gives, in a block that ends where the file ends. */
static void parse_at(const char *kind, const uint8_t *data, size_t size, size_t shift) {
    uint8_t *const block = malloc(size + shift);
    if (!block) {
        return;
    }
    uint8_t *const copy = block + shift;
    if (size) {
        memcpy(copy, data, size);
    }
    attn_file *file = NULL;
    const int status = attn_file_parse(kind, copy, size, &file);
    attn_fuzz_status(status);
    FUZZ_CHECK((status == ATTN_OK) == (file != NULL));
    for (int64_t i = 0; i < attn_file_count(file); i++) {
        const char *name = NULL;
        attn_tensor tensor;
        const int found = attn_file_tensor(file, i, &name, &tensor);
        attn_fuzz_status(found);
        FUZZ_CHECK(name != NULL);
        sink += strlen(name);
        if (found == ATTN_OK) {
            read_tensor(&tensor);
        }
    }
    attn_file_release(file);
    free(block);
}

void attn_fuzz_file(const char *kind, const uint8_t *data, size_t size) {
    parse_at(kind, data, size, 0);
    parse_at(kind, data, size, 1);
}
