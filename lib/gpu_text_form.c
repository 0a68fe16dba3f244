/* gpu_text_form.c: scores of a form for which softmax has exponents of its own.

   Who calls it: gpu_text_score.c, which asks what a multiple of s is, too; gpu_fwd.c.

       s - f |q - k|         core/fall.h     #define ATTN_SCORE_FALL(held)     f, of attn_score_hold
       c tanh(g s)           core/cap.h      #define ATTN_SCORE_CAP, ATTN_SCORE_GAIN */
#include "gpu_text_int.h"

#include <math.h>
#include <stdlib.h>

static const attn__node *arg_of(const attn_graph *g, const attn__node *node, int n) {
    return &g->node[node->u.arg[n]];
}
static int is_leaf(const attn__node *node, int leaf) {
    return node->op == OP_leaf && node->sym == leaf;
}

int attn__is_number(const attn__node *node) {
    return node->op == OP_const && node->type == VT_F32 && fabsf(node->u.value.f) >= 0x1p-60f &&
           fabsf(node->u.value.f) <= 0x1p60f;
}

float attn__gain_of_s(const attn_graph *g, int at) {
    const attn__node *const node = &g->node[at];
    if (is_leaf(node, LEAF_s)) {
        return 1;
    }
    if (node->op == OP_neg && node->type == VT_F32) {
        return -attn__gain_of_s(g, node->u.arg[0]);
    }
    if ((node->op != OP_mul && node->op != OP_div) || node->type != VT_F32) {
        return 0;
    }
    for (int j = 0; j < (node->op == OP_mul ? 2 : 1); j++) {
        const attn__node *const by = arg_of(g, node, 1 - j);
        if (attn__is_number(by)) {
            const float number = by->u.value.f, gain = attn__gain_of_s(g, node->u.arg[j]);
            return node->op == OP_mul ? gain * number : gain / number;
        }
    }
    return 0;
}

/* f32 of |q - k|. */
static int is_distance(const attn_graph *g, const attn__node *node) {
    const attn__node *const size = node->op == OP_float ? arg_of(g, node, 0) : node;
    const attn__node *const d = size->op == OP_abs ? arg_of(g, size, 0) : size;
    if (node->op != OP_float || size->op != OP_abs || d->op != OP_sub) {
        return 0;
    }
    const attn__node *const a = arg_of(g, d, 0), *const b = arg_of(g, d, 1);
    return (is_leaf(a, LEAF_q) && is_leaf(b, LEAF_k)) || (is_leaf(a, LEAF_k) && is_leaf(b, LEAF_q));
}

int attn__fall_of(const attn_graph *g, int root, int *sign) {
    const attn__node *const sum = &g->node[root];
    *sign = sum->op == OP_sub ? 1 : -1;
    if ((sum->op != OP_sub && sum->op != OP_add) || sum->type != VT_F32) {
        return -1;
    }
    const int s = sum->op == OP_add && is_leaf(arg_of(g, sum, 1), LEAF_s) ? 1 : 0;
    const attn__node *const product = arg_of(g, sum, 1 - s);
    if (!is_leaf(arg_of(g, sum, s), LEAF_s) || product->op != OP_mul) {
        return -1;
    }
    return is_distance(g, arg_of(g, product, 0))   ? product->u.arg[1]
           : is_distance(g, arg_of(g, product, 1)) ? product->u.arg[0]
                                                   : -1;
}

/* Powers of numbers of that size stay in f32. */
static int is_moderate(float x) {
    return x >= 0x1p-20f && x <= 0x1p20f;
}

/* c, and g, of c tanh(g s); NULL: it is something else. */
static const attn__node *cap_of(const attn_graph *g, int root, float *gain) {
    const attn__node *const node = &g->node[root];
    for (int j = 0; j < 2 && node->op == OP_mul && node->type == VT_F32; j++) {
        const attn__node *const tanh = arg_of(g, node, j), *const cap = arg_of(g, node, 1 - j);
        *gain = tanh->op == OP_tanh ? attn__gain_of_s(g, tanh->u.arg[0]) : 0;
        if (*gain != 0 && attn__is_number(cap) && *gain * cap->u.value.f > 0 &&
            is_moderate(fabsf(*gain)) && is_moderate(fabsf(cap->u.value.f))) {
            return cap;
        }
    }
    return NULL;
}

void attn__put_cap(attn__text *t, const attn_graph *g, int root) {
    attn__node gain = {.type = VT_F32};
    const attn__node *const cap = cap_of(g, root, &gain.u.value.f);
    if (cap) {
        put(t, "#define ATTN_SCORE_CAP ");
        attn__put_constant(t, cap);
        put(t, "\n#define ATTN_SCORE_GAIN ");
        attn__put_constant(t, &gain);
        put(t, "\n");
    }
}

/* It is one for all pairs of a head. */
static int is_of_head(const attn_graph *g, int root) {
    uint8_t *const need = attn__alloc((size_t)g->n, "a plan");
    int is = need != NULL;
    if (need) {
        attn__need(g, &root, 1, need);
    }
    for (int i = 0; i <= root && is; i++) {
        const int leaf = g->node[i].op == OP_leaf ? g->node[i].sym : LEAF_h;
        is = !need[i] || (leaf != LEAF_s && leaf != LEAF_q && leaf != LEAF_k && leaf != LEAF_i);
    }
    free(need);
    return is;
}

enum attn__form attn__form_of(const attn_variant *v) {
    int sign;
    float gain;
    const int fall = attn__has_score(v) ? attn__fall_of(&v->graph, v->score, &sign) : -1;
    return !attn__has_score(v)                         ? FORM_NONE
           : fall >= 0 && is_of_head(&v->graph, fall)  ? FORM_FALL
           : cap_of(&v->graph, v->score, &gain)        ? FORM_CAP
                                                       : FORM_PAIRS;
}
