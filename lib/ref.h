/* ref.h: what the two halves of the oracle share.

   Who includes it: ref.c (plans, scratch, the loop over heads) and ref_row.c (one row). */
#ifndef ATTN_REF_H
#define ATTN_REF_H

#include "expr.h"

enum { ATTN__REF_SCORE, ATTN__REF_GRADIENT }; /* what a pair is evaluated for */

/* Of a plan. */
typedef struct attn__ref_state {
    attn__adjoint *adjoint; /* backward */
    const attn_graph *g;
    int32_t score, mask;
    int32_t last[2];  /* the highest node that is needed */
    uint8_t *need[2]; /* [g->n] */
} attn__ref_state;

/* Of a run: one (b, h) and its scratch, which lies in the workspace. */
typedef struct attn__ref_work {
    const attn__problem *p;
    const attn__ref_state *st;
    attn__seq seq;
    int64_t b, h, hk;
    attn__env env;
    attn__val *val;                  /* [g->n] */
    double *s, *score;               /* [NK] */
    uint8_t *visible, *keep;         /* [NK] */
    double *q, *dq;                  /* [D] */
    double *o, *dout;                /* [DV] */
    double *k, *v;                   /* [NK][D], [NK][DV]: the key head's rows */
    double *dk, *dv;                 /* the same: sums over the query heads of the key head */
    double *dsink;                   /* [H] */
    double *grad[ATTN__MAX_SYMBOLS]; /* of the shape of symbol i, compact; NULL: not wanted */
} attn__ref_work;

/* ref_row.c: local row `row` of head w->h: stores o and lse, or stores dq and adds to dk, dv, dsink
   and the gradients of what the variant reads. */
void attn__ref_forward_row(attn__ref_work *w, int64_t row);
void attn__ref_backward_row(attn__ref_work *w, int64_t row);
/* One row of a tensor; a result is rounded, and nothing is done if it is absent. */
void attn__ref_load(double *to, const attn__view *t, int64_t b, int64_t h, int64_t row);
void attn__ref_store(const attn__view *t, int64_t b, int64_t h, int64_t row, const double *from);

#endif
