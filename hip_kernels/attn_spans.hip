/* attn_spans.hip: the table of core/spans.h of one tensor.

   Who launches it: lib/gpu_spans.c, before a forward whose mask reads a tensor by one index. Warps
   step through the runs; lanes share a run's elements. */
#ifndef ATTN_WARPS
#define ATTN_WARPS 4
#endif
#include "core/alone.h"
#include "target.h"

#include "core/params.h"

#include "core/interval.h"
#include "core/lanes.h"
#include "core/spans.h"

DEV int spans_is_f32(const attn_span_table *p) {
    return p->type < SPANS_I32;
}

/* Of two intervals, in the words of either type. */
DEV attn_iv spans_hull(const attn_span_table *p, attn_iv a, attn_iv b) {
    const attn_fv x = fv_hull(fv(float_of((u32)a.lo), float_of((u32)a.hi)),
                              fv(float_of((u32)b.lo), float_of((u32)b.hi)));
    return spans_is_f32(p) ? iv((i32)bits_of(x.lo), (i32)bits_of(x.hi)) : iv_hull(a, b);
}
DEV attn_iv spans_none(const attn_span_table *p) {
    const attn_fv x = fv_none();
    return spans_is_f32(p) ? iv((i32)bits_of(x.lo), (i32)bits_of(x.hi)) : iv_none();
}

/* An element as the variant reads it. */
DEV attn_iv spans_element(const attn_span_table *p, u64 at) {
    if (spans_is_f32(p)) {
        const float x = p->type == ATTN_F32   ? float_of(load_u32(at))
                        : p->type == ATTN_F16 ? float_of_f16(load_u16(at))
                                              : float_of_bf16(load_u16(at));
        const attn_fv r = fv_with(fv(x, x), x);
        return iv((i32)bits_of(r.lo), (i32)bits_of(r.hi));
    }
    const i32 x = p->type == SPANS_BOOL ? load_u8(at) != 0 : (i32)load_u32(at);
    const i32 within = iv_least(iv_most(x, p->lo), p->hi);
    return iv(within, within);
}

DEV void spans_run(const attn_span_table *p, i64 row, i64 run) {
    u64 from = p->from;
    i64 rest = row;
    for (int axis = 2; axis >= 0; axis--) {
        const i64 above = rest / p->n[axis];
        from += (u64)((rest - above * p->n[axis]) * p->st[axis]);
        rest = above;
    }
    attn_iv r = spans_none(p);
    for (i64 i = run * SPAN + lane_id(); i < (run + 1) * SPAN; i += TILE_LANES) {
        if (i < p->n[3]) {
            r = spans_hull(p, r, spans_element(p, from + (u64)(i * p->st[3])));
        }
    }
    UNROLL for (int mask = 1; mask < TILE_LANES; mask *= 2) {
        const u32 lo = bits_of(lane_xor(float_of((u32)r.lo), mask));
        const u32 hi = bits_of(lane_xor(float_of((u32)r.hi), mask));
        r = spans_hull(p, r, iv((i32)lo, (i32)hi));
    }
    if (lane_id() == 0) {
        const u64 to = p->to + (u64)(row * p->runs + run) * 8;
        store_u32(to, (u32)r.lo);
        store_u32(to + 4, (u32)r.hi);
    }
}

DEV void attn_spans_body(const attn_span_table *p) {
    const i64 all = p->rows * p->runs, step = grid_size() * ATTN_WARPS;
    for (i64 n = block_id() * ATTN_WARPS + warp_id(); n < all; n += step) {
        const i64 row = n / p->runs;
        spans_run(p, row, n - row * p->runs);
    }
}

ATTN_ENTRY(attn_spans, attn_spans_body, attn_span_table)
