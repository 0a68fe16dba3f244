/* cpu_grad.c: gradients of the tensors and parameters that a score reads.

   Who calls it: cpu.c (plan, check, finish), cpu_bwd.c once per row. A pair adds g * d score/d
   value to the element that its indices name; many pairs may name the same one, from any work
   item. The sum must not depend on who computes when, so there are two ways:

   in place   The indices hold k, the row, and b and h (or the work item takes all of b, of h, in
              turn): then no other work item touches the element, and few terms meet in it. This is
              the dense bias, for which sums of their own would be too large.
   chunks     Otherwise. The list of work items is cut into a number of chunks that depends on sizes
              alone; each has f64 sums of all elements and is worked through in order by one thread;
              at the end the chunks are added in order.

       work items   |0 1 2 3 4|5 6 7 8 9|...        chunk 0 | chunk 1 | ...
       sums f64     [size]     [size]    ...   --> + --> grad f32 */
#include "cpu.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNKS = 32, SLICE = 4096 };
static const int64_t most_bytes = 64 << 20; /* of all chunks' sums; one chunk may be larger */

/* The leaf that the i-th index of a site is, or -1. */
static int index_leaf(const attn__adjoint *a, const attn__site *site, int i) {
    const attn__node *const node = &a->graph.node[site->index[i]];
    return node->op == OP_leaf ? node->sym : -1;
}

/* Whether the site's elements can be added in place; *inner_b, *inner_h: only if one work item
   takes all of b, of h. */
static int in_place(const attn__adjoint *a, const attn__site *site, const attn__problem *p,
                    int *inner_b, int *inner_h) {
    int has[LEAF_COUNT] = {0};
    for (int i = 0; i < site->n; i++) {
        const int leaf = index_leaf(a, site, i);
        if (leaf >= 0) {
            has[leaf] = 1;
        }
    }
    const int one_length =
        !p->has_q_offsets && !p->has_k_offsets && !p->has_q_used && !p->has_k_used;
    const int no_b = !has[LEAF_b] && p->B > 1, no_h = !has[LEAF_h] && p->H > 1;
    /* The row by q = i + nk - nq: the same tile of another sequence has other q. */
    if (!has[LEAF_k] || !(has[LEAF_i] || (has[LEAF_q] && (!no_b || one_length)))) {
        return 0;
    }
    *inner_b |= no_b;
    *inner_h |= no_h;
    return 1;
}

static int64_t count_of(const attn__bound *t, int rank) {
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= t->n[i];
    }
    return n;
}

int attn__grads_plan(attn__cpu_plan *plan, const attn__problem *p) {
    attn__cpu_grads *const g = &plan->grads;
    const attn__adjoint *const a = plan->adjoint;
    const attn_graph *const graph = &a->graph;
    int sites[ATTN__MAX_SYMBOLS] = {0};
    for (int i = 0; i < a->n_sites; i++) {
        sites[a->site[i].symbol]++;
    }
    g->site = (attn__cpu_site *)attn__alloc((size_t)a->n_sites * sizeof *g->site, "a plan");
    if (!g->site) {
        return ATTN_MEMORY;
    }
    for (int i = 0; i < graph->n_symbols; i++) {
        g->at[i] = -1;
        g->count[i] = p->bound[i].has_grad ? count_of(&p->bound[i], graph->symbol[i].rank) : 0;
    }
    for (int i = 0; i < a->n_sites; i++) {
        const attn__site *const site = &a->site[i];
        const int s = site->symbol;
        if (g->count[s] == 0) {
            continue;
        }
        g->site[g->n_sites++] = (attn__cpu_site){.symbol = s, .rank = site->n, .from = i};
        const int alone = sites[s] == 1 && in_place(a, site, p, &g->inner_b, &g->inner_h);
        if (!alone && g->at[s] < 0) {
            g->at[s] = g->size;
            g->size += g->count[s];
        }
    }
    if (g->size > 0) {
        const int64_t fit = most_bytes / 8 / g->size;
        g->chunks = fit < 1 ? 1 : fit < CHUNKS ? (int)fit : CHUNKS;
    }
    return ATTN_OK;
}

int attn__grads_check(const attn__cpu_plan *plan, const attn__problem *p) {
    const attn_graph *const graph = &p->variant->graph;
    for (int i = 0; i < graph->n_symbols; i++) {
        const attn__symbol *const symbol = &graph->symbol[i];
        const int64_t planned = plan->grads.count[i];
        const int64_t n = p->bound[i].grad ? count_of(&p->bound[i], symbol->rank) : 0;
        if (n > planned) {
            char arg[ATTN__NAME + 16] = "captures.";
            strcat(arg, symbol->name);
            return attn__fail(ATTN_MISMATCH, arg,
                              "the gradient of %s has %lld elements; the plan allows %lld",
                              symbol->name, (long long)n, (long long)planned);
        }
    }
    return ATTN_OK;
}

void attn__grads_row(const attn__tile *t, const float *g_score, double *sums) {
    const attn__cpu_grads *const g = &t->run->plan->grads;
    for (int i = 0; i < g->n_sites; i++) {
        const attn__cpu_site *const site = &g->site[i];
        const attn__bound *const bound = &t->run->p->bound[site->symbol];
        const float *const d = (const float *)t->x.out[site->at];
        const int32_t *const *const index = (const int32_t *const *)&t->x.out[site->at + 1];
        const int64_t at = g->at[site->symbol];
        for (int j = 0; j < t->n && bound->grad; j++) {
            int64_t dense = 0, placed = 0;
            int inside = t->seen[j];
            for (int r = 0; r < site->rank && inside; r++) {
                const int64_t x = index[r][j];
                inside = x >= 0 && x < bound->n[r];
                dense = dense * bound->n[r] + x;
                placed += x * bound->gst[r];
            }
            if (inside && at >= 0) {
                sums[at + dense] += (double)g_score[j] * (double)d[j];
            } else if (inside) {
                bound->grad[placed] += g_score[j] * d[j];
            }
        }
    }
}

typedef struct finish {
    const attn__cpu_run *run;
    int symbol;
    int64_t count;
} finish;

static void finish_slice(void *arg, int64_t item, int thread) {
    const finish *const f = (const finish *)arg;
    const attn__cpu_grads *const g = &f->run->plan->grads;
    const attn__bound *const bound = &f->run->p->bound[f->symbol];
    const int rank = f->run->p->variant->graph.symbol[f->symbol].rank;
    const int64_t end = (item + 1) * SLICE < f->count ? (item + 1) * SLICE : f->count;
    (void)thread;
    for (int64_t e = item * SLICE; e < end; e++) {
        double sum = 0;
        for (int c = 0; c < g->chunks; c++) {
            sum += f->run->sums[c * g->size + g->at[f->symbol] + e];
        }
        int64_t rest = e, placed = 0;
        for (int r = rank - 1; r >= 0; r--) {
            placed += rest % bound->n[r] * bound->gst[r];
            rest /= bound->n[r];
        }
        bound->grad[placed] += (float)sum;
    }
}

void attn__grads_finish(const attn__cpu_run *run) {
    const attn_graph *const graph = &run->p->variant->graph;
    for (int i = 0; i < graph->n_symbols; i++) {
        const attn__bound *const bound = &run->p->bound[i];
        if (run->plan->grads.at[i] >= 0 && run->plan->grads.count[i] && bound->grad) {
            finish f = {run, i, count_of(bound, graph->symbol[i].rank)};
            attn__pool_run(run->pool, (f.count + SLICE - 1) / SLICE, finish_slice, &f);
        }
    }
}
