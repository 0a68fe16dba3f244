/* expr_compose.c: an expression becomes a variant (score and mask), variants become one.

   Who calls it: variants.c (parse, compose, any) and graph.c (finish).

   Splitting walks the selects at the root. An arm of -inf is masked there, and the score needs no
   select for it:

       c ? x : -inf               score x             mask c
       c ? (d ? x : -inf) : y     score c ? x : y     mask c ? d : true
       k <= q                     score s             mask k <= q

   Composition runs left to right: scores chain, masks AND, and what a part masked by a mask or by a
   score of -inf stays masked whatever the later parts make of it. A final score of -inf is masked
   by whoever evaluates the variant. */
#include "expr.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Splitting --------------------------------------------------------------------------------- */

static int is_masked(const attn__node *node) {
    return node->op == OP_const && node->type == VT_F32 && node->u.value.f == -INFINITY;
}

static int is_bool(const attn_graph *g, int node, int value) {
    return g->node[node].op == OP_const && g->node[node].type == VT_BOOL &&
           g->node[node].u.value.i == value;
}

/* Score and mask of a select from those of its arms; -1 as a score: masked everywhere. */
static int split_select(attn_graph *g, int condition, const int32_t score[2], const int32_t mask[2],
                        int32_t *score_out, int32_t *mask_out) {
    if (score[0] < 0 || score[1] < 0) {
        *score_out = score[0] < 0 ? score[1] : score[0];
    } else {
        *score_out = attn__op(g, OP_select, condition, score[0], score[1]);
        ATTN_TRY(*score_out);
    }
    *mask_out = attn__op(g, OP_select, condition, mask[0], mask[1]);
    return *mask_out;
}

/* Scores and masks of the nodes of select trees, from below; `live` marks the trees. */
static int split_number(attn_graph *g, int root, const uint8_t *live, int32_t *score,
                        int32_t *mask) {
    const int yes = attn__const_b(g, 1), no = attn__const_b(g, 0);
    ATTN_TRY(yes);
    ATTN_TRY(no);
    for (int at = 0; at <= root; at++) {
        const attn__node node = g->node[at];
        if (!live[at]) {
            continue;
        }
        if (is_masked(&node)) {
            score[at] = -1;
            mask[at] = no;
        } else if (node.op != OP_select) {
            score[at] = at;
            mask[at] = yes;
        } else {
            const int32_t scores[2] = {score[node.u.arg[1]], score[node.u.arg[2]]};
            const int32_t masks[2] = {mask[node.u.arg[1]], mask[node.u.arg[2]]};
            ATTN_TRY(split_select(g, node.u.arg[0], scores, masks, &score[at], &mask[at]));
        }
    }
    return ATTN_OK;
}

int attn__split(attn_graph *g, int root, int *score, int *mask) {
    if (g->node[root].type == VT_BOOL) {
        *mask = root;
        *score = attn__leaf(g, LEAF_s);
        return *score < 0 ? *score : ATTN_OK;
    }
    root = attn__op(g, OP_float, root, -1, -1);
    ATTN_TRY(root);
    const size_t n = (size_t)root + 1;
    int32_t *const scores = (int32_t *)attn__alloc(n * (2 * sizeof *scores + 1), "a variant");
    if (!scores) {
        return ATTN_MEMORY;
    }
    int32_t *const masks = scores + n;
    uint8_t *const live = (uint8_t *)(masks + n);
    memset(live, 0, n);
    live[root] = 1;
    for (int at = root; at >= 0; at--) {
        if (live[at] && g->node[at].op == OP_select) {
            live[g->node[at].u.arg[1]] = live[g->node[at].u.arg[2]] = 1;
        }
    }
    const int status = split_number(g, root, live, scores, masks);
    *score = scores[root];
    *mask = masks[root];
    free(scores);
    ATTN_TRY(status);
    if (*score < 0 || is_bool(g, *mask, 0)) {
        *score = attn__leaf(g, LEAF_s);
        ATTN_TRY(*score);
    }
    return ATTN_OK;
}

/* -- The frozen variant ------------------------------------------------------------------------ */

/* Brings (score, mask) to the form that parsing the printed text would give: the split of
   `mask ? score : -inf` until nothing changes; each round makes the score smaller. */
static int normalize(attn_graph *g, int *score, int *mask) {
    for (;;) {
        const int before[2] = {*score, *mask};
        const int masked = attn__const_f(g, -INFINITY);
        const int root = attn__op(g, OP_select, *mask, *score, masked);
        ATTN_TRY(root);
        ATTN_TRY(attn__split(g, root, score, mask));
        if (*score == before[0] && *mask == before[1]) {
            return ATTN_OK;
        }
    }
}

int attn__variant_new(attn_graph *g, int score, int mask, attn_variant **out) {
    score = attn__op(g, OP_float, score, -1, -1);
    ATTN_TRY(score);
    ATTN_TRY(normalize(g, &score, &mask));
    attn_variant *const v = (attn_variant *)attn__alloc(sizeof *v, "a variant");
    if (!v) {
        return ATTN_MEMORY;
    }
    memset(v, 0, sizeof *v);
    v->refs = 1;
    attn__graph_init(&v->graph);
    int status = v->mask = attn__graph_import(&v->graph, g, mask, -1);
    if (status >= 0) {
        status = v->score = attn__graph_import(&v->graph, g, score, -1);
    }
    if (status >= 0) {
        status = attn__print(&v->graph, v->score, v->mask, &v->text);
    }
    if (status < 0) {
        attn_variant_release(v);
        return status;
    }
    *out = v;
    return ATTN_OK;
}

/* -- Composition ------------------------------------------------------------------------------- */

static int check_parts(const attn_variant *const *parts, int n, attn_variant **variant) {
    if (n < 0 || (n > 0 && !parts) || !variant) {
        return attn__fail(ATTN_INVALID, variant ? "parts" : "variant",
                          "n is %d, parts is %s, variant is %s", n, parts ? "given" : "NULL",
                          variant ? "given" : "NULL");
    }
    for (int i = 0; i < n; i++) {
        if (!parts[i]) {
            return attn__fail(ATTN_INVALID, "parts", "parts[%d] is NULL", i);
        }
    }
    return ATTN_OK;
}

/* The range of a score over every pair of every plan, with a finite or NaN s: a pair whose q . k is
   -inf is masked by itself. */
static int score_range(const attn_graph *g, int score, attn__range *range) {
    attn__range *const ranges =
        (attn__range *)attn__alloc((size_t)(score + 1) * sizeof *ranges, "a composition");
    if (!ranges) {
        return ATTN_MEMORY;
    }
    attn__box box;
    attn__box_init(&box, NULL);
    box.no_overflow = 1;
    box.leaf[LEAF_s] = (attn__range){-(double)FLT_MAX, (double)FLT_MAX, 1};
    attn__ranges(g, score, &box, ranges);
    *range = ranges[score];
    free(ranges);
    return ATTN_OK;
}

/* 1 if the parts after the i-th turn a score of -inf into -inf, whatever else they read. */
static int keeps_masked(const attn_variant *const *parts, int i, int n) {
    attn_graph g;
    attn__range range;
    attn__graph_init(&g);
    int score = attn__const_f(&g, -INFINITY);
    while (++i < n && score >= 0) {
        score = attn__graph_import(&g, &parts[i]->graph, parts[i]->score, score);
    }
    const int status = score < 0 ? score : score_range(&g, score, &range);
    attn__graph_clear(&g);
    ATTN_TRY(status);
    return range.hi == -INFINITY && !range.nan;
}

/* mask = mask AND part.mask[s := score] AND (part.score[s := score] != -inf); score =
   part.score[s := score]. The comparison is left out where the score cannot be -inf, and where -inf
   stays -inf to the end, which masks as well. */
static int compose_part(attn_graph *g, const attn_variant *const *parts, int i, int n, int *score,
                        int *mask) {
    const attn_variant *const part = parts[i];
    const int s = *score;
    const int visible = attn__graph_import(g, &part->graph, part->mask, s);
    ATTN_TRY(visible);
    *score = attn__graph_import(g, &part->graph, part->score, s);
    ATTN_TRY(*score);
    *mask = attn__op(g, OP_and, *mask, visible, -1);
    ATTN_TRY(*mask);
    if (*score == s) {
        return ATTN_OK;
    }
    attn__range range;
    ATTN_TRY(score_range(g, *score, &range));
    const int kept = range.lo > -INFINITY ? 1 : keeps_masked(parts, i, n);
    ATTN_TRY(kept);
    if (!kept) {
        const int masked = attn__const_f(g, -INFINITY);
        const int open = attn__op(g, OP_ne, *score, masked, -1);
        *mask = attn__op(g, OP_and, *mask, open, -1);
    }
    return *mask < 0 ? *mask : ATTN_OK;
}

static int compose(const attn_variant *const *parts, int n, attn_variant **variant) {
    attn_graph g;
    attn__graph_init(&g);
    int score = attn__leaf(&g, LEAF_s), mask = attn__const_b(&g, 1);
    int status = score < 0 ? score : mask;
    for (int i = 0; i < n && status >= 0; i++) {
        status = compose_part(&g, parts, i, n, &score, &mask);
    }
    if (status >= 0) {
        status = attn__variant_new(&g, score, mask, variant);
    }
    attn__graph_clear(&g);
    return status;
}

/* The parts joined by OR: in the graph, so that what they share is shared. */
static int any_mask(attn_graph *g, const attn_variant *const *parts, int n, int s) {
    int mask = attn__const_b(g, 0);
    for (int i = 0; i < n && mask >= 0; i++) {
        const attn_variant *const part = parts[i];
        const attn__node *const score = &part->graph.node[part->score];
        if (score->op != OP_leaf || score->sym != LEAF_s) {
            return attn__fail(ATTN_VARIANT, "parts",
                              "parts[%d] changes the score; only masks can be joined by OR", i);
        }
        const int visible = attn__graph_import(g, &part->graph, part->mask, s);
        mask = attn__op(g, OP_or, mask, visible, -1);
    }
    return mask;
}

static int any(const attn_variant *const *parts, int n, attn_variant **variant) {
    attn_graph g;
    attn__graph_init(&g);
    const int s = attn__leaf(&g, LEAF_s);
    const int mask = s < 0 ? s : any_mask(&g, parts, n, s);
    const int status = mask < 0 ? mask : attn__variant_new(&g, s, mask, variant);
    attn__graph_clear(&g);
    return status;
}

/* `variant` may be the place of a part: it is written last. */
static int join(int (*how)(const attn_variant *const *, int, attn_variant **),
                const attn_variant *const *parts, int n, attn_variant **variant) {
    attn_variant *made = NULL;
    int status = check_parts(parts, n, variant);
    if (status >= 0) {
        status = how(parts, n, &made);
    }
    if (variant) {
        *variant = made;
    }
    return status;
}

int attn_variant_compose(const attn_variant *const *parts, int n, attn_variant **variant) {
    return join(compose, parts, n, variant);
}

int attn_variant_any(const attn_variant *const *parts, int n, attn_variant **variant) {
    return join(any, parts, n, variant);
}
