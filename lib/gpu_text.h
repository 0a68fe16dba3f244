/* gpu_text.h: what gpu_text.c makes of a variant.

   Who includes it: gpu_kernel.c, gpu_params.c, tests. */
#ifndef ATTN_GPU_TEXT_H
#define ATTN_GPU_TEXT_H

#include "expr.h"
#include "vm_math.h"

/* 0: the score is s; the mask is true. */
int attn__has_score(const attn_variant *v);
int attn__has_mask(const attn_variant *v);
/* Where each symbol's words begin in attn_params.word; returns how many there are in all. */
int attn__variant_words(const attn_graph *g, int32_t word[ATTN__MAX_SYMBOLS]);
/* The text of "variant.h"; bound says which types the tensors have. backward: with derivatives.
   *source is malloc'ed. */
int attn__variant_source(const attn_variant *v, const attn__bound *bound, int backward,
                         char **source);

#endif
