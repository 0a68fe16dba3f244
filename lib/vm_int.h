/* vm_int.h: the program of the vector machine, shared by vm.c, which writes it, and vm_run.c, which
   runs it.

   A value that is the same in every lane is uniform: it lives in a slot of 32 bits and is computed
   once. Where lanes need it, it is splatted to a register of VM_WIDTH lanes. Scratch of a thread:

       frame | slots: leaves by number, constants, uniform values | registers [n][VM_WIDTH]

   Register 0 is no memory of ours: it is the row of scores that the caller gave. */
#ifndef ATTN_VM_INT_H
#define ATTN_VM_INT_H

#include "vm.h"
#include "vm_loops.h"

enum vm_phase { PHASE_BEGIN, PHASE_COLUMNS, PHASE_ROW, PHASES };

enum vm_kind {
    STEP_SCALAR, /* slot to = op(slots arg) */
    STEP_PARAM,  /* slot to = parameter sym */
    STEP_FETCH,  /* slot to = element of tensor sym at slots arg */
    STEP_SPLAT,  /* register to = slot arg[0] in every lane */
    STEP_KEYS,   /* register to = k0, k0 + 1, ... */
    STEP_LANES,  /* register to = loop(registers arg) */
    STEP_LOAD    /* register to = elements of tensor sym */
};

typedef struct vm_step {
    uint8_t kind, op, type, n; /* type: of the arguments, for loads of the result; n: arguments */
    uint8_t wide;              /* load: bit i set where arg[i] is a register, else it is a slot */
    uint8_t regular;           /* load: each index grows by stride[i] from lane to lane */
    int32_t sym, to, arg[ATTN__MAX_RANK], stride[ATTN__MAX_RANK];
    attn__lane_fn loop;
} vm_step;

typedef struct vm_code {
    vm_step *step;
    int n;
} vm_code;

struct attn__vm {
    vm_code code[PHASES];
    attn__symbol *symbol;
    attn__val32 *slot; /* what slots hold at the start: the constants */
    int32_t n_slots, n_registers;
    int32_t *out; /* a register for each root */
    int32_t n_out;
};

typedef struct vm_frame {
    const attn__bound *bound;
    const float *s;
    int32_t k0, n;
} vm_frame;

static inline size_t vm_slots_bytes(const attn__vm *vm) {
    return ((size_t)vm->n_slots * sizeof(attn__val32) + 63) / 64 * 64;
}
static inline vm_frame *vm_frame_of(void *scratch) {
    return (vm_frame *)scratch;
}
static inline attn__val32 *vm_slots_of(void *scratch) {
    return (attn__val32 *)((char *)scratch + 64);
}
static inline void *vm_register(const attn__vm *vm, void *scratch, int r) {
    if (r == 0) {
        return (void *)vm_frame_of(scratch)->s;
    }
    const size_t lanes = (size_t)(r - 1) * ATTN__VM_WIDTH;
    return (char *)scratch + 64 + vm_slots_bytes(vm) + lanes * sizeof(float);
}

/* vm_load.c: n lanes of a tensor. */
void attn__vm_load(const attn__vm *vm, void *scratch, const vm_step *step);

#endif
