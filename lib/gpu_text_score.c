/* gpu_text_score.c: attn_score of a variant's text: the score, with what a chip does faster in
   place of math.h's rules.

   Who calls it: gpu_text.c.

       #define ATTN_SCORE_INFINITE 1     a product of -inf leads to no finite score
       #define ATTN_SCORE_NEAR 1         `near` makes a difference; needs |s| <= ATTN_SCORE_REACH
       DEV float attn_score(const attn_params *p, const attn_pair *at, float x, float scale,
                            int near)    s is x scale; near: at->d is q - k; the same bits
       DEV float attn_score_grad(..., float *by_s)      backward: the same score, d score / d s

   Only nodes on which the score depends continuously are touched: a product that is added to
   something is contracted with the sum, s = x scale above all; a quotient of s by a constant is a
   product; tanh is core/near.h's. |q - k| as f32 is at->d without its sign.

   gpu_text_form.c tells which scores have exponents of their own. What all pairs of a head have in
   common (a slope) need not be computed for each:

       #define ATTN_SCORE_HELD 1
       DEV void attn_score_hold(const attn_params *p, const attn_pair *at, float *held)
       near 3: at->held has them, and positions are near */
#include "gpu_text_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TAKEN = 3, MOST_HELD = 2 };
typedef struct score_text {
    attn__text *t;
    const attn_graph *g;
    uint8_t *smooth; /* of each node: the score depends on it continuously, everywhere */
    uint8_t *uses;   /* 0, 1, 2: more than once; TAKEN: once, by a sum that it is part of */
    float reach;     /* of |s|, for tanh_near; 0: there is none */
    int near;
    uint8_t *varies; /* of each node: it depends on the pair within its head */
    int32_t held[MOST_HELD];
    int n_held;
} score_text;

/* -- What nodes are ---------------------------------------------------------------------------- */

static const attn__node *node_of(const score_text *c, int at) {
    return &c->g->node[at];
}
static const attn__node *arg_of(const score_text *c, int at, int n) {
    return node_of(c, node_of(c, at)->u.arg[n]);
}
static int is_leaf(const attn__node *node, int leaf) {
    return node->op == OP_leaf && node->sym == leaf;
}
/* The result moves little if this argument does. */
static int is_continuous(int op, int argument) {
    switch (op) {
    case OP_neg:
    case OP_abs:
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
    case OP_min:
    case OP_max:
    case OP_exp:
    case OP_exp2:
    case OP_tanh: return 1;
    case OP_select: return argument > 0;
    default: return 0;
    }
}

static void mark(const score_text *c, int root, const uint8_t *need) {
    memset(c->uses, 0, (size_t)root + 1);
    memset(c->smooth, 1, (size_t)root + 1);
    for (int i = root; i >= 0; i--) {
        const attn__node *const node = node_of(c, i);
        for (int j = 0; need[i] && attn__has_args(node) && j < node->n; j++) {
            const int a = node->u.arg[j];
            c->uses[a] += c->uses[a] < 2;
            c->smooth[a] &= c->smooth[i] && is_continuous(node->op, j);
        }
    }
}

/* 1: where s is -inf, the node is infinite or NaN. */
static int is_infinite(const score_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    switch (node->op) {
    case OP_leaf: return node->sym == LEAF_s;
    case OP_neg:
    case OP_abs: return node->type == VT_F32 && is_infinite(c, node->u.arg[0]);
    case OP_add:
    case OP_sub:
    case OP_mul:
        return node->type == VT_F32 &&
               (is_infinite(c, node->u.arg[0]) || is_infinite(c, node->u.arg[1]));
    case OP_div: return is_infinite(c, node->u.arg[0]);
    default: return 0;
    }
}

static int is_held(const score_text *c, int at) {
    for (int i = 0; i < c->n_held; i++) {
        if (c->held[i] == at) {
            return i;
        }
    }
    return -1;
}

/* -- A node's line ----------------------------------------------------------------------------- */

/* A product that is nowhere else than in the sum that asks. */
static int is_product(const score_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    return node->op == OP_mul && node->type == VT_F32 &&
           (c->uses[at] == 1 || c->uses[at] == TAKEN);
}

/* Which argument of a sum is contracted with it: s, or a product; -1: none. */
static int contracted(const score_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    if ((node->op != OP_add && node->op != OP_sub) || node->type != VT_F32 || !c->smooth[at]) {
        return -1;
    }
    for (int j = 0; j < 2; j++) {
        if (is_leaf(arg_of(c, at, j), LEAF_s)) {
            return j;
        }
    }
    return is_product(c, node->u.arg[0]) ? 0 : is_product(c, node->u.arg[1]) ? 1 : -1;
}

/* Products that have no line of their own. */
static void take(const score_text *c, int root, const uint8_t *need) {
    for (int i = 0; i <= root; i++) {
        const int j = need[i] ? contracted(c, i) : -1;
        if (j >= 0 && !is_leaf(arg_of(c, i, j), LEAF_s)) {
            c->uses[node_of(c, i)->u.arg[j]] = TAKEN;
        }
    }
}

static void put_sum(const score_text *c, int at, int j) {
    const attn__node *const node = node_of(c, at), *const product = arg_of(c, at, j);
    const char *const minus = node->op == OP_sub ? "-" : "";
    put(c->t, "fma_f32(%s", j == 1 ? minus : "");
    if (is_leaf(product, LEAF_s)) {
        put(c->t, "x, scale");
    } else {
        put(c->t, "x%d, x%d", (int)product->u.arg[0], (int)product->u.arg[1]);
    }
    put(c->t, ", %sx%d)", j == 0 ? minus : "", (int)node->u.arg[1 - j]);
}

/* s divided by a constant. */
static int is_part_of_s(const score_text *c, int at) {
    return node_of(c, at)->op == OP_div && c->smooth[at] && is_leaf(arg_of(c, at, 0), LEAF_s) &&
           attn__is_number(arg_of(c, at, 1));
}
static void put_part_of_s(const score_text *c, int at) {
    const attn__node inverse = {.type = VT_F32, .u.value.f = 1 / arg_of(c, at, 1)->u.value.f};
    put(c->t, "div_scaled(x, scale, x%d, ", (int)node_of(c, at)->u.arg[1]);
    attn__put_constant(c->t, &inverse);
    put(c->t, ")");
}

/* The polynomial for tanh of gain * s is used where |s| is small. */
static void bound_reach(score_text *c, float gain) {
    const float reach = 0.349f / fabsf(gain); /* a bit less than NEAR_TANH */
    c->reach = c->reach == 0 || reach < c->reach ? reach : c->reach;
    c->near = 1;
}

static void put_tanh(score_text *c, int at) {
    const int arg = node_of(c, at)->u.arg[0];
    const float gain = attn__gain_of_s(c->g, arg);
    if (gain != 0) {
        bound_reach(c, gain);
        put(c->t, "near ? tanh_near(x%d) : ", arg);
    }
    put(c->t, "tanh_any(x%d)", arg);
}

/* A number times tanh of a number times s: which argument is the tanh; -1: it is something else. */
static int capped(const score_text *c, int at) {
    const attn__node *const node = node_of(c, at);
    for (int j = 0; j < 2 && node->op == OP_mul && node->type == VT_F32 && c->smooth[at]; j++) {
        const attn__node *const tanh = arg_of(c, at, j);
        if (tanh->op == OP_tanh && attn__is_number(arg_of(c, at, 1 - j)) &&
            attn__gain_of_s(c->g, tanh->u.arg[0]) != 0) {
            return j;
        }
    }
    return -1;
}

static void put_capped(score_text *c, int at, int j) {
    const int t = arg_of(c, at, j)->u.arg[0], cap = node_of(c, at)->u.arg[1 - j];
    const attn__node gain = {.type = VT_F32, .u.value.f = attn__gain_of_s(c->g, t)};
    bound_reach(c, gain.u.value.f);
    put(c->t, "near ? cap_near(x, scale, ");
    attn__put_constant(c->t, &gain);
    put(c->t, ", x%d) : cap_any(x, scale, ", cap);
    attn__put_constant(c->t, &gain);
    put(c->t, ", x%d, x%d)", cap, t);
}

/* f32 of q - k or k - q, or of a size; 0: none of them, nothing is written. */
static int put_float(score_text *c, int at) {
    const attn__node *inner = arg_of(c, at, 0);
    const int is_size = inner->op == OP_abs;
    int number = node_of(c, at)->u.arg[0];
    if (is_size) {
        number = inner->u.arg[0];
        inner = node_of(c, number);
    }
    const int from_q = inner->op == OP_sub && is_leaf(node_of(c, inner->u.arg[0]), LEAF_q) &&
                       is_leaf(node_of(c, inner->u.arg[1]), LEAF_k);
    const int from_k = inner->op == OP_sub && is_leaf(node_of(c, inner->u.arg[0]), LEAF_k) &&
                       is_leaf(node_of(c, inner->u.arg[1]), LEAF_q);
    if (!is_size && !from_q && !from_k) {
        return 0;
    }
    put(c->t, is_size ? "abs_f32(" : "(");
    if (from_q || from_k) {
        put(c->t, "near ? %sat->d : ", from_k ? "-" : "");
        c->near = 1;
    }
    put(c->t, "(float)x%d)", number);
    return 1;
}

static void put_node(score_text *c, const int32_t *word, int at) {
    const attn__node *const node = node_of(c, at);
    const int held = is_held(c, at);
    if (held >= 0) {
        put(c->t, "    float x%d = at->held[%d];\n    if (near < 3) {\n", at, held);
        put(c->t, "        float held[%d];\n        attn_score_hold(p, at, held);\n", c->n_held);
        put(c->t, "        x%d = held[%d];\n    }\n", at, held);
        return;
    }
    const size_t before = c->t->n;
    const int j = contracted(c, at), cap = capped(c, at);
    put(c->t, "    const float x%d = ", at);
    if (j >= 0) {
        put_sum(c, at, j);
    } else if (cap >= 0) {
        put_capped(c, at, cap);
    } else if (is_part_of_s(c, at)) {
        put_part_of_s(c, at);
    } else if (node->op == OP_tanh && c->smooth[at]) {
        put_tanh(c, at);
    } else if (node->op != OP_float || !put_float(c, at)) {
        c->t->n = before;
        attn__put_node(c->t, c->g, word, at);
        return;
    }
    put(c->t, ";\n");
}

/* -- What a head's pairs have in common -------------------------------------------------------- */

/* f32 nodes that cost something and do not vary, whose users do; if they are few. */
static void find_held(score_text *c, int root, const uint8_t *need) {
    for (int i = 0; i <= root; i++) {
        const attn__node *const node = node_of(c, i);
        c->varies[i] = node->op == OP_leaf && (node->sym == LEAF_s || node->sym == LEAF_q ||
                                               node->sym == LEAF_k || node->sym == LEAF_i);
        for (int j = 0; attn__has_args(node) && j < node->n; j++) {
            c->varies[i] |= c->varies[node->u.arg[j]];
        }
        for (int j = 0; need[i] && c->varies[i] && attn__has_args(node) && j < node->n; j++) {
            const int a = node->u.arg[j];
            const int costs = attn__has_args(node_of(c, a)) && node_of(c, a)->type == VT_F32;
            const int is_new = !c->varies[a] && c->uses[a] != TAKEN && is_held(c, a) < 0;
            if (costs && is_new && c->n_held <= MOST_HELD) {
                if (c->n_held < MOST_HELD) {
                    c->held[c->n_held] = a;
                }
                c->n_held++;
            }
        }
    }
    c->n_held = c->n_held > MOST_HELD ? 0 : c->n_held;
}

static void put_hold(score_text *c, const int32_t *word, int root, uint8_t *need) {
    attn__need(c->g, &root, 1, need);
    mark(c, root, need);
    take(c, root, need);
    find_held(c, root, need);
    int sign = 0;
    const int fall = attn__fall_of(c->g, root, &sign);
    const int shared = fall >= 0 && !c->varies[fall];
    if (shared && is_held(c, fall) < 0 && c->n_held < MOST_HELD) {
        c->held[c->n_held++] = fall;
    }
    if (shared && is_held(c, fall) >= 0) {
        put(c->t, "#define ATTN_SCORE_FALL(held) (%s(held)[%d])\n", sign < 0 ? "-" : "",
            is_held(c, fall));
    }
    put(c->t, "#define ATTN_SCORE_HELD %d\n", c->n_held);
    if (c->n_held == 0) {
        return;
    }
    const int n_held = c->n_held;
    attn__need(c->g, c->held, n_held, need);
    put(c->t, "DEV void attn_score_hold(const attn_params *p, const attn_pair *at, float *held) {\n"
              "    (void)p, (void)at;\n");
    c->n_held = 0; /* here they are computed */
    for (int i = 0; i <= root; i++) {
        if (need[i] && c->uses[i] != TAKEN) {
            put_node(c, word, i);
        }
    }
    c->n_held = n_held;
    for (int i = 0; i < n_held; i++) {
        put(c->t, "    held[%d] = x%d;\n", i, (int)c->held[i]);
    }
    put(c->t, "}\n");
}

/* -- The functions ----------------------------------------------------------------------------- */

/* What the score needs, its root last. */
static void put_body(score_text *c, const int32_t *word, int root, uint8_t *need) {
    attn__need(c->g, &root, 1, need);
    mark(c, root, need);
    take(c, root, need);
    put(c->t, "    const float s = x * scale;\n    (void)p, (void)at, (void)s, (void)near;\n");
    for (int i = 0; i <= root; i++) {
        if (need[i] && c->uses[i] != TAKEN) {
            put_node(c, word, i);
        }
    }
}

int attn__put_score_grad(attn__text *t, const attn__adjoint *a, const int32_t *word,
                         uint8_t *need) {
    const size_t n = (size_t)a->graph.n;
    uint8_t *const marks = attn__alloc(3 * n, "a plan"), *const has = marks + 2 * n;
    score_text c = {.t = t, .g = &a->graph, .smooth = marks, .uses = marks + n};
    if (!marks) {
        return ATTN_MEMORY;
    }
    put(t, "DEV float attn_score_grad(const attn_params *p, const attn_pair *at, float x, "
           "float scale,\n                          int near, float *by_s) {\n");
    put_body(&c, word, a->score, need);
    for (int i = 0; i <= a->score; i++) {
        has[i] = need[i] && c.uses[i] != TAKEN;
    }
    attn__need(&a->graph, &a->ds, 1, need);
    for (int i = 0; i <= a->ds; i++) {
        if (need[i] && !(i <= a->score && has[i])) {
            attn__put_node(t, &a->graph, word, i);
        }
    }
    put(t, "    *by_s = x%d;\n    return x%d;\n}\n", (int)a->ds, (int)a->score);
    free(marks);
    return ATTN_OK;
}

int attn__put_near(attn__text *t, const attn_graph *g, int at) {
    score_text c = {.t = t, .g = g};
    const size_t before = t->n;
    put(t, "    const float x%d = ", at);
    if (g->node[at].op != OP_float || !put_float(&c, at)) {
        t->n = before;
        return 0;
    }
    put(t, ";\n");
    return 1;
}

/* Whatever s is: e^(hi - lo), 128 times, is far below f32's end. */
static int is_bounded(const attn_graph *g, int root) {
    attn__range *const range = attn__alloc(((size_t)root + 1) * sizeof *range, "a plan");
    attn__box box;
    if (!range) {
        return 0;
    }
    attn__box_init(&box, NULL);
    attn__ranges(g, root, &box, range);
    const int is = range[root].hi - range[root].lo <= 80; /* NaN makes its row NaN in any case */
    free(range);
    return is;
}

int attn__put_score(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                    uint8_t *need) {
    uint8_t *const marks = attn__alloc(3 * (size_t)(root + 1), "a plan");
    score_text c = {.t = t, .g = g, .smooth = marks, .uses = marks + root + 1};
    c.varies = marks + 2 * (root + 1);
    if (!marks) {
        return ATTN_MEMORY;
    }
    put(t, "#include \"core/near.h\"\n");
    put_hold(&c, word, root, need);
    put(t, "DEV float attn_score(const attn_params *p, const attn_pair *at, float x, float scale, "
           "int near) {\n");
    put_body(&c, word, root, need);
    put(t, "    return x%d;\n}\n", root);
    attn__put_cap(t, g, root);
    put(t, "#define ATTN_SCORE_BOUNDED %d\n", is_bounded(g, root));
    put(t, "#define ATTN_SCORE_INFINITE %d\n#define ATTN_SCORE_NEAR %d\n", is_infinite(&c, root),
        c.near);
    if (c.reach > 0) {
        const attn__node reach = {.type = VT_F32, .u.value.f = c.reach};
        put(t, "#define ATTN_SCORE_REACH ");
        attn__put_constant(t, &reach);
        put(t, "\n");
    }
    free(marks);
    return ATTN_OK;
}
