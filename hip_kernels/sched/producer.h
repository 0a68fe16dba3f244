/* producer.h: the schedule of sm_90a for 16-bit types: one group of warps loads, the others
   multiply, each its own rows. docs/schedules.md draws the time line.

   Who calls it: attn_fwd.hip. A block takes one work item after the other; what the group that
   loads finds out (range.h, work.h) travels with the data:

       looks on    item -> range -> which blocks, and which of them each group sees (ahead.h)
       loads       K, V, q into free places; with K: which block, is it the last, does the group
                   see it; with q: the item, has it blocks
       multiply    wait for q -> first block: s = q . k, softmax, p
                   then  s' = q . k of block n + 1  and  o += p . v of block n  are begun together;
                         softmax of s' while the latter goes on; o fades when it has ended
                   last p . v -> epilogue: o leaves by q's place behind the next first product

   K runs ahead of V by one block, since the products do. */
#ifndef ATTN_PRODUCER_H
#define ATTN_PRODUCER_H

#include "core/finish.h"
#include "core/weights.h"
#include "sched/ahead.h"

/* -- The group that loads ---------------------------------------------------------------------- */

/* Boxes bring a tensor if the host could describe it; if one cannot be brought so, three warps load
   and not one. The fourth of the group looks ahead. */
#define LOAD_AHEAD 3
DEV int producer_loaders(const attn_params *p) {
    const u32 all = ATTN_P_MAP_Q | ATTN_P_MAP_K | ATTN_P_MAP_V;
    return (p->flags & all) == all ? 1 : LOAD_AHEAD;
}

/* This group has few registers: an item stands in shared memory and is read there when it is
   wanted. */
typedef struct producer_loads {
    u32 items, parts, blocks; /* done so far; blocks of K loaded */
    u32 some, state;          /* of the part at hand: blocks to be loaded; as follows */
} producer_loads;

/* A part is its item's last; the next one is wanted, since few blocks are left. */
enum { PART_IS_LAST = 1, PART_WANTED = 2, PART_FEW = 4 };

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

DEV void load_part(producer_loads *l) {
    l->some = part_take(l->parts);
    l->state = shared_load_u32(part_at(l->parts, PART_LAST));
}
DEV void load_want(producer_loads *l, u32 left) {
    UNROLL for (int n = 0; n < PART_FEW; n++) {
        left &= left - 1;
    }
    if (!left && !(l->state & PART_WANTED)) {
        part_want();
        l->state |= PART_WANTED;
    }
}

/* The next block of the item, as part_block has it; -1: there is none. */
DEV i32 load_next(producer_loads *l) {
    if (!l->some) {
        if (l->state & PART_IS_LAST) {
            return -1;
        }
        l->parts++;
        load_part(l);
    }
    const i32 block = part_block(l->parts, first_bit(l->some));
    l->some &= l->some - 1;
    load_want(l, l->some);
    return block;
}

/* Rows `row`.. to a place that is free by then. */
DEV void load(producer_loads *l, const attn_params *p, int what, const ring_turn *t, i32 row) {
    if (!(p->flags & ATTN_P_MAP_Q << what)) {
        load_rows(l, p, what, t, row, 0, producer_loaders(p));
        ring_arrive(what, t);
    } else if (thread_id() < (ATTN_WARPS + 1) * TILE_LANES) {
        load_boxes(l, p, what, t, row);
    } else {
        ring_arrive(what, t);
    }
}

/* With q's place, or in its turn, an item is there. */
DEV void load_q(producer_loads *l, const attn_params *p) {
    const ring_turn t = ring_turn_of(forget(l->items), STAGES_Q);
    ring_wait_free(RING_Q, &t);
    if (item_kind(load_slot(l)) == ITEM_BLOCKS) {
        load(l, p, RING_Q, &t, load_word(l, ITEM_ROW0));
    } else {
        ring_arrive(RING_Q, &t);
    }
}

/* Returns the next block. */
DEV i32 load_k(producer_loads *l, const attn_params *p, i32 block) {
    const ring_turn t = ring_turn_of(forget(l->blocks), STAGES);
    const i32 next = load_next(l);
    ring_wait_free(RING_K, &t);
    if (thread_id() < (ATTN_WARPS + 1) * TILE_LANES) {
        block_tell(&t, block + (next < 0               ? BLOCK_END + BLOCK_LAST
                                : next & BLOCK_SEEN    ? 0
                                                       : BLOCK_END));
    }
    load(l, p, RING_K, &t, (block >> BLOCK_BITS) * ATTN_BN);
    l->blocks++;
    return next;
}
/* V of the block whose K was loaded `ago` loads ago. */
DEV void load_v(producer_loads *l, const attn_params *p, i32 block, u32 ago) {
    const ring_turn t = ring_turn_of(forget(l->blocks) - ago, STAGES);
    ring_wait_free(RING_V, &t);
    load(l, p, RING_V, &t, (block >> BLOCK_BITS) * ATTN_BN);
}

DEV void load_item(producer_loads *l, const attn_params *p) {
    i32 block = -1, next = load_next(l);
    if (STAGES_Q > 1) {
        load_q(l, p);
    }
    ROLLED while (next >= 0) {
        const i32 after = load_k(l, p, next);
        if (block >= 0) {
            load_v(l, p, block, 2);
        } else if (STAGES_Q == 1) {
            load_q(l, p);
        }
        block = next;
        next = after;
    }
    load_v(l, p, block, 1);
}

DEV void producer_load(const attn_params *p) {
    producer_loads l = {0, 0, 0, 0, 0};
    const int warp = warp_id() - ATTN_WARPS;
    if (warp == LOAD_AHEAD) {
        ahead(p);
    }
    if (warp >= producer_loaders(p)) {
        return;
    }
    ROLLED for (;;) {
        load_part(&l);
        const u32 kind = item_kind(load_slot(&l));
        if (kind == ITEM_BLOCKS) {
            load_item(&l, p);
        } else {
            load_want(&l, 0);
            load_q(&l, p);
            if (kind == ITEM_END) {
                return;
            }
        }
        l.items++;
        l.parts++;
    }
}

/* -- The groups that multiply ------------------------------------------------------------------ */

typedef struct producer_turns {
    ring_turn q, k, v;
    u32 items; /* done so far */
} producer_turns;

DEV int producer_slot(const producer_turns *at) {
    return (int)(at->items % ITEMS);
}

/* held, raw, factor: of score.h, computed once. known: of softmax.h. */
DEV void producer_weights(const attn_params *p, int slot, const score_held *held, i32 block,
                          int raw, float factor, tile_s *s, attn_soft *t, soft_fade *fade,
                          int *known) {
    if (!weights_calm(p, held, block, s, t, fade, *known)) {
        attn_item w;
        item_none(&w);
        if (weights_ask(block, raw, *known)) {
            item_told(slot, &w);
        }
        weights_of(p, &w, held, block, raw, factor, s, t, 0, fade, *known);
    }
    *known = weights_still(p, held, t, fade, *known);
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

/* Lets blocks pass up to the item's last one, or until one has the bit `until`, which is told and
   whose K is there. */
DEV i32 producer_pass(int group, producer_turns *at, i32 until) {
    for (;;) {
        ring_wait_full(RING_K, &at->k);
        const i32 told = block_told(&at->k, group);
        if (!GROUPS_PASS || told & until) {
            return told;
        }
        ring_free(RING_K, &at->k);
        ring_next(&at->k, STAGES);
        ring_wait_full(RING_V, &at->v);
        ring_free(RING_V, &at->v);
        ring_next(&at->v, STAGES);
        if (told & BLOCK_LAST) {
            return told;
        }
    }
}

/* Groups begin an item one behind the other: the first product is hidden by the group before. Three
   groups that let blocks pass are apart as it is. */
#define IN_TURN (GROUPS == 2 || !GROUPS_PASS)

/* This warp's stores of the item before have read its place of q, which is free then. */
DEV void producer_before(const producer_turns *at) {
    const ring_turn before = {at->q.stage ^ 1, 0};
    if (TILE_STORES && at->items > 0) {
        if (lane_id() == 0) {
            store_wait_read();
        }
        ring_free(RING_Q, &before);
    }
}
/* The group has read q: where o does not take its place, that is free. */
DEV void producer_read(const producer_turns *at) {
    if (!TILE_STORES) {
        ring_free(RING_Q, &at->q);
    }
}

/* An item of which the group sees nothing. */
DEV void producer_unseen(int group, producer_turns *at) {
    if (IN_TURN) {
        baton_pass(group, &at->q);
    }
    producer_before(at);
    producer_read(at);
}

/* What the pairs of an item share. */
DEV void producer_held(const attn_params *p, int slot, score_held *held) {
#if ATTN_SCORE_HELD
    attn_item w;
    item_told(slot, &w);
    score_hold(p, &w, held);
#if SCORE_FALLS
    fall_hold(p, w.seq.q0 + w.row0 - (i32)p->k0, held);
#endif
#endif
    (void)p, (void)slot, (void)held;
}

/* The first product of an item, which no other of the group hides. */
DEV void producer_first(int group, producer_turns *at, tile_s *s) {
    if (IN_TURN) {
        baton_wait(group, &at->q);
    }
    tile_qk(s, group, at->q.stage, at->k.stage);
    tile_wait(0);
    tile_pin_s(s);
    if (IN_TURN) {
        baton_pass(group, &at->q);
    }
    ring_free(RING_K, &at->k);
    ring_next(&at->k, STAGES);
    producer_before(at);
}

/* The last one, likewise. */
DEV void producer_last(int group, producer_turns *at, tile_p *pp, tile_o *o) {
    producer_read(at);
    ring_wait_full(RING_V, &at->v);
    tile_pin_o(o);
    tile_pin_p(pp);
    tile_pv(o, pp, at->v.stage);
    tile_wait(0);
    tile_pin_o(o);
    ring_free(RING_V, &at->v);
    ring_next(&at->v, STAGES);
    if (TILE_STORES) { /* o takes the place of q, whose rows a product reads for the whole group */
        named_sync(1 + group, 128);
    }
}

/* All blocks of an item that has some. */
DEV void producer_blocks(const attn_params *p, int group, producer_turns *at, attn_soft *t,
                         tile_o *o) {
    const float factor = score_factor(p);
    const int raw = SCORE_RAW && (int)warp_same((u32)score_is_raw(p));
    tile_s s;
    tile_p pp;
    soft_fade fade;
    score_held held = {{0, 0}, 0, 0, 0, 0};
    const int slot = producer_slot(at);
    producer_held(p, slot, &held);
    int known = weights_begin(&held);
    i32 told = producer_pass(group, at, BLOCK_SEEN);
    if (GROUPS_PASS && !(told & BLOCK_SEEN)) {
        producer_unseen(group, at);
        return;
    }
    producer_first(group, at, &s);
    producer_weights(p, slot, &held, block_of(told), raw, factor, &s, t, &fade, &known);
    tile_p_of(&pp, &s);
    ROLLED while (!(told & BLOCK_END)) {
        ring_wait_full(RING_K, &at->k);
        tile_pin_o(o);
        tile_pin_p(&pp);
        tile_qk(&s, group, at->q.stage, at->k.stage);
        ring_wait_full(RING_V, &at->v);
        tile_pv(o, &pp, at->v.stage);
        told = block_told(&at->k, group);
        tile_wait(1);
        tile_pin_s(&s);
        ring_free(RING_K, &at->k);
        ring_next(&at->k, STAGES);
        producer_weights(p, slot, &held, block_of(told), raw, factor, &s, t, &fade, &known);
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
    producer_last(group, at, &pp, o);
    if (GROUPS_PASS && !(told & BLOCK_LAST)) {
        producer_pass(group, at, 0);
    }
}

DEV void producer_multiply(const attn_params *p) {
    const int group = group_id();
    producer_turns at = {{0, 0}, {0, 0}, {0, 0}, 0};
    ROLLED for (;;) {
        attn_item w;
        attn_soft t;
        tile_o o;
        ring_wait_full(RING_Q, &at.q);
        const u32 kind = item_kind(producer_slot(&at));
        if (kind == ITEM_END) {
            break;
        }
        finish_begin(&t, &o);
        if (kind == ITEM_BLOCKS) {
            producer_blocks(p, group, &at, &t, &o);
        } else {
            producer_unseen(group, &at);
        }
        item_told(producer_slot(&at), &w);
        if (w.row0 + group * 64 < w.rows && !epilogue_quick(p, &w, &t, &o, at.q.stage)) {
            finish(p, &w, &t, &o);
        }
        ring_next(&at.q, STAGES_Q);
        at.items++;
    }
    if (TILE_STORES && lane_id() == 0) {
        store_wait_read();
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
