/* attn_bwd_rows.hip: what backward knows of its query rows beforehand, core/stats.h; dO in the type
   of q where it is of another; and 0 where parts of dq are to be added (core/dq.h).

   Who launches it: lib/gpu_bwd.c. Warps step through the rows [B][H][NQ], several at a time:

       columns of 16 bytes where rows of dO and o allow it, else one by one
       lanes     0 .. m-1 | m .. 2m-1 | ...        m, a power of two, share a row               */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/results.h"

/* Products of the columns that begin at c, of which there are 16 bytes of both. */
DEV float rows_chunk(u64 dout, u64 o, i32 type, i32 c) {
    const b128 x = load_b128(dout + (u64)c * 2), y = load_b128(o + (u64)c * 2);
    float sum = 0;
    UNROLL for (int j = 0; j < 8; j++) {
        const u32 a = x.w[j / 2] >> j % 2 * 16 & 0xffff, b = y.w[j / 2] >> j % 2 * 16 & 0xffff;
        sum = type == ATTN_F16 ? fma_f32(float_of_f16(a), float_of_f16(b), sum)
                               : fma_f32(float_of_bf16(a), float_of_bf16(b), sum);
    }
    return sum;
}

/* The lane's share of dO.O; lane `first` of `lanes`. */
DEV float rows_share(const attn_params *p, i64 b, i64 h, i64 row, int wide, i32 first, i32 lanes) {
    const attn_back *const t = &p->back;
    const u64 dout = rows_at(&t->dout, b, h, row), o = rows_at(&p->o, b, h, row);
    float sum = 0;
    if (wide) {
        for (i32 c = first * 8; c < p->DV; c += lanes * 8) {
            sum += rows_chunk(dout, o, p->o_type, c);
        }
        return sum;
    }
    for (i32 d = first; d < p->DV; d += lanes) {
        float x = load_one(dout, t->dout_type, d);
        if (t->copy.data) { /* all gradients are those of dO as rounded here */
            const u64 copy = rows_at(&t->copy, b, h, row);
            store_one(copy, t->copy_type, d, x);
            x = load_one(copy, t->copy_type, d);
        }
        sum = fma_f32(x, load_one(o, p->o_type, d), sum);
    }
    return sum;
}

DEV void rows_store(const attn_params *p, i64 b, i64 h, i64 row, float c) {
    const attn_back *const t = &p->back;
    const float lse = float_of(load_u32(rows_at(&p->lse, b, h, row)));
    const int nothing = lse == MINUS_INF;
    const u64 to = rows_at(&t->stats, b, h, row);
    c -= t->dlse.data ? float_of(load_u32(rows_at(&t->dlse, b, h, row))) : 0;
    store_u32(to, bits_of(nothing ? -MINUS_INF : lse == lse ? lse * (float)LOG2_E : VM_NAN));
    store_u32(to + 4, bits_of(nothing ? 0 : c == c ? c : VM_NAN));
}

DEV void rows_clear(const attn_params *p) {
    const b128 zero = {{0, 0, 0, 0}};
    const i64 step = grid_size() * ATTN_THREADS * 16;
    for (i64 at = (block_id() * ATTN_THREADS + thread_id()) * 16; at < p->back.part_bytes;
         at += step) {
        store_b128(p->back.part.data + (u64)at, zero);
    }
}

DEV void attn_bwd_rows_body(const attn_params *p) {
    const i64 rows = (i64)p->B * p->H * p->NQ;
    const int wide = (p->flags & ATTN_P_VEC_O) && (p->flags & ATTN_P_VEC_DOUT) &&
                     p->o_type == p->back.dout_type && p->o_type != ATTN_F32 &&
                     !p->back.copy.data;
    i32 lanes = 1; /* of a row */
    while (lanes < TILE_LANES && lanes * (wide ? 8 : 1) < p->DV) {
        lanes *= 2;
    }
    const i64 each = TILE_LANES / lanes, step = grid_size() * ATTN_WARPS * each;
    rows_clear(p);
    for (i64 n0 = (block_id() * ATTN_WARPS + warp_id()) * each; n0 < rows; n0 += step) {
        const i64 n = n0 + lane_id() / lanes;
        const i64 bh = n / p->NQ, i = n - bh * p->NQ, b = bh / p->H, h = bh - b * p->H;
        attn_seq seq;
        float c = 0;
        seq.nq = 0;
        if (n < rows) {
            seq = seq_of(p, b);
        }
        if (i < seq.nq) {
            c = rows_share(p, b, h, seq.q_row + i, wide, lane_id() % lanes, lanes);
        }
        for (int mask = 1; mask < lanes; mask *= 2) {
            c += lane_xor(c, mask);
        }
        if (i < seq.nq && lane_id() % lanes == 0) {
            rows_store(p, b, h, seq.q_row + i, c);
        }
    }
}

ATTN_ENTRY(attn_bwd_rows, attn_bwd_rows_body, attn_params)
