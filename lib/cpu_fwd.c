/* cpu_fwd.c: forward, one work item: some tiles of BM query rows, of the heads that share one key
   head, and all keys they see.

   Who calls it: cpu.c, once per item. The online softmax of Milakov and Gimelshein (2018):

       columns:   | BN | BN | BN | ...             at absolute multiples of BN; empty ones skipped
       per tile:  k, transposed, and v are loaded once for all parts that see the tile; each part:
                  s = q k;  row: m' = max(m, s), p = exp(s - m'), l = l e^(m - m') + sum p,
                  o = o e^(m - m') + p v
       at the end: out = o / l, LSE = m + log l

   m and l begin with the sink, as the row's first key; without one with nothing. A row whose tile
   has no visible pair skips the tile, so its bits do not depend on what its neighbours see, nor on
   which parts share its item.

   Where q, k and v are bf16 and the processor multiplies pairs of them, p is rounded to bf16 for
   the product with v, after l has taken it in.

   Values that are not finite. Rows of a product see their own row of p alone, but each sees every
   key: 0 * NaN would reach rows that mask it. So these elements of v are taken out of the tile and
   added, for the pairs that see them, to sums of their own, which join out at the end. A visible
   score that is NaN or +inf makes its row NaN, and the row goes on without it. */
#include "cpu.h"

#include <math.h>
#include <string.h>

/* The keys of a tile whose v has elements that are not finite. */
typedef struct wild_keys {
    int n;
    uint8_t list[BN];
} wild_keys;

static void begin_part(attn__tile *t, attn__part *r) {
    const attn__problem *const p = t->run->p;
    const int has_sink = p->sink.type != 0;
    const double sink = has_sink ? attn__get(attn__at(&p->sink, 0, r->h, 0), p->sink.type) : 0;
    t->h = r->h;
    t->row_scale = r->row_scale;
    attn__tile_rows(t, r->r0, r->rows);
    attn__walk_begin(&r->walk, t);
    for (int i = 0; i < r->rows; i++) {
        r->m[i] = has_sink ? (float)sink : -INFINITY;
        r->l[i] = r->m[i] == -INFINITY ? 0 : 1;
        r->nan[i] = 0;
    }
    r->has_wild = 0;
    memset(r->o, 0, (size_t)r->rows * (size_t)t->run->plan->ldv * sizeof *r->o);
    (t->run->plan->pairs ? attn__load_pairs : attn__load_rows)(r->q, &p->q, t->seq.qb, r->h,
                                                               t->seq.q_row + r->r0, r->rows);
}

/* Makes `r` the tile's rows. */
static void choose_part(attn__tile *t, attn__part *r) {
    if (t->h != r->h) {
        attn__tile_head(t, r->h);
        attn__tile_keys(t, t->c0, t->n);
    }
    t->r0 = r->r0;
    t->rows = r->rows;
    t->row_scale = r->row_scale;
}

static void load_values(attn__tile *t, wild_keys *wild) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0;
    const int ldv = plan->ldv;
    wild->n = 0;
    t->v = t->x.v;
    t->v_ld = ldv;
    if (plan->pairs) {
        if (attn__load_row_pairs(t, t->x.v, &p->v, b, t->hk, row, t->n)) {
            return;
        }
    } else {
        const float *const direct = attn__direct(&p->v, b, t->hk, row, &t->v_ld);
        if (direct) {
            t->v = direct;
        } else {
            attn__load_rows(t->x.v, &p->v, b, t->hk, row, t->n);
        }
        if (plan->ops->finite(t->v, t->v_ld, t->n, ldv)) {
            return;
        }
        if (direct) {
            t->v = t->x.v;
            t->v_ld = ldv;
            attn__load_rows(t->x.v, &p->v, b, t->hk, row, t->n);
        }
    }
    for (int j = 0; j < t->n; j++) {
        attn__load_rows(t->x.strip, &p->v, b, t->hk, row + j, 1);
        if (!plan->ops->finite(t->x.strip, ldv, 1, ldv)) {
            wild->list[wild->n++] = (uint8_t)j;
        }
    }
    (plan->pairs ? attn__drop_wild_pairs : attn__drop_wild)(t->x.v, ldv,
                                                            plan->pairs ? (t->n + 1) / 2 : t->n);
}

/* The next tile of keys comes into the second cache while this one is worked on. */
static void prefetch_next(const attn__tile *t) {
    const attn__problem *const p = t->run->p;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0 + BN;
    const int rest = t->seq.nk - t->c0 - BN;
    attn__prefetch(&p->k, b, t->hk, row, rest < BN ? rest : BN);
    attn__prefetch(&p->v, b, t->hk, row, rest < BN ? rest : BN);
}

/* Row i sees some of the listed keys: adds their elements that are not finite, whatever p is. */
static void add_wild(attn__tile *t, attn__part *r, int i, const wild_keys *keys, const float *w) {
    const attn__problem *const p = t->run->p;
    const int ldv = t->run->plan->ldv;
    float *const wild = r->wild + i * ldv, *const v = t->x.strip;
    if (!r->has_wild) {
        memset(r->wild, 0, (size_t)r->rows * (size_t)ldv * sizeof *r->wild);
        r->has_wild = 1;
    }
    for (int e = 0; e < keys->n; e++) {
        const int j = keys->list[e];
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

static void forward_row(attn__tile *t, attn__part *r, int i, const wild_keys *wild) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ldv = t->run->plan->ldv, lanes = attn__round_lanes(t->n);
    float *const p = t->x.s + i * BN;
    float corr = 1;
    attn__tile_row(t, i);
    const int state = ops->softmax(p, t->score, t->by, t->on, t->n, &r->m[i], &r->l[i], &corr,
                                   wild->n ? t->seen : NULL);
    r->nan[i] |= state == ROW_NAN;
    if (state == ROW_VISIBLE) {
        if (corr != 1) {
            ops->scale(r->o + i * ldv, NULL, corr, ldv);
        }
        const float *const w = attn__tile_weights(t, i);
        if (w) {
            ops->scale(p, w, 1, lanes);
        }
        if (wild->n) {
            add_wild(t, r, i, wild, w);
        }
    }
    if (t->run->plan->pairs) {
        ops->narrow(p, p, lanes);
    }
}

static void forward_part(attn__tile *t, attn__part *r, const wild_keys *wild) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int ldv = plan->ldv;
    attn__tile_dots(t, t->x.s, r->q, t->x.kt, t->run->p->D, plan->pairs);
    for (int i = 0; i < t->rows; i++) {
        forward_row(t, r, i, wild);
    }
    if (plan->pairs) {
        plan->ops->mul_pairs(r->o, ldv, t->x.s, BN, 1, t->v, ldv, t->rows, ldv, (t->n + 1) / 2, 1);
    } else {
        plan->ops->mul(r->o, ldv, t->x.s, BN, 1, t->v, t->v_ld, t->rows, ldv, t->n, 1);
    }
}

static void finish_part(attn__tile *t, const attn__part *r) {
    const attn__problem *const p = t->run->p;
    const int ldv = t->run->plan->ldv;
    const int64_t row = t->seq.q_row + r->r0;
    for (int i = 0; i < r->rows; i++) {
        float *const o = r->o + i * ldv;
        const float *const wild = r->has_wild ? r->wild + i * ldv : NULL;
        const float l = r->l[i] == 0 ? 1 : r->l[i]; /* no visible pair, no sink: 0 / 1 */
        for (int d = 0; d < ldv; d++) {
            const float x = o[d] / l;
            o[d] = r->nan[i] ? NAN : wild && wild[d] != 0 ? wild[d] : x;
        }
        if (p->lse.type) {
            const double lse = (double)r->m[i] + log((double)l);
            attn__set(attn__at(&p->lse, t->seq.qb, r->h, row + i), p->lse.type,
                      r->nan[i] ? NAN : lse);
        }
    }
    attn__store_rows(&p->o, t->seq.qb, r->h, row, r->o, r->rows);
}

/* Parts whose next visible tile begins at c0, which is the nearest of all. */
static void forward_keys(attn__tile *t, int n, int c0, const int *next, const int *class_) {
    const attn__problem *const p = t->run->p;
    wild_keys wild = {0, {0}};
    int loaded = 0;
    t->h = -1;
    t->c0 = c0;
    t->n = t->seq.nk - c0 < BN ? t->seq.nk - c0 : BN;
    for (int e = 0; e < n; e++) {
        if (next[e] != c0) {
            continue;
        }
        choose_part(t, &t->x.part[e]);
        if (!attn__tile_pairs(t, class_[e])) {
            continue;
        }
        if (!loaded) {
            attn__load_columns(t, t->x.kt, &p->k, t->seq.kb, t->hk, t->seq.k_row + c0, t->n,
                               t->run->plan->pairs);
            load_values(t, &wild);
            prefetch_next(t);
            loaded = 1;
        }
        forward_part(t, &t->x.part[e], &wild);
    }
}

void attn__cpu_forward(const attn__cpu_run *run, int thread, int64_t b, int64_t hk, int first,
                       int n) {
    const attn__problem *const p = run->p;
    const attn__cpu_plan *const plan = run->plan;
    const int64_t group = p->H / p->HK;
    int next[PARTS], class_[PARTS];
    attn__tile t;
    attn__tile_open(&t, run, plan->queries, thread, b);
    const int tiles = (t.seq.nq + BM - 1) / BM;
    for (int e = 0; e < n; e++) {
        attn__part *const r = &t.x.part[e];
        r->h = hk * group + (first + e) / tiles;
        r->r0 = (first + e) % tiles * BM;
        r->rows = t.seq.nq - r->r0 < BM ? t.seq.nq - r->r0 : BM;
        r->q = t.x.q + e * BM * plan->ldd;
        r->o = t.x.o + e * BM * plan->ldv;
        r->wild = t.x.wild + e * BM * plan->ldv;
        begin_part(&t, r);
    }
    for (int c = 0;; c += BN) {
        int nearest = t.seq.nk;
        for (int e = 0; e < n; e++) {
            next[e] = attn__walk_next(&t.x.part[e].walk, &t, c, &class_[e]);
            nearest = next[e] < nearest ? next[e] : nearest;
        }
        if (nearest >= t.seq.nk) {
            break;
        }
        c = nearest;
        forward_keys(&t, n, c, next, class_);
    }
    for (int e = 0; e < n; e++) {
        finish_part(&t, &t.x.part[e]);
    }
}
