/* fall.h: softmax of scores that fall with the distance of query and key, s - f |q - k| (ALiBi):
   exponents straight from the products.

   Who calls it: weights.h, of a variant whose text defines ATTN_SCORE_FALL (lib/gpu_text_form.c);
   producer.h holds what the steps of an item share. An exponent is one multiply-add, as without a
   score, if its addend is there:

       exponent = x factor + addend
       addend   = gain right + base        d: of the row and the lane's first column; the pair's
       base     = -gain (d + up) + rel        is d - right, a constant of its column
       rel      = gain up - m              gain: f in powers of two; where k > q, of the other sign

   up is how far below the row the last of its FALL_GROUP is; groups begin at multiples of all rows'
   numbers, so that a row's bits do not depend on its place in the tile. Its first m is f up, if
   its scores are not far from that: then rel is 0, and rows of a group have their addends in common
   (FALL_SHARED).

   Blocks are visited from the last to the first (range.h): behind the diagonal's block terms fall,
   so that m need not follow, as softmax.h has it for scores that are products. Where a term may
   rise by much from block to block m follows maxima. */
#ifndef ATTN_FALL_H
#define ATTN_FALL_H

#include "core/softmax.h"

#if SCORE_FALLS

/* The last row's down; what terms may rise by from block to block. */
#define FALL_DOWN  TILE_DOWN(TILE_ROWS - 1)
#define FALL_CALM  32.0f
/* Rows whose numbers begin alike; a first maximum that is not far, f16's p end at 2^-24. */
#define FALL_GROUP 16
#define FALL_LEAST (ATTN_TYPE == ATTN_F16 ? -4.0f : -20.0f)

/* Addends are of each row, of all rows, or of pairs on both sides of the diagonal. */
enum { FALL_ROWS, FALL_SHARED, FALL_BOTH };

DEV void fall_hold(const attn_params *p, const attn_item *w, score_held *held) {
    const float fall = ATTN_SCORE_FALL(held->x) * (float)LOG2_E;
    held->fall = fall;
    held->from = w->seq.q0 + w->row0 + tile_row(0) - ((i32)p->k0 + tile_col(0));
    held->own = p->pack == 1 && p->scale >= 0x1p-100f && abs_f32(fall) < 0x1p20f;
}

typedef struct fall_step {
    float gain, base[TILE_ROWS], back[TILE_ROWS]; /* back: base where k > q */
    i32 d, up;                                    /* of the lane's first row */
} fall_step;

DEV i32 fall_up(const fall_step *a, int r) {
    return FALL_GROUP - 1 - ((a->up + TILE_DOWN(r)) & (FALL_GROUP - 1));
}
DEV float fall_rel(float gain, i32 up, float m) {
    return gain * (float)up - (m == MINUS_INF ? 0.0f : m);
}
DEV void fall_bases(fall_step *a, const float *m) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const i32 up = fall_up(a, r);
        const float d = (float)(a->d + TILE_DOWN(r) + up);
        a->base[r] = fma_f32(-a->gain, d, fall_rel(a->gain, up, m[r]));
        a->back[r] = fma_f32(a->gain, d, fall_rel(-a->gain, up, m[r]));
    }
}

DEV float fall_exponent(const fall_step *a, float x, float factor, int r, int c, int how) {
    const int right = tile_col(c) - tile_col(0);
    float add = fma_f32(a->gain, (float)right, a->base[how == FALL_SHARED ? 0 : r]);
    if (how == FALL_BOTH && a->d + TILE_DOWN(r) < right) {
        add = fma_f32(-a->gain, (float)right, a->back[r]);
    }
    return fma_f32(x, factor, add);
}

/* The largest exponent of each row, without m. */
DEV void fall_max(const tile_s *s, const fall_step *a, float factor, int how, float *top) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        float most[2] = {MINUS_INF, MINUS_INF};
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            most[c % 2] = max_num(most[c % 2], fall_exponent(a, s->x[r][c], factor, r, c, how));
        }
        top[r] = row_max(max_num(most[0], most[1]));
    }
}

DEV void fall_p(tile_s *s, attn_soft *t, const fall_step *a, float factor, int how, float *sum) {
    float part[TILE_ROWS][2];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        part[r][0] = part[r][1] = 0;
    }
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            s->x[r][c] = exp2_fast(fall_exponent(a, s->x[r][c], factor, r, c, how));
            part[r][c % 2] += s->x[r][c];
        }
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        sum[r] = part[r][0] + part[r][1];
        t->l[r] += sum[r];
    }
}

/* m of rows that have none, and of those that follow. */
DEV void fall_move(const tile_s *s, const fall_step *a, attn_soft *t, soft_fade *f, float factor,
                   float fall, const int *follow, int both) {
    fall_step from = *a;
    float first[TILE_ROWS], top[TILE_ROWS];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        first[r] = fall * (float)fall_up(a, r);
    }
    fall_bases(&from, first);
    if (both) {
        fall_max(s, &from, factor, FALL_BOTH, top);
    } else {
        fall_max(s, &from, factor, FALL_ROWS, top);
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int begins = t->m[r] == MINUS_INF;
        const int near = begins && top[r] > FALL_LEAST && top[r] < SOFTMAX_SLACK;
        top[r] = near                   ? first[r]
                 : begins | follow[r]   ? softmax_top(top[r] + first[r], 1.0f)
                                        : MINUS_INF;
    }
    softmax_move(top, t, f);
}

/* 1: row r of the lane sees no key behind it among those from k0 on. */
DEV int fall_is_below(const attn_params *p, const attn_item *w, i32 k0, i32 d, int check, int r) {
    int below = d + tile_col(0) >= ATTN_BN - 1;
    if (check) {
        const attn_row row = score_lane_row(p, w, r);
        below |= score_ends(p, w, &row, k0 + tile_col(0)).last <= d;
    }
    return below;
}

/* Products of a step become p in place. */
DEV void fall_tile(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                   int check, int known, tile_s *s, attn_soft *t, soft_fade *f) {
    const float factor = p->factor;
    fall_step a;
    float sum[TILE_ROWS];
    int follow[TILE_ROWS], below = 1, apart = 0, follows = 0;
    a.d = held->from - k0;
    a.up = ((i32)p->i0 + tile_row(0)) & (FALL_GROUP - 1);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int is = fall_is_below(p, w, k0, a.d + TILE_DOWN(r), check, r);
        follow[r] = abs_f32(held->fall) * ATTN_BN > FALL_CALM && !(is && held->fall >= 0);
        follows |= follow[r];
        below &= is;
    }
    if (check) {
        score_mask(p, w, k0, p->scale, s);
    }
    below = !warp_any(!below);
    const int above = !below && !warp_any(a.d + FALL_DOWN > 0);
    a.gain = above ? -held->fall : held->fall;
    softmax_stay(f);
    if (!known || warp_any(follows)) {
        fall_move(s, &a, t, f, factor, held->fall, follow, !below && !above);
    }
    fall_bases(&a, t->m);
    UNROLL for (int r = 1; r < TILE_ROWS; r++) {
        apart |= a.base[r] != a.base[0];
    }
    if (!below && !above) {
        fall_p(s, t, &a, factor, FALL_BOTH, sum);
    } else if (warp_any(apart)) {
        fall_p(s, t, &a, factor, FALL_ROWS, sum);
    } else {
        fall_p(s, t, &a, factor, FALL_SHARED, sum);
    }
    softmax_late(s, t, f, sum);
}

#endif
#endif
