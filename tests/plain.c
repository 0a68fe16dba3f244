/* plain.c: attention in the plainest way, row by row; see plain.h. */
#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const attn_call *c;
    plain_result *out;
    plain_scorer scorer;
    int site_output[ATTN__MAX_NODES]; /* [n_sites] where a site's gradient goes; -1: nowhere */
    plain_dropper drop;
    int backward, f32, p_type, o_type;
    int64_t B, H, HK, D, DV, NQ, NK; /* NQ, NK: rows in memory */
    plain_plane q, k, v, dout;
    plain_span qs, ks; /* of this sequence */
    attn__env env;     /* of this sequence and row */
    float *kf, *vf;    /* [NK][D], [NK][DV] of this head */
    float *qf, *dof;   /* [D], [DV] of this row */
    plain_pair *pair;  /* [NK] */
    plain_part *part;  /* [NK][n_sites] */
    double *p;         /* [NK] */
    double *scale;     /* [NK] scale * q_scale * k_scale */
    double *w;         /* [NK] dropout's factor and v_scale */
    uint8_t *keep;     /* [NK] */
} run;

/* -- Numbers ----------------------------------------------------------------------------------- */
static double rounded(const run *r, double x) {
    return r->f32 ? (double)(float)x : x;
}

/* x in an element type and back; type 0: as it is. */
static double in_type(int type, double x) {
    char cell[8];
    if (!type) {
        return x;
    }
    attn__set(cell, type, x);
    return attn__get(cell, type);
}

static double dot(const run *r, const float *a, const float *b, int64_t n) {
    double sum = 0;
    float narrow = 0;
    for (int64_t i = 0; r->f32 && i < n; i++) {
        narrow += a[i] * b[i];
    }
    for (int64_t i = 0; !r->f32 && i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return r->f32 ? (double)narrow : sum;
}

/* The root of the sum of squares of a dot product's partial sums, each of which fp32 rounds; only
   PLAIN_F64 asks for it. */
static double dot_walk(const run *r, const float *a, const float *b, int64_t n) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; !r->f32 && i < n; i++) {
        sum += (double)a[i] * (double)b[i];
        squares += sum * sum;
    }
    return sqrt(squares);
}

static void add_scaled(const run *r, double *to, double a, const float *x, int64_t n) {
    const float narrow = (float)a;
    for (int64_t i = 0; r->f32 && i < n; i++) {
        to[i] = (double)((float)to[i] + narrow * x[i]);
    }
    for (int64_t i = 0; !r->f32 && i < n; i++) {
        to[i] += a * (double)x[i];
    }
}

/* Row `row` of an output's sums, and terms |a x| added there. What is not finite says nothing. */
static void add_terms(const run *r, double *const *arrays, int output, int64_t row, double a,
                      const float *x, int64_t n) {
    double *const to = arrays[output] + row * n;
    if (r->f32 || a == 0) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double term = fabs(a * (double)x[i]);
        to[i] += isfinite(term) ? term : 0;
    }
}

static double finite(double x) {
    return isfinite(x) ? x : 0;
}

/* The row of a compact q-like (H heads) or k-like (HK heads) output. */
static int64_t row_of(plain_plane x, int64_t heads, int64_t b, int64_t h, int64_t row) {
    return x.packed ? row * heads + h : (b * heads + h) * x.t->shape[2] + row;
}

/* -- Forward ----------------------------------------------------------------------------------- */
/* Fills pair[] and part[] of row i. Returns the number of visible keys; -1 if one of them has a
   score of NaN or +inf. */
static int64_t score_row(run *r, int64_t b, int64_t h, int64_t i) {
    const attn_call *const c = r->c;
    const double given = c->flags & ATTN_SCALE_GIVEN ? c->scale : 1 / sqrt((double)r->D);
    const double q_scale = given * plain_scale_at(c->q_scale, r->H, r->HK, b, h, i);
    int64_t visible = 0, bad = 0;
    for (int64_t j = 0; j < r->ks.n; j++) {
        plain_pair *const x = &r->pair[j];
        r->scale[j] = rounded(r, q_scale * plain_scale_at(c->k_scale, r->H, r->HK, b, h, j));
        r->w[j] = r->drop.factor * plain_scale_at(c->v_scale, r->H, r->HK, b, h, j);
        r->env.leaf[LEAF_k] = (int32_t)(c->k0 + j);
        *x = (plain_pair){0};
        if (!c->blocks || plain_listed(c->blocks, b, h, i, j)) {
            const double s = rounded(r, dot(r, r->qf, r->kf + j * r->D, r->D) * r->scale[j]);
            const double walk = dot_walk(r, r->qf, r->kf + j * r->D, r->D) * fabs(r->scale[j]);
            *x = plain_score(&r->scorer, &r->env, s, fmax(fabs(s), walk / 2),
                             r->part + j * r->scorer.n_sites);
        }
        visible += x->visible;
        bad |= x->visible && !(x->score < INFINITY);
    }
    return bad ? -1 : visible;
}

/* e^x of a visible pair or of a sink. In double it is never 0, so that infinity times it is
   infinity. */
static double power(const run *r, double x) {
    return rounded(r, exp(r->f32 ? rounded(r, x) : x < -480 ? -480 : x));
}

/* p[] of row i; returns its LSE. */
static double softmax_row(run *r, double sink, int64_t visible) {
    double m = sink, l = 0;
    if (visible == 0) {
        return sink;
    }
    for (int64_t j = 0; j < r->ks.n; j++) {
        if (r->pair[j].visible) {
            m = visible < 0 ? NAN : fmax(m, r->pair[j].score);
        }
    }
    for (int64_t j = 0; j < r->ks.n; j++) {
        r->p[j] = r->pair[j].visible ? power(r, r->pair[j].score - m) : 0;
        l = rounded(r, l + r->p[j]);
    }
    if (sink > -INFINITY) {
        l = rounded(r, l + rounded(r, exp(rounded(r, sink - m))));
    }
    for (int64_t j = 0; j < r->ks.n; j++) {
        r->p[j] = rounded(r, r->p[j] / l);
    }
    return rounded(r, m + rounded(r, log(l)));
}

static void forward_row(run *r, int64_t b, int64_t hk, int64_t row, double lse) {
    plain_result *const out = r->out;
    double *const o = out->value[PLAIN_O] + row * r->DV;
    double top = 0;
    for (int64_t j = 0; j < r->ks.n; j++) {
        top = fmax(top, r->p[j]);
    }
    out->amplify = fmax(out->amplify, fabs(finite(lse)));
    for (int64_t j = 0; j < r->ks.n; j++) {
        if (r->pair[j].visible) {
            const float *const vj = r->vf + j * r->DV;
            out->seen[row_of(r->k, r->HK, b, hk, r->ks.row + j)] = 1;
            if (r->keep[j]) {
                add_scaled(r, o, rounded(r, in_type(r->p_type, r->p[j]) * r->w[j]), vj, r->DV);
                add_terms(r, out->sum, PLAIN_O, row, r->p[j] * r->w[j], vj, r->DV);
            }
            if (r->p[j] > top * 0x1p-40) {
                out->amplify = fmax(out->amplify, finite(r->pair[j].amplify));
            }
        }
    }
    for (int64_t d = 0; d < r->DV; d++) {
        o[d] = isnan(lse) ? lse : in_type(r->o_type, o[d]); /* NaN even if dropout keeps nothing */
    }
}

/* -- Backward ---------------------------------------------------------------------------------- */
static void add_to_sites(run *r, int64_t j, double g, double terms) {
    plain_result *const out = r->out;
    for (int n = 0; n < r->scorer.n_sites; n++) {
        const plain_part x = r->part[j * r->scorer.n_sites + n];
        const int to = r->site_output[n];
        if (to >= 0 && (x.sum != 0 || !isfinite(g)) && x.element >= 0) {
            double *const value = &out->value[to][x.element];
            *value = rounded(r, *value + rounded(r, g * x.d));
            out->sum[to][x.element] += finite(terms * x.sum);
            out->slack[to][x.element] += r->pair[j].kink ? finite(terms * x.sum) : 0;
        }
    }
}

/* The type that dS and dO are rounded to; 0: they are not. */
static int back_type(const run *r) {
    return attn__type_bytes(r->p_type) == 2 ? r->p_type : 0;
}

/* delta = dO . O; delta_sum has the absolute values of its terms. */
typedef struct back {
    double lse, dlse, delta, delta_sum;
} back;

/* What pair (row, j) gives dq, dk, dv and the captures. */
static void backward_pair(run *r, int64_t row, int64_t krow, int64_t j, const back *y) {
    plain_result *const out = r->out;
    const plain_pair x = r->pair[j];
    const float *const kj = r->kf + j * r->D, *const vj = r->vf + j * r->DV;
    const double p = r->f32 ? rounded(r, exp(rounded(r, x.score - rounded(r, y->lse)))) : r->p[j];
    const double dp = r->keep[j] ? rounded(r, dot(r, r->dof, vj, r->DV) * r->w[j]) : 0;
    const double g = rounded(r, p * rounded(r, rounded(r, dp - y->delta) + y->dlse));
    const double terms = p * (fabs(dp) + y->delta_sum + fabs(y->dlse));
    const double ds = rounded(r, in_type(back_type(r), rounded(r, g * x.ds)) * r->scale[j]);
    const double ds_terms = terms * x.ds_sum * fabs(r->scale[j]);
    if (out->value[PLAIN_DQ]) {
        add_scaled(r, out->value[PLAIN_DQ] + row * r->D, ds, kj, r->D);
        add_terms(r, out->sum, PLAIN_DQ, row, ds_terms, kj, r->D);
        add_terms(r, out->slack, PLAIN_DQ, row, x.kink ? ds_terms : 0, kj, r->D);
    }
    if (out->value[PLAIN_DK]) {
        add_scaled(r, out->value[PLAIN_DK] + krow * r->D, ds, r->qf, r->D);
        add_terms(r, out->sum, PLAIN_DK, krow, ds_terms, r->qf, r->D);
        add_terms(r, out->slack, PLAIN_DK, krow, x.kink ? ds_terms : 0, r->qf, r->D);
    }
    if (out->value[PLAIN_DV] && r->keep[j]) {
        const double weight = rounded(r, in_type(r->p_type, p) * r->w[j]);
        add_scaled(r, out->value[PLAIN_DV] + krow * r->DV, weight, r->dof, r->DV);
        add_terms(r, out->sum, PLAIN_DV, krow, p * r->w[j], r->dof, r->DV);
    }
    add_to_sites(r, j, g, terms);
}

static void backward_row(run *r, int64_t b, int64_t h, int64_t i, double sink, double lse) {
    plain_result *const out = r->out;
    const int64_t hk = h / (r->H / r->HK), row = row_of(r->q, r->H, b, h, r->qs.row + i);
    const int64_t at = r->qs.row + i;
    back x = {.lse = lse};
    if (r->c->dlse) {
        x.dlse = plain_number(r->c->dlse, r->q.packed ? h : b, r->q.packed ? at : h, at, 0);
    }
    plain_read_row(r->dof, r->dout, b, h, at, r->DV);
    for (int64_t d = 0; d < r->DV; d++) {
        r->dof[d] = (float)in_type(back_type(r), (double)r->dof[d]);
        const double term = out->value[PLAIN_O][row * r->DV + d] * (double)r->dof[d];
        x.delta = rounded(r, x.delta + rounded(r, term));
        x.delta_sum += fabs(finite(term));
    }
    if (out->value[PLAIN_DSINK] && sink > -INFINITY) {
        double *const dsink = &out->value[PLAIN_DSINK][h];
        const double part = power(r, rounded(r, sink - lse));
        *dsink = rounded(r, *dsink + rounded(r, part * rounded(r, x.dlse - x.delta)));
        out->sum[PLAIN_DSINK][h] += finite(part * (fabs(x.dlse) + x.delta_sum));
    }
    for (int64_t j = 0; j < r->ks.n; j++) {
        if (r->pair[j].visible) {
            backward_pair(r, row, row_of(r->k, r->HK, b, hk, r->ks.row + j), j, &x);
        }
    }
}

/* -- One call ---------------------------------------------------------------------------------- */
static void run_row(run *r, int64_t b, int64_t h, int64_t i) {
    const attn_call *const c = r->c;
    const double sink = c->sink ? plain_number(c->sink, h, 0, 0, 0) : -INFINITY;
    const int64_t nq = c->nq ? c->nq : r->qs.n, nk = c->nk ? c->nk : r->ks.n;
    const int64_t at = r->qs.row + i, row = row_of(r->q, r->H, b, h, at);
    const int32_t global = (int32_t)(c->i0 + i);
    r->env.leaf[LEAF_i] = global;
    r->env.leaf[LEAF_q] = global + (c->flags & ATTN_TOP_LEFT ? 0 : (int32_t)(nk - nq));
    r->env.leaf[LEAF_nq] = (int32_t)nq;
    r->env.leaf[LEAF_nk] = (int32_t)nk;
    plain_read_row(r->qf, r->q, b, h, at, r->D);
    memset(r->keep, 1, (size_t)r->NK);
    if (r->drop.threshold) {
        plain_keep_row(&r->drop, plain_keep_head(c, r->H, b, h), (uint32_t)global, c->k0, r->ks.n,
                       r->keep);
    }
    const double lse = softmax_row(r, sink, score_row(r, b, h, i));
    r->out->value[PLAIN_LSE][r->q.packed ? h * r->NQ + at : row] = rounded(r, lse);
    r->out->sum[PLAIN_LSE][r->q.packed ? h * r->NQ + at : row] = 1;
    forward_row(r, b, h / (r->H / r->HK), row, lse);
    if (r->backward) {
        backward_row(r, b, h, i, sink, lse);
    }
}

static void run_head(run *r, int64_t b, int64_t h) {
    const attn_call *const c = r->c;
    const int64_t hk = h / (r->H / r->HK);
    r->env.leaf[LEAF_b] = (int32_t)(c->b0 + b);
    r->env.leaf[LEAF_h] = (int32_t)(c->h0 + h);
    for (int64_t j = 0; j < r->ks.n; j++) {
        plain_read_row(r->kf + j * r->D, r->k, b, hk, r->ks.row + j, r->D);
        plain_read_row(r->vf + j * r->DV, r->v, b, hk, r->ks.row + j, r->DV);
    }
    for (int64_t i = 0; i < r->qs.n; i++) {
        run_row(r, b, h, i);
    }
}

static void *room(int64_t n, size_t size) {
    void *const p = calloc(n > 0 ? (size_t)n : 1, size);
    if (!p) {
        abort();
    }
    return p;
}

static int64_t count(const attn_tensor *t) {
    int64_t n = 1;
    for (int i = 0; t && i < t->ndim; i++) {
        n *= t->shape[i];
    }
    return n;
}

/* O and LSE are always worked out; the rest where the call wants it. */
static void make_room(run *r) {
    const attn_call *const c = r->c;
    plain_result *const out = r->out;
    const attn_tensor *const wanted[PLAIN_GRADS] = {
        [PLAIN_DQ] = c->dq, [PLAIN_DK] = c->dk, [PLAIN_DV] = c->dv, [PLAIN_DSINK] = c->dsink};
    memset(out, 0, sizeof *out);
    out->n[PLAIN_LSE] = r->q.packed ? r->H * r->NQ : r->B * r->H * r->NQ;
    out->n[PLAIN_O] = out->n[PLAIN_LSE] * r->DV;
    for (int i = PLAIN_DQ; r->backward && i < PLAIN_OUTPUTS; i++) {
        const attn_tensor *t = i < PLAIN_GRADS ? wanted[i] : NULL;
        if (i >= PLAIN_GRADS && i - PLAIN_GRADS < c->n_captures) {
            t = c->captures[i - PLAIN_GRADS].grad;
        }
        out->n[i] = t ? count(t) : 0;
    }
    for (int i = 0; i < PLAIN_OUTPUTS; i++) {
        if (i <= PLAIN_LSE || out->n[i]) {
            out->value[i] = room(out->n[i], sizeof(double));
            out->sum[i] = room(out->n[i], sizeof(double));
            out->slack[i] = room(out->n[i], sizeof(double));
        }
    }
    out->seen = room(r->HK * r->NK * (r->k.packed ? 1 : r->B), 1);
    for (int64_t i = 0; i < out->n[PLAIN_LSE]; i++) {
        out->value[PLAIN_LSE][i] = -INFINITY; /* rows of no sequence */
    }
}

/* Outputs of the fp32 run are rounded to their types at the end; o was, row by row. */
static void round_outputs(const run *r) {
    const attn_call *const c = r->c;
    const attn_tensor *const t[PLAIN_GRADS] = {NULL, NULL, c->dq, c->dk, c->dv, NULL};
    for (int i = PLAIN_DQ; i <= PLAIN_DV; i++) {
        for (int64_t e = 0; r->f32 && e < r->out->n[i]; e++) {
            r->out->value[i][e] = in_type(attn__type_of(t[i]), r->out->value[i][e]);
        }
    }
}

static void map_sites(run *r) {
    const attn_call *const c = r->c;
    const attn_graph *const g = &r->scorer.variant->graph;
    for (int n = 0; n < r->scorer.n_sites; n++) {
        const char *const name = g->symbol[g->node[r->scorer.site[n]].sym].name;
        r->site_output[n] = -1;
        for (int64_t x = 0; x < c->n_captures && x < PLAIN_CAPTURES; x++) {
            if (r->out->n[PLAIN_GRADS + x] && strcmp(c->captures[x].name, name) == 0) {
                r->site_output[n] = PLAIN_GRADS + (int)x;
            }
        }
    }
}

int plain_run(const attn_call *c, const attn_variant *variant, int backward,
              enum plain_precision precision, plain_result *result) {
    run *const r = room(1, sizeof *r);
    const int qp = c->q_offsets != NULL, kp = c->k_offsets != NULL, type = attn__type_of(c->q);
    r->c = c, r->out = result, r->backward = backward, r->f32 = precision == PLAIN_F32;
    r->q = (plain_plane){c->q, qp}, r->dout = (plain_plane){c->dout, qp};
    r->k = (plain_plane){c->k, kp}, r->v = (plain_plane){c->v, kp};
    r->B = qp ? c->q_offsets->shape[0] - 1 : c->q->shape[0];
    r->H = c->q->shape[1], r->HK = c->k->shape[1];
    r->NQ = c->q->shape[qp ? 0 : 2], r->NK = c->k->shape[kp ? 0 : 2];
    r->D = c->q->shape[qp ? 2 : 3], r->DV = c->v->shape[kp ? 2 : 3];
    r->p_type = r->f32 && attn__type_bytes(type) <= 2 ? type : 0;
    r->o_type = r->f32 ? attn__type_of(c->o) : 0;
    r->drop = plain_dropper_of(c);
    r->env.leaf[LEAF_nh] = (int32_t)(c->nh ? c->nh : r->H);
    r->env.leaf[LEAF_hk] = (int32_t)(c->hk ? c->hk : r->HK);
    r->env.leaf[LEAF_batch] = (int32_t)(c->batch ? c->batch : r->B);
    make_room(r);
    const int status = plain_scorer_new(&r->scorer, variant, c, r->f32);
    r->kf = room(r->NK * r->D, sizeof(float)), r->vf = room(r->NK * r->DV, sizeof(float));
    r->qf = room(r->D, sizeof(float)), r->dof = room(r->DV, sizeof(float));
    r->pair = room(r->NK, sizeof *r->pair), r->p = room(r->NK, sizeof *r->p);
    r->part = room(r->NK * r->scorer.n_sites, sizeof *r->part), r->keep = room(r->NK, 1);
    r->scale = room(r->NK, sizeof *r->scale), r->w = room(r->NK, sizeof *r->w);
    if (status >= 0) {
        map_sites(r);
        for (int64_t b = 0; b < r->B; b++) {
            r->qs = plain_span_of(c->q, c->q_offsets, c->q_used, b);
            r->ks = plain_span_of(c->k, c->k_offsets, c->k_used, b);
            for (int64_t h = 0; h < r->H; h++) {
                run_head(r, b, h);
            }
        }
        round_outputs(r);
    }
    plain_scorer_free(&r->scorer);
    free(r->kf), free(r->vf), free(r->qf), free(r->dof), free(r->pair), free(r->p), free(r->part);
    free(r->keep), free(r->scale), free(r->w), free(r);
    return status;
}

void plain_free(plain_result *result) {
    for (int i = 0; i < PLAIN_OUTPUTS; i++) {
        free(result->value[i]), free(result->sum[i]), free(result->slack[i]);
    }
    free(result->seen);
    memset(result, 0, sizeof *result);
}
