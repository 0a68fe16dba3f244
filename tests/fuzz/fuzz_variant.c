/* fuzz_variant.c: what every fuzzed variant has to stand.

   Who calls it: fuzz_parse.c, fuzz_graph.c. */
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, COLUMNS = 5, RANK = 4, SYMBOLS = 64 };

void attn_fuzz_fail(const char *what, const char *file, int line) {
    fprintf(stderr, "%s:%d: does not hold: %s (last error: %s)\n", file, line, what, attn_error());
    abort();
}

void attn_fuzz_status(int status) {
    if (status < 0) {
        FUZZ_CHECK(strcmp(attn_status_name(status), "unknown") != 0);
        FUZZ_CHECK(attn_error()[0] != 0);
    }
}

/* The canonical text parses, to a variant with the same text. */
static void check_text(const attn_variant *variant) {
    const char *const text = attn_variant_text(variant);
    attn_variant *again = NULL;
    const int status = attn_variant_parse(text, &again);
    if (status != ATTN_OK) {
        fprintf(stderr, "canonical text: %s\n", text);
    }
    FUZZ_CHECK(status == ATTN_OK);
    if (strcmp(attn_variant_text(again), text) != 0) {
        fprintf(stderr, "%s\nbecame\n%s\n", text, attn_variant_text(again));
    }
    FUZZ_CHECK(strcmp(attn_variant_text(again), text) == 0);
    attn_variant_release(again);
}

typedef struct value {
    attn_symbol symbol;
    attn_tensor tensor;
    int64_t shape[RANK];
    uint32_t data[16]; /* extents of 1 or 2 */
} value;

static uint32_t next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void fill(value *v, uint32_t *seed) {
    static const float odd[] = {0.0f, -0.0f, 1.0f, -1.5f, 3e38f, -3e38f, 1e-45f, 65504.0f};
    const float special[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 16; i++) {
        const uint32_t r = next(seed);
        if (v->symbol.type == ATTN_F32) {
            const float f = r % 11 < 8 ? odd[r % 11] : special[r % 11 - 8];
            memcpy(&v->data[i], &f, sizeof f);
        } else {
            v->data[i] = r % 5 == 0 ? 0x80000000u : r % 5 == 1 ? 0x7fffffffu : r % 5 - 3;
        }
    }
    if (v->symbol.type == ATTN_BOOL) {
        for (int i = 0; i < 64; i++) {
            ((uint8_t *)v->data)[i] &= 1;
        }
    }
    for (int i = 0; i < v->symbol.rank; i++) {
        v->shape[i] = 1 + next(seed) % 2;
    }
    v->tensor = (attn_tensor){.data = v->data, .ndim = v->symbol.rank, .shape = v->shape};
    v->tensor.dtype.code = (uint8_t)(v->symbol.type & 255);
    v->tensor.dtype.bits = (uint8_t)(v->symbol.type >> 8);
    v->tensor.dtype.lanes = 1;
}

void attn_fuzz_variant(const attn_variant *variant, uint32_t seed) {
    check_text(variant);
    attn_symbol symbol = {.size = sizeof symbol};
    const int n = attn_variant_symbol(variant, 0, &symbol);
    FUZZ_CHECK(n >= 0 && n <= SYMBOLS);
    static value values[SYMBOLS];
    attn_capture captures[SYMBOLS];
    for (int i = 0; i < n; i++) {
        values[i].symbol.size = sizeof values[i].symbol;
        FUZZ_CHECK(attn_variant_symbol(variant, i, &values[i].symbol) == n);
        fill(&values[i], &seed);
        captures[i] = (attn_capture){.name = values[i].symbol.name, .value = &values[i].tensor};
    }
    const attn_window window = {
        .size = sizeof window,
        .flags = next(&seed) % 2 ? ATTN_TOP_LEFT : 0,
        .h = next(&seed) % 2,
        .i = next(&seed) % 3,
        .k = next(&seed) % 3,
        .rows = ROWS,
        .columns = COLUMNS,
        .nq = 6,
        .nk = 8,
        .nh = 2,
        .captures = captures,
        .n_captures = n,
    };
    float s[ROWS * COLUMNS], scores[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        s[i] = i % 7 == 6 ? INFINITY : (float)(int32_t)(next(&seed) % 64) - 32.0f;
    }
    attn_fuzz_status(attn_variant_sample(variant, &window, s, scores));
    attn_fuzz_status(attn_variant_sample(variant, &window, NULL, scores));
    char text[ROWS * (COLUMNS + 1) + 64];
    attn_fuzz_status((int)attn_variant_picture(variant, &window, text, sizeof text));
}
