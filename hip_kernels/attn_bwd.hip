/* attn_bwd.hip: attention backward, one side of it: dq of query rows, or dk and dv of key rows,
   fused with parts of dq (ATTN_FUSED).

   Who launches it: lib/gpu_bwd.c, after attn_bwd_rows, compiled once for each side: blocks of
   ATTN_THREADS threads with attn_bwd_shared bytes of shared memory, a block an item (work.h).

       item -> steps (range.h) -> sched/backward.h: products, p and g (grad.h), sums
                                                    |
           rows finite: grad_out.h                  v        otherwise: careful_grad.h, once more */
#include "target.h"

#include "core/params.h"

#include "core/work.h"

#include "core/careful_grad.h"
#include "core/grad_out.h"
#include "sched/backward.h"

#if ATTN_D != ATTN_DV
#error "backward is compiled with ATTN_D = ATTN_DV"
#endif

EXPORT(attn_bwd_shared, BACKWARD_SHARED_BYTES);

/* The block's number. Behind the loop its item is found anew, which takes no register in it. */
DEV i64 bwd_number(const attn_params *p) {
#if ATTN_ORDERED
    (void)p;
    return (i64)shared_load_u32((u32)ORDER_SHARED + ORDER_NUMBER);
#else
    return p->first + (i64)forget((u32)block_id());
#endif
}

DEV void attn_bwd_item(const attn_params *p, attn_item *w) {
    tile_o sum, sum_v;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            sum.x[r][c] = sum_v.x[r][c] = 0;
        }
    }
    backward(p, w, &sum, &sum_v);
    if (!work_item(p, bwd_number(p), w)) {
        return;
    }
    const u32 wild = (ATTN_SUMS & 1 ? grad_wild(w, &sum) : 0) |
                     (ATTN_SUMS & 2 ? grad_wild(w, &sum_v) : 0);
    grad_epilogue(p, w, &sum, &sum_v, wild);
    if (warp_any(wild != 0)) {
        careful_grads(p, w, wild);
    }
}

DEV void attn_bwd_body(const attn_params *p) {
    attn_item w;
#if ATTN_ORDERED
    order_begin(p, ORDER_SHARED);
#endif
    if (work_item(p, bwd_number(p), &w)) {
        attn_bwd_item(p, &w);
    }
}

ATTN_ENTRY(attn_bwd, attn_bwd_body, attn_params)
