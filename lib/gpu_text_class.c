/* gpu_text_class.c: attn_class of a variant's text: what its mask is for a box of pairs.

   Who calls it: gpu_text.c. One interval per node that is needed, named by its number:

       DEV attn_iv span_0(const attn_params *p, attn_iv i0) {...}     least and greatest element
       DEV int attn_class(const attn_params *p, const attn_box *box) {
           const attn_iv y1 = iv(box->q0, box->q1); ...

   An i32 node always has an interval (at worst all of i32), a bool node too; an f32 node only where
   interval.h has a rule and no place of the language makes it NaN or infinite, or where it is read
   from a tensor: what a box reads is looked at, if it is few elements. */
#include "gpu_text_int.h"

#include <stdlib.h>

/* Leaves that a box has two ends of. */
static const char *const ends[LEAF_COUNT][2] = {
    [LEAF_h] = {"box->h0", "box->h1"},
    [LEAF_q] = {"box->q0", "box->q1"},
    [LEAF_k] = {"box->k0", "box->k1"},
    [LEAF_i] = {"box->i0", "box->i1"},
};

static int has_f32_rule(int op) {
    switch (op) {
    case OP_neg:
    case OP_abs:
    case OP_add:
    case OP_sub:
    case OP_mul:
    case OP_div:
    case OP_min:
    case OP_max:
    case OP_floor:
    case OP_ceil:
    case OP_float:
    case OP_select: return 1;
    default: return 0;
    }
}

/* known[i]: 0 if node i has no interval in the text. */
static void find_known(const attn_graph *g, int root, const attn__range *range, uint8_t *known) {
    for (int i = 0; i <= root; i++) {
        const attn__node *const node = &g->node[i];
        const attn__range *const r = &range[i];
        if (node->type != VT_F32 || node->op == OP_load) {
            known[i] = 1;
            continue;
        }
        known[i] = !r->nan && r->lo >= -3e38 && r->hi <= 3e38 &&
                   (node->op == OP_const || has_f32_rule(node->op));
        for (int j = 0; known[i] && attn__has_args(node) && j < node->n; j++) {
            known[i] = known[node->u.arg[j]];
        }
    }
}

static void put_interval_leaf(attn__text *t, const attn__node *node) {
    const char *const *const end = ends[node->sym];
    if (end[0]) {
        put(t, "iv(%s, %s)", end[0], end[1]);
    } else {
        put(t, "iv(box->%s, box->%s)", attn__leaf_names[node->sym], attn__leaf_names[node->sym]);
    }
}

static void put_interval_op(attn__text *t, const attn_graph *g, const attn__node *node,
                            const uint8_t *known) {
    int f32 = 0, all_known = 1;
    for (int i = 0; i < node->n; i++) {
        f32 |= g->node[node->u.arg[i]].type == VT_F32;
        all_known &= known[node->u.arg[i]];
    }
    if (!all_known) {
        put(t, node->type == VT_BOOL ? "iv(0, 1)" : "iv_all()");
        return;
    }
    put(t, "%s_%s(", f32 ? "fv" : "iv", attn__ops[node->op].name);
    for (int i = 0; i < node->n; i++) {
        put(t, "%sy%d", i ? ", " : "", (int)node->u.arg[i]);
    }
    put(t, ")");
}

/* What a load may give: an i32 within its declared bounds, or the 0 of what lies outside. */
static void put_bounds(attn__text *t, const attn__symbol *symbol) {
    if (symbol->type == VT_F32) {
        put(t, "fv_all()");
    } else if (symbol->type == VT_BOOL) {
        put(t, "iv(0, 1)");
    } else if (symbol->bounded) {
        put(t, "iv(%d, %d)", (int)(symbol->lo < 0 ? symbol->lo : 0),
            (int)(symbol->hi > 0 ? symbol->hi : 0));
    } else {
        put(t, "iv_all()");
    }
}

/* From the tensor's table, if it has one and all indices but the last are one number each. */
static void put_from_table(attn__text *t, const attn__symbol *symbol, int word) {
    const int last = symbol->rank - 1;
    put(t, "    i64 row = 0;\n    u64 table = (u64)p->word[%d];\n    int one = table != 0;\n",
        word + 1 + 2 * symbol->rank);
    for (int i = 0; i < last; i++) {
        put(t, "    one &= iv_single(i%d) & ((u64)(i64)i%d.lo < (u64)p->word[%d]);\n", i, i,
            word + 1 + 2 * i);
        put(t, "    row = row * p->word[%d] + i%d.lo;\n", word + 1 + 2 * i, i);
    }
    put(t, "    if (one) {\n        const i64 extent = p->word[%d];\n", word + 1 + 2 * last);
    put(t, "        table += (u64)(row * ((extent + SPAN - 1) / SPAN)) * 8;\n");
    put(t, "        return %s_span(table, i%d, extent", symbol->type == VT_F32 ? "fv" : "iv", last);
    if (symbol->type != VT_F32) {
        put(t, ", ");
        put_bounds(t, symbol);
    }
    put(t, ");\n    }\n");
}

/* The least and the greatest of the elements that a box of indices has, if they are few; word: the
   first of the symbol's that has a table, else -1. */
static void put_span(attn__text *t, const attn__symbol *symbol, int number, int word) {
    const char *const kind = symbol->type == VT_F32 ? "fv" : "iv";
    put(t, "DEV attn_%s span_%d(const attn_params *p", kind, number);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, ", attn_iv i%d", i);
    }
    put(t, ") {\n    attn_%s r = %s_none();\n    i32 n = 1;\n", kind, kind);
    if (word >= 0) {
        put_from_table(t, symbol, word);
    }
    for (int i = 0; i < symbol->rank; i++) {
        put(t, "    n = iv_times(n, i%d);\n", i);
    }
    put(t, "    if (n > IV_MOST) {\n        return ");
    put_bounds(t, symbol);
    put(t, ";\n    }\n");
    for (int i = 0; i < symbol->rank; i++) {
        put(t, "%sfor (i32 n%d = 0; n%d <= i%d.hi - i%d.lo; n%d++)\n",
            i + 1 < symbol->rank ? "    " : "    EIGHTFOLD ", i, i, i, i, i);
    }
    put(t, "    r = %s_with(r, read_%d(p", kind, number);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, ", i%d.lo + n%d", i, i);
    }
    put(t, "));\n    return r;\n}\n");
}

static void put_interval_load(attn__text *t, const attn__node *node) {
    put(t, "span_%d(p", (int)node->sym);
    for (int i = 0; i < node->n; i++) {
        put(t, ", y%d", (int)node->u.arg[i]);
    }
    put(t, ")");
}

/* Once for each tensor that is read by a node that is needed. */
static void put_spans(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                      const uint8_t *need, const uint8_t *has) {
    for (int symbol = 0; symbol < g->n_symbols; symbol++) {
        int read = 0;
        for (int i = 0; i <= root; i++) {
            read |= need[i] && g->node[i].op == OP_load && g->node[i].sym == symbol;
        }
        if (read) {
            put_span(t, &g->symbol[symbol], symbol, has[symbol] ? word[symbol] : -1);
        }
    }
}

static void put_interval(attn__text *t, const attn_graph *g, const int32_t *word, int at,
                         const uint8_t *known) {
    const attn__node *const node = &g->node[at];
    put(t, "    const attn_%s y%d = ", node->type == VT_F32 ? "fv" : "iv", at);
    switch (node->op) {
    case OP_leaf: put_interval_leaf(t, node); break;
    case OP_const:
        put(t, node->type == VT_F32 ? "fv(" : "iv(");
        attn__put_constant(t, node);
        put(t, ", ");
        attn__put_constant(t, node);
        put(t, ")");
        break;
    case OP_param:
        put(t, "iv((i32)p->word[%d], (i32)p->word[%d])", (int)word[node->sym],
            (int)word[node->sym]);
        break;
    case OP_load: put_interval_load(t, node); break;
    default: put_interval_op(t, g, node, known);
    }
    put(t, ";\n");
}

int attn__put_class(attn__text *t, const attn_graph *g, const int32_t *word, int root, int tables,
                    uint8_t *need) {
    const size_t n = (size_t)root + 1;
    attn__range *const range = attn__alloc(n * (sizeof *range + 2), "a plan");
    if (!range) {
        return ATTN_MEMORY;
    }
    uint8_t *const known = (uint8_t *)(range + n);
    const int32_t roots[] = {root};
    uint8_t has[ATTN__MAX_SYMBOLS] = {0};
    attn__box box;
    int count = 0;
    attn__box_init(&box, NULL);
    attn__ranges(g, root, &box, range);
    find_known(g, root, range, known);
    attn__need(g, roots, 1, need);
    if (tables) {
        attn__span_symbols(g, need, root, known + n, has);
    }
    for (int i = 0; i <= root; i++) {
        count += need[i];
    }
    if (count <= ATTN__CLASS_NODES) {
        put_spans(t, g, word, root, need, has);
    }
    put(t, "DEV int attn_class(const attn_params *p, const attn_box *box) {\n");
    put(t, "    (void)p, (void)box;\n");
    for (int i = 0; count <= ATTN__CLASS_NODES && i <= root; i++) {
        if (need[i] && known[i]) {
            put_interval(t, g, word, i, known);
        }
    }
    if (count <= ATTN__CLASS_NODES) {
        put(t, "    return y%d.lo ? 2 : y%d.hi ? 1 : 0;\n}\n", root, root);
    } else {
        put(t, "    return 1;\n}\n");
    }
    free(range);
    return ATTN_OK;
}
