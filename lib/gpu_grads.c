/* gpu_grads.c: gradients of what a variant reads, on chips with kernels.

   Who calls it: gpu_bwd.c. Many pairs may add to one element, from any block, and the sum must not
   depend on who comes when:

       alone   The one site's indices hold k, the row, and b and h (or there is one of them): each
               element has one pair, which adds to the gradient itself. A dense bias.
       exact   Otherwise: sums of whole numbers in the workspace (core/exact.h), EXACT_BYTES an
               element, which at last become the gradient. Refused above MOST_BYTES: a dense bias
               that heads or batch entries share.

   cpu_grad.c is the processor's twin. */
#include "gpu_kernel.h"

#include "../hip_kernels/core/grads.h"

#include <stdlib.h>
#include <string.h>

enum { EXACT_BYTES = 264 }; /* core/exact.h's */
static const int64_t most_bytes = (int64_t)1 << 30;

static int64_t count_of(const attn__bound *t, int rank) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= t->n[i];
    }
    return n;
}

static int is_alone(const attn__adjoint *a, const attn__site *site, const attn__problem *p) {
    int has[LEAF_COUNT] = {0};
    for (int i = 0; i < site->n; i++) {
        const attn__node *const node = &a->graph.node[site->index[i]];
        if (node->op == OP_leaf) {
            has[node->sym] = 1;
        }
    }
    return has[LEAF_k] && (has[LEAF_i] || has[LEAF_q]) && (has[LEAF_b] || p->B == 1) &&
           (has[LEAF_h] || p->H == 1);
}

static int plan_sites(attn__gpu_grads *to, const attn__adjoint *a, const attn__problem *p) {
    int sites[ATTN__MAX_SYMBOLS] = {0};
    uint8_t *const need = attn__alloc((size_t)a->graph.n, "a plan");
    if (!need) {
        return ATTN_MEMORY;
    }
    for (int i = 0; i < a->n_sites; i++) {
        sites[a->site[i].symbol]++;
    }
    for (int i = 0; i < a->n_sites; i++) {
        const int s = a->site[i].symbol;
        if (!p->bound[s].has_grad) {
            continue;
        }
        to->text.n_sites++;
        to->uneven += !attn__site_is_even(a, &a->site[i], need);
        to->text.how[s] =
            sites[s] == 1 && is_alone(a, &a->site[i], p) ? GRAD_ALONE : GRAD_EXACT;
    }
    free(need);
    return ATTN_OK;
}

int attn__grads_of(attn__gpu_grads *to, const attn_plan *plan) {
    const attn__problem *const p = &plan->problem;
    const attn_graph *const g = &p->variant->graph;
    int32_t word[ATTN__MAX_SYMBOLS];
    attn__adjoint *a;
    memset(to, 0, sizeof *to);
    to->words = attn__variant_words(g, word);
    for (int i = 0; i < g->n_symbols; i++) {
        to->any |= p->bound[i].has_grad;
    }
    if (!to->any) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__adjoint_new(p->variant, &a));
    const int status = plan_sites(to, a, p);
    attn__adjoint_free(a);
    for (int i = 0; i < g->n_symbols; i++) {
        const int64_t n = count_of(&p->bound[i], g->symbol[i].rank);
        to->count[i] = n;
        if (to->text.how[i] == GRAD_EXACT) {
            if (n > most_bytes / EXACT_BYTES) {
                return attn__fail(ATTN_UNSUPPORTED, "captures",
                                  "the gradient of %s has %lld elements that several pairs add to; "
                                  "device %s allows %lld",
                                  g->symbol[i].name, (long long)n, plan->device->name,
                                  (long long)(most_bytes / EXACT_BYTES));
            }
            to->at[i] = to->bytes;
            to->bytes += ((uint64_t)n * EXACT_BYTES + 255) / 256 * 256;
        }
        if (to->text.how[i]) {
            to->text.word[i] = to->words;
            to->words += 1 + g->symbol[i].rank;
        }
    }
    return status;
}

int attn__grads_fit(const attn__gpu_grads *of, const attn__problem *p) {
    const attn_graph *const g = &p->variant->graph;
    for (int i = 0; i < g->n_symbols; i++) {
        const int64_t n = count_of(&p->bound[i], g->symbol[i].rank);
        if (p->bound[i].grad && n > of->count[i]) {
            char arg[ATTN__NAME + 16] = "captures.";
            strcat(arg, g->symbol[i].name);
            return attn__fail(ATTN_MISMATCH, arg,
                              "the gradient of %s has %lld elements; the plan allows %lld",
                              g->symbol[i].name, (long long)n, (long long)of->count[i]);
        }
    }
    return ATTN_OK;
}

void attn__grads_words(const attn__gpu_grads *of, const attn__problem *p, char *sums, i64 *word) {
    const attn_graph *const g = &p->variant->graph;
    for (int i = 0; i < g->n_symbols; i++) {
        const attn__bound *const b = &p->bound[i];
        const int exact = of->text.how[i] == GRAD_EXACT, rank = g->symbol[i].rank;
        i64 *const to = word + of->text.word[i];
        if (of->text.how[i] == GRAD_NONE) {
            continue;
        }
        to[0] = exact ? (i64)(uintptr_t)(sums + of->at[i]) : (i64)(uintptr_t)b->grad;
        i64 step = EXACT_BYTES;
        for (int axis = rank - 1; axis >= 0; axis--) {
            to[1 + axis] = exact ? step : b->gst[axis] * (i64)sizeof(float);
            step *= b->n[axis];
        }
    }
}

/* One launch of attn_bwd_grads for symbol i. */
static int launch(const attn_plan *of, const attn__kernel *k, const attn__gpu_grads *grads,
                  const attn__problem *p, char *sums, int i, int what, void *stream) {
    const attn__bound *const b = &p->bound[i];
    const int rank = p->variant->graph.symbol[i].rank;
    const int64_t n = count_of(b, rank);
    attn_grads_params a = {.grad = (u64)(uintptr_t)b->grad,
                           .sums = (u64)(uintptr_t)(sums + grads->at[i]),
                           .what = what};
    for (int axis = 0; axis < 4; axis++) {
        const int from = axis - (4 - rank);
        a.n[axis] = from >= 0 ? b->n[from] : 1;
        a.st[axis] = from >= 0 ? b->gst[from] * (i64)sizeof(float) : 0;
    }
    return attn__launch_rows(of, k, attn__ceil_div(n, of->device->driver->target(of->device->chip)
                                                          ->lanes),
                             &a, sizeof a, stream);
}

int attn__grads_run(const attn_plan *of, const attn__kernel *k, const attn__gpu_grads *grads,
                    const attn__problem *p, char *sums, int behind, void *stream) {
    for (int i = 0; i < p->variant->graph.n_symbols; i++) {
        const int exact = grads->text.how[i] == GRAD_EXACT;
        if (!p->bound[i].grad || (behind && !exact)) {
            continue;
        }
        ATTN_TRY(launch(of, k, grads, p, sums, i,
                        behind  ? GRADS_FINISH
                        : exact ? GRADS_CLEAR_SUMS
                                : GRADS_CLEAR,
                        stream));
    }
    return ATTN_OK;
}
