/* fuzz_file.h: see fuzz_file.c. */
#ifndef ATTN_FUZZ_FILE_H
#define ATTN_FUZZ_FILE_H

#include "fuzz.h"

#include <stddef.h>

/* Parses a copy of the bytes, at an aligned and at an odd address, and reads every element. */
void attn_fuzz_file(const char *kind, const uint8_t *data, size_t size);

#endif
