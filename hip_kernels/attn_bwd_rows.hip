/* attn_bwd_rows.hip: what backward knows of its query rows beforehand, core/stats.h; and dO in the
   type of q where it is of another.

   Who launches it: lib/gpu_bwd.c. Warps step through the rows [B][H][NQ]; lanes share the
   columns. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/results.h"

DEV void rows_row(const attn_params *p, i64 b, i64 h, i64 row) {
    const attn_back *const t = &p->back;
    const u64 dout = rows_at(&t->dout, b, h, row), o = rows_at(&p->o, b, h, row);
    const float lse = float_of(load_u32(rows_at(&p->lse, b, h, row)));
    float c = 0;
    for (i32 d = lane_id(); d < p->DV; d += TILE_LANES) {
        const float x = load_one(dout, t->dout_type, d);
        c = fma_f32(x, load_one(o, p->o_type, d), c);
        if (t->copy.data) {
            store_one(rows_at(&t->copy, b, h, row), t->copy_type, d, x);
        }
    }
    c = warp_sum(c);
    c -= t->dlse.data ? float_of(load_u32(rows_at(&t->dlse, b, h, row))) : 0;
    if (lane_id() == 0) {
        const int nothing = lse == MINUS_INF;
        const u64 to = rows_at(&t->stats, b, h, row);
        store_u32(to, bits_of(nothing ? -MINUS_INF : lse == lse ? lse : VM_NAN));
        store_u32(to + 4, bits_of(nothing ? 0 : c == c ? c : VM_NAN));
    }
}

DEV void attn_bwd_rows_body(const attn_params *p) {
    const i64 rows = (i64)p->B * p->H * p->NQ;
    const i64 step = grid_size() * ATTN_WARPS;
    for (i64 n = block_id() * ATTN_WARPS + warp_id(); n < rows; n += step) {
        const i64 bh = n / p->NQ, i = n - bh * p->NQ, b = bh / p->H;
        const attn_seq seq = seq_of(p, b);
        if (i < seq.nq) {
            rows_row(p, b, bh - b * p->H, seq.q_row + i);
        }
    }
}

ATTN_ENTRY(attn_bwd_rows, attn_bwd_rows_body, attn_params)
