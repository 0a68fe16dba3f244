/* fuzz.h: what the fuzzers share.

   A fuzzer is a file with LLVMFuzzerTestOneInput. Two programs come of it:

       search.sh   with clang's libFuzzer, which searches
       BUILD       with fuzz_main.c, which runs the corpus and mutations of it: for CI */
#ifndef ATTN_FUZZ_H
#define ATTN_FUZZ_H

#include <attn.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program if a property does not hold. */
#define FUZZ_CHECK(x) ((x) ? (void)0 : attn_fuzz_fail(#x, __FILE__, __LINE__))
void attn_fuzz_fail(const char *what, const char *file, int line);

/* A failure has a sentence. */
void attn_fuzz_status(int status);
/* Does to a variant what a user can: text and parsing it again, symbols, samples with tensors and
   parameters of odd values, a picture. */
void attn_fuzz_variant(const attn_variant *variant, uint32_t seed);

#endif
