/* multistage.h: the schedule of every chip: all warps load, all multiply. S = ATTN_STAGES.

   Who calls it: attn_fwd.hip, once per work item. Steps n = 0, 1, ... are the key blocks that
   range.h visits; K n and V n lie in stage n % S of their own.

       before:  load Q, K 0,  V 0, K 1,  ...  V S-2, K S-1                  (in this order)

       step n:  A  wait: K n landed; barrier    all have read V n-1: its place is free
                   load V n+S-1                 flies under the product (S = 1: is awaited at B)
                   s = q . k  of K n
                B  wait: V n landed; barrier    all have read K n: its place is free
                   load K n+S                   flies under softmax and the other product
                   scores, softmax, dropout, p
                   o += p . v  of V n

       time ->     A        B                   A        B
       matrix      |  q.k n |          | p.v n  | q.k n+1|
       other       |        | softmax n|        |        | softmax n+1
       load, S = 1 | V n ...|                   | V n+1 .|
                            | K n+1 ............|        | K n+2 ...
       S = 2: each may fly a whole step longer; S = 3: two

   Behind the last block loads fill zeros, so that a wait is always for all but the 2 S - 2 youngest
   loads; where that is for all, there are none. Where loads pass through registers, ring_land ends
   them behind the product that hid them. */
#ifndef ATTN_MULTISTAGE_H
#define ATTN_MULTISTAGE_H

#include "core/item.h"
#include "core/weights.h"
#include "sched/sources.h"

/* FLYING: loads younger than the one that A or B awaits. It serves the wait before the first step,
   too: in the order above Q is older than K 0, so where K 0 has landed Q has. */
enum { STAGES = ATTN_STAGES, FLYING = 2 * ATTN_STAGES - 2 };
/* 1: there are loads behind the last block. */
#define LOADS_PAST (ATTN_STAGES > 1 || RING_HOLDS)

/* First row of a block as range_next has it; behind the last block: past all rows. */
DEV i32 block_row(i32 block, const tile_rows *from) {
    return block < 0 ? from->rows : block_number(block) * ATTN_BN;
}

typedef struct tile_sources {
    tile_rows q, k, v;
} tile_sources;

DEV tile_sources sources_of(const attn_params *p, const attn_item *w) {
    tile_sources from;
    from.q = source_q(p, w, w->h);
    from.k = source_k(p, w);
    from.v = source_v(p, w);
    return from;
}

/* The loads before the first step but q's, which is under way; block: the first STAGES of them. */
DEV void multistage_begin(const tile_sources *from, const i32 *block, const ring_hold *hold_q,
                          tile_q *q) {
    ring_hold hold;
    UNROLL for (int j = 0; j < STAGES; j++) {
        ring_load(&hold, RING_K, j, &from->k, block_row(block[j], &from->k));
        ring_land(&hold, RING_K, j);
        if (j + 1 < STAGES) {
            ring_load(&hold, RING_V, j, &from->v, block_row(block[j], &from->v));
            ring_land(&hold, RING_V, j);
        }
    }
    ring_wait(FLYING);
    ring_sync();
    tile_q_of(q, hold_q, 0);
}

/* A lane's maxima and sums are not in registers from soft_park to soft_take, during products. */
#if TILE_PARKS
DEV u32 soft_at(int r) {
    return forget((u32)(SHARED_SOFT + (r / 2 * ATTN_THREADS + thread_id()) * 16));
}
DEV void soft_park(const attn_soft *t) {
    UNROLL for (int r = 0; r < TILE_ROWS; r += 2) {
        const b128 x = {{bits_of(t->m[r]), bits_of(t->l[r]), bits_of(t->m[r + 1]),
                         bits_of(t->l[r + 1])}};
        shared_store_b128(soft_at(r), x);
    }
}
DEV void soft_take(attn_soft *t) {
    UNROLL for (int r = 0; r < TILE_ROWS; r += 2) {
        const b128 x = shared_load_b128(soft_at(r));
        t->m[r] = float_of(x.w[0]);
        t->l[r] = float_of(x.w[1]);
        t->m[r + 1] = float_of(x.w[2]);
        t->l[r + 1] = float_of(x.w[3]);
    }
}
/* Where K and V begin: one thread's, seen by all behind a ring_sync. */
DEV void sources_park(const tile_sources *from) {
    const b128 x = {{(u32)from->k.data, (u32)(from->k.data >> 32), (u32)from->v.data,
                     (u32)(from->v.data >> 32)}};
    if (thread_id() == 0) {
        shared_store_b128((u32)SHARED_SOURCES, x);
    }
}
DEV tile_rows source_take(const tile_rows *from, int what) {
    const u32 at = forget((u32)SHARED_SOURCES + (what == RING_V ? 8 : 0));
    tile_rows x = *from;
    x.data = shared_load_u32(at) | (u64)shared_load_u32(at + 4) << 32;
    return x;
}
#else
DEV void sources_park(const tile_sources *from) {
    (void)from;
}
DEV tile_rows source_take(const tile_rows *from, int what) {
    (void)what;
    return *from;
}
DEV void soft_park(const attn_soft *t) {
    (void)t;
}
DEV void soft_take(attn_soft *t) {
    (void)t;
}
#endif

/* What the pairs of an item share (score_hold) stands with the item: one thread's, seen by all
   behind a ring_sync. */
#define HELD (TILE_ITEM && ATTN_SCORE_HELD)
#if HELD
DEV void held_park(const attn_params *p, const attn_item *w) {
    score_held held;
    if (thread_id() == 0) {
        score_hold(p, w, &held);
        UNROLL for (int i = 0; i < ATTN_SCORE_HELD; i++) {
            shared_store_u32((u32)(SHARED_HELD + 4 * i), bits_of(held.x[i]));
        }
    }
}
DEV score_held held_take(void) {
    const u32 at = forget((u32)SHARED_HELD);
    score_held held = {{0, 0}, 0, 0, 0, 0};
    UNROLL for (int i = 0; i < ATTN_SCORE_HELD; i++) {
        held.x[i] = float_of(shared_load_u32(at + 4 * (u32)i));
    }
    return held;
}
#else
DEV void held_park(const attn_params *p, const attn_item *w) {
    (void)p, (void)w;
}
DEV score_held held_take(void) {
    const score_held none = {{0, 0}, 0, 0, 0, 0};
    return none;
}
#endif

/* So does a warp's range, between the steps; scores that are bounded spill by it. */
#if TILE_PARKS && !ATTN_SCORE_BOUNDED
DEV u32 range_at(void) {
    return forget((u32)SHARED_RANGE + (u32)thread_id() * 16);
}
DEV void range_park(const attn_range *it) {
    const b128 x = {{it->some, it->full, (u32)it->base, (u32)it->end}};
    shared_store_b128(range_at(), x);
}
DEV void range_take(attn_range *it) {
    const b128 x = shared_load_b128(range_at());
    it->some = x.w[0];
    it->full = x.w[1];
    it->base = (i32)x.w[2];
    it->end = (i32)x.w[3];
}
#else
DEV void range_park(const attn_range *it) {
    (void)it;
}
DEV void range_take(attn_range *it) {
    (void)it;
}
#endif

/* All of it, before the loop. */
DEV void parks_begin(const attn_params *p, const attn_item *w, const tile_sources *from,
                     const attn_soft *t, const attn_range *it) {
    sources_park(from);
    held_park(p, w);
    soft_park(t);
    range_park(it);
}

/* Blocks of this step and the next ones move up by one. */
DEV void next_block(i32 block[STAGES + 1], attn_range *it, const attn_params *p,
                    const attn_item *w) {
    UNROLL for (int j = 0; j < STAGES; j++) {
        block[j] = block[j + 1];
    }
    block[STAGES] = block[STAGES] < 0 ? -1 : range_next(it, p, w);
}

DEV void first_blocks(i32 block[STAGES + 1], attn_range *it, const attn_params *p,
                      const attn_item *w) {
    block[STAGES] = 0;
    range_begin(it, p, w);
    ROLLED for (int j = 0; j <= STAGES; j++) {
        next_block(block, it, p, w);
    }
}

DEV void multistage(const attn_params *p, const attn_item *w, attn_soft *t, tile_o *o) {
    const tile_sources from = sources_of(p, w);
    const float factor = score_factor(p);
    const int raw = score_is_raw(p);
    ring_hold hold_q, hold_k, hold_v;
    tile_q q;
    attn_range it;
    i32 block[STAGES + 1];
    ring_load(&hold_q, RING_Q, 0, &from.q, w->row0); /* flies while blocks are looked for */
    ring_land(&hold_q, RING_Q, 0);
    first_blocks(block, &it, p, w);
    if (block[0] < 0) {
        ring_wait(0);
        ring_sync();
        return;
    }
    parks_begin(p, w, &from, t, &it);
    multistage_begin(&from, block, &hold_q, &q);
    int stage = 0, before = STAGES - 1; /* of this step, of the last */
    while (block[0] >= 0) {
        attn_item asked;
        tile_s s;
        tile_p pp;
        soft_fade fade;
        ring_wait(FLYING);
        ring_sync(); /* A */
        tile_rows next = source_take(&from.v, RING_V);
        ring_load(&hold_v, RING_V, before, &next, block_row(block[STAGES - 1], &next));
        tile_qk(&s, &q, RING_K, stage);
        soft_take(t);
        ring_land(&hold_v, RING_V, before);
        ring_wait(FLYING);
        ring_sync(); /* B */
        next = source_take(&from.k, RING_K);
        if (LOADS_PAST || block[STAGES] >= 0) {
            ring_load(&hold_k, RING_K, stage, &next, block_row(block[STAGES], &next));
        }
        if (!TILE_ITEM || weights_ask(block[0], raw, 0)) {
            asked = item_get(w);
        }
        const score_held held = held_take();
        weights_of(p, &asked, HELD ? &held : 0, block[0], raw, factor, &s, t, o, &fade,
                   weights_known(p, 0, t));
        soft_park(t);
        tile_p_of(&pp, &s);
        tile_pv(o, &pp, RING_V, stage);
        ring_land(&hold_k, RING_K, stage);
        range_take(&it);
        if (!TILE_ITEM || !it.some) {
            asked = item_get(w);
            it.end = range_end(p, &asked);
        }
        next_block(block, &it, p, &asked);
        range_park(&it);
        before = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    ring_wait(0);
    soft_take(t);
}

#endif
