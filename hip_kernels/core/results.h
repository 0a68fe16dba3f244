/* results.h: how a row ends: out = o / l and LSE, with the sink, in the output's type.

   Who calls it: epilogue.h, careful.h, their twins of backward, attn_combine.hip, attn_clear.hip. A
   split writes out and LSE without sink to the workspace, in f32; attn_combine merges them:

       p.part_o    f32 [split][B][H][NQ][DV]
       p.part_lse  f32 [split][B][H][NQ]           -inf: empty, its part_o means nothing */
#ifndef ATTN_RESULTS_H
#define ATTN_RESULTS_H

#include "core/lanes.h"
#include "core/math.h"
#include "core/work.h"

#define MINUS_INF float_of(0xff800000u)
#define LOG2_E    1.4426950408889634
#define LN_2      0.6931471805599453

/* What o is multiplied by, and the row's LSE. */
typedef struct attn_ends {
    float factor, lse;
} attn_ends;

/* m in powers of two, which may be past f32; l the whole sum; sink: its logit, or -inf. */
DEV attn_ends ends_of(double m, float l, float sink) {
    const double s = sink * LOG2_E, top = s > m ? s : m;
    attn_ends e = {0, sink};
    if (m != (double)MINUS_INF && sink == MINUS_INF) {
        e.factor = div_f32(1.0f, l);
        e.lse = (float)(m * LN_2 + (double)vm_log(l));
    } else if (m != (double)MINUS_INF) {
        const float fade = exp2_fast((float)(m - top));
        const float sum = l * fade + exp2_fast((float)(s - top));
        e.factor = div_f32(fade, sum);
        e.lse = (float)(top * LN_2 + (double)vm_log(sum));
    }
    return e;
}

/* The same of a finite m, where there is no sink: l is at least 1, since the key that m is of
   counts as that. */
DEV attn_ends ends_near(float m, float l) {
    const float y = rcp_fast(l);
    attn_ends e;
    e.factor = fma_f32(fma_f32(-l, y, 1.0f), y, y);
    e.lse = fma_f32(m, 0x1.62e4p-1f, fma_f32(m, 0x1.7f7d1cp-20f, vm_log(l)));
    return e;
}

DEV float sink_of(const attn_params *p, i64 h) {
    return p->sink ? float_of(load_u32(p->sink + (u64)(h * p->sink_h))) : MINUS_INF;
}

/* -- Where rows go ----------------------------------------------------------------------------- */

typedef struct attn_place {
    u64 o, lse; /* lse 0: not wanted */
    i32 type;
    int vec; /* o may be written several columns at a time */
    float sink;
} attn_place;

DEV i64 part_row(const attn_params *p, i64 split, i64 b, i64 h, i64 i) {
    return ((split * p->B + b) * p->H + h) * p->NQ + i;
}

/* Local row i of local head h. */
DEV attn_place place_of(const attn_params *p, const attn_item *w, i32 h, i32 i) {
    attn_place t;
    if (p->splits > 1) {
        const i64 row = part_row(p, w->split, w->b, h, i);
        t.o = p->part_o + (u64)(row * p->DV * 4);
        t.lse = p->part_lse + (u64)(row * 4);
        t.type = ATTN_F32;
        t.vec = p->DV % 4 == 0;
        t.sink = MINUS_INF;
    } else {
        t.o = rows_at(&p->o, w->b, h, w->seq.q_row + i);
        t.lse = p->lse.data ? rows_at(&p->lse, w->b, h, w->seq.q_row + i) : 0;
        t.type = p->o_type;
        t.vec = (p->flags & ATTN_P_VEC_O) != 0;
        t.sink = sink_of(p, h);
    }
    return t;
}

/* Column c of a row. */
DEV float load_one(u64 row, i32 type, i32 c) {
    return type == ATTN_F32   ? float_of(load_u32(row + (u64)c * 4))
           : type == ATTN_F16 ? float_of_f16(load_u16(row + (u64)c * 2))
                              : float_of_bf16(load_u16(row + (u64)c * 2));
}
/* Column c of a row at `o`. */
DEV void store_one(u64 o, i32 type, i32 c, float x) {
    if (type == ATTN_F32) {
        store_u32(o + (u64)c * 4, bits_of(x));
    } else {
        store_u16(o + (u64)c * 2, (type == ATTN_F16 ? pack_f16(x, 0) : pack_bf16(x, 0)) & 0xffff);
    }
}
/* Columns c, c + 1; c is even, the row at a multiple of 4 bytes. */
DEV void store_two(u64 o, i32 type, i32 c, float x, float y) {
    if (type == ATTN_F32) {
        store_u32(o + (u64)c * 4, bits_of(x));
        store_u32(o + (u64)c * 4 + 4, bits_of(y));
    } else {
        store_u32(o + (u64)c * 2, type == ATTN_F16 ? pack_f16(x, y) : pack_bf16(x, y));
    }
}

#endif
