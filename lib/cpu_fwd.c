/* cpu_fwd.c: forward, one work item: a tile of BM query rows of one head and all keys it sees.

   Who calls it: cpu.c, once per item. The online softmax of Milakov and Gimelshein (2018):

       columns:   | BN | BN | BN | ...             at absolute multiples of BN; empty ones skipped
       per tile:  s = q k;  row: m' = max(m, s), p = exp(s - m'), l = l e^(m - m') + sum p,
                  o = o e^(m - m') + p v
       at the end: out = o / l, LSE = m + log l

   m and l begin with the sink, as the row's first key; without one with nothing. A row whose tile
   has no visible pair skips the tile, so its bits do not depend on what its neighbours see.

   Values that are not finite. Rows of a product see their own row of p alone, but each sees every
   key: 0 * NaN would reach rows that mask it. So these elements of v are taken out of the tile and
   added, for the pairs that see them, to sums of their own, which join out at the end. A visible
   score that is NaN or +inf makes its row NaN, and the row goes on without it. */
#include "cpu.h"

#include <math.h>
#include <string.h>

typedef struct rows_state {
    float m[BM], l[BM];
    uint8_t nan[BM];
    int has_wild; /* x.wild counts */
    int n_wild;   /* keys of this tile whose v has elements that are not finite */
    uint8_t wild_list[BN];
} rows_state;

static void begin_rows(attn__tile *t, rows_state *r) {
    const attn__problem *const p = t->run->p;
    const int has_sink = p->sink.type != 0;
    const double sink = has_sink ? attn__get(attn__at(&p->sink, 0, t->h, 0), p->sink.type) : 0;
    for (int i = 0; i < t->rows; i++) {
        r->m[i] = has_sink ? (float)sink : -INFINITY;
        r->l[i] = r->m[i] == -INFINITY ? 0 : 1;
        r->nan[i] = 0;
    }
    r->has_wild = 0;
    memset(t->x.o, 0, (size_t)t->rows * (size_t)t->run->plan->ldv * sizeof *t->x.o);
    attn__load_rows(t->x.q, &p->q, t->seq.qb, t->h, t->seq.q_row + t->r0, t->rows);
}

static void load_values(attn__tile *t, rows_state *r) {
    const attn__problem *const p = t->run->p;
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ldv = t->run->plan->ldv;
    attn__load_rows(t->x.v, &p->v, t->seq.kb, t->hk, t->seq.k_row + t->c0, t->n);
    r->n_wild = 0;
    if (ops->finite(t->x.v, ldv, t->n, ldv)) {
        return;
    }
    for (int j = 0; j < t->n; j++) {
        if (!ops->finite(t->x.v + j * ldv, ldv, 1, ldv)) {
            r->wild_list[r->n_wild++] = (uint8_t)j;
        }
    }
    attn__drop_wild(t->x.v, ldv, t->n);
    if (!r->has_wild) {
        memset(t->x.wild, 0, (size_t)t->rows * (size_t)ldv * sizeof *t->x.wild);
        r->has_wild = 1;
    }
}

/* Row i sees some of the listed keys: adds their elements that are not finite, whatever p is. */
static void add_wild(attn__tile *t, const rows_state *r, int i, const float *w) {
    const attn__problem *const p = t->run->p;
    const int ldv = t->run->plan->ldv;
    float *const wild = t->x.wild + i * ldv, *const v = t->x.strip;
    for (int e = 0; e < r->n_wild; e++) {
        const int j = r->wild_list[e];
        if (!t->seen[j] || (w && w[j] == 0)) {
            continue;
        }
        attn__load_rows(v, &p->v, t->seq.kb, t->hk, t->seq.k_row + t->c0 + j, 1);
        for (int64_t d = 0; d < p->DV; d++) {
            if (!isfinite(v[d])) {
                wild[d] += w ? w[j] * v[d] : v[d];
            }
        }
    }
}

static void forward_row(attn__tile *t, rows_state *r, int i) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ldv = t->run->plan->ldv;
    float *const p = t->x.s + i * BN;
    float corr;
    attn__tile_row(t, i);
    const int state = ops->softmax(p, t->score, t->on, t->n, &r->m[i], &r->l[i], &corr, t->seen);
    r->nan[i] |= state == ROW_NAN;
    if (state != ROW_VISIBLE) {
        return;
    }
    if (corr != 1) {
        ops->scale(t->x.o + i * ldv, NULL, corr, ldv);
    }
    const float *const w = attn__tile_weights(t, i);
    if (w) {
        ops->scale(p, w, 1, attn__round_lanes(t->n));
    }
    if (r->n_wild) {
        add_wild(t, r, i, w);
    }
}

static void forward_tile(attn__tile *t, rows_state *r, int c0, int n, int class_) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    attn__tile_keys(t, c0, n);
    if (!attn__tile_pairs(t, class_)) {
        return;
    }
    attn__load_columns(t, t->x.kt, &p->k, t->seq.kb, t->hk, t->seq.k_row + c0, n);
    load_values(t, r);
    plan->ops->mul(t->x.s, BN, t->x.q, plan->ldd, 1, t->x.kt, BN, t->rows, attn__round_lanes(n),
                   (int)p->D, 0);
    for (int i = 0; i < t->rows; i++) {
        forward_row(t, r, i);
    }
    plan->ops->mul(t->x.o, plan->ldv, t->x.s, BN, 1, t->x.v, plan->ldv, t->rows, plan->ldv, n, 1);
}

static void finish_rows(attn__tile *t, const rows_state *r) {
    const attn__problem *const p = t->run->p;
    const int ldv = t->run->plan->ldv;
    const int64_t row = t->seq.q_row + t->r0;
    for (int i = 0; i < t->rows; i++) {
        float *const o = t->x.o + i * ldv;
        const float *const wild = r->has_wild ? t->x.wild + i * ldv : NULL;
        const float l = r->l[i] == 0 ? 1 : r->l[i]; /* no visible pair, no sink: 0 / 1 */
        for (int d = 0; d < ldv; d++) {
            const float x = o[d] / l;
            o[d] = r->nan[i] ? NAN : wild && wild[d] != 0 ? wild[d] : x;
        }
        if (p->lse.type) {
            const double lse = (double)r->m[i] + log((double)l);
            attn__set(attn__at(&p->lse, t->seq.qb, t->h, row + i), p->lse.type,
                      r->nan[i] ? NAN : lse);
        }
    }
    attn__store_rows(&p->o, t->seq.qb, t->h, row, t->x.o, t->rows);
}

void attn__cpu_forward(const attn__cpu_run *run, int thread, int64_t b, int64_t h, int tile) {
    const attn_variant *const v = run->p->variant;
    attn__tile t;
    rows_state r;
    attn__box box;
    attn__run runs[RUNS];
    attn__tile_open(&t, run, run->plan->queries, thread, b);
    attn__tile_head(&t, h);
    attn__tile_rows(&t, tile * BM, t.seq.nq - tile * BM < BM ? t.seq.nq - tile * BM : BM);
    begin_rows(&t, &r);
    attn__tile_box(&t, t.r0, t.rows, &box);
    int32_t at = 0;
    for (int n;
         (n = attn__runs(&v->graph, v->mask, &box, t.seq.k0, t.seq.nk, BN, &at, runs, RUNS)) > 0;) {
        for (int e = 0; e < n; e++) {
            for (int c = runs[e].begin; c < runs[e].end; c += BN) {
                const int end = c + BN < runs[e].end ? c + BN : runs[e].end;
                forward_tile(&t, &r, c, end - c, runs[e].class_);
            }
        }
    }
    finish_rows(&t, &r);
}
