/* fill.c: the data of a point, the same for every device; see suite.h.

   Who calls it: run.c. Everything is written to the oracle's side, whose tensors are compact and
   lie in host memory; the device under test gets a copy. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* -- Random numbers (splitmix64) --------------------------------------------------------------- */
uint64_t rng_next(rng *r) {
    uint64_t x = r->state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

double rng_unit(rng *r) {
    return (double)(rng_next(r) >> 11) * 0x1p-53;
}
int64_t rng_below(rng *r, int64_t n) {
    return n > 0 ? (int64_t)(rng_next(r) % (uint64_t)n) : 0;
}

/* Nearly: four uniform numbers of 16 bits, of mean 0 and variance 1. */
double rng_normal(rng *r) {
    const uint64_t x = rng_next(r);
    const uint64_t sum = (x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48);
    return ((double)sum * 0x1p-16 - 2) * 1.7320508075688772;
}

rng rng_of(uint64_t seed, uint64_t stream) {
    rng r = {seed * 0xD1342543DE82EF95u + stream};
    rng_next(&r);
    return r;
}

/* -- Writing ----------------------------------------------------------------------------------- */
static void store(const tensor *t, const float *x) {
    attn__store_f32(t->memory, attn__type_of(&t->t), 1, x, tensor_count(t));
}

/* Every entry of an axis becomes the first one. */
static void same_along(const tensor *t, float *x, int axis) {
    int64_t inner = 1;
    for (int i = axis + 1; i < t->t.ndim; i++) {
        inner *= t->shape[i];
    }
    for (int64_t n = 0; n < tensor_count(t); n++) {
        x[n] = x[n - n / inner % t->shape[axis] * inner];
    }
}

static void apply_layout(const tensor *t, float *x, int64_t layout) {
    const char letter = layout == LAYOUT_SAME_BATCH  ? 'b'
                        : layout == LAYOUT_SAME_HEAD ? 'h'
                        : layout == LAYOUT_SAME_ROW  ? 'n'
                                                     : 0;
    for (int i = 0; letter && i < t->t.ndim - 1; i++) {
        if (t->axes[i] == letter) {
            same_along(t, x, i);
        }
    }
}

/* -- Lengths ----------------------------------------------------------------------------------- */
static void fill_lengths(const side *s, const point *p, int is_q) {
    const tensor *const offsets = &s->t[is_q ? ROLE_Q_OFFSETS : ROLE_K_OFFSETS];
    const tensor *const used = &s->t[is_q ? ROLE_Q_USED : ROLE_K_USED];
    const point_list *const lens = is_q ? &p->qlens : &p->klens;
    int32_t row = (int32_t)p->spare;
    for (int64_t b = 0; offsets->memory && b <= p->B; b++) {
        ((int32_t *)offsets->memory)[b] = row;
        row += (int32_t)point_number(lens, b, (double)(is_q ? p->NQ : p->NK));
    }
    for (int64_t b = 0; used->memory && b < p->B; b++) {
        ((int32_t *)used->memory)[b] = (int32_t)point_number(is_q ? &p->qused : &p->kused, b, 0);
    }
}

/* What stands in rows that no sequence uses. */
static void fill_ends(const side *s, const point *p, const tensor *t, float *x, int is_q) {
    const role offsets = is_q ? ROLE_Q_OFFSETS : ROLE_K_OFFSETS;
    const attn_tensor *const o = s->t[offsets].memory ? &s->t[offsets].t : NULL;
    const attn_tensor *const u = is_q ? s->call.q_used : s->call.k_used;
    const int axis = (int)(strchr(t->axes, 'n') - t->axes);
    const int64_t rows = t->shape[axis], count = tensor_count(t);
    char *const free_row = malloc((size_t)(rows * p->B) + 1);
    memset(free_row, 1, (size_t)(rows * p->B));
    int64_t inner = 1, heads = 1;
    for (int i = axis + 1; i < t->t.ndim; i++) {
        inner *= t->shape[i];
    }
    for (int i = 1; i < axis; i++) {
        heads *= t->shape[i];
    }
    for (int64_t b = 0; b < p->B; b++) {
        const plain_span used = plain_span_of(&s->t[is_q ? ROLE_Q : ROLE_K].t, o, u, b);
        memset(free_row + (o ? 0 : b * rows) + used.row, 0, (size_t)used.n);
    }
    for (int64_t n = 0; n < count; n++) {
        const int64_t b = o ? 0 : n / (inner * rows * heads), row = n / inner % rows;
        if (free_row[b * rows + row]) {
            x[n] = p->ends == ENDS_NAN ? NAN : p->ends == ENDS_INF ? INFINITY : 1000 * x[n];
        }
    }
    free(free_row);
}

/* -- q, k, v, dout, dlse ----------------------------------------------------------------------- */
/* Logits are multiplied and shifted through q and k: both get the root of `mul`, and their first
   elements have the product shift / scale. */
static void fill_logits(const point *p, role r, int64_t width, int64_t count, float *x) {
    const double scale =
        p->scale == p->scale && p->scale != 0 ? fabs(p->scale) : 1 / sqrt((double)p->D);
    const double root = sqrt(fabs(p->shift) / scale);
    for (int64_t n = 0; n < count; n++) {
        x[n] *= (float)sqrt(p->mul);
        if (p->shift != 0 && n % width == 0) {
            x[n] = (float)(r == ROLE_K && p->shift < 0 ? -root : root);
        }
    }
}

static void plant(const point *p, float *x, int64_t count, rng *r) {
    static const float values[] = {0, NAN, INFINITY, -INFINITY};
    for (int n = 0; p->plant && count > 0 && n < 3; n++) {
        x[rng_below(r, count)] = values[p->plant];
    }
}

static void fill_rows(const side *s, const point *p, role r) {
    const tensor *const t = &s->t[r];
    const int64_t count = tensor_count(t), width = t->shape[t->t.ndim - 1];
    const point_list *const given = r == ROLE_Q ? &p->q : r == ROLE_K ? &p->k : &p->v;
    const int64_t layout = r == ROLE_Q ? p->lq : r == ROLE_K ? p->lk : r == ROLE_V ? p->lv : p->ldo;
    const int is_q = r != ROLE_K && r != ROLE_V;
    rng random = rng_of((uint64_t)p->seed, r);
    float *const x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t n = 0; n < count; n++) {
        x[n] = (float)rng_normal(&random);
        x[n] = (float)point_number(r <= ROLE_V ? given : &(point_list){0}, n, (double)x[n]);
    }
    if (r == ROLE_Q || r == ROLE_K) {
        fill_logits(p, r, width, count, x);
    }
    const role where[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_DOUT};
    if (r == where[p->where] && p->check != CHECK_ISOLATE) {
        plant(p, x, count, &random);
    }
    apply_layout(t, x, layout);
    if (layout < LAYOUT_SAME_BATCH && strchr(t->axes, 'n')) {
        fill_ends(s, p, t, x, is_q);
    }
    store(t, x);
    free(x);
}

/* -- Sink, scales, block lists ----------------------------------------------------------------- */
static void fill_small(const side *s, const point *p, role r) {
    const tensor *const t = &s->t[r];
    const int64_t count = tensor_count(t);
    rng random = rng_of((uint64_t)p->seed, r);
    for (int64_t n = 0; n < count; n++) {
        const double x = r == ROLE_SINK ? rng_normal(&random) : 0.5 + 1.5 * rng_unit(&random);
        ((float *)t->memory)[n] = (float)(r == ROLE_V_SCALE && n % 2 == 0 ? x * p->vmul : x);
    }
}

/* In order, with a number out of range and one repeated in every list. */
static void fill_lists(const side *s, const point *p) {
    const tensor *const counts = &s->t[ROLE_COUNTS], *const indices = &s->t[ROLE_INDICES];
    const int64_t lines = tensor_count(counts), most = indices->shape[3];
    rng random = rng_of((uint64_t)p->seed, ROLE_COUNTS);
    for (int64_t line = 0; line < lines; line++) {
        int32_t *const list = (int32_t *)indices->memory + line * most;
        int32_t n = 0;
        for (int64_t block = 0; block < most - 2; block++) {
            if (rng_below(&random, 100) < p->dense) {
                list[n++] = (int32_t)block;
            }
        }
        if (n > 0) {
            list[n] = list[rng_below(&random, n)];
            n++;
            list[n++] = rng_below(&random, 2) ? -1 : (int32_t)most + 7;
        }
        ((int32_t *)counts->memory)[line] = n;
        for (; n < most; n++) {
            list[n] = 0;
        }
    }
}

/* -- Captures ---------------------------------------------------------------------------------- */
static double captured(const cap *c, int64_t n, int64_t count, rng *r) {
    static const struct {
        const char *name;
        double value;
    } masks[] = {
        {"ninf", -INFINITY}, {"min", -3.4028234663852886e38}, {"m65504", -65504}, {"m1e9", -1e9}};
    const char *const v = c->values;
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        if (strcmp(v, masks[i].name) == 0) { /* a bias that also masks three of ten */
            const double x = rng_normal(r);
            return rng_below(r, 10) < 3 ? masks[i].value : x;
        }
    }
    if (strcmp(v, "normal") == 0) {
        return rng_normal(r);
    }
    if (strcmp(v, "small") == 0) {
        return 0.2 * rng_normal(r);
    }
    if (strcmp(v, "positive") == 0) {
        return 0.5 + rng_unit(r);
    }
    if (strcmp(v, "slopes") == 0) {
        return exp2(-8.0 * (double)(n + 1) / (double)count);
    }
    if (strcmp(v, "keep") == 0) {
        return rng_below(r, 4) > 0;
    }
    if (strcmp(v, "false_row") == 0) { /* bool: nothing in the first half */
        return n >= count / 2 && rng_below(r, 4) > 0;
    }
    if (strcmp(v, "docs") == 0) { /* about three documents along the last axis */
        const int64_t length = c->shape[c->rank - 1], at = n % (length > 0 ? length : 1);
        return (double)(at * 3 / (length > 0 ? length : 1));
    }
    if (strncmp(v, "rand", 4) == 0) {
        return (double)rng_below(r, strtoll(v + 4, NULL, 10));
    }
    if (strcmp(v, "index") == 0) {
        return (double)n;
    }
    return strtod(v, NULL); /* a number: that number */
}

static void fill_capture(const tensor *t, const point *p, const cap *c, uint64_t stream) {
    rng random = rng_of((uint64_t)p->seed, 100 + stream);
    const int64_t count = tensor_count(t), bytes = attn__type_bytes(c->type);
    float *const x = malloc((size_t)(count + 1) * sizeof *x);
    for (int64_t n = 0; n < count; n++) {
        x[n] = (float)captured(c, n, count, &random);
    }
    if (p->lc >= LAYOUT_SAME_BATCH) {
        same_along(t, x, 0);
    }
    for (int64_t n = 0; n < count; n++) {
        attn__set((char *)t->memory + n * bytes, c->type, (double)x[n]);
    }
    free(x);
}

void fill_side(side *ref, const point *p, const cap *caps, int n_caps) {
    static const role rows[] = {ROLE_Q, ROLE_K, ROLE_V, ROLE_DOUT, ROLE_DLSE};
    static const role small[] = {ROLE_SINK, ROLE_Q_SCALE, ROLE_K_SCALE, ROLE_V_SCALE};
    fill_lengths(ref, p, 1);
    fill_lengths(ref, p, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (ref->t[rows[i]].memory) {
            fill_rows(ref, p, rows[i]);
        }
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (ref->t[small[i]].memory) {
            fill_small(ref, p, small[i]);
        }
    }
    if (ref->t[ROLE_COUNTS].memory) {
        fill_lists(ref, p);
    }
    if (ref->t[ROLE_SEED].memory) {
        const uint64_t seed = (uint64_t)p->dseed;
        memcpy(ref->t[ROLE_SEED].memory, &seed, sizeof seed);
    }
    for (int i = 0; i < n_caps; i++) {
        if (ref->value[i].memory) {
            fill_capture(&ref->value[i], p, &caps[i], (uint64_t)i);
        }
    }
}
