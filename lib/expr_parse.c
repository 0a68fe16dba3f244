/* expr_parse.c: text to graph. docs/variants.md has the grammar.

   Who calls it: attn_variant_parse and attn_variant_ready (variants.c), the Lua front end through
   them. The text may be hostile: nesting is bounded, the graph bounds nodes and symbols, and every
   name is looked up in constant time, so the work is linear in the text.

       text -> [attn 1;] declarations -> bindings -> expr -> '?:' -> binary, by precedence -> unary
            -> primary: number, name, call, load, '(' expr ')' */
#include "expr_lex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, N_BUCKETS = 1024 };

typedef struct binding {
    const char *name;
    size_t length;
    int32_t node, next; /* next of the bucket, or -1 */
} binding;

typedef struct parser {
    attn__lexer lex;
    attn_graph *g;
    int depth;
    binding *bound;
    int32_t n_bound, cap_bound;
    int32_t bucket[N_BUCKETS]; /* number + 1 */
} parser;

static int parse_expr(parser *p);

/* -- Numbers ----------------------------------------------------------------------------------- */

static int parse_number(parser *p, int negative) {
    const attn__token t = p->lex.now;
    int32_t i;
    ATTN_TRY(attn__next(&p->lex));
    if (attn__token_i32(&t, negative, &i)) {
        return attn__const_i(p->g, i);
    }
    if (t.length > ATTN__FLOAT_LENGTH) {
        return attn__fail_at(&p->lex, t.at, "a number has at most 100 characters");
    }
    const float f = attn__float_parse(t.at, t.length);
    if (isinf(f)) {
        return attn__fail_at(&p->lex, t.at, "this number does not fit f32");
    }
    return attn__const_f(p->g, negative ? -f : f);
}

static int parse_i32(parser *p, int32_t *x) {
    const int negative = attn__is(&p->lex, "-");
    if (negative) {
        ATTN_TRY(attn__next(&p->lex));
    }
    if (p->lex.now.kind != '0' || !attn__token_i32(&p->lex.now, negative, x)) {
        return attn__fail_expected(&p->lex, "an integer that fits i32");
    }
    return attn__next(&p->lex);
}

/* -- Names ------------------------------------------------------------------------------------- */

static uint32_t name_bucket(const char *name, size_t length) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        h = (h ^ (unsigned char)name[i]) * 16777619u;
    }
    return (h ^ h >> 15) & (N_BUCKETS - 1);
}

static int find_binding(const parser *p, const char *name, size_t length) {
    int at = p->bucket[name_bucket(name, length)] - 1;
    while (at >= 0 && (p->bound[at].length != length || memcmp(p->bound[at].name, name, length))) {
        at = p->bound[at].next;
    }
    return at;
}

static int add_binding(parser *p, const attn__token *name, int node) {
    if (p->n_bound == ATTN__MAX_NODES) {
        return attn__fail_at(&p->lex, name->at, "too many named lines");
    }
    if (p->n_bound == p->cap_bound) {
        const int cap = p->cap_bound ? 2 * p->cap_bound : 16;
        binding *const grown = (binding *)realloc(p->bound, (size_t)cap * sizeof *grown);
        if (!grown) {
            return attn__fail(ATTN_MEMORY, "text", "no memory for %d named lines", cap);
        }
        p->bound = grown;
        p->cap_bound = cap;
    }
    int32_t *const bucket = &p->bucket[name_bucket(name->at, name->length)];
    p->bound[p->n_bound] = (binding){name->at, name->length, node, *bucket - 1};
    *bucket = ++p->n_bound;
    return ATTN_OK;
}

/* A symbol of this name, the declared one or a new f32 one. */
static int use_symbol(parser *p, const char *name, int rank) {
    const int at = attn__symbol_find(p->g, name);
    if (at >= 0) {
        return at;
    }
    attn__symbol symbol;
    memset(&symbol, 0, sizeof symbol);
    memcpy(symbol.name, name, strlen(name));
    symbol.type = VT_F32;
    symbol.rank = (uint8_t)rank;
    return attn__symbol_add(p->g, &symbol);
}

/* -- Expressions ------------------------------------------------------------------------------- */

static int parse_load(parser *p, const char *name) {
    int32_t index[ATTN__MAX_RANK];
    int n = 0;
    while (attn__is(&p->lex, "[")) {
        if (n == ATTN__MAX_RANK) {
            return attn__fail_at(&p->lex, p->lex.now.at, "a tensor has at most 4 indices");
        }
        ATTN_TRY(attn__next(&p->lex));
        index[n] = parse_expr(p);
        ATTN_TRY(index[n]);
        ATTN_TRY(attn__expect(&p->lex, "]"));
        n++;
    }
    const int symbol = use_symbol(p, name, n);
    ATTN_TRY(symbol);
    return attn__load(p->g, symbol, index, n);
}

static int parse_call(parser *p, const char *name) {
    int op = 0;
    while (op < OP_leaf && strcmp(attn__ops[op].text, name)) {
        op++;
    }
    if (!strcmp(name, "select")) {
        op = OP_select;
    }
    if (op == OP_leaf) {
        char what[96];
        snprintf(what, sizeof what, "there is no function '%s'", name);
        return attn__fail_at(&p->lex, p->lex.now.at, what);
    }
    int32_t arg[3] = {-1, -1, -1};
    ATTN_TRY(attn__expect(&p->lex, "("));
    for (int i = 0; i < attn__ops[op].n; i++) {
        if (i) {
            ATTN_TRY(attn__expect(&p->lex, ","));
        }
        arg[i] = parse_expr(p);
        ATTN_TRY(arg[i]);
    }
    ATTN_TRY(attn__expect(&p->lex, ")"));
    return attn__op(p->g, op, arg[0], arg[1], arg[2]);
}

static int parse_name(parser *p) {
    static const char *const words[] = {"true", "false", "inf", "nan"};
    const attn__token t = p->lex.now;
    char name[ATTN__NAME];
    ATTN_TRY(attn__take_name(&p->lex, name));
    const int bound = find_binding(p, t.at, t.length);
    if (bound >= 0) {
        return p->bound[bound].node;
    }
    for (int i = 0; i < 4; i++) {
        if (!strcmp(name, words[i])) {
            return i < 2 ? attn__const_b(p->g, i == 0)
                         : attn__const_f(p->g, i == 2 ? INFINITY : NAN);
        }
    }
    for (int leaf = 0; leaf < LEAF_COUNT; leaf++) {
        if (!strcmp(name, attn__leaf_names[leaf])) {
            return attn__leaf(p->g, leaf);
        }
    }
    return attn__is(&p->lex, "(") ? parse_call(p, name) : parse_load(p, name);
}

static int parse_primary(parser *p) {
    if (p->lex.now.kind == '0') {
        return parse_number(p, 0);
    }
    if (p->lex.now.kind == 'n') {
        return parse_name(p);
    }
    if (!attn__is(&p->lex, "(")) {
        return attn__fail_expected(&p->lex, "a number, a name or '('");
    }
    ATTN_TRY(attn__next(&p->lex));
    const int node = parse_expr(p);
    ATTN_TRY(node);
    ATTN_TRY(attn__expect(&p->lex, ")"));
    return node;
}

static int deeper(parser *p) {
    return ++p->depth <= MAX_DEPTH
               ? ATTN_OK
               : attn__fail_at(&p->lex, p->lex.now.at, "nested too deeply (256)");
}

static int parse_unary(parser *p) {
    const int minus = attn__is(&p->lex, "-");
    if (!minus && !attn__is(&p->lex, "!")) {
        return parse_primary(p);
    }
    ATTN_TRY(attn__next(&p->lex));
    if (minus && p->lex.now.kind == '0') {
        return parse_number(p, 1);
    }
    ATTN_TRY(deeper(p));
    const int x = parse_unary(p);
    p->depth--;
    return attn__op(p->g, minus ? OP_neg : OP_not, x, -1, -1);
}

/* Binary operators that bind at least as tightly as `least`; all group to the left. */
static int parse_binary(parser *p, int least) {
    static const struct {
        const char *text;
        int level, op, swapped;
    } ops[] = {{"||", 1, OP_or, 0}, {"&&", 2, OP_and, 0}, {"==", 3, OP_eq, 0}, {"!=", 3, OP_ne, 0},
               {"<", 4, OP_lt, 0},  {"<=", 4, OP_le, 0},  {">", 4, OP_lt, 1},  {">=", 4, OP_le, 1},
               {"+", 5, OP_add, 0}, {"-", 5, OP_sub, 0},  {"*", 6, OP_mul, 0}, {"/", 6, OP_div, 0},
               {"%", 6, OP_mod, 0}};
    const int n_ops = sizeof ops / sizeof *ops;
    int left = parse_unary(p);
    while (left >= 0) {
        int i = 0;
        while (i < n_ops && (ops[i].level < least || !attn__is(&p->lex, ops[i].text))) {
            i++;
        }
        if (i == n_ops) {
            break;
        }
        ATTN_TRY(attn__next(&p->lex));
        const int right = parse_binary(p, ops[i].level + 1);
        ATTN_TRY(right);
        left = ops[i].swapped ? attn__op(p->g, ops[i].op, right, left, -1)
                              : attn__op(p->g, ops[i].op, left, right, -1);
    }
    return left;
}

static int parse_expr(parser *p) {
    ATTN_TRY(deeper(p));
    int node = parse_binary(p, 1);
    ATTN_TRY(node);
    if (attn__is(&p->lex, "?")) {
        ATTN_TRY(attn__next(&p->lex));
        const int yes = parse_expr(p);
        ATTN_TRY(yes);
        ATTN_TRY(attn__expect(&p->lex, ":"));
        const int no = parse_expr(p);
        ATTN_TRY(no);
        node = attn__op(p->g, OP_select, node, yes, no);
    }
    p->depth--;
    return node;
}

/* -- The text ---------------------------------------------------------------------------------- */

static int parse_version(parser *p) {
    if (!attn__is(&p->lex, "attn")) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__next(&p->lex));
    if (p->lex.now.kind != '0' || !attn__is(&p->lex, "1")) {
        return attn__fail_expected(
            &p->lex, "version 1 of the language, the only one that this library reads");
    }
    ATTN_TRY(attn__next(&p->lex));
    return attn__expect(&p->lex, ";");
}

static int parse_declaration(parser *p, int type) {
    attn__symbol symbol;
    memset(&symbol, 0, sizeof symbol);
    symbol.type = (uint8_t)type;
    ATTN_TRY(attn__next(&p->lex));
    const char *const at = p->lex.now.at;
    ATTN_TRY(attn__take_name(&p->lex, symbol.name));
    if (attn__symbol_find(p->g, symbol.name) >= 0) {
        return attn__fail_at(&p->lex, at, "this name was declared before");
    }
    if (attn__is(&p->lex, "[")) {
        int32_t rank;
        ATTN_TRY(attn__next(&p->lex));
        const char *const rank_at = p->lex.now.at;
        ATTN_TRY(parse_i32(p, &rank));
        if (rank < 1 || rank > ATTN__MAX_RANK) {
            return attn__fail_at(&p->lex, rank_at, "a tensor has 1 to 4 indices");
        }
        symbol.rank = (uint8_t)rank;
        ATTN_TRY(attn__expect(&p->lex, "]"));
    }
    if (attn__is(&p->lex, "in")) {
        symbol.bounded = 1;
        ATTN_TRY(attn__next(&p->lex));
        ATTN_TRY(parse_i32(p, &symbol.lo));
        ATTN_TRY(attn__expect(&p->lex, ".."));
        ATTN_TRY(parse_i32(p, &symbol.hi));
    }
    ATTN_TRY(attn__symbol_add(p->g, &symbol));
    return attn__expect(&p->lex, ";");
}

/* name = expr ; */
static int parse_binding(parser *p) {
    const attn__token t = p->lex.now;
    char name[ATTN__NAME];
    ATTN_TRY(attn__take_name(&p->lex, name));
    if (attn__reserved(name, t.length) || attn__symbol_find(p->g, name) >= 0 ||
        find_binding(p, t.at, t.length) >= 0) {
        return attn__fail_at(&p->lex, t.at, "this name has a meaning already");
    }
    ATTN_TRY(attn__next(&p->lex));
    const int node = parse_expr(p);
    ATTN_TRY(node);
    ATTN_TRY(attn__expect(&p->lex, ";"));
    return add_binding(p, &t, node);
}

/* 1 if the text goes on with: name '='. */
static int at_binding(parser *p) {
    if (p->lex.now.kind != 'n') {
        return 0;
    }
    const attn__token now = p->lex.now;
    const char *const at = p->lex.at;
    const int found = attn__next(&p->lex) == ATTN_OK && attn__is(&p->lex, "=");
    p->lex.now = now;
    p->lex.at = at;
    return found;
}

static int parse_text(parser *p) {
    ATTN_TRY(attn__next(&p->lex));
    ATTN_TRY(parse_version(p));
    for (;;) {
        const int type = attn__is(&p->lex, "f32")    ? VT_F32
                         : attn__is(&p->lex, "i32")  ? VT_I32
                         : attn__is(&p->lex, "bool") ? VT_BOOL
                                                     : -1;
        if (type < 0) {
            break;
        }
        ATTN_TRY(parse_declaration(p, type));
    }
    while (at_binding(p)) {
        ATTN_TRY(parse_binding(p));
    }
    const int root = parse_expr(p);
    ATTN_TRY(root);
    if (p->lex.now.kind != 'e') {
        return attn__fail_expected(&p->lex, "the end");
    }
    return root;
}

int attn__parse(const char *text, attn_graph *g, int *root) {
    parser *const p = (parser *)attn__alloc(sizeof *p, "the parser");
    if (!p) {
        return ATTN_MEMORY;
    }
    memset(p, 0, sizeof *p);
    p->lex.text = p->lex.at = text;
    p->g = g;
    const int node = parse_text(p);
    free(p->bound);
    free(p);
    ATTN_TRY(node);
    *root = node;
    return ATTN_OK;
}
