/* softmax.h: online softmax (Milakov and Gimelshein 2018) over the key blocks that a row sees.

   Who calls it: weights.h, fall.h, cap.h, finish.h, epilogue.h. x are scores, f the factor of
   score.h; all else is in powers of two:

       block:   m' = max x f;   p = 2^(x f - m),   l = l 2^(m_old - m) + sum p,
                                                   o = o 2^(m_old - m) + p v
       at last: out = o / l,    LSE = (m + log2 l) ln 2

   m follows the maximum only when that is more than SOFTMAX_SLACK above it: until then p and l are
   too large by one factor, at most 2^SLACK, which o / l and m + log2 l do not have but in their
   rounding, and o is left alone. Each row decides for itself, by its own scores. Where no row of
   the warp moved, the multiplication by 1 is skipped.

   Where TILE_LATE is 1, of scores that are products or bounded, m is the maximum of the first
   block that a row sees something of; then p are taken by it, and it follows where their sum is
   large (softmax_late), and p, l and o by the same factor. So no maximum is awaited. A score's
   own steps from block to block may be too large for that; fall.h looks at those it knows.

   v_scale is folded into p before p is rounded. f16 ends at 2^-24, so there o is counted in units,
   a power of two just above the block's v_scale, and p is multiplied by v_scale / unit, which is
   below 1 and, but for a v_scale 2^32 times smaller than one before it, not below 1/2.

   A row that has seen nothing has m = SOFTMAX_NONE, at last -inf. A visible NaN makes its p and so
   l NaN, a visible +inf makes m not finite, which careful.h looks for; so the maximum may pass over
   NaN, as one chip's row_max does and another's does not. */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include "core/score.h"

#define SOFTMAX_SLACK 8.0f
#define SOFTMAX_LARGE 0x1p15f /* f16 ends at twice that */
#define SOFTMAX_LATE (TILE_LATE && (SCORE_RAW || ATTN_SCORE_BOUNDED || SCORE_OWN))
/* m of a row that has seen nothing: what -inf stays -inf less of, so that nobody looks at m before
   the subtraction; behind the loop -inf. The producer schedule has -inf throughout. */
#define SOFTMAX_HIDES ATTN_PRODUCER
#define SOFTMAX_NONE (SOFTMAX_HIDES ? MINUS_INF : float_of(0xff7fffffu))
#define SOFTMAX_UNITS (ATTN_HAS_SCALES && ATTN_TYPE == ATTN_F16)

/* l: this lane's part of the sum. unit: what o is counted in; most: the largest of them so far. */
typedef struct attn_soft {
    float m[TILE_ROWS], l[TILE_ROWS];
#if SOFTMAX_UNITS
    u32 unit[TILE_ROWS], most[TILE_ROWS]; /* bits of floats */
#endif
} attn_soft;

DEV void softmax_begin(attn_soft *t) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        t->m[r] = SOFTMAX_NONE;
        t->l[r] = 0;
#if SOFTMAX_UNITS
        t->unit[r] = t->most[r] = 0x00800000u;
#endif
    }
}

/* A row's maximum in powers of two. A finite one below f32's end stays finite and above
   SOFTMAX_NONE: only a row that saw nothing has -inf. Its p are all 0 then, which epilogue.h looks
   for. */
DEV float softmax_top(float top, float factor) {
    return top == MINUS_INF ? top : max_num(top * factor, float_of(0xff7ffffeu));
}

/* What a row of o is to be multiplied by, as m or the unit moved; 0 in moved: by 1, all of them. */
typedef struct soft_fade {
    float by[TILE_ROWS];
    int moved;
} soft_fade;

/* The largest score of each row; rows side by side in two chains each, which do not wait for one
   another. */
DEV void softmax_max(const tile_s *s, float *top) {
    float odd[TILE_ROWS];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        top[r] = s->x[r][0];
        odd[r] = s->x[r][1];
    }
    UNROLL for (int c = 2; c < TILE_COLS(ATTN_BN); c += 2) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            top[r] = max_num(top[r], s->x[r][c]);
            odd[r] = max_num(odd[r], s->x[r][c + 1]);
        }
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        top[r] = row_max(max_num(top[r], odd[r]));
    }
}

/* m stays: o is as it should be. */
DEV void softmax_stay(soft_fade *f) {
    f->moved = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        f->by[r] = 1.0f;
    }
}

/* Rows without m get theirs: the maximum in powers of two. Their l and o are 0. */
DEV void softmax_start(const float *top, attn_soft *t) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int none = t->m[r] == SOFTMAX_NONE && top[r] != MINUS_INF;
        t->m[r] = none ? top[r] : t->m[r];
    }
}

/* m follows the rows' maxima in powers of two, l is brought to the new m; o is left to
   softmax_fade. */
DEV void softmax_move(const float *top, attn_soft *t, soft_fade *f) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int move = !(top[r] <= t->m[r] + SOFTMAX_SLACK);
        f->by[r] = move ? exp2_fast(t->m[r] - top[r]) : 1.0f;
        t->m[r] = move ? top[r] : t->m[r];
        t->l[r] *= f->by[r];
        f->moved |= move;
    }
}

/* o is brought to the new m; not while a product adds to it. */
DEV void softmax_fade(tile_o *o, const soft_fade *f) {
    if (warp_any(f->moved)) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
                o->x[r][c] *= f->by[r];
            }
        }
    }
}

/* Scores become p, not rounded; sum: the lane's of each row. */
DEV void softmax_p(tile_s *s, attn_soft *t, float factor, float *sum) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float base = SOFTMAX_HIDES && t->m[r] == MINUS_INF ? 0.0f : t->m[r];
        float part[2] = {0, 0};
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c += 2) {
            float *const p = s->x[r] + c;
            fma_two(p, factor, -base);
            p[0] = exp2_fast(p[0]);
            p[1] = exp2_fast(p[1]);
            if (TILE_CHAINS == 2) {
                add_two(part, p);
            } else {
                part[0] = part[0] + p[0] + p[1];
            }
        }
        sum[r] = part[0] + part[1];
        t->l[r] += sum[r];
    }
}

/* What is known before a step of the rows of a warp. */
enum {
    WEIGHTS_NONE,  /* one has no m */
    WEIGHTS_M,     /* all have, and nothing moves it but softmax_late */
    WEIGHTS_FIRST, /* it is fall.h's first */
    WEIGHTS_PAIRS  /* their exponents are not fall.h's: scores are made pair by pair */
};

/* 1: all rows of the warp have an m. */
DEV int softmax_has(const attn_soft *t) {
    int none = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        none |= t->m[r] == SOFTMAX_NONE;
    }
    return !warp_any(none);
}

/* p are of an m that did not look at their scores: m of a row in which a lane's sum is large
   follows now, so that its p are below 2^6; careful.h has a row whose p were not finite. */
DEV void softmax_late(tile_s *s, attn_soft *t, soft_fade *f, const float *sum) {
    int large = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        large |= !(sum[r] <= SOFTMAX_LARGE);
    }
    const int moved = warp_any(large);
    f->moved |= moved;
    if (moved) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            const float most = row_max(sum[r]);
            const i32 above = (i32)(bits_of(most) >> 23) - 127 - 5;
            const float m = t->m[r];
            t->m[r] = most <= SOFTMAX_LARGE ? m : m + (float)above;
            const float by = exp2_fast(m - t->m[r]);
            f->by[r] *= by;
            t->l[r] *= by;
            UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
                s->x[r][c] *= by;
            }
        }
    }
}

#if SOFTMAX_UNITS
/* 1 / x of a power of two below 2^127. */
DEV float softmax_inverse(u32 x) {
    return float_of(0x7f000000u - x);
}
/* The unit of the block, to which f brings o; x: v_scale of each row, becomes v_scale / unit. */
DEV void softmax_unit(float *x, attn_soft *t, soft_fade *f) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const u32 power = bits_of(x[r]) & 0x7f800000u, range = 32u << 23;
        const u32 above = (power < 0x7e000000u ? power : 0x7e000000u) + 0x00800000u;
        t->most[r] = above > t->most[r] ? above : t->most[r];
        const u32 unit = above + range > t->most[r] ? above : t->most[r] - range;
        f->by[r] *= float_of(t->unit[r]) * softmax_inverse(unit);
        f->moved |= unit != t->unit[r];
        t->unit[r] = unit;
        x[r] *= softmax_inverse(unit);
    }
}
#endif

/* Behind the last block. */
DEV void softmax_end(attn_soft *t) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        t->m[r] = t->m[r] == SOFTMAX_NONE ? MINUS_INF : t->m[r];
    }
}

/* What a row of o is multiplied by at last. */
DEV float softmax_unit_of(const attn_soft *t, int r) {
#if SOFTMAX_UNITS
    return float_of(t->unit[r]);
#else
    (void)t, (void)r;
    return 1;
#endif
}

/* p is multiplied by what its key's v is scaled by, and by the chip's own factor. */
DEV void softmax_weigh(const attn_params *p, const attn_item *w, i32 k0, tile_s *s, attn_soft *t,
                       soft_fade *f) {
    (void)t, (void)f;
    if (ATTN_HAS_SCALES || TILE_P_SCALE != 1.0f) {
        float weight[TILE_ROWS];
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            const i32 h = ATTN_HAS_SCALES ? score_lane_row(p, w, r).h : w->h;
            weight[r] = score_v_scale(p, w, h, k0);
        }
#if SOFTMAX_UNITS
        softmax_unit(weight, t, f);
#endif
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
                s->x[r][c] *= weight[r] * TILE_P_SCALE;
            }
        }
    }
}

#endif
