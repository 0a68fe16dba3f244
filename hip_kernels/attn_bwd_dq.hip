/* attn_bwd_dq.hip: dq of the parts that attn_bwd.hip's blocks of keys have summed (ATTN_FUSED).

   Who launches it: lib/gpu_bwd.c, last, compiled as attn_bwd was, but for ATTN_KEY_ROWS and
   ATTN_SUMS: a block per ATTN_BN queries of a head, whose lanes take what they would have added.

       parts (dq.h) -> rows finite: times grad_factor, rounded, stored
                       otherwise:   marked in shared memory; careful_grad.h, once more  */
#include "target.h"

#include "core/params.h"

#include "core/work.h"

#include "core/careful_grad.h"
#include "core/dq.h"

EXPORT(attn_bwd_dq_shared, ATTN_WARPS * ATTN_BN * 4);

/* Each warp marks rows in words of its own: 1, not finite in its columns. */
DEV u32 mark_at(int warp, int row) {
    return (u32)((warp * ATTN_BN + row) * 4);
}
DEV int is_marked(int row) {
    u32 marks = 0;
    for (int warp = 0; warp < ATTN_WARPS; warp++) {
        marks |= shared_load_u32(mark_at(warp, row));
    }
    return marks != 0;
}

DEV void dq_store(const attn_params *p, u64 to, int pass, const float *x) {
    const float factor = grad_factor(p);
    const int vec = (p->flags & ATTN_P_VEC_TO) != 0;
    UNROLL for (int c = 0; c < DQ_COLS; c += 2) {
        const i32 d = dq_col(c, pass);
        if (vec && d + 1 < p->D) {
            store_two(to, p->back.to_type, d, x[c] * factor, x[c + 1] * factor);
        } else if (d < p->D) {
            store_one(to, p->back.to_type, d, x[c] * factor);
            if (d + 1 < p->D) {
                store_one(to, p->back.to_type, d + 1, x[c + 1] * factor);
            }
        }
    }
}

/* Rows that are not finite are marked. */
DEV void dq_pass(const attn_params *p, const attn_item *w, int pass) {
    const int warp = warp_id(); /* all lanes ask */
    tile_d d;
    dq_take(dq_block(p, w, w->h, w->row0 / ATTN_BN), pass, &d);
    UNROLL for (int r = 0; r < DQ_ROWS; r++) {
        const i32 row = w->row0 + dq_row(r);
        float zero = 0;
        UNROLL for (int c = 0; c < DQ_COLS; c++) {
            zero = fma_f32(d.x[r][c], 0.0f, zero);
        }
        if (zero != 0.0f) {
            shared_store_u32(mark_at(warp, dq_row(r)), 1);
        } else if (row < w->rows) {
            dq_store(p, rows_at(&p->back.to, w->b, w->h, grad_row(w, row)), pass, d.x[r]);
        }
    }
}

DEV void dq_item(const attn_params *p, attn_item *w) {
    const int warp = warp_id();
    for (int r = lane_id(); r < ATTN_BN; r += TILE_LANES) {
        shared_store_u32(mark_at(warp, r), 0);
    }
    warp_sync();
    for (int pass = 0; pass < DQ_PASSES; pass++) {
        dq_pass(p, w, pass);
    }
    block_sync();
    for (i32 r = warp; r < ATTN_BN; r += ATTN_WARPS) {
        if (w->row0 + r < w->rows && is_marked(r)) {
            careful_grad_row(p, w, w->row0 + r);
        }
    }
}

DEV void attn_bwd_dq_body(const attn_params *p) {
    attn_item w;
    if (work_item(p, p->first + block_id(), &w)) {
        dq_item(p, &w);
    }
}

ATTN_ENTRY(attn_bwd_dq, attn_bwd_dq_body, attn_params)
