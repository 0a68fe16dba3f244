/* vm_run.c: runs the program of a vector machine.

   Who calls it: the CPU engine and attn_variant_sample, through vm.h. */
#include "vm_int.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <string.h>

size_t attn__vm_scratch(const attn__vm *vm) {
    const size_t registers = (size_t)vm->n_registers * ATTN__VM_WIDTH * sizeof(float);
    return 64 + vm_slots_bytes(vm) + registers;
}

static void run_scalar(attn__val32 *slot, const vm_step *t) {
    attn__val32 a[3] = {{0}, {0}, {0}};
    for (int i = 0; i < t->n; i++) {
        a[i] = slot[t->arg[i]];
    }
    slot[t->to] = attn__op32(t->op, t->type, a[0], a[1], a[2]);
}

static void run_param(const attn__bound *bound, attn__val32 *slot, const vm_step *t) {
    if (t->type == VT_F32) {
        slot[t->to].f = bound[t->sym].f;
    } else {
        slot[t->to].i = bound[t->sym].i;
    }
}

static void run_fetch(const attn__vm *vm, const attn__bound *bound, attn__val32 *slot,
                      const vm_step *t) {
    int64_t index[ATTN__MAX_RANK];
    for (int i = 0; i < t->n; i++) {
        index[i] = slot[t->arg[i]].i;
    }
    if (t->type == VT_F32) {
        slot[t->to].f = attn__fetch_f(&bound[t->sym], t->n, index);
    } else {
        slot[t->to].i = attn__fetch_i(&bound[t->sym], &vm->symbol[t->sym], t->n, index);
    }
}

static void run_splat(int32_t *to, int32_t x, int n) {
    for (int j = 0; j < n; j++) {
        to[j] = x;
    }
}

static void run_keys(int32_t *to, int32_t k0, int n) {
    for (int j = 0; j < n; j++) {
        to[j] = (int32_t)((uint32_t)k0 + (uint32_t)j);
    }
}

static void run(const attn__vm *vm, void *scratch, enum vm_phase phase) {
    const vm_frame *const frame = vm_frame_of(scratch);
    attn__val32 *const slot = vm_slots_of(scratch);
    /* What begins a work item is splatted whole: its number of columns is not known yet. */
    const int n = phase == PHASE_BEGIN ? ATTN__VM_WIDTH : frame->n;
    for (int i = 0; i < vm->code[phase].n; i++) {
        const vm_step *const t = &vm->code[phase].step[i];
        switch ((enum vm_kind)t->kind) {
        case STEP_SCALAR: run_scalar(slot, t); break;
        case STEP_PARAM: run_param(frame->bound, slot, t); break;
        case STEP_FETCH: run_fetch(vm, frame->bound, slot, t); break;
        case STEP_SPLAT: run_splat(vm_register(vm, scratch, t->to), slot[t->arg[0]].i, n); break;
        case STEP_KEYS: run_keys(vm_register(vm, scratch, t->to), frame->k0, n); break;
        case STEP_LANES:
            t->loop(vm_register(vm, scratch, t->to), vm_register(vm, scratch, t->arg[0]),
                    vm_register(vm, scratch, t->arg[1]), vm_register(vm, scratch, t->arg[2]), n);
            break;
        case STEP_LOAD: attn__vm_load(vm, scratch, t); break;
        }
    }
}

void attn__vm_begin(const attn__vm *vm, void *scratch, const attn__env *env,
                    const attn__bound *bound) {
    *vm_frame_of(scratch) = (vm_frame){.bound = bound};
    attn__val32 *const slot = vm_slots_of(scratch);
    memcpy(slot, vm->slot, (size_t)vm->n_slots * sizeof *slot);
    for (int i = 0; i < LEAF_COUNT; i++) {
        slot[i].i = env->leaf[i];
    }
    run(vm, scratch, PHASE_BEGIN);
}

void attn__vm_columns(const attn__vm *vm, void *scratch, int32_t k0, int n) {
    vm_frame_of(scratch)->k0 = k0;
    vm_frame_of(scratch)->n = n;
    run(vm, scratch, PHASE_COLUMNS);
}

void attn__vm_row(const attn__vm *vm, void *scratch, int32_t i, int32_t q, const float *s,
                  const void **out) {
    vm_frame_of(scratch)->s = s;
    vm_slots_of(scratch)[LEAF_i].i = i;
    vm_slots_of(scratch)[LEAF_q].i = q;
    run(vm, scratch, PHASE_ROW);
    for (int r = 0; r < vm->n_out; r++) {
        out[r] = vm_register(vm, scratch, vm->out[r]);
    }
}
