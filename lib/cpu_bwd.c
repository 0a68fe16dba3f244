/* cpu_bwd.c: backward, two kinds of work items, each the only writer of its results.

   Who calls it: cpu.c, all tiles of queries and then all tiles of keys, or the keys alone:

       queries                                       keys
       for every key tile that the rows see:         for every head of the group, every query tile
           s = q k       dp = dO v                   that sees the keys:
           p = exp(s - LSE)                              s, dp, p, g as on the left, bit for bit
           g = p (dp - c) ds scale                       dk += g' q
           dq += g k                                     dv += p' dO
                                                         dq += g k   (where one item has all keys)

   with c = dO.O - dLSE, which comes first. Sums run in the order of keys and of (head, query), so
   bits depend neither on threads nor on neighbours, nor on which way it went: an item of all key
   tiles of a head adds to a row of dq in the same order. It makes s and dp once, not twice: 5
   products instead of 7.

   Where all is bf16 and the processor multiplies pairs, g and p are rounded to bf16 for the
   products over pairs, as p is in forward: g two keys at a time for dq, g and p two queries for dk
   and dv.

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

/* q and dO, as factors of s and dp. */
static void load_queries(attn__tile *t, rows_in *r) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t b = t->seq.qb, row = t->seq.q_row + t->r0;
    if (plan->pairs) {
        attn__load_pairs(t->x.q_pairs, &p->q, b, t->h, row, t->rows);
    }
    if (plan->pairs_grad) {
        attn__load_pairs(t->x.dout_pairs, &p->dout, b, t->h, row, t->rows);
    } else {
        attn__load_rows(t->x.q, &p->q, b, t->h, row, t->rows);
        attn__load_rows(t->x.o, &p->dout, b, t->h, row, t->rows);
    }
    for (int i = 0; i < t->rows; i++) {
        r->lse[i] = (float)attn__get(attn__at(&p->lse, b, t->h, row + i), p->lse.type);
        r->c[i] = *c_of(t, t->r0 + i);
    }
}

/* Rows as the right factor of a product over them, panels or pairs, without what is not finite.
   Returns 1 if there was such an element. rows: they stand there, or NULL. */
static int load_factor(attn__tile *t, float *panels, const attn__view *view, int64_t b, int64_t h,
                       int64_t row, int n, const float *rows) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int ld = attn__round_lanes(view->n[3]), pairs = plan->pairs_grad;
    const int64_t size = (int64_t)ld * (pairs ? (n + 1) / 2 : n);
    if (rows && !pairs) {
        attn__rows_to_panels(panels, rows, ld, n);
        if (plan->ops->finite(panels, size)) {
            return 0;
        }
    } else if (attn__load_panels(t, panels, view, b, h, row, n, pairs)) {
        return 0;
    }
    attn__drop_wild(panels, size, pairs);
    return 1;
}

/* Row i of a tile whose products stand in x.s and x.dp: p' to p, g in place of dp. p may be x.s if
   no captured gradient follows, as its factors may be s itself. g_score: NULL if none follows;
   seen: it is wanted. */
static void backward_row(attn__tile *t, const rows_in *r, int i, float *p, float *g_score,
                         int seen) {
    const attn__cpu_plan *const plan = t->run->plan;
    float *const dp = t->x.dp + i * LDS;
    int from = 0, to = 0;
    if (r->lse[i] != -INFINITY) { /* else the row sees nothing */
        attn__tile_row(t, i);
        from = t->begin / LANES * LANES;
        to = attn__round_lanes(t->end);
    }
    attn__clear_outside(t, p, from, to);
    attn__clear_outside(t, dp, from, to);
    attn__clear_outside(t, t->seen, from, to);
    if (g_score) {
        attn__clear_outside(t, g_score, from, to);
    }
    if (from == to) {
        return;
    }
    const float *const w = attn__tile_weights(t, i);
    const attn__grad_row row = {.lse = r->lse[i],
                                .c = r->c[i],
                                .by = t->by,
                                .row_scale = t->row_scale[i],
                                .key_scale = t->has_key_scale ? t->key_scale + from : NULL,
                                .w = w ? w + from : NULL,
                                .ds = t->ds ? t->ds + from : NULL};
    const unsigned state = attn__flush_small();
    plan->ops->grad(p + from, dp + from, g_score ? g_score + from : NULL, t->score + from,
                    dp + from, t->on ? t->on + from : NULL, t->begin - from, t->end - from, &row,
                    seen ? t->seen + from : NULL);
    attn__restore(state);
}

/* to[n] += by * x[n] where x is not finite. */
static void add_wild(float *to, float by, const float *x, int n) {
    for (int d = 0; d < n; d++) {
        if (!isfinite(x[d])) {
            to[d] += by * x[d];
        }
    }
}

/* What of k and v is needed: for s and dp, and for dq. */
static void load_keys(attn__tile *t, int64_t hk, int for_dq) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0;
    attn__load_columns(t, t->x.kt, &p->k, b, hk, row, t->n, plan->pairs);
    attn__load_columns(t, t->x.vt, &p->v, b, hk, row, t->n, plan->pairs_grad);
    t->wild_k = for_dq && load_factor(t, t->x.kb, &p->k, b, hk, row, t->n, NULL);
}

static void multiply(attn__tile *t) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    attn__sum_dots(t, t->x.s, t->x.q_pairs, t->x.kt, p->D, plan->pairs);
    attn__sum_dots(t, t->x.dp, t->x.dout_pairs, t->x.vt, p->DV, plan->pairs_grad);
}

/* Row i's share of dq from elements of k that are not finite. */
static void add_wild_keys(attn__tile *t, int i, float *dq) {
    const int ldd = t->run->plan->ldd;
    for (int j = 0; j < t->n; j++) {
        if (t->seen[j]) {
            attn__load_rows(t->x.strip, &t->run->p->k, t->seq.kb, t->hk, t->seq.k_row + t->c0 + j,
                            1);
            add_wild(dq + i * ldd, t->x.dp[i * LDS + j], t->x.strip, ldd);
        }
    }
}

/* dq[rows][ldd] += g k. With pairs g stands in x.g, narrowed. */
static void add_dq(attn__tile *t, float *dq) {
    const int pairs = t->run->plan->pairs_grad;
    const unsigned state = attn__flush_small();
    attn__sum_rows(t, dq, t->run->plan->ldd, pairs ? t->x.g : t->x.dp, pairs ? BN / 2 : LDS,
                   t->x.kb, pairs);
    attn__restore(state);
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
            dsink -= attn__weight(sink - lse) * c;
        }
    }
    return dsink;
}

static void query_tile(attn__tile *t, const rows_in *r, int c0, int class_, double *sums) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int n_sites = plan->grads.n_sites, lanes_of_pair = BN / 2;
    float prob[BN], g_score[BN];
    attn__tile_keys(t, c0, t->seq.nk - c0 < BN ? t->seq.nk - c0 : BN);
    if (!attn__tile_pairs(t, class_)) {
        return;
    }
    load_keys(t, t->hk, 1);
    multiply(t);
    for (int i = 0; i < t->rows; i++) {
        backward_row(t, r, i, prob, n_sites ? g_score : NULL, n_sites || t->wild_k);
        if (n_sites) {
            attn__grads_row(t, g_score, sums);
        }
        if (t->wild_k) {
            add_wild_keys(t, i, t->x.dq);
        }
        if (plan->pairs_grad) {
            plan->ops->narrow(t->x.g + i * lanes_of_pair, t->x.dp + i * LDS,
                              attn__round_lanes(t->n));
        }
    }
    add_dq(t, t->x.dq);
}

void attn__cpu_queries(const attn__cpu_run *run, int thread, int64_t b, int64_t h, int tile,
                       int constants_only, double *sums) {
    const attn__problem *const p = run->p;
    attn__tile t;
    attn__walk walk;
    rows_in r;
    int class_;
    attn__tile_open(&t, run, run->plan->queries, thread, b);
    attn__tile_head(&t, h);
    attn__tile_rows(&t, tile * BM, t.seq.nq - tile * BM < BM ? t.seq.nq - tile * BM : BM);
    const double dsink = row_constants(&t);
    if (p->dsink.type) {
        const int64_t tiles = run->q_start[b + 1] - run->q_start[b];
        run->dsink[run->q_start[b] * p->H + h * tiles + tile] = dsink;
    }
    if (constants_only) {
        attn__tile_close(&t);
        return;
    }
    load_queries(&t, &r);
    memset(t.x.dq, 0, (size_t)t.rows * (size_t)run->plan->ldd * sizeof *t.x.dq);
    attn__walk_begin(&walk, &t, 0);
    for (int c = 0; (c = attn__walk_next(&walk, &t, c, &class_)) < t.seq.nk; c += BN) {
        query_tile(&t, &r, c, class_, sums);
    }
    if (p->dq.type) {
        attn__store_rows(&p->dq, t.seq.qb, h, t.seq.q_row + t.r0, t.x.dq, t.rows);
    }
    attn__tile_close(&t);
}

/* -- Keys -------------------------------------------------------------------------------------- */

/* Row i's shares of dk and dv from elements of q and dO that are not finite. dO's are added
   whatever p is, as it is never 0 but by rounding. */
static void add_wild_row(attn__tile *t, int i) {
    const attn__problem *const p = t->run->p;
    const int ldd = t->run->plan->ldd, ldv = t->run->plan->ldv;
    const int64_t row = t->seq.q_row + t->r0 + i;
    const float *const w = attn__tile_weights(t, i);
    float *const x = t->x.strip;
    attn__load_rows(x, &p->q, t->seq.qb, t->h, row, 1);
    for (int j = 0; j < t->n; j++) {
        if (t->seen[j]) {
            add_wild(t->x.k + j * ldd, t->x.dp[i * LDS + j], x, ldd);
        }
    }
    attn__load_rows(x, &p->dout, t->seq.qb, t->h, row, 1);
    for (int j = 0; j < t->n; j++) {
        if (t->seen[j] && !(w && w[j] == 0)) {
            add_wild(t->x.v + j * ldv, w ? w[j] : 1, x, ldv);
        }
    }
}

/* Rows of g become pairs of keys in x.g and, two rows at a time, pairs of queries in place; p's the
   latter. */
static void narrow_rows(attn__tile *t) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int lanes = attn__round_lanes(t->n), half = BN / 2;
    float p[2][BN / 2];
    for (int i = 0; i < t->rows; i += 2) {
        float *const g = t->x.g + i * half;
        memset(g + half, 0, (size_t)half * sizeof *g);
        memset(p[1], 0, sizeof p[1]);
        for (int e = 0; e < 2 && i + e < t->rows; e++) {
            ops->narrow(g + e * half, t->x.dp + (i + e) * LDS, lanes);
            ops->narrow(p[e], t->x.s + (i + e) * LDS, lanes);
        }
        ops->zip(t->x.dp + i / 2 * LDS, g, g + half, lanes, LANES);
        ops->zip(t->x.s + i / 2 * LDS, p[0], p[1], lanes, LANES);
    }
}

/* dk += g' q, dv += p' dO. */
static void add_dk_dv(attn__tile *t) {
    const attn__cpu_plan *const plan = t->run->plan;
    const unsigned state = attn__flush_small();
    attn__sum_keys(t, t->x.k, plan->ldd, t->x.dp, t->x.q_panels, plan->pairs_grad);
    attn__sum_keys(t, t->x.v, plan->ldv, t->x.s, t->x.o_panels, plan->pairs_grad);
    attn__restore(state);
}

static void key_tile(attn__tile *t, int tile, int class_) {
    const attn__problem *const p = t->run->p;
    rows_in r;
    attn__tile_rows(t, tile * BM, t->seq.nq - tile * BM < BM ? t->seq.nq - tile * BM : BM);
    if (!attn__tile_pairs(t, class_)) {
        return;
    }
    const int64_t b = t->seq.qb, row = t->seq.q_row + t->r0;
    float *const dq = t->dq ? t->dq + (int64_t)t->r0 * t->run->plan->ldd : NULL;
    load_queries(t, &r);
    multiply(t);
    const int wild_q = load_factor(t, t->x.q_panels, &p->q, b, t->h, row, t->rows, t->x.q);
    const int wild_o = load_factor(t, t->x.o_panels, &p->dout, b, t->h, row, t->rows, t->x.o);
    const int wild = wild_q || wild_o;
    for (int i = 0; i < t->rows; i++) {
        backward_row(t, &r, i, t->x.s + i * LDS, NULL, wild || t->wild_k);
        if (wild) {
            add_wild_row(t, i);
        }
        if (t->wild_k) {
            add_wild_keys(t, i, dq);
        }
    }
    if (dq && !t->run->plan->pairs_grad) {
        add_dq(t, dq);
    }
    if (t->run->plan->pairs_grad) {
        narrow_rows(t);
    }
    add_dk_dv(t);
    if (dq && t->run->plan->pairs_grad) {
        add_dq(t, dq);
    }
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

/* One tile of keys. dq[group][NQ][ldd]: sums to add to; NULL: none. */
static void keys_of_group(attn__tile *t, int64_t hk, int tile, float *dq) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t group = p->H / p->HK;
    t->c0 = tile * BN;
    t->n = t->seq.nk - t->c0 < BN ? t->seq.nk - t->c0 : BN;
    memset(t->x.k, 0, (size_t)t->n * (size_t)plan->ldd * sizeof *t->x.k);
    memset(t->x.v, 0, (size_t)t->n * (size_t)plan->ldv * sizeof *t->x.v);
    load_keys(t, hk, dq != NULL);
    for (int64_t h = hk * group; h < (hk + 1) * group && t->seq.nq > 0; h++) {
        attn__tile_head(t, h);
        attn__tile_keys(t, t->c0, t->n);
        t->dq = dq ? dq + (h - hk * group) * p->NQ * plan->ldd : NULL;
        visit(t, 0, (t->seq.nq + BM - 1) / BM);
    }
    const int64_t row = t->seq.k_row + t->c0;
    if (p->dk.type) {
        attn__store_rows(&p->dk, t->seq.kb, hk, row, t->x.k, t->n);
    }
    if (p->dv.type) {
        attn__store_rows(&p->dv, t->seq.kb, hk, row, t->x.v, t->n);
    }
}

void attn__cpu_keys(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int tile) {
    attn__tile t;
    attn__tile_open(&t, run, run->plan->keys, thread, b);
    keys_of_group(&t, hk, tile, NULL);
    attn__tile_close(&t);
}

void attn__cpu_group(const attn__cpu_run *run, int thread, int64_t b, int64_t hk) {
    const attn__problem *const p = run->p;
    const int64_t group = p->H / p->HK, ldd = run->plan->ldd;
    float *const dq = run->dq + thread * group * p->NQ * ldd;
    attn__tile t;
    attn__tile_open(&t, run, run->plan->keys, thread, b);
    for (int64_t e = 0; e < group; e++) {
        memset(dq + e * p->NQ * ldd, 0, (size_t)(t.seq.nq * ldd) * sizeof *dq);
    }
    for (int tile = 0; tile * BN < t.seq.nk; tile++) {
        keys_of_group(&t, hk, tile, dq);
    }
    for (int64_t e = 0; e < group; e++) {
        attn__store_rows(&p->dq, t.seq.qb, hk * group + e, t.seq.q_row, dq + e * p->NQ * ldd,
                         t.seq.nq);
    }
    attn__tile_close(&t);
}
