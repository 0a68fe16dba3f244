/* property.c: what a comparison with the oracle does not show: bits that stay, parts that make a
   whole.

   Who calls it: case.c. A part of a call shares the memory of the whole: its tensors are slices,
   its origins say where it begins. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* -- Slices ------------------------------------------------------------------------------------ */
/* `to` becomes a second look at the memory of `from`. */
static void view_of(side *to, const side *from) {
    *to = *from;
    for (int i = 0; i < ROLES; i++) {
        to->t[i].t.shape = to->t[i].shape;
        to->t[i].t.strides = to->t[i].strides;
    }
    side_wire(to);
}

/* Entries [first, first + n) along one axis. */
static void slice(tensor *t, char axis, int64_t first, int64_t n) {
    const char *const at = strchr(t->axes, axis);
    if (t->device && at) {
        const int i = (int)(at - t->axes);
        t->t.byte_offset += (uint64_t)(first * t->strides[i] * (t->t.dtype.bits / 8));
        t->shape[i] = n;
    }
}

static int64_t or_else(int64_t total, int64_t here) {
    return total ? total : here;
}

static void slice_batch(side *s, const point *p, int64_t first, int64_t n) {
    for (int r = 0; r < ROLES; r++) {
        if (r != ROLE_SEED && s->t[r].shape[0] == p->B) {
            slice(&s->t[r], 'b', first, n);
        }
    }
    s->call.b0 = p->b0 + first;
    s->call.batch = or_else(p->tb, p->B);
}

/* Key/value heads, with their query heads. An axis of heads has one of two extents. */
static void slice_heads(side *s, const point *p, int64_t first, int64_t n) {
    const int64_t HK = point_HK(p), group = p->H / HK;
    for (int r = 0; r < ROLES; r++) {
        tensor *const t = &s->t[r];
        const char *const at = strchr(t->axes, 'h');
        const int64_t extent = t->device && at ? t->shape[at - t->axes] : 0;
        if (extent == HK) {
            slice(t, 'h', first, n);
        } else if (extent == p->H) {
            slice(t, 'h', first * group, n * group);
        }
    }
    s->call.h0 = p->h0 + first * group;
    s->call.nh = or_else(p->th, p->H);
    s->call.hk = or_else(p->th / group, HK);
}

static void slice_rows(side *s, const point *p, int64_t first, int64_t n) {
    static const role rows[] = {ROLE_Q, ROLE_O, ROLE_LSE, ROLE_DOUT, ROLE_DLSE, ROLE_DQ};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        slice(&s->t[rows[i]], 'n', first, n);
    }
    s->call.i0 = p->i0 + first;
    s->call.nq = or_else(p->tq, p->NQ);
}

static void slice_keys(side *s, const point *p, int64_t first, int64_t n) {
    slice(&s->t[ROLE_K], 'n', first, n);
    slice(&s->t[ROLE_V], 'n', first, n);
    s->call.k0 = p->k0 + first;
    s->call.nk = or_else(p->tk, p->NK);
}

static void slice_by(side *s, const point *p, int64_t split, int64_t first, int64_t n) {
    static void (*const by[])(side *, const point *, int64_t, int64_t) = {slice_keys, slice_heads,
                                                                          slice_batch, slice_rows};
    by[split](s, p, first, n);
}

static int64_t split_size(const point *p) {
    const int64_t sizes[] = {p->NK, point_HK(p), p->B, p->NQ};
    return sizes[p->split];
}

/* Heads and batches have no empty parts. */
static int64_t parts_of(const point *p) {
    const int64_t n = split_size(p),
                  most = p->split == SPLIT_KEYS || p->split == SPLIT_ROWS ? 6 : n;
    return p->parts < most ? p->parts : most;
}

/* -- Parts make the whole ---------------------------------------------------------------------- */
/* Every part writes its slice of the results, which must be those of the whole. */
static void check_shard(setup *s, outcome *out) {
    const point *const p = s->p;
    const int64_t n = split_size(p), parts = parts_of(p);
    for (int64_t i = 0; i < parts && !out->why[0]; i++) {
        const int64_t first = i * n / parts;
        side part;
        view_of(&part, &s->dev);
        slice_by(&part, p, p->split, first, (i + 1) * n / parts - first);
        run_side(&part, p, &part.call, s->variant, out->why);
    }
    if (!out->why[0]) {
        check_values(s, out);
    }
}

/* Results of disjoint keys, and of no keys at all, merged: the sink comes in there, once. */
static void check_merge(setup *s, outcome *out) {
    enum { MOST = 8 };
    const point *const p = s->p;
    const int64_t parts = parts_of(p), n = p->NK;
    tensor o[MOST] = {0}, lse[MOST] = {0};
    const attn_tensor *os[MOST], *lses[MOST];
    for (int64_t i = 0; i <= parts && !out->why[0]; i++) {
        const int64_t first = i * n / parts, end = i < parts ? (i + 1) * n / parts : n;
        side part;
        const tensor *const like = &s->dev.t[ROLE_O], *const like_lse = &s->dev.t[ROLE_LSE];
        view_of(&part, &s->dev);
        slice_keys(&part, p, first, end - first);
        if (tensor_build(&o[i], s->dev.device, ATTN_F32, like->axes, like->shape, LAYOUT_COMPACT, 1,
                         out->why) == 0 &&
            tensor_build(&lse[i], s->dev.device, ATTN_F32, like_lse->axes, like_lse->shape,
                         LAYOUT_COMPACT, 1, out->why) == 0) {
            os[i] = part.call.o = &o[i].t;
            lses[i] = part.call.lse = &lse[i].t;
            part.call.sink = NULL;
            run_side(&part, p, &part.call, s->variant, out->why);
        }
    }
    if (!out->why[0] && attn_merge(s->dev.device, (int)parts + 1, os, lses, s->dev.call.sink,
                                   s->dev.call.o, s->dev.call.lse, NULL) < 0) {
        complain(out->why, "attn_merge: %s", attn_error());
    }
    if (!out->why[0]) {
        check_values(s, out);
    }
    for (int i = 0; i < MOST; i++) {
        tensor_free(&o[i]);
        tensor_free(&lse[i]);
    }
}

/* -- The same bits ----------------------------------------------------------------------------- */
typedef struct bits {
    char *at;
    size_t n;
} bits;

static bits bits_of(const side *s, unsigned skip, char *why) {
    bits b = {0};
    side_bits(s, skip, &b.at, &b.n, why);
    return b;
}

/* Frees both. */
static void expect_same(bits a, bits b, const char *when, char *why) {
    if (!why[0] && (a.n != b.n || memcmp(a.at, b.at, a.n) != 0)) {
        size_t i = 0;
        while (i < a.n && i < b.n && a.at[i] == b.at[i]) {
            i++;
        }
        complain(why, "%s: other bits, first at byte %zu of the outputs", when, i);
    }
    free(a.at);
    free(b.at);
}

static bits run_for_bits(setup *s, char *why) {
    side_poison_outputs(&s->dev, why);
    run_dev(s, why);
    return bits_of(&s->dev, 0, why);
}

static void check_repeat(setup *s, outcome *out) {
    run_dev(s, out->why);
    check_values(s, out);
    for (int i = 1; i < 30 && !out->why[0]; i++) {
        bits first = bits_of(&s->dev, 0, out->why);
        expect_same(first, run_for_bits(s, out->why), "run again", out->why);
    }
}

/* A device that has one thread alone refuses two; it then runs twice with one. */
static void check_threads(setup *s, outcome *out, const suite *suite) {
    bits found[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        const attn_device_options options = {.size = sizeof options,
                                             .threads = suite->info.threads > 1 ? i + 1 : 1};
        attn_device *device = NULL;
        setup other = {0};
        if (attn_device_open(suite->device_name, &options, &device) < 0) {
            complain(out->why, "attn_device_open: %s", attn_error());
        } else if (setup_new(&other, s->p, suite->ref, device, out->why) == 0) {
            found[i] = run_for_bits(&other, out->why);
            check_values(&other, out);
        }
        setup_free(&other);
        attn_device_release(device);
    }
    expect_same(found[0], found[1], "with two threads", out->why);
}

static void check_window(setup *s, outcome *out, const suite *suite) {
    point p = *s->p;
    setup other;
    bits causal, window = {0};
    run_dev(s, out->why);
    check_values(s, out);
    causal = bits_of(&s->dev, 0, out->why);
    snprintf(p.variant, sizeof p.variant, "@window %lld 0",
             (long long)or_else(p.tk, side_k_rows(&p)) - 1);
    if (setup_new(&other, &p, suite->ref, suite->dev, out->why) == 0) {
        window = run_for_bits(&other, out->why);
    }
    setup_free(&other);
    expect_same(causal, window, "window(NK - 1, 0) instead of causal", out->why);
}

/* NaN in every row of k and v that no row of q sees: a processor keeps every bit; a chip computes
   rows in whose blocks it meets NaN by a loop of its own, so there the values are judged again. */
static void check_isolate(setup *s, outcome *out, const suite *suite) {
    const int chip = suite->info.kind != 1 || suite->info.emulated;
    plain_result seen;
    run_dev(s, out->why);
    check_values(s, out);
    bits clean = bits_of(&s->dev, 0, out->why);
    if (plain_run(&s->ref.call, s->variant, 0, PLAIN_F64, &seen) < 0) {
        complain(out->why, "plain: %s", attn_error());
    }
    for (int r = ROLE_K; r <= ROLE_V; r++) {
        const tensor *const t = &s->ref.t[r];
        const int64_t width = t->shape[t->t.ndim - 1], rows = tensor_count(t) / width;
        const int64_t bytes = t->t.dtype.bits / 8;
        for (int64_t n = 0; n < rows * width; n++) {
            if (!seen.seen[n / width]) {
                attn__set((char *)t->memory + n * bytes, attn__type_of(&t->t), NAN);
            }
        }
    }
    plain_free(&seen);
    side_copy_inputs(&s->dev, &s->ref, out->why);
    const bits poisoned = run_for_bits(s, out->why);
    if (chip && out->why[0] == 0) {
        free(clean.at);
        free(poisoned.at);
        check_values(s, out);
    } else {
        expect_same(clean, poisoned, "NaN where no row looks", out->why);
    }
}

/* The results of sequence b alone, where packed ones lie in one tensor. */
static void look_at(side *look, const side *part, const setup *s, int64_t b) {
    const role q[] = {ROLE_O, ROLE_LSE, ROLE_DQ}, k[] = {ROLE_DK, ROLE_DV};
    view_of(look, part);
    for (int i = 0; i < 3 && point_q_packed(s->p); i++) {
        const int32_t *const at = (const int32_t *)s->ref.t[ROLE_Q_OFFSETS].memory + b;
        slice(&look->t[q[i]], 'n', at[0], at[1] - at[0]);
    }
    for (int i = 0; i < 2 && point_k_packed(s->p); i++) {
        const int32_t *const at = (const int32_t *)s->ref.t[ROLE_K_OFFSETS].memory + b;
        slice(&look->t[k[i]], 'n', at[0], at[1] - at[0]);
    }
}

static void run_plans(const side *s, attn_plan *const plan[3], const attn_call *call, char *why) {
    for (int d = ATTN_FORWARD; d <= ATTN_BACKWARD && !why[0]; d++) {
        if (plan[d]) {
            run_plan(s, plan[d], call, why);
        }
    }
}

/* The whole, then a part of it on the same plan: the part's rows keep their bits. Part B is the
   last half of the rows of every batch entry. */
static void check_part(const setup *s, const side *whole, attn_plan *const plan[3], int64_t b,
                       outcome *out) {
    const point *const p = s->p;
    const int by_rows = b == p->B;
    const unsigned keyed = 1u << ROLE_DK | 1u << ROLE_DV;
    const unsigned skip = 1u << ROLE_DSINK | (by_rows ? keyed : 0);
    side part, look;
    view_of(&part, whole);
    if (by_rows) {
        slice_rows(&part, p, p->NQ / 2, p->NQ - p->NQ / 2);
    } else {
        slice_batch(&part, p, b, 1);
        slice(&part.t[ROLE_Q_OFFSETS], 'b', b, 2);
        slice(&part.t[ROLE_K_OFFSETS], 'b', b, 2);
    }
    look_at(&look, &part, s, by_rows ? 0 : b);
    run_plans(whole, plan, &whole->call, out->why);
    const bits before = bits_of(&look, skip, out->why);
    run_plans(&part, plan, &part.call, out->why);
    expect_same(before, bits_of(&look, skip, out->why),
                by_rows ? "half of the rows alone" : "one batch entry alone", out->why);
}

static void check_batch(setup *s, outcome *out) {
    const point *const p = s->p;
    const int rows = !p->packed && !p->qused.n && !p->bm && p->qs < SCALES_BLOCK;
    const int last = p->dir == DIR_BWD ? ATTN_BACKWARD : ATTN_FORWARD;
    attn_plan *plan[3] = {NULL, NULL, NULL};
    side whole;
    view_of(&whole, &s->dev);
    whole.call.batch = or_else(p->tb, p->B);
    whole.call.nq = rows ? or_else(p->tq, p->NQ) : p->tq;
    for (int d = ATTN_FORWARD; d <= last && !out->why[0]; d++) {
        plan_of(&whole, &whole.call, s->variant, d, &plan[d], out->why);
    }
    run_plans(&whole, plan, &whole.call, out->why);
    check_values(s, out);
    for (int64_t b = 0; b < p->B + rows && !out->why[0]; b++) {
        check_part(s, &whole, plan, b, out);
    }
    for (int d = ATTN_FORWARD; d <= last; d++) {
        attn_plan_release(plan[d]);
    }
}

/* -- Dropout ----------------------------------------------------------------------------------- */
static void check_dropout(setup *s, outcome *out) {
    const point *const p = s->p;
    const int64_t shape[4] = {p->B, p->H, p->NQ, p->NK};
    tensor keep;
    run_dev(s, out->why);
    check_values(s, out);
    if (tensor_build(&keep, s->dev.device, ATTN_U8, "bhnd", shape, LAYOUT_COMPACT, 1, out->why) ==
        0) {
        const int64_t n = tensor_count(&keep);
        char *const got = malloc((size_t)n + 1);
        uint8_t *const want = malloc((size_t)n + 1);
        plain_dropout(&s->ref.call, want);
        if (attn_dropout(s->dev.device, &s->dev.call, &keep.t, NULL) < 0) {
            complain(out->why, "attn_dropout: %s", attn_error());
        } else if (tensor_bits(&keep, got, out->why) == 0 && memcmp(got, want, (size_t)n) != 0) {
            complain(out->why, "attn_dropout gives another mask than the formula");
        }
        free(got);
        free(want);
    }
    tensor_free(&keep);
}

void check_property(setup *s, outcome *out, const suite *suite) {
    switch (s->p->check) {
    case CHECK_REPEAT: check_repeat(s, out); break;
    case CHECK_BATCH: check_batch(s, out); break;
    case CHECK_THREADS: check_threads(s, out, suite); break;
    case CHECK_WINDOW: check_window(s, out, suite); break;
    case CHECK_MERGE: check_merge(s, out); break;
    case CHECK_SHARD: check_shard(s, out); break;
    case CHECK_DROPOUT: check_dropout(s, out); break;
    case CHECK_ISOLATE: check_isolate(s, out, suite); break;
    default:
        run_dev(s, out->why);
        check_values(s, out);
        break;
    }
}
