/* ref.c: the oracle: attention and its gradient in double, as the definitions read.

   Who calls it: plan.c, for device "ref"; every other engine is compared with it. Here are its
   plan, its scratch and the loop over heads; ref_row.c has the mathematics. */
#include "ref.h"

#include <stdlib.h>
#include <string.h>

/* -- Plan -------------------------------------------------------------------------------------- */

static void add_need(attn__ref_state *st, int what, int32_t root, uint8_t *scratch) {
    attn__need(st->g, &root, 1, scratch);
    for (int i = 0; i <= root; i++) {
        st->need[what][i] |= scratch[i];
    }
    st->last[what] = root > st->last[what] ? root : st->last[what];
}

static int mark_needs(attn__ref_state *st) {
    const size_t n = (size_t)st->g->n;
    uint8_t *const all = attn__alloc(3 * n, "a plan");
    if (!all) {
        return ATTN_MEMORY;
    }
    memset(all, 0, 3 * n);
    st->need[ATTN__REF_SCORE] = all;
    st->need[ATTN__REF_GRADIENT] = all + n;
    for (int what = ATTN__REF_SCORE; what <= ATTN__REF_GRADIENT; what++) {
        add_need(st, what, st->score, all + 2 * n);
        add_need(st, what, st->mask, all + 2 * n);
    }
    if (st->adjoint) {
        add_need(st, ATTN__REF_GRADIENT, st->adjoint->ds, all + 2 * n);
        for (int i = 0; i < st->adjoint->n_sites; i++) {
            const attn__site *const site = &st->adjoint->site[i];
            add_need(st, ATTN__REF_GRADIENT, site->d, all + 2 * n);
            for (int j = 0; j < site->n; j++) {
                add_need(st, ATTN__REF_GRADIENT, site->index[j], all + 2 * n);
            }
        }
    }
    return ATTN_OK;
}

static int64_t elements(const attn__problem *p, int symbol) {
    int64_t n = 1;
    for (int i = 0; i < p->variant->graph.symbol[symbol].rank; i++) {
        n *= p->bound[symbol].n[i];
    }
    return n;
}

static void *take(char *base, size_t *used, int64_t bytes) {
    void *const at = base ? base + *used : NULL;
    *used += ((size_t)bytes + 63) / 64 * 64;
    return at;
}

/* Lays the scratch out from `base` on; NULL measures alone. Returns the bytes. */
static size_t lay_out(attn__ref_work *w, char *base) {
    const attn__problem *const p = w->p;
    const int64_t real = sizeof(double);
    size_t used = 0;
    w->val = take(base, &used, w->st->g->n * (int64_t)sizeof *w->val);
    w->s = take(base, &used, p->NK * real);
    w->score = take(base, &used, p->NK * real);
    w->visible = take(base, &used, p->NK);
    w->keep = take(base, &used, p->NK);
    w->q = take(base, &used, p->D * real);
    w->k = take(base, &used, p->NK * p->D * real);
    w->v = take(base, &used, p->NK * p->DV * real);
    w->o = take(base, &used, p->DV * real);
    if (p->direction == ATTN_FORWARD) {
        return used;
    }
    w->dq = take(base, &used, p->D * real);
    w->dout = take(base, &used, p->DV * real);
    w->dk = take(base, &used, p->NK * p->D * real);
    w->dv = take(base, &used, p->NK * p->DV * real);
    w->dsink = take(base, &used, p->H * real);
    for (int i = 0; i < p->variant->graph.n_symbols; i++) {
        if (p->bound[i].has_grad) {
            w->grad[i] = take(base, &used, elements(p, i) * real);
        }
    }
    return used;
}

static void ref_release(attn_plan *plan) {
    attn__ref_state *const st = plan->state;
    attn__adjoint_free(st->adjoint);
    free(st->need[ATTN__REF_SCORE]);
    free(st);
    plan->state = NULL;
}

static int ref_plan(attn_plan *plan) {
    const attn__problem *const p = &plan->problem;
    attn__ref_state *const st = attn__alloc(sizeof *st, "a plan");
    if (!st) {
        return ATTN_MEMORY;
    }
    *st = (attn__ref_state){
        .g = &plan->variant->graph, .score = plan->variant->score, .mask = plan->variant->mask};
    plan->state = st;
    if (p->direction == ATTN_BACKWARD) {
        ATTN_TRY(attn__adjoint_new(plan->variant, &st->adjoint));
        st->g = &st->adjoint->graph;
        st->score = st->adjoint->score;
        st->mask = st->adjoint->mask;
    }
    ATTN_TRY(mark_needs(st));
    attn__ref_work w = {.p = p, .st = st};
    plan->workspace = lay_out(&w, NULL);
    strcpy(plan->kernel, "oracle");
    return ATTN_OK;
}

/* -- Run --------------------------------------------------------------------------------------- */

/* The query heads of one key head, so that dk and dv are whole when they are stored. */
static void run_group(attn__ref_work *w) {
    const attn__problem *const p = w->p;
    const int64_t group = p->H / p->HK, nk = w->seq.nk;
    const int backward = p->direction == ATTN_BACKWARD;
    for (int64_t j = 0; j < nk; j++) {
        attn__ref_load(w->k + j * p->D, &p->k, w->seq.kb, w->hk, w->seq.k_row + j);
        attn__ref_load(w->v + j * p->DV, &p->v, w->seq.kb, w->hk, w->seq.k_row + j);
    }
    if (backward) {
        memset(w->dk, 0, (size_t)(nk * p->D) * sizeof *w->dk);
        memset(w->dv, 0, (size_t)(nk * p->DV) * sizeof *w->dv);
    }
    for (w->h = w->hk * group; w->h < (w->hk + 1) * group; w->h++) {
        w->env.leaf[LEAF_h] = (int32_t)(p->h0 + w->h);
        for (int64_t row = 0; row < w->seq.nq; row++) {
            if (backward) {
                attn__ref_backward_row(w, row);
            } else {
                attn__ref_forward_row(w, row);
            }
        }
    }
    for (int64_t j = 0; backward && j < nk; j++) {
        attn__ref_store(&p->dk, w->seq.kb, w->hk, w->seq.k_row + j, w->dk + j * p->D);
        attn__ref_store(&p->dv, w->seq.kb, w->hk, w->seq.k_row + j, w->dv + j * p->DV);
    }
}

/* The sums over the whole call; what was cleared is added to. */
static void store_sums(const attn__ref_work *w) {
    const attn__problem *const p = w->p;
    for (int64_t h = 0; p->dsink.type && h < p->H; h++) {
        attn__set(attn__at(&p->dsink, 0, h, 0), p->dsink.type, w->dsink[h]);
    }
    for (int i = 0; i < p->variant->graph.n_symbols; i++) {
        const attn__bound *const t = &p->bound[i];
        const int64_t n = w->grad[i] ? elements(p, i) : 0;
        for (int64_t e = 0; e < n; e++) {
            int64_t at = 0, left = e;
            for (int axis = p->variant->graph.symbol[i].rank - 1; axis >= 0; axis--) {
                at += left % t->n[axis] * t->gst[axis];
                left /= t->n[axis];
            }
            t->grad[at] = (float)w->grad[i][e];
        }
    }
}

static void clear_sums(attn__ref_work *w) {
    const attn__problem *const p = w->p;
    memset(w->dsink, 0, (size_t)p->H * sizeof *w->dsink);
    for (int i = 0; i < p->variant->graph.n_symbols; i++) {
        if (w->grad[i]) {
            memset(w->grad[i], 0, (size_t)elements(p, i) * sizeof *w->grad[i]);
        }
    }
}

static int ref_run(const attn_plan *plan, const attn__problem *p, char *workspace, void *stream) {
    (void)stream; /* NULL */
    attn__ref_work w = {.p = p, .st = plan->state};
    lay_out(&w, workspace);
    attn__clear_unused(p);
    if (p->direction == ATTN_BACKWARD) {
        clear_sums(&w);
    }
    w.env.leaf[LEAF_nh] = (int32_t)p->nh;
    w.env.leaf[LEAF_hk] = (int32_t)p->hk;
    w.env.leaf[LEAF_batch] = (int32_t)p->batch;
    for (w.b = 0; w.b < p->B; w.b++) {
        w.seq = attn__sequence(p, w.b);
        w.env.leaf[LEAF_b] = w.seq.b;
        w.env.leaf[LEAF_nq] = w.seq.nq_all;
        w.env.leaf[LEAF_nk] = w.seq.nk_all;
        for (w.hk = 0; w.hk < p->HK; w.hk++) {
            run_group(&w);
        }
    }
    if (p->direction == ATTN_BACKWARD) {
        store_sums(&w);
    }
    return ATTN_OK;
}

const attn__engine attn__ref = {"ref", ref_plan, ref_run, ref_release};
