/* cpu_narrow.c: forward of a tile whose parts have few rows together: a decoding step, where
   several heads that share k and v have a row each.

   Who calls it: cpu_fwd.c. Memory is what such a tile waits for, so k and v are read once, in
   order, where they lie, and the rows of all parts are multiplied together:

       heads of a group   q  |row|        32 keys at a time: k, transposed in the first cache, is
                             |row|        multiplied at once; then softmax of each part's rows; then
                             |row|        32 rows of v at a time, as they lie

   While k is multiplied v is asked for, and while v is, the next tile's k, a few lines at a time.
   With tile registers both products take bf16 rows as they lie and ask 32 rows ahead (cpu_few.c).
   The sums are those of any other tile, bit for bit: an element's terms are added in order of the
   keys, from zero. Not so p v of bf16 pairs without tile registers: p stays f32 and v's numbers
   are made f32, as pairing rows of v takes longer than their products there. With
   ATTN_BATCH_INVARIANT rows are paired.

   Whether v is finite shows in the sums: 0 * NaN and 0 * infinity are NaN. Then the tile is done
   again, with v in panels from which these elements are gone. */
#include "cpu_fwd.h"

#include <math.h>
#include <string.h>

enum { K_STEP = 32, V_STEP = 32 }; /* keys */

/* Parts first..last see the tile; rows from `at`. What was, in case the tile is done again. */
typedef struct narrow {
    int first, last, at, rows;
    float m[NARROW], l[NARROW], corr[NARROW];
    uint8_t nan[NARROW];
} narrow;

static int least(int a, int b) {
    return a < b ? a : b;
}

/* Rows of k or v from local key `key` on, at most BN, to be asked for during so much work. */
static attn__ahead ahead_of(const attn__tile *t, const attn__view *view, int key, int64_t work) {
    return attn__ahead_of(view, t->seq.kb, t->hk, t->seq.k_row + key, least(BN, t->seq.nk - key),
                          work);
}

/* The same for products that ask on their own. */
static attn__rows rows_of(const attn__tile *t, const attn__view *view, int key) {
    return (attn__rows){attn__at(view, t->seq.kb, t->hk, t->seq.k_row + key),
                        view->st[2] * view->bytes};
}

/* The work of a product of few rows: terms of panels' sums. A load has as much as one row's. */
static int64_t terms_of(int rows, int columns, int k) {
    return (int64_t)columns / LANES * ((rows + 5) / 6) * k;
}

void attn__begin_narrow(attn__tile *t, int rows) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int ld = plan->ldd / 2;
    for (int i = 0; i < rows && plan->pairs && plan->ops->dots; i += LANES) {
        plan->ops->transpose(t->x.q_columns + i * ld, (const char *)(t->x.q + i * ld),
                             ld * (int64_t)sizeof(float), ld, 0, NULL);
    }
}

/* The scores of all parts from k where it lies; 0 if that is not possible. */
static int scores_in_place(attn__tile *t, const narrow *x) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int ld = plan->ldd / 2;
    const char *const k =
        attn__direct(&p->k, t->seq.kb, t->hk, t->seq.k_row + t->c0, ATTN_BF16, 2 * LANES);
    if (!plan->pairs || !plan->ops->dots || !k || t->n % LANES) {
        return 0;
    }
    plan->ops->dots(t->x.s, LDS, t->x.q_columns, (attn__rows){k, p->k.st[2] * p->k.bytes},
                    rows_of(t, &p->v, t->c0), x->at + x->rows, t->n, ld);
    return 1;
}

static void all_scores(attn__tile *t, const narrow *x) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int two = plan->pairs ? 2 : 1, ld = plan->ldd / two, D = (int)(p->D + two - 1) / two;
    const int step = plan->pairs ? BN : K_STEP; /* pairs: a product takes long to begin */
    if (scores_in_place(t, x)) {
        return;
    }
    t->ahead = ahead_of(t, &p->v, t->c0,
                        terms_of(1, BN, D) + (plan->pairs ? 0 : terms_of(x->rows, BN, D)));
    for (int j = 0; j < t->n; j += step) {
        const int n = least(step, t->n - j), lanes = attn__round_lanes(n);
        float *const s = t->x.s + x->at * LDS + j;
        const attn__left q = {t->x.q + x->at * ld, ld, 1};
        const attn__right k = {t->x.kt, LANES, (int64_t)ld * LANES};
        attn__load_columns(t, t->x.kt, &p->k, t->seq.kb, t->hk, t->seq.k_row + t->c0 + j, n,
                           plan->pairs);
        if (plan->pairs) {
            plan->ops->mul_pairs(s, LDS, q, k, x->rows, lanes, D, MUL_SET);
        } else {
            plan->ops->mul_few(s, LDS, q, k, x->rows, lanes, D, MUL_SET, 0, &t->ahead);
        }
    }
}

static void all_rows(attn__tile *t, narrow *x, int c0, const int *next, const int *class_,
                     const attn__wild_keys *wild) {
    int full = !wild->n;
    for (int e = x->first; e <= x->last; e++) {
        full &= next[e] == c0 && class_[e] == CLASS_FULL;
    }
    if (full && attn__forward_parts(t, x->first, x->last, x->corr + x->at)) {
        return;
    }
    for (int e = x->first; e <= x->last; e++) {
        attn__part *const r = &t->x.part[e];
        float *const s = t->x.s + r->at * LDS;
        int sees = next[e] == c0;
        if (sees) {
            attn__choose_part(t, r, s);
            sees = attn__tile_pairs(t, class_[e]);
        }
        if (sees) {
            attn__forward_rows(t, r, 0, r->rows, wild, x->corr + r->at, NULL);
            continue;
        }
        for (int i = 0; i < r->rows; i++) {
            x->corr[r->at + i] = 1;
        }
        memset(s, 0, (size_t)r->rows * LDS * sizeof *s);
    }
}

/* How p and v are multiplied: v in tile registers or as f32, where it lies; p by a copy of v, in
   panels. */
enum way { BY_REGISTERS, BY_F32, BY_PANELS };

/* Pairs are multiplied as pairs, as in tiles of many rows, unless registers are missing and the
   sequence has few rows, however they are shared out, and a row's bits may depend on that. */
static enum way way_of(const attn__tile *t, const char **v) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t step = p->v.st[2];
    const int type = p->v.type == ATTN_BF16 ? ATTN_BF16 : ATTN_F32;
    const int few = t->seq.nq * (p->H / p->HK) <= NARROW && !(p->flags & ATTN_BATCH_INVARIANT);
    *v = step < 0 || step > INT32_MAX
             ? NULL
             : attn__direct(&p->v, t->seq.kb, t->hk, t->seq.k_row + t->c0, type, LANES);
    if (plan->pairs && plan->ops->sums) {
        return *v && t->n % (2 * LANES) == 0 && p->v.n[3] >= 2 * LANES ? BY_REGISTERS : BY_PANELS;
    }
    return *v && (few || !plan->pairs) ? BY_F32 : BY_PANELS;
}

/* o, which is that of all rows: the states of a chunk's parts follow one another. */
static float *sums_at(const attn__tile *t, const narrow *x) {
    return t->x.part[x->first].now.o;
}

static void scale_sums(const attn__tile *t, const narrow *x, float *sums) {
    const int ldv = t->run->plan->ldv;
    for (int i = 0; i < x->rows; i++) {
        if (x->corr[x->at + i] != 1) {
            t->run->plan->ops->scale(sums + i * ldv, NULL, x->corr[x->at + i], ldv);
        }
    }
}

/* o += p v in tile registers; 0, and o is as it was, unless all are finite. */
static int sum_by_registers(attn__tile *t, const narrow *x, const char *v) {
    const attn__cpu_plan *const plan = t->run->plan;
    const attn__view *const k = &t->run->p->k, *const view = &t->run->p->v;
    const int next = t->c0 + BN < t->seq.nk ? t->c0 + BN : t->c0;
    const size_t bytes = (size_t)(x->rows * plan->ldv) * sizeof(float);
    memcpy(t->x.sum, sums_at(t, x), bytes);
    scale_sums(t, x, t->x.sum);
    plan->ops->sums(t->x.sum, plan->ldv, (attn__left){t->x.s + x->at * LDS, LDS, 1},
                    (attn__rows){v, view->st[2] * view->bytes}, rows_of(t, k, next), x->rows,
                    plan->ldv, t->n / 2);
    if (!plan->ops->finite(t->x.sum, (int64_t)x->rows * plan->ldv)) {
        return 0;
    }
    memcpy(sums_at(t, x), t->x.sum, bytes);
    return 1;
}

/* The same as f32, 32 rows of v at a time. */
static int sum_in_place(attn__tile *t, const narrow *x, const char *v) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t step = p->v.st[2];
    const int bf16 = p->v.type == ATTN_BF16;
    memset(t->x.sum, 0, (size_t)(x->rows * plan->ldv) * sizeof *t->x.sum);
    for (int l = 0; l < t->n; l += V_STEP) {
        plan->ops->mul_few(t->x.sum, plan->ldv, (attn__left){t->x.s + x->at * LDS + l, LDS, 1},
                           (attn__right){v + l * step * p->v.bytes, (int)step, LANES}, x->rows,
                           plan->ldv, least(V_STEP, t->n - l), MUL_CONTINUE, bf16, &t->ahead);
    }
    if (!plan->ops->finite(t->x.sum, (int64_t)x->rows * plan->ldv)) {
        return 0;
    }
    scale_sums(t, x, sums_at(t, x));
    plan->ops->fold(sums_at(t, x), 1, t->x.sum, 1, x->rows * plan->ldv);
    return 1;
}

static void sum_panels(attn__tile *t, const narrow *x) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int pairs = t->form == FORM_PAIRS, keys = pairs ? (t->n + 1) / 2 : t->n;
    scale_sums(t, x, sums_at(t, x));
    (pairs ? plan->ops->mul_pairs : plan->ops->mul)(
        sums_at(t, x), plan->ldv, (attn__left){t->x.s + x->at * LDS, LDS, 1},
        (attn__right){t->x.v, LANES, (int64_t)keys * LANES}, x->rows, plan->ldv, keys, MUL_ADD);
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
    const char *v;
    const enum way way = way_of(t, &v);
    t->form = way == BY_F32 || !plan->pairs ? FORM_F32 : FORM_PAIRS;
    keep(t, &x, 0);
    all_scores(t, &x);
    all_rows(t, &x, c0, next, class_, &wild);
    t->ahead = ahead_of(t, &p->k, t->c0 + BN,
                        way == BY_F32 ? terms_of(x.rows, plan->ldv, t->n) : (int64_t)t->n);
    if ((way == BY_REGISTERS && sum_by_registers(t, &x, v)) ||
        (way == BY_F32 && sum_in_place(t, &x, v))) {
        return;
    }
    /* of the same form, so that what no row looks at changes no bit */
    const int pairs = t->form == FORM_PAIRS;
    if (!attn__load_panels(t, t->x.v, &p->v, t->seq.kb, t->hk, t->seq.k_row + t->c0, t->n, pairs)) {
        attn__find_wild(t, &wild, pairs);
        keep(t, &x, 1);
        all_scores(t, &x);
        all_rows(t, &x, c0, next, class_, &wild);
    }
    sum_panels(t, &x);
}
