/* ahead.h: what the producer schedule's loading group finds out before it loads: which item comes
   next, and which of its key blocks are visited. One warp does nothing else, so neither divisions
   nor masks are waited for.

   Who calls it: sched/producer.h. Messages lie in shared memory:

       item   a work item and whether it has blocks; read by all, ITEMS of them in turn
       part   32 blocks of it that follow one another, as range.h has them: which are visited, which
              are full; and whether it is the item's last. Read by the warps that load

   Parts have two places. When the warps that load have few blocks of a part left (PART_FEW), this
   warp goes on by one part, not earlier, since an item's number is asked for where blocks share a
   counter. An item's parts are told in order; one without blocks has a part, too. */
#ifndef ATTN_AHEAD_H
#define ATTN_AHEAD_H

#include "core/range.h"
#include "core/work.h"

/* -- Messages ---------------------------------------------------------------------------------- */

enum { ITEM_END, ITEM_EMPTY, ITEM_BLOCKS };
/* Words of an item. */
enum {
    ITEM_KIND,
    ITEM_SPLIT,
    ITEM_B,
    ITEM_H,
    ITEM_HK,
    ITEM_ROW0,
    ITEM_Q0,
    ITEM_Q_ROW = 8,
    ITEM_K_ROW = 10,
    ITEM_NQ = 12, /* nq, nk, nq_all, nk_all */
    ITEM_ROWS = 16,
    ITEM_BEGIN_K,
    ITEM_END_K,
    ITEM_BEHIND /* rows of others follow the last key in memory */
};

DEV u32 item_at(int slot) {
    return (u32)(SHARED_ITEM + slot * ITEM_BYTES);
}
DEV void item_tell(u32 at, u32 a, u32 b, u32 c, u32 d) {
    const b128 x = {{a, b, c, d}};
    shared_store_b128(at, x);
}
DEV i32 item_word(int slot, int word) {
    return (i32)shared_load_u32(item_at(slot) + (u32)(4 * word));
}
DEV u32 item_kind(int slot) {
    return warp_same((u32)item_word(slot, ITEM_KIND));
}
DEV void item_told(int slot, attn_item *w) {
    const u32 at = item_at(slot);
    const b128 a = shared_load_b128(at), b = shared_load_b128(at + 16);
    const b128 c = shared_load_b128(at + 32), d = shared_load_b128(at + 48);
    const b128 e = shared_load_b128(at + 64);
    w->split = (i32)a.w[1];
    w->b = (i32)a.w[2];
    w->h = (i32)a.w[3];
    w->hk = (i32)b.w[0];
    w->row0 = (i32)b.w[1];
    w->seq.q_row = (i64)(c.w[0] | (u64)c.w[1] << 32);
    w->seq.k_row = (i64)(c.w[2] | (u64)c.w[3] << 32);
    w->seq.nq = (i32)d.w[0];
    w->seq.nk = (i32)d.w[1];
    w->seq.nq_all = (i32)d.w[2];
    w->seq.nk_all = (i32)d.w[3];
    w->seq.q0 = (i32)b.w[2];
    w->rows = (i32)e.w[0];
    w->k_begin = (i32)e.w[1];
    w->k_end = (i32)e.w[2];
}

/* Words of a part. */
enum { PART_SOME, PART_BASE, PART_LAST, PART_SEEN = 4, PART_FULL = PART_SEEN + GROUPS };
DEV u32 part_at(u32 part, int word) {
    return (u32)(SHARED_PART + 4 * word) + part % 2 * PART_BYTES;
}

/* What a group is told of a block, below its number. */
enum {
    BLOCK_LAST = 1, /* of the item */
    BLOCK_END = 2,  /* it sees nothing of those that follow */
    BLOCK_SEEN = 4,
    BLOCK_FULL = 8,
    BLOCK_BITS = 4
};
/* As range_next has it. */
DEV i32 block_of(i32 told) {
    return told >> (BLOCK_BITS - 1);
}

/* Of a warp that loads: this part has been told; returns its blocks. */
DEV u32 part_take(u32 part) {
    mbarrier_wait(SHARED_TOLD, part & 1);
    return shared_load_u32(part_at(part, PART_SOME));
}
/* Number `bit` of them; lane g: as group g sees it. */
DEV i32 part_block(u32 part, int bit) {
    const int group = lane_id() < GROUPS ? lane_id() : 0;
    const u32 seen = shared_load_u32(part_at(part, PART_SEEN + group)) >> bit & 1;
    const u32 full = shared_load_u32(part_at(part, PART_FULL + group)) >> bit & 1;
    const i32 block = (i32)shared_load_u32(part_at(part, PART_BASE)) + (RANGE_DOWN ? -bit : bit);
    return (block << BLOCK_BITS) + (i32)(seen * BLOCK_SEEN + full * BLOCK_FULL);
}
/* The next part is wanted. */
DEV void part_want(void) {
    warp_sync();
    if (lane_id() == 0) {
        mbarrier_arrive(SHARED_TOLD + 8);
    }
}

/* -- The warp that looks ahead ----------------------------------------------------------------- */

/* Until the part is wanted. Behind it no lane reads what another is about to write. */
DEV void ahead_wait(u32 part) {
    if (part > 0) {
        mbarrier_wait(SHARED_TOLD + 8, (part & 1) ^ 1);
    }
    warp_sync();
}

/* A mask may leave a group less than the tile. */
#define GROUPS_PASS (ATTN_HAS_MASK || ATTN_HAS_BLOCKS)

/* Of `some`, the bits from the lowest of `seen` on where `first`, up to its highest where `last`:
   what a group lets pass are an item's first and last blocks alone. */
DEV u32 ahead_hull(u32 some, u32 seen, int first, int last) {
    u32 above = 0;
    for (u32 rest = last ? seen : 0; rest; rest &= rest - 1) {
        above = rest;
    }
    const u32 low = first ? seen ? ~((seen & (0 - seen)) - 1) : 0 : ~0u;
    const u32 high = last ? seen ? above | (above - 1) : 0 : ~0u;
    return some & low & high;
}

/* The part at hand as each group sees it. */
DEV void ahead_groups(const attn_params *p, const attn_item *w, const attn_range *it, u32 part,
                      int first, int last) {
    const i32 n = range_block(it, it->base + lane_id());
    const int some = it->some >> lane_id() & 1, full = it->full >> lane_id() & 1;
    ROLLED for (int g = 0; g < GROUPS; g++) {
        const i32 row = w->row0 + g * 64;
        const int class_ = !some            ? 0
                           : full           ? 2
                           : row >= w->rows ? 0
                                            : range_rows(p, w, row, 64, n, 1);
        const u32 some_of = (u32)warp_ballot(class_ != 0), all = (u32)warp_ballot(class_ == 2);
        const u32 seen = GROUPS_PASS ? ahead_hull(it->some, some_of, first, last) : it->some;
        if (lane_id() == 0) {
            shared_store_u32(part_at(part, PART_SEEN + g), seen);
            shared_store_u32(part_at(part, PART_FULL + g), all);
        }
    }
}

DEV void ahead_tell(u32 part, const attn_range *it, int is_last) {
    warp_sync();
    if (lane_id() == 0) {
        shared_store_u32(part_at(part, PART_SOME), it->some);
        shared_store_u32(part_at(part, PART_BASE), (u32)range_block(it, it->base));
        shared_store_u32(part_at(part, PART_LAST), (u32)is_last);
        mbarrier_arrive(SHARED_TOLD);
    }
}
/* Before the first part of an item. */
DEV void ahead_tell_kind(int slot, u32 kind) {
    warp_sync();
    if (lane_id() == 0) {
        shared_store_u32(item_at(slot) + 4 * ITEM_KIND, kind);
    }
}

/* All parts of an item, of which the first is wanted. Returns the number of the next part. */
DEV u32 ahead_item(const attn_params *p, int slot, u32 part) {
    attn_item w;
    attn_range it;
    item_told(slot, &w);
    range_begin(&it, p, &w);
    int more = range_find(&it, p, &w), first = 1;
    ahead_tell_kind(slot, more ? ITEM_BLOCKS : ITEM_EMPTY);
    do {
        const attn_range told = it;
        it.some = 0;
        more = range_find(&it, p, &w);
        ahead_groups(p, &w, &told, part, first, !more);
        ahead_tell(part, &told, !more);
        part++;
        first = 0;
        if (more) {
            ahead_wait(part);
        }
    } while (more);
    return part;
}

/* Item of a number, by one thread; told word by word, since registers are few. Behind the last
   item: rows -1. */
DEV void ahead_place(const attn_params *p, u32 number, int slot) {
    const u32 at = item_at(slot);
    attn_item w;
    if (number >= (u32)p->items) {
        item_tell(at + 16, 0, 0, 0, 0);
        item_tell(at + 64, (u32)-1, 0, 0, 0);
        return;
    }
    w.row0 = w.split = w.b = w.h = w.hk = 0;
    work_place(p, (i32)number, &w);
    item_tell(at, 0, (u32)w.split, (u32)w.b, (u32)w.h);
    w.seq = seq_of(p, w.b);
    const u64 q = (u64)w.seq.q_row, k = (u64)w.seq.k_row;
    item_tell(at + 32, (u32)q, (u32)(q >> 32), (u32)k, (u32)(k >> 32));
    item_tell(at + 48, (u32)w.seq.nq, (u32)w.seq.nk, (u32)w.seq.nq_all, (u32)w.seq.nk_all);
    work_rows(p, &w);
    item_tell(at + 16, (u32)w.hk, (u32)w.row0, (u32)w.seq.q0, 0);
    item_tell(at + 64, (u32)w.rows, (u32)w.k_begin, (u32)w.k_end, w.seq.k_row + w.k_end < p->TK);
}

/* Number of a block's item: of the first round its own, then what the counter says. Without one,
   every second round goes in the other direction, so that where items get shorter in their order
   all blocks have as much to do. Behind the last item there are none in later rounds either. */
DEV u32 ahead_number(const attn_params *p, u32 round) {
    const u32 grid = forget((u32)grid_size()), block = forget((u32)block_id());
    if (p->counter && round > 0) {
        return grid + atomic_next_u32(p->counter);
    }
    return round * grid + (round & 1 ? grid - 1 - block : block);
}

DEV void ahead(const attn_params *p) {
    u32 items = 0, part = 0;
    ROLLED for (u32 round = 0;; round++) {
        const int slot = (int)(items % ITEMS);
        ahead_wait(part);
        if (lane_id() == 0) {
            ahead_place(p, ahead_number(p, round), slot);
        }
        warp_sync();
        const i32 rows = item_word(slot, ITEM_ROWS);
        if (rows < 0) {
            const attn_range none = {0};
            ahead_tell_kind(slot, ITEM_END);
            ahead_tell(part, &none, 1);
            return;
        }
        if (item_word(slot, ITEM_ROW0) < rows) {
            part = ahead_item(p, slot, part);
            items++;
        }
    }
}

#endif
