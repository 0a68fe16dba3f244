/* cpu_walk.c: the key tiles that a tile of queries sees, in order.

   Who calls it: cpu_fwd and cpu_bwd. The limits of the rows tell where to begin and to end; between
   attn__runs gives (begin, end, class) at multiples of BN, a few at a time:

       keys      0     128    256    384    512    640
       runs            | part | full        |             at c = 256: 256, full; at c = 512: nk */
#include "cpu.h"

void attn__walk_begin(attn__walk *w, const attn__tile *t, int begin) {
    int64_t first = t->seq.nk, last = 0, from[BM], to[BM];
    attn__limits_rows(t, t->r0, t->rows, from, to);
    for (int i = 0; i < t->rows; i++) {
        if (from[i] < to[i]) {
            first = from[i] < first ? from[i] : first;
            last = to[i] > last ? to[i] : last;
        }
    }
    first = first / BN * BN;
    last = (last + BN - 1) / BN * BN;
    w->n = w->e = 0;
    w->at = first > begin ? (int32_t)first : begin;
    w->end = last < t->seq.nk ? (int32_t)last : t->seq.nk;
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
        w->n =
            attn__runs(&v->graph, v->mask, &w->box, t->seq.k0, w->end, BN, &w->at, w->runs, RUNS);
        if (w->n <= 0) {
            w->n = 0;
            return t->seq.nk;
        }
    }
}
