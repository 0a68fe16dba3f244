/* score.h: from dot products to scores: scale, the variant's score and mask, ends of rows.

   Who calls it: sched/. The variant is text that the host makes (lib/gpu_text.c) and gives to the
   compiler as "variant.h"; with ATTN_HAS_SCORE, ATTN_HAS_MASK it defines, of the graph's nodes:

       DEV float attn_score(const attn_params *p, const attn_pair *at, float s)
       DEV int attn_mask(const attn_params *p, const attn_pair *at, float s)      1: visible
       DEV int attn_class(const attn_params *p, const attn_box *box)              of the mask:
           0 no pair of the box is visible, 2 all are, 1 otherwise or not known; s is any number

   Both take global positions, as the leaves of the variant language have them. */
#ifndef ATTN_SCORE_H
#define ATTN_SCORE_H

/* The leaves but s, of one pair. */
typedef struct attn_pair {
    i32 b, h, q, k, i, nq, nk, nh, hk, batch;
} attn_pair;

/* Pairs of one batch entry: heads h0..h1, rows i0..i1 (q0..q1), keys k0..k1, all inclusive. */
typedef struct attn_box {
    i32 b, h0, h1, q0, q1, i0, i1, k0, k1, nq, nk, nh, hk, batch;
} attn_box;

#if ATTN_HAS_SCORE || ATTN_HAS_MASK
#include "variant.h"
#endif

#endif
