/* expr_grad.c: the derivative of a score, as more nodes of its graph.

   Who calls it: plans of backward (attn__adjoint_new), the tests.

   Forward mode, a pass upwards for each target: d[n] is the derivative of node n, where it is not
   structurally 0. A 0 chosen by a select stays a choice and is never a factor:

       s > 0 ? log(s) : 0            d = s > 0 ? 1 / s : 0
       sqrt(s > 0 ? s : 0)           d = s > 0 ? 0.5 / sqrt(...) * 1 : 0      not  inf * 0

   so where an arm is not taken, nothing that happens in it is seen. Where such a 0 hides in a sum,
   the factor is chosen away by comparing the sum with 0. */
#include "expr.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 }; /* a derivative that is 0 by structure */

/* -- Sums and products of derivatives; negative numbers but NONE never reach a graph ----------- */

typedef struct tangent {
    attn_graph *g;
    int status; /* the first failure */
} tangent;

static int made(tangent *t, int node) {
    if (node < 0 && t->status == ATTN_OK) {
        t->status = node;
    }
    return node < 0 ? 0 : node;
}
static int op1(tangent *t, int op, int a) {
    return made(t, attn__op(t->g, op, a, -1, -1));
}
static int op2(tangent *t, int op, int a, int b) {
    return made(t, attn__op(t->g, op, a, b, -1));
}
static int number(tangent *t, double x) {
    return made(t, attn__const_f(t->g, (float)x));
}

static int is_number(const tangent *t, int node, float x) {
    const attn__node *const n = &t->g->node[node];
    return n->op == OP_const && n->type == VT_F32 && n->u.value.f == x;
}

/* c ? a : b, where a or b may be NONE. */
static int choose(tangent *t, int c, int a, int b) {
    if (a == NONE && b == NONE) {
        return NONE;
    }
    a = a == NONE ? number(t, 0) : a;
    b = b == NONE ? number(t, 0) : b;
    return a == b ? a : made(t, attn__op(t->g, OP_select, c, a, b));
}

static int sum(tangent *t, int a, int b) {
    return a == NONE ? b : b == NONE ? a : op2(t, OP_add, a, b);
}

static int minus(tangent *t, int a) {
    return a == NONE ? NONE : op1(t, OP_neg, a);
}

static int has_zero_arm(const tangent *t, const attn__node *n) {
    return n->op == OP_select && (is_number(t, n->u.arg[1], 0) || is_number(t, n->u.arg[2], 0));
}

/* May d be 0 because something chose so? Looks a few operations deep and says yes beyond. */
static int may_be_chosen(const tangent *t, int d, int depth) {
    const attn__node *const n = &t->g->node[d];
    if (has_zero_arm(t, n) || depth == 0) {
        return 1;
    }
    switch (n->op) {
    case OP_neg: return may_be_chosen(t, n->u.arg[0], depth - 1);
    case OP_select:
        return may_be_chosen(t, n->u.arg[1], depth - 1) || may_be_chosen(t, n->u.arg[2], depth - 1);
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
        return may_be_chosen(t, n->u.arg[0], depth - 1) || may_be_chosen(t, n->u.arg[1], depth - 1);
    default: return 0;
    }
}

/* The derivative d by a node: d * by (op mul) or d / by (op div), and 0 where d is a chosen 0,
   whatever `by` is. */
static int scaled(tangent *t, int op, int d, int by) {
    enum { FEW = 6 };
    if (d == NONE || is_number(t, d, 0)) {
        return NONE;
    }
    const attn__node n = t->g->node[d];
    if (has_zero_arm(t, &n)) { /* the choice after the product */
        return choose(t, n.u.arg[0], scaled(t, op, n.u.arg[1], by), scaled(t, op, n.u.arg[2], by));
    }
    const int product = op2(t, op, d, by);
    return may_be_chosen(t, d, FEW) ? choose(t, op2(t, OP_eq, d, number(t, 0)), NONE, product)
                                    : product;
}
static int times(tangent *t, int d, int by) {
    return scaled(t, OP_mul, d, by);
}
static int over(tangent *t, int d, int by) {
    return scaled(t, OP_div, d, by);
}

/* -- A rule for each op: a are the arguments, d their derivatives, y is the node itself -------- */

// clang-format off
#define RULE(name) static int grad_##name(tangent *t, int y, const int32_t *a, const int *d)
/* Constant almost everywhere, or no f32. */
#define FLAT(name)                                                                                 \
    RULE(name) { return (void)t, (void)y, (void)a, (void)d, NONE; }

RULE(neg) { return (void)y, (void)a, minus(t, d[0]); }
RULE(abs) {
    const int zero = number(t, 0);
    (void)y;
    return choose(t, op2(t, OP_lt, zero, a[0]), d[0],
                  choose(t, op2(t, OP_lt, a[0], zero), minus(t, d[0]), NONE));
}
RULE(add) { return (void)y, (void)a, sum(t, d[0], d[1]); }
RULE(sub) { return (void)y, (void)a, sum(t, d[0], minus(t, d[1])); }
RULE(mul) { return (void)y, sum(t, times(t, d[0], a[1]), times(t, d[1], a[0])); }
RULE(div) { return sum(t, over(t, d[0], a[1]), minus(t, over(t, times(t, d[1], y), a[1]))); }
FLAT(floordiv)

/* x - n y with a whole n that does not move; 0 for divisor 0. */
static int grad_remainder(tangent *t, const int32_t *a, const int *d, int whole) {
    const int zero = number(t, 0);
    const int moved = sum(t, d[0], minus(t, times(t, d[1], whole)));
    return choose(t, op2(t, OP_eq, a[1], zero), NONE, moved);
}
RULE(mod) { return (void)y, grad_remainder(t, a, d, op1(t, OP_floor, op2(t, OP_div, a[0], a[1]))); }
RULE(fmod) {
    const int q = op2(t, OP_div, a[0], a[1]), zero = number(t, 0);
    (void)y;
    return grad_remainder(
        t, a, d, choose(t, op2(t, OP_lt, q, zero), op1(t, OP_ceil, q), op1(t, OP_floor, q)));
}

/* b x^(b-1) and x^b log x; where b or x is 0 the limits are 0. */
RULE(pow) {
    const int zero = number(t, 0), one = number(t, 1);
    const int lower = op2(t, OP_pow, a[0], op2(t, OP_sub, a[1], one));
    const int by_x = times(t, times(t, d[0], lower), a[1]);
    const int by_b = d[1] == NONE ? NONE : times(t, times(t, d[1], op1(t, OP_log, a[0])), y);
    return sum(t, choose(t, op2(t, OP_eq, a[1], zero), NONE, by_x),
               choose(t, op2(t, OP_lt, zero, a[0]), by_b, NONE));
}
RULE(min) { return (void)y, choose(t, op2(t, OP_le, a[0], a[1]), d[0], d[1]); }
RULE(max) { return (void)y, choose(t, op2(t, OP_le, a[1], a[0]), d[0], d[1]); }
RULE(exp) { return (void)a, times(t, d[0], y); }
RULE(exp2) { return (void)a, times(t, times(t, d[0], y), number(t, 0x1.62e42fefa39efp-1)); }
RULE(log) { return (void)y, over(t, d[0], a[0]); }
RULE(log2) { return (void)y, times(t, over(t, d[0], a[0]), number(t, 0x1.71547652b82fep+0)); }
RULE(tanh) { return (void)a, times(t, d[0], op2(t, OP_sub, number(t, 1), op2(t, OP_mul, y, y))); }
RULE(sqrt) { return (void)a, over(t, times(t, d[0], number(t, 0.5)), y); }
RULE(sin) { return (void)y, times(t, d[0], op1(t, OP_cos, a[0])); }
RULE(cos) { return (void)y, minus(t, times(t, d[0], op1(t, OP_sin, a[0]))); }
FLAT(floor)
FLAT(ceil)
FLAT(band)
FLAT(bor)
FLAT(bxor)
FLAT(bnot)
FLAT(shl)
FLAT(shr)
FLAT(sar)
FLAT(lt)
FLAT(le)
FLAT(eq)
FLAT(ne)
FLAT(and)
FLAT(or)
FLAT(not)
RULE(select) { return (void)y, choose(t, a[0], d[1], d[2]); }
FLAT(float)
FLAT(int)

// clang-format on

static int (*const rules[])(tangent *t, int y, const int32_t *a, const int *d) = {
#define X(name, ...) grad_##name,
    ATTN_OPS(X)
#undef X
};

/* -- Passes ------------------------------------------------------------------------------------ */

int attn__derivative(attn_graph *g, int root, int target) {
    int *const d = attn__alloc((size_t)(root + 1) * sizeof *d, "derivatives");
    if (!d) {
        return ATTN_MEMORY;
    }
    tangent t = {g, ATTN_OK};
    for (int i = 0; i <= root && t.status == ATTN_OK; i++) {
        const attn__node node = g->node[i]; /* the array may move */
        int any = 0, arg_d[3] = {NONE, NONE, NONE};
        d[i] = i == target ? number(&t, 1) : NONE;
        for (int a = 0; node.op < OP_leaf && a < node.n; a++) {
            arg_d[a] = d[node.u.arg[a]];
            any |= arg_d[a] != NONE;
        }
        if (any && node.type == VT_F32) {
            d[i] = rules[node.op](&t, i, node.u.arg, arg_d);
        }
    }
    const int result = d[root] == NONE ? number(&t, 0) : d[root];
    free(d);
    return t.status < 0 ? t.status : result;
}

/* One f32 load or parameter that the score reads. */
static int add_site(attn__adjoint *a, int load) {
    const int d = attn__derivative(&a->graph, a->score, load);
    ATTN_TRY(d);
    const attn__node node = a->graph.node[load], derivative = a->graph.node[d];
    if (derivative.op == OP_const && derivative.u.value.f == 0) {
        return ATTN_OK;
    }
    attn__site site = {.symbol = node.sym, .load = load, .d = d};
    for (int i = 0; node.op == OP_load && i < node.n; i++) {
        site.index[site.n++] = node.u.arg[i];
    }
    a->site[a->n_sites++] = site;
    return ATTN_OK;
}

static int add_sites(attn__adjoint *a) {
    const int n = a->score + 1;
    uint8_t *const need = attn__alloc((size_t)a->graph.n, "derivatives");
    if (!need) {
        return ATTN_MEMORY;
    }
    attn__need(&a->graph, &a->score, 1, need);
    int count = 0, status = ATTN_OK;
    for (int i = 0; i < n; i++) {
        const attn__node *const node = &a->graph.node[i];
        need[i] &= (node->op == OP_load || node->op == OP_param) && node->type == VT_F32;
        count += need[i];
    }
    a->site = attn__alloc((size_t)count * sizeof *a->site, "derivatives");
    status = a->site ? ATTN_OK : ATTN_MEMORY;
    for (int i = 0; i < n && status >= 0; i++) {
        status = need[i] ? add_site(a, i) : ATTN_OK;
    }
    free(need);
    return status;
}

/* The variant's graph, node for node: score and mask keep their numbers. */
static int copy_graph(attn__adjoint *a, const attn_variant *v) {
    const attn_graph *const from = &v->graph;
    for (int i = 0; i < from->n_symbols; i++) {
        ATTN_TRY(attn__symbol_add(&a->graph, &from->symbol[i]));
    }
    for (int i = 0; i < from->n; i++) {
        ATTN_TRY(attn__node_add(&a->graph, from->node[i]));
    }
    a->score = v->score;
    a->mask = v->mask;
    return ATTN_OK;
}

int attn__adjoint_new(const attn_variant *v, attn__adjoint **out) {
    attn__adjoint *const a = calloc(1, sizeof *a);
    if (!a) {
        return attn__fail(ATTN_MEMORY, "variant", "out of memory for the derivative of a variant");
    }
    attn__graph_init(&a->graph);
    int status = copy_graph(a, v);
    if (status >= 0) {
        const int s = attn__leaf(&a->graph, LEAF_s);
        a->ds = s < 0 ? s : attn__derivative(&a->graph, a->score, s);
        status = a->ds < 0 ? a->ds : add_sites(a);
    }
    if (status < 0) {
        attn__adjoint_free(a);
        return status;
    }
    *out = a;
    return ATTN_OK;
}

void attn__adjoint_free(attn__adjoint *a) {
    if (a) {
        attn__graph_clear(&a->graph);
        free(a->site);
        free(a);
    }
}
