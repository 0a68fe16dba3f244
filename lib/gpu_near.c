/* gpu_near.c: memory and streams of chips whose memory is the host's, and whose launches have ended
   when the call returns: so there is one stream, NULL.

   Who calls it: the tables of emu/emu_driver.c and gpu_make.c. */
#define _POSIX_C_SOURCE 200809L
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

/* As long as it says and no longer, so that ASan sees the end. */
int attn__near_alloc(attn__chip *chip, uint64_t bytes, void **pointer) {
    (void)chip;
    *pointer = NULL;
    if (posix_memalign(pointer, 256, bytes ? (size_t)bytes : 1) != 0) {
        return attn__fail(ATTN_MEMORY, "bytes", "out of memory: %llu bytes wanted",
                          (unsigned long long)bytes);
    }
    return ATTN_OK;
}

void attn__near_free(attn__chip *chip, void *pointer) {
    (void)chip;
    free(pointer);
}

int attn__near_copy(attn__chip *chip, void *to, const void *from, uint64_t bytes, void *stream) {
    (void)chip, (void)stream;
    memcpy(to, from, (size_t)bytes);
    return ATTN_OK;
}

int attn__near_stream_new(attn__chip *chip, void **stream) {
    (void)chip;
    *stream = NULL;
    return ATTN_OK;
}
void attn__near_stream_free(attn__chip *chip, void *stream) {
    (void)chip, (void)stream;
}
int attn__near_stream_sync(attn__chip *chip, void *stream) {
    (void)chip, (void)stream;
    return ATTN_OK;
}
