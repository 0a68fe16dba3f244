/* cpu_fwd.c: forward, one work item: some tiles of query rows, of the heads that share one key
   head, and some segments of the keys they see.

   Who calls it: cpu_split.c, once per item. The online softmax of Milakov and Gimelshein (2018):

       columns:   | BN | BN | BN | ...             at absolute multiples of BN; empty ones skipped
       per tile:  k, transposed, and v are loaded once for all parts that see the tile; each part:
                  s = q k;  row: m' = max(m, s), p = exp(s - m'), l = l e^(m - m') + sum p,
                  o = o e^(m - m') + p v
       per segment of SEGMENT keys: (o, m, l) begins anew, and is then merged with those before it
       at the end, by the row's sink: out = o / l, LSE = m + log l

   A row whose tile has no visible pair skips the tile, and a segment likewise, so its bits do not
   depend on what its neighbours see, nor on which parts share its item, nor on which segments do.

   Where q, k and v are bf16 and the processor multiplies pairs of them, p is rounded to bf16 for
   the product with v, after l has taken it in.

   Values that are not finite. Rows of a product see their own row of p alone, but each sees every
   key: 0 * NaN would reach rows that mask it. So these elements of v are taken out of the tile and
   added, for the pairs that see them, to sums of their own, which replace o's at the segment's end.
   A visible score that is NaN or +inf makes its row NaN, and the row goes on without it.
   o = l out may pass f32 where out does not. Then its row is done again, with p times AGAIN. */
#include "cpu_fwd.h"

#include <math.h>
#include <string.h>

/* -- Parts ------------------------------------------------------------------------------------- */

static void begin_part(attn__tile *t, attn__part *r, int first_key) {
    const attn__problem *const p = t->run->p;
    t->h = r->h;
    t->row_scale = r->row_scale;
    attn__tile_rows(t, r->r0, r->rows);
    attn__walk_begin(&r->walk, t, first_key);
    (t->run->plan->pairs ? attn__load_pairs : attn__load_rows)(r->q, &p->q, t->seq.qb, r->h,
                                                               t->seq.q_row + r->r0, r->rows);
    if (t->run->plan->split) {
        attn__split_rows(t, r);
    }
}

static void begin_segment(const attn__tile *t, attn__part *r) {
    for (int i = 0; i < r->rows; i++) {
        r->now.m[i] = -INFINITY;
        r->now.l[i] = 0;
        r->nan[i] = 0;
    }
    r->has_wild = 0;
    memset(r->now.o, 0, (size_t)r->rows * (size_t)t->run->plan->ldv * sizeof *r->now.o);
}

/* What stood beside the sums joins them, and m leaves its unit: then they are a state. */
static void end_segment(const attn__tile *t, attn__part *r) {
    const int scaled = t->program->score >= 0 || t->run->p->k_scale.type;
    const int64_t n = (int64_t)r->rows * t->run->plan->ldv;
    for (int64_t e = 0; e < n && r->has_wild; e++) {
        r->now.o[e] = r->wild[e] != 0 ? r->wild[e] : r->now.o[e];
    }
    for (int i = 0; i < r->rows; i++) {
        r->now.m[i] *= scaled ? 1 : ATTN__UNIT(r->row_scale[i]);
        if (r->nan[i]) {
            r->now.m[i] = r->now.m[i] == -INFINITY ? 0 : r->now.m[i];
            r->now.l[i] = NAN;
        }
    }
}

/* The segment's state goes to those before it. */
static void merge_segment(const attn__tile *t, attn__part *r) {
    if (!r->has_all) {
        const attn__state first = r->now;
        r->now = r->all;
        r->all = first;
        r->has_all = 1;
        return;
    }
    for (int i = 0; i < r->rows; i++) {
        attn__fold_row(t->run->plan, &r->all, &r->now, i);
    }
}

/* Makes `r` the tile's rows. */
void attn__choose_part(attn__tile *t, attn__part *r, float *s) {
    if (t->h != r->h) {
        attn__tile_head(t, r->h);
        attn__tile_keys(t, t->c0, t->n);
    }
    t->r0 = r->r0;
    t->rows = r->rows;
    t->row_scale = r->row_scale;
    t->s = s;
}

/* -- Rows -------------------------------------------------------------------------------------- */

void attn__find_wild(attn__tile *t, attn__wild_keys *wild) {
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
    attn__drop_wild(t->x.v, (int64_t)plan->ldv * (plan->pairs ? (t->n + 1) / 2 : t->n),
                    plan->pairs);
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

/* A row of p becomes 0 outside of columns from..end. */
static void clear_p(const attn__tile *t, int i, int from, int end) {
    const size_t lanes = (size_t)attn__round_lanes(t->n), bytes = t->form == FORM_F32 ? 4 : 2;
    const int split = t->form == FORM_SPLIT;
    char *p = (char *)(split ? t->x.p_split + i * P_SPLIT : t->s + i * LDS);
    for (int e = 0; e < (split ? 3 : 1); e++, p += P_SPLIT / 3 * sizeof(float)) {
        memset(p, 0, (size_t)from * bytes);
        memset(p + (size_t)end * bytes, 0, (lanes - (size_t)end) * bytes);
    }
}

static float forward_row(attn__tile *t, attn__part *r, int i, const attn__wild_keys *wild) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int lanes = attn__round_lanes(t->n);
    float *const p = t->s + i * LDS;
    float corr = 1;
    attn__tile_row(t, i);
    const int from = t->begin / LANES * LANES;
    attn__clear_outside(t, p, from, attn__round_lanes(t->end));
    if (t->begin == t->end) {
        clear_p(t, i, 0, 0);
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

/* Whether a pair's probability depends on nothing but its score s and the limits. */
static int is_plain(const attn__tile *t, const attn__wild_keys *wild) {
    return !t->program[t->which].vm && !t->has_key_scale && !t->has_value_scale && !wild->n &&
           !t->block_rows && !t->run->p->drop_threshold && t->n % LANES == 0 && t->down == 1;
}

/* LANES rows at once: what a row does not see of their columns becomes -inf. */
static int plain_rows(attn__tile *t, attn__part *r, int i, int rows, float *corr,
                      attn__queue *queue) {
    const int from = t->bounded ? t->group_first[i / LANES] : 0;
    const int end = t->bounded ? t->group_last[i / LANES] : t->n;
    const int split = t->form == FORM_SPLIT, p_ld = split ? P_SPLIT : LDS;
    float *const s = t->s + i * LDS, *const p = split ? t->x.p_split + i * P_SPLIT : s;
    if (from >= end) {
        return 0;
    }
    for (int e = i; e < i + rows && t->bounded; e++) {
        for (int j = from; j < t->first[e] && j < end; j++) {
            t->s[e * LDS + j] = -INFINITY;
        }
        for (int j = t->last[e] > from ? t->last[e] : from; j < end; j++) {
            t->s[e * LDS + j] = -INFINITY;
        }
    }
    if (!t->run->plan->ops->softmax_rows(p + from / (t->form == FORM_F32 ? 1 : 2), p_ld, t->form,
                                         s + from, LDS, rows, end - from, t->row_scale + i,
                                         r->now.m + i, r->now.l + i, corr, r->nan + i, queue)) {
        return 0;
    }
    for (int e = i; e < i + rows && t->bounded; e++) {
        clear_p(t, e, from, end);
    }
    return 1;
}

void attn__forward_rows(attn__tile *t, attn__part *r, int begin, int end,
                        const attn__wild_keys *wild, float *corr, attn__queue *queue) {
    const int plain = is_plain(t, wild);
    for (int i = begin; i < end; i += LANES) {
        const int rows = end - i < LANES ? end - i : LANES;
        if (plain && plain_rows(t, r, i, rows, corr + i, queue)) {
            continue;
        }
        for (int e = i; e < i + rows; e++) {
            corr[e] = forward_row(t, r, e, wild);
            if (queue) {
                t->run->plan->ops->go_on(queue, 0);
            }
        }
    }
}

/* -- Tiles ------------------------------------------------------------------------------------- */

/* The next tile of keys comes into the second cache while this one is worked on. */
static void prefetch_next(const attn__tile *t) {
    const attn__problem *const p = t->run->p;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0 + BN;
    const int rest = t->seq.nk - t->c0 - BN;
    attn__prefetch(&p->k, b, t->hk, row, rest < BN ? rest : BN);
    attn__prefetch(&p->v, b, t->hk, row, rest < BN ? rest : BN);
}

static void load_keys(attn__tile *t, attn__wild_keys *wild) {
    const attn__problem *const p = t->run->p;
    const int pairs = t->run->plan->pairs;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0;
    attn__load_columns(t, t->x.kt, &p->k, b, t->hk, row, t->n, pairs);
    if (!attn__load_panels(t, t->x.v, &p->v, b, t->hk, row, t->n, pairs)) {
        attn__find_wild(t, wild);
    }
    attn__split_keys(t);
    prefetch_next(t);
}

void attn__scale_sums(const attn__tile *t, const attn__part *r, int begin, int end,
                      const float *corr) {
    const int ldv = t->run->plan->ldv;
    for (int i = begin; i < end; i++) {
        if (corr[i] != 1) {
            t->run->plan->ops->scale(r->now.o + i * ldv, NULL, corr[i], ldv);
        }
    }
}

static void forward_part(attn__tile *t, attn__part *r, const attn__wild_keys *wild) {
    const attn__cpu_plan *const plan = t->run->plan;
    float corr[BM];
    t->form = plan->pairs ? FORM_PAIRS : FORM_F32;
    attn__sum_dots(t, t->s, r->q, t->x.kt, t->run->p->D, plan->pairs);
    attn__forward_rows(t, r, 0, t->rows, wild, corr, NULL);
    attn__scale_sums(t, r, 0, t->rows, corr);
    attn__sum_rows(t, r->now.o, plan->ldv, t->s, LDS, t->x.v, plan->pairs);
}

/* The part after part e that sees the tile, if it sees all of it. */
static const attn__part *next_whole(const attn__tile *t, int n, int e, int c0, const int *next,
                                    const int *class_) {
    for (e++; e < n && next[e] != c0;) {
        e++;
    }
    return e < n && class_[e] == CLASS_FULL && !t->run->p->block_m &&
                   attn__has_strips(t, &t->x.part[e])
               ? &t->x.part[e]
               : NULL;
}

/* Parts whose next visible tile begins at c0, which is the nearest of all. */
static void forward_tile(attn__tile *t, int n, int c0, const int *next, const int *class_) {
    attn__wild_keys wild = {0, {0}};
    attn__strips x = {.has_dots = 0};
    int loaded = 0;
    for (int e = 0; e < n; e++) {
        if (next[e] != c0) {
            continue;
        }
        attn__choose_part(t, &t->x.part[e], t->x.s);
        if (!attn__tile_pairs(t, class_[e])) {
            continue;
        }
        if (!loaded) {
            load_keys(t, &wild);
            loaded = 1;
        }
        if (attn__has_strips(t, &t->x.part[e])) {
            const attn__part *const after = next_whole(t, n, e, c0, next, class_);
            attn__forward_strips(t, &t->x.part[e], after, &x, &wild);
        } else {
            attn__end_strips(t, &x);
            forward_part(t, &t->x.part[e], &wild);
        }
    }
    attn__end_strips(t, &x);
}

/* -- The item ---------------------------------------------------------------------------------- */

/* Asks for the rows of a part in q or o, if there is such a part. */
static void prefetch_part(const attn__tile *t, const attn__chunk *chunk, int e,
                          const attn__view *view) {
    if (e < chunk->n) {
        const attn__part *const r = &t->x.part[e];
        attn__prefetch(view, t->seq.qb, r->h, t->seq.q_row + r->r0, r->rows);
    }
}

/* Returns the rows of all parts. */
static int lay_parts(attn__tile *t, const attn__chunk *chunk, int first_key) {
    const attn__problem *const p = t->run->p;
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t group = p->H / p->HK;
    const int tiles = (t->seq.nq + BM - 1) / BM;
    int at = 0;
    for (int e = 0; e < chunk->n; e++) {
        attn__part *const r = &t->x.part[e];
        r->h = chunk->hk * group + (chunk->first + e) / tiles;
        r->r0 = (chunk->first + e) % tiles * BM;
        r->rows = t->seq.nq - r->r0 < BM ? t->seq.nq - r->r0 : BM;
        r->at = at;
        r->q = t->x.q + at * plan->ldd / (plan->pairs ? 2 : 1);
        r->q_split = plan->split ? t->x.q_split + at * 3 * plan->ldd / 2 : NULL;
        r->now = (attn__state){t->x.state[0].o + at * plan->ldv, t->x.state[0].m + at,
                               t->x.state[0].l + at};
        r->all = (attn__state){t->x.state[1].o + at * plan->ldv, t->x.state[1].m + at,
                               t->x.state[1].l + at};
        r->has_all = 0;
        r->wild = t->x.wild + at * plan->ldv;
        r->row_scale = t->x.row_scale + at;
        at += r->rows;
        prefetch_part(t, chunk, e, &p->q);
    }
    for (int e = 0; e < chunk->n; e++) {
        begin_part(t, &t->x.part[e], first_key);
    }
    return at;
}

/* Keys c..end of a segment; returns the key at which the next visible tile begins. */
static int forward_keys(attn__tile *t, int n, int rows, int c, int end) {
    int next[BM], class_[BM];
    for (;; c += BN) {
        int nearest = t->seq.nk;
        for (int e = 0; e < n; e++) {
            next[e] = attn__walk_next(&t->x.part[e].walk, t, c, &class_[e]);
            nearest = next[e] < nearest ? next[e] : nearest;
        }
        if (nearest >= end) {
            return nearest;
        }
        c = nearest;
        t->h = -1;
        t->c0 = c;
        t->n = t->seq.nk - c < BN ? t->seq.nk - c : BN;
        (rows <= NARROW ? attn__forward_narrow : forward_tile)(t, n, c, next, class_);
    }
}

void attn__forward_again(attn__tile *t, int64_t h, int row, const attn__state *to) {
    attn__part *const r = t->x.part;
    const attn__part before = *r;
    *r = (attn__part){.h = h,
                      .r0 = row,
                      .rows = 1,
                      .q = t->x.q,
                      .now = *to,
                      .wild = t->x.wild,
                      .row_scale = t->x.row_scale};
    t->down = AGAIN;
    begin_part(t, r, 0);
    begin_segment(t, r);
    forward_keys(t, 1, NARROW + 1, 0, t->seq.nk); /* the way of many rows, which knows `down` */
    end_segment(t, r);
    t->down = 1;
    *r = before;
}

void attn__cpu_forward(const attn__cpu_run *run, int thread, attn__chunk chunk, int begin, int end,
                       float *states) {
    const attn__cpu_plan *const plan = run->plan;
    attn__tile t;
    attn__tile_open(&t, run, plan->queries, thread, chunk.b);
    t.hk = chunk.hk;
    const int rows = lay_parts(&t, &chunk, begin * SEGMENT);
    int c = begin * SEGMENT;
    for (int segment = begin; segment < end; segment++) {
        if (segment + 1 == end && !states) {
            prefetch_part(&t, &chunk, 0, &run->p->o);
        }
        const int last = t.seq.nk / SEGMENT <= segment ? t.seq.nk : (segment + 1) * SEGMENT;
        if (!states && segment > begin && c >= last) {
            continue; /* nobody sees anything of it */
        }
        for (int e = 0; e < chunk.n; e++) {
            attn__part *const r = &t.x.part[e];
            if (states) {
                r->now = attn__state_at(plan, states, segment - begin, rows, r->at);
            }
            begin_segment(&t, r);
        }
        c = c < last ? forward_keys(&t, chunk.n, rows, c, last) : c;
        for (int e = 0; e < chunk.n; e++) {
            end_segment(&t, &t.x.part[e]);
            if (!states) {
                merge_segment(&t, &t.x.part[e]);
            }
        }
    }
    for (int e = 0; e < chunk.n && !states; e++) {
        const attn__part *const r = &t.x.part[e];
        prefetch_part(&t, &chunk, e + 1, &run->p->o);
        for (int i = 0; i < r->rows; i++) {
            attn__finish_row(&t, r->h, r->r0 + i, &r->all, i, &r->now);
        }
    }
    attn__tile_close(&t);
}
