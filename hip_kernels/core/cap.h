/* cap.h: softmax of scores that are capped, cap tanh(gain s): exponents straight from the products.

   Who calls it: weights.h, of a variant whose text defines ATTN_SCORE_CAP and ATTN_SCORE_GAIN
   (lib/gpu_text_form.c), both of one sign.

   Where t = gain s is small tanh(t) is t times a polynomial of t^2, so that of the product x

       exponent = x (a + b x^2 + c x^4) - m       CAP_NEAR, |t| <= CAP_REACH: two multiply-adds and
                                                  a product more than without a score
       exponent = attn_score(x) log2(e) - m       other pairs

   A pair's bits do not depend on the rest of its tile, of which is asked first: CAP_NEAR, all pairs
   are so small; CAP_MIDDLE, all are below near.h's NEAR_TANH, where attn_score is a polynomial,
   too; CAP_ANY. c has the sign of scale, so that a product that is masked, -inf or, with a negative
   scale, inf, has the exponent -inf; of the other one it is inf, and careful.h has the row. */
#ifndef ATTN_CAP_H
#define ATTN_CAP_H

#include "core/softmax.h"

#if SCORE_CAPS

enum { CAP_NEAR, CAP_MIDDLE, CAP_ANY };
#define CAP_REACH  0.21f /* the polynomial's relative error up to there: 1.4e-7 */

typedef struct cap_step {
    float a, b, c, limit; /* limit: of |x|, for CAP_REACH */
} cap_step;

/* Where powers of scale and gain leave f32 no pair is near. */
DEV cap_step cap_begin(const attn_params *p) {
    cap_step a;
    const float by = p->scale * abs_f32(ATTN_SCORE_GAIN), k = by * by;
    const float all = by * (abs_f32(ATTN_SCORE_CAP) * (float)LOG2_E);
    const int has = k >= 0x1p-40f && k <= 0x1p40f;
    a.a = has ? all * 0x1.fffffcp-1f : 0;
    a.b = has ? all * (k * -0x1.554642p-2f) : 0;
    a.c = has ? all * (k * k * 0x1.09e6cap-3f) : by < 0 ? -1.0f : 1.0f;
    a.limit = has ? CAP_REACH * abs_f32(rcp_fast(by)) : -1.0f;
    return a;
}

DEV float cap_score(const attn_params *p, float x, int near) {
    attn_pair at = {0}; /* the score reads nothing but s */
    return attn_score(p, &at, x, p->scale, near) * (float)LOG2_E;
}

DEV float cap_exponent(const attn_params *p, const cap_step *a, float x, float m, int how) {
    const float z = x * x, near = fma_f32(x, fma_f32(z, fma_f32(z, a->c, a->b), a->a), -m);
    if (how == CAP_NEAR) {
        return near;
    }
    const float far = cap_score(p, x, how == CAP_MIDDLE) - m; /* always: no branch for a pair */
    return (abs_f32(x) <= a->limit) | (abs_f32(x) == -MINUS_INF) ? near : far;
}

DEV void cap_p(const attn_params *p, tile_s *s, attn_soft *t, const cap_step *a, int how,
               float *sum) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float base = t->m[r] == MINUS_INF ? 0.0f : t->m[r];
        float part[2] = {0, 0};
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = exp2_fast(cap_exponent(p, a, s->x[r][c], base, how));
            part[c % 2] += s->x[r][c];
            if (how != CAP_NEAR) {
                pin(&s->x[r][c]); /* pair by pair: registers are few */
            }
        }
        sum[r] = part[0] + part[1];
        t->l[r] += sum[r];
    }
}

/* The largest size of a product; a NaN may be passed over. */
DEV float cap_size(const tile_s *s) {
    float most[4] = {0, 0, 0, 0};
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            float *const to = &most[(c * TILE_ROWS + r) % 4];
            *to = max_num(*to, abs_f32(s->x[r][c]));
        }
    }
    return max_num(max_num(most[0], most[1]), max_num(most[2], most[3]));
}

DEV void cap_flip(tile_s *s) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = -s->x[r][c];
        }
    }
}

/* Rows' first m: the score of the largest product is the largest. */
DEV void cap_start(const attn_params *p, const tile_s *s, attn_soft *t) {
    float top[TILE_ROWS];
    softmax_max(s, top);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float x = p->scale < 0 ? -top[r] : top[r];
        top[r] = top[r] == MINUS_INF ? MINUS_INF : cap_score(p, x, 0);
    }
    softmax_start(top, t);
}

/* Products of a step become p in place. A negative scale turns their order. */
DEV void cap_tile(const attn_params *p, const attn_item *w, i32 k0, int check, int known, tile_s *s,
                  attn_soft *t, soft_fade *f) {
    const cap_step a = cap_begin(p);
    const float size = cap_size(s);
    float sum[TILE_ROWS];
    if (check || !known) {
        if (p->scale < 0) {
            cap_flip(s);
        }
        if (check) {
            score_mask(p, w, k0, 1.0f, s);
        }
        if (!known) {
            cap_start(p, s, t);
        }
        if (p->scale < 0) {
            cap_flip(s);
        }
    }
    softmax_stay(f);
    if (!warp_any(!(size <= a.limit))) {
        cap_p(p, s, t, &a, CAP_NEAR, sum);
    } else if (!warp_any(!(size <= a.limit * (0.349f / CAP_REACH)))) {
        cap_p(p, s, t, &a, CAP_MIDDLE, sum); /* 0.349: a bit less than NEAR_TANH */
    } else {
        cap_p(p, s, t, &a, CAP_ANY, sum);
    }
    softmax_late(s, t, f, sum);
}

#endif
#endif
