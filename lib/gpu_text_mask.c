/* gpu_text_mask.c: the ends of the keys that a row sees, as far as a mask tells them, and the rest
   of the mask.

   Who calls it: gpu_text.c. Of the mask, a conjunction, comparisons that are linear in k bound it:

       k <= q && q - k < 1024 && ids[b][q] == ids[b][k]

       #define ATTN_MASK_FIRST 1     some of them bound k from below
       #define ATTN_MASK_REST 1      there is a rest
       DEV void attn_mask_ends(...)  {... *last = least(*last, q); *first = most(*first, q - 1023);}
       DEV int attn_mask_rest(...)   {... return ids[b][q] == ids[b][k]; }

   So a pair costs comparisons of its column, a constant, with a row's ends. */
#include "gpu_text_int.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TERMS = 32, NOT_LINEAR = 99 };

typedef struct mask_text {
    attn__text *t;
    const attn_graph *g;
    uint8_t *of_k; /* of each node: it depends on k or s */
    int32_t end[MOST_TERMS], rest[MOST_TERMS];
    int n_end, n_rest;
} mask_text;

static const attn__node *node_of(const mask_text *c, int at) {
    return &c->g->node[at];
}

static void find_of_k(const mask_text *c, int root) {
    for (int i = 0; i <= root; i++) {
        const attn__node *const node = node_of(c, i);
        c->of_k[i] = node->op == OP_leaf && (node->sym == LEAF_k || node->sym == LEAF_s);
        for (int j = 0; attn__has_args(node) && j < node->n; j++) {
            c->of_k[i] |= c->of_k[node->u.arg[j]];
        }
    }
}

/* How often k is in an i32 node that is a sum of it and of what does not depend on it. */
static int count_of_k(const mask_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    if (!c->of_k[at]) {
        return 0;
    }
    if (node->op == OP_leaf && node->sym == LEAF_k) {
        return 1;
    }
    if (node->op != OP_add && node->op != OP_sub && node->op != OP_neg) {
        return NOT_LINEAR;
    }
    const int a = count_of_k(c, node->u.arg[0]);
    const int b = node->op == OP_neg ? 0 : count_of_k(c, node->u.arg[1]);
    if (abs(a) > 2 || abs(b) > 2) {
        return NOT_LINEAR;
    }
    return node->op == OP_neg ? -a : node->op == OP_add ? a + b : a - b;
}

/* 1: k <= ..., -1: k >= ..., 0: no such comparison. */
static int side_of(const mask_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    if ((node->op != OP_le && node->op != OP_lt) ||
        node_of(c, node->u.arg[0])->type != VT_I32) {
        return 0;
    }
    const int a = count_of_k(c, node->u.arg[0]), b = count_of_k(c, node->u.arg[1]);
    return abs(a) > 2 || abs(b) > 2 || abs(a - b) != 1 ? 0 : a - b;
}

/* Terms of the conjunction; 0: too many. */
static int collect(mask_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    if (node->op == OP_and) {
        return collect(c, node->u.arg[0]) && collect(c, node->u.arg[1]);
    }
    if (c->n_end == MOST_TERMS || c->n_rest == MOST_TERMS) {
        return 0;
    }
    if (side_of(c, at)) {
        c->end[c->n_end++] = at;
    } else {
        c->rest[c->n_rest++] = at;
    }
    return 1;
}

/* The sum of what does not depend on k, times sign. */
static void put_sum(const mask_text *c, int at, int sign) {
    const attn__node *const node = node_of(c, at);
    if (!c->of_k[at]) {
        put(c->t, " %c (i64)x%d", sign < 0 ? '-' : '+', at);
    } else if (node->op != OP_leaf) {
        put_sum(c, node->u.arg[0], node->op == OP_neg ? -sign : sign);
        if (node->op != OP_neg) {
            put_sum(c, node->u.arg[1], node->op == OP_sub ? -sign : sign);
        }
    }
}

/* a <= b or a < b: k is on the left (side 1) or on the right of what is left of it. */
static void put_end(const mask_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    const int side = side_of(c, at);
    put(c->t, side > 0 ? "    *last = end_least(*last, 0" : "    *first = end_most(*first, 0");
    put_sum(c, node->u.arg[1], side);
    put_sum(c, node->u.arg[0], -side);
    if (node->op == OP_lt) {
        put(c->t, side > 0 ? " - 1" : " + 1");
    }
    put(c->t, ");\n");
}

static void put_ends(const mask_text *c, const int32_t *word, int root, uint8_t *need) {
    int first = 0;
    attn__need(c->g, c->end, c->n_end, need);
    put(c->t, "DEV void attn_mask_ends(const attn_params *p, const attn_pair *at, i32 *first, "
              "i32 *last) {\n    (void)p, (void)at, (void)first, (void)last;\n");
    for (int i = 0; c->n_end && i <= root; i++) {
        if (need[i] && !c->of_k[i]) {
            attn__put_node(c->t, c->g, word, i);
        }
    }
    for (int i = 0; i < c->n_end; i++) {
        put_end(c, c->end[i]);
        first |= side_of(c, c->end[i]) < 0;
    }
    put(c->t, "}\n#define ATTN_MASK_FIRST %d\n", first);
}

static void put_rest(const mask_text *c, const int32_t *word, int root, uint8_t *need) {
    put(c->t, "#define ATTN_MASK_REST %d\n", c->n_rest > 0);
    if (c->n_rest == 0) {
        return;
    }
    attn__need(c->g, c->rest, c->n_rest, need);
    put(c->t, "DEV int attn_mask_rest(const attn_params *p, const attn_pair *at, float s) {\n");
    put(c->t, "    (void)p, (void)at, (void)s;\n");
    for (int i = 0; i <= root; i++) {
        if (need[i]) {
            attn__put_node(c->t, c->g, word, i);
        }
    }
    put(c->t, "    return x%d", (int)c->rest[0]);
    for (int i = 1; i < c->n_rest; i++) {
        put(c->t, " & x%d", (int)c->rest[i]);
    }
    put(c->t, ";\n}\n");
}

int attn__put_mask_parts(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                         uint8_t *need) {
    mask_text c = {.t = t, .g = g, .of_k = attn__alloc((size_t)root + 1, "a plan")};
    if (!c.of_k) {
        return ATTN_MEMORY;
    }
    find_of_k(&c, root);
    if (!collect(&c, root)) {
        c.n_end = 0;
        c.n_rest = 1;
        c.rest[0] = root;
    }
    put_ends(&c, word, root, need);
    put_rest(&c, word, root, need);
    free(c.of_k);
    return ATTN_OK;
}
