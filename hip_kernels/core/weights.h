/* weights.h: from the products q . k of a step to p, as p . v wants it: score, mask, softmax,
   dropout, v_scale.

   Who calls it: sched/. */
#ifndef ATTN_WEIGHTS_H
#define ATTN_WEIGHTS_H

#include "core/dropout.h"
#include "core/softmax.h"

/* 1: every step asks about its item; otherwise those that weights_ask says. */
#define WEIGHTS_ASK (!SCORE_RAW || ATTN_HAS_DROPOUT)
DEV int weights_ask(i32 block, int raw) {
    return WEIGHTS_ASK || !block_is_full(block) || !raw;
}

/* s becomes p of a block as range_next has it; held, raw, factor: of score.h. o is faded as soon as
   may be; NULL: f tells by how much, later.
   known: all rows of the warp have an m that nothing moves but softmax_late. */
DEV void weights_of(const attn_params *p, const attn_item *w, const score_held *held, i32 block,
                    int raw, float factor, tile_s *s, attn_soft *t, tile_o *o, soft_fade *f,
                    int known) {
    const i32 k0 = block_number(block) * ATTN_BN;
    if (!block_is_full(block) || !raw) {
        score_tile(p, w, held, k0, raw, !block_is_full(block), s);
    }
    float sum[TILE_ROWS];
    if (!known) {
        softmax_move(s, t, f, factor);
    }
    if (o && !SOFTMAX_UNITS) {
        softmax_fade(o, f);
    }
    softmax_p(s, t, factor, sum);
    if (SOFTMAX_LATE) {
        softmax_late(s, t, f, sum);
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
