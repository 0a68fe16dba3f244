/* gpu_text_int.h: what gpu_text.c and gpu_text_grad.c share: text that grows, and a node's line.

   Who includes it: they. */
#ifndef ATTN_GPU_TEXT_INT_H
#define ATTN_GPU_TEXT_INT_H

#include "gpu_text.h"

typedef struct attn__text {
    char *at;
    size_t n, cap;
    int failed;
} attn__text;

void attn__put(attn__text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define put attn__put
/* The line that computes a node as x<number>. word: where each symbol's words begin. */
void attn__put_node(attn__text *t, const attn_graph *g, const int32_t *word, int at);
/* attn_grads and attn_grads_end, which core/grad.h describes. need: room for every node. */
void attn__put_grads(attn__text *t, const attn__adjoint *a, const int32_t *word,
                     const attn__text_grads *grads, uint8_t *need);

#endif
