/* graph.c: the public builder, attn_graph_*: what the Lua tracer and other front ends call.

   Every function checks what it is given, since the caller holds bare numbers; the internal builder
   (expr.c, expr_op.c) then trusts its arguments. */
#include "expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int vt_of(int type) {
    for (int vt = VT_BOOL; vt <= VT_F32; vt++) {
        if (attn__vt_public(vt) == type) {
            return vt;
        }
    }
    return attn__fail(ATTN_DTYPE, "type", "type is %s; a variant reads f32, i32 and bool",
                      attn__type_name(type));
}

static int check_graph(const attn_graph *graph) {
    return graph ? ATTN_OK : attn__fail(ATTN_INVALID, "graph", "graph is NULL");
}

static int check_node(const attn_graph *graph, const char *name, int node) {
    ATTN_TRY(check_graph(graph));
    return node >= 0 && node < graph->n
               ? ATTN_OK
               : attn__fail(ATTN_INVALID, name, "%s is %d; the graph has nodes 0 to %d", name, node,
                            graph->n - 1);
}

int attn_graph_new(attn_graph **graph) {
    if (!graph) {
        return attn__fail(ATTN_INVALID, "graph", "graph is NULL");
    }
    attn_graph *const g = (attn_graph *)attn__alloc(sizeof *g, "a graph");
    if (!g) {
        return ATTN_MEMORY;
    }
    attn__graph_init(g);
    *graph = g;
    return ATTN_OK;
}

void attn_graph_release(attn_graph *graph) {
    if (graph) {
        attn__graph_clear(graph);
        free(graph);
    }
}

int attn_op_find(const char *name) {
    for (int op = 0; name && op < OP_COUNT; op++) {
        if (!strcmp(attn__op_name(op), name)) {
            return op;
        }
    }
    return attn__fail(ATTN_INVALID, "name", "there is no operation '%.40s'", name ? name : "NULL");
}

const char *attn_op_name(int op) {
    return op >= 0 && op < OP_COUNT ? attn__op_name(op) : NULL;
}

int attn_graph_leaf(attn_graph *graph, const char *name) {
    ATTN_TRY(check_graph(graph));
    for (int leaf = 0; name && leaf < LEAF_COUNT; leaf++) {
        if (!strcmp(attn__leaf_names[leaf], name)) {
            return attn__leaf(graph, leaf);
        }
    }
    return attn__fail(ATTN_INVALID, "name",
#define X(leaf, ...) " " #leaf
                      "there is no leaf '%.40s'; the leaves are" ATTN_LEAVES(X),
#undef X
                      name ? name : "NULL");
}

int attn_graph_number(attn_graph *graph, double x) {
    ATTN_TRY(check_graph(graph));
    /* -0.0 has no fraction, but only f32 keeps its sign. */
    if (x >= INT32_MIN && x <= INT32_MAX && x == (int32_t)x && !(x == 0 && signbit(x))) {
        return attn__const_i(graph, (int32_t)x);
    }
    if (isfinite(x) && isinf((float)x)) {
        return attn__fail(ATTN_INVALID, "x",
                          "x is %g; a number that fits f32, inf and NaN are "
                          "allowed",
                          x);
    }
    return attn__const_f(graph, (float)x);
}

int attn_graph_bool(attn_graph *graph, int x) {
    ATTN_TRY(check_graph(graph));
    return attn__const_b(graph, x);
}

static int symbol_new(attn_graph *graph, const char *name, int type, int rank, int32_t lo,
                      int32_t hi) {
    ATTN_TRY(check_graph(graph));
    const int vt = vt_of(type);
    ATTN_TRY(vt);
    if (!name) {
        return attn__fail(ATTN_INVALID, "name", "name is NULL");
    }
    if (strlen(name) >= ATTN__NAME) {
        return attn__fail(ATTN_INVALID, "name", "the name %.20s... is longer than %d letters", name,
                          ATTN__NAME - 1);
    }
    attn__symbol symbol;
    memset(&symbol, 0, sizeof symbol);
    memcpy(symbol.name, name, strlen(name));
    symbol.type = (uint8_t)vt;
    symbol.rank = (uint8_t)rank;
    if (lo <= hi && (lo != 0 || hi != 0)) {
        symbol.bounded = 1;
        symbol.lo = lo;
        symbol.hi = hi;
    }
    return attn__symbol_add(graph, &symbol);
}

int attn_graph_param(attn_graph *graph, const char *name, int type) {
    const int symbol = symbol_new(graph, name, type, 0, 0, 0);
    ATTN_TRY(symbol);
    return attn__load(graph, symbol, NULL, 0);
}

int attn_graph_tensor(attn_graph *graph, const char *name, int type, int rank, int32_t lo,
                      int32_t hi) {
    if (rank < 1 || rank > ATTN__MAX_RANK) {
        return attn__fail(ATTN_INVALID, "rank", "rank is %d; a tensor has 1 to %d indices", rank,
                          ATTN__MAX_RANK);
    }
    return symbol_new(graph, name, type, rank, lo, hi);
}

int attn_graph_load(attn_graph *graph, int symbol, const int32_t *indices, int n) {
    ATTN_TRY(check_graph(graph));
    if (symbol < 0 || symbol >= graph->n_symbols || graph->symbol[symbol].rank == 0) {
        return attn__fail(ATTN_INVALID, "symbol", "symbol is %d, which is no tensor of the graph",
                          symbol);
    }
    if (!indices) {
        return attn__fail(ATTN_INVALID, "indices", "indices is NULL");
    }
    for (int i = 0; i < n && i < graph->symbol[symbol].rank; i++) {
        ATTN_TRY(check_node(graph, "indices", indices[i]));
    }
    return attn__load(graph, symbol, indices, n);
}

int attn_graph_op(attn_graph *graph, int op, int a, int b, int c) {
    static const char *const names[3] = {"a", "b", "c"};
    const int32_t arg[3] = {a, b, c};
    ATTN_TRY(check_graph(graph));
    if (op < 0 || op >= OP_leaf) {
        return attn__fail(ATTN_INVALID, "op", "op is %d; operations are 0 to %d", op, OP_leaf - 1);
    }
    for (int i = 0; i < 3; i++) {
        if (i < attn__ops[op].n) {
            ATTN_TRY(check_node(graph, names[i], arg[i]));
        } else if (arg[i] != -1) {
            return attn__fail(ATTN_INVALID, names[i],
                              "%s is %d; %s takes %d operands and -1 beyond", names[i], arg[i],
                              attn__ops[op].name, attn__ops[op].n);
        }
    }
    return attn__op(graph, op, a, b, c);
}

int attn_graph_node(const attn_graph *graph, int node, attn_node *info) {
    ATTN_TRY(check_node(graph, "node", node));
    const attn__node *const x = &graph->node[node];
    const int is_constant = x->op == OP_const;
    attn_node all = {.size = sizeof all,
                     .op = x->op,
                     .type = attn__vt_public(x->type),
                     .constant = is_constant,
                     .symbol = x->op >= OP_leaf && !is_constant ? x->sym : -1,
                     .n_args = x->n};
    if (is_constant) {
        all.value = x->type == VT_F32 ? (double)x->u.value.f : x->u.value.i;
    }
    for (int i = 0; i < ATTN__MAX_RANK; i++) {
        all.args[i] = i < x->n ? x->u.arg[i] : -1;
    }
    return attn__struct_out(info, &all, sizeof all, "attn_node");
}

int64_t attn_graph_text(const attn_graph *graph, int node, char *text, size_t capacity) {
    ATTN_TRY(check_node(graph, "node", node));
    if (!text && capacity) {
        return attn__fail(ATTN_INVALID, "text", "text is NULL and capacity %zu; 0 is allowed",
                          capacity);
    }
    char *whole = NULL;
    ATTN_TRY(attn__print_node(graph, node, &whole));
    const size_t bytes = strlen(whole) + 1;
    if (capacity) {
        snprintf(text, capacity, "%s", whole);
    }
    free(whole);
    return (int64_t)bytes;
}

int attn_graph_finish(attn_graph *graph, int node, attn_variant **variant) {
    if (!variant) {
        return attn__fail(ATTN_INVALID, "variant", "variant is NULL");
    }
    *variant = NULL;
    ATTN_TRY(check_node(graph, "node", node));
    attn_graph copy;
    attn__graph_init(&copy);
    int score = 0, mask = 0;
    int status = attn__graph_import(&copy, graph, node, -1);
    if (status >= 0) {
        status = attn__split(&copy, status, &score, &mask);
    }
    if (status >= 0) {
        status = attn__variant_new(&copy, score, mask, variant);
    }
    attn__graph_clear(&copy);
    return status;
}
