/* epilogue.h: a tile's sums become rows of o and LSE.

   Who calls it: attn_fwd.hip, grad_out.h. Each lane stores its columns of its rows; the first of
   the lanes that share a row stores its LSE. */
#ifndef ATTN_EPILOGUE_H
#define ATTN_EPILOGUE_H

#include "core/results.h"
#include "core/softmax.h"

/* l becomes whole sums. Bit r: row r of the lane is used and holds what is not finite, or has seen
   keys whose p are all 0 (softmax_top); the lanes that share a row agree. */
DEV u32 epilogue_sum(const attn_item *w, attn_soft *t, const tile_o *o) {
    u32 wild = 0;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        t->l[r] = row_sum(t->l[r]);
        float zero = t->l[r] * 0.0f + (t->m[r] == MINUS_INF ? 0.0f
                                       : t->l[r] == 0.0f    ? 1.0f
                                                            : t->m[r] * 0.0f);
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            zero = fma_f32(o->x[r][c], 0.0f, zero);
        }
        const float not_finite = row_sum(zero != 0.0f ? 1.0f : 0.0f);
        wild |= (u32)(w->row0 + tile_row(r) < w->rows && not_finite != 0.0f) << r;
    }
    return wild;
}

/* The lane's columns of a row whose first is at `to`, which has `cols`. */
DEV void epilogue_row(u64 to, i32 type, int vec, i32 cols, const float *x, float factor) {
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c += 2) {
        const i32 d = tile_col(c);
        const float a = x[c] * factor, b = x[c + 1] * factor;
        if (vec && d + 1 < cols) {
            store_two(to, type, d, a, b);
        } else if (d < cols) {
            store_one(to, type, d, a);
            if (d + 1 < cols) {
                store_one(to, type, d + 1, b);
            }
        }
    }
}

#if TILE_TURNS
/* The same 16 bytes at a time, of 16-bit types, where cols are whole chunks; all lanes of the warp
   come here, those with live 0 store nothing. */
DEV void epilogue_chunks(u64 to, i32 type, i32 cols, const float *x, float factor, int live) {
    UNROLL for (int j = 0; j < TILE_COLS(ATTN_DV) / 8; j++) {
        b128 chunk;
        UNROLL for (int i = 0; i < 4; i++) {
            const float a = x[8 * j + 2 * i] * factor, b = x[8 * j + 2 * i + 1] * factor;
            chunk.w[i] = type == ATTN_F16 ? pack_f16(a, b) : pack_bf16(a, b);
        }
        tile_turn(chunk.w);
        const i32 d = j * 32 + tile_col(0) * 4;
        if (live && d < cols) {
            store_b128(to + (u64)d * 2, chunk);
        }
    }
}
#endif

/* All rows but those of `wild`. */
DEV void epilogue_tile(const attn_params *p, const attn_item *w, const attn_soft *t,
                       const tile_o *o, u32 wild) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const i32 at = w->row0 + tile_row(r);
        const int live = at < w->rows && !(wild >> r & 1);
        const attn_place to = place_of(p, w, work_head(p, w, at), work_row(p, at));
        const attn_ends e = ends_of(t->m[r], t->l[r], to.sink);
        const float factor = e.factor * (p->drop_factor / (TILE_P_SCALE * TILE_O_SCALE)) *
                             softmax_unit_of(t, r);
        if (live && to.lse && tile_col(0) == 0) {
            store_u32(to.lse, bits_of(e.lse));
        }
#if TILE_TURNS
        if (to.vec && to.type != ATTN_F32) {
            epilogue_chunks(to.o, to.type, p->DV, o->x[r], factor, live);
            continue;
        }
#endif
        if (live) {
            epilogue_row(to.o, to.type, to.vec, p->DV, o->x[r], factor);
        }
    }
}

#endif
