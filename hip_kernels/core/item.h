/* item.h: a block's work item in shared memory, for chips whose registers are few: what is asked
   about it in few steps is read there, and nothing of it stays in registers through a loop.

   Who calls it: attn_fwd.hip, sched/multistage.h. An arch header that has SHARED_ITEM, the first of
   ITEM_BYTES, wants it so; elsewhere an item is kept as any value is. */
#ifndef ATTN_ITEM_H
#define ATTN_ITEM_H

#include "core/tile.h"
#include "core/work.h"

#if TILE_ITEM
/* One thread's; seen by all behind the next ring_sync. */
DEV void item_put(const attn_item *w) {
    const i32 all[ITEM_BYTES / 4] = {w->b,           w->h,          w->hk,         w->split,
                                     w->row0,        w->rows,       w->k_begin,    w->k_end,
                                     w->seq.nq,      w->seq.nk,     w->seq.nq_all, w->seq.nk_all,
                                     w->seq.q0,      0,             0,             0,
                                     (i32)w->seq.q_row, (i32)(w->seq.q_row >> 32),
                                     (i32)w->seq.k_row, (i32)(w->seq.k_row >> 32)};
    UNROLL for (u32 i = 0; i < ITEM_BYTES / 16; i++) {
        b128 x;
        UNROLL for (int j = 0; j < 4; j++) {
            x.w[j] = (u32)all[4 * i + (u32)j];
        }
        shared_store_b128((u32)SHARED_ITEM + 16 * i, x);
    }
}

DEV attn_item item_get(const attn_item *w) {
    attn_item x;
    u32 all[ITEM_BYTES / 4];
    const u32 at = forget((u32)SHARED_ITEM);
    (void)w;
    UNROLL for (u32 i = 0; i < ITEM_BYTES / 4; i++) {
        all[i] = shared_load_u32(at + 4 * i);
    }
    x.b = (i32)all[0];
    x.h = (i32)all[1];
    x.hk = (i32)all[2];
    x.split = (i32)all[3];
    x.row0 = (i32)all[4];
    x.rows = (i32)all[5];
    x.k_begin = (i32)all[6];
    x.k_end = (i32)all[7];
    x.seq.nq = (i32)all[8];
    x.seq.nk = (i32)all[9];
    x.seq.nq_all = (i32)all[10];
    x.seq.nk_all = (i32)all[11];
    x.seq.q0 = (i32)all[12];
    x.seq.q_row = (i64)(all[16] | (u64)all[17] << 32);
    x.seq.k_row = (i64)(all[18] | (u64)all[19] << 32);
    return x;
}
#else
DEV void item_put(const attn_item *w) {
    (void)w;
}
DEV attn_item item_get(const attn_item *w) {
    return *w;
}
#endif

#endif
