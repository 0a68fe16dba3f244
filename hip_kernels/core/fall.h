/* fall.h: softmax of scores that fall with the distance of query and key, s - f |q - k| (ALiBi):
   exponents straight from the products.

   Who calls it: weights.h, of a variant whose text defines ATTN_SCORE_FALL (lib/gpu_text_form.c);
   sched/producer.h, the one schedule that has this, holds what the steps of an item share. An
   exponent is one multiply-add, as without a score, if its addend is there:

       exponent = x factor + addend
       addend   = gain right + base        d: of the row and the lane's first column; the pair's
       base     = -gain d - m              is d - right, a constant of its column
                                           gain: f in powers of two; where k > q, of the other sign

   A row's first m is f up, if its scores are not far from that; up is how far below it the last
   row of its FALL_GROUP is. Then base is -gain (d + up), the same for all rows of a group. Groups
   begin at multiples of all rows' numbers, so that a row's bits do not depend on its place in the
   tile. Where all rows of a warp have that m and the block lies below the diagonal, a lane's rows
   have their addends in common (fall_calm):

       known (softmax.h)   WEIGHTS_NONE   WEIGHTS_M    WEIGHTS_FIRST
       block               any            any          full and below     other
       how                 fall_step                   fall_calm          fall_step

   Blocks are visited from the last to the first (sched/ahead.h): behind the diagonal's block terms
   fall, so that m need not follow, as softmax.h has it for scores that are products. Where a term
   may rise by much from block to block m follows maxima. */
#ifndef ATTN_FALL_H
#define ATTN_FALL_H

#include "core/softmax.h"

#if SCORE_FALLS

/* The last row's down; what terms may rise by from block to block, and how large they may be in
   the diagonal's block, where base rounds them: a steeper score has no exponents of its own. */
#define FALL_DOWN  TILE_DOWN(TILE_ROWS - 1)
#define FALL_CALM  32.0f
#define FALL_MOST  192.0f
/* Rows whose numbers begin alike, those of a warp; what their first m may be, as it rounds
   exponents; a first maximum that is not far: f16's p end at 2^-24. */
#define FALL_GROUP ATTN_WARP_ROWS
#define FALL_FIRST 48.0f
#define FALL_LEAST (ATTN_TYPE == ATTN_F16 ? -4.0f : -56.0f)
#define FALL_NEVER (-1) /* no block begins there */

DEV int fall_is_steep(const score_held *held) {
    return abs_f32(held->fall) * ATTN_BN > FALL_CALM;
}

DEV int fall_is_shared(const score_held *held) {
    return abs_f32(held->fall) * (FALL_GROUP - 1) <= FALL_FIRST;
}

/* Of an item; q0: number of its first row less that of key 0. from: of the last row of the group
   that a lane's first row is in, which fall_calm counts from; below: of the warp. */
DEV void fall_hold(const attn_params *p, i32 q0, score_held *held) {
    held->fall = ATTN_SCORE_FALL(held->x) * (float)LOG2_E;
    held->own = p->pack == 1 && p->scale >= 0x1p-100f &&
                abs_f32(held->fall) * ATTN_BN <= FALL_MOST;
    held->from = q0 + warp_row() + FALL_GROUP - 1 - tile_col(0);
    held->below = q0 + warp_row() - (ATTN_BN - 1);
    if (p->i0 & (FALL_GROUP - 1) || !fall_is_shared(held) ||
        (held->fall < 0 && fall_is_steep(held))) {
        held->below = FALL_NEVER;
    }
    held->own = (int)warp_same((u32)held->own);
    held->below = (i32)warp_same((u32)held->below);
}

DEV i32 fall_up(const attn_params *p, int r) {
    return FALL_GROUP - 1 - (((i32)p->i0 + tile_row(0) + TILE_DOWN(r)) & (FALL_GROUP - 1));
}
DEV float fall_first(const attn_params *p, const score_held *held, int r) {
    return fall_is_shared(held) ? held->fall * (float)fall_up(p, r) : 0.0f;
}
/* 1: all rows of the warp have their first m. */
DEV int fall_has_first(const attn_params *p, const score_held *held, const attn_soft *t) {
    int other = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        other |= t->m[r] != fall_first(p, held, r);
    }
    return !warp_any(other);
}

/* 1: fall_calm stands before a step's item is read, which saves registers; two groups have them,
   and are faster without. */
#define FALL_APART (ATTN_WARPS > 8)
DEV int fall_is_calm(const score_held *held, i32 k0, int check, int known) {
    return known == WEIGHTS_FIRST && !check && k0 <= held->below;
}

/* Exponents become p. */
DEV void fall_p(tile_s *s, attn_soft *t, float *sum) {
    float part[TILE_ROWS][2];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        part[r][0] = part[r][1] = 0;
    }
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            s->x[r][c] = exp2_fast(s->x[r][c]);
            part[r][c % TILE_CHAINS] += s->x[r][c];
        }
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        sum[r] = part[r][0] + part[r][1];
        t->l[r] += sum[r];
    }
}

/* Products become p by addends in common; base: of the group's last row, as up has it. */
DEV void fall_calm(const attn_params *p, const score_held *held, i32 k0, tile_s *s, attn_soft *t,
                   float *sum) {
    const float factor = p->factor, gain = held->fall;
    const float base = -(gain * (float)(held->from - k0));
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        const float add = fma_f32(gain, (float)(tile_col(c) - tile_col(0)), base);
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            s->x[r][c] = fma_f32(s->x[r][c], factor, add);
        }
    }
    fall_p(s, t, sum); /* here, so that multiply-adds stand beside exponentials */
}

/* By rows, of which each has an m; both: there are pairs on both sides of the diagonal. */
DEV void fall_exponents(const attn_params *p, const score_held *held, float gain, i32 d,
                        const float *m, int both, tile_s *s) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float at = (float)(d + TILE_DOWN(r)), up = (float)fall_up(p, r);
        const int first = fall_is_shared(held) && gain == held->fall && m[r] == gain * up;
        const float base = first ? -(gain * (at + up)) : fma_f32(-gain, at, -m[r]);
        const float back = fma_f32(gain, at, -m[r]);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            const int right = tile_col(c) - tile_col(0);
            float add = fma_f32(gain, (float)right, base);
            if (both && d + TILE_DOWN(r) < right) {
                add = fma_f32(-gain, (float)right, back);
            }
            s->x[r][c] = fma_f32(s->x[r][c], p->factor, add);
        }
    }
}

/* m of rows that have none, and of those that follow; exponents are less m, become less the new. */
DEV void fall_move(const attn_params *p, const score_held *held, const float *m, const int *follow,
                   tile_s *s, attn_soft *t, soft_fade *f) {
    float top[TILE_ROWS];
    softmax_max(s, top);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int begins = t->m[r] == SOFTMAX_NONE;
        const int near = begins && top[r] > FALL_LEAST && top[r] < SOFTMAX_SLACK;
        top[r] = near                 ? fall_first(p, held, r)
                 : begins | follow[r] ? softmax_top(top[r] + m[r], 1.0f)
                                      : MINUS_INF;
    }
    softmax_move(top, t, f);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float by = t->m[r] == SOFTMAX_NONE ? 0.0f : t->m[r] - m[r];
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] -= by;
        }
    }
}

DEV void fall_step(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                   int check, int known, tile_s *s, attn_soft *t, soft_fade *f) {
    const i32 d = held->from - (FALL_GROUP - 1) + (tile_row(0) - warp_row()) - k0;
    score_keys ends[TILE_ROWS];
    float m[TILE_ROWS];
    int follow[TILE_ROWS], below = 1, follows = 0;
    if (check) {
        score_all_ends(p, w, k0, ends);
        score_mask_by(p, w, ends, k0, p->scale, s);
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) { /* is: the row sees no key behind it */
        int is = d + TILE_DOWN(r) + tile_col(0) >= ATTN_BN - 1;
        is |= check && ends[r].last <= d + TILE_DOWN(r);
        follow[r] = fall_is_steep(held) && !(is && held->fall >= 0);
        follows |= follow[r];
        below &= is;
        m[r] = t->m[r] == SOFTMAX_NONE ? fall_first(p, held, r) : t->m[r];
    }
    if (!warp_any(!below)) {
        fall_exponents(p, held, held->fall, d, m, 0, s);
    } else if (!warp_any(d + FALL_DOWN > 0)) {
        fall_exponents(p, held, -held->fall, d, m, 0, s);
    } else {
        fall_exponents(p, held, held->fall, d, m, 1, s);
    }
    if (!known || warp_any(follows)) {
        fall_move(p, held, m, follow, s, t, f);
        f->moved = warp_any(f->moved); /* the warp's, as softmax_late has it */
    }
}

/* Products of a step become p in place. */
DEV void fall_tile(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                   int check, int known, tile_s *s, attn_soft *t, soft_fade *f) {
    float sum[TILE_ROWS];
    softmax_stay(f);
    if (!FALL_APART && fall_is_calm(held, k0, check, known)) {
        fall_calm(p, held, k0, s, t, sum);
    } else {
        fall_step(p, w, held, k0, check, known, s, t, f);
        fall_p(s, t, sum);
    }
    softmax_late(s, t, f, sum);
}

#endif
#endif
