/* gpu_text_int.h: what gpu_text.c, gpu_text_score.c, gpu_text_form.c, gpu_text_mask.c,
   gpu_text_class.c and gpu_text_grad.c share: text that grows, and a node's line.

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
static inline const char *attn__c_type(int type) {
    return type == VT_F32 ? "float" : "i32";
}
void attn__put_constant(attn__text *t, const attn__node *node);
/* The line that computes a node as x<number>. word: where each symbol's words begin. */
void attn__put_node(attn__text *t, const attn_graph *g, const int32_t *word, int at);
/* attn_score of the score `root` and what score.h wants to know of it. need: as below. */
int attn__put_score(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                    uint8_t *need);
/* attn_score_grad of what `a` derives, behind attn_score. need: room for every node. */
int attn__put_score_grad(attn__text *t, const attn__adjoint *a, const int32_t *word,
                         uint8_t *need);
/* gpu_text_form.c: a constant that one may divide by; g of a node g * s, 0: it is none. */
int attn__is_number(const attn__node *node);
float attn__gain_of_s(const attn_graph *g, int at);
/* f of s - f |q - k|, or, with sign -1, of s + f |q - k|; -1: it is something else. */
int attn__fall_of(const attn_graph *g, int root, int *sign);
/* Of a score c tanh(g s), c and g of one sign, their lines; of others none. */
void attn__put_cap(attn__text *t, const attn_graph *g, int root);

/* The line of a node that is a distance of q and k as f32, for functions with `near`; 0: none. */
int attn__put_near(attn__text *t, const attn_graph *g, int at);
/* gpu_text_mask.c: attn_mask_ends and attn_mask_rest of the mask `root`. need: as above. */
int attn__put_mask_parts(attn__text *t, const attn_graph *g, const int32_t *word, int root,
                         uint8_t *need);
/* attn_class of the mask `root`, behind the readers of its tensors. tables: they have those of
   core/spans.h. need: room for every node. */
int attn__put_class(attn__text *t, const attn_graph *g, const int32_t *word, int root, int tables,
                    uint8_t *need);
/* attn_grads and attn_grads_end, which core/grad.h describes. need: room for every node. */
void attn__put_grads(attn__text *t, const attn__adjoint *a, const int32_t *word,
                     const attn__text_grads *grads, uint8_t *need);

#endif
