/* careful.h: rows whose sums are not finite, once more, pair by pair.

   Who calls it: finish.h, where epilogue_sum saw such a row in the warp. In a product of tiles
   0 * NaN reaches rows that mask the NaN; here what is masked is never touched:

       for each such row:          keys one after the other; lanes share the columns of q, k, v, o
           visible score NaN or +inf     the row is NaN
           scores, sums past 2^127       scores are not multiplied before they are subtracted, and
                                         o is summed in f64
           v not finite                  its elements join sums of their own, which take the place
                                         of out's element at the end, whatever p was */
#ifndef ATTN_CAREFUL_H
#define ATTN_CAREFUL_H

#include "core/dropout.h"
#include "core/results.h"

#define CAREFUL_D  ((ATTN_D + TILE_LANES - 1) / TILE_LANES)
#define CAREFUL_DV ((ATTN_DV + TILE_LANES - 1) / TILE_LANES)

DEV float careful_load(u64 row, i32 c) {
#if ATTN_TYPE == ATTN_F32
    return float_of(load_u32(row + (u64)c * 4));
#elif ATTN_TYPE == ATTN_F16
    return float_of_f16(load_u16(row + (u64)c * 2));
#else
    return float_of_bf16(load_u16(row + (u64)c * 2));
#endif
}

DEV int is_finite(float x) {
    return (bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

/* What the warp sums of a row; a lane has columns lane, lane + TILE_LANES, ... */
typedef struct attn_careful {
    float q[CAREFUL_D], wild[CAREFUL_DV];
    double o[CAREFUL_DV];
    float m, l; /* m: the largest score, not in powers of two */
    int nan;
} attn_careful;

DEV void careful_key(const attn_params *p, const attn_item *w, const attn_row *row, i32 k,
                     attn_careful *t) {
    const i64 at = w->seq.k_row + k;
    const u64 k_at = rows_at(&p->k, w->b, w->hk, at), v_at = rows_at(&p->v, w->b, w->hk, at);
    float dot = 0;
    for (int j = 0; j < CAREFUL_D; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        dot = c < p->D ? fma_f32(t->q[j], careful_load(k_at, c), dot) : dot;
    }
    const float product = warp_sum(dot), scale = score_scale(p, w, row, k), s = product * scale;
    const float x = score_pair(p, w, row, k, product, scale, 1);
    if (s == MINUS_INF || x == MINUS_INF) {
        return;
    }
    if (!is_finite(x)) {
        t->nan = 1;
        return;
    }
    const float m = x > t->m ? x : t->m;
    const float fade = exp2_fast((t->m - m) * (float)LOG2_E);
    const float pair = exp2_fast((x - m) * (float)LOG2_E);
    t->m = m;
    t->l = t->l * fade + pair;
    float weight = score_v_scale(p, w, row->h, k);
#if ATTN_HAS_DROPOUT
    weight = dropout_pair(p, w, row, dropout_seed(p), (i32)k) ? weight : 0;
#endif
    for (int j = 0; j < CAREFUL_DV; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        const float v = c < p->DV ? careful_load(v_at, c) : 0;
        const int wild = !is_finite(v) && weight != 0;
        t->wild[j] = wild ? t->wild[j] + weight * v : t->wild[j];
        t->o[j] = (double)(pair * weight) * (is_finite(v) ? v : 0) + t->o[j] * fade;
    }
}

/* Row r of the sequence. */
DEV void careful_row(const attn_params *p, const attn_item *w, i32 r) {
    const attn_row row = score_row(p, w, r);
    const u64 q_at = rows_at(&p->q, w->b, row.h, w->seq.q_row + row.i);
    attn_careful t;
    t.m = MINUS_INF;
    t.l = 0;
    t.nan = 0;
    for (int j = 0; j < CAREFUL_D; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        t.q[j] = c < p->D ? careful_load(q_at, c) : 0;
    }
    for (int j = 0; j < CAREFUL_DV; j++) {
        t.o[j] = t.wild[j] = 0;
    }
    for (i32 k = w->k_begin; k < w->k_end; k++) {
        careful_key(p, w, &row, k, &t);
    }
    const attn_place to = place_of(p, w, row.h, row.i);
    const attn_ends e = ends_of(t.m * LOG2_E, t.l, to.sink);
    if (to.lse && lane_id() == 0) {
        store_u32(to.lse, bits_of(t.nan ? VM_NAN : e.lse));
    }
    for (int j = 0; j < CAREFUL_DV; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        const float o =
            t.wild[j] != 0 ? t.wild[j] : (float)(t.o[j] * e.factor * p->drop_factor);
        if (c < p->DV) {
            store_one(to.o, to.type, c, t.nan ? VM_NAN : o);
        }
    }
}

/* Row `row` of the tile is marked by a lane of the warp: bit r of its `wild` is its row r. */
DEV int careful_marked(i32 row, u32 wild) {
    int mine = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        mine |= tile_row(r) == row && (wild >> r & 1);
    }
    return warp_any(mine);
}

/* The marked rows of this warp. The others keep their bits, whatever their neighbours hold. */
DEV void careful_rows(const attn_params *p, const attn_item *w, u32 wild) {
    const i32 first = warp_id() / ATTN_SPLIT * ATTN_WARP_ROWS;
    for (i32 row = first; row < first + ATTN_WARP_ROWS; row++) {
        if (careful_marked(row, wild)) {
            careful_row(p, w, w->row0 + row);
        }
    }
}

#endif
