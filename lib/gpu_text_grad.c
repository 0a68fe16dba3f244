/* gpu_text_grad.c: gradients of what a variant reads, as text: the device functions that
   hip_kernels/core/grad.h describes.

   Who calls it: gpu_text.c.

       #define ATTN_GRAD_SUMS 1
       #define ATTN_GRADS_EVEN 0    1: all sites are even
       DEV void attn_grads(...)     { ... sum[0] = on ? fma_f32(g, x12, sum[0]) : sum[0]; an even
                                                                               one
                                      if (on && inside) exact_add(address, g * x17); }
       DEV void attn_grads_end(...) { ... exact_add(address, sum[0]); }

   A site is even if its indices are the same for all pairs of a batch entry and head: then a lane
   sums its pairs first. */
#include "gpu_text_int.h"

int attn__site_is_even(const attn__adjoint *a, const attn__site *site, uint8_t *need) {
    attn__need(&a->graph, site->index, site->n, need);
    int even = 1;
    for (int i = 0; site->n && i < a->graph.n; i++) {
        const attn__node *const node = &a->graph.node[i];
        even &= !(need[i] && node->op == OP_leaf &&
                  (node->sym == LEAF_s || node->sym == LEAF_q || node->sym == LEAF_k ||
                   node->sym == LEAF_i));
    }
    return even;
}

/* If the site's element is there, `what` is added to it. */
static void put_add(attn__text *t, const attn__site *site, const int32_t *word,
                    const attn__text_grads *grads, const char *what, int number) {
    const int to = grads->word[site->symbol], from = word[site->symbol];
    put(t, number >= 0 && what[0] == 's' ? "    if (1" : "    if (on");
    for (int i = 0; i < site->n; i++) {
        put(t, " && (u64)(i64)x%d < (u64)p->word[%d]", (int)site->index[i], from + 1 + 2 * i);
    }
    put(t, ") {\n        %s_add((u64)(p->word[%d]",
        grads->how[site->symbol] == GRAD_ALONE ? "alone" : "exact", to);
    for (int i = 0; i < site->n; i++) {
        put(t, " + x%d * p->word[%d]", (int)site->index[i], to + 1 + i);
    }
    put(t, "), ");
    put(t, "%s%d%s", what, number, number >= 0 && what[0] == 's' ? "]" : "");
    put(t, ");\n    }\n");
}

/* The nodes that `roots` want, each once; near: the function has that parameter. */
static void put_nodes(attn__text *t, const attn__adjoint *a, const int32_t *word,
                      const int32_t *roots, int n, int near, uint8_t *need) {
    attn__need(&a->graph, roots, n, need);
    for (int i = 0; i < a->graph.n; i++) {
        if (need[i] && !(near && attn__put_near(t, &a->graph, i))) {
            attn__put_node(t, &a->graph, word, i);
        }
    }
}

/* last: of the end, where even sites are added; otherwise all pairs. */
static void put_function(attn__text *t, const attn__adjoint *a, const int32_t *word,
                         const attn__text_grads *grads, const uint8_t *even, int last,
                         uint8_t *need) {
    int32_t roots[ATTN__MAX_SYMBOLS * (ATTN__MAX_RANK + 1)];
    int n = 0, sums = 0;
    put(t, last ? "DEV void attn_grads_end(const attn_params *p, const attn_pair *at,\n"
                  "                        const float *sum) {\n    const float s = 0;\n"
                : "DEV void attn_grads(const attn_params *p, const attn_pair *at, float s,\n"
                  "                    float g, int on, int near, float *sum) {\n"
                  "    (void)on, (void)near;\n");
    put(t, "    (void)p, (void)at, (void)s, (void)sum;\n");
    for (int i = 0; i < a->n_sites; i++) {
        const attn__site *const site = &a->site[i];
        if (grads->how[site->symbol] == GRAD_NONE || (last && !even[i])) {
            continue;
        }
        if (!last) {
            roots[n++] = site->d;
        }
        for (int j = 0; even[i] == last && j < site->n; j++) {
            roots[n++] = site->index[j];
        }
    }
    put_nodes(t, a, word, roots, n, !last, need);
    for (int i = 0; i < a->n_sites; i++) {
        const attn__site *const site = &a->site[i];
        if (grads->how[site->symbol] == GRAD_NONE) {
            continue;
        }
        if (even[i] && last) {
            put_add(t, site, word, grads, "sum[", sums);
        } else if (even[i]) {
            put(t, "    sum[%d] = on ? fma_f32(g, x%d, sum[%d]) : sum[%d];\n", sums, (int)site->d,
                sums, sums);
        } else if (!last) {
            put_add(t, site, word, grads, "g * x", (int)site->d);
        }
        sums += even[i];
    }
    put(t, "}\n");
}

void attn__put_grads(attn__text *t, const attn__adjoint *a, const int32_t *word,
                     const attn__text_grads *grads, uint8_t *need) {
    uint8_t even[ATTN__MAX_SYMBOLS];
    int sums = 0, others = 0;
    for (int i = 0; i < a->n_sites; i++) {
        even[i] = (uint8_t)(attn__site_is_even(a, &a->site[i], need) &&
                            grads->how[a->site[i].symbol] != GRAD_NONE);
        sums += even[i];
        others += !even[i] && grads->how[a->site[i].symbol] != GRAD_NONE;
    }
    put(t, "#include \"core/exact.h\"\n#define ATTN_GRAD_SUMS %d\n", sums);
    put(t, "#define ATTN_GRADS_EVEN %d\n", others == 0);
    put_function(t, a, word, grads, even, 0, need);
    put_function(t, a, word, grads, even, 1, need);
}
