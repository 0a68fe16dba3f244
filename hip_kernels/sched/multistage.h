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
   loads. Where loads pass through registers, ring_land ends them behind the product that hid
   them. */
#ifndef ATTN_MULTISTAGE_H
#define ATTN_MULTISTAGE_H

#include "core/weights.h"
#include "sched/sources.h"

enum { STAGES = ATTN_STAGES, FLYING = 2 * ATTN_STAGES - 2 };

/* First row of a block as range_next has it; behind the last block: past all rows. */
DEV i32 block_row(i32 block, const tile_rows *from) {
    return block < 0 ? from->rows : (block >> 1) * ATTN_BN;
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

/* The loads before the first step but q's, which is under way; block: STAGES + 1 of them. */
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

DEV void multistage(const attn_params *p, const attn_item *w, attn_soft *t, tile_o *o) {
    const tile_sources from = sources_of(p, w);
    const float factor = score_factor(p);
    const int raw = score_is_raw(p);
    ring_hold hold_q, hold_k, hold_v;
    tile_q q;
    attn_range it;
    i32 block[STAGES + 1]; /* of this step and the next ones */
    ring_load(&hold_q, RING_Q, 0, &from.q, w->row0); /* flies while blocks are looked for */
    ring_land(&hold_q, RING_Q, 0);
    range_begin(&it, p, w);
    UNROLL for (int j = 0; j <= STAGES; j++) {
        block[j] = range_next(&it, p, w);
    }
    if (block[0] < 0) {
        ring_wait(0);
        return;
    }
    multistage_begin(&from, block, &hold_q, &q);
    int stage = 0, before = STAGES - 1; /* of this step, of the last */
    while (block[0] >= 0) {
        tile_s s;
        tile_p pp;
        soft_fade fade;
        ring_wait(FLYING);
        ring_sync(); /* A */
        ring_load(&hold_v, RING_V, before, &from.v, block_row(block[STAGES - 1], &from.v));
        tile_qk(&s, &q, RING_K, stage);
        ring_land(&hold_v, RING_V, before);
        ring_wait(FLYING);
        ring_sync(); /* B */
        ring_load(&hold_k, RING_K, stage, &from.k, block_row(block[STAGES], &from.k));
        weights_of(p, w, block[0], raw, factor, &s, t, o, &fade, 0);
        tile_p_of(&pp, &s);
        tile_pv(o, &pp, RING_V, stage);
        ring_land(&hold_k, RING_K, stage);
        UNROLL for (int j = 0; j < STAGES; j++) {
            block[j] = block[j + 1];
        }
        block[STAGES] = block[STAGES] < 0 ? -1 : range_next(&it, p, w);
        before = stage;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    ring_wait(0);
}

#endif
