/* vm.c: places the values of the vector machine's program, and has its code written.

   Who calls it: the CPU engine when a plan is made, attn_variant_sample. A node is placed twice:

       when    begin: b, h, lengths, constants, parameters    row: i, q, s
               columns: k                                     else the latest of its arguments
       where   lanes if s or k is below it (each lane its own), else a slot

   Of the rows' values those that depend on nothing but k - q, such as a distance, what is made of
   it, and what is loaded by it, are the same along a tile's diagonals. They are made once per tile,
   for a row that is longer by the tile's rows, and each row reads its part:

       diagonals   k - q  -2 -1  0  1  2  3        of a tile of 3 rows and 4 columns
       row 0                    [0  1  2  3]
       row 1                [-1  0  1  2]
       row 2             [-2 -1  0  1] */
#include "vm_write.h"

#include <stdlib.h>
#include <string.h>

/* -- Placing ----------------------------------------------------------------------------------- */

static int32_t small(int64_t x) {
    return x > -65536 && x < 65536 ? (int32_t)x : IRREGULAR;
}

/* Growth of a sum or a product by a constant, from those of its arguments. */
static int32_t growth(const writer *w, const attn__node *node, int32_t a, int32_t b) {
    if (a == IRREGULAR || b == IRREGULAR) {
        return IRREGULAR;
    }
    switch (node->op) {
    case OP_neg: return -a;
    case OP_add: return small((int64_t)a + b);
    case OP_sub: return small((int64_t)a - b);
    case OP_mul:
        for (int i = 0; i < 2; i++) {
            const attn__node *const factor = &w->g->node[node->u.arg[i]];
            if (factor->op == OP_const) {
                return small((int64_t)factor->u.value.i * (i ? a : b));
            }
        }
        return IRREGULAR;
    default: return IRREGULAR;
    }
}

static void put_growth(writer *w, const attn__node *node, place *p) {
    p->row = p->lane = IRREGULAR;
    if (p->phase == CODE_BEGIN) {
        p->row = p->lane = 0;
    } else if (node->op == OP_leaf && node->sym != LEAF_s) {
        p->row = node->sym != LEAF_k;
        p->lane = node->sym == LEAF_k;
    } else if (attn__has_args(node) && node->type == VT_I32) {
        const place *const a = &w->at[node->u.arg[0]], *const b = &w->at[node->u.arg[node->n > 1]];
        p->row = growth(w, node, a->row, node->n > 1 ? b->row : 0);
        p->lane = growth(w, node, a->lane, node->n > 1 ? b->lane : 0);
    }
    if (!p->wide) {
        p->lane = 0;
    }
}

/* Whether a wide value of the rows depends on nothing but k - q. */
static int is_diagonal(const writer *w, const attn__node *node, const place *p) {
    if (p->lane != IRREGULAR && p->row != IRREGULAR && p->lane == -p->row) {
        return 1;
    }
    int all = attn__has_args(node);
    for (int i = 0; all && i < node->n; i++) {
        const place *const a = &w->at[node->u.arg[i]];
        all = a->phase == CODE_BEGIN || a->home == CODE_ROWS;
    }
    return all;
}

static void put(writer *w, int n) {
    const attn__node *const node = &w->g->node[n];
    place *const p = &w->at[n];
    p->kept.base = NOWHERE;
    if (node->op == OP_leaf) {
        p->wide = node->sym == LEAF_s || node->sym == LEAF_k;
        p->phase = node->sym == LEAF_s || node->sym == LEAF_q || node->sym == LEAF_i ? CODE_ROW
                   : node->sym == LEAF_k                                             ? CODE_COLUMNS
                                                                                     : CODE_BEGIN;
    }
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        const place *const a = &w->at[node->u.arg[i]];
        p->wide |= a->wide;
        p->phase = a->phase > p->phase ? a->phase : p->phase;
    }
    put_growth(w, node, p);
    p->home = p->wide && p->phase == CODE_ROW && is_diagonal(w, node, p) ? CODE_ROWS : p->phase;
    if (p->wide) {
        return;
    }
    p->slot = node->op == OP_leaf ? node->sym : w->vm->n_slots++;
    if (node->op == OP_const) {
        if (node->type == VT_F32) {
            w->vm->slot[p->slot].f = node->u.value.f;
        } else {
            w->vm->slot[p->slot].i = node->u.value.i;
        }
    } else if (p->phase == CODE_BEGIN && node->op != OP_leaf) {
        attn__vm_scalar(w, CODE_BEGIN, n);
    }
}

/* -- Code -------------------------------------------------------------------------------------- */

/* needed: what the code of the rows makes or reads. Of that, what others make is their output. */
static void need_of_row(writer *w, const int32_t *roots, int n_roots) {
    for (int r = 0; r < n_roots; r++) {
        place *const p = &w->at[roots[r]];
        w->here[roots[r]].needed = 1;
        p->output = p->wide;
    }
    for (int n = w->g->n - 1; n >= 0; n--) {
        const attn__node *const node = &w->g->node[n];
        place *const p = &w->at[n];
        if (!w->here[n].needed) {
            continue;
        }
        p->output |= p->wide && p->home != CODE_ROW;
        for (int i = 0; p->home == CODE_ROW && attn__has_args(node) && i < node->n; i++) {
            w->here[node->u.arg[i]].needed = 1;
        }
    }
}

/* needed: what makes the outputs of a code that others run after. */
static void need_of_outputs(writer *w, int code) {
    for (int n = w->g->n - 1; n >= 0; n--) {
        const attn__node *const node = &w->g->node[n];
        const place *const p = &w->at[n];
        w->here[n].needed |= p->output && p->home == code;
        for (int i = 0; w->here[n].needed && attn__has_args(node) && i < node->n; i++) {
            w->here[node->u.arg[i]].needed = 1;
        }
    }
}

/* A root that is uniform is splatted to a row, where its readers find it. */
static vm_ref row_of_root(writer *w, int n) {
    const place *const p = &w->at[n];
    if (p->wide) {
        return p->kept;
    }
    const vm_ref to = attn__vm_keep(w, AT_ROW);
    vm_step *const t = attn__vm_step(w, p->phase, STEP_SPLAT);
    if (t) {
        t->arg[0].at = p->slot;
        t->to = to;
    }
    return to;
}

static void write_all(writer *w, const int32_t *roots, int n_roots) {
    const size_t all = (size_t)w->g->n * sizeof *w->here;
    need_of_row(w, roots, n_roots);
    for (int code = CODE_COLUMNS; code < CODE_ROW; code++) {
        memset(w->here, 0, all);
        need_of_outputs(w, code);
        attn__vm_write(w, code);
    }
    memset(w->here, 0, all);
    need_of_row(w, roots, n_roots);
    attn__vm_write(w, CODE_ROW);
    for (int r = 0; r < n_roots; r++) {
        w->vm->out[r] = row_of_root(w, roots[r]);
    }
}

static int build(writer *w, const int32_t *roots, int n_roots) {
    attn__vm *const vm = w->vm;
    const size_t n = (size_t)w->g->n;
    w->at = calloc(n, sizeof *w->at);
    w->here = calloc(n, sizeof *w->here);
    w->need = malloc(n);
    w->order = malloc(2 * n * sizeof *w->order);
    w->pool[0].spare = malloc(VM_BASES * n * sizeof *w->order);
    vm->slot = calloc(n + LEAF_COUNT, sizeof *vm->slot);
    vm->symbol = malloc((size_t)w->g->n_symbols * sizeof *vm->symbol + 1);
    vm->out = malloc((size_t)n_roots * sizeof *vm->out);
    vm->lanes = attn__lanes_chosen();
    vm->n_slots = LEAF_COUNT;
    vm->n_out = n_roots;
    if (!w->at || !w->here || !w->need || !w->order || !w->pool[0].spare || !vm->slot ||
        !vm->symbol || !vm->out) {
        return 0;
    }
    w->stack = w->order + n;
    for (int base = 1; base < VM_BASES; base++) {
        w->pool[base].spare = w->pool[0].spare + (size_t)base * n;
    }
    if (w->g->n_symbols) {
        memcpy(vm->symbol, w->g->symbol, (size_t)w->g->n_symbols * sizeof *vm->symbol);
    }
    attn__need(w->g, roots, n_roots, w->need);
    for (int i = 0; i < w->g->n; i++) {
        if (w->need[i]) {
            put(w, i);
        }
    }
    write_all(w, roots, n_roots);
    const vm_code *const row = &vm->code[CODE_ROW];
    vm->row_chain = row->n == 1 && row->step->kind == STEP_LANES ? row->step->to.at : -1;
    return !w->failed;
}

int attn__vm_new(const attn_graph *g, const int32_t *roots, int n_roots, attn__vm **vm) {
    *vm = calloc(1, sizeof **vm);
    writer w = {.g = g, .vm = *vm};
    const int built = *vm && build(&w, roots, n_roots);
    free(w.at);
    free(w.here);
    free(w.need);
    free(w.order);
    free(w.pool[0].spare);
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
    for (int code = 0; code < CODES; code++) {
        free(vm->code[code].step);
    }
    free(vm->insn);
    free(vm->symbol);
    free(vm->slot);
    free(vm->out);
    free(vm);
}
