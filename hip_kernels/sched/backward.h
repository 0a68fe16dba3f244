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

   Apart, nothing is exchanged between warps or blocks: the same bits in each run. Fused
   (ATTN_FUSED), rows are keys, and a step's part of dq = g' . own K is added to memory (core/dq.h):
   its warps need all of g, which goes through shared memory, and a barrier C more.

       s, dp, p, g | g shared | C | dv, dk | dq's part, atomics

   Where products fly (arch/sm90_grad.h, TILE_FLIES) they are waited for where they are used:

       s, dp begun | p, g | dv begun, g shared | C | dq's part, dk begun | atomics | all ended

   Heads are not packed into rows, and steps are not split: pack and splits are 1. */
#ifndef ATTN_BACKWARD_H
#define ATTN_BACKWARD_H

#if ATTN_FUSED
#include "core/order.h"
#endif
#include "core/grad.h"
#include "sched/sources.h"

enum {
    STAGES = ATTN_STAGES,
    AHEAD = ATTN_STAGES > 1 ? ATTN_STAGES - 1 : 1,          /* steps loaded before their turn */
    FLYING = ATTN_STAGES > 2 ? 2 * (ATTN_STAGES - 2) : 0    /* at A: those of steps after n */
};

/* LSE and c of a step's queries lie behind the tiles, a place each stage. */
enum {
    STATS_AT = (ATTN_SHARED_BYTES + 15) / 16 * 16, /* two of them are read at once */
    STATS_BYTES = TILE_FULL ? 0 : ATTN_BN * 8,
    STATS_EACH = (ATTN_BN + ATTN_THREADS - 1) / ATTN_THREADS, /* that a thread brings */
    GROUP_AT = STATS_AT + ATTN_KEY_ROWS * ATTN_STAGES * STATS_BYTES,
    ORDER_SHARED = GROUP_AT + 16 * TILE_LEAN, /* order.h */
#if ATTN_ORDERED
    BACKWARD_SHARED_BYTES = ORDER_SHARED + ORDER_BYTES
#else
    BACKWARD_SHARED_BYTES = ORDER_SHARED
#endif
};

/* What a lane keeps of a step's loads under way. */
typedef struct step_hold {
    ring_hold k, v;
    attn_stats stats[STATS_EACH];
} step_hold;

/* A step: its head; its block of rows, as range_next tells it. */
typedef struct back_step {
    i32 h, block;
} back_step;

DEV i32 step_row(const attn_item *w, const back_step *step) {
    const i32 past = ATTN_KEY_ROWS ? w->seq.nq : w->k_end;
    return step->block < 0 ? past : block_number(step->block) * ATTN_BN;
}

/* The first query head of the item's group. */
DEV void group_keep(const attn_params *p, const attn_item *w) {
    if (TILE_LEAN && thread_id() == 0) {
        shared_store_u32((u32)GROUP_AT, (u32)(w->hk * p->group));
    }
}
DEV i32 group_first(const attn_params *p, const attn_item *w) {
#if TILE_LEAN
    (void)p, (void)w;
    return (i32)shared_load_u32(forget((u32)GROUP_AT));
#else
    return w->hk * p->group;
#endif
}

/* Of what range_next tells. */
DEV back_step step_of(const attn_params *p, const attn_item *w, i32 told) {
    back_step s;
    s.h = w->h;
    s.block = told;
#if ATTN_KEY_ROWS
    s.h = group_first(p, w);
    if (p->group > 1 && told >= 0) {
        const i32 steps = range_steps(w), head = block_number(told) / steps;
        s.h += head;
        s.block -= head * steps * 2; /* its number within the head */
    }
#endif
    return s;
}

/* Of a step to come the loop keeps what it was told alone where registers are few. */
DEV back_step step_next(attn_range *it, const attn_params *p, const attn_item *w) {
    const i32 told = range_next(it, p, w);
    const back_step later = {0, told};
    return TILE_LEAN ? later : step_of(p, w, told);
}
DEV back_step step_now(const attn_params *p, const attn_item *w, const back_step *step) {
    return TILE_LEAN ? step_of(p, w, step->block) : *step;
}

DEV void step_load(const attn_params *p, const attn_item *w, const back_step *step, int stage,
                   step_hold *hold) {
    const i32 row = step_row(w, step);
#if ATTN_KEY_ROWS
    const tile_rows from = source_q(p, w, step->h), from_v = source_dout(p, w, step->h);
    UNROLL for (int j = 0; j < (TILE_FULL ? 0 : STATS_EACH); j++) {
        const int i = thread_id() + j * ATTN_THREADS;
        hold->stats[j] = i < ATTN_BN ? grad_stats(p, w, step->h, row + i) : stats_nothing();
    }
#else
    const tile_rows from = source_k(p, w), from_v = source_v(p, w);
#endif
    ring_load(&hold->k, RING_K, stage, &from, row);
    ring_load(&hold->v, RING_V, stage, &from_v, row);
}
DEV void step_land(int stage, step_hold *hold) {
    ring_land(&hold->k, RING_K, stage);
    ring_land(&hold->v, RING_V, stage);
#if ATTN_KEY_ROWS
    UNROLL for (int j = 0; j < STATS_EACH; j++) {
        const int i = thread_id() + j * ATTN_THREADS;
        if (i < ATTN_BN && !TILE_FULL) {
            stats_share((u32)(STATS_AT + stage * STATS_BYTES), i, &hold->stats[j]);
        }
    }
#endif
}

/* The rows that the warp owns. */
DEV void own_load(const attn_params *p, const attn_item *w, tile_q *own, tile_q *own_v) {
    ring_hold hold, hold_v;
#if ATTN_KEY_ROWS
    const tile_rows from = source_k(p, w), from_v = source_v(p, w);
#else
    const tile_rows from = source_q(p, w, w->h), from_v = source_dout(p, w, w->h);
#endif
    group_keep(p, w); /* all threads meet below */
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

#if ATTN_FUSED
DEV u64 step_part(const attn_params *p, const attn_item *w, const back_step *step) {
    return dq_block(p, w, w->h, block_number(step->block));
}
/* The warp waits for its turn to add to dq's part of the step. */
DEV void step_turn(const attn_params *p, const attn_item *w, const back_step *step) {
#if ATTN_ORDERED
    const i32 before = (w->h - group_first(p, w)) * range_steps(w); /* steps of other heads */
    order_wait(step_part(p, w, step),
               order_turn(p, w, before + block_number(step->block), step->block & BLOCK_BEFORE,
                          step->block & BLOCK_DOWN));
#else
    (void)p, (void)w, (void)step;
#endif
}
DEV void step_added(const attn_params *p, const attn_item *w, const back_step *step) {
#if ATTN_ORDERED
    order_keep(ORDER_SHARED, step_part(p, w, step), w);
#else
    (void)p, (void)w, (void)step;
#endif
}
#endif

/* What no run has and no compiler knows: a loop until then runs once, and what stands in it stays
   there. A compiler that moves it among what follows needs more registers than there are. Pairs
   that may be masked and have a score are so made by a few columns at a time; where scores are
   bounded, whose pairs take most, that alone needs more. */
#if TILE_FLIES && ATTN_HAS_SCORE && !defined(ATTN_SCORE_REACH)
#define STEP_COLS(check) (check ? 4 : TILE_COLS(ATTN_BN))
#else
#define STEP_COLS(check) TILE_COLS(ATTN_BN)
#endif
DEV int step_never(const attn_params *p) {
#if TILE_FLIES
    return p->B < 0;
#else
    (void)p;
    return 0;
#endif
}

/* p and g as operands, where they are made: fewer registers join behind a branch. */
DEV void step_round(const tile_s *s, const tile_s *dp, tile_p *g, tile_p *weight) {
    if (ATTN_SUMS & 2) {
        tile_p_of(weight, s);
    }
    if (ATTN_SUMS & 1) {
        tile_p_of(g, dp);
    }
}
/* check, near: of grad_tile. */
DEV void step_pairs(const attn_params *p, const attn_item *w, grad_rows *rows,
                    const back_step *step, u32 stats, int check, int near, tile_s *s, tile_s *dp,
                    tile_p *g, tile_p *weight) {
    const int n = STEP_COLS(check);
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c += n) {
        do {
            grad_tile(p, w, rows, stats, step_row(w, step), c, n, check, near, s, dp);
        } while (check && step_never(p));
    }
    if (!GRAD_TURNS) {
        step_round(s, dp, g, weight);
    }
}

/* Products of the step become p and g, as soon as they are there. */
DEV void step_weigh(const attn_params *p, const attn_item *w, grad_rows *rows,
                    const back_step *step, int stage, tile_s *s, tile_s *dp, tile_p *g,
                    tile_p *weight) {
    const u32 stats = (u32)(STATS_AT + stage * STATS_BYTES);
    const int full = block_is_full(step->block);
#if GRAD_TURNS
    if (full) {
        tile_wait(1);
        tile_pin_s(s);
        grad_tile_p(p, stats, s);
        tile_wait(0);
        tile_pin_s(dp);
        grad_tile_g(stats, s, dp);
        return;
    }
#endif
    tile_wait(0);
    tile_pin_s(s);
    tile_pin_s(dp);
#if GRAD_NEAR
    if (grad_near(p, w, s)) {
        if (full) {
            step_pairs(p, w, rows, step, stats, 0, 1, s, dp, g, weight);
        } else {
            step_pairs(p, w, rows, step, stats, 1, 1, s, dp, g, weight);
        }
        return;
    }
#else
    if (full) {
        step_pairs(p, w, rows, step, stats, 0, 0, s, dp, g, weight);
        return;
    }
#endif
    step_pairs(p, w, rows, step, stats, 1, 0, s, dp, g, weight);
}

#if TILE_FLIES
/* dq's part while dk's product flies; where groups share rows, p and g come back first. */
DEV void step_add(const attn_params *p, const attn_item *w, const back_step *step, int stage,
                  tile_p *g, tile_p *weight, tile_o *sum, tile_o *sum_v) {
    tile_d d;
    tile_share(SHARE_G, g);
    if (ATTN_SPLIT > 1) {
        tile_share(SHARE_P, weight);
    } else {
        tile_pv(sum_v, weight, RING_V, stage);
    }
    ring_sync(); /* C */
    tile_dq(&d, 0);
    if (ATTN_SPLIT > 1) {
        tile_shared(weight, SHARE_P);
        tile_pv(sum_v, weight, RING_V, stage);
        tile_shared(g, SHARE_G);
    }
    tile_pv(sum, g, RING_K, stage);
    step_turn(p, w, step);
    UNROLL for (int pass = 0; pass < DQ_PASSES; pass++) {
        if (pass > 0) {
            tile_dq(&d, pass);
            tile_wait(0);
        } else if (ATTN_SPLIT > 1) {
            tile_wait(2);
        } else {
            tile_wait(1);
        }
        tile_pin_d(&d);
        dq_add(step_part(p, w, step), pass, &d);
    }
    step_added(p, w, step);
    tile_wait(0);
    tile_pin_o(sum);
    tile_pin_o(sum_v);
}
#elif ATTN_FUSED
DEV void step_add(const attn_params *p, const attn_item *w, const back_step *step, int stage,
                  tile_p *g, tile_p *weight, tile_o *sum, tile_o *sum_v) {
    tile_d d;
    tile_share(SHARE_G, g);
    if (ATTN_SPLIT > 1) {
        tile_share(SHARE_P, weight);
        ring_sync(); /* C */
        tile_shared(weight, SHARE_P);
        tile_pv(sum_v, weight, RING_V, stage);
        tile_shared(g, SHARE_G);
        tile_pv(sum, g, RING_K, stage);
    } else {
        tile_pv(sum_v, weight, RING_V, stage);
        tile_pv(sum, g, RING_K, stage);
        ring_sync(); /* C */
    }
    step_turn(p, w, step);
    ROLLED for (int pass = 0; pass < DQ_PASSES; pass++) {
        tile_dq(&d, pass);
        dq_add(step_part(p, w, step), pass, &d);
    }
    step_added(p, w, step);
}
#else
DEV void step_add(const attn_params *p, const attn_item *w, const back_step *step, int stage,
                  tile_p *g, tile_p *weight, tile_o *sum, tile_o *sum_v) {
    (void)p, (void)w, (void)step;
    if (ATTN_SUMS & 2) {
        tile_pv(sum_v, weight, RING_V, stage);
    }
    if (ATTN_SUMS & 1) {
        tile_pv(sum, g, RING_K, stage);
    }
}
#endif

/* One step whose tiles have landed. */
DEV void step_sum(const attn_params *p, const attn_item *w, grad_rows *rows,
                  const back_step *step, int stage, const tile_q *own, const tile_q *own_v,
                  tile_o *sum, tile_o *sum_v) {
    tile_s s, dp;
    tile_p g, weight;
    tile_qk(&s, own, RING_K, stage);
    if (ATTN_SUMS & 1) { /* g is wanted */
        tile_qk(&dp, own_v, RING_V, stage);
    }
#if ATTN_ORDERED
    order_pass(ORDER_SHARED); /* not earlier: it waits for the last step's additions */
#endif
    step_weigh(p, w, rows, step, stage, &s, &dp, &g, &weight);
    if (GRAD_TURNS) {
        step_round(&s, &dp, &g, &weight);
    }
    step_add(p, w, step, stage, &g, &weight, sum, sum_v);
    grad_rows_left(p, w, step_row(w, step), rows);
}

DEV void rows_begin(const attn_params *p, const attn_item *w, grad_rows *rows) {
    UNROLL for (int r = 0; !ATTN_KEY_ROWS && r < TILE_ROWS; r++) {
        rows->of[r] = grad_stats(p, w, w->h, w->row0 + tile_row(r));
    }
    rows->left = 0;
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        rows->sum[i] = 0;
    }
}

/* Where keys are rows, w->h becomes the head of the step; what it is at last means nothing. */
DEV void backward(const attn_params *p, attn_item *w, tile_o *sum, tile_o *sum_v) {
    grad_rows rows;
    step_hold hold;
    tile_q own, own_v;
    attn_range it;
    back_step step[AHEAD + 1]; /* this one and the next ones */
    range_begin(&it, p, w);
    UNROLL for (int j = 0; j <= AHEAD; j++) {
        step[j] = step_next(&it, p, w);
    }
    if (step[0].block < 0) {
        return;
    }
    own_load(p, w, &own, &own_v);
    rows_begin(p, w, &rows);
    UNROLL for (int j = 0; j < AHEAD; j++) {
        const back_step first = step_now(p, w, &step[j]);
        step_load(p, w, &first, j, &hold);
        step_land(j, &hold);
    }
    int stage = 0, next = AHEAD % STAGES; /* of this step, of the one that is loaded */
    while (step[0].block >= 0) {
        const back_step now = step_now(p, w, &step[0]), later = step_now(p, w, &step[AHEAD]);
        next = TILE_LEAN ? (stage + AHEAD) % STAGES : next; /* no register in between */
        ring_wait(FLYING);
        ring_sync(); /* A */
        if (ATTN_HAS_GRADS && now.h != w->h) {
            grad_rows_end(p, w, &rows);
        }
        w->h = now.h;
        if (STAGES > 1 || RING_HOLDS) {
            step_load(p, w, &later, next, &hold);
        }
        step_sum(p, w, &rows, &now, stage, &own, &own_v, sum, sum_v);
        if (STAGES == 1) {
            ring_sync(); /* B */
        }
        if (STAGES == 1 && !RING_HOLDS) {
            step_load(p, w, &later, next, &hold);
        }
        step_land(next, &hold);
        UNROLL for (int j = 0; j < AHEAD; j++) {
            step[j] = step[j + 1];
        }
        step[AHEAD] = step_next(&it, p, w);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        next = next + 1 == STAGES ? 0 : next + 1;
    }
    ring_wait(0);
#if ATTN_ORDERED
    block_sync();
    order_pass(ORDER_SHARED);
#endif
    grad_rows_end(p, w, &rows);
}

#endif
