/* expr_parse.c: text to graph. docs/variants.md has the grammar.

   Who calls it: attn_variant_parse and attn_variant_ready (variants.c), the Lua front end through
   them. The text may be hostile: nesting is bounded, nodes and symbols are bounded by the graph, and
   every name is looked up in constant time, so the work is linear in the text.

       text -> [attn 1;] declarations -> bindings -> expr -> '?:' -> binary, by precedence -> unary
            -> primary: number, name, call, load, '(' expr ')' */
#include "expr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, N_BUCKETS = 1024 };

/* A token: 'n' name, '0' number, 'p' punctuation, 'e' end. */
typedef struct token {
    const char *at;
    size_t length;
    char kind;
} token;

typedef struct binding {
    const char *name;
    size_t length;
    int32_t node, next; /* next of the bucket, or -1 */
} binding;

typedef struct parser {
    const char *text, *at; /* at: after `now` */
    token now;
    attn_graph *g;
    int depth;
    binding *bound;
    int32_t n_bound, cap_bound;
    int32_t bucket[N_BUCKETS]; /* number + 1 */
} parser;

static int parse_expr(parser *p);

/* -- Tokens -------------------------------------------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static int fail_at(const parser *p, const char *at, const char *what) {
    int line = 1;
    const char *begin = p->text;
    for (const char *c = p->text; c < at; c++) {
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    }
    return attn__fail(ATTN_PARSE, "text", "line %d, column %d of the variant: %s", line,
                      (int)(at - begin) + 1, what);
}

static int fail_expected(const parser *p, const char *wanted) {
    char what[160];
    const int length = p->now.length < 40 ? (int)p->now.length : 40;
    if (p->now.kind == 'e') {
        snprintf(what, sizeof what, "expected %s, but the text ends", wanted);
    } else {
        snprintf(what, sizeof what, "expected %s, found '%.*s'", wanted, length, p->now.at);
    }
    return fail_at(p, p->now.at, what);
}

/* The length of a number's text: digits [. digits] [e [+-] digits]; "0..3" is 0 and then dots. */
static size_t number_length(const char *at) {
    const char *c = at;
    while (is_digit(*c)) {
        c++;
    }
    if (*c == '.' && c[1] != '.') {
        c++;
        while (is_digit(*c)) {
            c++;
        }
    }
    if ((*c == 'e' || *c == 'E') &&
        is_digit(c[1] == '+' || c[1] == '-' ? c[2] : c[1])) {
        c += 2;
        while (is_digit(*c)) {
            c++;
        }
    }
    return (size_t)(c - at);
}

static int next(parser *p) {
    static const char *const pairs[] = {"||", "&&", "==", "!=", "<=", ">=", ".."};
    const char *c = p->at;
    while (*c == ' ' || *c == '\t' || *c == '\n' || *c == '\r' || *c == '#') {
        if (*c == '#') {
            c += strcspn(c, "\n");
        } else {
            c++;
        }
    }
    token t = {c, 1, 'p'};
    if (!*c) {
        t = (token){c, 0, 'e'};
    } else if (is_letter(*c)) {
        t.kind = 'n';
        while (is_letter(c[t.length]) || is_digit(c[t.length])) {
            t.length++;
        }
    } else if (is_digit(*c) || (*c == '.' && is_digit(c[1]))) {
        t = (token){c, number_length(c), '0'};
        if (is_letter(c[t.length])) {
            return fail_at(p, c, "a number is followed by a letter");
        }
    } else {
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            if (c[0] == pairs[i][0] && c[1] == pairs[i][1]) {
                t.length = 2;
            }
        }
        if (t.length == 1 && !strchr("()[]?:;,<>=!+-*/%", *c)) {
            char what[64];
            snprintf(what, sizeof what, "unexpected byte 0x%02x", (unsigned char)*c);
            return fail_at(p, c, what);
        }
    }
    p->now = t;
    p->at = c + t.length;
    return ATTN_OK;
}

static int is(const parser *p, const char *word) {
    return p->now.kind != 'e' && p->now.length == strlen(word) &&
           !memcmp(p->now.at, word, p->now.length);
}

static int expect(parser *p, const char *punctuation) {
    if (!is(p, punctuation)) {
        char wanted[16];
        snprintf(wanted, sizeof wanted, "'%s'", punctuation);
        return fail_expected(p, wanted);
    }
    return next(p);
}

/* The name token as a C string, with room for the longest name. */
static int take_name(parser *p, char name[ATTN__NAME]) {
    if (p->now.kind != 'n') {
        return fail_expected(p, "a name");
    }
    if (p->now.length >= ATTN__NAME) {
        return fail_at(p, p->now.at, "this name is longer than 47 letters");
    }
    memcpy(name, p->now.at, p->now.length);
    name[p->now.length] = 0;
    return next(p);
}

/* -- Numbers ------------------------------------------------------------------------------------- */

/* 1 and *x for a number token without fraction or exponent that fits i32. */
static int token_i32(const token *t, int negative, int32_t *x) {
    int64_t value = 0;
    for (size_t i = 0; i < t->length; i++) {
        if (!is_digit(t->at[i])) {
            return 0;
        }
        value = 10 * value + (t->at[i] - '0');
        if (value > INT64_C(1) << 31) {
            return 0;
        }
    }
    value = negative ? -value : value;
    *x = (int32_t)value;
    return value <= INT32_MAX;
}

static int parse_number(parser *p, int negative) {
    const token t = p->now;
    int32_t i;
    float f;
    ATTN_TRY(next(p));
    if (token_i32(&t, negative, &i)) {
        return attn__const_i(p->g, i);
    }
    if (attn__float_parse(t.at, t.length, &f) < 0) {
        return fail_at(p, t.at, "this number does not fit f32");
    }
    return attn__const_f(p->g, negative ? -f : f);
}

static int parse_i32(parser *p, int32_t *x) {
    const int negative = is(p, "-");
    if (negative) {
        ATTN_TRY(next(p));
    }
    if (p->now.kind != '0' || !token_i32(&p->now, negative, x)) {
        return fail_expected(p, "an integer that fits i32");
    }
    return next(p);
}

/* -- Names --------------------------------------------------------------------------------------- */

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

static int add_binding(parser *p, const token *name, int node) {
    if (p->n_bound == ATTN__MAX_NODES) {
        return fail_at(p, name->at, "too many named lines");
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

/* -- Expressions --------------------------------------------------------------------------------- */

static int parse_load(parser *p, const char *name) {
    int32_t index[ATTN__MAX_RANK];
    int n = 0;
    while (is(p, "[")) {
        if (n == ATTN__MAX_RANK) {
            return fail_at(p, p->now.at, "a tensor has at most 4 indices");
        }
        ATTN_TRY(next(p));
        index[n] = parse_expr(p);
        ATTN_TRY(index[n]);
        ATTN_TRY(expect(p, "]"));
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
        return fail_at(p, p->now.at, what);
    }
    int32_t arg[3] = {-1, -1, -1};
    ATTN_TRY(expect(p, "("));
    for (int i = 0; i < attn__ops[op].n; i++) {
        if (i) {
            ATTN_TRY(expect(p, ","));
        }
        arg[i] = parse_expr(p);
        ATTN_TRY(arg[i]);
    }
    ATTN_TRY(expect(p, ")"));
    return attn__op(p->g, op, arg[0], arg[1], arg[2]);
}

static int parse_name(parser *p) {
    static const char *const words[] = {"true", "false", "inf", "nan"};
    const token t = p->now;
    char name[ATTN__NAME];
    ATTN_TRY(take_name(p, name));
    const int bound = find_binding(p, t.at, t.length);
    if (bound >= 0) {
        return p->bound[bound].node;
    }
    for (int i = 0; i < 4; i++) {
        if (!strcmp(name, words[i])) {
            return i < 2 ? attn__const_b(p->g, i == 0)
                         : attn__const_f(p->g, i == 2 ? __builtin_inff() : __builtin_nanf(""));
        }
    }
    for (int leaf = 0; leaf < LEAF_COUNT; leaf++) {
        if (!strcmp(name, attn__leaf_names[leaf])) {
            return attn__leaf(p->g, leaf);
        }
    }
    return is(p, "(") ? parse_call(p, name) : parse_load(p, name);
}

static int parse_primary(parser *p) {
    if (p->now.kind == '0') {
        return parse_number(p, 0);
    }
    if (p->now.kind == 'n') {
        return parse_name(p);
    }
    if (!is(p, "(")) {
        return fail_expected(p, "a number, a name or '('");
    }
    ATTN_TRY(next(p));
    const int node = parse_expr(p);
    ATTN_TRY(node);
    ATTN_TRY(expect(p, ")"));
    return node;
}

static int deeper(parser *p) {
    return ++p->depth <= MAX_DEPTH ? ATTN_OK : fail_at(p, p->now.at, "nested too deeply (256)");
}

static int parse_unary(parser *p) {
    const int minus = is(p, "-");
    if (!minus && !is(p, "!")) {
        return parse_primary(p);
    }
    ATTN_TRY(next(p));
    if (minus && p->now.kind == '0') {
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
    } ops[] = {{"||", 1, OP_or, 0},  {"&&", 2, OP_and, 0},  {"==", 3, OP_eq, 0},
               {"!=", 3, OP_ne, 0},  {"<", 4, OP_lt, 0},    {"<=", 4, OP_le, 0},
               {">", 4, OP_lt, 1},   {">=", 4, OP_le, 1},   {"+", 5, OP_add, 0},
               {"-", 5, OP_sub, 0},  {"*", 6, OP_mul, 0},   {"/", 6, OP_div, 0},
               {"%", 6, OP_mod, 0}};
    const int n_ops = sizeof ops / sizeof *ops;
    int left = parse_unary(p);
    while (left >= 0) {
        int i = 0;
        while (i < n_ops && (ops[i].level < least || !is(p, ops[i].text))) {
            i++;
        }
        if (i == n_ops) {
            break;
        }
        ATTN_TRY(next(p));
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
    if (is(p, "?")) {
        ATTN_TRY(next(p));
        const int yes = parse_expr(p);
        ATTN_TRY(yes);
        ATTN_TRY(expect(p, ":"));
        const int no = parse_expr(p);
        ATTN_TRY(no);
        node = attn__op(p->g, OP_select, node, yes, no);
    }
    p->depth--;
    return node;
}

/* -- The text ------------------------------------------------------------------------------------ */

static int parse_version(parser *p) {
    if (!is(p, "attn")) {
        return ATTN_OK;
    }
    ATTN_TRY(next(p));
    if (p->now.kind != '0' || !is(p, "1")) {
        return fail_expected(p, "version 1 of the language, the only one that this library reads");
    }
    ATTN_TRY(next(p));
    return expect(p, ";");
}

static int parse_declaration(parser *p, int type) {
    attn__symbol symbol;
    memset(&symbol, 0, sizeof symbol);
    symbol.type = (uint8_t)type;
    ATTN_TRY(next(p));
    const char *const at = p->now.at;
    ATTN_TRY(take_name(p, symbol.name));
    if (attn__symbol_find(p->g, symbol.name) >= 0) {
        return fail_at(p, at, "this name was declared before");
    }
    if (is(p, "[")) {
        int32_t rank;
        ATTN_TRY(next(p));
        const char *const rank_at = p->now.at;
        ATTN_TRY(parse_i32(p, &rank));
        if (rank < 1 || rank > ATTN__MAX_RANK) {
            return fail_at(p, rank_at, "a tensor has 1 to 4 indices");
        }
        symbol.rank = (uint8_t)rank;
        ATTN_TRY(expect(p, "]"));
        if (is(p, "in")) {
            symbol.bounded = 1;
            ATTN_TRY(next(p));
            ATTN_TRY(parse_i32(p, &symbol.lo));
            ATTN_TRY(expect(p, ".."));
            ATTN_TRY(parse_i32(p, &symbol.hi));
        }
    }
    ATTN_TRY(attn__symbol_add(p->g, &symbol));
    return expect(p, ";");
}

/* name = expr ; */
static int parse_binding(parser *p) {
    const token t = p->now;
    char name[ATTN__NAME];
    ATTN_TRY(take_name(p, name));
    if (attn__reserved(name, t.length) || attn__symbol_find(p->g, name) >= 0 ||
        find_binding(p, t.at, t.length) >= 0) {
        return fail_at(p, t.at, "this name has a meaning already");
    }
    ATTN_TRY(next(p));
    const int node = parse_expr(p);
    ATTN_TRY(node);
    ATTN_TRY(expect(p, ";"));
    return add_binding(p, &t, node);
}

/* 1 if the text goes on with: name '='. */
static int at_binding(parser *p) {
    if (p->now.kind != 'n') {
        return 0;
    }
    const token now = p->now;
    const char *const at = p->at;
    const int found = next(p) == ATTN_OK && is(p, "=");
    p->now = now;
    p->at = at;
    return found;
}

static int parse_text(parser *p) {
    ATTN_TRY(next(p));
    ATTN_TRY(parse_version(p));
    for (;;) {
        const int type = is(p, "f32")    ? VT_F32
                         : is(p, "i32")  ? VT_I32
                         : is(p, "bool") ? VT_BOOL
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
    if (p->now.kind != 'e') {
        return fail_expected(p, "the end");
    }
    return root;
}

int attn__parse(const char *text, attn_graph *g, int *root) {
    parser *const p = (parser *)attn__alloc(sizeof *p, "the parser");
    if (!p) {
        return ATTN_MEMORY;
    }
    memset(p, 0, sizeof *p);
    p->text = p->at = text;
    p->g = g;
    const int node = parse_text(p);
    free(p->bound);
    free(p);
    ATTN_TRY(node);
    *root = node;
    return ATTN_OK;
}
