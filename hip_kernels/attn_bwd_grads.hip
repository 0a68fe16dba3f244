/* attn_bwd_grads.hip: gradients of what a variant reads, before and after attn_bwd.hip adds to
   them: 0 to the gradient, 0 to sums of exact.h, and sums to the gradient.

   Who launches it: lib/gpu_grads.c, for each of them. Threads step through the elements. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/exact.h"
#include "core/grads.h"

DEV u64 grads_place(const attn_grads_params *p, i64 n) {
    u64 at = p->grad;
    for (int axis = 3; axis >= 0; axis--) {
        at += (u64)(n % p->n[axis] * p->st[axis]);
        n /= p->n[axis];
    }
    return at;
}

DEV void attn_bwd_grads_body(const attn_grads_params *p) {
    const i64 count = p->n[0] * p->n[1] * p->n[2] * p->n[3], step = grid_size() * ATTN_THREADS;
    for (i64 n = block_id() * ATTN_THREADS + thread_id(); n < count; n += step) {
        const u64 sum = p->sums + (u64)(n * EXACT_BYTES);
        if (p->what == GRADS_CLEAR_SUMS) {
            for (int word = 0; word < EXACT_BYTES; word += 4) {
                store_u32(sum + (u64)word, 0);
            }
        } else {
            store_u32(grads_place(p, n), p->what == GRADS_FINISH ? bits_of(exact_sum(sum)) : 0);
        }
    }
}

ATTN_ENTRY(attn_bwd_grads, attn_bwd_grads_body, attn_grads_params)
