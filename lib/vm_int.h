/* vm_int.h: the program of the vector machine, shared by vm.c and vm_write.c, which write it, and
   vm_run.c, which runs it.

   A value that is the same in every lane is uniform: it lives in a slot of 32 bits and is computed
   once. Where lanes need it, it is splatted to a chunk. Scratch of a thread:

       frame | slots: leaves by number, constants, uniform values | chunks | rows | diagonals

       chunks     [chunk of the table]   splatted values; what lives within a chunk of a row
       rows       [VM_WIDTH]             lane j is column j
       diagonals  [VM_DIAGONAL]          lane j - r + rows - 1 is column j of row r */
#ifndef ATTN_VM_INT_H
#define ATTN_VM_INT_H

#include "vm.h"
#include "vm_loops.h"

enum {
    VM_DIAGONAL = ATTN__VM_WIDTH + ATTN__VM_ROWS,
    VM_ROW_BYTES = ATTN__VM_WIDTH * 4,
    VM_DIAGONAL_BYTES = VM_DIAGONAL * 4
};

/* What runs when; CODE_ROWS is the diagonals' code. */
enum vm_code_at { CODE_BEGIN, CODE_COLUMNS, CODE_ROWS, CODE_ROW, CODES };

enum vm_kind {
    STEP_SCALAR, /* slot to.at = op(slots arg) */
    STEP_PARAM,  /* slot to.at = parameter sym */
    STEP_FETCH,  /* slot to.at = element of tensor sym at slots arg */
    STEP_SPLAT,  /* chunk or row to = slot arg[0] in every lane */
    STEP_KEYS,   /* row or diagonals to = the keys */
    STEP_LOAD,   /* row or diagonals to = elements of tensor sym */
    STEP_LANES   /* the chain that begins at instruction to.at */
};

typedef struct vm_step {
    uint8_t kind, op, type, n; /* type: of the arguments, for loads of the result; n: arguments */
    uint8_t wide;              /* load: bit i set where arg[i] has lanes, else it is a slot */
    uint8_t regular;           /* load: each index grows by stride[i] from lane to lane */
    int32_t sym;
    vm_ref to, arg[ATTN__MAX_RANK]; /* a slot's number is in `at` */
    int32_t stride[ATTN__MAX_RANK];
} vm_step;

typedef struct vm_code {
    vm_step *step;
    int n, room;
} vm_code;

struct attn__vm {
    const attn__lanes *lanes;
    vm_code code[CODES];
    vm_insn *insn;
    int n_insn, insn_room;
    int row_chain; /* the instruction that all of a row's code begins at, or -1: there is more */
    attn__symbol *symbol;
    attn__val32 *slot; /* what slots hold at the start: the constants */
    int32_t n_slots, n_chunks, n_rows, n_diagonals;
    vm_ref *out; /* a row or diagonals for each root */
    int32_t n_out;
};

typedef struct vm_frame {
    const attn__bound *bound;
    char *base[VM_BASES];
    int32_t k0, n, i0, q0, rows;
} vm_frame;

static inline size_t vm_round(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}
static inline size_t vm_slots_bytes(const attn__vm *vm) {
    return vm_round((size_t)vm->n_slots * sizeof(attn__val32));
}
static inline vm_frame *vm_frame_of(void *scratch) {
    return (vm_frame *)scratch;
}
static inline attn__val32 *vm_slots_of(void *scratch) {
    return (attn__val32 *)((char *)scratch + vm_round(sizeof(vm_frame)));
}
static inline void *vm_at(void *scratch, vm_ref r) {
    return vm_frame_of(scratch)->base[r.base] + r.at;
}

/* vm_load.c: n lanes of a tensor. */
void attn__vm_load(const attn__vm *vm, void *scratch, const vm_step *step, int n);

#endif
