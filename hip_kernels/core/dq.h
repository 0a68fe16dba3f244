/* dq.h: dq while it is being summed by blocks of keys (ATTN_FUSED): f32, in memory.

   Who calls it: backward.h adds, attn_bwd_dq.hip takes. A block of queries has its elements in the
   order in which lanes hold them, so that a warp's additions lie side by side:

       p.back.part    [B][H][query block]           packed: [H][query block], and sequence b begins
                                                    at block q_row / ATTN_BN + b
       a block        [pass][warp][element / 4][lane][4], where ISA_ADDS is 1 one by one;
                      element r * DQ_COLS + c of a lane is d.x[r][c] of tile.h */
#ifndef ATTN_DQ_H
#define ATTN_DQ_H

#include "core/tile.h"
#include "core/work.h"

enum {
    DQ_ELEMENTS = DQ_ROWS * DQ_COLS, /* of a pass */
    DQ_BYTES = DQ_PASSES * DQ_ELEMENTS * ATTN_THREADS * 4 /* of a block; order.h has a line more */
};

/* Query block n of head h. */
DEV u64 dq_block(const attn_params *p, const attn_item *w, i32 h, i32 n) {
    return rows_at(&p->back.part, w->b, h, w->seq.q_row / ATTN_BN + n);
}
/* Elements e .. of the lane, ISA_ADDS of them. */
DEV u64 dq_at(u64 block, int pass, int e) {
    const int warp = pass * ATTN_WARPS + thread_id() / TILE_LANES;
    return block + (u64)(((warp * DQ_ELEMENTS + e) * TILE_LANES + lane_id() * ISA_ADDS) * 4);
}

DEV void dq_add(u64 block, int pass, const tile_d *d) {
    UNROLL for (int e = 0; e < DQ_ELEMENTS; e += ISA_ADDS) {
        atomic_add_f32(dq_at(block, pass, e), &d->x[e / DQ_COLS][e % DQ_COLS]);
    }
}

DEV void dq_take(u64 block, int pass, tile_d *d) {
    UNROLL for (int e = 0; e < DQ_ELEMENTS; e += ISA_ADDS) {
        float *const to = &d->x[e / DQ_COLS][e % DQ_COLS];
#if ISA_ADDS == 4
        const b128 x = load_b128(dq_at(block, pass, e));
        UNROLL for (int j = 0; j < 4; j++) {
            to[j] = float_of(x.w[j]);
        }
#else
        *to = float_of(load_u32(dq_at(block, pass, e)));
#endif
    }
}

#endif
