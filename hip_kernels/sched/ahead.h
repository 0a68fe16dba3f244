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

/* The block of number n: where scores fall with the distance (core/fall.h) the last block comes
   first, and numbers are negative. */
#define AHEAD_DOWN SCORE_FALLS
DEV i32 ahead_block(i32 n) {
    return AHEAD_DOWN ? -n : n;
}

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

/* No item. A word that is not set takes a register from step to step; beside exponents straight
   from the products three groups have none left. */
DEV void item_none(attn_item *w) {
    if (SCORE_OWN && ATTN_WARPS > 8) {
        const attn_item none = {0};
        *w = none;
    }
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
    const i32 block = (i32)shared_load_u32(part_at(part, PART_BASE)) + ahead_block(bit);
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

DEV void ahead_tell(u32 part, const attn_range *it, int is_last) {
    warp_sync();
    if (lane_id() == 0) {
        shared_store_u32(part_at(part, PART_SOME), it->some);
        shared_store_u32(part_at(part, PART_BASE), (u32)ahead_block(it->base));
        shared_store_u32(part_at(part, PART_LAST), (u32)is_last);
        mbarrier_arrive(SHARED_TOLD);
    }
}
/* Not kept in a register: a warp that loads has few. */
DEV int ahead_slot(u32 turn) {
    return (int)(forget(turn) % ITEMS);
}
/* Before the first part of an item. */
DEV void ahead_tell_kind(int slot, u32 kind) {
    warp_sync();
    if (lane_id() == 0) {
        shared_store_u32(item_at(slot) + 4 * ITEM_KIND, kind);
    }
}

/* -- Of an item, which blocks ------------------------------------------------------------------ */

/* What is looked at, one after the other. The class of a box is long code, which a mask that reads
   tensors makes longer; it stands in the kernel once, so that it stays in the instruction cache:

       wide     all blocks of the item, several a lane    what nobody sees at both ends is cut off
       blocks   32 blocks, then the next 32 ...           until a part is found behind the one found
       group    the part as group 0 sees it, group 1 ...  then it is told */
enum { LOOK_WIDE, LOOK_BLOCKS, LOOK_GROUP, LOOK_DONE };
typedef struct ahead_scan {
    attn_range it;   /* 32 blocks, or all of them; sought */
    attn_range told; /* some != 0: found and not told yet */
    i32 each;        /* blocks a lane */
    int look, group, first, last;
} ahead_scan;

/* From here on numbers are ahead_block's. */
DEV void scan_order(ahead_scan *s) {
    const i32 first = s->it.base;
    if (AHEAD_DOWN) {
        s->it.base = 1 - s->it.end;
        s->it.end = 1 - first;
    }
    s->each = 1;
    s->look = LOOK_BLOCKS;
}

DEV void scan_begin(ahead_scan *s, const attn_params *p, int slot) {
    attn_item w;
    item_told(slot, &w);
    s->it.base = w.k_begin / ATTN_BN;
    s->it.end = range_end(p, &w);
    s->each = RANGE_NARROWS ? (s->it.end - s->it.base + TILE_LANES - 1) / TILE_LANES : 1;
    s->look = LOOK_WIDE;
    if (s->each <= 1) {
        scan_order(s);
    }
    s->told.some = 0;
    s->group = 0;
    s->first = 1;
    s->last = 0;
}

/* The class of what this lane looks at. */
DEV int scan_class(const ahead_scan *s, const attn_params *p, int slot) {
    const int of_group = s->look == LOOK_GROUP, lane = lane_id();
    const i32 count = s->look == LOOK_WIDE ? s->each : 1;
    const i32 n = (of_group ? s->told.base : s->it.base) + lane * count;
    attn_item w;
    item_told(slot, &w);
    const i32 row = w.row0 + (of_group ? s->group * 64 : 0), height = of_group ? 64 : ATTN_BM;
    const int full = of_group && (s->told.full >> lane & 1);
    const int some = s->told.some >> lane & 1;
    const int asked = of_group ? some && !full && row < w.rows : n < s->it.end;
    int class_ = full ? 2 : 0;
    if (asked) {
        class_ = range_rows(p, &w, row, height, count > 1 ? n : ahead_block(n), count);
    }
    return class_;
}

DEV void scan_narrow(ahead_scan *s, u32 seen) {
    range_cut(&s->it, seen, s->each);
    scan_order(s);
}

/* On from 32 blocks that have been looked at. */
DEV void scan_on(ahead_scan *s) {
    s->it.base += TILE_LANES;
    s->last = s->it.base >= s->it.end;
    s->look = !s->last ? LOOK_BLOCKS : s->told.some ? LOOK_GROUP : LOOK_DONE;
}
DEV void scan_blocks(ahead_scan *s, u32 some, u32 full) {
    s->it.some = some;
    s->it.full = full;
    if (some && s->told.some) {
        s->look = LOOK_GROUP;
        return;
    }
    if (some) {
        s->told = s->it;
    }
    scan_on(s);
}

/* Behind the last group the part is told; what was found behind it is the next one. */
DEV void scan_group(ahead_scan *s, u32 turn, u32 *part, u32 some, u32 full) {
    const u32 hull = ahead_hull(s->told.some, some, s->first, s->last);
    if (lane_id() == 0) {
        shared_store_u32(part_at(*part, PART_SEEN + s->group), GROUPS_PASS ? hull : s->told.some);
        shared_store_u32(part_at(*part, PART_FULL + s->group), full);
    }
    if (++s->group < GROUPS) {
        return;
    }
    if (s->first) {
        ahead_tell_kind(ahead_slot(turn), ITEM_BLOCKS);
    }
    ahead_tell((*part)++, &s->told, s->last);
    s->group = s->first = 0;
    if (s->last) {
        s->look = LOOK_DONE;
        return;
    }
    s->told = s->it;
    ahead_wait(*part);
    scan_on(s);
}

/* All parts of an item, of which the first is wanted. Returns the number of the next part. */
DEV u32 ahead_item(const attn_params *p, u32 turn, u32 part) {
    ahead_scan s;
    scan_begin(&s, p, ahead_slot(turn));
    ROLLED for (;;) {
        s.look = (int)forget((u32)s.look);
        if (s.look == LOOK_DONE) {
            break;
        }
        const int class_ = scan_class(&s, p, ahead_slot(turn));
        const u32 some = (u32)warp_ballot(class_ != 0), full = (u32)warp_ballot(class_ == 2);
        if (s.look == LOOK_WIDE) {
            scan_narrow(&s, some);
        } else if (s.look == LOOK_BLOCKS) {
            scan_blocks(&s, some, full);
        } else {
            scan_group(&s, turn, &part, some, full);
        }
    }
    if (s.first) { /* nothing was found */
        ahead_tell_kind(ahead_slot(turn), ITEM_EMPTY);
        ahead_tell(part++, &s.told, 1);
    }
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
    item_tell(at + 16, (u32)w.hk, (u32)w.row0, 0, 0);
    w.seq = seq_of(p, w.b);
    const u64 q = (u64)w.seq.q_row, k = (u64)w.seq.k_row;
    item_tell(at + 32, (u32)q, (u32)(q >> 32), (u32)k, (u32)(k >> 32));
    item_tell(at + 48, (u32)w.seq.nq, (u32)w.seq.nk, (u32)w.seq.nq_all, (u32)w.seq.nk_all);
    w.row0 = item_word(slot, ITEM_ROW0);
    work_rows(p, &w);
    shared_store_u32(at + 4 * ITEM_ROW0, (u32)w.row0);
    shared_store_u32(at + 4 * ITEM_Q0, (u32)w.seq.q0);
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

/* turn: the round, and the slot below it. */
DEV void ahead(const attn_params *p) {
    u32 turn = 0, part = 0;
    ROLLED for (;;) {
        ahead_wait(part);
        if (lane_id() == 0) {
            ahead_place(p, ahead_number(p, turn / ITEMS), ahead_slot(turn));
        }
        warp_sync();
        const i32 rows = item_word(ahead_slot(turn), ITEM_ROWS);
        if (rows < 0) {
            const attn_range none = {0};
            ahead_tell_kind(ahead_slot(turn), ITEM_END);
            ahead_tell(part, &none, 1);
            return;
        }
        if (item_word(ahead_slot(turn), ITEM_ROW0) < rows) {
            part = ahead_item(p, turn, part);
            turn = turn % ITEMS == ITEMS - 1 ? turn - (ITEMS - 1) : turn + 1;
        }
        turn += ITEMS;
    }
}

#endif
