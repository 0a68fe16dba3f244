/* grad.h: from products of a tile to p and g, the factors of backward's sums.

   Who calls it: sched/backward.h, careful_grad.h. With s = q.k, dp = dO.v, and of a query row its
   LSE and c (stats.h):

       x = score(scale s)     p = e^(x - LSE)     w = dropout times the scale of v
       g = p (dp w - c) dscore/ds scale                   dq += g k   dk += g q   dv += p w dO

   g is rounded as an operand; so it is summed without a scale that all pairs share, which
   grad_factor brings in at the end. What is masked has p = g = 0 by selection. */
#ifndef ATTN_GRAD_H
#define ATTN_GRAD_H

#include "core/dropout.h"
#include "core/score.h"
#include "core/stats.h"

typedef struct attn_grad {
    float p, g; /* p without w */
    float w;    /* 0: dropped */
    int seen;   /* the pair is visible */
} attn_grad;

/* check: the pair may be masked. kept: not dropped. */
DEV attn_grad grad_pair(const attn_params *p, const attn_item *w, const attn_row *row, i32 k,
                        const attn_stats *stats, int check, int kept, float s, float dp) {
    const float scale = score_scale(p, w, row, k), scaled = s * scale;
    const float x = score_pair(p, w, row, k, scaled, check);
    attn_grad t;
    t.seen = !check || x != MINUS_INF;
    t.p = exp2_fast((x - stats->lse) * (float)LOG2_E); /* no product overflows before */
    t.w = kept ? score_v_scale(p, w, row->h, k) * p->drop_factor : 0;
    t.g = t.p * ((kept ? dp * t.w : 0) - stats->c);
#if ATTN_HAS_SCORE
    const attn_pair at = score_leaves(p, w, row, k);
    t.g *= attn_score_by_s(p, &at, scaled);
#endif
#if ATTN_HAS_SCALES
    t.g *= scale;
#endif
    t.p = t.seen ? t.p : 0;
    t.g = t.seen ? t.g : 0;
    return t;
}

/* What sums of g are multiplied by; those of p w are complete. */
DEV float grad_factor(const attn_params *p) {
    return ATTN_HAS_SCALES ? 1.0f : p->scale;
}

/* The statistics of a query row of the sequence, which may lie behind its end. */
DEV attn_stats grad_stats(const attn_params *p, const attn_item *w, i32 i) {
    return i < w->seq.nq ? stats_of(p, w->b, w->h, w->seq.q_row + i) : stats_nothing();
}

#if ATTN_KEY_ROWS
/* Products of the lane's keys with queries i0.. of head w->h become p w and g. */
DEV void grad_tile(const attn_params *p, const attn_item *w, const attn_stats *of_rows, i32 i0,
                   int check, tile_s *s, tile_s *dp) {
    (void)of_rows;
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        const i32 i = i0 + tile_col(c);
        const attn_row row = score_row(p, w, i);
        const attn_stats stats = grad_stats(p, w, i);
        const int there = !check || i < w->seq.nq;
#if ATTN_HAS_DROPOUT
        const u32 kept = dropout_keys(p, w, &row, dropout_seed(p), w->row0);
#else
        const u32 kept = ~0u;
#endif
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            const attn_grad t = grad_pair(p, w, &row, w->row0 + tile_row(r), &stats, check,
                                          (int)(kept >> r & 1), s->x[r][c],
                                          ATTN_SUMS & 1 ? dp->x[r][c] : 0);
            s->x[r][c] = there && t.w != 0 ? t.p * t.w : 0;
            dp->x[r][c] = there ? t.g : 0;
        }
    }
}
#else
/* Products of the lane's queries, of which of_rows tells, with keys k0.. become p and g. */
DEV void grad_tile(const attn_params *p, const attn_item *w, const attn_stats *of_rows, i32 k0,
                   int check, tile_s *s, tile_s *dp) {
#if ATTN_HAS_DROPOUT
    dropout_tile(p, w, dropout_seed(p), k0, dp);
#endif
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            const attn_grad t = grad_pair(p, w, &row, k0 + tile_col(c), &of_rows[r], check, 1,
                                          s->x[r][c], dp->x[r][c]);
            s->x[r][c] = t.p;
            dp->x[r][c] = t.g;
        }
    }
}
#endif

#endif
