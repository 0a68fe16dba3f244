/* gpu_text.h: what gpu_text.c makes of a variant.

   Who includes it: gpu_kernel.c, gpu_params.c, tests. */
#ifndef ATTN_GPU_TEXT_H
#define ATTN_GPU_TEXT_H

#include "expr.h"
#include "vm_math.h"

/* 0: the score is s; the mask is true. */
int attn__has_score(const attn_variant *v);
int attn__has_mask(const attn_variant *v);
/* gpu_text_form.c: which exponents softmax has for the score. */
enum attn__form { FORM_NONE, FORM_FALL, FORM_CAP, FORM_PAIRS };
enum attn__form attn__form_of(const attn_variant *v);
/* Where each symbol's words begin in attn_params.word; returns how many there are in all. The last
   one of a tensor is the address of its table, core/spans.h, or 0. */
int attn__variant_words(const attn_graph *g, int32_t word[ATTN__MAX_SYMBOLS]);
/* gpu_spans.c: has[i]: symbol i, which the mask `root` reads, has a table of core/spans.h. need: of
   root; varies: room for every node. */
void attn__span_symbols(const attn_graph *g, const uint8_t *need, int root, uint8_t *varies,
                        uint8_t has[ATTN__MAX_SYMBOLS]);
/* How the gradients of what a variant reads are summed; lib/gpu_grads.c has the reasons. */
enum attn__grad_how { GRAD_NONE, GRAD_ALONE, GRAD_EXACT };
typedef struct attn__text_grads {
    int n_sites;                      /* whose gradients are wanted; 0: none are */
    int32_t how[ATTN__MAX_SYMBOLS];   /* enum attn__grad_how */
    int32_t word[ATTN__MAX_SYMBOLS];  /* the first of its words: address, then strides in bytes */
} attn__text_grads;
/* Whether the site's element is one for all pairs of a batch entry and head. */
int attn__site_is_even(const attn__adjoint *a, const attn__site *site, uint8_t *need);
/* The text of "variant.h"; bound says which types the tensors have. backward: with derivatives;
   grads: NULL or with gradients of what is read. *source is malloc'ed. */
int attn__variant_source(const attn_variant *v, const attn__bound *bound, int backward,
                         const attn__text_grads *grads, char **source);

#endif
