/* backward.h: the loop of backward on every chip: all warps load, all multiply. S = ATTN_STAGES.

   Who calls it: attn_bwd.hip, once per work item. A warp owns rows, queries or keys, and keeps
   their sums; what they meet passes by in steps n = 0, 1, ..., that range.h visits. The products of
   rows with steps are those of multistage.h, and p and g stay where they are, as there:

       rows are          queries               keys
       owned             Q   dO                K   V
       step: ring K, V   K   V                 Q   dO         of one head of the group
       s  = own . ring K                       the scores transposed
       dp = own . ring V
                         dq += g . ring K      dk += g . ring K,  dv += p . ring V

       before   load own, step 0 .. S-2 (S = 1: step 0)
       step n   wait: step n landed; barrier        all have read step n-1: its place is free
                load step n+S-1                     flies under all of this: (S > 1)
                s, dp, p and g, sums
                S = 1: barrier; load n+1            loads that pass through registers (RING_HOLDS)
                                                    begin above and land here

       time ->    |  s n  |  dp n  | p, g |  sums n      | s n+1 ...
       load n+1   |=====================================|             S = 2

   Nothing is exchanged between warps or blocks: the same bits in each run. Heads are not packed
   into rows, and steps are not split: pack and splits are 1. */
#ifndef ATTN_BACKWARD_H
#define ATTN_BACKWARD_H

#include "core/grad.h"
#include "sched/sources.h"

enum {
    STAGES = ATTN_STAGES,
    AHEAD = ATTN_STAGES > 1 ? ATTN_STAGES - 1 : 1,          /* steps loaded before their turn */
    FLYING = ATTN_STAGES > 2 ? 2 * (ATTN_STAGES - 2) : 0    /* at A: those of steps after n */
};

/* The head of a step, and its first row; behind the last step: past all rows. */
DEV i32 step_head(const attn_params *p, const attn_item *w, i32 step) {
#if ATTN_KEY_ROWS
    return w->hk * p->group + (step < 0 ? 0 : (step >> 1) / range_steps(w));
#else
    (void)p, (void)step;
    return w->h;
#endif
}
DEV i32 step_row(const attn_item *w, i32 step) {
#if ATTN_KEY_ROWS
    return step < 0 ? w->seq.nq : (step >> 1) % range_steps(w) * ATTN_BN;
#else
    return step < 0 ? w->k_end : (step >> 1) * ATTN_BN;
#endif
}

DEV void step_load(const attn_params *p, const attn_item *w, i32 step, int stage, ring_hold *hold,
                   ring_hold *hold_v) {
    const i32 row = step_row(w, step);
#if ATTN_KEY_ROWS
    const i32 h = step_head(p, w, step);
    const tile_rows from = source_q(p, w, h), from_v = source_dout(p, w, h);
#else
    const tile_rows from = source_k(p, w), from_v = source_v(p, w);
#endif
    ring_load(hold, RING_K, stage, &from, row);
    ring_load(hold_v, RING_V, stage, &from_v, row);
}
DEV void step_land(int stage, ring_hold *hold, ring_hold *hold_v) {
    ring_land(hold, RING_K, stage);
    ring_land(hold_v, RING_V, stage);
}

/* The rows that the warp owns. */
DEV void own_load(const attn_params *p, const attn_item *w, tile_q *own, tile_q *own_v) {
    ring_hold hold, hold_v;
#if ATTN_KEY_ROWS
    const tile_rows from = source_k(p, w), from_v = source_v(p, w);
#else
    const tile_rows from = source_q(p, w, w->h), from_v = source_dout(p, w, w->h);
#endif
    ring_load(&hold, RING_Q, 0, &from, w->row0);
    ring_land(&hold, RING_Q, 0);
    if (ATTN_SUMS & 1) {
        ring_load(&hold_v, RING_Q, 1, &from_v, w->row0);
        ring_land(&hold_v, RING_Q, 1);
    }
    ring_wait(0);
    ring_sync();
    tile_q_of(own, &hold, 0);
    if (ATTN_SUMS & 1) {
        tile_q_of(own_v, &hold_v, 1);
    }
}

/* One step whose tiles have landed. */
DEV void step_sum(const attn_params *p, const attn_item *w, grad_rows *rows, i32 step,
                  int stage, const tile_q *own, const tile_q *own_v, tile_o *sum, tile_o *sum_v) {
    tile_s s, dp;
    tile_p operand;
    tile_qk(&s, own, RING_K, stage);
    if (ATTN_SUMS & 1) { /* g is wanted */
        tile_qk(&dp, own_v, RING_V, stage);
    }
    if (step & 1) {
        grad_tile(p, w, rows, step_row(w, step), 0, &s, &dp);
    } else {
        grad_tile(p, w, rows, step_row(w, step), 1, &s, &dp);
    }
    if (ATTN_SUMS & 2) {
        tile_p_of(&operand, &s);
        tile_pv(sum_v, &operand, RING_V, stage);
    }
    if (ATTN_SUMS & 1) {
        tile_p_of(&operand, &dp);
        tile_pv(sum, &operand, RING_K, stage);
    }
}

/* Where keys are rows, w->h becomes the head of the step; what it is at last means nothing. */
DEV void backward(const attn_params *p, attn_item *w, tile_o *sum, tile_o *sum_v) {
    grad_rows rows;
    ring_hold hold, hold_v;
    tile_q own, own_v;
    attn_range it;
    i32 step[AHEAD + 1]; /* this one and the next ones */
    range_begin(&it, p, w);
    UNROLL for (int j = 0; j <= AHEAD; j++) {
        step[j] = range_next(&it, p, w);
    }
    if (step[0] < 0) {
        return;
    }
    own_load(p, w, &own, &own_v);
    UNROLL for (int r = 0; !ATTN_KEY_ROWS && r < TILE_ROWS; r++) {
        rows.of[r] = grad_stats(p, w, w->row0 + tile_row(r));
    }
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        rows.sum[i] = 0;
    }
    UNROLL for (int j = 0; j < AHEAD; j++) {
        step_load(p, w, step[j], j, &hold, &hold_v);
        step_land(j, &hold, &hold_v);
    }
    int stage = 0, next = AHEAD % STAGES; /* of this step, of the one that is loaded */
    while (step[0] >= 0) {
        ring_wait(FLYING);
        ring_sync(); /* A */
        w->h = step_head(p, w, step[0]);
        if (STAGES > 1 || RING_HOLDS) {
            step_load(p, w, step[AHEAD], next, &hold, &hold_v);
        }
        step_sum(p, w, &rows, step[0], stage, &own, &own_v, sum, sum_v);
        if (STAGES == 1) {
            ring_sync(); /* B */
        }
        if (STAGES == 1 && !RING_HOLDS) {
            step_load(p, w, step[AHEAD], next, &hold, &hold_v);
        }
        step_land(next, &hold, &hold_v);
        UNROLL for (int j = 0; j < AHEAD; j++) {
            step[j] = step[j + 1];
        }
        step[AHEAD] = step[AHEAD] < 0 ? -1 : range_next(&it, p, w);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    ring_wait(0);
    grad_rows_end(p, w, &rows);
}

#endif
