/* attn_combine.hip: the splits of a row become one: states (o, LSE) without sink are merged, then
   the sink, once.

   Who launches it: lib/gpu_fwd.c after attn_fwd with p.splits > 1. Warps step through the rows
   [B][H][NQ]; lanes share the columns.

       top = max lse_s;   w_s = e^(lse_s - top);   o = sum (w_s / sum w_s) o_s

   An empty split (-inf) is not read, so that it changes no bit. An element that is not finite
   counts whatever its weight: that may have become 0 by rounding alone. Weights sum to 1 before
   they meet o_s, and no LSE is multiplied before it is subtracted: what is near f32's end stays
   finite. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/results.h"
#include "core/work.h"

typedef struct attn_merge {
    float top, sum;
} attn_merge;

DEV float combine_lse(const attn_params *p, i64 split, i64 b, i64 h, i64 i) {
    return float_of(load_u32(p->part_lse + (u64)(part_row(p, split, b, h, i) * 4)));
}

DEV float combine_weight(float lse, float top) {
    return exp2_fast((lse - top) * (float)LOG2_E);
}

DEV attn_merge combine_sum(const attn_params *p, i64 b, i64 h, i64 i) {
    attn_merge m = {MINUS_INF, 0};
    for (i64 s = 0; s < p->splits; s++) {
        const float lse = combine_lse(p, s, b, h, i);
        m.top = lse == MINUS_INF ? m.top : max_nan(m.top, lse);
    }
    for (i64 s = 0; s < p->splits; s++) {
        const float lse = combine_lse(p, s, b, h, i);
        m.sum += lse == MINUS_INF ? 0 : combine_weight(lse, m.top);
    }
    return m;
}

/* Column c of all splits, weighted; factor: 1 / the sum of weights, with the sink. */
DEV float combine_column(const attn_params *p, i64 b, i64 h, i64 i, i32 c, float top,
                         float factor) {
    float o = 0;
    for (i64 s = 0; s < p->splits; s++) {
        const float lse = combine_lse(p, s, b, h, i);
        if (lse != MINUS_INF) {
            const u64 at = p->part_o + (u64)((part_row(p, s, b, h, i) * p->DV + c) * 4);
            const float x = float_of(load_u32(at));
            o = fma_f32(x - x == 0 ? combine_weight(lse, top) * factor : 1.0f, x, o);
        }
    }
    return o;
}

DEV void combine_row(const attn_params *p, i64 b, i64 h, i64 i, i64 row) {
    const attn_merge m = combine_sum(p, b, h, i);
    const attn_ends e = ends_of(m.top * LOG2_E, m.sum, sink_of(p, h));
    if (p->lse.data && lane_id() == 0) {
        store_u32(rows_at(&p->lse, b, h, row), bits_of(e.lse));
    }
    for (i32 c = lane_id(); c < p->DV; c += TILE_LANES) {
        const float o = combine_column(p, b, h, i, c, m.top, e.factor);
        store_one(rows_at(&p->o, b, h, row), p->o_type, c, m.top != m.top ? VM_NAN : o);
    }
}

DEV void attn_combine_body(const attn_params *p) {
    const i64 rows = (i64)p->B * p->H * p->NQ;
    const i64 step = grid_size() * ATTN_WARPS;
    for (i64 n = block_id() * ATTN_WARPS + warp_id(); n < rows; n += step) {
        const i64 bh = n / p->NQ, i = n - bh * p->NQ, b = bh / p->H;
        const attn_seq seq = seq_of(p, b);
        if (i < seq.nq) {
            combine_row(p, b, bh - b * p->H, i, seq.q_row + i);
        }
    }
}

ATTN_ENTRY(attn_combine, attn_combine_body, attn_params)
