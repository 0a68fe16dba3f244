/* order.h: parts of dq in one order (ATTN_ORDERED): the same bits in each run.

   Who calls it: sched/backward.h, attn_bwd.hip. Behind a query block's elements (dq.h) stands a
   number for each warp, its turn: 1 + the block of keys whose warp of this number added last. Such
   a warp adds when the block of keys behind its own that is nearest and sees the query block has
   added, and passes the turn on in its next step, when its additions are long done:

       keys 3    | add 3 |                    causal: keys n see queries n and later ones
       keys 2    | add 2 | pass 2, add 3 |
       keys 1    | add 1 | pass 1, add 2 | pass 2, add 3 |
       keys 0    | add 0 | pass 0, add 1 | pass 1, add 2 | pass 2, add 3 |      time ->

   Blocks begin from the last of a head to the first, and each goes from the first step that it sees
   to the last. Under a mask like causal a block is a step behind the one before it wherever they
   meet, so nobody waits, and a few steps later what all of them read and add to is still in the
   second cache. Without a mask each waits once.

   Warps do not wait for each other here. Blocks take their numbers when they begin, so that those
   whose turn comes before have begun, too: nobody waits for one that cannot run. */
#ifndef ATTN_ORDER_H
#define ATTN_ORDER_H

#include "core/dq.h"
#include "core/range.h"

/* In shared memory: the block's number; of each warp the turn that it will pass on: address, number
   or 0. */
enum { ORDER_NUMBER, ORDER_TURNS = 16, ORDER_NEXT = 8, ORDER_BYTES = 16 * (1 + ATTN_WARPS) };
DEV u32 order_kept(u32 shared) {
    return shared + ORDER_TURNS + (u32)(thread_id() / TILE_LANES * 16);
}

/* By all threads of the block. */
DEV void order_begin(const attn_params *p, u32 shared) {
    if (thread_id() == 0) {
        shared_store_u32(shared + ORDER_NUMBER, atomic_next_u32(p->counter));
    }
    if (lane_id() == 0) {
        shared_store_u32(order_kept(shared) + ORDER_NEXT, 0);
    }
    block_sync();
}

/* 1 + the block of keys nearest behind the item's that sees step n of range.h; 0: there is none.
   is_before: of range.h; mostly it is the next one. */
DEV u32 order_turn(const attn_params *p, const attn_item *w, i32 n, int is_before) {
    const i32 own = w->row0 / ATTN_BM;
    if (is_before) {
        return (u32)(own + 2);
    }
    ROLLED for (i32 next = own + 2; next * ATTN_BM < w->rows; next += TILE_LANES) {
        attn_item before = *w;
        before.row0 = (next + lane_id()) * ATTN_BM;
        const u64 seen = warp_ballot(before.row0 < w->rows && range_class(p, &before, n) != 0);
        if (seen) {
            return (u32)(next + first_bit(seen) + 1);
        }
    }
    return 0;
}

DEV u64 order_at(u64 block) {
    return block + DQ_BYTES + (u64)(thread_id() / TILE_LANES * 4);
}
/* Before the warp adds to query block `block` (dq.h). */
DEV void order_wait(u64 block, u32 turn) {
    if (turn > 0 && lane_id() == 0) {
        wait_u32(order_at(block), turn);
    }
    warp_sync();
}
/* Behind it. */
DEV void order_keep(u32 shared, u64 block, const attn_item *w) {
    if (lane_id() == 0) {
        const u64 at = order_at(block);
        shared_store_u32(order_kept(shared), (u32)at);
        shared_store_u32(order_kept(shared) + 4, (u32)(at >> 32));
        shared_store_u32(order_kept(shared) + ORDER_NEXT, (u32)(w->row0 / ATTN_BM + 1));
    }
}
/* When the warp's lanes have met since then. */
DEV void order_pass(u32 shared) {
    if (lane_id() == 0) {
        const u32 kept = order_kept(shared), next = shared_load_u32(kept + ORDER_NEXT);
        if (next > 0) {
            store_release_u32((u64)shared_load_u32(kept + 4) << 32 | shared_load_u32(kept), next);
        }
    }
}

#endif
