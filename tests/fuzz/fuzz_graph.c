/* fuzz_graph.c: bytes as a program of attn_graph_* calls.

   A call is a byte and what it takes; nodes are picked by a byte from those made so far, or taken
   as they are, wrong ones too:

       0 leaf      1 number (double)     2 bool       3 param (type, name)
       4 tensor (type, rank, bounds, name)            5 load (symbol, indices)
       6, 7 op     8 node                9 text      10 finish */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 512 };

typedef struct program {
    const uint8_t *p, *end;
    attn_graph *graph;
    int nodes[MOST_NODES];
    int n;
} program;

static uint8_t byte(program *x) {
    return x->p < x->end ? *x->p++ : 0;
}

static void bytes(program *x, void *to, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ((uint8_t *)to)[i] = byte(x);
    }
}

static int pick(program *x) {
    const uint8_t b = byte(x);
    return b >= 250 || x->n == 0 ? (int8_t)b : x->nodes[b % x->n];
}

static void keep(program *x, int node) {
    attn_fuzz_status(node);
    if (node >= 0 && x->n < MOST_NODES) {
        x->nodes[x->n++] = node;
    }
}

static int type(program *x) {
    static const int types[] = {ATTN_F32, ATTN_I32, ATTN_BOOL, ATTN_F16};
    return types[byte(x) % 4];
}

/* One of sixteen names; five are odd: empty, a leaf's, two that are no names, one too long. */
static const char *name(program *x, char to[64]) {
    static const char *const odd[] = {"", "q", "a b", "min",
                                      "a_name_that_is_longer_than_any_name_is_allowed_to_be"};
    const int i = byte(x) % 16;
    if (i < 5) {
        return odd[i];
    }
    snprintf(to, 64, "t%d", i);
    return to;
}

static void leaf(program *x) {
    static const char *const leaves[] = {"s",  "b",  "h",  "q",  "k",     "i",
                                         "nq", "nk", "nh", "hk", "batch", "x"};
    keep(x, attn_graph_leaf(x->graph, leaves[byte(x) % 12]));
}

static void number(program *x) {
    double value;
    bytes(x, &value, sizeof value);
    keep(x, attn_graph_number(x->graph, value));
}

static void param(program *x) {
    char to[64];
    const int t = type(x);
    keep(x, attn_graph_param(x->graph, name(x, to), t));
}

static void tensor(program *x) {
    char to[64];
    const int t = type(x), rank = (int8_t)byte(x) % 6;
    int32_t bounds[2] = {0, 0};
    if (byte(x) % 2) {
        bytes(x, bounds, sizeof bounds);
    }
    attn_fuzz_status(attn_graph_tensor(x->graph, name(x, to), t, rank, bounds[0], bounds[1]));
}

static void load(program *x) {
    int32_t indices[8];
    const int which = byte(x) % 8, n = byte(x) % 8;
    for (int i = 0; i < n; i++) {
        indices[i] = pick(x);
    }
    keep(x, attn_graph_load(x->graph, which, indices, n));
}

static void op(program *x) {
    const int which = byte(x) % 48;
    const int a = pick(x), b = pick(x), c = pick(x);
    /* Most programs should get further than the number of operands. */
    int node = attn_graph_op(x->graph, which, a, b, c);
    node = node < 0 ? attn_graph_op(x->graph, which, a, b, -1) : node;
    node = node < 0 ? attn_graph_op(x->graph, which, a, -1, -1) : node;
    keep(x, node);
}

static void look(program *x) {
    attn_node info = {.size = sizeof info};
    const int node = pick(x);
    const int status = attn_graph_node(x->graph, node, &info);
    attn_fuzz_status(status);
    if (status == ATTN_OK) {
        FUZZ_CHECK(attn_op_name(info.op) != NULL && info.n_args >= 0 && info.n_args <= 4);
        for (int i = 0; i < info.n_args; i++) {
            FUZZ_CHECK(info.args[i] >= 0 && info.args[i] < node);
        }
    }
}

static void text(program *x) {
    const int node = pick(x);
    const int64_t needed = attn_graph_text(x->graph, node, NULL, 0);
    attn_fuzz_status((int)needed);
    if (needed <= 0 || needed > 1 << 20) {
        return;
    }
    const size_t capacity = byte(x) % 2 ? (size_t)needed : (size_t)needed / 2;
    char *const to = malloc(capacity + 1);
    if (to) {
        FUZZ_CHECK(attn_graph_text(x->graph, node, to, capacity) == needed);
        FUZZ_CHECK(capacity == 0 || strlen(to) < capacity);
    }
    free(to);
}

static void finish(program *x) {
    attn_variant *variant = NULL;
    const int status = attn_graph_finish(x->graph, pick(x), &variant);
    attn_fuzz_status(status);
    FUZZ_CHECK((status == ATTN_OK) == (variant != NULL));
    if (variant) {
        attn_fuzz_variant(variant, (uint32_t)x->n);
    }
    attn_variant_release(variant);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const calls[])(program *) = {leaf, number, param, tensor, load,
                                               op,   look,   text,  finish};
    static const uint8_t what[] = {0, 1, 9, 2, 3, 4, 5, 5, 6, 7, 8}; /* 9: bool */
    static program x;
    x = (program){.p = data, .end = data + size};
    if (attn_graph_new(&x.graph) != ATTN_OK) {
        return 0;
    }
    for (int finished = 0; x.p < x.end && finished < 16;) {
        const int call = what[byte(&x) % sizeof what];
        if (call == 9) {
            keep(&x, attn_graph_bool(x.graph, byte(&x)));
        } else {
            calls[call](&x);
        }
        finished += call == 8;
    }
    finish(&x);
    attn_graph_release(x.graph);
    return 0;
}
