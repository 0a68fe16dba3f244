/* sources.h: where tiles of q, k, v and dO come from.

   Who includes it: multistage.h, backward.h. producer.h says itself where its tiles come from. */
#ifndef ATTN_SOURCES_H
#define ATTN_SOURCES_H

#include "core/tile.h"
#include "core/work.h"

DEV tile_rows rows_of(const attn_rows *t, i64 b, i64 h, i64 row, i32 rows, i32 cols, i32 pack,
                      int vec) {
    tile_rows from;
    from.data = rows_at(t, b, h, row);
    from.n = t->n;
    from.h = t->h;
    from.rows = rows;
    from.cols = cols;
    from.pack = pack;
    from.vec = vec;
    return from;
}

/* All query rows of head h. */
DEV tile_rows source_q(const attn_params *p, const attn_item *w, i32 h) {
    const i32 rows = ATTN_KEY_ROWS ? w->seq.nq : w->rows;
    return rows_of(&p->q, w->b, h, w->seq.q_row, rows, p->D, p->pack,
                   (p->flags & ATTN_P_VEC_Q) != 0);
}
DEV tile_rows source_dout(const attn_params *p, const attn_item *w, i32 h) {
    return rows_of(&p->back.dout, w->b, h, w->seq.q_row, w->seq.nq, p->DV, 1,
                   (p->flags & ATTN_P_VEC_DOUT) != 0);
}
/* Keys behind the split's end need not be read: they are masked. */
DEV tile_rows source_k(const attn_params *p, const attn_item *w) {
    return rows_of(&p->k, w->b, w->hk, w->seq.k_row, w->k_end, p->D, 1,
                   (p->flags & ATTN_P_VEC_K) != 0);
}
DEV tile_rows source_v(const attn_params *p, const attn_item *w) {
    return rows_of(&p->v, w->b, w->hk, w->seq.k_row, w->k_end, p->DV, 1,
                   (p->flags & ATTN_P_VEC_V) != 0);
}

#endif
