/* check.c: the tolerance rule; see docs/conformance.md, which tells it in words.

       error of dev against the oracle  <=  max(2 * error of plain fp32 against the oracle, floor)
       floor = 4 * 2^-24 * max(1, S) * M + u_out * |oracle| + u_p * M + slack

   once with the largest of every element, once with root mean squares. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

/* Unit roundoff, the largest number, and what underflow may cost: half of f16's smallest number; a
   sum of f32's, which may be flushed to 0. */
typedef struct precision {
    double unit, largest, tiny;
} precision;

static precision precision_of(int type) {
    switch (type) {
    case ATTN_F16: return (precision){0x1p-11, 65504, 0x1p-25};
    case ATTN_BF16: return (precision){0x1p-8, 3.3895313892515355e38, 0x1p-118};
    case ATTN_E4M3FN:
    case ATTN_E4M3FNUZ: return (precision){0x1p-4, 448, 0};
    case ATTN_E5M2:
    case ATTN_E5M2FNUZ: return (precision){0x1p-3, 57344, 0};
    case ATTN_F64: return (precision){0, 1.7976931348623157e308, 0};
    default: return (precision){0x1p-24, 3.4028234663852886e38, 0x1p-118};
    }
}

/* One output on both sides and by both yardsticks. */
typedef struct compared {
    const tensor *dev, *ref;
    const char *name;
    int output, p_type;
    int64_t n;
    double *got, *want;
    const double *plain, *second, *sum, *slack;
    double amplify, u_o; /* u_o: unit roundoff of o */
} compared;

/* An element's place as the axes name it, for a message. */
static void place_text(const tensor *t, int64_t n, char text[80]) {
    int64_t index[4];
    size_t at = 0;
    for (int i = t->t.ndim - 1; i >= 0; i--) {
        index[i] = n % t->shape[i];
        n /= t->shape[i];
    }
    text[0] = 0;
    for (int i = 0; i < t->t.ndim; i++) {
        at += (size_t)snprintf(text + at, 80 - at, "[%lld]", (long long)index[i]);
    }
}

/* NaN and infinities match by position; a finite number may become infinite where its type ends. */
static int same_kind(double got, double want, precision out) {
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got);
    }
    if (isinf(got) && isfinite(want)) {
        return fabs(want) > 0.99 * out.largest && (got > 0) == (want > 0);
    }
    return isinf(want) ? got == want || (isfinite(got) && fabs(got) >= 0.99 * out.largest) : 1;
}

typedef struct norm {
    double max, square;
} norm;

static void add(norm *n, double x) {
    x = isfinite(x) ? fabs(x) : 0;
    n->max = fmax(n->max, x);
    n->square += x * x;
}

static double rms(const norm *n, int64_t count) {
    return count ? sqrt(n->square / (double)count) : 0;
}

/* The oracle against the second opinion: both in double, so nearly equal. A derivative may have
   constants of its own (1/c), which are folded in f32; some gradients are stored in f32. */
static int check_oracle(const compared *c, char *why) {
    const double folded = c->output >= PLAIN_DQ ? 0x1p-23 : 0x1p-40;
    const double stored = attn__type_of(&c->ref->t) == ATTN_F32 ? 0x1p-23 : 0;
    for (int64_t i = 0; i < c->n; i++) {
        const double a = c->want[i], b = c->second[i];
        const double most = (folded + 0x1p-40 * c->amplify) * (c->sum[i] + fabs(b)) +
                            stored * fabs(b) + 2 * c->slack[i] + 0x1p-150;
        if (isnan(a) && isnan(b)) {
            continue;
        }
        if (a != b && !(fabs(a - b) <= most)) {
            char place[80];
            place_text(c->ref, i, place);
            return complain(why, "the oracle's %s%s is %.17g, the second opinion %.17g", c->name,
                            place, a, b);
        }
    }
    return 0;
}

static int check_kinds(const compared *c, char *why) {
    const precision out = precision_of(attn__type_of(&c->dev->t));
    for (int64_t i = 0; i < c->n; i++) {
        if (!same_kind(c->got[i], c->want[i], out)) {
            char place[80];
            place_text(c->dev, i, place);
            return complain(why, "%s%s is %g; the oracle has %g", c->name, place, c->got[i],
                            c->want[i]);
        }
    }
    return 0;
}

/* Where the yardstick overflows it is no measure; the floor alone counts then. */
static double measured(double x) {
    return isfinite(x) ? x : 0;
}

static int check_errors(const compared *c, output_error *e, char *why) {
    const precision out = precision_of(attn__type_of(&c->dev->t));
    double u_p = c->output == PLAIN_LSE || attn__type_bytes(c->p_type) > 2
                     ? 0
                     : precision_of(c->p_type).unit;
    if (c->output >= PLAIN_DQ && c->output != PLAIN_DV) { /* o comes in rounded, as dO . O */
        u_p = fmax(u_p, c->u_o);
    }
    /* dO, of o's type, is rounded to one of q's 16 bits as p is */
    if (c->output >= PLAIN_DQ && attn__type_bytes(c->p_type) == 2 && c->u_o < u_p) {
        u_p *= 2;
    }
    norm error = {0, 0}, plain = {0, 0}, want = {0, 0}, sum = {0, 0}, slack = {0, 0};
    int64_t worst = 0;
    int plain_finite = 1;
    for (int64_t i = 0; i < c->n; i++) {
        const int finite = isfinite(c->want[i]) && isfinite(c->got[i]);
        const double off = finite ? c->got[i] - c->want[i] : 0;
        worst = fabs(off) > error.max ? i : worst;
        add(&error, off);
        add(&plain, finite ? c->plain[i] - c->want[i] : 0);
        plain_finite &= !finite || isfinite(c->plain[i]);
        add(&want, c->want[i]);
        add(&sum, c->sum[i]);
        add(&slack, c->slack[i]);
    }
    const double units = 0x1p-22 * fmax(1, c->amplify) + u_p;
    e->max = error.max;
    e->rms = rms(&error, c->n);
    e->plain_max = plain_finite ? plain.max : 0;
    e->plain_rms = plain_finite ? rms(&plain, c->n) : 0;
    e->floor = units * sum.max + out.unit * want.max + slack.max + out.tiny;
    e->largest = want.max;
    e->max_most = fmax(2 * measured(e->plain_max), e->floor);
    e->rms_most =
        fmax(2 * measured(e->plain_rms),
             units * rms(&sum, c->n) + out.unit * rms(&want, c->n) + rms(&slack, c->n) + out.tiny);
    snprintf(e->name, sizeof e->name, "%s", c->name);
    if (e->max > e->max_most) {
        char place[80];
        place_text(c->dev, worst, place);
        return complain(why, "%s%s is %.9g; the oracle has %.9g: off by %.3g, allowed %.3g",
                        c->name, place, c->got[worst], c->want[worst], e->max, e->max_most);
    }
    if (e->rms > e->rms_most) {
        return complain(why, "%s is off by %.3g (root mean square), allowed %.3g", c->name, e->rms,
                        e->rms_most);
    }
    return 0;
}

/* What the point says outright. */
static int check_wanted(const compared *c, const point *p, char *why) {
    const point_list *const list = c->output == PLAIN_O ? &p->want : &p->want_lse;
    for (int64_t i = 0; i < c->n && c->output <= PLAIN_LSE && list->n; i++) {
        const double want = list->x[i % list->n];
        if (!(c->got[i] == want || fabs(c->got[i] - want) <= 1e-6 * fabs(want))) {
            return complain(why, "%s element %lld is %.9g; it must be %.9g", c->name, (long long)i,
                            c->got[i], want);
        }
    }
    return 0;
}

/* Returns 1 if a finite element became infinite, or one became 0 where dO, which backward
   multiplies it by, may be infinite. */
static int compare(compared *c, const point *p, outcome *out) {
    int overflow = 0;
    c->got = malloc((size_t)(c->n + 1) * sizeof *c->got);
    c->want = malloc((size_t)(c->n + 1) * sizeof *c->want);
    if (tensor_read(c->dev, c->got, out->why) == 0 && tensor_read(c->ref, c->want, out->why) == 0) {
        check_oracle(c, out->why);
        check_wanted(c, p, out->why);
        check_kinds(c, out->why);
        check_errors(c, &out->error[out->n_errors++], out->why);
        tensor_gaps(c->dev, c->name, out->why);
        for (int64_t i = 0; i < c->n; i++) {
            overflow |= (isinf(c->got[i]) && isfinite(c->want[i])) ||
                        (c->got[i] == 0 && c->want[i] != 0 && p->plant && p->where == WHERE_DOUT);
        }
    }
    free(c->got);
    free(c->want);
    return overflow;
}

/* The oracle's inputs and the device's types of output. */
static attn_call plain_call(const setup *s) {
    attn_call c = s->ref.call;
    c.o = s->dev.call.o;
    c.lse = s->dev.call.lse;
    c.dq = s->dev.call.dq;
    c.dk = s->dev.call.dk;
    c.dv = s->dev.call.dv;
    return c;
}

void check_values(setup *s, outcome *out) {
    static const role roles[PLAIN_GRADS] = {ROLE_O,  ROLE_LSE, ROLE_DQ,
                                            ROLE_DK, ROLE_DV,  ROLE_DSINK};
    const attn_call call = plain_call(s);
    const int backward = s->p->dir == DIR_BWD;
    plain_result plain = {0}, second = {0};
    out->n_errors = 0;
    if (run_side(&s->ref, s->p, &s->ref.call, s->variant, out->why) < 0) {
        return;
    }
    if (plain_run(&call, s->variant, backward, PLAIN_F32, &plain) < 0 ||
        plain_run(&call, s->variant, backward, PLAIN_F64, &second) < 0) {
        complain(out->why, "plain: %s", attn_error());
    }
    int o_lost = 0; /* gradients read o: what they are then is no matter of the device */
    for (int i = 0; i < PLAIN_GRADS + s->n_caps && !out->why[0]; i++) {
        const int x = i - PLAIN_GRADS;
        compared c = {.dev = x < 0 ? &s->dev.t[roles[i]] : &s->dev.grad[x],
                      .ref = x < 0 ? &s->ref.t[roles[i]] : &s->ref.grad[x],
                      .name = x < 0 ? role_name(roles[i]) : s->cap[x].name,
                      .output = i,
                      .p_type = point_type(s->p),
                      .plain = plain.value[i],
                      .second = second.value[i],
                      .sum = second.sum[i],
                      .slack = second.slack[i],
                      .amplify = second.amplify,
                      .u_o = precision_of(point_otype(s->p)).unit};
        if (c.dev->device && !(o_lost && i > PLAIN_LSE)) {
            c.n = tensor_count(c.dev);
            o_lost |= compare(&c, s->p, out) && i == PLAIN_O;
        }
    }
    plain_free(&plain);
    plain_free(&second);
}
