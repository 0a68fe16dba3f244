/* expr_fold.c: algebra on construction.

   Who calls it: attn__op (expr_op.c), for every operation of every graph. The operands have the
   right types, and those of a commutative operation are in order: a constant is the second.

   A rule keeps the value bit by bit, NaN, infinities and signed zero included, as long as no i32
   operation overflows; so x + 0.0 stays (it turns -0 into 0) and x - 0.0 goes. The one exception is
   wanted: floor(a / b) of two i32 is floordiv(a, b), exact where the f32 quotient is not.

   A rule looks at what the operands are, never at their numbers or at what else the graph holds:
   rebuilding a folded node from its operands gives that node again, which is why parse(print(x)) is
   x. */
#include "expr.h"

/* -- Looking at operands ----------------------------------------------------------------------- */

static int op_of(const attn_graph *g, int x) {
    return g->node[x].op;
}
static int arg_of(const attn_graph *g, int x, int i) {
    return g->node[x].u.arg[i];
}

static int is_const(const attn_graph *g, int x) {
    return g->node[x].op == OP_const;
}

/* An i32 or bool constant of this value. */
static int is_i(const attn_graph *g, int x, int32_t value) {
    return is_const(g, x) && g->node[x].type != VT_F32 && g->node[x].u.value.i == value;
}

/* An f32 constant of this value; 0 is +0 alone. */
static int is_f(const attn_graph *g, int x, float value) {
    const float f = g->node[x].u.value.f;
    return is_const(g, x) && g->node[x].type == VT_F32 && f == value &&
           !__builtin_signbit(f) == !__builtin_signbit(value);
}

/* x and y are bools, and one is true exactly where the other is false. */
static int are_opposite(const attn_graph *g, int x, int y) {
    const attn__node *const a = &g->node[x], *const b = &g->node[y];
    if (a->op == OP_not || b->op == OP_not) {
        return (a->op == OP_not && a->u.arg[0] == y) || (b->op == OP_not && b->u.arg[0] == x);
    }
    if ((a->op == OP_eq && b->op == OP_ne) || (a->op == OP_ne && b->op == OP_eq)) {
        return a->u.arg[0] == b->u.arg[0] && a->u.arg[1] == b->u.arg[1];
    }
    if ((a->op == OP_lt && b->op == OP_le) || (a->op == OP_le && b->op == OP_lt)) {
        return a->u.arg[0] == b->u.arg[1] && a->u.arg[1] == b->u.arg[0] &&
               g->node[a->u.arg[0]].type == VT_I32;
    }
    return 0;
}

/* x is one of the operands of the chain `y` of `op` (and, or); long chains are searched in part. */
static int in_chain(const attn_graph *g, int op, int x, int y) {
    for (int steps = 0; steps < 64 && op_of(g, y) == op; steps++) {
        const int a = arg_of(g, y, 0), b = arg_of(g, y, 1);
        if (a == x || b == x) {
            return 1;
        }
        y = op_of(g, b) == op ? b : a; /* the higher operand is the second */
    }
    return 0;
}

/* -- Constants --------------------------------------------------------------------------------- */

/* ATTN_VARIANT if an i32 operation on constants leaves i32. */
static int check_i32(int op, int64_t a, int64_t b) {
    int64_t r;
    switch (op) {
    case OP_neg: r = -a; break;
    case OP_abs: r = a < 0 ? -a : a; break;
    case OP_add: r = a + b; break;
    case OP_sub: r = a - b; break;
    case OP_mul: r = a * b; break;
    case OP_floordiv: r = b == -1 ? -a : 0; break;
    default: return ATTN_OK;
    }
    if (r < INT32_MIN || r > INT32_MAX) {
        return attn__fail(ATTN_VARIANT, "variant",
                          "`%s` of the i32 constants %lld and %lld does not fit i32",
                          attn__ops[op].text, (long long)a, (long long)b);
    }
    return ATTN_OK;
}

static attn__val32 value_of(const attn_graph *g, int x) {
    attn__val32 v;
    if (g->node[x].type == VT_F32) {
        v.f = g->node[x].u.value.f;
    } else {
        v.i = g->node[x].u.value.i;
    }
    return v;
}

/* All operands are constants. */
static int fold_constants(attn_graph *g, int op, const int32_t arg[3], int type) {
    attn__val32 v[3] = {{.i = 0}, {.i = 0}, {.i = 0}};
    const int arg_type = g->node[arg[0]].type;
    for (int i = 0; i < attn__ops[op].n; i++) {
        v[i] = value_of(g, arg[i]);
    }
    if (arg_type == VT_I32 && type == VT_I32) {
        ATTN_TRY(check_i32(op, v[0].i, v[1].i));
    }
    const attn__val32 r = attn__op32(op, arg_type, v[0], v[1], v[2]);
    return type == VT_F32   ? attn__const_f(g, r.f)
           : type == VT_I32 ? attn__const_i(g, r.i)
                            : attn__const_b(g, r.i);
}

/* -- Arithmetic -------------------------------------------------------------------------------- */

/* x + c with the constant joined to one that x adds already; i32. */
static int fold_add_constant(attn_graph *g, int x, int c) {
    if (op_of(g, x) != OP_add || !is_const(g, arg_of(g, x, 1))) {
        return ATTN__NO_FOLD;
    }
    const int64_t sum = (int64_t)g->node[arg_of(g, x, 1)].u.value.i + (int64_t)g->node[c].u.value.i;
    if (sum < INT32_MIN || sum > INT32_MAX) {
        return ATTN__NO_FOLD;
    }
    const int both = attn__const_i(g, (int32_t)sum);
    return attn__op(g, OP_add, arg_of(g, x, 0), both, -1);
}

/* Sums and differences, i32 and f32 alike: a - c becomes a + -c, a + -b becomes a - b. */
static int fold_sum(attn_graph *g, int op, int a, int b) {
    const int is_i32 = g->node[a].type == VT_I32;
    if (op == OP_add) {
        if (is_i(g, b, 0) || is_f(g, b, -0.0f)) {
            return a;
        }
        if (is_i32 && is_const(g, b)) {
            return fold_add_constant(g, a, b);
        }
        if (op_of(g, b) == OP_neg) {
            return attn__op(g, OP_sub, a, arg_of(g, b, 0), -1);
        }
        return op_of(g, a) == OP_neg ? attn__op(g, OP_sub, b, arg_of(g, a, 0), -1) : ATTN__NO_FOLD;
    }
    if (is_i32 && a == b) {
        return attn__const_i(g, 0);
    }
    if (is_i(g, a, 0)) {
        return attn__op(g, OP_neg, b, -1, -1);
    }
    if (is_const(g, b) && !(is_i32 && g->node[b].u.value.i == INT32_MIN)) {
        const int minus = attn__op(g, OP_neg, b, -1, -1);
        return attn__op(g, OP_add, a, minus, -1);
    }
    return op_of(g, b) == OP_neg ? attn__op(g, OP_add, a, arg_of(g, b, 0), -1) : ATTN__NO_FOLD;
}

/* A quotient of two i32 stays one even by 1: floor makes it a floordiv. */
static int fold_product(attn_graph *g, int op, int a, int b) {
    if (op == OP_div && op_of(g, a) == OP_float) {
        return ATTN__NO_FOLD;
    }
    if (is_i(g, b, 1) || is_f(g, b, 1)) {
        return a;
    }
    if (is_i(g, b, -1) || is_f(g, b, -1)) {
        return attn__op(g, OP_neg, a, -1, -1);
    }
    return op == OP_mul && is_i(g, b, 0) ? b : ATTN__NO_FOLD;
}

static int fold_unary(attn_graph *g, int op, int a) {
    const int below = op_of(g, a);
    if (op == OP_abs) {
        return below == OP_abs ? a : ATTN__NO_FOLD;
    }
    if (below == OP_neg) {
        return arg_of(g, a, 0);
    }
    return below == OP_sub && g->node[a].type == VT_I32
               ? attn__op(g, OP_sub, arg_of(g, a, 1), arg_of(g, a, 0), -1)
               : ATTN__NO_FOLD;
}

/* The i32 that an f32 node is the promotion of; -1 if there is none. */
static int unpromoted(attn_graph *g, int x) {
    if (op_of(g, x) == OP_float) {
        return arg_of(g, x, 0);
    }
    const float f = g->node[x].u.value.f;
    return is_const(g, x) && f >= -0x1p31f && f < 0x1p31f && f == (float)(int32_t)f
               ? attn__const_i(g, (int32_t)f)
               : -1;
}

/* floor and ceil of what is whole, and of a quotient of two i32. */
static int fold_floor(attn_graph *g, int op, int x) {
    const int below = op_of(g, x);
    if (below == OP_floor || below == OP_ceil || below == OP_float) {
        return x;
    }
    if (below != OP_div) {
        return ATTN__NO_FOLD;
    }
    int a = unpromoted(g, arg_of(g, x, 0));
    const int b = a == -1 ? -1 : unpromoted(g, arg_of(g, x, 1));
    if (b == -1) {
        return ATTN__NO_FOLD;
    }
    if (op == OP_floor) {
        return attn__op(g, OP_floordiv, a, b, -1);
    }
    a = attn__op(g, OP_neg, a, -1, -1);
    const int quotient = attn__op(g, OP_floordiv, a, b, -1);
    return attn__op(g, OP_neg, quotient, -1, -1);
}

/* i32 quotients, remainders, bits and shifts. */
static int fold_i32(attn_graph *g, int op, int a, int b) {
    const int b0 = is_i(g, b, 0), b1 = is_i(g, b, 1), minus = is_i(g, b, -1);
    switch (op) {
    case OP_floordiv:
        return is_i(g, a, 0) || b1 ? a
               : b0                ? b
               : minus             ? attn__op(g, OP_neg, a, -1, -1)
                                   : ATTN__NO_FOLD;
    case OP_mod:
    case OP_fmod:
        return is_i(g, a, 0)                 ? a
               : b0 || b1 || minus || a == b ? attn__const_i(g, 0)
                                             : ATTN__NO_FOLD;
    case OP_band: return b0 ? b : minus || a == b ? a : ATTN__NO_FOLD;
    case OP_bor: return minus ? b : b0 || a == b ? a : ATTN__NO_FOLD;
    case OP_bxor: return a == b ? attn__const_i(g, 0) : b0 ? a : ATTN__NO_FOLD;
    default: /* shl, shr, sar */
        return is_i(g, a, 0) || (is_const(g, b) && g->node[b].u.value.i % 32 == 0) ? a
                                                                                   : ATTN__NO_FOLD;
    }
}

/* -- Truth ------------------------------------------------------------------------------------- */

static int fold_compare(attn_graph *g, int op, int a, int b) {
    const int type = g->node[a].type;
    if (a == b && (type != VT_F32 || op == OP_lt)) {
        return attn__const_b(g, op == OP_eq || op == OP_le);
    }
    if (type == VT_BOOL && is_const(g, b)) {
        const int keep = is_i(g, b, op == OP_eq);
        return keep ? a : attn__op(g, OP_not, a, -1, -1);
    }
    return ATTN__NO_FOLD;
}

/* The opposite of x is no larger than x. */
static int is_negatable(const attn_graph *g, int x) {
    const int op = op_of(g, x);
    return op == OP_not || op == OP_eq || op == OP_ne ||
           ((op == OP_lt || op == OP_le) && g->node[arg_of(g, x, 0)].type == VT_I32);
}

static int fold_not(attn_graph *g, int x) {
    const int op = op_of(g, x), a = arg_of(g, x, 0), b = arg_of(g, x, 1);
    if ((op == OP_and || op == OP_or) && is_negatable(g, a) && is_negatable(g, b)) {
        const int not_a = attn__op(g, OP_not, a, -1, -1);
        const int not_b = attn__op(g, OP_not, b, -1, -1);
        return attn__op(g, op == OP_and ? OP_or : OP_and, not_a, not_b, -1);
    }
    if (!is_negatable(g, x)) {
        return ATTN__NO_FOLD;
    }
    switch (op) {
    case OP_eq: return attn__op(g, OP_ne, a, b, -1);
    case OP_ne: return attn__op(g, OP_eq, a, b, -1);
    case OP_lt: return attn__op(g, OP_le, b, a, -1);
    case OP_le: return attn__op(g, OP_lt, b, a, -1);
    default: return a;
    }
}

/* and, or: x && x, x && !x, x && (x && y), x && (x || y). */
static int fold_both(attn_graph *g, int op, int a, int b) {
    const int is_or = op == OP_or, dual = is_or ? OP_and : OP_or;
    if (is_const(g, b)) {
        return is_i(g, b, is_or) ? b : a;
    }
    if (a == b || in_chain(g, dual, a, b) || in_chain(g, op, b, a)) {
        return a;
    }
    if (in_chain(g, op, a, b) || in_chain(g, dual, b, a)) {
        return b;
    }
    return are_opposite(g, a, b) ? attn__const_b(g, is_or) : ATTN__NO_FOLD;
}

/* A select of two bools of which one is constant or the condition. */
static int fold_select_bool(attn_graph *g, int c, int a, int b) {
    if (is_i(g, a, 1) || a == c) {
        return attn__op(g, OP_or, c, b, -1);
    }
    if (is_i(g, b, 0) || b == c) {
        return attn__op(g, OP_and, c, a, -1);
    }
    if (!is_const(g, a) && !is_const(g, b)) {
        return ATTN__NO_FOLD;
    }
    const int not_c = attn__op(g, OP_not, c, -1, -1);
    return is_const(g, a) ? attn__op(g, OP_and, not_c, b, -1) : attn__op(g, OP_or, not_c, a, -1);
}

/* A select inside a select that shares its condition or an arm: one select is enough. */
static int fold_select_select(attn_graph *g, int c, int a, int b) {
    if (op_of(g, a) == OP_select) {
        const int d = arg_of(g, a, 0), x = arg_of(g, a, 1), y = arg_of(g, a, 2);
        if (d == c) {
            return attn__op(g, OP_select, c, x, b);
        }
        if (x == b || y == b) {
            const int inner = y == b ? d : attn__op(g, OP_not, d, -1, -1);
            const int both = attn__op(g, OP_and, c, inner, -1);
            return attn__op(g, OP_select, both, y == b ? x : y, b);
        }
    }
    if (op_of(g, b) == OP_select) {
        const int d = arg_of(g, b, 0), x = arg_of(g, b, 1), y = arg_of(g, b, 2);
        if (d == c) {
            return attn__op(g, OP_select, c, a, y);
        }
        if (x == a || y == a) {
            const int inner = x == a ? d : attn__op(g, OP_not, d, -1, -1);
            const int either = attn__op(g, OP_or, c, inner, -1);
            return attn__op(g, OP_select, either, a, x == a ? y : x);
        }
    }
    return ATTN__NO_FOLD;
}

static int fold_select(attn_graph *g, int c, int a, int b) {
    if (is_const(g, c)) {
        return is_i(g, c, 1) ? a : b;
    }
    if (a == b) {
        return a;
    }
    if (op_of(g, c) == OP_not) {
        return attn__op(g, OP_select, arg_of(g, c, 0), b, a);
    }
    if (g->node[a].type == VT_BOOL) {
        const int folded = fold_select_bool(g, c, a, b);
        if (folded != ATTN__NO_FOLD) {
            return folded;
        }
    }
    return fold_select_select(g, c, a, b);
}

/* -- Every operation --------------------------------------------------------------------------- */

int attn__fold(attn_graph *g, int op, int a, int b, int c, int type) {
    const int32_t arg[3] = {a, b, c};
    int constants = 0;
    for (int i = 0; i < attn__ops[op].n; i++) {
        constants += is_const(g, arg[i]);
    }
    if (constants == attn__ops[op].n && op != OP_select) {
        return fold_constants(g, op, arg, type);
    }
    switch (op) {
    case OP_neg:
    case OP_abs: return fold_unary(g, op, a);
    case OP_add:
    case OP_sub: return fold_sum(g, op, a, b);
    case OP_mul:
    case OP_div: return fold_product(g, op, a, b);
    case OP_mod:
    case OP_fmod: return type == VT_I32 ? fold_i32(g, op, a, b) : ATTN__NO_FOLD;
    case OP_floordiv:
    case OP_band:
    case OP_bor:
    case OP_bxor:
    case OP_shl:
    case OP_shr:
    case OP_sar: return fold_i32(g, op, a, b);
    case OP_min:
    case OP_max: return a == b ? a : ATTN__NO_FOLD;
    case OP_pow: return is_f(g, b, 1) ? a : ATTN__NO_FOLD;
    case OP_floor:
    case OP_ceil: return fold_floor(g, op, a);
    case OP_bnot: return op_of(g, a) == OP_bnot ? arg_of(g, a, 0) : ATTN__NO_FOLD;
    case OP_lt:
    case OP_le:
    case OP_eq:
    case OP_ne: return fold_compare(g, op, a, b);
    case OP_and:
    case OP_or: return fold_both(g, op, a, b);
    case OP_not: return fold_not(g, a);
    case OP_select: return fold_select(g, a, b, c);
    default: return ATTN__NO_FOLD;
    }
}
