/* gpu_grads.h: gradients of what a variant reads, on chips with kernels.

   Who includes it: gpu_kernel.h. */
#ifndef ATTN_GPU_GRADS_H
#define ATTN_GPU_GRADS_H

#include "gpu_params.h"

/* Part of a plan. */
typedef struct attn__gpu_grads {
    attn__text_grads text;
    int any;                          /* some are wanted, even if the score cannot move them */
    int words;                        /* of attn_params.word, the variant's and theirs */
    int uneven;                       /* sites that are added to pair by pair */
    uint64_t bytes;                   /* of sums in the workspace */
    uint64_t at[ATTN__MAX_SYMBOLS];   /* a symbol's first byte there */
    int64_t count[ATTN__MAX_SYMBOLS]; /* its elements */
} attn__gpu_grads;

#endif
