/* ref_row.c: one row of one head: all its scores, then its softmax, then its products.

   Who calls it: ref.c. What is masked is never touched.

       forward    row_scores -> m, l -> o, lse
       backward   row_scores -> pr = exp(score - lse)
                  dp = dropped(do . v), g = pr (dp + dlse - do . o) = d L / d score
                  ds = g * d score / d s;  dq += ds k, dk += ds q, dv += dropped(pr) do,
                  gradients of loads and parameters += g * d score / d load

   A visible score of NaN or +infinity makes l NaN, and so the row's o, lse and dq, and dk and dv at
   its visible keys. Every input type is exact in double; results round once, when stored. */
#include "ref.h"

#include <math.h>
#include <string.h>

void attn__ref_load(double *to, const attn__view *t, int64_t b, int64_t h, int64_t row) {
    const char *const at = attn__at(t, b, h, row);
    if (t->type == ATTN_F64) {
        memcpy(to, at, (size_t)t->n[3] * sizeof *to);
        return;
    }
    float piece[64];
    for (int64_t i = 0; i < t->n[3]; i += 64) {
        const int64_t n = t->n[3] - i < 64 ? t->n[3] - i : 64;
        attn__load_f32(piece, at + i * t->bytes, t->type, n, 1);
        for (int64_t j = 0; j < n; j++) {
            to[i + j] = (double)piece[j];
        }
    }
}

void attn__ref_store(const attn__view *t, int64_t b, int64_t h, int64_t row, const double *from) {
    char *const at = t->type ? attn__at(t, b, h, row) : NULL;
    for (int64_t i = 0; t->type && i < t->n[3]; i++) {
        attn__set(at + i * t->bytes, t->type, from[i]);
    }
}

/* Four sums, so that one addition need not wait for the other. */
static double dot(const double *a, const double *b, int64_t n) {
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        sum[0] += a[i] * b[i];
        sum[1] += a[i + 1] * b[i + 1];
        sum[2] += a[i + 2] * b[i + 2];
        sum[3] += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++) {
        sum[0] += a[i] * b[i];
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* Marks the keys that the block list gives this row's block; all of them without a list. */
static void mark_listed(attn__ref_work *w, int64_t row) {
    const attn__problem *const p = w->p;
    memset(w->visible, p->block_n == 0, (size_t)w->seq.nk);
    if (p->block_n == 0) {
        return;
    }
    const attn__view *const c = &p->block_counts, *const x = &p->block_indices;
    const int64_t block = row / p->block_m;
    const char *const list = attn__at(x, x->n[0] == 1 ? 0 : w->b, x->n[1] == 1 ? 0 : w->h, block);
    const double count =
        attn__get(attn__at(c, c->n[0] == 1 ? 0 : w->b, c->n[1] == 1 ? 0 : w->h, block), ATTN_I32);
    for (int64_t i = 0; i < p->block_most && (double)i < count; i++) {
        const int64_t begin = (int64_t)attn__get(list + i * x->bytes, ATTN_I32) * p->block_n;
        for (int64_t j = begin; begin >= 0 && j < begin + p->block_n && j < w->seq.nk; j++) {
            w->visible[j] = 1;
        }
    }
}

static void eval(attn__ref_work *w, int what, int64_t j) {
    const attn__ref_state *const st = w->st;
    w->env.leaf[LEAF_k] = (int32_t)(w->seq.k0 + j);
    attn__eval(st->g, st->need[what], st->last[what], w->s[j], &w->env, w->p->bound, w->val);
}

/* scale * q_scale * k_scale of a pair. */
static double pair_scale(const attn__ref_work *w, int64_t row, int64_t j) {
    const attn__problem *const p = w->p;
    return p->scale * (double)attn__scale_at(&p->q_scale, p->q_scale_heads, p, w->b, w->h, row) *
           (double)attn__scale_at(&p->k_scale, p->k_scale_heads, p, w->b, w->h, j);
}

static double v_scale(const attn__ref_work *w, int64_t j) {
    const attn__problem *const p = w->p;
    return (double)attn__scale_at(&p->v_scale, p->v_scale_heads, p, w->b, w->h, j);
}

/* Loads q's row; fills s, score and visible. Returns how many keys are visible. */
static int64_t row_scores(attn__ref_work *w, int64_t row) {
    const attn__problem *const p = w->p;
    const attn__seq *const seq = &w->seq;
    int64_t n = 0;
    mark_listed(w, row);
    attn__ref_load(w->q, &p->q, seq->qb, w->h, seq->q_row + row);
    w->env.leaf[LEAF_i] = (int32_t)(seq->i0 + row);
    w->env.leaf[LEAF_q] = (int32_t)(seq->q0 + row);
    for (int64_t j = 0; j < seq->nk; j++) {
        if (!w->visible[j]) {
            continue;
        }
        w->s[j] = pair_scale(w, row, j) * dot(w->q, w->k + j * p->D, p->D);
        eval(w, ATTN__REF_SCORE, j);
        w->score[j] = w->val[w->st->score].f;
        w->visible[j] = w->val[w->st->mask].i && w->s[j] != -INFINITY && w->score[j] != -INFINITY;
        n += w->visible[j];
    }
    return n;
}

/* What a pair's probability is multiplied by: 0 where it is dropped. */
static void row_dropout(attn__ref_work *w, int64_t row) {
    const attn__problem *const p = w->p;
    const uint32_t bh = (uint32_t)((p->b0 + w->b) * p->nh + p->h0 + w->h);
    attn__dropout_row(p, bh, (uint32_t)(w->seq.i0 + row), w->seq.k0, w->seq.nk, w->keep);
}

static double drop_factor(const attn__problem *p) {
    return 65536.0 / (65536 - p->drop_threshold);
}

static double sink_of(const attn__ref_work *w) {
    const attn__view *const t = &w->p->sink;
    return t->type ? attn__get(attn__at(t, 0, w->h, 0), t->type) : -INFINITY;
}

/* -- Forward ----------------------------------------------------------------------------------- */

void attn__ref_forward_row(attn__ref_work *w, int64_t row) {
    const attn__problem *const p = w->p;
    const attn__seq *const seq = &w->seq;
    const double sink = sink_of(w);
    const int64_t n = row_scores(w, row);
    double m = sink, l = 0, lse = sink;
    row_dropout(w, row);
    for (int64_t j = 0; j < seq->nk; j++) {
        m = w->visible[j] && w->score[j] > m ? w->score[j] : m;
    }
    for (int64_t i = 0; i < p->DV; i++) {
        w->o[i] = 0;
    }
    for (int64_t j = 0; j < seq->nk; j++) {
        if (w->visible[j]) {
            const double e = attn__weight(w->score[j] - m);
            l += e;
            const double factor = e * drop_factor(p) * v_scale(w, j);
            for (int64_t i = 0; w->keep[j] && i < p->DV; i++) {
                w->o[i] += factor * w->v[j * p->DV + i];
            }
        }
    }
    if (n > 0) {
        l += exp(sink - m);
        lse = m + log(l);
        for (int64_t i = 0; i < p->DV; i++) {
            w->o[i] /= l;
        }
    }
    attn__ref_store(&p->o, seq->qb, w->h, seq->q_row + row, w->o);
    attn__ref_store(&p->lse, seq->qb, w->h, seq->q_row + row, &lse);
}

/* -- Backward ---------------------------------------------------------------------------------- */

/* Adds g times the derivative by each element that the pair's score read. */
static void add_sites(attn__ref_work *w, double g) {
    const attn__adjoint *const a = w->st->adjoint;
    for (int i = 0; i < a->n_sites; i++) {
        const attn__site *const site = &a->site[i];
        const attn__bound *const t = &w->p->bound[site->symbol];
        int64_t at = 0;
        int inside = w->grad[site->symbol] != NULL;
        for (int j = 0; j < site->n; j++) {
            const int64_t index = w->val[site->index[j]].i;
            inside &= index >= 0 && index < t->n[j];
            at = at * t->n[j] + index;
        }
        if (inside) {
            w->grad[site->symbol][at] += g * w->val[site->d].f;
        }
    }
}

/* One visible pair with probability pr; rest = dlse - do . o. */
static void backward_pair(attn__ref_work *w, int64_t row, int64_t j, double pr, double rest) {
    const attn__problem *const p = w->p;
    const double *const k = w->k + j * p->D, *const v = w->v + j * p->DV;
    double *const dk = w->dk + j * p->D, *const dv = w->dv + j * p->DV;
    double g = rest;
    if (w->keep[j]) {
        const double factor = drop_factor(p) * v_scale(w, j);
        g += factor * dot(w->dout, v, p->DV);
        for (int64_t i = 0; i < p->DV; i++) {
            dv[i] += pr * factor * w->dout[i];
        }
    }
    g *= pr;
    eval(w, ATTN__REF_GRADIENT, j);
    add_sites(w, g);
    const double ds = g * w->val[w->st->adjoint->ds].f * pair_scale(w, row, j);
    for (int64_t i = 0; i < p->D; i++) {
        w->dq[i] += ds * k[i];
        dk[i] += ds * w->q[i];
    }
}

void attn__ref_backward_row(attn__ref_work *w, int64_t row) {
    const attn__problem *const p = w->p;
    const attn__seq *const seq = &w->seq;
    const int64_t at = seq->q_row + row;
    const double sink = sink_of(w);
    row_scores(w, row);
    row_dropout(w, row);
    attn__ref_load(w->o, &p->o, seq->qb, w->h, at);
    attn__ref_load(w->dout, &p->dout, seq->qb, w->h, at);
    const double lse = attn__get(attn__at(&p->lse, seq->qb, w->h, at), p->lse.type);
    double rest = -dot(w->dout, w->o, p->DV);
    if (p->dlse.type) {
        rest += attn__get(attn__at(&p->dlse, seq->qb, w->h, at), p->dlse.type);
    }
    for (int64_t i = 0; i < p->D; i++) {
        w->dq[i] = 0;
    }
    for (int64_t j = 0; j < seq->nk; j++) {
        if (w->visible[j]) {
            backward_pair(w, row, j, attn__weight(w->score[j] - lse), rest);
        }
    }
    if (sink > -INFINITY || isnan(sink)) {
        w->dsink[w->h] += attn__weight(sink - lse) * rest;
    }
    attn__ref_store(&p->dq, seq->qb, w->h, at, w->dq);
}
