/* cpu_limits.c: the keys that a row sees, where the mask bounds them by sums of positions.

   Who calls it: cpu.c when it plans; cpu_score.c for every tile that is not all visible. Causal
   masks, windows and prefixes are AND and OR of comparisons of whole numbers that are linear in k,
   q, i and the lengths. Each is a limit, in one variable per row:

       q - k < 256                k <= q                     k < 5 || k <= q
       k >= q - 255               k <= q                     k <= max(4, q)
            first ........ last visible key of the row

   A mask that consists of limits needs no evaluation: a row's visible keys are begin..end. Of any
   other mask the limits still say where nothing is to be computed. */
#include "cpu.h"

#include <string.h>

/* The sums: k, the row's and the sequence's numbers, a parameter. */
static int is_constant(const attn__limit *x) {
    for (int i = 0; i < ATTN__LIMIT_TERMS; i++) {
        if (x->by[i]) {
            return 0;
        }
    }
    return 1;
}

/* to = a * by_a + b * by_b; 0 if they read different parameters. */
static int combine(attn__limit *to, const attn__limit *a, int64_t by_a, const attn__limit *b,
                   int64_t by_b) {
    attn__limit x = {.symbol = a->by[TERM_PARAM] ? a->symbol : b->symbol};
    if (a->by[TERM_PARAM] && b->by[TERM_PARAM] && a->symbol != b->symbol) {
        return 0;
    }
    for (int i = 0; i < ATTN__LIMIT_TERMS; i++) {
        x.by[i] = a->by[i] * by_a + b->by[i] * by_b;
    }
    x.one = a->one * by_a + b->one * by_b;
    *to = x;
    return 1;
}

static int linear_leaf(int leaf, attn__limit *x) {
    static const int term[LEAF_COUNT] = {[LEAF_k] = 1 + TERM_K,
                                         [LEAF_q] = 1 + TERM_Q,
                                         [LEAF_i] = 1 + TERM_I,
                                         [LEAF_nq] = 1 + TERM_NQ,
                                         [LEAF_nk] = 1 + TERM_NK};
    if (!term[leaf]) {
        return 0;
    }
    x->by[term[leaf] - 1] = 1;
    return 1;
}

/* Writes an i32 node as a sum; 0 if it is none. A plan's i32 operations never overflow. */
static int linear(const attn_graph *g, int at, attn__limit *x) {
    const attn__node *const node = &g->node[at];
    attn__limit a, b;
    memset(x, 0, sizeof *x);
    if (node->type != VT_I32) {
        return 0;
    }
    switch (node->op) {
    case OP_const: x->one = node->u.value.i; return 1;
    case OP_leaf: return linear_leaf(node->sym, x);
    case OP_param:
        x->by[TERM_PARAM] = 1;
        x->symbol = node->sym;
        return 1;
    case OP_neg: return linear(g, node->u.arg[0], &a) && combine(x, &a, -1, &a, 0);
    case OP_add:
    case OP_sub:
        return linear(g, node->u.arg[0], &a) && linear(g, node->u.arg[1], &b) &&
               combine(x, &a, 1, &b, node->op == OP_add ? 1 : -1);
    case OP_mul:
        return linear(g, node->u.arg[0], &a) && linear(g, node->u.arg[1], &b) &&
               (is_constant(&a) || is_constant(&b)) &&
               (is_constant(&a) ? combine(x, &b, a.one, &b, 0) : combine(x, &a, b.one, &a, 0));
    default: return 0;
    }
}

/* Appends one limit: b - a - less >= 0. */
static int compare(const attn_graph *g, int a, int b, int less, attn__limits *to) {
    attn__limit x, y;
    if (to->n == ATTN__LIMITS || !linear(g, a, &x) || !linear(g, b, &y) ||
        !combine(&x, &y, 1, &x, -1)) {
        return 0;
    }
    x.one -= less;
    x.alternative = 0;
    if (x.by[TERM_K] < -1 || x.by[TERM_K] > 1) {
        return 0;
    }
    to->limit[to->n++] = x;
    return 1;
}

/* Appends the limits of a bool node; 1 if they are all that it says. What an OR says is kept only
   if both sides are one limit on the same side of k. */
static int limits_of(const attn_graph *g, int at, int negate, attn__limits *to) {
    const attn__node *const node = &g->node[at];
    const int32_t *const arg = node->u.arg;
    const int n = to->n;
    if (node->type != VT_BOOL) {
        return 0;
    }
    switch (node->op) {
    case OP_const: return !!node->u.value.i != negate;
    case OP_not: return limits_of(g, arg[0], !negate, to);
    case OP_le:
    case OP_lt:
        return negate ? compare(g, arg[1], arg[0], node->op == OP_le, to)
                      : compare(g, arg[0], arg[1], node->op == OP_lt, to);
    case OP_and:
    case OP_or: break;
    default: return 0;
    }
    const int first = limits_of(g, arg[0], negate, to), middle = to->n;
    const int second = limits_of(g, arg[1], negate, to);
    if ((node->op == OP_and) != negate) {
        return first && second;
    }
    const int one_each = first && second && middle == n + 1 && to->n == n + 2;
    if (!one_each || to->limit[n].by[TERM_K] == 0 ||
        to->limit[n].by[TERM_K] != to->limit[n + 1].by[TERM_K]) {
        to->n = n;
        return 0;
    }
    to->limit[n + 1].alternative = 1;
    return 1;
}

void attn__limits_plan(const attn_graph *g, int mask, attn__limits *to) {
    to->n = 0;
    to->all = limits_of(g, mask, 0, to);
}

/* The limit's value without k. */
static int64_t rest_of(const attn__limit *x, const attn__tile *t, int64_t row) {
    const int64_t term[ATTN__LIMIT_TERMS] = {
        [TERM_Q] = t->seq.q0 + row,
        [TERM_I] = t->seq.i0 + row,
        [TERM_NQ] = t->seq.nq_all,
        [TERM_NK] = t->seq.nk_all,
        [TERM_PARAM] = x->by[TERM_PARAM] ? t->run->p->bound[x->symbol].i : 0};
    int64_t sum = x->one;
    for (int i = 0; i < ATTN__LIMIT_TERMS; i++) {
        sum += x->by[i] * term[i];
    }
    return sum;
}

void attn__limits_rows(const attn__tile *t, int64_t row, int rows, int64_t *begin, int64_t *end) {
    const attn__limits *const all = &t->run->plan->limits;
    for (int i = 0; i < rows; i++) {
        begin[i] = t->seq.k0;
        end[i] = (int64_t)t->seq.k0 + t->seq.nk;
    }
    for (int e = 0; e < all->n; e++) {
        const attn__limit *const x = &all->limit[e];
        const attn__limit *const y = e + 1 < all->n && x[1].alternative ? x + 1 : x;
        const int64_t k = x->by[TERM_K], x0 = rest_of(x, t, row), y0 = rest_of(y, t, row);
        const int64_t x_step = x->by[TERM_Q] + x->by[TERM_I];
        const int64_t y_step = y->by[TERM_Q] + y->by[TERM_I];
        /* rest + k >= 0: k >= -rest. rest - k >= 0: k <= rest. rest >= 0: all or nothing. */
        for (int i = 0; i < rows; i++) {
            const int64_t a = x0 + i * x_step, b = y0 + i * y_step, rest = a > b ? a : b;
            if (k > 0) {
                begin[i] = -rest > begin[i] ? -rest : begin[i];
            } else if (k < 0) {
                end[i] = end[i] > rest + 1 ? rest + 1 : end[i];
            } else if (rest < 0) {
                end[i] = begin[i];
            }
        }
        e += y != x;
    }
    for (int i = 0; i < rows; i++) {
        begin[i] -= t->seq.k0;
        end[i] -= t->seq.k0;
    }
}
