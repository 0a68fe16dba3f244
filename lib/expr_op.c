/* expr_op.c: what an operation, a load and a symbol demand: types, promotion, names.

   Who calls it: every builder of graphs (expr_parse, graph, expr_compose, expr_fold, expr_grad). A
   refusal shows the operand at fault as text. A negative argument is the status of the call that
   should have made it and is passed on, so calls nest. */
#include "expr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Operations -------------------------------------------------------------------------------- */

/* Fails with: "`&&` takes bool, and its operand 2, `q - k`, is i32". */
static int op_refuse(const attn_graph *g, int op, int position, int node, const char *takes) {
    char *text = NULL;
    ATTN_TRY(attn__print_node(g, node, &text));
    const int status =
        attn__fail(ATTN_VARIANT, "variant", "`%s` takes %s, and its operand %d, `%.60s%s`, is %s",
                   attn__ops[op].text, takes, position + 1, text, strlen(text) > 60 ? "..." : "",
                   attn__vt_name(g->node[node].type));
    free(text);
    return status;
}

/* x as f32, x itself if it is f32 already. */
static int promote(attn_graph *g, int x) {
    return g->node[x].type == VT_I32 ? attn__op(g, OP_float, x, -1, -1) : x;
}

/* Makes two numbers of one type. */
static int promote_pair(attn_graph *g, int32_t *a, int32_t *b) {
    if (g->node[*a].type != g->node[*b].type) {
        *a = promote(g, *a);
        ATTN_TRY(*a);
        *b = promote(g, *b);
        ATTN_TRY(*b);
    }
    return ATTN_OK;
}

static int want_number(const attn_graph *g, int op, int position, int node) {
    return g->node[node].type != VT_BOOL ? ATTN_OK : op_refuse(g, op, position, node, "numbers");
}

static int want(const attn_graph *g, int op, int position, int node, int type) {
    return g->node[node].type == type ? ATTN_OK
                                      : op_refuse(g, op, position, node, attn__vt_name(type));
}

/* A bool beside a number in a select is a mask: false is -inf, true is s. */
static int mask_to_score(attn_graph *g, int mask) {
    const int s = attn__leaf(g, LEAF_s), masked = attn__const_f(g, -INFINITY);
    return attn__op(g, OP_select, mask, s, masked);
}

static int select_arms(attn_graph *g, int32_t arg[3]) {
    ATTN_TRY(want(g, OP_select, 0, arg[0], VT_BOOL));
    const int mask1 = g->node[arg[1]].type == VT_BOOL, mask2 = g->node[arg[2]].type == VT_BOOL;
    if (mask1 && mask2) {
        return ATTN_OK;
    }
    if (mask1 || mask2) {
        int32_t *const mask = mask1 ? &arg[1] : &arg[2];
        *mask = mask_to_score(g, *mask);
        ATTN_TRY(*mask);
    }
    return promote_pair(g, &arg[1], &arg[2]);
}

/* Checks the operands of `op` and promotes them in place; returns the result's type. */
static int op_type(attn_graph *g, int op, int32_t arg[3]) {
    const int rule = attn__ops[op].rule, n = attn__ops[op].n;
    const int both_bool =
        n == 2 && g->node[arg[0]].type == VT_BOOL && g->node[arg[1]].type == VT_BOOL;
    for (int i = 0; i < n && rule != RULE_BTT_T; i++) {
        switch (rule) {
        case RULE_B_B:
        case RULE_BB_B: ATTN_TRY(want(g, op, i, arg[i], VT_BOOL)); break;
        case RULE_I_I:
        case RULE_II_I: ATTN_TRY(want(g, op, i, arg[i], VT_I32)); break;
        case RULE_EE_B:
            if (both_bool) {
                break;
            }
            /* fall through */
        default: ATTN_TRY(want_number(g, op, i, arg[i])); break;
        }
        if (rule == RULE_F_F || rule == RULE_FF_F || rule == RULE_F_I) {
            arg[i] = promote(g, arg[i]);
            ATTN_TRY(arg[i]);
        }
    }
    switch (rule) {
    case RULE_BTT_T: ATTN_TRY(select_arms(g, arg)); return g->node[arg[1]].type;
    case RULE_EE_B:
    case RULE_NN_B: ATTN_TRY(promote_pair(g, &arg[0], &arg[1])); return VT_BOOL;
    case RULE_NN_N: ATTN_TRY(promote_pair(g, &arg[0], &arg[1])); return g->node[arg[0]].type;
    case RULE_B_B:
    case RULE_BB_B: return VT_BOOL;
    case RULE_I_I:
    case RULE_II_I:
    case RULE_F_I: return VT_I32;
    case RULE_N_N: return g->node[arg[0]].type;
    default: return VT_F32;
    }
}

/* Not min and max: at a tie their first argument takes the derivative. */
static int is_commutative(int op) {
    return op == OP_add || op == OP_mul || op == OP_and || op == OP_or || op == OP_eq ||
           op == OP_ne || op == OP_band || op == OP_bor || op == OP_bxor;
}

int attn__op(attn_graph *g, int op, int a, int b, int c) {
    int32_t arg[3] = {a, b, c};
    const int n = attn__ops[op].n;
    for (int i = 0; i < n; i++) {
        ATTN_TRY(arg[i]);
    }
    /* float of an f32 changes nothing, nor do int, floor and ceil of an i32. */
    const int whole = op == OP_int || op == OP_floor || op == OP_ceil;
    if ((op == OP_float && g->node[a].type == VT_F32) || (whole && g->node[a].type == VT_I32)) {
        return a;
    }
    const int type = op_type(g, op, arg);
    ATTN_TRY(type);
    if (!g->no_fold) {
        if (is_commutative(op) && attn__compare(g, arg[0], arg[1]) > 0) {
            const int32_t first = arg[0];
            arg[0] = arg[1];
            arg[1] = first;
        }
        const int folded =
            attn__fold(g, op, arg[0], n > 1 ? arg[1] : -1, n > 2 ? arg[2] : -1, type);
        if (folded != ATTN__NO_FOLD) {
            return folded;
        }
    }
    attn__node node;
    memset(&node, 0, sizeof node);
    node.op = (uint8_t)op;
    node.type = (uint8_t)type;
    node.n = (uint8_t)n;
    for (int i = 0; i < ATTN__MAX_RANK; i++) {
        node.u.arg[i] = i < n ? arg[i] : -1;
    }
    return attn__node_add(g, node);
}

/* -- Symbols and loads ------------------------------------------------------------------------- */

static int is_word(const char *word, const char *name, size_t length) {
    return strlen(word) == length && !memcmp(word, name, length);
}

int attn__reserved(const char *name, size_t length) {
    static const char *const words[] = {"f32", "i32",  "bool",  "in",     "inf",
                                        "nan", "true", "false", "select", "attn"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (is_word(words[i], name, length)) {
            return 1;
        }
    }
    for (int i = 0; i < LEAF_COUNT; i++) {
        if (is_word(attn__leaf_names[i], name, length)) {
            return 1;
        }
    }
    for (int i = 0; i < OP_leaf; i++) {
        if (is_word(attn__ops[i].text, name, length)) {
            return 1;
        }
    }
    return 0;
}

static int name_check(const char *name) {
    const char *const end = (const char *)memchr(name, 0, ATTN__NAME);
    const size_t n = end ? (size_t)(end - name) : 0;
    if (!end) {
        return attn__fail(ATTN_VARIANT, "name", "the name %.20s... is longer than %d letters", name,
                          ATTN__NAME - 1);
    }
    for (size_t i = 0; i < n; i++) {
        const char c = name[i];
        const int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) {
            return attn__fail(ATTN_VARIANT, "name",
                              "the name '%s' has a character that is no letter, digit or _", name);
        }
    }
    if (n == 0 || attn__reserved(name, n)) {
        return attn__fail(ATTN_VARIANT, "name", "a tensor or parameter cannot be called '%s': %s",
                          name,
                          n ? "the language uses that word" : "a name has at least one letter");
    }
    return ATTN_OK;
}

int attn__symbol_find(const attn_graph *g, const char *name) {
    for (int i = 0; i < g->n_symbols; i++) {
        if (!strcmp(g->symbol[i].name, name)) {
            return i;
        }
    }
    return -1;
}

int attn__symbol_add(attn_graph *g, const attn__symbol *symbol) {
    const int at = attn__symbol_find(g, symbol->name);
    if (at >= 0) {
        const attn__symbol *const old = &g->symbol[at];
        if (old->type != symbol->type || old->rank != symbol->rank ||
            old->bounded != symbol->bounded || old->lo != symbol->lo || old->hi != symbol->hi) {
            return attn__fail(ATTN_VARIANT, "name",
                              "'%s' is %s with %d indices in one place and %s with %d in another%s",
                              symbol->name, attn__vt_name(old->type), old->rank,
                              attn__vt_name(symbol->type), symbol->rank,
                              old->bounded || symbol->bounded ? " (or the bounds differ)" : "");
        }
        return at;
    }
    ATTN_TRY(name_check(symbol->name));
    if (symbol->rank > ATTN__MAX_RANK) {
        return attn__fail(ATTN_VARIANT, "name", "tensor %s has %d indices; at most %d are allowed",
                          symbol->name, symbol->rank, ATTN__MAX_RANK);
    }
    if (symbol->bounded && (symbol->type != VT_I32 || symbol->lo > symbol->hi)) {
        return attn__fail(ATTN_VARIANT, "name",
                          "bounds %d..%d of %s: only i32 has bounds, lo <= hi", symbol->lo,
                          symbol->hi, symbol->name);
    }
    if (g->n_symbols == ATTN__MAX_SYMBOLS) {
        return attn__fail(ATTN_VARIANT, "name", "a variant reads at most %d tensors and parameters",
                          ATTN__MAX_SYMBOLS);
    }
    if (!g->symbol) {
        g->symbol = (attn__symbol *)attn__alloc(ATTN__MAX_SYMBOLS * sizeof *symbol, "symbols");
        if (!g->symbol) {
            return ATTN_MEMORY;
        }
    }
    g->symbol[g->n_symbols] = *symbol;
    return g->n_symbols++;
}

int attn__load(attn_graph *g, int symbol, const int32_t *index, int n) {
    const attn__symbol *const sym = &g->symbol[symbol];
    if (n != sym->rank) {
        return attn__fail(ATTN_VARIANT, sym->name, "%s takes %d indices, not %d", sym->name,
                          sym->rank, n);
    }
    attn__node node;
    memset(&node, 0, sizeof node);
    node.op = n ? OP_load : OP_param;
    node.type = sym->type;
    node.n = (uint8_t)n;
    node.sym = symbol;
    for (int i = 0; i < ATTN__MAX_RANK; i++) {
        node.u.arg[i] = -1;
        if (i < n) {
            ATTN_TRY(index[i]);
            if (g->node[index[i]].type == VT_BOOL) {
                return attn__fail(ATTN_VARIANT, sym->name, "index %d of %s is a bool, not a number",
                                  i + 1, sym->name);
            }
            node.u.arg[i] = attn__op(g, OP_int, index[i], -1, -1);
            ATTN_TRY(node.u.arg[i]);
            /* A promoted i32 is that i32 again, exact past 2^24. */
            const attn__node *const whole = &g->node[node.u.arg[i]];
            if (whole->op == OP_int && g->node[whole->u.arg[0]].op == OP_float) {
                node.u.arg[i] = g->node[whole->u.arg[0]].u.arg[0];
            }
        }
    }
    return attn__node_add(g, node);
}
