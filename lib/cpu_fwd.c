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

/* -- Tiles ------------------------------------------------------------------------------------- */

/* The next tile of keys is to come into the second cache while this one is worked on: as rows of
   these parts in strips go on, or at once. */
static void prefetch_next(attn__tile *t, int parts) {
    const attn__problem *const p = t->run->p;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0 + BN;
    const int rest = t->seq.nk - t->c0 - BN, rows = rest < BN ? rest : BN;
    if (t->run->plan->ops->go_on) {
        t->next[0] = attn__ahead_of(&p->k, b, t->hk, row, rows, parts * BM / 2);
        t->next[1] = attn__ahead_of(&p->v, b, t->hk, row, rows, parts * BM / 2);
    } else {
        attn__prefetch(&p->k, b, t->hk, row, rows);
        attn__prefetch(&p->v, b, t->hk, row, rows);
    }
}

/* The keys as they are multiplied where registers are not filled; wild: where they have elements
   that are not finite. */
static void load_whole(attn__tile *t, attn__wild_keys *wild) {
    const attn__problem *const p = t->run->p;
    const int pairs = t->run->plan->pairs;
    const int64_t b = t->seq.kb, row = t->seq.k_row + t->c0;
    attn__load_columns(t, t->x.kt, &p->k, b, t->hk, row, t->n, pairs);
    if (!attn__load_panels(t, t->x.v, &p->v, b, t->hk, row, t->n, pairs)) {
        attn__find_wild(t, wild, pairs);
    }
    t->whole = 1;
}

static void load_keys(attn__tile *t, attn__wild_keys *wild, int parts) {
    t->whole = 0;
    attn__split_keys(t);
    if (!t->tame) {
        load_whole(t, wild);
    }
    prefetch_next(t, parts);
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
    int loaded = 0, parts = 0;
    for (int e = 0; e < n; e++) {
        parts += next[e] == c0;
    }
    for (int e = 0; e < n; e++) {
        if (next[e] != c0) {
            continue;
        }
        attn__choose_part(t, &t->x.part[e], t->x.s);
        if (!attn__tile_pairs(t, class_[e])) {
            continue;
        }
        if (!loaded) {
            load_keys(t, &wild, parts);
            loaded = 1;
        }
        if (attn__has_strips(t, &t->x.part[e])) {
            const attn__part *const after = next_whole(t, n, e, c0, next, class_);
            attn__forward_strips(t, &t->x.part[e], after, &x, &wild);
        } else {
            attn__end_strips(t, &x);
            if (!t->whole) {
                load_whole(t, &wild); /* there is nothing wild */
            }
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
    if (rows <= NARROW) {
        attn__begin_narrow(&t, rows);
    }
    int c = t.seq.nk; /* nobody sees anything before it */
    for (int e = 0; e < chunk.n; e++) {
        c = t.x.part[e].walk.at < c ? t.x.part[e].walk.at : c;
    }
    for (int segment = begin; segment < end; segment++) {
        if (segment + 1 == end && !states) {
            prefetch_part(&t, &chunk, 0, &run->p->o);
        }
        const int last = t.seq.nk / SEGMENT <= segment ? t.seq.nk : (segment + 1) * SEGMENT;
        if (!states && c >= last && (t.x.part->has_all || segment + 1 < end)) {
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
