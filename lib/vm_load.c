/* vm_load.c: reads the elements of a tensor for the lanes of a row.

   Who calls it: vm_run.c for STEP_LOAD. Lane j wants the element at index_0(j), index_1(j), ...; an
   index outside the tensor gives 0 and touches no memory.

       regular   every index grows by a constant from lane to lane (bias[b][h][q][k], ids[b][k]):
                 the lanes inside the tensor are one run, converted as one strided row
       else      each lane is looked up alone (table[h][min(q - k, 256)]) */
#include "vm_int.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <string.h>

/* The lanes j in [begin, end) for which 0 <= base + j * stride < n stay. */
static void clip(int64_t base, int64_t stride, int64_t n, int64_t *begin, int64_t *end) {
    if (stride == 0) {
        *end = base >= 0 && base < n ? *end : *begin;
        return;
    }
    if (stride < 0) { /* read the axis from its other end */
        base = n - 1 - base;
        stride = -stride;
    }
    const int64_t first = base >= 0 ? 0 : (-base + stride - 1) / stride;
    const int64_t last = base < n ? (n - 1 - base) / stride : -1;
    *begin = first > *begin ? first : *begin;
    *end = last + 1 < *end ? last + 1 : *end;
    *end = *end < *begin ? *begin : *end;
}

/* count elements at `from`, `stride` apart, to 32-bit lanes of the symbol's type. */
static void convert(void *to, const attn__symbol *s, const attn__bound *t, const char *from,
                    int64_t count, int64_t stride) {
    int32_t *const lanes = to;
    if (s->type == VT_F32) {
        attn__load_f32(to, from, t->type, count, stride);
    } else if (s->type == VT_BOOL) {
        for (int64_t j = 0; j < count; j++) {
            lanes[j] = from[j * stride] != 0;
        }
    } else {
        for (int64_t j = 0; j < count; j++) {
            int32_t x;
            memcpy(&x, from + j * stride * 4, sizeof x);
            lanes[j] = attn__clamp(x, s);
        }
    }
}

static const int32_t *index_of(void *scratch, const vm_step *step, int i) {
    return step->wide >> i & 1 ? vm_at(scratch, step->arg[i])
                               : &vm_slots_of(scratch)[step->arg[i].at].i;
}

static void load_run(const attn__vm *vm, void *scratch, const vm_step *step, int32_t *to, int n) {
    const attn__bound *const t = &vm_frame_of(scratch)->bound[step->sym];
    int64_t base[ATTN__MAX_RANK], begin = 0, end = n;
    for (int i = 0; i < step->n; i++) {
        int32_t x;
        memcpy(&x, index_of(scratch, step, i), sizeof x);
        base[i] = x;
        clip(base[i], step->stride[i], t->n[i], &begin, &end);
    }
    memset(to, 0, (size_t)n * sizeof *to);
    if (begin == end) {
        return;
    }
    int64_t at = 0, stride = 0;
    for (int i = 0; i < step->n; i++) {
        at += (base[i] + begin * step->stride[i]) * t->st[i];
        stride += end - begin > 1 ? step->stride[i] * t->st[i] : 0;
    }
    convert(to + begin, &vm->symbol[step->sym], t, t->data + at * attn__type_bytes(t->type),
            end - begin, stride);
}

/* Adds the axis i to the lanes' places at[n], as index 0 where it is outside, which is noted. */
static void add_axis(void *scratch, const vm_step *step, int i, int n, int64_t *at,
                     int32_t *outside) {
    const attn__bound *const t = &vm_frame_of(scratch)->bound[step->sym];
    const int32_t extent = t->n[i] < INT32_MAX ? (int32_t)t->n[i] : INT32_MAX;
    const int64_t stride = t->st[i];
    const int each = step->wide >> i & 1;
    const int32_t *const index = index_of(scratch, step, i);
    for (int j = 0; j < n; j++) {
        const int32_t x = index[j * each];
        const int inside = x >= 0 && x < extent;
        at[j] += (inside ? x : 0) * stride;
        outside[j] |= !inside;
    }
}

static int is_empty(const attn__bound *t, int rank) {
    int empty = 0;
    for (int i = 0; i < rank; i++) {
        empty |= t->n[i] == 0;
    }
    return empty;
}

/* Every place is one of the tensor, the lanes that are outside included: they read and forget. */
static void load_each(const attn__vm *vm, void *scratch, const vm_step *step, int32_t *to, int n) {
    const attn__bound *const t = &vm_frame_of(scratch)->bound[step->sym];
    const char *const data = t->data;
    const int bytes = attn__type_bytes(t->type);
    int64_t at[VM_DIAGONAL] = {0};
    int32_t outside[VM_DIAGONAL] = {0};
    if (is_empty(t, step->n)) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    for (int i = 0; i < step->n; i++) {
        add_axis(scratch, step, i, n, at, outside);
    }
    for (int j = 0; j < n; j++) {
        if (t->type == ATTN_F32) {
            memcpy(&to[j], data + at[j] * 4, sizeof to[j]);
        } else {
            convert(&to[j], &vm->symbol[step->sym], t, data + at[j] * bytes, 1, 1);
        }
    }
    for (int j = 0; j < n; j++) {
        to[j] = outside[j] ? 0 : to[j];
    }
}

void attn__vm_load(const attn__vm *vm, void *scratch, const vm_step *step, int n) {
    int32_t *const to = vm_at(scratch, step->to);
    (step->regular ? load_run : load_each)(vm, scratch, step, to, n);
}
