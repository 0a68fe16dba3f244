/* attn_fwd.hip: attention forward.

   Who launches it: lib/gpu_fwd.c: blocks of ATTN_THREADS threads with attn_fwd_shared bytes of
   shared memory each. Under multistage a block has one item, and there are numbers 0 ..
   ceil(items / xcds) * xcds - 1 of work.h, in as many launches as it takes; under producer there
   are as many blocks as the chip runs at a time, and each takes items until there are no more.

       item (work.h) -> key blocks (range.h) -> schedule (sched/): load, q.k, score, softmax, p.v
                                                    |
                                                    v
                                                finish.h */
#include "target.h"

#include "core/params.h"

#include "core/work.h"

#if ATTN_PRODUCER
#include "sched/producer.h"

DEV void attn_fwd_body(const attn_params *p) {
    producer(p);
}
#else
#include "core/finish.h"
#include "sched/multistage.h"

DEV void attn_fwd_item(const attn_params *p, const attn_item *w) {
    attn_soft t;
    tile_o o;
    finish_begin(&t, &o);
    multistage(p, w, &t, &o);
    const attn_item after = item_get(w);
    finish(p, &after, &t, &o);
}

/* A block has one item: in a loop over items compilers would keep all that depends on the lane
   alone in registers, through everything. */
DEV void attn_fwd_body(const attn_params *p) {
    attn_item w;
    if (work_item(p, p->first + block_id(), &w)) {
        if (thread_id() == 0) {
            item_put(&w);
        }
        attn_fwd_item(p, &w);
    }
}
#endif

EXPORT(attn_fwd_shared, ATTN_SHARED_BYTES);

ATTN_ENTRY(attn_fwd, attn_fwd_body, attn_params)
