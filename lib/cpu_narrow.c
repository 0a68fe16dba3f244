/* cpu_narrow.c: forward of a tile whose parts have few rows together: a decoding step, where several
   heads that share k and v have a row each.

   Who calls it: cpu_fwd.c. Memory is what such a tile waits for, so k and v are read once, in
   order, where they lie, and the rows of all parts are multiplied together:

       heads of a group   q  |row|        16 keys at a time: k, transposed in the first cache, is
                             |row|        multiplied at once; then softmax of each part's rows; then
                             |row|        16 rows of v at a time, as they lie

   While k is multiplied v is asked for, and while v is, the next tile's k. The sums are those of any
   other tile, bit for bit: an element's terms are added in order of the keys, from zero.

   Whether v is finite shows in the sums: 0 * NaN and 0 * infinity are NaN. Then the tile is done
   again, with v in panels from which these elements are gone. */
#include "cpu_fwd.h"

#include <math.h>
#include <string.h>

enum { STEP = 16 }; /* keys */

/* Parts first..last see the tile; rows from `at`. What was, in case the tile is done again. */
typedef struct narrow {
    int first, last, at, rows;
    float m[NARROW], l[NARROW], corr[NARROW];
    uint8_t nan[NARROW];
} narrow;

static int least(int a, int b) { return a < b ? a : b; }

static void prefetch(const attn__tile *t, const attn__view *view, int key) {
    if (key < t->seq.nk) {
        attn__prefetch(view, t->seq.kb, t->hk, t->seq.k_row + key, least(STEP, t->seq.nk - key));
    }
}

static void all_scores(attn__tile *t, const narrow *x) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int two = plan->pairs ? 2 : 1, ld = plan->ldd / two;
    const int step = x->rows == 1 ? 2 * STEP : STEP; /* one row alone needs more sums at a time */
    for (int j = 0; j < t->n; j += step) {
        const int n = least(step, t->n - j);
        for (int e = 0; e < n; e += STEP) {
            prefetch(t, &p->v, t->c0 + j + e);
        }
        attn__load_columns(t, t->x.kt, &p->k, t->seq.kb, t->hk, t->seq.k_row + t->c0 + j, n,
                           plan->pairs);
        (plan->pairs ? plan->ops->mul_pairs : plan->ops->mul)(
            t->x.s + x->at * LDS + j, LDS, (attn__left){t->x.q + x->at * ld, ld, 1},
            (attn__right){t->x.kt, LANES, (int64_t)ld * LANES}, x->rows, attn__round_lanes(n),
            (int)(p->D + two - 1) / two, MUL_SET);
    }
}

static void all_rows(attn__tile *t, narrow *x, int c0, const int *next, const int *class_,
                     const attn__wild_keys *wild) {
    for (int e = x->first; e <= x->last; e++) {
        attn__part *const r = &t->x.part[e];
        float *const s = t->x.s + r->at * LDS;
        int sees = next[e] == c0;
        if (sees) {
            attn__choose_part(t, r, s);
            sees = attn__tile_pairs(t, class_[e]);
        }
        for (int i = 0; i < r->rows; i++) {
            x->corr[r->at + i] = sees ? attn__forward_row(t, r, i, wild) : 1;
        }
        if (!sees) {
            memset(s, 0, (size_t)r->rows * LDS * sizeof *s);
        }
    }
}

/* x.sum = p v from v where it lies; 0 if that is not possible. */
static int sum_in_place(attn__tile *t, const narrow *x) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t row = t->seq.k_row + t->c0, step = p->v.st[2];
    const int bf16 = p->v.type == ATTN_BF16;
    const char *const v = attn__direct(&p->v, t->seq.kb, t->hk, row,
                                       bf16 ? ATTN_BF16 : ATTN_F32, LANES);
    if (!v || plan->pairs || step < 0 || step > INT32_MAX) {
        return 0;
    }
    memset(t->x.sum, 0, (size_t)(x->rows * plan->ldv) * sizeof *t->x.sum);
    for (int l = 0; l < t->n; l += STEP) {
        prefetch(t, &p->k, t->c0 + BN + l);
        (bf16 ? plan->ops->mul_bf16 : plan->ops->mul)(
            t->x.sum, plan->ldv, (attn__left){t->x.s + x->at * LDS + l, LDS, 1},
            (attn__right){v + l * step * p->v.bytes, (int)step, LANES}, x->rows, plan->ldv,
            least(STEP, t->n - l), MUL_CONTINUE);
    }
    return 1;
}

static void sum_panels(attn__tile *t, const narrow *x) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int keys = plan->pairs ? (t->n + 1) / 2 : t->n;
    (plan->pairs ? plan->ops->mul_pairs : plan->ops->mul)(
        t->x.sum, plan->ldv, (attn__left){t->x.s + x->at * LDS, LDS, 1},
        (attn__right){t->x.v, LANES, (int64_t)keys * LANES}, x->rows, plan->ldv, keys, MUL_SET);
}

/* m, l and nan of the rows, to be kept or to be had again. */
static void keep(attn__tile *t, narrow *x, int again) {
    for (int e = x->first; e <= x->last; e++) {
        attn__part *const r = &t->x.part[e];
        float *const m = x->m + r->at, *const l = x->l + r->at;
        const size_t bytes = (size_t)r->rows * sizeof *m;
        memcpy(again ? r->now.m : m, again ? m : r->now.m, bytes);
        memcpy(again ? r->now.l : l, again ? l : r->now.l, bytes);
        memcpy(again ? r->nan : x->nan + r->at, again ? x->nan + r->at : r->nan, (size_t)r->rows);
    }
}

static void add_sums(attn__tile *t, const narrow *x) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ldv = t->run->plan->ldv;
    for (int e = x->first; e <= x->last; e++) {
        const attn__part *const r = &t->x.part[e];
        for (int i = 0; i < r->rows; i++) {
            float *const o = r->now.o + i * ldv;
            if (x->corr[r->at + i] != 1) {
                ops->scale(o, NULL, x->corr[r->at + i], ldv);
            }
            ops->fold(o, 1, t->x.sum + (r->at + i - x->at) * ldv, 1, ldv);
        }
    }
}

void attn__forward_narrow(attn__tile *t, int n, int c0, const int *next, const int *class_) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    attn__wild_keys wild = {0, {0}};
    narrow x = {.first = n, .last = -1};
    for (int e = 0; e < n; e++) {
        if (next[e] == c0) {
            x.first = least(x.first, e);
            x.last = e;
        }
    }
    x.at = t->x.part[x.first].at;
    x.rows = t->x.part[x.last].at + t->x.part[x.last].rows - x.at;
    keep(t, &x, 0);
    all_scores(t, &x);
    all_rows(t, &x, c0, next, class_, &wild);
    const int in_place = sum_in_place(t, &x);
    if (!in_place || !plan->ops->finite(t->x.sum, (int64_t)x.rows * plan->ldv)) {
        if (!attn__load_panels(t, t->x.v, &p->v, t->seq.kb, t->hk, t->seq.k_row + t->c0, t->n,
                               plan->pairs)) {
            attn__find_wild(t, &wild);
            keep(t, &x, 1);
            all_scores(t, &x);
            all_rows(t, &x, c0, next, class_, &wild);
        }
        sum_panels(t, &x);
    }
    add_sums(t, &x);
}
