/* gpu_text_mask.c: the ends of the keys that a row sees, as far as a mask tells them, and the rest
   of the mask.

   Who calls it: gpu_text.c. Of the mask, a conjunction, comparisons that are linear in k bound it:

       k <= q && q - k < 1024 && ids[b][q] == ids[b][k]

       #define ATTN_MASK_FIRST 1     some of them bound k from below
       #define ATTN_MASK_REST 1      there is a rest
       #define ATTN_MASK_COLUMN 1    of it, a part is the same for all rows of a column
       DEV void attn_mask_ends(...)  {... *last = least(*last, q); *first = most(*first, q - 1023);}
       DEV u32 attn_mask_column(...) {... return ids[b][k]; }
       DEV int attn_mask_rest(..., u32 column)   {... return ids[b][q] == column; }

   So a pair costs comparisons of its column, a constant, with a row's ends, and what is read of a
   column is read once for all rows of a warp. */
#include "gpu_text_int.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TERMS = 32, NOT_LINEAR = 99 };

typedef struct mask_text {
    attn__text *t;
    const attn_graph *g;
    uint8_t *of_k;   /* of each node: it depends on k or s */
    uint8_t *of_row; /* on q, i, h or s */
    int32_t end[MOST_TERMS], rest[MOST_TERMS];
    int n_end, n_rest;
    int column; /* the node that is attn_mask_column, -1: none */
} mask_text;

static const attn__node *node_of(const mask_text *c, int at) {
    return &c->g->node[at];
}

static void find_leaves(const mask_text *c, int root) {
    for (int i = 0; i <= root; i++) {
        const attn__node *const node = node_of(c, i);
        const int leaf = node->op == OP_leaf ? (int)node->sym : -1;
        c->of_k[i] = leaf == LEAF_k || leaf == LEAF_s;
        c->of_row[i] = leaf == LEAF_q || leaf == LEAF_i || leaf == LEAF_h || leaf == LEAF_s;
        for (int j = 0; attn__has_args(node) && j < node->n; j++) {
            c->of_k[i] |= c->of_k[node->u.arg[j]];
            c->of_row[i] |= c->of_row[node->u.arg[j]];
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

/* -- The part of the rest that a column's rows share ------------------------------------------- */

/* The load by k and by what all rows of a block have in common; -1: there are none or several. */
static int column_of(const mask_text *c, int root, const uint8_t *need) {
    int found = -1;
    for (int i = 0; i <= root; i++) {
        if (need[i] && node_of(c, i)->op == OP_load && c->of_k[i] && !c->of_row[i]) {
            found = found == -1 ? i : -2;
        }
    }
    return found < 0 ? -1 : found;
}

static void put_column(const mask_text *c, const int32_t *word, uint8_t *need) {
    put(c->t, "#define ATTN_MASK_COLUMN %d\n", c->column >= 0);
    put(c->t, "DEV u32 attn_mask_column(const attn_params *p, const attn_pair *at) {\n"
              "    (void)p, (void)at;\n");
    if (c->column < 0) {
        put(c->t, "    return 0;\n}\n");
        return;
    }
    const int32_t roots[] = {c->column};
    attn__need(c->g, roots, 1, need);
    for (int i = 0; i <= c->column; i++) {
        if (need[i]) {
            attn__put_node(c->t, c->g, word, i);
        }
    }
    put(c->t, node_of(c, c->column)->type == VT_F32 ? "    return bits_of(x%d);\n}\n"
                                                    : "    return (u32)x%d;\n}\n",
        c->column);
}
/* Of what a rest needs, what is needed besides its column. */
static void need_beside(const mask_text *c, int root, uint8_t *need) {
    attn__need(c->g, c->rest, 0, need);
    for (int i = 0; i < c->n_rest; i++) {
        need[c->rest[i]] = 1;
    }
    for (int i = root; i >= 0; i--) {
        const attn__node *const node = node_of(c, i);
        for (int j = 0; need[i] && i != c->column && attn__has_args(node) && j < node->n; j++) {
            need[node->u.arg[j]] = 1;
        }
    }
}

static void put_rest(mask_text *c, const int32_t *word, int root, uint8_t *need) {
    put(c->t, "#define ATTN_MASK_REST %d\n", c->n_rest > 0);
    if (c->n_rest == 0) {
        return;
    }
    attn__need(c->g, c->rest, c->n_rest, need);
    c->column = column_of(c, root, need);
    put_column(c, word, need);
    need_beside(c, root, need);
    put(c->t, "DEV int attn_mask_rest(const attn_params *p, const attn_pair *at, float s, "
              "u32 column) {\n    (void)p, (void)at, (void)s, (void)column;\n");
    for (int i = 0; i <= root; i++) {
        if (i == c->column) {
            const int f32 = node_of(c, i)->type == VT_F32;
            put(c->t, "    const %s x%d = %s(column);\n", f32 ? "float" : "i32", i,
                f32 ? "float_of" : "(i32)");
        } else if (need[i]) {
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
    mask_text c = {.t = t, .g = g, .of_k = attn__alloc(2 * (size_t)root + 2, "a plan")};
    if (!c.of_k) {
        return ATTN_MEMORY;
    }
    c.of_row = c.of_k + root + 1;
    find_leaves(&c, root);
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
