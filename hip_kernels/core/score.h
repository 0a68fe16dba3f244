/* score.h: from dot products to scores: scale, the variant's score and mask, ends of rows.

   Who calls it: weights.h, grad.h, careful.h. The variant is text that the host makes
   (lib/gpu_text.c) and gives to the compiler as "variant.h"; with ATTN_HAS_SCORE, ATTN_HAS_MASK it
   defines, of the graph's nodes:

       DEV float attn_score(const attn_params *p, const attn_pair *at, float x, float scale,
                            int near)      of s = x scale; lib/gpu_text_score.c says what near is
       DEV void attn_score_hold(const attn_params *p, const attn_pair *at, float *held)
                                           what pairs of a head share; ATTN_SCORE_HELD numbers
       ATTN_SCORE_FALL(held)               the score is s - that |q - k|: fall.h
       ATTN_SCORE_CAP, ATTN_SCORE_GAIN     the score is cap tanh(gain s): cap.h
       ATTN_SCORE_BOUNDED                  1: scores differ by so little that none of their
                                           exponentials overflows, whichever is m
       DEV int attn_mask(const attn_params *p, const attn_pair *at, float s)      1: visible
       ATTN_MASK_READS_S                   1: that depends on s
       DEV void attn_mask_ends(const attn_params *p, const attn_pair *at, i32 *first, i32 *last)
       DEV u32 attn_mask_column(const attn_params *p, const attn_pair *at)
       DEV int attn_mask_rest(const attn_params *p, const attn_pair *at, float s, u32 column)
                                           visible: keys first..last of which the rest is 1;
                                           column: what all rows have of a column, as bits
       ATTN_MASK_FIRST, ATTN_MASK_REST     1: a mask bounds them from below; it has a rest
       ATTN_MASK_COLUMN                    1: a rest has a column that is read
       DEV int attn_class(const attn_params *p, const attn_box *box)              of the mask:
           0 no pair of the box is visible, 2 all are, 1 otherwise or not known; s is any number
       DEV float attn_score_grad(..., int near, float *by_s)      backward: and its derivative

   Both take global positions, as the leaves of the variant language have them. What is masked
   becomes -inf by selection, whatever it was. */
#ifndef ATTN_SCORE_H
#define ATTN_SCORE_H

/* The leaves but s, of one pair. */
typedef struct attn_pair {
    i32 b, h, q, k, i, nq, nk, nh, hk, batch;
    float d;       /* q - k, of positions that are near */
    float held[2]; /* of attn_score_hold */
} attn_pair;

/* Pairs of one batch entry: heads h0..h1, rows i0..i1 (q0..q1), keys k0..k1, all inclusive. */
typedef struct attn_box {
    i32 b, h0, h1, q0, q1, i0, i1, k0, k1, nq, nk, nh, hk, batch;
} attn_box;

#if ATTN_HAS_SCORE || ATTN_HAS_MASK
#include "variant.h"
#endif
#ifndef ATTN_SCORE_HELD
#define ATTN_SCORE_HELD    0
#define ATTN_SCORE_BOUNDED 0
#endif
#ifndef ATTN_MASK_READS_S
#define ATTN_MASK_READS_S 0
#define ATTN_MASK_FIRST   0
#define ATTN_MASK_REST    0
#endif
#ifndef ATTN_MASK_COLUMN
#define ATTN_MASK_COLUMN 0
#endif

#include "core/tile.h"

/* Exponents straight from the products: fall.h, cap.h. Of three groups with long steps the latter
   has too few registers. */
#define SCORE_STRAIGHT (ATTN_PRODUCER && !ATTN_MASK_READS_S && !ATTN_HAS_SCALES)
#if SCORE_STRAIGHT && defined(ATTN_SCORE_FALL)
#define SCORE_FALLS 1
#else
#define SCORE_FALLS 0
#endif
#if SCORE_STRAIGHT && defined(ATTN_SCORE_CAP) && (ATTN_WARPS <= 8 || ATTN_BN <= 96)
#define SCORE_CAPS 1
#else
#define SCORE_CAPS 0
#endif
#define SCORE_OWN (SCORE_FALLS || SCORE_CAPS)

#include "core/range.h"
#include "core/results.h"

/* Scores may stay products q . k: then the scale is part of the exponent's factor. That needs a
   scale that keeps order and zero; others are multiplied in. */
#define SCORE_RAW (!ATTN_HAS_SCORE && !ATTN_HAS_SCALES)
DEV int score_is_raw(const attn_params *p) {
    return SCORE_RAW && p->scale >= 0x1p-100f;
}
/* p = 2^(x * factor - m) for a score x; kept in a register, not read anew in each step. */
DEV float score_factor(const attn_params *p) {
    return float_of(forget(bits_of(score_is_raw(p) ? p->factor : (float)LOG2_E)));
}

/* One scale of [B][heads][blocks of 128 rows]; 1 where absent. */
DEV float scale_at(const attn_rows *t, i64 b, i32 h, i32 group, i32 row) {
    return t->data ? float_of(load_u32(rows_at(t, b, h / group, row >> 7))) : 1.0f;
}
DEV float score_v_scale(const attn_params *p, const attn_item *w, i32 h, i32 k) {
#if ATTN_HAS_SCALES
    return scale_at(&p->v_scale, w->b, h, p->v_scale_group, k);
#else
    (void)p, (void)w, (void)h, (void)k;
    return 1.0f;
#endif
}

/* What a lane knows of a row: local row, local head, and what its products are multiplied by. */
typedef struct attn_row {
    i32 i, h;
    float scale;
} attn_row;

/* Behind the last row a tile's rows read what the last one does of scales and block lists. */
DEV attn_row score_row(const attn_params *p, const attn_item *w, i32 r) {
    attn_row row;
    row.i = work_row(p, r);
    row.h = work_head(p, w, r);
    row.scale = p->scale;
#if ATTN_HAS_SCALES || ATTN_HAS_BLOCKS
    row.i = row.i < w->seq.nq ? row.i : w->seq.nq - 1;
#endif
#if ATTN_HAS_SCALES
    row.scale *= scale_at(&p->q_scale, w->b, row.h, p->q_scale_group, row.i);
#endif
    return row;
}

/* Of a row with key k; a step of keys has one scale, since ATTN_BN divides 128. */
DEV float score_scale(const attn_params *p, const attn_item *w, const attn_row *row, i32 k) {
#if ATTN_HAS_SCALES
    return row->scale * scale_at(&p->k_scale, w->b, row->h, p->k_scale_group, k);
#else
    (void)p, (void)w, (void)k;
    return row->scale;
#endif
}

DEV attn_pair score_leaves(const attn_params *p, const attn_item *w, const attn_row *row, i32 k) {
    attn_pair at;
    at.b = p->b0 + w->b;
    at.h = p->h0 + row->h;
    at.q = w->seq.q0 + row->i;
    at.k = (i32)p->k0 + k;
    at.i = (i32)p->i0 + row->i;
    at.nq = w->seq.nq_all;
    at.nk = w->seq.nk_all;
    at.nh = p->nh;
    at.hk = p->hk;
    at.batch = p->batch;
    return at;
}

/* The mask, the end of the keys, lists of blocks. */
DEV int score_visible(const attn_params *p, const attn_item *w, const attn_row *row, i32 k,
                      float s) {
    int visible = k < w->k_end;
#if ATTN_HAS_MASK
    const attn_pair at = score_leaves(p, w, row, k);
    visible &= attn_mask(p, &at, s);
#endif
#if ATTN_HAS_BLOCKS
    visible = visible && blocks_pair(p, w->b, row->h, row->i, k);
#endif
    (void)p, (void)row, (void)s;
    return visible;
}

/* Score of the product x; masked: -inf. check: the mask is asked, too. */
DEV float score_pair(const attn_params *p, const attn_item *w, const attn_row *row, i32 k, float x,
                     float scale, int check) {
    const float s = x * scale;
    float y = s;
#if ATTN_HAS_SCORE
    const attn_pair at = score_leaves(p, w, row, k);
    y = attn_score(p, &at, x, scale, 0); /* always: pairs without branches overlap */
    y = s == MINUS_INF ? s : y;
#endif
    return check && !score_visible(p, w, row, k, s) ? MINUS_INF : y;
}

/* Row r of the lane. It is computed where it is used: in few steps, and registers are few. */
DEV attn_row score_lane_row(const attn_params *p, const attn_item *w, int r) {
    return score_row(p, w, (i32)forget((u32)(w->row0 + tile_row(r))));
}

/* What the pairs of an item have in common, computed once; only where rows are of one head. */
typedef struct score_held {
    float x[2];
    float fall; /* fall.h: its gain */
    i32 from;   /* fall.h: q - k of a row with key 0, in the lane's first column */
    i32 below;  /* the last key with which a block begins that fall_calm may have */
    int own;    /* 1: exponents are fall.h's */
} score_held;
#if ATTN_SCORE_HELD
DEV void score_hold(const attn_params *p, const attn_item *w, score_held *held) {
    const attn_row row = score_row(p, w, w->row0);
    const attn_pair at = score_leaves(p, w, &row, 0);
    attn_score_hold(p, &at, held->x);
    UNROLL for (int i = 0; i < ATTN_SCORE_HELD; i++) {
        held->x[i] = float_of(forget(bits_of(held->x[i])));
    }
}
#endif

#if SCORE_RAW
/* Products become scores: products they stay if `raw` (score_is_raw), else they are scaled. */
DEV void score_products(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                        int raw, tile_s *s) {
    (void)w, (void)held, (void)k0;
    UNROLL for (int r = 0; r < TILE_ROWS && !raw; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] *= p->scale;
        }
    }
}
#elif ATTN_HAS_SCORE
/* Two bodies: for distances alone where registers allow it. */
#if ATTN_SCORE_NEAR
#define SCORE_NEAR 1
#else
#define SCORE_NEAR 0
#endif

/* Rows of a lane lie so far below its first one, where that is a constant. */
#if defined(TILE_DOWN) && !ATTN_HAS_SCALES
#define SCORE_ALIKE   1
#define SCORE_DOWN(r) TILE_DOWN(r)
#else
#define SCORE_ALIKE   0
#define SCORE_DOWN(r) 0
#endif

/* Near positions are exact in f32, and so are their differences. A product that is not near may be
   -inf, of which a score may make what is finite. */
#if SCORE_NEAR
DEV int score_near(const attn_params *p, const attn_item *w, i32 k0, const tile_s *s) {
    const i32 most = 1 << 22;
    int near = p->k0 + w->k_end < most && w->seq.q0 + w->seq.nq < most && w->seq.q0 > -most;
#ifdef ATTN_SCORE_REACH
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        const float scale = score_scale(p, w, &row, k0), reach = ATTN_SCORE_REACH;
        float part[4] = {0, 0, 0, 0}; /* the square of each product is at most the sum of all */
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            part[c % 4] = fma_f32(s->x[r][c], s->x[r][c], part[c % 4]);
        }
        near &= (part[0] + part[1] + (part[2] + part[3])) * scale * scale <= reach * reach;
    }
#else
    near &= ATTN_SCORE_INFINITE;
#endif
    (void)k0, (void)s;
    return !warp_any(!near);
}
#endif

/* near: a product is not -inf, or its score is not finite then; 3: held is there. alike: the rows
   are of one head and follow one another; so of what two rows have alike (a head's slope, its
   product with a distance) one is computed. */
DEV void score_pairs(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                     int near, int alike, tile_s *s) {
    const attn_row first = score_lane_row(p, w, 0);
    const i32 from = w->seq.q0 - ((i32)p->k0 + k0 + tile_col(0));
    const float from_first = (float)(from + first.i);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const int down = SCORE_DOWN(r);
        attn_row row = first;
        row.i += down;
        if (!alike) {
            row = score_lane_row(p, w, r);
        }
        const float scale = score_scale(p, w, &row, k0), from_row = (float)(from + row.i);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            const int right = tile_col(c) - tile_col(0);
            attn_pair at = score_leaves(p, w, &row, k0 + tile_col(c));
            if (near > 1) {
                at.held[0] = held->x[0];
                at.held[1] = held->x[1];
            }
            at.d = alike ? from_first + (float)(down - right) : from_row - (float)right;
            const float x = s->x[r][c], y = attn_score(p, &at, x, scale, near);
            const int lost = !near && !ATTN_SCORE_INFINITE && x * scale == MINUS_INF;
            s->x[r][c] = lost ? MINUS_INF : TILE_WILD && x != x ? x : y;
        }
    }
}
DEV void score_products(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                        int raw, tile_s *s) {
    (void)raw, (void)held;
#if SCORE_NEAR
    if (score_near(p, w, k0, s)) {
        if (SCORE_ALIKE && p->pack == 1) {
            score_pairs(p, w, held, k0, held ? 3 : 1, 1, s);
        } else {
            score_pairs(p, w, held, k0, 1, 0, s);
        }
        return;
    }
#endif
    score_pairs(p, w, held, k0, 0, 0, s);
}
#else
DEV void score_products(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                        int raw, tile_s *s) {
    (void)raw, (void)held;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        const float scale = score_scale(p, w, &row, k0);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] *= scale;
        }
    }
}
#endif

/* Columns that a row sees, counted from the lane's first: those that the mask's ends leave. */
typedef struct score_keys {
    i32 first, last;
} score_keys;
DEV score_keys score_ends(const attn_params *p, const attn_item *w, const attn_row *row, i32 k) {
    const i32 base = (i32)p->k0 + k;
    i32 first = base, last = (i32)p->k0 + w->k_end - 1;
#if ATTN_HAS_MASK
    const attn_pair at = score_leaves(p, w, row, k);
    attn_mask_ends(p, &at, &first, &last);
#endif
    const score_keys e = {first - base, last < base ? -1 : last - base};
    (void)row;
    return e;
}

/* What the ends do not tell; column: of score_columns, or NULL. */
DEV int score_rest(const attn_params *p, const attn_item *w, const attn_row *row, i32 k, float s,
                   const u32 *column) {
    int visible = 1;
#if ATTN_MASK_REST
    const attn_pair at = score_leaves(p, w, row, k);
    visible = attn_mask_rest(p, &at, s, column ? *column : attn_mask_column(p, &at));
#endif
#if ATTN_HAS_BLOCKS
    visible = visible && blocks_pair(p, w->b, row->h, row->i, k);
#endif
    (void)p, (void)w, (void)row, (void)k, (void)s, (void)column;
    return visible;
}

/* What masks read of columns: each lane of a warp reads a part, for all. */
#if ATTN_MASK_COLUMN && TILE_SPREADS
#define SCORE_COLUMNS 1
typedef struct score_column {
    u32 own[TILE_OWN];
} score_column;
DEV void score_columns(const attn_params *p, const attn_item *w, const attn_row *row, i32 k0,
                       score_column *of) {
    UNROLL for (int n = 0; n < TILE_OWN; n++) {
        const attn_pair at = score_leaves(p, w, row, k0 + tile_own(n));
        of->own[n] = attn_mask_column(p, &at);
    }
}
#else
#define SCORE_COLUMNS 0
#endif

/* Of all rows of the lane. */
DEV void score_all_ends(const attn_params *p, const attn_item *w, i32 k0, score_keys *ends) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        ends[r] = score_ends(p, w, &row, k0 + tile_col(0));
    }
}

/* Ends alone, of few columns: a bit each, which compilers move to predicates eight at a time. It
   takes registers that multistage lacks, and three groups beside a score. */
#define SCORE_BITS                                                                                 \
    (ATTN_PRODUCER && TILE_COUNTS && !ATTN_MASK_REST && !ATTN_HAS_BLOCKS &&                        \
     TILE_COLS(ATTN_BN) <= 32 && !(ATTN_HAS_SCORE && ATTN_WARPS > 8))
#if SCORE_BITS
DEV u32 score_bits(i32 right) {
    const i32 n = tile_count(right);
    return n < 32 ? (1u << n) - 1 : ~0u;
}
DEV void score_mask_by(const attn_params *p, const attn_item *w, const score_keys *ends, i32 k0,
                       float scale, tile_s *s) {
    (void)p, (void)w, (void)k0, (void)scale;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const u32 low = ATTN_MASK_FIRST ? score_bits(ends[r].first - 1) : 0;
        const u32 seen = score_bits(ends[r].last) & ~low;
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = seen >> c & 1 ? s->x[r][c] : MINUS_INF;
        }
    }
}
#else
/* What is masked becomes -inf. scale: of what stands in s, for masks that read it. */
DEV void score_mask_by(const attn_params *p, const attn_item *w, const score_keys *ends, i32 k0,
                       float scale, tile_s *s) {
    attn_row row[TILE_ROWS];
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        row[r] = score_lane_row(p, w, r);
    }
#if SCORE_COLUMNS
    score_column of;
    score_columns(p, w, &row[0], k0, &of);
#endif
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
        const i32 right = tile_col(c) - tile_col(0);
        const i32 k = (i32)forget((u32)k0) + tile_col(c); /* where it is used: registers are few */
#if SCORE_COLUMNS
        const u32 spread = tile_spread(of.own, c), *const column = &spread;
#else
        const u32 *const column = 0;
#endif
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            const float x = s->x[r][c];
            const int low = !ATTN_MASK_FIRST || right >= ends[r].first;
            const int seen = low & (right <= ends[r].last);
            const int rest = score_rest(p, w, &row[r], k, x * scale, column);
            const int wild = TILE_WILD && ATTN_MASK_READS_S && x != x;
            s->x[r][c] = (seen & rest) | wild ? x : MINUS_INF;
        }
    }
}
#endif
DEV void score_mask(const attn_params *p, const attn_item *w, i32 k0, float scale, tile_s *s) {
    score_keys ends[TILE_ROWS];
    score_all_ends(p, w, k0, ends);
    score_mask_by(p, w, ends, k0, scale, s);
}

/* Products of a step become scores in place; held: of score_hold, or NULL; raw: of score_is_raw;
   check: masks are asked. */
DEV void score_tile(const attn_params *p, const attn_item *w, const score_held *held, i32 k0,
                    int raw, int check, tile_s *s) {
    (void)held;
#if ATTN_HAS_SCORE && ATTN_MASK_READS_S
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        const float scale = score_scale(p, w, &row, k0);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = score_pair(p, w, &row, k0 + tile_col(c), s->x[r][c], scale, check);
        }
    }
#else
    score_products(p, w, held, k0, raw, s);
    if (check) {
        score_mask(p, w, k0, raw ? p->scale : 1.0f, s);
    }
#endif
}

#endif
