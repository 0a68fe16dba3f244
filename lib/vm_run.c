/* vm_run.c: runs the program of a vector machine.

   Who calls it: the CPU engine and attn_variant_sample, through vm.h. */
#include "vm_int.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <string.h>

size_t attn__vm_scratch(const attn__vm *vm) {
    return vm_round(sizeof(vm_frame)) + vm_slots_bytes(vm) +
           (size_t)vm->n_chunks * (size_t)vm->lanes->chunk * 4 +
           (size_t)vm->n_rows * VM_ROW_BYTES + (size_t)vm->n_diagonals * VM_DIAGONAL_BYTES;
}

static void run_scalar(attn__val32 *slot, const vm_step *t) {
    attn__val32 a[3] = {{0}, {0}, {0}};
    for (int i = 0; i < t->n; i++) {
        a[i] = slot[t->arg[i].at];
    }
    slot[t->to.at] = attn__op32(t->op, t->type, a[0], a[1], a[2]);
}

static void run_param(const attn__bound *bound, attn__val32 *slot, const vm_step *t) {
    if (t->type == VT_F32) {
        slot[t->to.at].f = bound[t->sym].f;
    } else {
        slot[t->to.at].i = bound[t->sym].i;
    }
}

static void run_fetch(const attn__vm *vm, const attn__bound *bound, attn__val32 *slot,
                      const vm_step *t) {
    int64_t index[ATTN__MAX_RANK];
    for (int i = 0; i < t->n; i++) {
        index[i] = slot[t->arg[i].at].i;
    }
    if (t->type == VT_F32) {
        slot[t->to.at].f = attn__fetch_f(&bound[t->sym], t->n, index);
    } else {
        slot[t->to.at].i = attn__fetch_i(&bound[t->sym], &vm->symbol[t->sym], t->n, index);
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

/* The code's steps for n lanes, of which begin..end are wanted. Returns 1 if scores are -inf. */
static int run(const attn__vm *vm, void *scratch, int code, int n, const float *s, float by,
               int begin, int end) {
    const vm_frame *const frame = vm_frame_of(scratch);
    attn__val32 *const slot = vm_slots_of(scratch);
    const int keys = frame->k0 - (code == CODE_ROWS ? frame->rows - 1 : 0);
    int wild = 0;
    for (int i = 0; i < vm->code[code].n; i++) {
        const vm_step *const t = &vm->code[code].step[i];
        switch ((enum vm_kind)t->kind) {
        case STEP_SCALAR: run_scalar(slot, t); break;
        case STEP_PARAM: run_param(frame->bound, slot, t); break;
        case STEP_FETCH: run_fetch(vm, frame->bound, slot, t); break;
        case STEP_SPLAT:
            run_splat(vm_at(scratch, t->to), slot[t->arg[0].at].i,
                      t->to.base == AT_CHUNK ? vm->lanes->chunk : ATTN__VM_WIDTH);
            break;
        case STEP_KEYS: run_keys(vm_at(scratch, t->to), keys, n); break;
        case STEP_LOAD: attn__vm_load(vm, scratch, t, n); break;
        case STEP_LANES:
            wild |= vm->lanes->run(vm->insn + t->to.at, frame->base, s, by, begin, end);
            break;
        }
    }
    return wild;
}

/* Where the diagonals' lane for column 0 of the row stands. */
static void place_diagonals(const attn__vm *vm, void *scratch, int lane) {
    vm_frame *const frame = vm_frame_of(scratch);
    frame->base[AT_DIAGONAL] =
        frame->base[AT_ROW] + (size_t)vm->n_rows * VM_ROW_BYTES + (size_t)lane * 4;
}

void attn__vm_begin(const attn__vm *vm, void *scratch, const attn__env *env,
                    const attn__bound *bound) {
    vm_frame *const frame = vm_frame_of(scratch);
    attn__val32 *const slot = vm_slots_of(scratch);
    *frame = (vm_frame){.bound = bound};
    frame->base[AT_CHUNK] = (char *)slot + vm_slots_bytes(vm);
    frame->base[AT_ROW] =
        frame->base[AT_CHUNK] + (size_t)vm->n_chunks * (size_t)vm->lanes->chunk * 4;
    place_diagonals(vm, scratch, 0);
    memcpy(slot, vm->slot, (size_t)vm->n_slots * sizeof *slot);
    for (int i = 0; i < LEAF_COUNT; i++) {
        slot[i].i = env->leaf[i];
    }
    run(vm, scratch, CODE_BEGIN, 0, NULL, 0, 0, 0);
}

void attn__vm_columns(const attn__vm *vm, void *scratch, int32_t k0, int n) {
    vm_frame_of(scratch)->k0 = k0;
    vm_frame_of(scratch)->n = n;
    run(vm, scratch, CODE_COLUMNS, n, NULL, 0, 0, n);
}

static void place_row(void *scratch, int32_t i, int32_t q) {
    vm_slots_of(scratch)[LEAF_i].i = i;
    vm_slots_of(scratch)[LEAF_q].i = q;
}

void attn__vm_rows(const attn__vm *vm, void *scratch, int32_t i0, int32_t q0, int rows) {
    vm_frame *const frame = vm_frame_of(scratch);
    frame->i0 = i0;
    frame->q0 = q0;
    frame->rows = rows;
    place_row(scratch, i0, q0);
    place_diagonals(vm, scratch, 0);
    run(vm, scratch, CODE_ROWS, frame->n + rows - 1, NULL, 0, 0, frame->n + rows - 1);
}

int attn__vm_row(const attn__vm *vm, void *scratch, int r, const float *s, float by, int begin,
                 int end, const void **out) {
    const vm_frame *const frame = vm_frame_of(scratch);
    int wild;
    place_diagonals(vm, scratch, frame->rows - 1 - r);
    if (vm->row_chain >= 0) { /* no slot is read */
        wild = vm->lanes->run(vm->insn + vm->row_chain, frame->base, s, by, begin, end);
    } else {
        place_row(scratch, frame->i0 + r, frame->q0 + r);
        wild = run(vm, scratch, CODE_ROW, frame->n, s, by, begin, end);
    }
    for (int e = 0; e < vm->n_out; e++) {
        out[e] = vm_at(scratch, vm->out[e]);
    }
    return wild;
}
