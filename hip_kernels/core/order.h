/* order.h: parts of dq in one order (ATTN_ORDERED): the same bits in each run.

   Who calls it: sched/backward.h, attn_bwd.hip. Behind a query block's elements (dq.h) stands a
   number, its turn: how many blocks of keys have added their parts to it. A block of keys adds when
   as many have as come before it and see the query block, and then passes the turn on, a step
   later, when its additions are long done:

       keys 0    | add m | pass m, add m-1 | pass m-1, add m-2 | ...     from the last step to the
       keys 1    |   wait m ........ | add m | pass m, add m-1 | ...     first, a step behind

   Blocks take their numbers when they begin, so that those before have begun, too: nobody waits for
   one that cannot run. Under a mask like causal the first blocks of keys have the most steps, and
   the last steps are those that all of them see. */
#ifndef ATTN_ORDER_H
#define ATTN_ORDER_H

#include "core/dq.h"
#include "core/range.h"

/* In shared memory: the block's number; the turn to be passed: its address and new number, or 0. */
enum { ORDER_NUMBER, ORDER_AT = 8, ORDER_NEXT = 16, ORDER_BYTES = 32 };

/* By all threads of the block. */
DEV void order_begin(const attn_params *p, u32 shared) {
    if (thread_id() == 0) {
        shared_store_u32(shared + ORDER_NUMBER, atomic_next_u32(p->counter));
        shared_store_u32(shared + ORDER_NEXT, 0);
    }
    block_sync();
}

/* Blocks of keys before the item's that see step n of range.h. */
DEV u32 order_turn(const attn_params *p, const attn_item *w, i32 n) {
    const i32 own = w->row0 / ATTN_BM;
#if ATTN_HAS_MASK || ATTN_HAS_BLOCKS
    float seen = 0; /* exact */
    ROLLED for (i32 other = lane_id(); other < own; other += TILE_LANES) {
        attn_item before = *w;
        before.row0 = other * ATTN_BM;
        seen += range_class(p, &before, n) != 0 ? 1.0f : 0.0f;
    }
    return (u32)warp_sum(seen);
#else
    (void)p, (void)n;
    return (u32)own;
#endif
}

/* By a warp, before it adds its part to query block `block` (dq.h). */
DEV void order_wait(u64 block, u32 turn) {
    if (turn > 0 && lane_id() == 0) {
        wait_u32(block + DQ_BYTES, turn);
    }
    warp_sync();
}
/* By all warps, behind it. */
DEV void order_keep(u32 shared, u64 block, u32 turn) {
    if (thread_id() == 0) {
        shared_store_u32(shared + ORDER_AT, (u32)(block + DQ_BYTES));
        shared_store_u32(shared + ORDER_AT + 4, (u32)((block + DQ_BYTES) >> 32));
        shared_store_u32(shared + ORDER_NEXT, turn + 1);
    }
}
/* By all warps, when they have met since then. */
DEV void order_pass(u32 shared) {
    if (thread_id() == 0) {
        const u32 next = shared_load_u32(shared + ORDER_NEXT);
        if (next > 0) {
            const u64 low = shared_load_u32(shared + ORDER_AT);
            store_release_u32((u64)shared_load_u32(shared + ORDER_AT + 4) << 32 | low, next);
        }
    }
}

#endif
