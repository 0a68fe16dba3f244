/* cpu_walk.c: the key tiles that a tile of queries sees, in order.

   Who calls it: cpu_fwd and cpu_bwd. attn__runs gives (begin, end, class) at multiples of BN, a few
   at a time:

       keys      0     128    256    384    512    640
       runs            | part | full        |             at c = 256: 256, full; at c = 512: nk */
#include "cpu.h"

void attn__walk_begin(attn__walk *w, const attn__tile *t) {
    w->n = w->e = 0;
    w->at = 0;
    attn__tile_box(t, t->r0, t->rows, &w->box);
}

int attn__walk_next(attn__walk *w, const attn__tile *t, int c, int *class_) {
    const attn_variant *const v = t->run->p->variant;
    for (;;) {
        for (; w->e < w->n; w->e++) {
            const attn__run *const run = &w->runs[w->e];
            if (c < run->end) {
                *class_ = run->class_;
                return c > run->begin ? c : run->begin;
            }
        }
        w->e = 0;
        w->n = attn__runs(&v->graph, v->mask, &w->box, t->seq.k0, t->seq.nk, BN, &w->at, w->runs,
                          RUNS);
        if (w->n <= 0) {
            w->n = 0;
            return t->seq.nk;
        }
    }
}
