/* variants.c: variants from text, the ready-made ones, and their handles.

   Who calls it: the user. Every ready-made variant is one line of the variant language; its numbers
   are put before that line as named values ("l = 1024; r = 0; q - k <= l && k - q <= r"). */
#include "expr.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int attn_variant_parse(const char *text, attn_variant **variant) {
    if (variant) {
        *variant = NULL;
    }
    if (!text || !variant) {
        return attn__fail(ATTN_INVALID, text ? "variant" : "text", "%s is NULL",
                          text ? "variant" : "text");
    }
    attn_graph g;
    attn__graph_init(&g);
    int root = 0, score = 0, mask = 0;
    int status = attn__parse(text, &g, &root);
    if (status >= 0) {
        status = attn__split(&g, root, &score, &mask);
    }
    if (status >= 0) {
        status = attn__variant_new(&g, score, mask, variant);
    }
    attn__graph_clear(&g);
    return status;
}

/* -- Ready-made -------------------------------------------------------------------------------- */

/* What a number may be. */
enum kind { WHOLE, FLAG, POSITIVE };

typedef struct ready {
    const char *name;
    const char *numbers[4]; /* names in `text` */
    int n;
    enum kind kind;
    int32_t least; /* WHOLE */
    const char *text, *about;
} ready;

// clang-format off
static const ready readies[] = {
    {"causal", {0}, 0, WHOLE, 0, "k <= q",
     "a query sees the keys up to its own position"},
    {"window", {"l", "r"}, 2, WHOLE, 0, "q - k <= l && k - q <= r",
     "a query sees l keys before its position, r behind it, and its own"},
    {"prefix", {"n"}, 1, WHOLE, 0, "k < n || k <= q",
     "every query sees the first n keys; beyond them causal"},
    {"first_keys", {"n", "l"}, 2, WHOLE, 0, "k <= q && (k < n || q - k <= l)",
     "causal: the first n keys and the last l before the query (StreamingLLM, 2309.17453)"},
    {"alibi", {"H"}, 1, WHOLE, 1,
     "n = int(exp2(floor(log2(H)))); s - (n == H || h < n ? exp2(-8 * (h + 1) / n) : "
     "exp2(-4 * (2 * (h - n) + 1) / n)) * abs(q - k)",
     "a penalty for distance, with the slopes of the ALiBi paper (2108.12409) for H heads"},
    {"alibi", {0}, 0, WHOLE, 0, "s - slopes[h] * abs(q - k)",
     "a penalty for distance, with a tensor slopes[H]"},
    {"softcap", {"c"}, 1, POSITIVE, 0, "c * tanh(s / c)",
     "scores squeezed into -c..c"},
    {"dilated", {"n"}, 1, WHOLE, 1, "(q - k) % n == 0",
     "every n-th key, counted from the query"},
    {"document", {0}, 0, WHOLE, 0, "i32 ids[2]; ids[b][q] == ids[b][k]",
     "a query sees the keys of its own document; ids[B][NK]; a row outside the keys has id 0"},
    {"bias", {"has_b", "has_h", "has_q", "has_k"}, 4, FLAG, 0,
     "t = bias[b * has_b][h * has_h][i * has_q][k * has_k]; t == -inf ? -inf : s + t",
     "a tensor added to the scores, -inf masks; has_x is 0 where its extent is 1"},
    {"bias", {0}, 0, WHOLE, 0, "t = bias[b][h][i][k]; t == -inf ? -inf : s + t",
     "a tensor bias[B][H][NQ][NK] added to the scores, -inf masks"},
    {"relative", {"r"}, 1, WHOLE, 0, "s + table[h][max(-r, min(k - q, r)) + r]",
     "a number per head and distance added, table[H][2r+1]; beyond r the one at r"},
};
// clang-format on
enum { N_READIES = sizeof readies / sizeof *readies };

static int check_number(const ready *v, int i, double x) {
    switch (v->kind) {
    case POSITIVE:
        return x >= (double)FLT_MIN && x <= (double)FLT_MAX
                   ? ATTN_OK
                   : attn__fail(ATTN_INVALID, v->numbers[i],
                                "%s: %s is %g; it must be above 0 and fit f32", v->name,
                                v->numbers[i], x);
    case FLAG:
        return x == 0 || x == 1
                   ? ATTN_OK
                   : attn__fail(ATTN_INVALID, v->numbers[i], "%s: %s is %g; it must be 0 or 1",
                                v->name, v->numbers[i], x);
    default: break;
    }
    /* log2 in alibi's text is exact enough up to 2^16 heads. */
    const double most = strcmp(v->name, "alibi") ? 1 << 30 : 1 << 16;
    return x >= v->least && x <= most && x == floor(x)
               ? ATTN_OK
               : attn__fail(ATTN_INVALID, v->numbers[i],
                            "%s: %s is %g; it must be a whole number from %d to %.0f", v->name,
                            v->numbers[i], x, v->least, most);
}

/* The variant of the numbers' lines and the text; a text with declarations has no numbers. */
static int ready_parse(const ready *v, const double *numbers, attn_variant **variant) {
    char text[512];
    int n = 0;
    for (int i = 0; i < v->n; i++) {
        char number[ATTN__FLOAT_TEXT];
        ATTN_TRY(check_number(v, i, numbers[i]));
        attn__float_text((float)numbers[i], number);
        if (v->kind != POSITIVE) {
            snprintf(number, sizeof number, "%d", (int)numbers[i]);
        }
        n += snprintf(text + n, sizeof text - (size_t)n, "%s = %s; ", v->numbers[i], number);
    }
    snprintf(text + n, sizeof text - (size_t)n, "%s", v->text);
    return attn_variant_parse(text, variant);
}

/* Refuses n numbers for `name`, with the counts that are allowed. */
static int refuse_count(const char *name, int n) {
    char counts[32] = "";
    for (int i = 0; i < N_READIES; i++) {
        if (!strcmp(readies[i].name, name)) {
            const size_t at = strlen(counts);
            snprintf(counts + at, sizeof counts - at, "%s%d", at ? " or " : "", readies[i].n);
        }
    }
    return attn__fail(ATTN_INVALID, "numbers", "%s takes %s number%s, not %d", name, counts,
                      strcmp(counts, "1") ? "s" : "", n);
}

int attn_variant_ready(const char *name, const double *numbers, int n_numbers,
                       attn_variant **variant) {
    int named = 0;
    if (variant) {
        *variant = NULL;
    }
    for (int i = 0; name && i < N_READIES; i++) {
        if (!strcmp(readies[i].name, name)) {
            named = 1;
            if (readies[i].n == n_numbers) {
                return n_numbers == 0 || numbers
                           ? ready_parse(&readies[i], numbers, variant)
                           : attn__fail(ATTN_INVALID, "numbers", "numbers is NULL; %s takes %d",
                                        name, n_numbers);
            }
        }
    }
    if (named) {
        return refuse_count(name, n_numbers);
    }
    return attn__fail(ATTN_INVALID, "name",
                      "there is no ready-made variant '%.40s'; attn_variant_list names them",
                      name ? name : "NULL");
}

const char *attn_variant_list(int i, const char **text, const char **about) {
    if (i < 0 || i >= N_READIES) {
        return NULL;
    }
    if (text) {
        *text = readies[i].text;
    }
    if (about) {
        *about = readies[i].about;
    }
    return readies[i].name;
}

/* -- Handles ----------------------------------------------------------------------------------- */

const char *attn_variant_text(const attn_variant *variant) {
    return variant ? variant->text : "";
}

attn_variant *attn_variant_retain(attn_variant *variant) {
    if (variant) {
        __atomic_fetch_add(&variant->refs, 1, __ATOMIC_RELAXED);
    }
    return variant;
}

void attn_variant_release(attn_variant *variant) {
    if (variant && __atomic_sub_fetch(&variant->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        attn__graph_clear(&variant->graph);
        free(variant->text);
        free(variant);
    }
}

int attn_variant_symbol(const attn_variant *variant, int i, attn_symbol *symbol) {
    if (!variant) {
        return attn__fail(ATTN_INVALID, "variant", "variant is NULL");
    }
    const attn_graph *const g = &variant->graph;
    if (symbol && i >= 0 && i < g->n_symbols) {
        const attn__symbol *const from = &g->symbol[i];
        attn_symbol all = {.size = sizeof all,
                           .type = attn__vt_public(from->type),
                           .rank = from->rank,
                           .lo = from->bounded ? from->lo : 1,
                           .hi = from->bounded ? from->hi : 0};
        memcpy(all.name, from->name, sizeof all.name);
        ATTN_TRY(attn__struct_out(symbol, &all, sizeof all, "attn_symbol"));
    }
    return g->n_symbols;
}
