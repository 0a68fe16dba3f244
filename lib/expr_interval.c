/* expr_interval.c: the interval of every op, never too small for what vm_math.h computes.

   Who calls it: expr_range.c and expr_class.c. The ends of an f32 range are f32 numbers, and an
   operation that rounds correctly keeps order, so the ends of its result are that operation on ends
   of its arguments. A function with an error of e ulp may leave order by that much; its ends move
   outward by 4 e + 2 places: 2 e for the two errors, twice for a unit that may double. A NaN alone
   is the range of everything. */
#include "expr_range.h"

typedef attn__range range;

static const double ulps[] = {
#define X(name, text, n, rule, ulp, sentence) ulp,
    ATTN_OPS(X)
#undef X
};

static range of(double lo, double hi, int nan) {
    return (range){lo, hi, (uint8_t)(nan != 0)};
}
static range hull(range a, range b) {
    return of(fmin(a.lo, b.lo), fmax(a.hi, b.hi), a.nan | b.nan);
}
static int has(range a, double x) {
    return a.lo <= x && x <= a.hi;
}
static int has_inf(range a) {
    return a.lo == -INFINITY || a.hi == INFINITY;
}
static int either_nan(const range *a) {
    return a[0].nan | a[1].nan;
}
static double f32(double x) {
    return (double)(float)x;
}

float attn__float_step(float x, int n) {
    const attn__val32 from = {.f = x};
    int64_t place = from.i < 0 ? -(int64_t)(from.i & INT32_MAX) : from.i;
    place += n;
    place = place > 0x7f800000 ? 0x7f800000 : place < -0x7f800000 ? -0x7f800000 : place;
    const attn__val32 to = {.i = (int32_t)(place < 0 ? (-place | 0x80000000) : place)};
    return to.f;
}

/* The op itself, on ends. */
static double at(int op, double x, double y) {
    const attn__val32 a = {.f = (float)x}, b = {.f = (float)y};
    return (double)attn__op32(op, VT_F32, a, b, b).f;
}

/* lo..hi are values of a function with errors; NaN: no bound. */
static range outward(int op, double lo, double hi, int nan) {
    const int n = (int)(4 * ulps[op]) + 2;
    lo = isnan(lo) ? -INFINITY : (double)attn__float_step((float)lo, -n);
    hi = isnan(hi) ? INFINITY : (double)attn__float_step((float)hi, n);
    return of(lo, hi, nan);
}

/* A growing function, whose values lie in least..most. */
static range growing(int op, range a, double least, double most) {
    if (attn__range_single(&a)) {
        const double x = at(op, a.lo, 0);
        return isnan(x) ? attn__range_all(VT_F32) : of(x, x, 0);
    }
    const range r = outward(op, at(op, a.lo, 0), at(op, a.hi, 0), a.nan);
    return of(fmax(r.lo, least), fmin(r.hi, most), r.nan);
}

/* The same for an argument that must be >= 0; NaN below. */
static range growing_from_0(int op, range a, double least) {
    if (a.hi < 0) {
        return attn__range_all(VT_F32);
    }
    const int nan = a.nan || a.lo < 0;
    range r = growing(op, of(fmax(a.lo, 0), a.hi, 0), least, INFINITY);
    r.nan = (uint8_t)nan;
    return r;
}

/* -- Arithmetic -------------------------------------------------------------------------------- */

#define RULE(name) static range range_##name(int type, const range *a)

RULE(neg) {
    return (void)type, of(-a->hi, -a->lo, a->nan);
}

RULE(abs) {
    (void)type;
    return a->lo >= 0   ? *a
           : a->hi <= 0 ? of(-a->hi, -a->lo, a->nan)
                        : of(0, fmax(-a->lo, a->hi), a->nan);
}

RULE(add) {
    const double lo = a[0].lo + a[1].lo, hi = a[0].hi + a[1].hi;
    if (type == VT_I32) {
        return of(lo, hi, 0);
    }
    const int nan = (a[0].lo == -INFINITY && a[1].hi == INFINITY) ||
                    (a[0].hi == INFINITY && a[1].lo == -INFINITY);
    return of(isnan(lo) ? -INFINITY : f32(lo), isnan(hi) ? INFINITY : f32(hi),
              nan || either_nan(a));
}

RULE(sub) {
    const range pair[2] = {a[0], range_neg(type, &a[1])};
    return range_add(type, pair);
}

/* Grows r by the value x if it is one. */
static void include(range *r, double x) {
    if (!isnan(x)) {
        r->lo = fmin(r->lo, x);
        r->hi = fmax(r->hi, x);
    }
}

static double product(double x, double y) {
    return x == 0 || y == 0 ? 0 : x * y;
}

RULE(mul) {
    range r = of(INFINITY, -INFINITY, 0);
    for (int i = 0; i < 4; i++) {
        const double x = product(i & 1 ? a[0].hi : a[0].lo, i & 2 ? a[1].hi : a[1].lo);
        include(&r, type == VT_F32 ? f32(x) : x);
    }
    r.nan = type == VT_F32 &&
            (either_nan(a) || (has(a[0], 0) && has_inf(a[1])) || (has(a[1], 0) && has_inf(a[0])));
    return r;
}

RULE(div) {
    (void)type;
    const int both_inf = has_inf(a[0]) && has_inf(a[1]);
    if (has(a[1], 0)) {
        return of(-INFINITY, INFINITY, either_nan(a) || both_inf || has(a[0], 0));
    }
    range r = of(INFINITY, -INFINITY, either_nan(a) || both_inf);
    for (int i = 0; i < 4; i++) {
        include(&r, f32((i & 1 ? a[0].hi : a[0].lo) / (i & 2 ? a[1].hi : a[1].lo)));
    }
    return r.lo <= r.hi ? r : attn__range_all(VT_F32);
}

/* -- Integer divisions, by the sign of the divisor --------------------------------------------- */

typedef range (*by_positive)(range a, range b); /* b.lo >= 1 */

/* f for positive divisors, `mirrored` for negative ones, 0 for 0. */
static range by_sign(const range *a, by_positive f, by_positive mirrored) {
    range r = of(INFINITY, -INFINITY, 0);
    if (has(a[1], 0)) {
        include(&r, 0);
    }
    if (a[1].hi >= 1) {
        r = hull(r, f(a[0], of(fmax(a[1].lo, 1), a[1].hi, 0)));
    }
    if (a[1].lo <= -1) {
        r = hull(r, mirrored(a[0], of(fmax(-a[1].hi, 1), -a[1].lo, 0)));
    }
    return r;
}
static range negated(range a) {
    return of(-a.hi, -a.lo, a.nan);
}

static range quotient(range a, range b) {
    return of(floor(a.lo / (a.lo < 0 ? b.lo : b.hi)), floor(a.hi / (a.hi < 0 ? b.hi : b.lo)), 0);
}
static range quotient_mirrored(range a, range b) {
    return quotient(negated(a), b);
}

static range remainder_of(range a, range b) {
    const double turn = floor(a.lo / b.lo);
    if (b.lo == b.hi && turn == floor(a.hi / b.lo)) {
        return of(a.lo - turn * b.lo, a.hi - turn * b.lo, 0);
    }
    if (a.lo >= 0) {
        return of(a.hi < b.lo ? a.lo : 0, fmin(a.hi, b.hi - 1), 0);
    }
    return of(0, b.hi - 1, 0);
}
static range remainder_mirrored(range a, range b) {
    return negated(remainder_of(negated(a), b));
}

/* x - trunc(x/y) y is of x's sign and below both. `most`: of the remainder, from y alone. */
static range truncated(range a, double most) {
    return of(a.lo >= 0 ? 0 : fmax(a.lo, -most), a.hi <= 0 ? 0 : fmin(a.hi, most), a.nan);
}

RULE(floordiv) {
    return (void)type, by_sign(a, quotient, quotient_mirrored);
}

static range mod_f(const range *a) {
    const double c = a[1].lo;
    const int nan = either_nan(a) || has_inf(a[0]);
    if (attn__range_single(&a[1]) && c != 0 && !has_inf(a[0]) &&
        (a[0].hi - a[0].lo) * (1 + 0x1p-20) < fabs(c)) {
        const double lo = at(OP_mod, a[0].lo, c), hi = at(OP_mod, a[0].hi, c);
        if (lo <= hi) {
            return of(lo, hi, nan);
        }
    }
    const double hi = fmax(a[1].hi, 0);
    return of(fmin(a[1].lo, 0), a[0].lo >= 0 && a[1].lo >= 0 ? fmin(a[0].hi, hi) : hi, nan);
}

RULE(mod) {
    return type == VT_F32 ? mod_f(a) : by_sign(a, remainder_of, remainder_mirrored);
}

RULE(fmod) {
    const double most = fmax(fabs(a[1].lo), fabs(a[1].hi));
    if (type == VT_F32) {
        const range r = truncated(a[0], most);
        return of(r.lo, r.hi, either_nan(a) || has_inf(a[0]));
    }
    const double least = has(a[1], 0) ? 0 : fmin(fabs(a[1].lo), fabs(a[1].hi));
    return a[0].lo > -least && a[0].hi < least ? a[0] : truncated(a[0], fmax(most - 1, 0));
}

/* -- f32 functions ----------------------------------------------------------------------------- */

RULE(pow) {
    (void)type;
    if (attn__range_single(&a[0]) && attn__range_single(&a[1]) && a[0].lo != 0) {
        const double x = at(OP_pow, a[0].lo, a[1].lo);
        return isnan(x) ? attn__range_all(VT_F32) : of(x, x, 0);
    }
    if (!(a[0].lo > 0) || has_inf(a[0]) || has_inf(a[1])) {
        return attn__range_all(VT_F32);
    }
    range r = of(INFINITY, -INFINITY, 0); /* monotone in each argument */
    for (int i = 0; i < 4; i++) {
        include(&r, at(OP_pow, i & 1 ? a[0].hi : a[0].lo, i & 2 ? a[1].hi : a[1].lo));
    }
    r = outward(OP_pow, r.lo, r.hi, either_nan(a));
    return of(fmax(r.lo, 0), r.hi, r.nan);
}

RULE(min) {
    return (void)type, of(fmin(a[0].lo, a[1].lo), fmin(a[0].hi, a[1].hi), either_nan(a));
}
RULE(max) {
    return (void)type, of(fmax(a[0].lo, a[1].lo), fmax(a[0].hi, a[1].hi), either_nan(a));
}
RULE(exp) {
    return (void)type, growing(OP_exp, *a, 0, INFINITY);
}
RULE(exp2) {
    return (void)type, growing(OP_exp2, *a, 0, INFINITY);
}
RULE(log) {
    return (void)type, growing_from_0(OP_log, *a, -INFINITY);
}
RULE(log2) {
    return (void)type, growing_from_0(OP_log2, *a, -INFINITY);
}
RULE(tanh) {
    return (void)type, growing(OP_tanh, *a, -1, 1);
}
RULE(sqrt) {
    return (void)type, growing_from_0(OP_sqrt, *a, 0);
}

static range wave(int op, const range *a) {
    return attn__range_single(a) && !has_inf(*a) ? growing(op, *a, -1, 1)
                                                 : of(-1, 1, a->nan || has_inf(*a));
}
RULE(sin) {
    return (void)type, wave(OP_sin, a);
}
RULE(cos) {
    return (void)type, wave(OP_cos, a);
}
RULE(floor) {
    return (void)type, of(floor(a->lo), floor(a->hi), a->nan);
}
RULE(ceil) {
    return (void)type, of(ceil(a->lo), ceil(a->hi), a->nan);
}

/* -- Bits -------------------------------------------------------------------------------------- */

/* The least 2^n with -2^n <= both < 2^n. */
static double power_above(const range *a) {
    double p = 1;
    while (-p > a[0].lo || -p > a[1].lo || a[0].hi >= p || a[1].hi >= p) {
        p *= 2;
    }
    return p;
}

RULE(band) {
    (void)type;
    if (a[0].lo >= 0 || a[1].lo >= 0) {
        return of(0, fmin(a[0].lo >= 0 ? a[0].hi : INFINITY, a[1].lo >= 0 ? a[1].hi : INFINITY), 0);
    }
    return of(-power_above(a), power_above(a) - 1, 0);
}
RULE(bor) {
    (void)type;
    const double p = power_above(a);
    return of(a[0].lo >= 0 && a[1].lo >= 0 ? fmax(a[0].lo, a[1].lo) : -p, p - 1, 0);
}
RULE(bxor) {
    (void)type;
    const double p = power_above(a);
    return of(a[0].lo >= 0 && a[1].lo >= 0 ? 0 : -p, p - 1, 0);
}
RULE(bnot) {
    return (void)type, of(-1 - a->hi, -1 - a->lo, 0);
}

static int count_known(const range *a) {
    return a[1].lo >= 0 && a[1].hi <= 31;
}

RULE(shl) {
    if (!count_known(a)) {
        return attn__range_all(VT_I32);
    }
    const range pair[2] = {a[0], of(ldexp(1, (int)a[1].lo), ldexp(1, (int)a[1].hi), 0)};
    return attn__range_wrap(VT_I32, range_mul(type, pair));
}
RULE(sar) {
    (void)type;
    if (!count_known(a)) {
        return of(fmin(a[0].lo, 0), fmax(a[0].hi, -1), 0);
    }
    const double least = ldexp(1, (int)a[1].lo), most = ldexp(1, (int)a[1].hi);
    return of(floor(a[0].lo / (a[0].lo < 0 ? least : most)),
              floor(a[0].hi / (a[0].hi < 0 ? most : least)), 0);
}
RULE(shr) {
    if (a[0].lo >= 0) {
        return count_known(a) ? range_sar(type, a) : of(0, a[0].hi, 0);
    }
    return count_known(a) && a[1].lo >= 1 ? of(0, ldexp(1, 32 - (int)a[1].lo) - 1, 0)
                                          : attn__range_all(VT_I32);
}

/* -- Truth ------------------------------------------------------------------------------------- */

static range truth(int can_be_true, int can_be_false) {
    return of(!can_be_false, can_be_true, 0);
}

RULE(lt) {
    return (void)type, truth(a[0].lo < a[1].hi, either_nan(a) || a[0].hi >= a[1].lo);
}
RULE(le) {
    return (void)type, truth(a[0].lo <= a[1].hi, either_nan(a) || a[0].hi > a[1].lo);
}
RULE(eq) {
    (void)type;
    const int same = a[0].lo == a[0].hi && a[1].lo == a[1].hi && a[0].lo == a[1].lo;
    return truth(a[0].lo <= a[1].hi && a[1].lo <= a[0].hi, either_nan(a) || !same);
}
// clang-format off
RULE(not) {
    return (void)type, truth(!a->lo, a->hi != 0);
}
// clang-format on
RULE(ne) {
    const range equal = range_eq(type, a);
    return range_not(type, &equal);
}
RULE(and) {
    return (void)type, of(a[0].lo && a[1].lo, a[0].hi && a[1].hi, 0);
}
RULE(or) {
    return (void)type, of(a[0].lo || a[1].lo, a[0].hi || a[1].hi, 0);
}
RULE(select) {
    return (void)type, a[0].lo ? a[1] : a[0].hi ? hull(a[1], a[2]) : a[2];
}

RULE(float) {
    return (void)type, of(f32(a->lo), f32(a->hi), 0);
}
RULE(int) {
    (void)type;
    range r = of(fmin(fmax(trunc(a->lo), INT32_MIN), INT32_MAX),
                 fmin(fmax(trunc(a->hi), INT32_MIN), INT32_MAX), 0);
    if (a->nan) {
        include(&r, 0);
    }
    return r;
}

attn__range attn__interval(int op, int type, const attn__range *arg) {
    static range (*const rules[])(int type, const range *a) = {
#define X(name, ...) range_##name,
        ATTN_OPS(X)
#undef X
    };
    return rules[op](type, arg);
}
