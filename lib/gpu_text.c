/* gpu_text.c: a variant as text: the device functions that hip_kernels/core/score.h describes.

   Who calls it: gpu_kernel.c, for a plan. One line per node that is needed, named by its number;
   what an op computes is the text of its rule in VM_RULES, so host and chips cannot differ:

       #include "core/interval.h"
       DEV float read_0(const attn_params *p, i32 i0) {...}         a tensor: bounds, address, type
       DEV float attn_score(...) { const i32 x1 = at->q; ... return x7; }       gpu_text_score.c
       DEV float attn_score_grad(...) { ... }                       backward: and its derivative
       DEV int attn_mask(...)    { ... }
       DEV void attn_mask_ends(...), int attn_mask_rest(...)                    gpu_text_mask.c
       DEV int attn_class(...)   {...}                              gpu_text_class.c
*/
#include "gpu_text_int.h"

#include <math.h>
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

/* The rules by op and type of the arguments. */
static const char *const rule_text[OP_COUNT][3] = {
#define X(op, type, R, A, value) [OP_##op][VT_##type] = #value,
#define Y(op, type, R, A, far, fast, slow)                                                         \
    [OP_##op][VT_##type] = "(" #far ") ? (" #slow ") : (" #fast ")",
    VM_RULES(X, Y)
#undef X
#undef Y
};

void attn__put_constant(attn__text *t, const attn__node *node) {
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

/* A division of floats by a constant that div_const of isa/ takes. */
static int by_constant(const attn_graph *g, const attn__node *node) {
    const attn__node *const by = &g->node[node->u.arg[1]];
    const float size = by->op == OP_const && by->type == VT_F32 ? fabsf(by->u.value.f) : 0;
    return node->op == OP_div && size >= 0x1p-60f && size <= 0x1p60f;
}

static void put_by_constant(attn__text *t, const attn_graph *g, const attn__node *node) {
    const attn__node inverse = {.type = VT_F32,
                                .u.value.f = 1 / g->node[node->u.arg[1]].u.value.f};
    put(t, "div_const(x%d, x%d, ", (int)node->u.arg[0], (int)node->u.arg[1]);
    attn__put_constant(t, &inverse);
    put(t, ")");
}

void attn__put_node(attn__text *t, const attn_graph *g, const int32_t *word, int at) {
    const attn__node *const node = &g->node[at];
    put(t, "    const %s x%d = ", attn__c_type(node->type), at);
    switch (node->op) {
    case OP_leaf:
        put(t, "%s%s", node->sym == LEAF_s ? "" : "at->", attn__leaf_names[node->sym]);
        break;
    case OP_const: attn__put_constant(t, node); break;
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
    default:
        if (node->n == 2 && by_constant(g, node)) {
            put_by_constant(t, g, node);
        } else {
            put_rule(t, g, node);
        }
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

/* One element of a tensor: 0 outside, where a zero of the parameters is read instead, so that many
   reads need no branch and fly together. Its words: address, then extent and stride in bytes of
   each axis, at last its table's address. */
static void put_reader(attn__text *t, const attn__symbol *symbol, int number, int word, int type) {
    put(t, "DEV %s read_%d(const attn_params *p", attn__c_type(symbol->type), number);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, ", i32 i%d", i);
    }
    put(t, ") { /* %s */\n    const int in = ", symbol->name);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, "%s(u32)i%d < (u32)p->word[%d]", i ? " & " : "", i, word + 1 + 2 * i);
    }
    put(t, ";\n    const u64 at = in ? ((u64)p->word[%d]", word);
    for (int i = 0; i < symbol->rank; i++) {
        put(t, " + (u64)(u32)i%d * (u64)p->word[%d]", i, word + 2 + 2 * i);
    }
    put(t, ") : readable(&p->zero);\n");
    switch (type) {
    case ATTN_F32: put(t, "    const float x = float_of(load_u32(at));\n"); break;
    case ATTN_F16: put(t, "    const float x = float_of_f16(load_u16(at));\n"); break;
    case ATTN_BF16: put(t, "    const float x = float_of_bf16(load_u16(at));\n"); break;
    case ATTN_I32: put(t, "    const i32 x = (i32)load_u32(at);\n"); break;
    default: put(t, "    const i32 x = load_u8(at) != 0;\n");
    }
    if (type == ATTN_I32 && symbol->bounded) {
        put(t, "    return !in ? 0 : x < %d ? %d : x > %d ? %d : x;\n", (int)symbol->lo,
            (int)symbol->lo, (int)symbol->hi, (int)symbol->hi);
    } else {
        put(t, "    return x;\n");
    }
    put(t, "}\n");
}

/* -- The whole --------------------------------------------------------------------------------- */

int attn__variant_words(const attn_graph *g, int32_t word[ATTN__MAX_SYMBOLS]) {
    int n = 0;
    for (int i = 0; i < g->n_symbols; i++) {
        word[i] = n;
        n += 1 + 2 * g->symbol[i].rank + (g->symbol[i].rank > 0);
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
    int status = need ? attn__put_score_grad(t, a, word, need) : ATTN_MEMORY;
    if (status >= 0 && grads && grads->n_sites) {
        attn__put_grads(t, a, word, grads, need);
    }
    free(need);
    attn__adjoint_free(a);
    return status;
}

/* need: of the root, as put_function leaves it. */
static int reads_s(const attn_graph *g, int root, const uint8_t *need) {
    for (int i = 0; i <= root; i++) {
        if (need[i] && g->node[i].op == OP_leaf && g->node[i].sym == LEAF_s) {
            return 1;
        }
    }
    return 0;
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
        ATTN_TRY(attn__put_score(t, g, word, v->score, need));
        ATTN_TRY(backward ? put_derivatives(t, v, word, grads) : ATTN_OK);
    }
    if (attn__has_mask(v)) {
        put_function(t, g, word, v->mask, "int attn_mask", need);
        put(t, "#define ATTN_MASK_READS_S %d\n", reads_s(g, v->mask, need));
        ATTN_TRY(attn__put_mask_parts(t, g, word, v->mask, need));
        ATTN_TRY(attn__put_class(t, g, word, v->mask, !backward, need));
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
