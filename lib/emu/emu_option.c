/* emu_option.c: what the environment variable ATTN_EMU asks of the emulator.

   Who calls it: emu.c, for every launch. docs/environment.md has the words; a comma separates them:

       ATTN_EMU="order=random,async=early,seed=3,counts" */
#include "emu_core.h"

#include "../attn_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The position of `word` (n characters) in the list, or -1. */
static int among(const char *word, size_t n, const char *const list[3]) {
    for (int i = 0; i < 3; i++) {
        if (strlen(list[i]) == n && memcmp(word, list[i], n) == 0) {
            return i;
        }
    }
    return -1;
}

/* One word; 0, or -1 if it is not known. */
static int word_in(emu_options *o, const char *word, size_t n) {
    static const char *const orders[] = {"ascending", "descending", "random"};
    static const char *const asyncs[] = {"late", "early", "random"};
    int i = 0;
    if (n > 6 && memcmp(word, "order=", 6) == 0 && (i = among(word + 6, n - 6, orders)) >= 0) {
        o->order = (emu_order)i;
    } else if (n > 6 && memcmp(word, "async=", 6) == 0 &&
               (i = among(word + 6, n - 6, asyncs)) >= 0) {
        o->async = (emu_async)i;
    } else if (n > 5 && memcmp(word, "seed=", 5) == 0 && strspn(word + 5, "0123456789") == n - 5) {
        o->seed = strtoull(word + 5, NULL, 10);
    } else if (n == 6 && memcmp(word, "counts", 6) == 0) {
        o->counts = 1;
    } else {
        return -1;
    }
    return 0;
}

int attn__emu_options(emu_options *options) {
    *options = (emu_options){0};
    const char *text = getenv("ATTN_EMU");
    while (text && *text) {
        const size_t n = strcspn(text, ",");
        if (n > 0 && word_in(options, text, n) < 0) {
            return attn__fail(ATTN_INVALID, "ATTN_EMU",
                              "ATTN_EMU has \"%.*s\"; order= ascending, descending or random, "
                              "async= late, early or random, seed= a number, and counts are known",
                              (int)n, text);
        }
        text += n + (text[n] == ',');
    }
    return ATTN_OK;
}

void attn__emu_print(const char *kernel, const attn__emu_counts *counts) {
    fprintf(stderr,
            "emu: %s: loaded %" PRIu64 " B, stored %" PRIu64 " B, shared accesses %" PRIu64
            " in %" PRIu64 " cycles, matrix operations %" PRIu64 ", flops %" PRIu64
            ", barriers %" PRIu64 "\n",
            kernel, counts->load_bytes, counts->store_bytes, counts->shared_access,
            counts->shared_cycles, counts->matrix_ops, counts->flops, counts->barriers);
}
