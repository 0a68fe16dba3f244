/* epilogue.h: a tile's sums become rows of o and LSE.

   Who calls it: finish.h, grad_out.h, producer.h. A lane stores the columns that it holds; where
   TILE_TURNS is 1 and rows are plain, the lanes of a row exchange them first, and each stores whole
   chunks; where TILE_STORES is 1 most warps send theirs through q's place (epilogue_quick). Of the
   TILE_SHARE lanes that share rows the i-th stores the LSE of their i-th row (and of the one
   TILE_SHARE further on, ...); where TILE_SHARE is 1 the lane that has column 0 does. */
#ifndef ATTN_EPILOGUE_H
#define ATTN_EPILOGUE_H

#include "core/results.h"
#include "core/softmax.h"

/* l becomes whole sums. Bit r: row r of the lane is used and holds what is not finite, or has seen
   keys whose p are all 0 (softmax_top); the lanes that share a row agree. */
DEV u32 epilogue_sum(const attn_item *w, attn_soft *t, const tile_o *o) {
    u32 bad = 0, wild = 0; /* bad: four bits a row, in which lanes are counted */
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const float m = t->m[r] == MINUS_INF ? 0.0f : t->m[r];
        t->l[r] = row_sum(t->l[r]);
        /* sums that do not wait for each other; NaN is not 0 */
        float part[4] = {t->l[r] * 0.0f, m * 0.0f, 0, 0};
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            part[c % 4] = fma_f32(o->x[r][c], 0.0f, part[c % 4]);
        }
        const int lost = (t->l[r] == 0.0f) & (t->m[r] != MINUS_INF);
        bad |= (u32)((part[0] + part[1] + (part[2] + part[3]) != 0.0f) | lost) << 4 * r;
    }
    bad = (u32)row_sum((float)bad);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        wild |= (u32)(w->row0 + tile_row(r) < w->rows && (bad >> 4 * r & 15) != 0) << r;
    }
    return wild;
}

/* The lane's columns of a row whose first is at `to`, which has `cols`; 0: none. What does not
   depend on the column is asked once: a branch for each would take longer than a step does. */
DEV void epilogue_f32(u64 to, i32 cols, const float *x, float factor) {
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
        if (tile_out(c) < cols) {
            store_u32(to + (u64)tile_out(c) * 4, bits_of(x[c] * factor));
        }
    }
}
DEV void epilogue_16(u64 to, int f16, i32 cols, const float *x, float factor) {
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
        if (tile_out(c) < cols) {
            store_one(to, f16 ? ATTN_F16 : ATTN_BF16, tile_out(c), x[c] * factor);
        }
    }
}
/* cols is a multiple of 8, the row at one of 16 bytes. */
DEV void epilogue_words(u64 to, int f16, i32 cols, const float *x, float factor) {
    UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c += 2) {
        if (tile_out(c) < cols) {
            store_two(to, f16 ? ATTN_F16 : ATTN_BF16, tile_out(c), x[c] * factor,
                      x[c + 1] * factor);
        }
    }
}
DEV void epilogue_row(u64 to, i32 type, int vec, i32 cols, const float *x, float factor) {
    if (type == ATTN_F32) {
        epilogue_f32(to, cols, x, factor);
    } else if (vec) {
        epilogue_words(to, type == ATTN_F16, cols, x, factor);
    } else {
        epilogue_16(to, type == ATTN_F16, cols, x, factor);
    }
}

/* 1: most warps end by epilogue_quick. */
#if ATTN_PRODUCER
#define EPILOGUE_QUICK TILE_STORES
#else
#define EPILOGUE_QUICK 0
#endif

#if TILE_TURNS && ATTN_TYPE != ATTN_F32
/* 1: rows lie n bytes apart, have the kernel's own type and whole chunks at multiples of 16 bytes:
   most are so. Then no row asks where it lies or what it is. */
DEV int epilogue_plain(const attn_params *p) {
    return p->splits <= 1 && p->pack == 1 && p->o_type == ATTN_TYPE &&
           (p->flags & ATTN_P_VEC_O) != 0;
}

/* 16 bytes at a time; all lanes of the warp come here, those with live 0 store nothing. */
DEV void epilogue_chunks(u64 to, i32 cols, const float *x, float factor, int live) {
    UNROLL for (int j = 0; j < TILE_COLS(ATTN_DV) / 8; j++) {
        b128 chunk;
        UNROLL for (int i = 0; i < 4; i++) {
            const float a = x[8 * j + 2 * i] * factor, b = x[8 * j + 2 * i + 1] * factor;
            chunk.w[i] = ATTN_TYPE == ATTN_F16 ? pack_f16(a, b) : pack_bf16(a, b);
        }
        tile_turn(chunk.w);
        const i32 d = j * 32 + tile_col(0) * 4;
        if (live && d < cols) {
            store_b128(to + (u64)d * 2, chunk);
        }
    }
}
#endif

/* Row r of the lane is written: it is used and not `wild`. */
DEV int epilogue_has(const attn_item *w, int r, u32 wild) {
    return w->row0 + tile_row(r) < w->rows && !(wild >> r & 1);
}

/* The factors of the lane's rows; LSE is stored. The lanes that share rows take a row each. */
DEV void epilogue_ends(const attn_params *p, const attn_item *w, const attn_soft *t, u32 wild,
                       float *factor) {
    UNROLL for (int first = 0; first < TILE_ROWS; first += TILE_SHARE) {
        int r = first;
        float m = t->m[first], l = t->l[first];
        UNROLL for (int i = 1; i < TILE_SHARE && first + i < TILE_ROWS; i++) {
            const float other_m = t->m[first + i], other_l = t->l[first + i];
            r = row_lane() == i ? first + i : r;
            m = row_lane() == i ? other_m : m;
            l = row_lane() == i ? other_l : l;
        }
        const i32 at = w->row0 + tile_row(r);
        const attn_place to = place_of(p, w, work_head(p, w, at), work_row(p, at));
        const attn_ends e = p->sink || m == MINUS_INF ? ends_of(m, l, to.sink) : ends_near(m, l);
        const int mine = TILE_SHARE > 1 ? row_lane() < TILE_ROWS - first : tile_col(0) == 0;
        if (to.lse && mine && epilogue_has(w, r, wild)) {
            store_u32(to.lse, bits_of(e.lse));
        }
        UNROLL for (int i = 0; i < TILE_SHARE && first + i < TILE_ROWS; i++) {
            factor[first + i] = row_from(e.factor, i);
        }
    }
}

/* Row r of the lane, wherever it lies. */
DEV void epilogue_one(const attn_params *p, const attn_item *w, int r, u32 wild, const float *x,
                      float factor) {
    const i32 at = w->row0 + tile_row(r);
    const attn_place to = place_of(p, w, work_head(p, w, at), work_row(p, at));
    epilogue_row(to.o, to.type, to.vec, epilogue_has(w, r, wild) ? p->DV : 0, x, factor);
}

#if ATTN_PRODUCER
/* What most warps have, 1 then: each row is used, has seen a key and is finite, there is no sink,
   and boxes describe o. No branch before that is known, so that nothing waits for the other.
   `stage` is the place of q, which o takes. 0: t and o are as they were. */
DEV int epilogue_quick(const attn_params *p, const attn_item *w, const attn_soft *t,
                       const tile_o *o, int stage) {
    float factor[TILE_ROWS], l[TILE_ROWS], sum = 0;
    int odd = w->row0 + tile_row(TILE_ROWS - 1) >= w->rows;
    if (!TILE_STORES || !(p->flags & ATTN_P_MAP_O) || p->sink) {
        return 0;
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        l[r] = row_sum(t->l[r]);
        factor[r] = ends_near(t->m[r], l[r]).factor;
        factor[r] *= p->drop_factor / (TILE_P_SCALE * TILE_O_SCALE);
        factor[r] *= softmax_unit_of(t, r);
        odd |= l[r] == 0.0f;
        sum = fma_f32(t->m[r], 0.0f, fma_f32(l[r], 0.0f, sum));
    }
    odd |= (tile_put(o, factor, stage) != 0) | (sum != 0.0f);
    if (warp_any(odd)) {
        return 0;
    }
    const i64 row = w->seq.q_row + w->row0;
    const ring_box at = {p->o.h ? w->h : 0, (i32)row + warp_row(), p->o.b ? w->b : 0};
    tile_send(stage, &p->map[3], &at);
    if (p->lse.data && row_lane() < TILE_ROWS) {
        const int r = row_lane();
        const attn_ends e = ends_near(r ? t->m[1] : t->m[0], r ? l[1] : l[0]);
        store_u32(rows_at(&p->lse, w->b, w->h, row + tile_row(r)), bits_of(e.lse));
    }
    return 1;
}
#endif

/* All rows but those of `wild`; o is used up. */
DEV void epilogue_tile(const attn_params *p, const attn_item *w, const attn_soft *t, tile_o *o,
                       u32 wild) {
    float ends[TILE_ROWS];
    epilogue_ends(p, w, t, wild, ends);
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        ends[r] *= p->drop_factor / (TILE_P_SCALE * TILE_O_SCALE);
        ends[r] *= softmax_unit_of(t, r);
    }
#if TILE_TURNS && ATTN_TYPE != ATTN_F32
    if (!EPILOGUE_QUICK && epilogue_plain(p)) {
        const u64 first = rows_at(&p->o, w->b, w->h, w->seq.q_row + w->row0 + tile_row(0));
        UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            epilogue_chunks(first + (u64)(TILE_DOWN(r) * p->o.n), p->DV, o->x[r],
                            ends[r], epilogue_has(w, r, wild));
        }
        return;
    }
#endif
#if ATTN_PRODUCER /* one text for both; without spare registers they would be spilled */
    ROLLED for (int r = 0; r < TILE_ROWS; r++) {
        epilogue_one(p, w, r, wild, o->x[0], ends[0]);
        ends[0] = ends[1];
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            o->x[0][c] = o->x[1][c];
        }
    }
#else
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        epilogue_one(p, w, r, wild, o->x[r], ends[r]);
    }
#endif
}

#endif
