/* grad_out.h: a tile's sums become rows of dq, or of dk and dv.

   Who calls it: attn_bwd.hip, careful_grad.h. */
#ifndef ATTN_GRAD_OUT_H
#define ATTN_GRAD_OUT_H

#include "core/epilogue.h"
#include "core/grad.h"

/* Memory row of row r. */
DEV i64 grad_row(const attn_item *w, i32 r) {
    return (ATTN_KEY_ROWS ? w->seq.k_row : w->seq.q_row) + r;
}

/* Bit r: row r of the lane is used and has a sum that is not finite; the lanes that share a row
   agree. */
DEV u32 grad_wild(const attn_item *w, const tile_o *o) {
    u32 wild = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        float zero = 0;
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            zero = fma_f32(o->x[r][c], 0.0f, zero);
        }
        const float not_finite = row_sum(zero != 0.0f ? 1.0f : 0.0f);
        wild |= (u32)(w->row0 + tile_row(r) < w->rows && not_finite != 0.0f) << r;
    }
    return wild;
}

/* All rows but those of `wild`. */
DEV void grad_store(const attn_item *w, const attn_rows *to, i32 type, int vec, i32 cols,
                    float factor, const tile_o *o, u32 wild) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const i32 at = w->row0 + tile_row(r);
        const int mine = at < w->rows && !(wild >> r & 1);
        epilogue_row(rows_at(to, w->b, ATTN_KEY_ROWS ? w->hk : w->h, grad_row(w, at)), type, vec,
                     mine ? cols : 0, o->x[r], factor);
    }
}

DEV void grad_epilogue(const attn_params *p, const attn_item *w, const tile_o *sum,
                       const tile_o *sum_v, u32 wild) {
    const float factor = TILE_O_SCALE; /* p and g are as they are: TILE_P_SCALE is 1 in backward */
    if (ATTN_SUMS & 1 && p->back.to.data) { /* or what the variant reads is all that is wanted */
        grad_store(w, &p->back.to, p->back.to_type, (p->flags & ATTN_P_VEC_TO) != 0, p->D,
                   grad_factor(p) / factor, sum, wild);
    }
    if (ATTN_SUMS & 2) {
        grad_store(w, &p->back.to_v, p->back.to_v_type, (p->flags & ATTN_P_VEC_TO_V) != 0, p->DV,
                   1 / factor, sum_v, wild);
    }
}

#endif
