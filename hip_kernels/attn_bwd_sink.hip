/* attn_bwd_sink.hip: dsink[h] = sum over rows of exp(sink - LSE) (dLSE - dO.O), by core/stats.h.

   Who launches it: lib/gpu_bwd.c, after attn_bwd_rows: a block per head, one warp. Each lane sums
   rows of its own, in order, and the lanes' sums are joined in one order. Without a sink (-inf)
   there is nothing to sum. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 1
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/results.h"
#include "core/stats.h"

DEV void attn_bwd_sink_body(const attn_params *p) {
    const i64 h = block_id();
    const float sink = sink_of(p, h);
    float sum = 0, lost = 0; /* Kahan's */
    for (i64 b = 0; b < p->B && sink != MINUS_INF; b++) {
        const attn_seq seq = seq_of(p, b);
        for (i64 i = lane_id(); i < seq.nq; i += TILE_LANES) {
            const attn_stats t = stats_of(p, b, h, seq.q_row + i);
            const float part = exp2_fast(fma_f32(sink, (float)LOG2_E, -t.lse));
            const float x = -(stats_p(part, t.c) * t.c) - lost, to = sum + x;
            lost = to - to == 0 ? (to - sum) - x : 0; /* of an infinite sum nothing is lost */
            sum = to;
        }
    }
    sum = warp_sum(sum);
    if (lane_id() == 0) {
        store_u32(p->back.dsink + (u64)(h * p->back.dsink_h), bits_of(sum));
    }
}

ATTN_ENTRY(attn_bwd_sink, attn_bwd_sink_body, attn_params)
