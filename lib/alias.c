/* alias.c: what a call writes begins nowhere else.

   Who calls it: problem.c at a run, merge.c. Tensors may interleave, and whether two of them share
   an element is a question of number theory; two first elements at one address are one element and
   the mistake that is made. */
#include "expr.h"

#include <stdio.h>

int attn__check_alias(const char *written, const void *at, const char *other, const void *there) {
    return at && at == there ? attn__fail(ATTN_LAYOUT, written,
                                          "%s is written, but %s begins at the same address, %p",
                                          written, other, at)
                             : ATTN_OK;
}

enum { MOST_FIXED = 24, MOST = MOST_FIXED + 2 * ATTN__MAX_SYMBOLS };

/* First elements, those that are written first. */
typedef struct place {
    const char *name;
    const void *at;
} place;
typedef struct places {
    place place[MOST];
    int n;
} places;

static void add(places *all, const char *name, const void *at) {
    all->place[all->n++] = (place){name, at};
}

static void add_written(places *all, const attn__problem *p) {
    if (p->direction == ATTN_FORWARD) {
        add(all, "o", p->o.data);
        add(all, "lse", p->lse.data);
        return;
    }
    add(all, "dq", p->dq.data);
    add(all, "dk", p->dk.data);
    add(all, "dv", p->dv.data);
    add(all, "dsink", p->dsink.data);
}

static void add_read(places *all, const attn__problem *p) {
    if (p->direction == ATTN_BACKWARD) {
        add(all, "o", p->o.data);
        add(all, "lse", p->lse.data);
        add(all, "dout", p->dout.data);
        add(all, "dlse", p->dlse.data);
    }
    add(all, "q", p->q.data);
    add(all, "k", p->k.data);
    add(all, "v", p->v.data);
    add(all, "sink", p->sink.data);
    add(all, "q_offsets", p->q_offsets);
    add(all, "k_offsets", p->k_offsets);
    add(all, "q_used", p->q_used);
    add(all, "k_used", p->k_used);
    add(all, "q_scale", p->q_scale.data);
    add(all, "k_scale", p->k_scale.data);
    add(all, "v_scale", p->v_scale.data);
    add(all, "blocks.counts", p->block_counts.data);
    add(all, "blocks.indices", p->block_indices.data);
}

int attn__check_aliases(const attn__problem *p) {
    const attn_graph *const g = &p->variant->graph;
    char grad[ATTN__MAX_SYMBOLS][ATTN__NAME + 16];
    places all;
    all.n = 0;
    add_written(&all, p);
    for (int i = 0; p->direction == ATTN_BACKWARD && i < g->n_symbols; i++) {
        snprintf(grad[i], sizeof grad[i], "captures.%s.grad", g->symbol[i].name);
        add(&all, grad[i], p->bound[i].grad);
    }
    const int written = all.n;
    add_read(&all, p);
    for (int i = 0; i < g->n_symbols; i++) {
        add(&all, g->symbol[i].name, p->bound[i].data);
    }
    for (int i = 0; i < written; i++) {
        for (int j = i + 1; j < all.n; j++) {
            const place *const a = &all.place[i], *const b = &all.place[j];
            ATTN_TRY(attn__check_alias(a->name, a->at, b->name, b->at));
        }
    }
    return ATTN_OK;
}
