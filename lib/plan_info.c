/* plan_info.c: attn_plan_query: what a plan tells about its work.

   Who calls it: the public API. Blocks are counted at the first query, by the same search for runs
   of one class that the engines make, over blocks so large that a head has at most MOST of them. */
#include "expr.h"

#include <string.h>

enum { BLOCK = 128, MOST = 65536 };

static int64_t blocks_of(const attn__problem *p, int64_t block) {
    return (p->NQ + block - 1) / block * ((p->NK + block - 1) / block);
}

/* What does not change from block to block. */
static attn__box box_of(const attn__problem *p, double nq, double nk) {
    attn__box box;
    attn__box_init(&box, p->bound);
    attn__box_set(&box, LEAF_b, (double)p->b0, (double)p->b0);
    attn__box_set(&box, LEAF_h, (double)p->h0, (double)p->h0);
    attn__box_set(&box, LEAF_nq, nq, nq);
    attn__box_set(&box, LEAF_nk, nk, nk);
    attn__box_set(&box, LEAF_nh, (double)p->nh, (double)p->nh);
    attn__box_set(&box, LEAF_hk, (double)p->hk, (double)p->hk);
    attn__box_set(&box, LEAF_batch, (double)p->batch, (double)p->batch);
    return box;
}

/* Head 0 of the longest sequence; of the pairs of a part block half count as visible. */
static attn__counts count(const attn__problem *p) {
    const double nq = (double)(p->nq_all ? p->nq_all : p->NQ);
    const double nk = (double)(p->nk_all ? p->nk_all : p->NK);
    const double shift = p->flags & ATTN_TOP_LEFT ? 0 : nk - nq;
    attn__counts n = {.block = BLOCK};
    while (blocks_of(p, n.block) > MOST) {
        n.block *= 2;
    }
    n.blocks = blocks_of(p, n.block);
    attn__box box = box_of(p, nq, nk);
    for (int64_t row = 0; row < p->NQ; row += n.block) {
        const int64_t end = row + n.block < p->NQ ? row + n.block : p->NQ;
        const double first = (double)(p->i0 + row), last = (double)(p->i0 + end - 1);
        attn__box_set(&box, LEAF_i, first, last);
        attn__box_set(&box, LEAF_q, first + shift, last + shift);
        attn__run run;
        for (int32_t at = 0; attn__runs(&p->variant->graph, p->variant->mask, &box, p->k0,
                                        (int32_t)p->NK, (int32_t)n.block, &at, &run, 1) == 1;) {
            const int full = run.class_ == CLASS_FULL;
            *(full ? &n.full : &n.part) += (run.end - run.begin + n.block - 1) / n.block;
            n.pairs += (full ? 1 : 0.5) * (double)(end - row) * (double)(run.end - run.begin);
        }
    }
    return n;
}

/* Threads that come first together all count; one of them leaves its numbers in the plan. */
static attn__counts counts_of(const attn_plan *plan) {
    attn_plan *const cache = (attn_plan *)plan; /* writing down what is so is no change */
    int32_t none = 0;
    if (__atomic_load_n(&cache->counted, __ATOMIC_ACQUIRE) == 2) {
        return plan->counts;
    }
    const attn__counts n = count(&plan->problem);
    if (__atomic_compare_exchange_n(&cache->counted, &none, 1, 0, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        cache->counts = n;
        __atomic_store_n(&cache->counted, 2, __ATOMIC_RELEASE);
    }
    return n;
}

static double bytes_of(const attn__problem *p) {
    const attn__view *const views[] = {&p->q,    &p->k,     &p->v,       &p->o,       &p->dout,
                                       &p->dq,   &p->dk,    &p->dv,      &p->lse,     &p->dlse,
                                       &p->sink, &p->dsink, &p->q_scale, &p->k_scale, &p->v_scale};
    double bytes = 0;
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        const attn__view *const t = views[i];
        bytes += (double)t->n[0] * (double)t->n[1] * (double)t->n[2] * (double)t->n[3] * t->bytes;
    }
    return bytes;
}

int attn_plan_query(const attn_plan *plan, attn_plan_info *info) {
    if (!plan) {
        return attn__fail(ATTN_INVALID, "plan", "plan is NULL; a handle is wanted");
    }
    const attn__problem *const p = &plan->problem;
    const attn__counts n = counts_of(plan);
    const double pairs = (double)p->B * (double)p->H * n.pairs;
    /* Products: q k, p v; and backward q k, dout v, ds k, ds q, p dout. */
    const double D = (double)p->D, DV = (double)p->DV;
    attn_plan_info all = {
        .size = sizeof all,
        .block = (uint32_t)n.block,
        .workspace = plan->workspace,
        .flops = 2 * pairs * (p->direction == ATTN_FORWARD ? D + DV : 3 * D + 2 * DV),
        .bytes = bytes_of(p),
        .blocks = n.blocks,
        .blocks_part = n.part,
        .blocks_full = n.full,
    };
    memcpy(all.kernel, plan->kernel, sizeof all.kernel);
    return attn__struct_out(info, &all, sizeof all, "attn_plan_info");
}
