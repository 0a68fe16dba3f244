/* gpu_text.c: a variant as text: the device functions that hip_kernels/core/score.h describes.

   Who calls it: gpu_kernel.c, for a plan. One line per node that is needed, named by its number;
   what an op computes is the text of its rule in VM_RULES, so host and chips cannot differ:

       #include "core/interval.h"
       DEV float read_0(const attn_params *p, i32 i0) {...}         a tensor: bounds, address, type
       DEV float attn_score(...) { const i32 x1 = at->q; ... return x7; }
       DEV float attn_score_by_s(...) { ... }                       backward: its derivative
       DEV int attn_mask(...)    { ... }
       DEV int attn_class(...)   { const attn_iv y1 = iv(box->q0, box->q1); ... }      intervals

   In attn_class an i32 node always has an interval (at worst all of i32), a bool node too; an f32
   node only where interval.h has a rule and no place of the language makes it NaN or infinite. */
#include "gpu_text_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Text that grows --------------------------------------------------------------------------- */

void attn__put(attn__text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->at + t->n, t->cap - t->n, format, args);
    va_end(args);
    if (t->failed || n < 0 || t->n + (size_t)n < t->cap) {
        t->n += n > 0 && !t->failed ? (size_t)n : 0;
        return;
    }
    char *const more = realloc(t->at, 2 * (t->cap + (size_t)n));
    t->failed = !more;
    if (more) {
        t->at = more;
        t->cap = 2 * (t->cap + (size_t)n);
        va_start(args, format);
        t->n += (size_t)vsnprintf(t->at + t->n, t->cap - t->n, format, args);
        va_end(args);
    }
}

/* -- What a node is ---------------------------------------------------------------------------- */

static const char *const leaf_names[LEAF_COUNT] = {
#define X(name, type, about) [LEAF_##name] = #name,
    ATTN_LEAVES(X)
#undef X
};

/* The rules by op and type of the arguments. */
static const char *const rule_text[OP_COUNT][3] = {
#define X(op, type, R, A, value) [OP_##op][VT_##type] = #value,
#define Y(op, type, R, A, far, fast, slow)                                                         \
    [OP_##op][VT_##type] = "(" #far ") ? (" #slow ") : (" #fast ")",
    VM_RULES(X, Y)
#undef X
#undef Y
};

static const char *c_type(int type) {
    return type == VT_F32 ? "float" : "i32";
}

static void put_constant(attn__text *t, const attn__node *node) {
    if (node->type == VT_F32) {
        const attn__val32 v = {.f = node->u.value.f};
        put(t, "float_of(0x%08xu)", (unsigned)v.i);
    } else if (node->u.value.i == INT32_MIN) {
        put(t, "(-0x7fffffff - 1)");
    } else {
        put(t, "%d", (int)node->u.value.i);
    }
}

static int is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* The rule with its names a, b, c replaced by the node's arguments. */
static void put_rule(attn__text *t, const attn_graph *g, const attn__node *node) {
    const int type = node->op == OP_select ? VT_I32 : g->node[node->u.arg[0]].type;
    const char *c = rule_text[node->op][type == VT_BOOL ? VT_I32 : type];
    while (*c) {
        size_t n = 0;
        while (is_letter(c[n])) {
            n++;
        }
        if (n == 1 && *c >= 'a' && *c < 'a' + node->n) {
            put(t, "x%d", (int)node->u.arg[*c - 'a']);
        } else {
            put(t, "%.*s", n ? (int)n : 1, c);
        }
        c += n ? n : 1;
    }
}

void attn__put_node(attn__text *t, const attn_graph *g, const int32_t *word, int at) {
    const attn__node *const node = &g->node[at];
    put(t, "    const %s x%d = ", c_type(node->type), at);
    switch (node->op) {
    case OP_leaf: put(t, "%s%s", node->sym == LEAF_s ? "" : "at->", leaf_names[node->sym]); break;
    case OP_const: put_constant(t, node); break;
    case OP_param:
        put(t, node->type == VT_F32 ? "float_of((u32)p->word[%d])" : "(i32)p->word[%d]",
            (int)word[node->sym]);
        break;
    case OP_load:
        put(t, "read_%d(p", (int)node->sym);
        for (int i = 0; i < node->n; i++) {
            put(t, ", x%d", (int)node->u.arg[i]);
        }
        put(t, ")");
        break;
    default: put_rule(t, g, node);
    }
    put(t, ";\n");
}

/* -- Score and mask ---------------------------------------------------------------------------- */

static void put_function(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                         const char *head, uint8_t *need) {
    const int32_t roots[] = {root};
    attn__need(g, roots, 1, need);
    put(t, "DEV %s(const attn_params *p, const attn_pair *at, float s) {\n", head);
    put(t, "    (void)p, (void)at, (void)s;\n");
    for (int i = 0; i <= root; i++) {
        if (need[i]) {
            attn__put_node(t, g, word, i);
        }
    }
    put(t, "    return x%d;\n}\n", root);
}

/* One element of a tensor: 0 outside. Its words: address, then extent and stride in bytes of each
   axis. */
static void put_reader(attn__text *t, const attn__symbol *symbol, int number, int word, int type) {
    put(t, "DEV %s read_%d(const attn_params *p", c_type(symbol->type), number);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, ", i32 i%d", i);
    }
    put(t, ") { /* %s */\n    if (", symbol->name);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, "%s(u64)(i64)i%d >= (u64)p->word[%d]", i ? " || " : "", i, word + 1 + 2 * i);
    }
    put(t, ") {\n        return 0;\n    }\n    const u64 at = (u64)(p->word[%d]", word);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, " + i%d * p->word[%d]", i, word + 2 + 2 * i);
    }
    put(t, ");\n");
    switch (type) {
    case ATTN_F32: put(t, "    return float_of(load_u32(at));\n"); break;
    case ATTN_F16: put(t, "    return float_of_f16(load_u16(at));\n"); break;
    case ATTN_BF16: put(t, "    return float_of_bf16(load_u16(at));\n"); break;
    case ATTN_I32: put(t, "    const i32 x = (i32)load_u32(at);\n"); break;
    default: put(t, "    return load_u8(at) != 0;\n");
    }
    if (type == ATTN_I32 && symbol->bounded) {
        put(t, "    return x < %d ? %d : x > %d ? %d : x;\n", (int)symbol->lo, (int)symbol->lo,
            (int)symbol->hi, (int)symbol->hi);
    } else if (type == ATTN_I32) {
        put(t, "    return x;\n");
    }
    put(t, "}\n");
}

/* -- The class --------------------------------------------------------------------------------- */

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
        if (node->type != VT_F32) {
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
        put(t, "iv(box->%s, box->%s)", leaf_names[node->sym], leaf_names[node->sym]);
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

/* What a load gives: an i32 within its declared bounds, or the 0 of what lies outside. */
static void put_interval_load(attn__text *t, const attn__symbol *symbol) {
    if (symbol->type == VT_BOOL) {
        put(t, "iv(0, 1)");
    } else if (symbol->bounded) {
        put(t, "iv(%d, %d)", (int)(symbol->lo < 0 ? symbol->lo : 0),
            (int)(symbol->hi > 0 ? symbol->hi : 0));
    } else {
        put(t, "iv_all()");
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
        put_constant(t, node);
        put(t, ", ");
        put_constant(t, node);
        put(t, ")");
        break;
    case OP_param:
        put(t, "iv((i32)p->word[%d], (i32)p->word[%d])", (int)word[node->sym],
            (int)word[node->sym]);
        break;
    case OP_load: put_interval_load(t, &g->symbol[node->sym]); break;
    default: put_interval_op(t, g, node, known);
    }
    put(t, ";\n");
}

static int put_class(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                     uint8_t *need) {
    const size_t n = (size_t)root + 1;
    attn__range *const range = attn__alloc(n * (sizeof *range + 1), "a plan");
    if (!range) {
        return ATTN_MEMORY;
    }
    uint8_t *const known = (uint8_t *)(range + n);
    const int32_t roots[] = {root};
    attn__box box;
    int count = 0;
    attn__box_init(&box, NULL);
    attn__ranges(g, root, &box, range);
    find_known(g, root, range, known);
    attn__need(g, roots, 1, need);
    for (int i = 0; i <= root; i++) {
        count += need[i];
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

/* -- The whole --------------------------------------------------------------------------------- */

int attn__variant_words(const attn_graph *g, int32_t word[ATTN__MAX_SYMBOLS]) {
    int n = 0;
    for (int i = 0; i < g->n_symbols; i++) {
        word[i] = n;
        n += 1 + 2 * g->symbol[i].rank;
    }
    return n;
}

int attn__has_score(const attn_variant *v) {
    const attn__node *const node = &v->graph.node[v->score];
    return node->op != OP_leaf || node->sym != LEAF_s;
}

int attn__has_mask(const attn_variant *v) {
    const attn__node *const node = &v->graph.node[v->mask];
    return node->op != OP_const || node->u.value.i == 0;
}

static int put_derivatives(attn__text *t, const attn_variant *v, const int32_t *word,
                           const attn__text_grads *grads) {
    attn__adjoint *a;
    ATTN_TRY(attn__adjoint_new(v, &a));
    uint8_t *const need = attn__alloc((size_t)a->graph.n, "a plan");
    if (need) {
        put_function(t, &a->graph, word, a->ds, "float attn_score_by_s", need);
    }
    if (need && grads && grads->n_sites) {
        attn__put_grads(t, a, word, grads, need);
    }
    free(need);
    attn__adjoint_free(a);
    return need ? ATTN_OK : ATTN_MEMORY;
}

static int put_variant(attn__text *t, const attn_variant *v, const attn__bound *bound, int backward,
                       const attn__text_grads *grads, uint8_t *need) {
    const attn_graph *const g = &v->graph;
    int32_t word[ATTN__MAX_SYMBOLS];
    attn__variant_words(g, word);
    put(t, "#include \"core/interval.h\"\n");
    for (int i = 0; i < g->n_symbols; i++) {
        if (g->symbol[i].rank) {
            put_reader(t, &g->symbol[i], i, word[i], bound[i].type);
        }
    }
    if (attn__has_score(v)) {
        put_function(t, g, word, v->score, "float attn_score", need);
        ATTN_TRY(backward ? put_derivatives(t, v, word, grads) : ATTN_OK);
    }
    if (attn__has_mask(v)) {
        put_function(t, g, word, v->mask, "int attn_mask", need);
        ATTN_TRY(put_class(t, g, word, v->mask, need));
    }
    return ATTN_OK;
}

int attn__variant_source(const attn_variant *v, const attn__bound *bound, int backward,
                         const attn__text_grads *grads, char **source) {
    attn__text t = {.cap = 4096};
    uint8_t *const need = attn__alloc((size_t)v->graph.n, "a plan");
    *source = t.at = need ? attn__alloc(t.cap, "a plan") : NULL;
    if (!t.at) {
        free(need);
        return ATTN_MEMORY;
    }
    int status = put_variant(&t, v, bound, backward, grads, need);
    free(need);
    *source = t.at;
    if (status >= 0 && t.failed) {
        status = attn__fail(ATTN_MEMORY, "variant", "out of memory: the text of a variant");
    }
    if (status < 0) {
        free(*source);
        *source = NULL;
    }
    return status;
}
