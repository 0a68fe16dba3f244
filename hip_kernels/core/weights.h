/* weights.h: from the products q . k of a step to p, as p . v wants it: score, mask, softmax,
   dropout, v_scale.

   Who calls it: sched/. */
#ifndef ATTN_WEIGHTS_H
#define ATTN_WEIGHTS_H

#include "core/dropout.h"
#include "core/cap.h"
#include "core/fall.h"

DEV int weights_begin(const score_held *held) {
    (void)held;
    return SCORE_FALLS && !held->own ? WEIGHTS_PAIRS : WEIGHTS_NONE;
}

/* 1: every step asks about its item; otherwise those that weights_ask says. */
#define WEIGHTS_ASK (!SCORE_RAW || ATTN_HAS_DROPOUT)
DEV int weights_ask(i32 block, int raw, int known) {
    const int own = SCORE_CAPS || (SCORE_FALLS && known != WEIGHTS_PAIRS);
    return !block_is_full(block) || ATTN_HAS_DROPOUT || (SCORE_RAW ? !raw : !own);
}

/* Products become scores, then p. */
DEV void weights_plain(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                       int check, int raw, float factor, tile_s *s, attn_soft *t, soft_fade *f,
                       int known) {
    float most[TILE_ROWS];
    if (check || !raw) {
        score_tile(p, w, held, k0, raw, check, s);
    }
    softmax_stay(f);
    if (!known || SCORE_OWN) {
        softmax_max(s, most);
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            most[r] = softmax_top(most[r], factor);
        }
        if (SOFTMAX_LATE && !SCORE_OWN) {
            softmax_start(most, t);
        } else {
            softmax_move(most, t, f);
        }
    }
    softmax_p(s, t, factor, most);
    if (SOFTMAX_LATE) {
        softmax_late(s, t, f, most);
    }
}

/* Of rows that are not WEIGHTS_PAIRS. */
DEV int weights_known(const attn_params *p, const score_held *held, const attn_soft *t) {
    int known = SOFTMAX_LATE && softmax_has(t);
#if SCORE_FALLS
    if (fall_has_first(p, held, t)) {
        known = WEIGHTS_FIRST;
    }
#endif
    (void)p, (void)held;
    return known;
}
/* What is known behind a step, by what was before it. */
DEV int weights_still(const attn_params *p, const score_held *held, const attn_soft *t,
                      const soft_fade *f, int known) {
    const int asks = SCORE_FALLS ? known != WEIGHTS_PAIRS && (known != WEIGHTS_FIRST || f->moved)
                                 : !known;
    return asks ? weights_known(p, held, t) : known;
}

/* The same as weights_of, of a step that needs nothing of its item; returns 0 if it is none. */
DEV int weights_calm(const attn_params *p, const score_held *held, i32 block, tile_s *s,
                     attn_soft *t, soft_fade *f, int known) {
#if SCORE_FALLS
    const i32 k0 = block_number(block) * ATTN_BN;
    float sum[TILE_ROWS];
    if (FALL_APART && fall_is_calm(held, k0, !block_is_full(block), known)) {
        softmax_stay(f);
        fall_calm(p, held, k0, s, t, sum);
        softmax_late(s, t, f, sum);
        return 1;
    }
#endif
    (void)p, (void)held, (void)block, (void)s, (void)t, (void)f, (void)known;
    return 0;
}

/* s becomes p of a block as range_next has it; held, raw, factor: of score.h. o is faded as soon as
   may be; NULL: f tells by how much, later. */
DEV void weights_of(const attn_params *p, const attn_item *w, const score_held *held, i32 block,
                    int raw, float factor, tile_s *s, attn_soft *t, tile_o *o, soft_fade *f,
                    int known) {
    const i32 k0 = block_number(block) * ATTN_BN;
    const int check = !block_is_full(block);
#if SCORE_CAPS
    cap_tile(p, w, k0, check, known, s, t, f);
#elif SCORE_FALLS
    if (known != WEIGHTS_PAIRS) {
        fall_tile(p, w, held, k0, check, known, s, t, f);
    } else {
        weights_plain(p, w, held, k0, check, raw, factor, s, t, f, known);
        f->moved = warp_any(f->moved);
    }
#else
    weights_plain(p, w, held, k0, check, raw, factor, s, t, f, known);
#endif
    if (o && !SOFTMAX_UNITS) {
        softmax_fade(o, f);
    }
#if ATTN_HAS_DROPOUT
    dropout_tile(p, w, dropout_seed(p), k0, s);
#endif
    softmax_weigh(p, w, k0, s, t, f);
    if (o && SOFTMAX_UNITS) {
        softmax_fade(o, f);
    }
}

#endif
