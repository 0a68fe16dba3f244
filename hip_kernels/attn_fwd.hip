/* attn_fwd.hip: attention forward.

   Who launches it: lib/gpu.c: blocks of ATTN_THREADS threads with attn_fwd_shared bytes of shared
   memory each; numbers 0 .. ceil(items / xcds) * xcds - 1 of work.h, in as many launches as it
   takes.

       item (work.h) -> key blocks (range.h) -> schedule (sched/): load, q.k, score, softmax, p.v
                                                    |
           rows finite: epilogue.h                  v         otherwise: careful.h, once more   */
#include "target.h"

#include "core/params.h"

#include "core/work.h"

#include "core/careful.h"
#include "core/epilogue.h"
#include "sched/multistage.h"

EXPORT(attn_fwd_shared, ATTN_SHARED_BYTES);

DEV void attn_fwd_item(const attn_params *p, const attn_item *w) {
    attn_item after; /* the same item: where registers are few, the loop does not keep it */
    attn_soft t;
    tile_o o;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            o.x[r][c] = 0;
        }
    }
    softmax_begin(&t);
    multistage(p, w, &t, &o);
    if (ISA_FORGETS) {
        work_item(p, p->first + (i64)forget((u32)block_id()), &after);
    } else {
        after = *w;
    }
    const u32 wild = epilogue_sum(&after, &t, &o);
    epilogue_tile(p, &after, &t, &o, wild);
    if (warp_any(wild != 0)) {
        careful_rows(p, &after, wild);
    }
}

/* A block has one item: in a loop over items compilers would keep all that depends on the lane
   alone in registers, through everything. */
DEV void attn_fwd_body(const attn_params *p) {
    attn_item w;
    if (work_item(p, p->first + block_id(), &w)) {
        attn_fwd_item(p, &w);
    }
}

ATTN_ENTRY(attn_fwd, attn_fwd_body, attn_params)
