/* cpu_softmax.c: forward, the rows of a tile: their scores become p, beside m and l.

   Who calls it: cpu_fwd.c, cpu_strips.c and cpu_narrow.c, for some rows at a time. Where p depends
   on nothing but scores, LANES rows go together, as no row then waits for the one before it:

       dots | a variant's row, its mask, block lists | -inf where a column does not count
            |                                        |    -> softmax of LANES rows, p in its form
            | dropout, v's scale, wild keys, a NaN, p times AGAIN: row by row

   Values of v that are not finite are given to the pairs that see them, one by one. */
#include "cpu_fwd.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <math.h>
#include <string.h>

void attn__find_wild(attn__tile *t, attn__wild_keys *wild, int pairs) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t row = t->seq.k_row + t->c0;
    wild->n = 0;
    for (int j = 0; j < t->n; j++) {
        attn__load_rows(t->x.strip, &p->v, t->seq.kb, t->hk, row + j, 1);
        if (!plan->ops->finite(t->x.strip, plan->ldv)) {
            wild->list[wild->n++] = (uint8_t)j;
        }
    }
    attn__drop_wild(t->x.v, (int64_t)plan->ldv * (pairs ? (t->n + 1) / 2 : t->n), pairs);
}

/* Row i sees some of the listed keys: adds their elements that are not finite, whatever p is. */
static void add_wild(attn__tile *t, attn__part *r, int i, const attn__wild_keys *keys,
                     const float *w) {
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

/* Columns from..end of a row of p become 0. */
static void clear_p(const attn__tile *t, int i, int from, int end) {
    const size_t bytes = t->form == FORM_F32 ? 4 : 2;
    const int split = t->form == FORM_SPLIT;
    char *const p = (char *)(split ? t->x.p_split + i * P_SPLIT : t->s + i * LDS);
    for (int e = 0; e < (split ? 3 : 1) && from < end; e++) {
        memset(p + e * (P_SPLIT / 3) * sizeof(float) + (size_t)from * bytes, 0,
               (size_t)(end - from) * bytes);
    }
}

/* Of group g of a tile with limits columns from..end of p are made; what a product takes besides
   becomes 0: in strips what the strip's other group sees, else all columns. */
static void clear_beside(const attn__tile *t, int g, int rows, int from, int end, int in_strips) {
    const int other = g ^ 1, step = 2 * LANES;
    int first = 0, last = attn__round_lanes(t->n);
    if (in_strips) {
        first = t->group_first[other] < from ? t->group_first[other] : from;
        last = t->group_last[other] > end ? t->group_last[other] : end;
        last = (last + step - 1) / step * step;
    }
    for (int i = g * LANES; i < g * LANES + rows; i++) {
        clear_p(t, i, first, from);
        clear_p(t, i, end, last);
    }
}

/* The row at hand. */
static float forward_row(attn__tile *t, attn__part *r, int i, const attn__wild_keys *wild) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int lanes = attn__round_lanes(t->n);
    float *const p = t->s + i * LDS;
    float corr = 1;
    const int from = t->begin / LANES * LANES;
    attn__clear_outside(t, p, from, attn__round_lanes(t->end));
    if (t->begin == t->end) {
        clear_p(t, i, 0, lanes);
        return 1;
    }
    if (wild->n) {
        attn__clear_outside(t, t->seen, from, attn__round_lanes(t->end));
    }
    const int state = ops->softmax(p + from, t->score + from, t->by, t->on ? t->on + from : NULL,
                                   t->begin - from, t->end - from, &r->now.m[i], &r->now.l[i],
                                   &corr, wild->n ? t->seen + from : NULL);
    r->nan[i] |= state == ROW_NAN;
    if (state == ROW_VISIBLE) {
        const float *const w = attn__tile_weights(t, i);
        if (w) {
            ops->scale(p, w, 1, lanes);
        }
        if (t->down != 1) {
            ops->scale(p, NULL, t->down, lanes);
        }
        if (wild->n) {
            add_wild(t, r, i, wild, w);
        }
    }
    if (t->form == FORM_PAIRS) {
        ops->narrow(p, p, lanes);
    } else if (t->form == FORM_SPLIT) {
        ops->split_row(t->x.p_split + i * P_SPLIT, P_SPLIT / 3, p, lanes);
    }
    return corr;
}

/* Whether p is all that a pair's score decides. */
static int is_plain(const attn__tile *t, const attn__wild_keys *wild) {
    return !t->has_value_scale && !wild->n && !t->run->p->drop_threshold && t->n % LANES == 0 &&
           t->down == 1;
}

/* Whether a score is a dot product of a row and a key, and the limits say all about it. */
static int has_dots(const attn__tile *t) {
    return !t->program[t->which].vm && !t->has_key_scale && !t->block_rows;
}

static int are_units(const float *by, int rows) {
    int all = 1;
    for (int e = 0; e < rows; e++) {
        all &= by[e] == ATTN__UNIT(by[e]);
    }
    return all;
}

static void go_on(const attn__tile *t, attn__queue *queue) {
    if (queue) {
        t->run->plan->ops->go_on(queue, 0);
    }
}

/* Row i's scores in place, in columns from..end. Returns what they are to be multiplied by: their
   unit, as by a negative number masked ones would become infinity. */
static float settle_row(attn__tile *t, int i, int from, int end) {
    float *const s = t->s + i * LDS;
    attn__tile_row(t, i);
    const int unit = t->by == ATTN__UNIT(t->by);
    if (t->begin < t->end && (t->on || t->score != s || !unit)) {
        t->run->plan->ops->settle(s + from, t->score + from, unit ? 1 : t->by,
                                  t->on ? t->on + from : NULL, end - from);
    }
    return unit ? t->by : 1;
}

/* What the limits leave out of columns from..end of row i becomes -inf. */
static void bound_row(attn__tile *t, int i, int from, int end) {
    float *const s = t->s + i * LDS;
    for (int j = from; j < t->first[i] && j < end; j++) {
        s[j] = -INFINITY;
    }
    for (int j = t->last[i] > from ? t->last[i] : from; j < end; j++) {
        s[j] = -INFINITY;
    }
}

/* Of n columns. bf16 has no p below 2^-126, and it shows in no sum, as the maximum's is 1. */
static int all_softmax(const attn__tile *t, attn__part *r, int i, float *p, const float *s,
                       int rows, int n, const float *by, float *corr, attn__queue *queue) {
    const int p_ld = t->form == FORM_SPLIT ? P_SPLIT : LDS;
    const unsigned state = t->form == FORM_F32 ? 0 : attn__flush_small();
    const int done =
        t->run->plan->ops->softmax_rows(p, p_ld, t->form, s, LDS, rows, n, by, r->now.m + i,
                                        r->now.l + i, corr, r->nan + i, queue);
    if (t->form != FORM_F32) {
        attn__restore(state);
    }
    return done;
}

/* LANES rows at once, or fewer. */
static void plain_rows(attn__tile *t, attn__part *r, int i, int rows, const attn__wild_keys *wild,
                       float *corr, attn__queue *queue) {
    const int from = t->bounded ? t->group_first[i / LANES] : 0;
    const int end = t->bounded ? t->group_last[i / LANES] : t->n;
    const int split = t->form == FORM_SPLIT;
    const int dots = has_dots(t) && are_units(t->row_scale + i, rows);
    float *const s = t->s + i * LDS, *const p = split ? t->x.p_split + i * P_SPLIT : s;
    float own[LANES];
    const float *const by = dots ? t->row_scale + i : own;
    for (int e = 0; e < rows && !dots; e++) {
        own[e] = settle_row(t, i + e, from, end);
        go_on(t, queue);
    }
    for (int e = 0; e < rows && t->bounded; e++) {
        bound_row(t, i + e, from, end);
    }
    if (from < end && all_softmax(t, r, i, p + from / (t->form == FORM_F32 ? 1 : 2), s + from, rows,
                                  end - from, by, corr, queue)) {
        if (t->bounded) {
            clear_beside(t, i / LANES, rows, from, end, queue != NULL);
        }
        return;
    }
    for (int e = 0; e < rows; e++) {
        t->begin = from < end ? from : 0;
        t->end = from < end ? end : 0;
        t->score = s + e * LDS;
        t->by = by[e];
        t->on = NULL;
        corr[e] = forward_row(t, r, i + e, wild);
        go_on(t, queue);
    }
}

int attn__forward_parts(attn__tile *t, int first, int last, float *corr) {
    const attn__problem *const p = t->run->p;
    attn__part *const a = &t->x.part[first], *const z = &t->x.part[last];
    const int rows = z->at + z->rows - a->at;
    float *const s = t->x.s + a->at * LDS;
    if (t->program[PROGRAM_FULL].vm || p->k_scale.type || p->v_scale.type || p->block_m ||
        p->drop_threshold || t->n % LANES || t->down != 1 || rows > LANES) {
        return 0;
    }
    memset(a->nan + a->rows, 0, (size_t)(rows - a->rows));
    if (!all_softmax(t, a, 0, s, s, rows, t->n, a->row_scale, corr, NULL)) {
        return 0;
    }
    for (attn__part *r = a + 1; r <= z; r++) {
        for (int i = 0; i < r->rows; i++) {
            r->nan[i] |= a->nan[r->at - a->at + i];
        }
    }
    return 1;
}

void attn__forward_rows(attn__tile *t, attn__part *r, int begin, int end,
                        const attn__wild_keys *wild, float *corr, attn__queue *queue) {
    const int plain = is_plain(t, wild);
    if (queue && plain && !has_dots(t)) {
        queue->rows *= 2; /* its steps are spread over scores, too */
    }
    for (int i = begin; i < end; i += LANES) {
        const int rows = end - i < LANES ? end - i : LANES;
        if (plain) {
            plain_rows(t, r, i, rows, wild, corr + i, queue);
            continue;
        }
        for (int e = i; e < i + rows; e++) {
            attn__tile_row(t, e);
            corr[e] = forward_row(t, r, e, wild);
            go_on(t, queue);
        }
    }
}
