/* expr.c: the arena of nodes: sharing, types, symbols, the verifier and copying between graphs.

   Who calls it: expr_parse, graph, expr_compose and expr_grad, which build; everything else reads.
   Every operation goes through attn__op:

       check types -> promote i32 to f32 -> attn__fold (expr_fold.c) -> attn__node_add (share)

   A node's arguments have smaller numbers than the node, so a loop upwards evaluates and a loop
   downwards differentiates; nothing here recurses. */
#include "expr.h"

#include <stdlib.h>
#include <string.h>

#define X(name, text, n, rule, ulp, sentence) {#name, text, n, RULE_##rule},
const attn__op_info attn__ops[] = {ATTN_OPS(X)};
#undef X
#define X(name, ...) #name,
const char *const attn__leaf_names[LEAF_COUNT] = {ATTN_LEAVES(X)};
static const char *const op_names[OP_COUNT] = {ATTN_OPS(X) "leaf", "const", "param", "load"};
#undef X
#define X(name, type, ...) VT_##type,
static const uint8_t leaf_types[LEAF_COUNT] = {ATTN_LEAVES(X)};
#undef X

const char *attn__op_name(int op) {
    return op >= 0 && op < OP_COUNT ? op_names[op] : "?";
}

const char *attn__vt_name(int type) {
    static const char *const names[] = {"bool", "i32", "f32"};
    return names[type];
}

int attn__vt_public(int type) {
    static const int types[] = {ATTN_BOOL, ATTN_I32, ATTN_F32};
    return types[type];
}

void attn__graph_init(attn_graph *g) {
    memset(g, 0, sizeof *g);
}

void attn__graph_clear(attn_graph *g) {
    free(g->node);
    free(g->symbol);
    free(g->bucket);
    memset(g, 0, sizeof *g);
}

/* -- Sharing ----------------------------------------------------------------------------------- */

static uint32_t node_hash(const attn__node *node) {
    uint32_t words[sizeof *node / 4], h = 2166136261u;
    memcpy(words, node, sizeof *node);
    for (size_t i = 0; i < sizeof *node / 4; i++) {
        h = (h ^ words[i]) * 16777619u;
        h ^= h >> 15;
    }
    return h;
}

/* Doubles the arena and the hash table, which is kept at most half full. */
static int graph_grow(attn_graph *g) {
    const int cap = g->cap ? 2 * g->cap : 64, n_buckets = 4 * cap;
    attn__node *node = (attn__node *)realloc(g->node, (size_t)cap * sizeof *node);
    if (node) {
        g->node = node;
    }
    int32_t *bucket = (int32_t *)calloc((size_t)n_buckets, sizeof *bucket);
    if (!node || !bucket) {
        free(bucket);
        return attn__fail(ATTN_MEMORY, "variant", "no memory for a variant of %d nodes", cap);
    }
    for (int i = 0; i < g->n; i++) {
        uint32_t at = node_hash(&node[i]) & (uint32_t)(n_buckets - 1);
        while (bucket[at]) {
            at = (at + 1) & (uint32_t)(n_buckets - 1);
        }
        bucket[at] = i + 1;
    }
    free(g->bucket);
    g->bucket = bucket;
    g->n_buckets = n_buckets;
    g->cap = cap;
    return ATTN_OK;
}

int attn__node_add(attn_graph *g, attn__node node) {
    node.height = 0;
    for (int i = 0; attn__has_args(&node) && i < node.n; i++) {
        const int below = g->node[node.u.arg[i]].height;
        if (node.height <= below) {
            node.height = (uint8_t)(below < 255 ? below + 1 : 255);
        }
    }
    if (g->n == g->cap) {
        ATTN_TRY(graph_grow(g));
    }
    uint32_t at = node_hash(&node) & (uint32_t)(g->n_buckets - 1);
    for (; g->bucket[at]; at = (at + 1) & (uint32_t)(g->n_buckets - 1)) {
        const int i = g->bucket[at] - 1;
        if (!memcmp(&g->node[i], &node, sizeof node)) {
            return i;
        }
    }
    if (g->n >= ATTN__MAX_NODES) {
        return attn__fail(ATTN_VARIANT, "variant",
                          "a variant has at most %d nodes; this one has more", ATTN__MAX_NODES);
    }
    g->node[g->n] = node;
    g->bucket[at] = g->n + 1;
    return g->n++;
}

static attn__node node_blank(int op, int type, int n) {
    attn__node node;
    memset(&node, 0, sizeof node);
    node.op = (uint8_t)op;
    node.type = (uint8_t)type;
    node.n = (uint8_t)n;
    if (op != OP_const) {
        memset(node.u.arg, -1, sizeof node.u.arg);
    }
    return node;
}

int attn__leaf(attn_graph *g, int leaf) {
    attn__node node = node_blank(OP_leaf, leaf_types[leaf], 0);
    node.sym = leaf;
    return attn__node_add(g, node);
}

int attn__const_f(attn_graph *g, float x) {
    attn__node node = node_blank(OP_const, VT_F32, 0);
    if (x != x) {
        const uint32_t one_nan = 0x7fc00000u;
        memcpy(&x, &one_nan, sizeof x);
    }
    node.u.value.f = x;
    return attn__node_add(g, node);
}

int attn__const_i(attn_graph *g, int32_t x) {
    attn__node node = node_blank(OP_const, VT_I32, 0);
    node.u.value.i = x;
    return attn__node_add(g, node);
}

int attn__const_b(attn_graph *g, int x) {
    attn__node node = node_blank(OP_const, VT_BOOL, 0);
    node.u.value.i = x != 0;
    return attn__node_add(g, node);
}

/* -- Order ------------------------------------------------------------------------------------- */

/* By value; f32 by its bits, which tell -0 from 0. */
static int compare_constants(const attn__node *x, const attn__node *y) {
    int32_t a = x->u.value.i, b = y->u.value.i;
    if (x->type == VT_F32) {
        memcpy(&a, &x->u.value.f, sizeof a);
        memcpy(&b, &y->u.value.f, sizeof b);
    }
    return (a > b) - (a < b);
}

/* Constants last, then by height, operation, and what the first different argument is. Nodes with
   different numbers differ, so one path down the two trees decides. */
int attn__compare(const attn_graph *g, int a, int b) {
    while (a != b) {
        const attn__node *const x = &g->node[a], *const y = &g->node[b];
        const int keys[][2] = {{x->op == OP_const, y->op == OP_const},
                               {x->height, y->height},
                               {x->op, y->op},
                               {x->type, y->type}};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            if (keys[i][0] != keys[i][1]) {
                return keys[i][0] - keys[i][1];
            }
        }
        if (x->op == OP_const) {
            return compare_constants(x, y);
        }
        if (x->op == OP_leaf) {
            return x->sym - y->sym;
        }
        if (x->op == OP_param || (x->op == OP_load && x->sym != y->sym)) {
            return strcmp(g->symbol[x->sym].name, g->symbol[y->sym].name);
        }
        int i = 0;
        while (x->u.arg[i] == y->u.arg[i]) {
            i++;
        }
        a = x->u.arg[i];
        b = y->u.arg[i];
    }
    return 0;
}

/* -- Copying ----------------------------------------------------------------------------------- */

/* One node of `from`, whose arguments are in `to` already. */
static int import_node(attn_graph *to, const attn_graph *from, const attn__node *node,
                       const int32_t arg[ATTN__MAX_RANK], int s_node) {
    switch (node->op) {
    case OP_leaf: return node->sym == LEAF_s && s_node >= 0 ? s_node : attn__leaf(to, node->sym);
    case OP_const: return attn__node_add(to, *node);
    case OP_param:
    case OP_load: {
        const int symbol = attn__symbol_add(to, &from->symbol[node->sym]);
        ATTN_TRY(symbol);
        return attn__load(to, symbol, arg, node->n);
    }
    default: return attn__op(to, node->op, arg[0], arg[1], arg[2]);
    }
}

/* In post-order, left to right: the numbers in `to` depend on what the expression is alone. */
int attn__graph_import(attn_graph *to, const attn_graph *from, int root, int s_node) {
    const size_t n = (size_t)root + 1;
    int32_t *const map = (int32_t *)attn__alloc(2 * n * sizeof *map, "a copy of a variant");
    if (!map) {
        return ATTN_MEMORY;
    }
    int32_t *const stack = map + n;
    memset(map, -1, n * sizeof *map);
    int depth = 0, result = ATTN_OK;
    stack[depth++] = root;
    while (depth && result >= 0) {
        const int at = stack[depth - 1];
        const attn__node *const node = &from->node[at];
        int32_t arg[ATTN__MAX_RANK] = {-1, -1, -1, -1};
        int i = 0;
        for (; i < node->n && map[node->u.arg[i]] >= 0; i++) {
            arg[i] = map[node->u.arg[i]];
        }
        if (i < node->n) {
            stack[depth++] = node->u.arg[i];
        } else {
            result = map[at] = import_node(to, from, node, arg, s_node);
            depth--;
        }
    }
    free(map);
    return result;
}

/* -- The verifier ------------------------------------------------------------------------------ */

/* Argument types of a rule, with N for "one type of i32 and f32" and T for "any one type". */
static int rule_fits(int rule, int type, const int t[3]) {
    const int number = t[0] != VT_BOOL;
    switch (rule) {
    case RULE_N_N: return number && type == t[0];
    case RULE_F_F: return t[0] == VT_F32 && type == VT_F32;
    case RULE_I_I: return t[0] == VT_I32 && type == VT_I32;
    case RULE_B_B: return t[0] == VT_BOOL && type == VT_BOOL;
    case RULE_NN_N: return number && t[0] == t[1] && type == t[0];
    case RULE_FF_F: return t[0] == VT_F32 && t[1] == VT_F32 && type == VT_F32;
    case RULE_II_I: return t[0] == VT_I32 && t[1] == VT_I32 && type == VT_I32;
    case RULE_BB_B: return t[0] == VT_BOOL && t[1] == VT_BOOL && type == VT_BOOL;
    case RULE_NN_B: return number && t[0] == t[1] && type == VT_BOOL;
    case RULE_EE_B: return t[0] == t[1] && type == VT_BOOL;
    case RULE_BTT_T: return t[0] == VT_BOOL && t[1] == t[2] && type == t[1];
    case RULE_I_F: return t[0] == VT_I32 && type == VT_F32;
    default: return t[0] == VT_F32 && type == VT_I32; /* RULE_F_I */
    }
}

static int node_fits(const attn_graph *g, int at) {
    const attn__node *const node = &g->node[at];
    int type[ATTN__MAX_RANK] = {-1, -1, -1, -1};
    if (node->type > VT_F32 || node->n > ATTN__MAX_RANK) {
        return 0;
    }
    for (int i = 0; attn__has_args(node) && i < ATTN__MAX_RANK; i++) {
        const int arg = node->u.arg[i];
        if (i < node->n ? arg < 0 || arg >= at : arg != -1) {
            return 0;
        }
        type[i] = i < node->n ? g->node[arg].type : -1;
    }
    switch (node->op) {
    case OP_leaf:
        return node->n == 0 && node->sym >= 0 && node->sym < LEAF_COUNT &&
               node->type == leaf_types[node->sym];
    case OP_const:
        return node->n == 0 &&
               (node->type != VT_BOOL || node->u.value.i == 0 || node->u.value.i == 1);
    case OP_param:
    case OP_load:
        if (node->sym < 0 || node->sym >= g->n_symbols || node->type != g->symbol[node->sym].type ||
            node->n != g->symbol[node->sym].rank || (node->op == OP_param) != (node->n == 0)) {
            return 0;
        }
        for (int i = 0; i < node->n; i++) {
            if (type[i] != VT_I32) {
                return 0;
            }
        }
        return 1;
    default:
        return node->op < OP_leaf && node->n == attn__ops[node->op].n &&
               rule_fits(attn__ops[node->op].rule, node->type, type);
    }
}

int attn__verify(const attn_graph *g) {
    for (int i = 0; i < g->n; i++) {
        if (!node_fits(g, i)) {
            return attn__fail(ATTN_VARIANT, "variant", "node %d (%s) is not well formed", i,
                              attn__op_name(g->node[i].op));
        }
    }
    return ATTN_OK;
}
