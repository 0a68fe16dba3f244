/* order.h: parts of dq in one order (ATTN_ORDERED): the same bits in each run.

   Who calls it: sched/backward.h, attn_bwd.hip. Behind a query block's elements (dq.h) stands a
   number, its turn: 1 + the block of keys that added last. Warps add when the block of keys whose
   turn comes before their own's, the nearest behind it that sees the query block, has added. A
   thread passes the turn on in the next step, behind the barrier where all of the block have met,
   under products that fly, as it waits there until all additions are done:

       keys 3    | add 3 |                    causal: keys n see queries n and later ones
       keys 2    | add 2 | pass 2, add 3 |
       keys 1    | add 1 | pass 1, add 2 | pass 2, add 3 |
       keys 0    | add 0 | pass 0, add 1 | pass 1, add 2 | pass 2, add 3 |      time ->

   Blocks begin from the last of a head to the first, and each goes from the first step that it sees
   to the last. Under a mask like causal a block is a step behind the one before it wherever they
   meet, so nobody waits, and a few steps later what all of them read and add to is still in the
   second cache. Without a mask each waits once.

   So blocks end one after the other, the longest last. The next section of heads (work.h) goes
   down: from the first block to the last, and each from its last step to the first. Its blocks
   begin one after the other, the longest first, each behind the one before it wherever they meet,
   and end together:

       | keys 3 up | keys 0 down                           |
       | keys 2 up             | keys 1 down               |
       | keys 1 up                         | keys 2 down   |
       | keys 0 up                             | keys 3 d. |                          time ->

   Blocks take their numbers when they begin, so that those whose turn comes before have begun, too:
   nobody waits for one that cannot run. */
#ifndef ATTN_ORDER_H
#define ATTN_ORDER_H

#include "core/dq.h"
#include "core/range.h"

/* In shared memory: the block's number; the turn that it will pass on, or 0, and its address. */
enum { ORDER_NUMBER, ORDER_NEXT = 4, ORDER_AT = 8, ORDER_BYTES = 16 };

/* By all threads of the block. */
DEV void order_begin(const attn_params *p, u32 shared) {
    if (thread_id() == 0) {
        shared_store_u32(shared + ORDER_NUMBER, atomic_next_u32(p->counter));
        shared_store_u32(shared + ORDER_NEXT, 0);
    }
    block_sync();
}

/* 1 + the block of keys nearest behind the item's, or, going down, below it, that sees step n of
   range.h; 0: there is none. is_before: of range.h; mostly it is the neighbour. */
DEV u32 order_turn(const attn_params *p, const attn_item *w, i32 n, int is_before, int down) {
    const i32 own = w->row0 / ATTN_BM, to = down ? -1 : 1;
    if (is_before) {
        return (u32)(own + to + 1);
    }
    const i32 most = down ? own : (w->rows - 1) / ATTN_BM - own; /* blocks that there are */
    ROLLED for (i32 far = 2; far <= most; far += TILE_LANES) {
        const i32 each = far + lane_id();
        attn_item before = *w;
        before.row0 += each * to * ATTN_BM;
        const u64 seen = warp_ballot(each <= most && range_class(p, &before, n) != 0);
        if (seen) {
            return (u32)(own + (far + first_bit(seen)) * to + 1);
        }
    }
    return 0;
}

/* Before a warp adds to query block `block` (dq.h). */
DEV void order_wait(u64 block, u32 turn) {
    if (turn > 0 && lane_id() == 0) {
        wait_u32(block + DQ_BYTES, turn);
    }
    warp_sync();
}
/* Behind it. */
DEV void order_keep(u32 shared, u64 block, const attn_item *w) {
    if (thread_id() == 0) {
        const u64 at = block + DQ_BYTES;
        shared_store_u32(shared + ORDER_AT, (u32)at);
        shared_store_u32(shared + ORDER_AT + 4, (u32)(at >> 32));
        shared_store_u32(shared + ORDER_NEXT, (u32)(w->row0 / ATTN_BM + 1));
    }
}
/* When the block's threads have met since then. */
DEV void order_pass(u32 shared) {
    if (thread_id() == 0) {
        const u32 next = shared_load_u32(shared + ORDER_NEXT);
        if (next > 0) {
            const u32 low = shared_load_u32(shared + ORDER_AT);
            store_release_u32((u64)shared_load_u32(shared + ORDER_AT + 4) << 32 | low, next);
        }
    }
}

#endif
