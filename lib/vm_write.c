/* vm_write.c: writes one code of the vector machine: scalar steps, loads, and chains of lanes.

   Who calls it: vm.c, for the columns, the diagonals and the rows. The lanes that a load waits for
   are a chain before it, what waits for the load one behind it:

       level 0   loads | chain      level 1   loads | chain      ...

   Within a chain a node's value is at hand when its reader comes, or was stored, if it has another
   reader or an argument that comes later. The order is depth first, so that it is at hand most of
   the time. */
#include "vm_write.h"

#include <stdlib.h>
#include <string.h>

enum { PAUSE = 64 }; /* instructions of a chain between two pauses */

typedef struct chain {
    writer *w;
    int code;
    int at_hand; /* node, or -1 */
    int length;  /* since the last pause */
} chain;

/* -- Places ------------------------------------------------------------------------------------ */

static vm_ref fresh(writer *w, int base) {
    attn__vm *const vm = w->vm;
    switch (base) {
    case AT_CHUNK: return (vm_ref){vm->n_chunks++ * vm->lanes->chunk * 4, base};
    case AT_ROW: return (vm_ref){vm->n_rows++ * VM_ROW_BYTES, base};
    default: return (vm_ref){vm->n_diagonals++ * VM_DIAGONAL_BYTES, base};
    }
}

vm_ref attn__vm_keep(writer *w, int base) {
    return fresh(w, base);
}

/* A place until release(); no value that a later code reads is put there. */
static vm_ref take(writer *w, int base) {
    vm_pool *const p = &w->pool[base];
    return p->n ? (vm_ref){p->spare[--p->n], base} : fresh(w, base);
}

static void release(writer *w, vm_ref r) {
    vm_pool *const p = &w->pool[r.base];
    p->spare[p->n++] = r.at;
}

static int lanes_base(int code) {
    return code == CODE_ROWS ? AT_DIAGONAL : AT_ROW;
}

/* A place for lanes that outlive their chunk: for other codes, too, if they are an output. */
static vm_ref take_lanes(writer *w, int code, int n) {
    place *const p = &w->at[n];
    if (p->output && p->home == code) {
        return p->kept = fresh(w, lanes_base(code));
    }
    return take(w, lanes_base(code));
}

/* -- Steps ------------------------------------------------------------------------------------- */

/* Room for one more of `size` bytes; NULL without memory. */
static void *grow(writer *w, void *array, int n, int *room, size_t size) {
    if (n < *room) {
        return array;
    }
    const int more = *room ? 2 * *room : 8;
    void *const grown = realloc(array, (size_t)more * size);
    if (!grown) {
        w->failed = 1;
        return NULL;
    }
    *room = more;
    return grown;
}

vm_step *attn__vm_step(writer *w, int code, int kind) {
    vm_code *const c = &w->vm->code[code];
    vm_step *const grown = grow(w, c->step, c->n, &c->room, sizeof *c->step);
    if (!grown) {
        return NULL;
    }
    c->step = grown;
    vm_step *const t = &c->step[c->n++];
    memset(t, 0, sizeof *t);
    t->kind = (uint8_t)kind;
    return t;
}

void attn__vm_scalar(writer *w, int code, int n) {
    const attn__node *const node = &w->g->node[n];
    vm_step *const t = attn__vm_step(w, code,
                                     node->op == OP_param  ? STEP_PARAM
                                     : node->op == OP_load ? STEP_FETCH
                                                           : STEP_SCALAR);
    if (!t) {
        return;
    }
    const int of_args = attn__has_args(node) && node->op != OP_load;
    t->op = node->op;
    t->type = of_args ? w->g->node[node->u.arg[0]].type : node->type;
    t->n = node->n;
    t->sym = node->sym;
    t->to.at = w->at[n].slot;
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        t->arg[i].at = w->at[node->u.arg[i]].slot;
    }
}

/* A uniform value as a chunk. What changes from row to row is splatted by each code anew. */
static void splat(writer *w, int code, int n) {
    place *const p = &w->at[n];
    local *const here = &w->here[n];
    if (here->at.base != NOWHERE) {
        return;
    }
    const int kept = p->kept.base != NOWHERE;
    p->kept = here->at = kept ? p->kept : attn__vm_keep(w, AT_CHUNK);
    if (kept && p->phase == CODE_BEGIN) {
        return;
    }
    vm_step *const t = attn__vm_step(w, p->phase == CODE_BEGIN ? CODE_BEGIN : code, STEP_SPLAT);
    if (t) {
        t->arg[0].at = p->slot;
        t->to = here->at;
    }
}

static void write_load(writer *w, int code, int n) {
    const attn__node *const node = &w->g->node[n];
    vm_step *const t = attn__vm_step(w, code, STEP_LOAD);
    if (!t) {
        return;
    }
    t->type = node->type;
    t->n = node->n;
    t->sym = node->sym;
    t->regular = 1;
    for (int i = 0; i < node->n; i++) {
        const place *const a = &w->at[node->u.arg[i]];
        t->wide |= (uint8_t)(a->wide << i);
        t->arg[i] = a->wide ? w->here[node->u.arg[i]].at : (vm_ref){a->slot, AT_ROW};
        t->stride[i] = a->lane;
        t->regular &= a->lane != IRREGULAR;
    }
    t->to = w->here[n].at = take_lanes(w, code, n);
}

/* -- Chains ------------------------------------------------------------------------------------ */

static void insn(chain *c, attn__lane_fn fn, vm_ref x, vm_ref y) {
    attn__vm *const vm = c->w->vm;
    vm_insn *const grown = grow(c->w, vm->insn, vm->n_insn, &vm->insn_room, sizeof *vm->insn);
    if (grown) {
        vm->insn = grown;
        vm->insn[vm->n_insn++] = (vm_insn){fn, {x, y}};
        c->length++;
    }
}

static const vm_ref nothing = {0, AT_CHUNK};

/* What is at hand goes to memory, unless it is there. */
static void store(chain *c) {
    writer *const w = c->w;
    local *const here = &w->here[c->at_hand];
    if (here->at.base == NOWHERE) {
        here->at = here->crosses ? take_lanes(w, c->code, c->at_hand) : take(w, AT_CHUNK);
        insn(c, w->vm->lanes->store, here->at, nothing);
    }
}

/* Before something else comes at hand. */
static void leave(chain *c) {
    if (c->at_hand >= 0 && c->w->here[c->at_hand].uses > 0) {
        store(c);
    }
    c->at_hand = -1;
}

static void drop_args(chain *c, const attn__node *node) {
    writer *const w = c->w;
    for (int i = 0; i < node->n; i++) {
        const int a = node->u.arg[i];
        local *const here = &w->here[a];
        if (here->made && here->uses == 0 && here->at.base != NOWHERE &&
            !(w->at[a].output && w->at[a].home == c->code)) {
            release(w, here->at);
            here->at.base = NOWHERE;
        }
    }
}

static void write_op(chain *c, int n) {
    writer *const w = c->w;
    const attn__node *const node = &w->g->node[n];
    const attn__lanes *const lanes = w->vm->lanes;
    const int of = w->g->node[node->u.arg[0]].type;
    const int type = of == VT_F32 && node->op != OP_select ? VT_F32 : VT_I32;
    int hand = -1, e = 0;
    for (int i = node->n - 1; i >= 0; i--) {
        hand = node->u.arg[i] == c->at_hand ? i : hand;
    }
    if (hand < 0) {
        leave(c);
        hand = 0;
        c->at_hand = node->u.arg[0];
        insn(c, lanes->load, w->here[c->at_hand].at, nothing);
    }
    vm_ref of_memory[2] = {nothing, nothing};
    for (int i = 0; i < node->n; i++) {
        local *const here = &w->here[node->u.arg[i]];
        here->uses -= here->made;
        if (i != hand) {
            if (node->u.arg[i] == c->at_hand) {
                store(c);
            }
            of_memory[e++] = here->at;
        }
    }
    leave(c);
    insn(c, lanes->op[node->op][type][hand], of_memory[0], of_memory[1]);
    drop_args(c, node);
}

static void write_lanes(chain *c, int n) {
    writer *const w = c->w;
    const attn__node *const node = &w->g->node[n];
    if (c->length > PAUSE) {
        insn(c, w->vm->lanes->pause, nothing, nothing);
        c->length = 0;
    }
    if (node->op == OP_leaf) {
        leave(c);
        insn(c, w->vm->lanes->score, nothing, nothing);
    } else {
        write_op(c, n);
    }
    c->at_hand = n;
    if (w->at[n].output && w->at[n].home == c->code) {
        store(c);
    }
}

/* -- A code ------------------------------------------------------------------------------------ */

static int is_load(const attn__node *node) {
    return node->op == OP_load;
}
static int is_keys(const attn__node *node) {
    return node->op == OP_leaf && node->sym == LEAF_k;
}

/* What is made here, its readers, its level. Returns the last level. */
static int measure(writer *w, int code) {
    int last = 0;
    for (int n = 0; n < w->g->n; n++) {
        const attn__node *const node = &w->g->node[n];
        const place *const p = &w->at[n];
        local *const here = &w->here[n];
        here->at = (vm_ref){0, NOWHERE};
        if (!here->needed) {
            continue;
        }
        here->made = p->wide && (code != CODE_ROW || p->home == CODE_ROW);
        if (p->wide && !here->made) {
            here->at = p->kept;
            continue;
        }
        here->crosses = p->output && p->home == code;
        for (int i = 0; here->made && attn__has_args(node) && i < node->n; i++) {
            const local *const a = &w->here[node->u.arg[i]];
            const attn__node *const arg = &w->g->node[node->u.arg[i]];
            const int waits = a->made && is_load(node) && !is_load(arg) && !is_keys(arg);
            here->level = a->level + waits > here->level ? a->level + waits : here->level;
        }
        for (int i = 0; here->made && attn__has_args(node) && i < node->n; i++) {
            local *const a = &w->here[node->u.arg[i]];
            a->uses += a->made;
            a->crosses |= is_load(node) || a->level != here->level;
        }
        last = here->level > last ? here->level : last;
    }
    return last;
}

/* Depth first, the higher argument first: w->order. Returns how many. */
static int put_in_order(writer *w) {
    int n_order = 0;
    uint8_t *const seen = w->need; /* 1: not yet; 2: in the stack with its arguments; 0: done */
    for (int n = 0; n < w->g->n; n++) {
        seen[n] = w->here[n].made;
    }
    for (int root = w->g->n - 1; root >= 0; root--) {
        int top = 0;
        if (seen[root] == 1) {
            w->stack[top++] = root;
        }
        while (top) {
            const int n = w->stack[top - 1];
            const attn__node *const node = &w->g->node[n];
            int next = -1;
            for (int i = 0; attn__has_args(node) && i < node->n; i++) {
                const int a = node->u.arg[i];
                if (seen[a] == 1 &&
                    (next < 0 || w->g->node[a].height > w->g->node[next].height)) {
                    next = a;
                }
            }
            if (next >= 0) {
                w->stack[top++] = next;
                continue;
            }
            seen[n] = 0;
            w->order[n_order++] = n;
            top--;
        }
    }
    return n_order;
}

static void write_level(writer *w, int code, int level, int n_order) {
    chain c = {.w = w, .code = code, .at_hand = -1};
    int begun = 0;
    for (int i = 0; i < n_order; i++) {
        const int n = w->order[i];
        const attn__node *const node = &w->g->node[n];
        if (w->here[n].level == level && is_load(node)) {
            write_load(w, code, n);
            for (int e = 0; e < node->n; e++) {
                w->here[node->u.arg[e]].uses -= w->here[node->u.arg[e]].made;
            }
            drop_args(&c, node);
        }
    }
    for (int i = 0; i < n_order; i++) {
        const int n = w->order[i];
        if (w->here[n].level != level || is_load(&w->g->node[n]) || is_keys(&w->g->node[n])) {
            continue;
        }
        if (!begun) {
            vm_step *const t = attn__vm_step(w, code, STEP_LANES);
            if (!t) {
                return;
            }
            t->to.at = w->vm->n_insn;
            begun = 1;
        }
        write_lanes(&c, n);
    }
    if (begun) {
        leave(&c);
        insn(&c, w->vm->lanes->end, nothing, nothing);
    }
}

void attn__vm_write(writer *w, int code) {
    const int last = measure(w, code);
    for (int n = 0; n < w->g->n; n++) { /* uniform values of the rows, and the keys */
        const place *const p = &w->at[n];
        if (!w->here[n].needed) {
            continue;
        }
        if (!p->wide && p->phase == CODE_ROW && w->g->node[n].op != OP_leaf) {
            attn__vm_scalar(w, code, n);
        } else if (w->here[n].made && is_keys(&w->g->node[n])) {
            vm_step *const t = attn__vm_step(w, code, STEP_KEYS);
            if (t) {
                t->to = w->here[n].at = take_lanes(w, code, n);
            }
        }
    }
    for (int n = 0; n < w->g->n; n++) {
        const attn__node *const node = &w->g->node[n];
        for (int i = 0; w->here[n].made && !is_load(node) && attn__has_args(node) && i < node->n;
             i++) {
            if (!w->at[node->u.arg[i]].wide) {
                splat(w, code, node->u.arg[i]);
            }
        }
    }
    const int n_order = put_in_order(w);
    for (int level = 0; level <= last; level++) {
        write_level(w, code, level, n_order);
    }
}
