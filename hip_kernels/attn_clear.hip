/* attn_clear.hip: out 0 and LSE -inf in every row of o and lse, before a forward with lengths or
   packing, which writes the used rows alone.

   Who launches it: lib/gpu_fwd.c; lib/gpu_bwd.c for rows of dq, dk and dv that no sequence has.
   Warps step through the rows [B][H][TQ] (packed: [H][TQ]); lanes share the columns. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/results.h"
#include "core/work.h"

DEV void clear_row(const attn_params *p, i64 b, i64 h, i64 row) {
    const u64 o = rows_at(&p->o, b, h, row);
    const i32 vec = p->flags & ATTN_P_VEC_O ? 16 / (p->o_type == ATTN_F32 ? 4 : 2) : 1;
    const i32 whole = p->DV / vec * vec;
    const b128 zeros = {{0, 0, 0, 0}};
    for (i32 c = lane_id() * vec; vec > 1 && c < whole; c += TILE_LANES * vec) {
        store_b128(o + (u64)c * 16 / (u64)vec, zeros);
    }
    for (i32 c = (vec > 1 ? whole : 0) + lane_id(); c < p->DV; c += TILE_LANES) {
        store_one(o, p->o_type, c, 0);
    }
    if (p->lse.data && lane_id() == 0) {
        store_u32(rows_at(&p->lse, b, h, row), bits_of(MINUS_INF));
    }
}

DEV void attn_clear_body(const attn_params *p) {
    const i64 rows = (i64)(p->q_offsets ? 1 : p->B) * p->H * p->TQ;
    const i64 step = grid_size() * ATTN_WARPS;
    for (i64 n = block_id() * ATTN_WARPS + warp_id(); n < rows; n += step) {
        const i64 bh = n / p->TQ, b = bh / p->H;
        clear_row(p, b, bh - b * p->H, n - bh * p->TQ);
    }
}

ATTN_ENTRY(attn_clear, attn_clear_body, attn_params)
