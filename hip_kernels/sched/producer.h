/* producer.h: the schedule of sm_90a for 16-bit types: one group of warps loads, the others
   multiply, each its own rows. docs/schedules.md draws the time line.

   Who calls it: attn_fwd.hip. A block takes one work item after the other; what the group that
   loads finds out (range.h, work.h) travels with the data:

       loads       item -> range -> K, V, q into free places; with K: which block, is it the last;
                                    with q: the item, has it blocks
       multiply    wait for q -> first block: s = q . k, softmax, p
                   then  s' = q . k of block n + 1  and  o += p . v of block n  are begun together;
                         softmax of s' while the latter goes on; o fades when it has ended
                   last p . v -> epilogue

   K runs ahead of V by one block, since the products do. */
#ifndef ATTN_PRODUCER_H
#define ATTN_PRODUCER_H

#include "core/finish.h"
#include "core/weights.h"
#include "core/work.h"

/* -- Messages ---------------------------------------------------------------------------------- */

enum { ITEM_END, ITEM_EMPTY, ITEM_BLOCKS };
/* Words of an item. */
enum {
    ITEM_SPLIT = 1,
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
DEV void item_tell_kind(int slot, u32 kind) {
    shared_store_u32((u32)(SHARED_KIND + 4 * slot), kind);
}

DEV u32 item_kind(int slot) {
    return warp_same(shared_load_u32((u32)(SHARED_KIND + 4 * slot)));
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

/* -- The group that loads ---------------------------------------------------------------------- */

/* Boxes bring a tensor if the host could describe it; if one cannot be brought so, four warps load
   and not one. */
DEV int producer_loaders(const attn_params *p) {
    const u32 all = ATTN_P_MAP_Q | ATTN_P_MAP_K | ATTN_P_MAP_V;
    return (p->flags & all) == all ? 1 : 4;
}

/* This group has few registers: an item stands in shared memory and is read there when it is
   wanted. */
typedef struct producer_loads {
    u32 items, blocks; /* told so far; blocks of K loaded */
    int loaders;
} producer_loads;

DEV int load_slot(const producer_loads *l) {
    return (int)(forget(l->items) % ITEMS); /* not kept in registers */
}
DEV i32 load_word(const producer_loads *l, int word) {
    return item_word(load_slot(l), word);
}

/* The tensor of a load, and the head of it that the item has. */
DEV const attn_rows *load_tensor(const attn_params *p, int what) {
    return what == RING_Q ? &p->q : what == RING_K ? &p->k : &p->v;
}
DEV i32 load_head(const producer_loads *l, int what) {
    return load_word(l, what == RING_Q ? ITEM_H : ITEM_HK);
}
/* Row of the tensor that is row 0 of the item's sequence. */
DEV i64 load_row(const producer_loads *l, int what) {
    const int low = what == RING_Q ? ITEM_Q_ROW : ITEM_K_ROW;
    return (i64)((u32)load_word(l, low) | (u64)(u32)load_word(l, low + 1) << 32);
}

/* Rows first.. of a place not by boxes: from memory at any address, or 0 where there are none. */
DEV void load_rows(const producer_loads *l, const attn_params *p, int what, const ring_turn *t,
                   i32 row, int first, int loaders) {
    const u32 chunks = (u32)ring_chunks(what), height = (u32)ring_height(what);
    const int pack = what == RING_Q ? p->pack : 1, vec = (p->flags & ATTN_P_VEC_Q << what) != 0;
    ROLLED for (u32 i = (u32)first * chunks + (u32)(thread_id() - ATTN_WARPS * TILE_LANES);
                i < height * chunks; i += (u32)loaders * TILE_LANES) {
        const u32 r = i / chunks, c = i % chunks;
        const i32 at = row + (i32)r, rows = load_word(l, what == RING_Q ? ITEM_ROWS : ITEM_END_K);
        const int left = (what == RING_V ? p->DV : p->D) - (int)c * CHUNK;
        const int n = at >= rows || left < 0 ? 0 : left > CHUNK ? CHUNK : left;
        const u64 from = rows_at(load_tensor(p, what), load_word(l, ITEM_B),
                                 load_head(l, what) + (pack > 1 ? at % pack : 0),
                                 load_row(l, what) + (pack > 1 ? at / pack : at));
        ring_put(what, stage_at(what, t->stage), r, c, from + c * 16, n, vec);
    }
    proxy_fence();
}

/* By boxes. Of V, rows behind the item's last key become 0 if other rows follow it in memory, since
   p = 0 does not silence all numbers; elsewhere such rows mean nothing. */
DEV void load_boxes(producer_loads *l, const attn_params *p, int what, const ring_turn *t,
                    i32 row) {
    const u32 to = stage_at(what, t->stage), full = SHARED_FULL + barrier_of(what, t->stage);
    const attn_rows *const tensor = load_tensor(p, what);
    const i32 rows = what == RING_V ? load_word(l, ITEM_END_K) - row : ATTN_BN;
    const int mended = rows < ATTN_BN && load_word(l, ITEM_BEHIND);
    if (lane_id() == 0) {
        ring_box at;
        at.head = tensor->h ? load_head(l, what) : 0;
        at.batch = tensor->b ? load_word(l, ITEM_B) : 0;
        at.row = load_word(l, what == RING_Q ? ITEM_Q_ROW : ITEM_K_ROW) +
                 (what == RING_Q ? work_row(p, row) : row);
        ring_boxes(what, to, mended ? SHARED_LAND : full, &p->map[what], &at);
    }
    if (mended) {
        ring_wait_land();
        load_rows(l, p, what, t, row, rows, 1);
        ring_arrive(what, t);
    }
}

DEV int load_is_first(void) {
    return thread_id() == ATTN_WARPS * TILE_LANES;
}

/* The next block of the item; begin: the first. */
DEV i32 load_next(const producer_loads *l, const attn_params *p, attn_range *it, int begin) {
    attn_item w;
    item_told(load_slot(l), &w);
    if (begin) {
        range_begin(it, p, &w);
    }
    return range_next(it, p, &w);
}

/* Rows `row`.. to a place that is free by then. */
DEV void load(producer_loads *l, const attn_params *p, int what, const ring_turn *t, i32 row) {
    if (!(p->flags & ATTN_P_MAP_Q << what)) {
        load_rows(l, p, what, t, row, 0, l->loaders);
        ring_arrive(what, t);
    } else if (thread_id() < (ATTN_WARPS + 1) * TILE_LANES) {
        load_boxes(l, p, what, t, row);
    } else {
        ring_arrive(what, t);
    }
}

/* With q's place, or in its turn, the item is told. */
DEV void load_q(producer_loads *l, const attn_params *p, u32 kind) {
    const ring_turn t = ring_turn_of(forget(l->items), STAGES_Q);
    ring_wait_free(RING_Q, &t);
    if (load_is_first()) {
        item_tell_kind(load_slot(l), kind);
    }
    if (kind == ITEM_BLOCKS) {
        load(l, p, RING_Q, &t, load_word(l, ITEM_ROW0));
    } else {
        ring_arrive(RING_Q, &t);
    }
}

/* Returns the next block. Told: this one as range_next has it, doubled, plus 1 if it is the item's
   last. */
DEV i32 load_k(producer_loads *l, const attn_params *p, attn_range *it, i32 block) {
    const ring_turn t = ring_turn_of(forget(l->blocks), STAGES);
    const i32 next = load_next(l, p, it, 0);
    ring_wait_free(RING_K, &t);
    if (load_is_first()) {
        block_tell(&t, block * 2 + (next < 0));
    }
    load(l, p, RING_K, &t, (block >> 1) * ATTN_BN);
    l->blocks++;
    return next;
}
/* V of the block whose K was loaded `ago` loads ago. */
DEV void load_v(producer_loads *l, const attn_params *p, i32 block, u32 ago) {
    const ring_turn t = ring_turn_of(forget(l->blocks) - ago, STAGES);
    ring_wait_free(RING_V, &t);
    load(l, p, RING_V, &t, (block >> 1) * ATTN_BN);
}

DEV void load_item(producer_loads *l, const attn_params *p) {
    attn_range it;
    i32 block = -1, next = load_next(l, p, &it, 1);
    if (next < 0) {
        load_q(l, p, ITEM_EMPTY);
        return;
    }
    ROLLED while (next >= 0) {
        const i32 after = load_k(l, p, &it, next);
        if (block >= 0) {
            load_v(l, p, block, 2);
        } else {
            load_q(l, p, ITEM_BLOCKS);
        }
        block = next;
        next = after;
    }
    load_v(l, p, block, 1);
}

/* Item of a number, by one thread; told part by part, since registers are few. Behind the last
   item: rows -1. */
DEV void load_tell(const attn_params *p, u32 number, int slot) {
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
    item_tell(at + 16, (u32)w.hk, (u32)w.row0, (u32)w.seq.q0, 0);
    const u64 q = (u64)w.seq.q_row, k = (u64)w.seq.k_row;
    item_tell(at + 32, (u32)q, (u32)(q >> 32), (u32)k, (u32)(k >> 32));
    item_tell(at + 48, (u32)w.seq.nq, (u32)w.seq.nk, (u32)w.seq.nq_all, (u32)w.seq.nk_all);
    work_rows(p, &w);
    item_tell(at + 64, (u32)w.rows, (u32)w.k_begin, (u32)w.k_end, w.seq.k_row + w.k_end < p->TK);
}

/* Number of a block's item: of the first round its own, then what the counter says. Without one,
   every second round goes in the other direction, so that where items get shorter in their order
   all blocks have as much to do. Behind the last item there are none in later rounds either. */
DEV u32 load_number(const attn_params *p, u32 round) {
    const u32 grid = forget((u32)grid_size()), block = forget((u32)block_id());
    if (p->counter && round > 0) {
        return grid + atomic_next_u32(p->counter);
    }
    return round * grid + (round & 1 ? grid - 1 - block : block);
}

DEV void producer_load(const attn_params *p) {
    producer_loads l = {0, 0, producer_loaders(p)};
    if (warp_id() - ATTN_WARPS >= l.loaders) {
        return;
    }
    if (load_is_first()) {
        shared_store_u32(SHARED_ROUND, 0);
    }
    ROLLED for (;;) {
        if (load_is_first()) {
            const u32 round = shared_load_u32(SHARED_ROUND);
            shared_store_u32(SHARED_ROUND, round + 1);
            load_tell(p, load_number(p, round), load_slot(&l));
        }
        named_sync(GROUPS + 1, l.loaders * TILE_LANES);
        const i32 rows = load_word(&l, ITEM_ROWS);
        if (rows < 0) {
            break;
        }
        if (load_word(&l, ITEM_ROW0) < rows) {
            load_item(&l, p);
            l.items++;
        }
        named_sync(GROUPS + 1, l.loaders * TILE_LANES);
    }
    load_q(&l, p, ITEM_END);
}

/* -- The groups that multiply ------------------------------------------------------------------ */

typedef struct producer_turns {
    ring_turn q, k, v;
    int slot;
} producer_turns;

/* held, raw, factor: of score.h, computed once. known: all rows of the warp have an m. */
DEV void producer_weights(const attn_params *p, int slot, const score_held *held, i32 block,
                          int raw, float factor, tile_s *s, attn_soft *t, soft_fade *fade,
                          int *known) {
    attn_item w;
    if (weights_ask(block, raw, held)) {
        item_told(slot, &w);
    }
    weights_of(p, &w, held, block, raw, factor, s, t, 0, fade, *known);
    if (!*known) {
        *known = SOFTMAX_LATE && softmax_has(t);
    }
}

/* v has landed, and this asks once more: a loop over which no compiler lifts what is behind it, nor
   lowers the sums, of which it reads the sign. */
DEV void producer_hold(const producer_turns *at, attn_soft *t) {
    ring_turn v = at->v;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        pin(&t->l[r]);
        v.parity ^= (u32)(t->l[r] < 0.0f); /* never */
    }
    ring_wait_full(RING_V, &v);
}

/* All blocks of an item that has some. */
DEV void producer_blocks(const attn_params *p, int group, producer_turns *at, attn_soft *t,
                         tile_o *o) {
    const float factor = score_factor(p);
    const int raw = (int)warp_same((u32)score_is_raw(p));
    tile_s s;
    tile_p pp;
    soft_fade fade;
    int known = 0;
    score_held held = {{0, 0}, 0, 0, 0};
#if ATTN_SCORE_HELD
    attn_item w;
    item_told(at->slot, &w);
    score_hold(p, &w, &held);
#if SCORE_FALLS
    fall_hold(p, &w, &held);
    held.own = (int)warp_same((u32)held.own);
#endif
#endif
    ring_wait_full(RING_K, &at->k);
    i32 told = block_told(&at->k);
    tile_qk(&s, group, at->q.stage, at->k.stage);
    tile_wait(0);
    tile_pin_s(&s);
    ring_free(RING_K, &at->k);
    ring_next(&at->k, STAGES);
    producer_weights(p, at->slot, &held, told >> 1, raw, factor, &s, t, &fade, &known);
    tile_p_of(&pp, &s);
    ROLLED while (!(told & 1)) {
        ring_wait_full(RING_K, &at->k);
        tile_pin_o(o);
        tile_pin_p(&pp);
        tile_qk(&s, group, at->q.stage, at->k.stage);
        ring_wait_full(RING_V, &at->v);
        tile_pv(o, &pp, at->v.stage);
        told = block_told(&at->k);
        tile_wait(1);
        tile_pin_s(&s);
        ring_free(RING_K, &at->k);
        ring_next(&at->k, STAGES);
        producer_weights(p, at->slot, &held, told >> 1, raw, factor, &s, t, &fade, &known);
        tile_pin_s(&s);
        producer_hold(at, t);
        tile_wait(0);
        tile_pin_s(&s);
        tile_pin_o(o);
        ring_free(RING_V, &at->v);
        ring_next(&at->v, STAGES);
        softmax_fade(o, &fade);
        tile_p_of(&pp, &s); /* not earlier: until the wait its registers are being read */
    }
    ring_free(RING_Q, &at->q);
    ring_wait_full(RING_V, &at->v);
    tile_pin_o(o);
    tile_pin_p(&pp);
    tile_pv(o, &pp, at->v.stage);
    tile_wait(0);
    tile_pin_o(o);
    ring_free(RING_V, &at->v);
    ring_next(&at->v, STAGES);
}

DEV void producer_multiply(const attn_params *p) {
    const int group = group_id();
    producer_turns at = {{0, 0}, {0, 0}, {0, 0}, 0};
    ROLLED for (;;) {
        attn_item w;
        attn_soft t;
        tile_o o;
        ring_wait_full(RING_Q, &at.q);
        const u32 kind = item_kind(at.slot);
        if (kind == ITEM_END) {
            return;
        }
        finish_begin(&t, &o);
        if (kind == ITEM_BLOCKS) {
            producer_blocks(p, group, &at, &t, &o);
        } else {
            ring_free(RING_Q, &at.q);
        }
        item_told(at.slot, &w);
        finish(p, &w, &t, &o);
        ring_next(&at.q, STAGES_Q);
        at.slot = (at.slot + 1) % ITEMS;
    }
}

/* -- Both -------------------------------------------------------------------------------------- */

DEV void producer(const attn_params *p) {
    ring_begin(producer_loaders(p));
    if (group_id() == GROUPS) {
        GROUP_LOADS();
        producer_load(p);
    } else {
        GROUP_MULTIPLIES();
        producer_multiply(p);
    }
}

#endif
