/* grad.h: from products of a tile to p and g, the factors of backward's sums.

   Who calls it: sched/backward.h, careful_grad.h. With s = q.k, dp = dO.v, and of a query row its
   LSE and c (stats.h):

       x = score(scale s)     p = e^(x - LSE)     w = dropout times the scale of v
       g = p (dp w - c) dscore/ds scale                   dq += g k   dk += g q   dv += p w dO

   g is rounded as an operand, and a small scale would cost it f16's digits; so it is summed without
   one that all pairs share, which grad_factor brings in at the end. Scales of blocks differ from
   pair to pair and stay in it. What is masked has p = g = 0 by selection. */
#ifndef ATTN_GRAD_H
#define ATTN_GRAD_H

#include "core/careful.h"
#include "core/dropout.h"
#include "core/stats.h"

typedef struct attn_grad {
    float p, g; /* p without w */
    float s;    /* scaled product */
    float rest; /* p (dp w - c): the derivative by the score */
    float w;    /* 0: dropped; where queries are rows dropout.h has made dp 0 already */
    int seen;   /* the pair is visible */
} attn_grad;

/* Of x, the product s where scores stay products, else the score, p. It is at most 1, however large
   the scores are and with them the rounding of LSE. */
DEV float grad_p(const attn_params *p, const attn_stats *stats, float x) {
    const float below = fma_f32(x, SCORE_RAW ? p->factor : (float)LOG2_E, -stats->lse);
    return exp2_fast(below > 0.0f ? 0.0f : below);
}
/* What dO.v is multiplied by. */
DEV float grad_w(const attn_params *p, const attn_item *w, const attn_row *row, i32 k, int kept) {
    return kept ? score_v_scale(p, w, row->h, k) * (ATTN_HAS_DROPOUT ? p->drop_factor : 1) : 0;
}

/* check: the pair may be masked; 2: besides, p is above 0, as it is but for rounding, so that what
   is infinite stays infinite. near: of grad_near, where d is q - k. kept: not dropped. */
DEV attn_grad grad_pair(const attn_params *p, const attn_item *w, const attn_row *row, i32 k,
                        const attn_stats *stats, int check, int near, float d, int kept, float s,
                        float dp) {
    const float scale = score_scale(p, w, row, k), scaled = s * scale;
    const int wild = TILE_WILD && check != 2 && scaled != scaled;
    float x = scaled, by_s = 1;
#if ATTN_HAS_SCORE
    attn_pair at = score_leaves(p, w, row, k);
    at.d = d;
    x = attn_score_grad(p, &at, s, scale, near, &by_s);
    x = (!near && scaled == MINUS_INF) | wild ? scaled : x;
#endif
    (void)near, (void)d;
    const int kept_wild = wild && ATTN_MASK_READS_S;
    x = check && !kept_wild && !score_visible(p, w, row, k, scaled) ? MINUS_INF : x;
    attn_grad t;
    t.seen = !check || x != MINUS_INF;
    t.p = grad_p(p, stats, SCORE_RAW ? s : x);
    t.w = grad_w(p, w, row, k, kept);
    t.s = scaled;
    t.p = check == 2 ? stats_p(t.p, dp - stats->c) : t.p;
    t.g = t.rest = t.p * ((kept ? dp * t.w : 0) - stats->c);
#if ATTN_HAS_SCORE
    t.g *= by_s;
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

/* The statistics of a query row of head h, which may lie behind the sequence's end. */
DEV attn_stats grad_stats(const attn_params *p, const attn_item *w, i32 h, i32 i) {
    return i < w->seq.nq ? stats_of(p, w->b, h, w->seq.q_row + i) : stats_nothing();
}

/* -- Gradients of what a variant reads --------------------------------------------------------- */

/* What a lane keeps of the rows that it owns; sum: of sites whose element is one for all pairs of a
   head. The variant's text has
       attn_grads(p, at, s, g, on, near, sum)   if on, adds a pair's g times the score's derivatives
       attn_grads_end(p, at, sum)               adds the sums of pair's head */
/* Pairs of a lane's tile, a bit each. */
typedef u64 grad_pairs;
#define GRAD_PAIR(r, c)  ((grad_pairs)1 << ((c) * TILE_ROWS + (r)))
#define GRAD_PAIRS(c, n) (~(grad_pairs)0 >> (64 - TILE_ROWS * (n)) << (c) * TILE_ROWS)

#ifndef ATTN_GRAD_SUMS
#define ATTN_GRAD_SUMS  0
#define ATTN_GRADS_EVEN 0
#endif
typedef struct grad_rows {
    attn_stats of[TILE_ROWS];
    float sum[ATTN_GRAD_SUMS + 1];
    grad_pairs left; /* of the step's tile: pairs whose numbers are not finite */
} grad_rows;

#if ATTN_HAS_GRADS
/* A pair, if it is there and visible; 1: its numbers are not finite, and it is left. Where all
   sites are even that shows in the tile's sums (grad_rows_add). */
DEV int grad_reads(const attn_params *p, const attn_item *w, const attn_row *row, i32 k, int there,
                   int near, float d, const attn_grad *t, float *sum) {
    const int counts = there && t->seen;
    const int finite = ATTN_GRADS_EVEN || (is_finite(t->rest) && is_finite(t->s));
    attn_pair at = score_leaves(p, w, row, k);
    at.d = d;
    attn_grads(p, &at, t->s, t->rest, counts && finite, near, sum);
    return counts && !finite;
}

DEV float grad_dot(u64 x, u64 y, i32 cols) {
    float dot = 0;
    ROLLED for (i32 c = 0; c < cols; c++) {
        dot = fma_f32(careful_load(x, c), careful_load(y, c), dot);
    }
    return dot;
}
/* Query i and key k, from memory: a product of tiles may have made NaN of an infinity. */
DEV void grad_reads_again(const attn_params *p, const attn_item *w, i32 i, i32 k, float *sum) {
    const i64 q_row = w->seq.q_row + i, k_row = w->seq.k_row + k;
    const attn_row row = score_row(p, w, i);
    const attn_stats stats = grad_stats(p, w, w->h, i);
    const float s =
        grad_dot(rows_at(&p->q, w->b, w->h, q_row), rows_at(&p->k, w->b, w->hk, k_row), p->D);
    const float dp = grad_dot(rows_at(&p->back.dout, w->b, w->h, q_row),
                              rows_at(&p->v, w->b, w->hk, k_row), p->DV);
    const int kept = !ATTN_HAS_DROPOUT || dropout_pair(p, w, &row, dropout_seed(p), k);
    const attn_grad t = grad_pair(p, w, &row, k, &stats, 2, 0, 0, kept, s, dp);
    const attn_pair at = score_leaves(p, w, &row, k);
    attn_grads(p, &at, t.s, t.rest, t.seen, 0, sum);
}
#endif

/* The sums of `all`, if they are finite; else all of these pairs are left; of them also `left`. */
DEV void grad_rows_add(grad_rows *t, const float *part, grad_pairs left, grad_pairs all) {
    (void)part, (void)all;
    t->left |= left;
#if ATTN_HAS_GRADS && ATTN_GRADS_EVEN
    float zero = 0;
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        zero = fma_f32(part[i], 0.0f, zero);
    }
    t->left |= zero == 0.0f ? 0 : all;
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        t->sum[i] += zero == 0.0f ? part[i] : 0;
    }
#endif
}

/* Those that the tile of step `row0` left; behind it, where registers are free. One body for all of
   them, which are few. */
DEV void grad_rows_left(const attn_params *p, const attn_item *w, i32 row0, grad_rows *t) {
    (void)p, (void)w, (void)row0, (void)t;
#if ATTN_HAS_GRADS
    ROLLED while (t->left) {
        const int n = first_bit(t->left), r = n % TILE_ROWS, c = n / TILE_ROWS;
        const i32 own = w->row0 + tile_row(r), other = row0 + tile_col(c);
        const i32 i = ATTN_KEY_ROWS ? other : own, k = ATTN_KEY_ROWS ? own : other;
        attn_item again = *w; /* whose places are computed here: in the loop registers are few */
        again.b = (i32)forget((u32)w->b);
        again.h = (i32)forget((u32)w->h);
        again.hk = (i32)forget((u32)w->hk);
        t->left &= t->left - 1;
        if (i < w->seq.nq && k < w->seq.nk) {
            grad_reads_again(p, &again, i, k, t->sum);
        }
    }
#endif
}

/* Behind the last step, and of key rows behind the last one of each head. */
DEV void grad_rows_end(const attn_params *p, const attn_item *w, grad_rows *t) {
    (void)p, (void)w, (void)t;
#if ATTN_HAS_GRADS
    const attn_row row = score_row(p, w, w->row0);
    const attn_pair at = score_leaves(p, w, &row, 0);
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        t->sum[i] = warp_sum(t->sum[i]);
    }
    if (lane_id() == 0) {
        attn_grads_end(p, &at, t->sum);
    }
    for (int i = 0; i < ATTN_GRAD_SUMS; i++) {
        t->sum[i] = 0;
    }
#endif
}

/* -- Tiles ------------------------------------------------------------------------------------- */

#if ATTN_KEY_ROWS
/* Near positions are exact in f32, and so are their differences; and products are near (score.h),
   or a product of -inf leads to no finite score. */
#if ATTN_HAS_SCORE && !ATTN_HAS_SCALES
#define GRAD_NEAR ATTN_SCORE_NEAR
#else
#define GRAD_NEAR 0
#endif
#if GRAD_NEAR
DEV int grad_near(const attn_params *p, const attn_item *w, const tile_s *s) {
    const i32 most = 1 << 22;
    int near = p->k0 + w->seq.nk < most && w->seq.q0 + w->seq.nq < most && w->seq.q0 > -most;
#ifdef ATTN_SCORE_REACH
    const float reach = ATTN_SCORE_REACH / p->scale;
    float part[4] = {0, 0, 0, 0}; /* the square of each product is at most the sum of all */
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            float *const to = &part[r % 2 * 2 + c % 2];
            *to = fma_f32(s->x[r][c], s->x[r][c], *to);
        }
    }
    UNROLL for (int i = 0; i < 4; i++) {
        near &= part[i] <= reach * reach;
    }
#else
    near &= ATTN_SCORE_INFINITE;
#endif
    (void)s;
    return !warp_any(!near);
}
#endif

/* Rows of a lane lie so far below its first one. */
#ifdef TILE_DOWN
#define GRAD_DOWN(r) TILE_DOWN(r)
#else
#define GRAD_DOWN(r) (tile_row(r) - tile_row(0))
#endif

/* Products of the lane's keys with queries i0.. of head w->h become p w and g: of columns c0 to
   c0 + n - 1 of the tile. `from`: where the queries' statistics are shared. */
DEV void grad_tile(const attn_params *p, const attn_item *w, grad_rows *rows, u32 from, i32 i0,
                   int c0, int n, int check, int near, tile_s *s, tile_s *dp) {
    /* places are computed here, each step: in the loop registers are few */
    const i32 row0 = (i32)forget((u32)w->row0), first = (i32)forget((u32)i0);
    const float d0 = (float)(w->seq.q0 + first + tile_col(0) - ((i32)p->k0 + row0 + tile_row(0)));
    attn_stats stats[2];
    grad_pairs left = 0;
    float part[ATTN_GRAD_SUMS + 1] = {0};
    float *const sums = ATTN_GRADS_EVEN ? part : rows->sum;
    (void)from;
    UNROLL for (int c = c0; c < c0 + n; c++) {
        const i32 i = first + tile_col(c);
        const attn_row row = score_row(p, w, i);
        const int there = !check || i < w->seq.nq;
        if (c % 2 == 0) {
#if TILE_FULL
            stats[0] = grad_stats(p, w, w->h, i);
            stats[1] = grad_stats(p, w, w->h, i + 1);
#else
            stats_shared(from, tile_col(c), stats);
#endif
        }
#if ATTN_HAS_DROPOUT
        const u32 kept = dropout_keys(p, w, &row, dropout_seed(p), row0);
#else
        const u32 kept = ~0u;
#endif
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            /* what two keys have alike of a score (a slope times a distance) is computed once */
            const float d = d0 + (float)(tile_col(c) - tile_col(0) - GRAD_DOWN(r));
            const attn_grad t = grad_pair(p, w, &row, row0 + tile_row(r), &stats[c % 2], check,
                                          near, d, (int)(kept >> r & 1), s->x[r][c],
                                          ATTN_SUMS & 1 ? dp->x[r][c] : 0);
#if ATTN_HAS_GRADS
            left |= grad_reads(p, w, &row, row0 + tile_row(r),
                               there && row0 + tile_row(r) < w->rows, near, d, &t, sums)
                        ? GRAD_PAIR(r, c)
                        : 0;
#endif
            s->x[r][c] = there && t.w != 0 ? t.p * t.w : 0;
            dp->x[r][c] = there ? t.g : 0;
        }
    }
    grad_rows_add(rows, sums, left, GRAD_PAIRS(c0, n));
}

/* The same of pairs that are all visible, whose score is the product, in two turns: what needs s
   alone while dp is still being summed, and the rest. s becomes p, which is not weighted where
   dropout or scales weigh it. */
#if TILE_FLIES && ATTN_BN > 64 && !ATTN_HAS_SCORE && !ATTN_HAS_DROPOUT && !ATTN_HAS_SCALES
#define GRAD_TURNS 1
#else
#define GRAD_TURNS 0
#endif
DEV void grad_tile_p(const attn_params *p, u32 from, tile_s *s) {
    attn_stats stats[2];
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        if (c % 2 == 0) {
            stats_shared(from, tile_col(c), stats);
        }
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            s->x[r][c] = grad_p(p, &stats[c % 2], s->x[r][c]);
        }
    }
}
DEV void grad_tile_g(u32 from, const tile_s *s, tile_s *dp) {
    attn_stats stats[2];
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        if (c % 2 == 0) {
            stats_shared(from, tile_col(c), stats);
        }
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            dp->x[r][c] = s->x[r][c] * (dp->x[r][c] - stats[c % 2].c);
        }
    }
}
#else
#define GRAD_TURNS 0
#define GRAD_NEAR 0
/* Products of the lane's queries, of which `rows` tells, with keys k0.. become p and g. */
DEV void grad_tile(const attn_params *p, const attn_item *w, grad_rows *rows, u32 from, i32 k0,
                   int c0, int n, int check, int near, tile_s *s, tile_s *dp) {
    grad_pairs left = 0;
    float part[ATTN_GRAD_SUMS + 1] = {0};
    float *const sums = ATTN_GRADS_EVEN ? part : rows->sum;
    (void)from, (void)near;
#if ATTN_HAS_DROPOUT
    dropout_tile(p, w, dropout_seed(p), k0, dp);
#endif
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        UNROLL for (int c = c0; c < c0 + n; c++) {
            const attn_grad t = grad_pair(p, w, &row, k0 + tile_col(c), &rows->of[r], check, 0, 0,
                                          1, s->x[r][c], dp->x[r][c]);
#if ATTN_HAS_GRADS
            left |= grad_reads(p, w, &row, k0 + tile_col(c), w->row0 + tile_row(r) < w->rows, 0, 0,
                               &t, sums)
                        ? GRAD_PAIR(r, c)
                        : 0;
#endif
            s->x[r][c] = t.p;
            dp->x[r][c] = t.g;
        }
    }
    grad_rows_add(rows, sums, left, GRAD_PAIRS(c0, n));
}
#endif

#endif
