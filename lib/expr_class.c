/* expr_class.c: does a mask hold everywhere, nowhere or somewhere over a box of places?

   Who calls it: the CPU engine and plan.c, mostly through attn__runs.

   Intervals alone lose what conditions say. Here B of `A && B` is judged where A holds, B of
   `A || B` where it does not, and the arms of a select likewise. Assuming a condition narrows the
   leaves below it, or leaves a fact about a node or about the difference of two:

       k <= q && (k < 4 || q - k <= 8)      q in 64..127, k in 128..191
       |         |        |
       assume    assume   judged with k <= 127, k >= 4 and q - k >= 0
       k <= q    k >= 4

   A judgement is remembered with the number of the assumption that last touched a leaf below it.
   No number is used again, so a later look-up knows whether the judgement still holds. */
#include "expr_range.h"

#include <string.h>

enum {
    FACTS = 48,           /* more are forgotten: less exact, never wrong */
    DEPTH = 200,          /* of nested nodes; beyond it no condition is assumed */
    BUDGET = 8,           /* judgements for each node, on average */
    SYMBOLS = LEAF_COUNT, /* stands for what loads and parameters give */
    ORIGINS
};

typedef struct fact {
    int32_t a, b; /* b < 0: node a is in `in`; else the integer a - b is */
    attn__range in;
} fact;

/* What is assumed; saved and restored as a whole. */
typedef struct frame {
    attn__range leaf[LEAF_COUNT];
    int32_t stamp[ORIGINS]; /* the assumption that last touched it */
    int32_t n_facts;
} frame;

typedef struct judge {
    const attn_graph *g;
    attn__box box; /* leaves as in now.leaf */
    frame now;
    int32_t assumptions; /* so far */
    int32_t budget, depth;
    fact facts[FACTS];
    attn__range *value; /* [n] */
    attn__range *plain; /* [n]: ranges without assumptions, once has_plain is set */
    int32_t *key;       /* [n]: stamp + 1 of value; 0: none */
    uint16_t *below;    /* [n]: bit for every leaf that the node depends on */
    int32_t n, has_plain;
} judge;

static attn__range look(judge *j, int n);
static int assume(judge *j, int n, int truth);
static int narrow(judge *j, int n, attn__range to);

static attn__range intersect(attn__range a, attn__range b) {
    return (attn__range){a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi,
                         (uint8_t)(a.nan & b.nan)};
}
static attn__range between(double lo, double hi) {
    return (attn__range){lo, hi, 0};
}
/* Nothing: what is judged cannot happen. */
static attn__range nothing(int type) {
    return type == VT_BOOL ? between(1, 0) : between(INFINITY, -INFINITY);
}

/* -- Facts ------------------------------------------------------------------------------------- */

static void touch(judge *j, int n) {
    j->assumptions++;
    for (int i = 0; i < ORIGINS; i++) {
        if (j->below[n] >> i & 1) {
            j->now.stamp[i] = j->assumptions;
        }
    }
}

static void learn(judge *j, int a, int b, attn__range in) {
    if (j->now.n_facts < FACTS) {
        j->facts[j->now.n_facts++] = (fact){a, b, in};
        touch(j, a);
        if (b >= 0) {
            touch(j, b);
        }
    }
}

static attn__range with_facts(const judge *j, int n, attn__range r) {
    for (int i = 0; i < j->now.n_facts; i++) {
        if (j->facts[i].a == n && j->facts[i].b < 0) {
            r = intersect(r, j->facts[i].in);
        }
    }
    return r;
}

/* The range of the integer a - b, whose plain range is r. */
static attn__range difference(const judge *j, int a, int b, attn__range r) {
    for (int i = 0; i < j->now.n_facts; i++) {
        const fact *const f = &j->facts[i];
        if (f->a == a && f->b == b) {
            r = intersect(r, f->in);
        } else if (f->a == b && f->b == a) {
            r = intersect(r, between(-f->in.hi, -f->in.lo));
        }
    }
    return r;
}

/* -- Judging one node -------------------------------------------------------------------------- */

/* Without assumptions, once for all nodes. */
static attn__range plain(judge *j, int n) {
    if (!j->has_plain) {
        attn__ranges(j->g, j->n - 1, &j->box, j->plain);
        j->has_plain = 1;
    }
    return j->plain[n];
}

/* n, where `condition` has that truth; `impossible` where it cannot have it. */
static attn__range look_under(judge *j, int condition, int truth, int n, attn__range impossible) {
    const frame before = j->now;
    const attn__range r = assume(j, condition, truth) ? look(j, n) : impossible;
    j->now = before;
    return r;
}

static attn__range look_and_or(judge *j, const attn__node *node) {
    const int is_or = node->op == OP_or;
    const attn__range a = look(j, node->u.arg[0]);
    if (a.lo == a.hi) {
        return (a.lo != 0) == is_or ? a : look(j, node->u.arg[1]);
    }
    const attn__range b =
        look_under(j, node->u.arg[0], !is_or, node->u.arg[1], between(is_or, is_or));
    return is_or ? between(b.lo, 1) : between(0, b.hi);
}

static attn__range look_select(judge *j, const attn__node *node) {
    const attn__range c = look(j, node->u.arg[0]);
    if (c.lo == c.hi) {
        return look(j, node->u.arg[c.lo != 0 ? 1 : 2]);
    }
    const attn__range none = nothing(node->type);
    const attn__range a = look_under(j, node->u.arg[0], 1, node->u.arg[1], none);
    const attn__range b = look_under(j, node->u.arg[0], 0, node->u.arg[2], none);
    return (attn__range){fmin(a.lo, b.lo), fmax(a.hi, b.hi), (uint8_t)(a.nan | b.nan)};
}

/* lt, le, eq, ne of integers by their difference, which facts may narrow. */
static attn__range look_compare(judge *j, const attn__node *node, const attn__range *arg) {
    const attn__range zero = between(0, 0);
    attn__range pair[2] = {between(arg[0].lo - arg[1].hi, arg[0].hi - arg[1].lo), zero};
    pair[0] = difference(j, node->u.arg[0], node->u.arg[1], pair[0]);
    return attn__interval(node->op, VT_I32, pair);
}

static attn__range look_new(judge *j, int n) {
    const attn__node *const node = &j->g->node[n];
    attn__range arg[ATTN__MAX_RANK];
    switch (node->op) {
    case OP_and:
    case OP_or: return look_and_or(j, node);
    case OP_select: return look_select(j, node);
    default: break;
    }
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        arg[i] = look(j, node->u.arg[i]);
        if (arg[i].lo > arg[i].hi) {
            return nothing(node->type);
        }
    }
    const int integers =
        node->op < OP_leaf && node->n == 2 && j->g->node[node->u.arg[0]].type == VT_I32;
    if (integers && node->type == VT_BOOL && j->now.n_facts) {
        return look_compare(j, node, arg);
    }
    attn__range r = attn__range_node(j->g, n, &j->box, arg);
    if (integers && node->op == OP_sub && attn__range_fits(&r)) {
        r = difference(j, node->u.arg[0], node->u.arg[1], r);
    }
    return attn__range_wrap(node->type, r);
}

static attn__range look(judge *j, int n) {
    const attn__node *const node = &j->g->node[n];
    if (node->op == OP_leaf) {
        return j->now.leaf[node->sym];
    }
    int32_t key = 1;
    for (int i = 0; j->assumptions && i < ORIGINS; i++) {
        if (j->below[n] >> i & 1 && j->now.stamp[i] >= key) {
            key = j->now.stamp[i] + 1;
        }
    }
    if (j->key[n] == key) {
        return j->value[n];
    }
    if (j->depth >= DEPTH || j->budget <= 0) {
        return with_facts(j, n, plain(j, n));
    }
    j->budget--;
    j->depth++;
    const attn__range r = with_facts(j, n, look_new(j, n));
    j->depth--;
    j->value[n] = r;
    j->key[n] = key;
    return r;
}

/* -- Assuming: 0 where it cannot be ------------------------------------------------------------ */

/* a < b (or a <= b) holds. */
static int assume_less(judge *j, int a, int b, int strict) {
    const attn__range x = look(j, a), y = look(j, b);
    const int integer = j->g->node[a].type == VT_I32;
    if (integer) {
        learn(j, a, b, between(-INFINITY, -strict));
        return narrow(j, a, between(-INFINITY, y.hi - strict)) &&
               narrow(j, b, between(x.lo + strict, INFINITY));
    }
    const double top = strict ? (double)attn__float_step((float)y.hi, -1) : y.hi;
    const double bottom = strict ? (double)attn__float_step((float)x.lo, 1) : x.lo;
    return narrow(j, a, between(-INFINITY, top)) && narrow(j, b, between(bottom, INFINITY));
}

static int assume_equal(judge *j, int a, int b) {
    const attn__range x = look(j, a), y = look(j, b);
    if (j->g->node[a].type == VT_I32) {
        learn(j, a, b, between(0, 0));
    }
    return narrow(j, a, between(y.lo, y.hi)) && narrow(j, b, between(x.lo, x.hi));
}

/* The integer a is not x: an end of its range moves. */
static int exclude(judge *j, int a, double x) {
    const attn__range r = look(j, a);
    return narrow(j, a, between(r.lo == x ? x + 1 : r.lo, r.hi == x ? x - 1 : r.hi));
}

static int assume_unequal(judge *j, int a, int b) {
    const attn__range x = look(j, a), y = look(j, b);
    if (j->g->node[a].type == VT_F32) {
        return 1;
    }
    return (y.lo != y.hi || exclude(j, a, y.lo)) && (x.lo != x.hi || exclude(j, b, x.lo));
}

/* `a && b` is false, `a || b` is true: what one of them is says what the other must be. */
static int assume_other(judge *j, const attn__node *node, int truth) {
    const attn__range a = look(j, node->u.arg[0]), b = look(j, node->u.arg[1]);
    if (a.lo == a.hi && a.lo != truth) {
        return assume(j, node->u.arg[1], truth);
    }
    return b.lo == b.hi && b.lo != truth ? assume(j, node->u.arg[0], truth) : 1;
}

static int assume_new(judge *j, int n, int truth) {
    const attn__node *const node = &j->g->node[n];
    const int a = node->u.arg[0], b = node->u.arg[1];
    switch (node->op) {
    case OP_not: return assume(j, a, !truth);
    case OP_and: return truth ? assume(j, a, 1) && assume(j, b, 1) : assume_other(j, node, 0);
    case OP_or: return truth ? assume_other(j, node, 1) : assume(j, a, 0) && assume(j, b, 0);
    case OP_lt:
    case OP_le:
        if (truth) {
            return assume_less(j, a, b, node->op == OP_lt);
        }
        /* Where neither is NaN, not a < b is b <= a. */
        return look(j, a).nan || look(j, b).nan || assume_less(j, b, a, node->op == OP_le);
    case OP_eq: return truth ? assume_equal(j, a, b) : assume_unequal(j, a, b);
    case OP_ne: return truth ? assume_unequal(j, a, b) : assume_equal(j, a, b);
    default: return 1;
    }
}

static int assume(judge *j, int n, int truth) {
    const attn__range r = look(j, n);
    if (r.lo == r.hi) {
        return r.lo == truth;
    }
    if (j->depth >= DEPTH || j->budget <= 0) {
        return 1;
    }
    j->depth++;
    const int possible = assume_new(j, n, truth);
    j->depth--;
    learn(j, n, -1, between(truth, truth));
    return possible;
}

/* -- Narrowing: node n is in `to`; hands that down to its arguments ---------------------------- */

static int narrow_sum(judge *j, const attn__node *node, attn__range r) {
    const int a = node->u.arg[0], b = node->u.arg[1];
    const attn__range x = look(j, a), y = look(j, b);
    if (node->op == OP_add) {
        return narrow(j, a, between(r.lo - y.hi, r.hi - y.lo)) &&
               narrow(j, b, between(r.lo - x.hi, r.hi - x.lo));
    }
    learn(j, a, b, between(r.lo, r.hi));
    return narrow(j, a, between(r.lo + y.lo, r.hi + y.hi)) &&
           narrow(j, b, between(x.lo - r.hi, x.hi - r.lo));
}

static int narrow_product(judge *j, const attn__node *node, attn__range r) {
    for (int i = 0; i < 2; i++) {
        const attn__range c = look(j, node->u.arg[i]);
        if (c.lo == c.hi && c.lo != 0) {
            const double lo = (c.lo > 0 ? r.lo : r.hi) / c.lo, hi = (c.lo > 0 ? r.hi : r.lo) / c.lo;
            return narrow(j, node->u.arg[1 - i], between(ceil(lo), floor(hi)));
        }
    }
    return 1;
}

/* float(a): f32 holds whole numbers up to 2^24. */
static int narrow_float(judge *j, const attn__node *node, attn__range r) {
    return narrow(j, node->u.arg[0],
                  between(fabs(r.lo) <= 0x1p24 ? ceil(r.lo) : -INFINITY,
                          fabs(r.hi) <= 0x1p24 ? floor(r.hi) : INFINITY));
}

static int narrow_arguments(judge *j, const attn__node *node, attn__range r) {
    const int a = node->u.arg[0], b = node->u.arg[1];
    switch (node->op) {
    case OP_neg: return narrow(j, a, (attn__range){-r.hi, -r.lo, r.nan});
    case OP_abs: return narrow(j, a, (attn__range){-r.hi, r.hi, r.nan});
    case OP_add:
    case OP_sub: return node->type == VT_F32 || narrow_sum(j, node, r);
    case OP_mul: return node->type == VT_F32 || narrow_product(j, node, r);
    case OP_min: /* where it is NaN, only one argument need be */
        return r.nan ||
               (narrow(j, a, between(r.lo, INFINITY)) && narrow(j, b, between(r.lo, INFINITY)));
    case OP_max:
        return r.nan ||
               (narrow(j, a, between(-INFINITY, r.hi)) && narrow(j, b, between(-INFINITY, r.hi)));
    case OP_float: return narrow_float(j, node, r);
    default: return 1;
    }
}

static int narrow(judge *j, int n, attn__range to) {
    const attn__node *const node = &j->g->node[n];
    const attn__range was = look(j, n), r = intersect(was, to);
    if (r.lo > r.hi) {
        return r.nan; /* only NaN is left, which has no range of its own */
    }
    if (r.lo == was.lo && r.hi == was.hi && r.nan == was.nan) {
        return 1;
    }
    if (node->op == OP_leaf) {
        j->now.leaf[node->sym] = r;
        touch(j, n);
        return 1;
    }
    learn(j, n, -1, r);
    if (!attn__has_args(node) || node->op == OP_load || j->depth >= DEPTH || j->budget <= 0) {
        return 1;
    }
    j->budget--;
    attn__range arg[ATTN__MAX_RANK];
    for (int i = 0; i < node->n; i++) {
        arg[i] = look(j, node->u.arg[i]);
    }
    if (node->type == VT_I32) { /* an operation that may wrap says nothing about its arguments */
        const attn__range exact = attn__range_node(j->g, n, &j->box, arg);
        if (!attn__range_fits(&exact)) {
            return 1;
        }
    }
    j->depth++;
    const int possible = narrow_arguments(j, node, r);
    j->depth--;
    return possible;
}

/* -- The class --------------------------------------------------------------------------------- */

static void mark_below(judge *j) {
    for (int i = 0; i < j->n; i++) {
        const attn__node *const node = &j->g->node[i];
        j->key[i] = 0;
        j->below[i] = (uint16_t)(node->op == OP_leaf                           ? 1 << node->sym
                                 : node->op == OP_load || node->op == OP_param ? 1 << SYMBOLS
                                                                               : 0);
        for (int a = 0; attn__has_args(node) && a < node->n; a++) {
            j->below[i] |= j->below[node->u.arg[a]];
        }
    }
}

static int judge_mask(judge *j, int mask, const attn__box *box) {
    j->box = *box;
    /* A score of -inf is masked whatever the mask says. */
    j->box.leaf[LEAF_s].lo = fmax(box->leaf[LEAF_s].lo, -0x1.fffffep127);
    memcpy(j->now.leaf, j->box.leaf, sizeof j->now.leaf);
    memset(j->now.stamp, 0, sizeof j->now.stamp);
    mark_below(j);
    const attn__range r = look(j, mask);
    return r.hi == 0 ? CLASS_NONE : r.lo == 1 ? CLASS_FULL : CLASS_PART;
}

int attn__class(const attn_graph *g, int mask, const attn__box *box) {
    attn__range value[ATTN__CLASS_NODES], plain_value[ATTN__CLASS_NODES];
    int32_t key[ATTN__CLASS_NODES];
    uint16_t below[ATTN__CLASS_NODES];
    judge j;
    if (mask >= ATTN__CLASS_NODES) {
        return CLASS_PART;
    }
    j.g = g;
    j.n = mask + 1;
    j.now.n_facts = j.assumptions = j.depth = j.has_plain = 0;
    j.budget = j.n * BUDGET + 64;
    j.value = value;
    j.plain = plain_value;
    j.key = key;
    j.below = below;
    return judge_mask(&j, mask, box);
}
