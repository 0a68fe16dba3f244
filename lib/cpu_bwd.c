/* cpu_bwd.c: backward, two kinds of work items, each the only writer of its results.

   Who calls it: cpu.c, first all tiles of queries, then all tiles of keys.

       queries                                       keys
       for every key tile that the rows see:         for every head of the group, every query tile
           s = q k       dp = dO v                   that sees the keys:
           p = exp(s - LSE)                              s, dp, p, g as on the left, bit for bit
           g = p (dp - c) ds scale                       dk += g' q
           dq += g k                                     dv += p' dO

   with c = dO.O - dLSE, which the first pass leaves for the second. Sums run in the order of keys
   and of (head, query), so bits depend neither on threads nor on neighbours.

   Values that are not finite. A masked pair has p = g = 0, and 0 * NaN must not reach a sum over
   pairs: so the right-hand side of such a product, k, q or dO, loses these elements first, and
   visible pairs alone get them back, one by one. A row that is NaN has p = g = NaN at its visible
   keys, which is how it spreads to dq, dk and dv. */
#include "cpu.h"

#include <math.h>
#include <string.h>

/* What the rows of a query tile bring along. */
typedef struct rows_in {
    float lse[BM], c[BM];
} rows_in;

static float *c_of(const attn__tile *t, int row) {
    const attn__problem *const p = t->run->p;
    return t->run->c + (t->seq.qb * p->H + t->h) * p->TQ + t->seq.q_row + row;
}

static void load_queries(attn__tile *t, rows_in *r) {
    const attn__problem *const p = t->run->p;
    const int64_t b = t->seq.qb, row = t->seq.q_row + t->r0;
    attn__load_rows(t->x.q, &p->q, b, t->h, row, t->rows);
    attn__load_rows(t->x.o, &p->dout, b, t->h, row, t->rows);
    for (int i = 0; i < t->rows; i++) {
        r->lse[i] = (float)attn__get(attn__at(&p->lse, b, t->h, row + i), p->lse.type);
        r->c[i] = *c_of(t, t->r0 + i);
    }
}

/* Row i of a tile whose products stand in x.s and x.dp: p' to p, g in place of dp. p may be x.s if
   no captured gradient follows, as its factors may be s itself. */
static void backward_row(attn__tile *t, const rows_in *r, int i, float *p, float *g_score) {
    const attn__cpu_plan *const plan = t->run->plan;
    float *const dp = t->x.dp + i * BN;
    if (r->lse[i] == -INFINITY) { /* the row sees nothing */
        const size_t bytes = (size_t)attn__round_lanes(t->n) * sizeof *p;
        memset(p, 0, bytes);
        memset(dp, 0, bytes);
        memset(g_score, 0, bytes);
        memset(t->seen, 0, bytes);
        return;
    }
    attn__tile_row(t, i);
    const attn__grad_row row = {.lse = r->lse[i],
                                .c = r->c[i],
                                .row_scale = t->row_scale[i],
                                .key_scale = t->has_key_scale ? t->key_scale : NULL,
                                .w = attn__tile_weights(t, i),
                                .ds = t->ds};
    plan->ops->grad(p, dp, g_score, t->score, dp, t->on, t->n, &row, t->seen);
}

/* to[n] += by * x[n] where x is not finite. */
static void add_wild(float *to, float by, const float *x, int n) {
    for (int d = 0; d < n; d++) {
        if (!isfinite(x[d])) {
            to[d] += by * x[d];
        }
    }
}

static void multiply(attn__tile *t) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int lanes = attn__round_lanes(t->n);
    plan->ops->mul(t->x.s, BN, t->x.q, plan->ldd, 1, t->x.kt, BN, t->rows, lanes, (int)p->D, 0);
    plan->ops->mul(t->x.dp, BN, t->x.o, plan->ldv, 1, t->x.vt, BN, t->rows, lanes, (int)p->DV, 0);
}

/* -- Queries ----------------------------------------------------------------------------------- */

/* c of every row, and the tile's part of dsink = sum exp(sink - LSE) (dLSE - dO.O). */
static double row_constants(attn__tile *t) {
    const attn__problem *const p = t->run->p;
    const int64_t b = t->seq.qb;
    const double sink =
        p->dsink.type ? attn__get(attn__at(&p->sink, 0, t->h, 0), p->sink.type) : -INFINITY;
    float *const o = t->x.strip, *const dout = t->x.o;
    double dsink = 0;
    for (int i = 0; i < t->rows; i++) {
        const int64_t row = t->seq.q_row + t->r0 + i;
        attn__load_rows(o, &p->o, b, t->h, row, 1);
        attn__load_rows(dout, &p->dout, b, t->h, row, 1);
        double c = 0;
        for (int64_t d = 0; d < p->DV; d++) {
            c += (double)dout[d] * (double)o[d];
        }
        if (p->dlse.type) {
            c -= attn__get(attn__at(&p->dlse, b, t->h, row), p->dlse.type);
        }
        *c_of(t, t->r0 + i) = (float)c;
        const double lse = attn__get(attn__at(&p->lse, b, t->h, row), p->lse.type);
        if (p->dsink.type && sink != -INFINITY) {
            dsink -= exp(sink - lse) * c;
        }
    }
    return dsink;
}

static void query_tile(attn__tile *t, const rows_in *r, int c0, int n, int class_, double *sums) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t b = t->seq.kb, row = t->seq.k_row + c0;
    const int ldd = plan->ldd;
    float prob[BN], g_score[BN];
    attn__tile_keys(t, c0, n);
    if (!attn__tile_pairs(t, class_)) {
        return;
    }
    attn__load_columns(t, t->x.kt, &p->k, b, t->hk, row, n);
    attn__load_columns(t, t->x.vt, &p->v, b, t->hk, row, n);
    attn__load_rows(t->x.k, &p->k, b, t->hk, row, n);
    multiply(t);
    const int wild = !plan->ops->finite(t->x.k, ldd, n, ldd);
    for (int i = 0; i < t->rows; i++) {
        backward_row(t, r, i, prob, g_score);
        if (plan->grads.n_sites) {
            attn__grads_row(t, g_score, sums);
        }
        for (int j = 0; j < n && wild; j++) {
            if (t->seen[j]) {
                add_wild(t->x.dq + i * ldd, t->x.dp[i * BN + j], t->x.k + j * ldd, ldd);
            }
        }
    }
    if (wild) {
        attn__drop_wild(t->x.k, ldd, n);
    }
    plan->ops->mul(t->x.dq, ldd, t->x.dp, BN, 1, t->x.k, ldd, t->rows, ldd, n, 1);
}

void attn__cpu_queries(const attn__cpu_run *run, int thread, int64_t b, int64_t h, int tile,
                       double *sums) {
    const attn__problem *const p = run->p;
    const attn_variant *const v = p->variant;
    const int ldd = run->plan->ldd;
    attn__tile t;
    rows_in r;
    attn__box box;
    attn__run runs[RUNS];
    attn__tile_open(&t, run, run->plan->queries, thread, b);
    attn__tile_head(&t, h);
    attn__tile_rows(&t, tile * BM, t.seq.nq - tile * BM < BM ? t.seq.nq - tile * BM : BM);
    const double dsink = row_constants(&t);
    if (p->dsink.type) {
        const int64_t tiles = run->q_start[b + 1] - run->q_start[b];
        run->dsink[run->q_start[b] * p->H + h * tiles + tile] = dsink;
    }
    if (!p->dq.type && !run->plan->grads.n_sites) {
        return;
    }
    load_queries(&t, &r);
    memset(t.x.dq, 0, (size_t)t.rows * (size_t)ldd * sizeof *t.x.dq);
    attn__tile_box(&t, t.r0, t.rows, &box);
    int32_t at = 0;
    for (int n;
         (n = attn__runs(&v->graph, v->mask, &box, t.seq.k0, t.seq.nk, BN, &at, runs, RUNS)) > 0;) {
        for (int e = 0; e < n; e++) {
            for (int c = runs[e].begin; c < runs[e].end; c += BN) {
                const int end = c + BN < runs[e].end ? c + BN : runs[e].end;
                query_tile(&t, &r, c, end - c, runs[e].class_, sums);
            }
        }
    }
    if (p->dq.type) {
        attn__store_rows(&p->dq, t.seq.qb, h, t.seq.q_row + t.r0, t.x.dq, t.rows);
    }
}

/* -- Keys -------------------------------------------------------------------------------------- */

/* Row i of q and dO has elements that are not finite. dO's are added whatever p is, as it is
   never 0 but by rounding. */
static void add_wild_row(attn__tile *t, int i) {
    const int ldd = t->run->plan->ldd, ldv = t->run->plan->ldv;
    const float *const w = attn__tile_weights(t, i);
    for (int j = 0; j < t->n; j++) {
        if (t->seen[j]) {
            add_wild(t->x.k + j * ldd, t->x.dp[i * BN + j], t->x.q + i * ldd, ldd);
        }
        if (t->seen[j] && !(w && w[j] == 0)) {
            add_wild(t->x.v + j * ldv, w ? w[j] : 1, t->x.o + i * ldv, ldv);
        }
    }
}

static void key_tile(attn__tile *t, int tile, int class_) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int ldd = plan->ldd, ldv = plan->ldv;
    float g_score[BN];
    rows_in r;
    attn__tile_rows(t, tile * BM, t->seq.nq - tile * BM < BM ? t->seq.nq - tile * BM : BM);
    if (!attn__tile_pairs(t, class_)) {
        return;
    }
    load_queries(t, &r);
    multiply(t);
    const int wild = !plan->ops->finite(t->x.q, ldd, t->rows, ldd) ||
                     !plan->ops->finite(t->x.o, ldv, t->rows, ldv);
    for (int i = 0; i < t->rows; i++) {
        backward_row(t, &r, i, t->x.s + i * BN, g_score);
        if (wild) {
            add_wild_row(t, i);
        }
    }
    if (wild) {
        attn__drop_wild(t->x.q, ldd, t->rows);
        attn__drop_wild(t->x.o, ldv, t->rows);
    }
    plan->ops->mul(t->x.k, ldd, t->x.dp, 1, BN, t->x.q, ldd, t->n, ldd, t->rows, 1);
    plan->ops->mul(t->x.v, ldv, t->x.s, 1, BN, t->x.o, ldv, t->n, ldv, t->rows, 1);
}

/* Query tiles begin..end that see the tile's keys, found by bisection of their range. */
static void visit(attn__tile *t, int begin, int end) {
    const attn_variant *const v = t->run->p->variant;
    const int r0 = begin * BM, r1 = end * BM < t->seq.nq ? end * BM : t->seq.nq;
    attn__box box;
    attn__tile_box(t, r0, r1 - r0, &box);
    const double k = (double)t->seq.k0 + t->c0;
    attn__box_set(&box, LEAF_k, k, k + t->n - 1);
    const int class_ = attn__class(&v->graph, v->mask, &box);
    if (class_ == CLASS_NONE) {
        return;
    }
    if (class_ == CLASS_PART && end - begin > 1) {
        const int middle = begin + (end - begin) / 2;
        visit(t, begin, middle);
        visit(t, middle, end);
        return;
    }
    for (int tile = begin; tile < end; tile++) {
        key_tile(t, tile, class_);
    }
}

void attn__cpu_keys(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int tile) {
    const attn__problem *const p = run->p;
    const attn__cpu_plan *const plan = run->plan;
    const int64_t group = p->H / p->HK;
    attn__tile t;
    attn__tile_open(&t, run, plan->keys, thread, b);
    const int c0 = tile * BN, n = t.seq.nk - c0 < BN ? t.seq.nk - c0 : BN;
    const int64_t row = t.seq.k_row + c0;
    memset(t.x.k, 0, (size_t)n * (size_t)plan->ldd * sizeof *t.x.k);
    memset(t.x.v, 0, (size_t)n * (size_t)plan->ldv * sizeof *t.x.v);
    attn__load_columns(&t, t.x.kt, &p->k, t.seq.kb, hk, row, n);
    attn__load_columns(&t, t.x.vt, &p->v, t.seq.kb, hk, row, n);
    for (int64_t h = hk * group; h < (hk + 1) * group && t.seq.nq > 0; h++) {
        attn__tile_head(&t, h);
        attn__tile_keys(&t, c0, n);
        visit(&t, 0, (t.seq.nq + BM - 1) / BM);
    }
    if (p->dk.type) {
        attn__store_rows(&p->dk, t.seq.kb, hk, row, t.x.k, n);
    }
    if (p->dv.type) {
        attn__store_rows(&p->dv, t.seq.kb, hk, row, t.x.v, n);
    }
}
