/* vm.c: writes the program of the vector machine.

   Who calls it: the CPU engine when a plan is made, attn_variant_sample. A node is placed twice:

       when    begin: b, h, lengths, constants, parameters    row: i, q, s
               columns: k                                     else the latest of its arguments
       where   a register if s or k is below it (each lane its own), else a slot

   Nodes are emitted in the graph's order, each into the code of its phase. Registers are reused
   once the last reader of a value stands in the same phase; what a later phase reads stays. */
#include "vm_int.h"

#include <stdlib.h>
#include <string.h>

enum { FOREVER = INT32_MAX, IRREGULAR = INT32_MIN };

typedef struct place {
    uint8_t phase, wide;
    int32_t slot, reg; /* -1: none yet; a uniform value gets a register when lanes want it */
    int32_t last;      /* the last node that reads it as lanes, or FOREVER */
    int32_t stride;    /* i32: growth from lane to lane, or IRREGULAR */
} place;

typedef struct writer {
    const attn_graph *g;
    attn__vm *vm;
    place *at;
    uint8_t *need;  /* by a root */
    int32_t *spare; /* registers that nobody holds */
    int n_spare;
} writer;

/* -- Placing ----------------------------------------------------------------------------------- */

static int32_t small(int64_t x) {
    return x > -65536 && x < 65536 ? (int32_t)x : IRREGULAR;
}

static int32_t stride_of(const writer *w, const attn__node *node) {
    const place *const a = attn__has_args(node) ? &w->at[node->u.arg[0]] : NULL;
    const place *const b = attn__has_args(node) && node->n > 1 ? &w->at[node->u.arg[1]] : NULL;
    if (node->op == OP_leaf && node->sym == LEAF_k) {
        return 1;
    }
    if (!a || a->stride == IRREGULAR || (b && b->stride == IRREGULAR)) {
        return IRREGULAR;
    }
    switch (node->op) {
    case OP_neg: return -a->stride;
    case OP_add: return small((int64_t)a->stride + b->stride);
    case OP_sub: return small((int64_t)a->stride - b->stride);
    case OP_mul:
        for (int i = 0; i < 2; i++) {
            const attn__node *const factor = &w->g->node[node->u.arg[i]];
            if (factor->op == OP_const) {
                return small((int64_t)factor->u.value.i * (i ? a : b)->stride);
            }
        }
        return IRREGULAR;
    default: return IRREGULAR;
    }
}

static void put(writer *w, int n) {
    const attn__node *const node = &w->g->node[n];
    place *const p = &w->at[n];
    p->slot = p->reg = -1;
    p->last = -1;
    if (node->op == OP_leaf) {
        p->wide = node->sym == LEAF_s || node->sym == LEAF_k;
        p->phase = node->sym == LEAF_s || node->sym == LEAF_q || node->sym == LEAF_i ? PHASE_ROW
                   : node->sym == LEAF_k                                             ? PHASE_COLUMNS
                                                                                     : PHASE_BEGIN;
    }
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        const place *const a = &w->at[node->u.arg[i]];
        p->wide |= a->wide;
        p->phase = a->phase > p->phase ? a->phase : p->phase;
    }
    p->stride = !p->wide ? 0 : node->type == VT_I32 ? stride_of(w, node) : IRREGULAR;
    for (int i = 0; p->wide && attn__has_args(node) && i < node->n; i++) {
        place *const a = &w->at[node->u.arg[i]];
        if (a->last != FOREVER && (a->wide || node->op != OP_load)) {
            a->last = a->phase < p->phase ? FOREVER : n;
        }
    }
}

/* -- Writing ----------------------------------------------------------------------------------- */

static vm_step *emit(writer *w, int phase, int kind, const attn__node *node) {
    vm_step *const t = &w->vm->code[phase].step[w->vm->code[phase].n++];
    memset(t, 0, sizeof *t);
    t->kind = (uint8_t)kind;
    if (node) {
        t->op = node->op;
        t->type = attn__has_args(node) && node->op != OP_load ? w->g->node[node->u.arg[0]].type
                                                              : node->type;
        t->n = node->n;
        t->sym = node->sym;
    }
    return t;
}

static int register_new(writer *w) {
    return ++w->vm->n_registers;
}
static int register_take(writer *w) {
    return w->n_spare ? w->spare[--w->n_spare] : register_new(w);
}

/* The register of a value, splatted if it has none. What a later phase splats into an earlier one
   must be a register of its own: a spare one was written in between. */
static int lanes_of(writer *w, int n) {
    place *const p = &w->at[n];
    if (p->reg < 0) {
        vm_step *const t = emit(w, p->phase, STEP_SPLAT, NULL);
        t->arg[0] = p->slot;
        t->to = p->reg = p->last == FOREVER ? register_new(w) : register_take(w);
    }
    return p->reg;
}

static void release_args(writer *w, int n) {
    const attn__node *const node = &w->g->node[n];
    for (int i = 0; i < node->n; i++) {
        place *const a = &w->at[node->u.arg[i]];
        if (a->last == n && a->reg > 0) {
            w->spare[w->n_spare++] = a->reg;
            a->reg = -1;
            a->last = -1;
        }
    }
}

static attn__lane_fn loop_for(int op, int type) {
    return (*attn__lanes_at(0))[op][type == VT_F32 && op != OP_select ? VT_F32 : VT_I32];
}

static void write_wide(writer *w, int n) {
    const attn__node *const node = &w->g->node[n];
    place *const p = &w->at[n];
    if (node->op == OP_leaf) {
        p->reg = node->sym == LEAF_s ? 0 : register_take(w);
        if (node->sym == LEAF_k) {
            emit(w, PHASE_COLUMNS, STEP_KEYS, node)->to = p->reg;
        }
        return;
    }
    int32_t arg[ATTN__MAX_RANK], stride[ATTN__MAX_RANK] = {0};
    uint8_t wide = 0, regular = 1;
    for (int i = 0; i < node->n; i++) {
        const place *const a = &w->at[node->u.arg[i]];
        const int as_slot = node->op == OP_load && !a->wide;
        arg[i] = as_slot ? a->slot : lanes_of(w, node->u.arg[i]);
        wide |= (uint8_t)(!as_slot << i);
        stride[i] = a->stride;
        regular &= a->stride != IRREGULAR;
    }
    vm_step *const t = emit(w, p->phase, node->op == OP_load ? STEP_LOAD : STEP_LANES, node);
    t->wide = wide;
    t->regular = regular;
    for (int i = 0; i < ATTN__MAX_RANK; i++) {
        t->arg[i] = arg[i < node->n ? i : 0];
        t->stride[i] = stride[i];
    }
    if (t->kind == STEP_LANES) {
        t->loop = loop_for(t->op, t->type);
    }
    t->to = p->reg = register_take(w);
    release_args(w, n);
}

static void write_uniform(writer *w, int n) {
    const attn__node *const node = &w->g->node[n];
    place *const p = &w->at[n];
    if (node->op == OP_leaf) {
        p->slot = node->sym;
        return;
    }
    p->slot = w->vm->n_slots++;
    if (node->op == OP_const) {
        if (node->type == VT_F32) {
            w->vm->slot[p->slot].f = node->u.value.f;
        } else {
            w->vm->slot[p->slot].i = node->u.value.i;
        }
        return;
    }
    vm_step *const t = emit(w, p->phase,
                            node->op == OP_param  ? STEP_PARAM
                            : node->op == OP_load ? STEP_FETCH
                                                  : STEP_SCALAR,
                            node);
    t->to = p->slot;
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        t->arg[i] = w->at[node->u.arg[i]].slot;
    }
}

static void write_all(writer *w, const int32_t *roots, int n_roots) {
    for (int phase = 0; phase < PHASES; phase++) {
        for (int i = 0; i < w->g->n; i++) {
            if (w->need[i] && w->at[i].phase == phase) {
                (w->at[i].wide ? write_wide : write_uniform)(w, i);
            }
        }
    }
    for (int r = 0; r < n_roots; r++) {
        w->vm->out[r] = lanes_of(w, roots[r]);
    }
}

static int build(writer *w, const int32_t *roots, int n_roots) {
    attn__vm *const vm = w->vm;
    const size_t n = (size_t)w->g->n;
    w->at = calloc(n, sizeof *w->at);
    w->need = malloc(n);
    w->spare = malloc(n * sizeof *w->spare);
    vm->slot = calloc(n + LEAF_COUNT, sizeof *vm->slot);
    vm->symbol = malloc((size_t)w->g->n_symbols * sizeof *vm->symbol + 1);
    vm->out = malloc((size_t)n_roots * sizeof *vm->out);
    vm->n_slots = LEAF_COUNT;
    vm->n_out = n_roots;
    if (!w->at || !w->need || !w->spare || !vm->slot || !vm->symbol || !vm->out) {
        return 0;
    }
    if (w->g->n_symbols) {
        memcpy(vm->symbol, w->g->symbol, (size_t)w->g->n_symbols * sizeof *vm->symbol);
    }
    attn__need(w->g, roots, n_roots, w->need);
    int steps = 0;
    for (int i = 0; i < w->g->n; i++) {
        if (w->need[i]) {
            put(w, i);
            steps += 2; /* a value and its splat */
        }
    }
    for (int r = 0; r < n_roots; r++) {
        w->at[roots[r]].last = FOREVER;
    }
    for (int phase = 0; phase < PHASES; phase++) {
        vm->code[phase].step = malloc((size_t)steps * sizeof *vm->code[phase].step);
        if (!vm->code[phase].step) {
            return 0;
        }
    }
    write_all(w, roots, n_roots);
    return 1;
}

int attn__vm_new(const attn_graph *g, const int32_t *roots, int n_roots, attn__vm **vm) {
    *vm = calloc(1, sizeof **vm);
    writer w = {.g = g, .vm = *vm};
    const int built = *vm && build(&w, roots, n_roots);
    free(w.at);
    free(w.need);
    free(w.spare);
    if (!built) {
        attn__vm_free(*vm);
        *vm = NULL;
        return attn__fail(ATTN_MEMORY, "variant", "out of memory for the program of a variant");
    }
    return ATTN_OK;
}

void attn__vm_free(attn__vm *vm) {
    if (!vm) {
        return;
    }
    for (int phase = 0; phase < PHASES; phase++) {
        free(vm->code[phase].step);
    }
    free(vm->symbol);
    free(vm->slot);
    free(vm->out);
    free(vm);
}
