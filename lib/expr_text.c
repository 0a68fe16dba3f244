/* expr_text.c: graph to canonical text, which the parser turns into the same graph again.

   Who calls it: attn__variant_new (the whole variant), refusals and attn_graph_text (one node).

       attn 1;                              the language's version
       f32 slopes[1];                       what is read, in order of first use
       t1 = abs(q - k);                     subexpressions used twice, or deep ones, by name
       k <= q ? s - slopes[h] * t1 : -inf   mask ? score : -inf; the mask alone if the score is s,
                                            the score alone if nothing is masked

   Naming keeps the text linear in the graph and its nesting within the parser's bound. A promotion
   (float of an i32, an f32 without fraction) is left out where the parser puts it back. */
#include "expr.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 4, NAME_HEIGHT = 20 };

typedef struct printer {
    const attn_graph *g;
    char *text;
    size_t n, cap;
    int failed;
    int32_t *name;   /* per node: t<name>, or 0 */
    uint8_t *size;   /* nodes that are printed in place, at most 255 */
    uint8_t *height; /* nesting of what is printed in place */
    int names;       /* given so far */
} printer;

/* -- Characters -------------------------------------------------------------------------------- */

static void put(printer *p, const char *text) {
    const size_t length = strlen(text);
    if (p->n + length + 1 > p->cap) {
        const size_t cap = 2 * (p->n + length + 64);
        char *const grown = (char *)realloc(p->text, cap);
        if (!grown) {
            p->failed = 1;
            return;
        }
        p->text = grown;
        p->cap = cap;
    }
    memcpy(p->text + p->n, text, length + 1);
    p->n += length;
}

static void put_int(printer *p, int x) {
    char text[16];
    snprintf(text, sizeof text, "%d", x);
    put(p, text);
}

static const char *decimal_point(void) {
    const char *const point = localeconv()->decimal_point;
    return point && *point ? point : ".";
}

float attn__float_parse(const char *text, size_t length) {
    char copy[ATTN__FLOAT_LENGTH + 28]; /* a decimal point may have several bytes */
    const char *const dot = (const char *)memchr(text, '.', length);
    const int before = (int)(dot ? (size_t)(dot - text) : length);
    const int after = dot ? (int)length - before - 1 : 0;
    snprintf(copy, sizeof copy, "%.*s%s%.*s", before, text, dot ? decimal_point() : "", after,
             dot ? dot + 1 : "");
    return strtof(copy, NULL);
}

void attn__float_text(float x, char text[ATTN__FLOAT_TEXT]) {
    if (!isfinite(x)) {
        snprintf(text, ATTN__FLOAT_TEXT, "%s", isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, ATTN__FLOAT_TEXT, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x) {
            break;
        }
    }
    const char *const point = decimal_point();
    char *const at = strstr(text, point);
    if (at) {
        *at = '.';
        memmove(at + 1, at + strlen(point), strlen(at + strlen(point)) + 1);
    } else if (!strpbrk(text, "e")) {
        strcat(text, ".0");
    }
}

/* -- Names ------------------------------------------------------------------------------------- */

/* Counts in name[] how often everything below the roots is used. */
static void count_uses(printer *p, const int32_t *roots, int n_roots) {
    for (int r = 0; r < n_roots; r++) {
        p->name[roots[r]]++;
    }
    for (int at = p->g->n - 1; at >= 0; at--) {
        const attn__node *const node = &p->g->node[at];
        for (int i = 0; p->name[at] && attn__has_args(node) && i < node->n; i++) {
            p->name[node->u.arg[i]]++;
        }
    }
}

/* The next number n for which no symbol is called t<n>. */
static int new_name(printer *p) {
    char name[16];
    do {
        snprintf(name, sizeof name, "t%d", ++p->names);
    } while (attn__symbol_find(p->g, name) >= 0);
    return p->names;
}

/* Decides from below what gets a name: what is used twice and not small, and what nests deeply. */
static void plan_names(printer *p, const int32_t *roots, int n_roots) {
    count_uses(p, roots, n_roots);
    for (int at = 0; at < p->g->n; at++) {
        const attn__node *const node = &p->g->node[at];
        const int uses = p->name[at];
        int size = 1, height = 1;
        p->name[at] = 0;
        for (int i = 0; uses && attn__has_args(node) && i < node->n; i++) {
            const int arg = node->u.arg[i];
            size += p->name[arg] ? 1 : p->size[arg];
            if (!p->name[arg] && height <= p->height[arg]) {
                height = p->height[arg] + 1;
            }
        }
        p->size[at] = (uint8_t)(size < 255 ? size : 255);
        p->height[at] = (uint8_t)height;
        if (attn__has_args(node) &&
            ((uses > 1 && size >= NAME_SIZE) || (uses > 0 && height >= NAME_HEIGHT))) {
            p->name[at] = new_name(p);
        }
    }
}

/* -- Expressions ------------------------------------------------------------------------------- */

enum {
    PREC_ANY,
    PREC_SELECT,
    PREC_OR,
    PREC_AND,
    PREC_EQ,
    PREC_LT,
    PREC_ADD,
    PREC_MUL,
    PREC_UNARY,
    PREC_PRIMARY
};

static int op_prec(int op) {
    switch (op) {
    case OP_select: return PREC_SELECT;
    case OP_or: return PREC_OR;
    case OP_and: return PREC_AND;
    case OP_eq:
    case OP_ne: return PREC_EQ;
    case OP_lt:
    case OP_le: return PREC_LT;
    case OP_add:
    case OP_sub: return PREC_ADD;
    case OP_mul:
    case OP_div:
    case OP_mod: return PREC_MUL;
    case OP_neg:
    case OP_not: return PREC_UNARY;
    default: return PREC_PRIMARY;
    }
}

static void put_node(printer *p, int at, int least, int promoted);

/* An f32 that stands as an i32 where promotion is implied. */
static int is_whole(const attn__node *node) {
    const float f = node->u.value.f;
    return node->op == OP_const && node->type == VT_F32 && f == floorf(f) &&
           fabsf(f) < 2147483648.0f && !(f == 0 && signbit(f));
}

static int can_elide(const printer *p, int at) {
    return !p->name[at] && (p->g->node[at].op == OP_float || is_whole(&p->g->node[at]));
}

/* Whether the i-th argument of a node may leave out its promotion. */
static int elides(const printer *p, const attn__node *node, int i) {
    if (!can_elide(p, node->u.arg[i])) {
        return 0;
    }
    int other;
    switch (attn__ops[node->op].rule) {
    case RULE_F_F:
    case RULE_FF_F: return 1;
    case RULE_NN_N:
    case RULE_NN_B:
    case RULE_EE_B: other = 1 - i; break;
    case RULE_BTT_T: other = 3 - i; break;
    default: return 0;
    }
    if (!can_elide(p, node->u.arg[other])) {
        return 1;
    }
    /* One of two stays explicit: the constant, or else the first. */
    const int constant = p->g->node[node->u.arg[i]].op == OP_const;
    const int other_constant = p->g->node[node->u.arg[other]].op == OP_const;
    return constant == other_constant ? i > other : !constant;
}

static void put_arg(printer *p, const attn__node *node, int i, int least) {
    put_node(p, node->u.arg[i], least, elides(p, node, i));
}

static void put_const(printer *p, const attn__node *node, int negate, int promoted) {
    char text[ATTN__FLOAT_TEXT];
    if (node->type == VT_BOOL) {
        put(p, node->u.value.i ? "true" : "false");
    } else if (node->type == VT_I32) {
        put_int(p, negate ? -node->u.value.i : node->u.value.i);
    } else {
        const float f = negate ? -node->u.value.f : node->u.value.f;
        if (promoted && is_whole(node)) {
            put_int(p, (int)f);
        } else {
            attn__float_text(f, text);
            put(p, text);
        }
    }
}

static int is_negative(const attn__node *node) {
    if (node->op != OP_const || node->type == VT_BOOL) {
        return 0;
    }
    return node->type == VT_I32 ? node->u.value.i < 0
                                : !isnan(node->u.value.f) && signbit(node->u.value.f);
}

static void put_call(printer *p, const char *name, const attn__node *node) {
    put(p, name);
    put(p, "(");
    for (int i = 0; i < node->n; i++) {
        put(p, i ? ", " : "");
        put_arg(p, node, i, PREC_ANY);
    }
    put(p, ")");
}

static void put_binary(printer *p, const attn__node *node, int prec) {
    const attn__node *const right = &p->g->node[node->u.arg[1]];
    put_arg(p, node, 0, prec);
    /* x + -c is folded x - c. */
    if (node->op == OP_add && is_negative(right) &&
        !(right->type == VT_I32 && right->u.value.i == INT32_MIN)) {
        put(p, " - ");
        put_const(p, right, 1, elides(p, node, 1));
        return;
    }
    put(p, " ");
    put(p, attn__ops[node->op].text);
    put(p, " ");
    put_arg(p, node, 1, prec + 1);
}

static void put_op(printer *p, const attn__node *node, int prec) {
    if (prec == PREC_SELECT) {
        put_arg(p, node, 0, PREC_OR);
        put(p, " ? ");
        put_arg(p, node, 1, PREC_OR);
        put(p, " : ");
        put_arg(p, node, 2, PREC_SELECT);
    } else if (prec == PREC_UNARY) {
        put(p, attn__ops[node->op].text);
        put_arg(p, node, 0, PREC_PRIMARY);
    } else if (prec == PREC_PRIMARY) {
        put_call(p, attn__ops[node->op].text, node);
    } else {
        put_binary(p, node, prec);
    }
}

/* The expression of a node, whether it has a name or not. */
static void put_expr(printer *p, int at, int least, int promoted) {
    const attn__node *const node = &p->g->node[at];
    if (node->op == OP_float && promoted) {
        put_node(p, node->u.arg[0], least, 0);
        return;
    }
    int prec = node->op < OP_leaf ? op_prec(node->op) : PREC_PRIMARY;
    if (is_negative(node)) {
        prec = PREC_UNARY;
    }
    put(p, prec < least ? "(" : "");
    if (node->op == OP_const) {
        put_const(p, node, 0, promoted);
    } else if (node->op == OP_leaf) {
        put(p, attn__leaf_names[node->sym]);
    } else if (node->op == OP_param || node->op == OP_load) {
        put(p, p->g->symbol[node->sym].name);
        for (int i = 0; i < node->n; i++) {
            put(p, "[");
            put_node(p, node->u.arg[i], PREC_ANY, 0);
            put(p, "]");
        }
    } else {
        put_op(p, node, prec);
    }
    put(p, prec < least ? ")" : "");
}

static void put_node(printer *p, int at, int least, int promoted) {
    if (p->name[at]) {
        put(p, "t");
        put_int(p, p->name[at]);
    } else {
        put_expr(p, at, least, promoted);
    }
}

/* -- The text ---------------------------------------------------------------------------------- */

static void put_declarations(printer *p) {
    put(p, "attn 1;\n");
    for (int i = 0; i < p->g->n_symbols; i++) {
        const attn__symbol *const symbol = &p->g->symbol[i];
        put(p, attn__vt_name(symbol->type));
        put(p, " ");
        put(p, symbol->name);
        if (symbol->rank) {
            put(p, "[");
            put_int(p, symbol->rank);
            put(p, "]");
        }
        if (symbol->bounded) {
            put(p, " in ");
            put_int(p, symbol->lo);
            put(p, "..");
            put_int(p, symbol->hi);
        }
        put(p, ";\n");
    }
}

static int printer_init(printer *p, const attn_graph *g) {
    memset(p, 0, sizeof *p);
    p->g = g;
    const size_t n = (size_t)g->n + 1;
    p->name = (int32_t *)attn__alloc(n * (sizeof *p->name + 2), "the text of a variant");
    if (!p->name) {
        return ATTN_MEMORY;
    }
    memset(p->name, 0, n * (sizeof *p->name + 2));
    p->size = (uint8_t *)(p->name + n);
    p->height = p->size + n;
    return ATTN_OK;
}

static void put_named(printer *p, const char *end) {
    for (int at = 0; at < p->g->n; at++) {
        if (p->name[at]) {
            put(p, "t");
            put_int(p, p->name[at]);
            put(p, " = ");
            put_expr(p, at, PREC_ANY, 0);
            put(p, ";");
            put(p, end);
        }
    }
}

static int printer_finish(printer *p, char **text) {
    free(p->name);
    if (p->failed) {
        free(p->text);
        return attn__fail(ATTN_MEMORY, "variant", "no memory for the text of a variant");
    }
    *text = p->text;
    return ATTN_OK;
}

int attn__print(const attn_graph *g, int score, int mask, char **text) {
    printer p;
    ATTN_TRY(printer_init(&p, g));
    const int32_t roots[2] = {mask, score};
    const attn__node *const m = &g->node[mask], *const s = &g->node[score];
    const int all = m->op == OP_const && m->u.value.i == 1;
    const int kept = s->op == OP_leaf && s->sym == LEAF_s;
    plan_names(&p, roots, 2);
    put_declarations(&p);
    put_named(&p, "\n");
    if (kept && !all) {
        put_node(&p, mask, PREC_ANY, 0);
    } else if (all) {
        put_node(&p, score, PREC_ANY, 1);
    } else {
        put_node(&p, mask, PREC_OR, 0);
        put(&p, " ? ");
        put_node(&p, score, PREC_OR, 1);
        put(&p, " : -inf");
    }
    return printer_finish(&p, text);
}

int attn__print_node(const attn_graph *g, int node, char **text) {
    printer p;
    ATTN_TRY(printer_init(&p, g));
    plan_names(&p, &node, 1);
    put_named(&p, " ");
    put_node(&p, node, PREC_ANY, 0);
    return printer_finish(&p, text);
}
