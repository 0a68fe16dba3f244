/* careful_grad.h: rows of gradients that are not finite, once more, pair by pair; backward's twin
   of careful.h, with the same meaning:

       for each such row      what it meets one after the other; lanes share the columns
           masked             never touched
           row of q NaN       p and g are NaN where it is visible
           dO not finite      is added to dv whatever p is, as that is never 0 but by rounding
           dP not finite      reaches dq and dk likewise

   Who calls it: attn_bwd.hip, where grad_wild saw such a row in the warp; attn_bwd_dq.hip. */
#ifndef ATTN_CAREFUL_GRAD_H
#define ATTN_CAREFUL_GRAD_H

#include "core/careful.h"
#include "core/grad_out.h"

/* A row's lane columns, CAREFUL_D of them at most, whose sums join each other. */
typedef struct careful_sums {
    float x[CAREFUL_D], v[CAREFUL_D];
} careful_sums;

DEV float careful_dot(u64 x, u64 y, i32 cols) {
    float dot = 0;
    for (i32 c = lane_id(); c < cols; c += TILE_LANES) {
        dot = fma_f32(careful_load(x, c), careful_load(y, c), dot);
    }
    return warp_sum(dot);
}

/* Query i of head w->h and key k: dq (of query rows), or dk and dv. */
DEV void careful_pair(const attn_params *p, const attn_item *w, i32 i, i32 k, careful_sums *t) {
    const i64 q_row = w->seq.q_row + i, k_row = w->seq.k_row + k;
    const u64 q = rows_at(&p->q, w->b, w->h, q_row), k_at = rows_at(&p->k, w->b, w->hk, k_row);
    const u64 v = rows_at(&p->v, w->b, w->hk, k_row);
    const u64 dout = rows_at(&p->back.dout, w->b, w->h, q_row);
    const attn_row row = score_row(p, w, i);
    const attn_stats stats = grad_stats(p, w, w->h, i);
    const int kept = !ATTN_HAS_DROPOUT || dropout_pair(p, w, &row, dropout_seed(p), k);
    const float s = careful_dot(q, k_at, p->D), dp = careful_dot(dout, v, p->DV);
    const attn_grad g = grad_pair(p, w, &row, k, &stats, 2, 0, 0, kept, s, dp);
    if (!g.seen || stats.lse == float_of(0x7f800000u)) {
        return;
    }
    for (int j = 0; j < CAREFUL_D; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        if (c < p->D) {
            t->x[j] = fma_f32(g.g, careful_load(ATTN_KEY_ROWS ? q : k_at, c), t->x[j]);
        }
        if (ATTN_KEY_ROWS && c < p->DV && g.w != 0) {
            const float x = careful_load(dout, c);
            t->v[j] = fma_f32(g.p * g.w, is_finite(x) ? x : 0, t->v[j]);
            t->v[j] = is_finite(x) ? t->v[j] : fma_f32(g.w, x, t->v[j]);
        }
    }
}

DEV void careful_store(const attn_rows *to, i32 type, const attn_item *w, i64 row, i32 cols,
                       float factor, const float *x) {
    for (int j = 0; j < CAREFUL_D; j++) {
        const i32 c = lane_id() + j * TILE_LANES;
        if (c < cols) {
            store_one(rows_at(to, w->b, ATTN_KEY_ROWS ? w->hk : w->h, row), type, c,
                      x[j] * factor);
        }
    }
}

/* Row r of the sequence. */
DEV void careful_grad_row(const attn_params *p, attn_item *w, i32 r) {
    careful_sums t;
    for (int j = 0; j < CAREFUL_D; j++) {
        t.x[j] = t.v[j] = 0;
    }
#if ATTN_KEY_ROWS
    for (w->h = w->hk * p->group; w->h < (w->hk + 1) * p->group; w->h++) {
        for (i32 i = 0; i < w->seq.nq; i++) {
            careful_pair(p, w, i, r, &t);
        }
    }
#else
    for (i32 k = w->k_begin; k < w->k_end; k++) {
        careful_pair(p, w, r, k, &t);
    }
#endif
    const i64 row = grad_row(w, r);
    if (ATTN_SUMS & 1 && p->back.to.data) {
        careful_store(&p->back.to, p->back.to_type, w, row, p->D, grad_factor(p), t.x);
    }
    if (ATTN_SUMS & 2) {
        careful_store(&p->back.to_v, p->back.to_v_type, w, row, p->DV, 1, t.v);
    }
}

/* Those of the block's rows that this warp has marked. */
DEV void careful_grads(const attn_params *p, attn_item *w, u32 wild) {
    for (i32 row = 0; row < ATTN_BM; row++) {
        if (careful_marked(row, wild)) {
            careful_grad_row(p, w, w->row0 + row);
        }
    }
}

#endif
