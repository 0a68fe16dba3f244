/* finish.h: how a tile of an item begins and ends, whatever the schedule.

   Who calls it: attn_fwd.hip, sched/producer.h.

       rows finite: epilogue.h         otherwise: careful.h, once more */
#ifndef ATTN_FINISH_H
#define ATTN_FINISH_H

#include "core/careful.h"
#include "core/epilogue.h"

DEV void finish_begin(attn_soft *t, tile_o *o) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            o->x[r][c] = 0;
        }
    }
    softmax_begin(t);
}

DEV void finish(const attn_params *p, const attn_item *w, attn_soft *t, tile_o *o) {
    softmax_end(t);
    const u32 wild = epilogue_sum(w, t, o);
    epilogue_tile(p, w, t, o, wild);
    if (warp_any(wild != 0)) {
        careful_rows(p, w, wild);
    }
}

#endif
