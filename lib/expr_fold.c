/* expr_fold.c: algebra on construction; every rule keeps the bits, NaN and signed zero included. */
#include "expr.h"

static int fold_select(attn_graph *g, int c, int a, int b) {
    if (g->node[c].op == OP_const) {
        return g->node[c].u.value.i ? a : b;
    }
    if (a == b) {
        return a;
    }
    if (g->node[a].type == VT_BOOL && g->node[b].type == VT_BOOL) {
        if (g->node[b].op == OP_const) {
            if (!g->node[b].u.value.i) {
                return attn__op(g, OP_and, c, a, -1);
            }
            const int not_c = attn__op(g, OP_not, c, -1, -1);
            return attn__op(g, OP_or, not_c, a, -1);
        }
        if (g->node[a].op == OP_const) {
            if (g->node[a].u.value.i) {
                return attn__op(g, OP_or, c, b, -1);
            }
            const int not_c = attn__op(g, OP_not, c, -1, -1);
            return attn__op(g, OP_and, not_c, b, -1);
        }
    }
    return ATTN__NO_FOLD;
}

int attn__fold(attn_graph *g, int op, int a, int b, int c) {
    switch (op) {
    case OP_select: return fold_select(g, a, b, c);
    case OP_and:
    case OP_or: {
        const int absorbs = op == OP_or;
        if (g->node[a].op == OP_const) {
            return g->node[a].u.value.i == absorbs ? a : b;
        }
        if (g->node[b].op == OP_const) {
            return g->node[b].u.value.i == absorbs ? b : a;
        }
        return a == b ? a : ATTN__NO_FOLD;
    }
    case OP_not:
        if (g->node[a].op == OP_const) {
            return attn__const_b(g, !g->node[a].u.value.i);
        }
        return g->node[a].op == OP_not ? g->node[a].u.arg[0] : ATTN__NO_FOLD;
    case OP_float:
        return g->node[a].op == OP_const ? attn__const_f(g, (float)g->node[a].u.value.i)
                                         : ATTN__NO_FOLD;
    default: return ATTN__NO_FOLD;
    }
}
