/* math.h: every operation of variants on f32 and i32 as straight-line code, one value at a time.

   Who includes it: the text of a variant for a chip (lib/gpu_text.c), and of the host lib/vm_math.h
   for folding and the vector machine. One list, VM_RULES at the end, says what each op computes;
   all expand it, so they agree bit for bit. No library function is called: a square root is exact
   by its definition, everything else is arithmetic that IEEE 754 fixes. Choices are written as `?:`
   of computed values, so that loops over these functions become vector code.

   It needs of its includer the types of types.h, DEV, and of isa/ bits_of, float_of, sqrt_f32,
   div_near.

   Worst errors in ulp, measured over every f32 (sin, cos: every third; pow: 4 million pairs):
       exp 0.99   exp2 1.23   log 0.84   log2 0.87   tanh 2.61   sin, cos, pow 0.501 */
#ifndef ATTN_MATH_H
#define ATTN_MATH_H

#define VM_INF float_of(0x7f800000u)
#define VM_NAN float_of(0x7fc00000u)

#define vm_bits  bits_of
#define vm_float float_of

typedef union vm_f64 {
    double f;
    u64 u;
} vm_f64;
DEV u64 vm_bits64(double x) {
    vm_f64 v;
    v.f = x;
    return v.u;
}
DEV double vm_double(u64 u) {
    vm_f64 v;
    v.u = u;
    return v.f;
}

DEV float vm_abs(float x) {
    return vm_float(vm_bits(x) & 0x7fffffffu);
}
/* |x| with the sign of y. */
DEV float vm_copysign(float x, float y) {
    return vm_float((vm_bits(x) & 0x7fffffffu) | (vm_bits(y) & 0x80000000u));
}

/* Adding 1.5 * 2^23 (in double 1.5 * 2^52) rounds a small number to a whole one, which then stands
   in the low bits. */
#define VM_ROUND   0x1.8p23f
#define VM_ROUND64 0x1.8p52

/* -- i32: wraps; the divisions are exact in double --------------------------------------------- */

DEV i32 vm_wrap(u32 u) {
    return (i32)u;
}

/* Quotient toward zero; 0 and -1, whose quotients may not exist, count as 1. */
DEV i32 vm_quotient(i32 a, i32 b) {
    const i32 d = b == 0 || b == -1 ? 1 : b;
    return (i32)((double)a / (double)d);
}
DEV i32 vm_fmod_i(i32 a, i32 b) {
    const i32 r = vm_wrap((u32)a - (u32)vm_quotient(a, b) * (u32)b);
    return b == 0 || b == -1 ? 0 : r;
}
DEV i32 vm_mod_i(i32 a, i32 b) {
    const i32 r = vm_fmod_i(a, b);
    return r != 0 && (r ^ b) < 0 ? vm_wrap((u32)r + (u32)b) : r;
}
DEV i32 vm_floordiv(i32 a, i32 b) {
    const i32 r = vm_fmod_i(a, b);
    const i32 q = vm_quotient(a, b) - (r != 0 && (r ^ b) < 0);
    return b == 0 ? 0 : b == -1 ? vm_wrap(0u - (u32)a) : q;
}

/* -- f32: conversions and rounding ------------------------------------------------------------- */

DEV i32 vm_int(float x) {
    const float safe = x >= -0x1p31f && x < 0x1p31f ? x : 0.0f;
    const i32 n = (i32)safe;
    return x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? -0x7fffffff - 1 : n;
}
DEV float vm_floor(float x) {
    const int small = vm_abs(x) < 0x1p23f;
    const float t = (float)(i32)(small ? x : 0.0f);
    return small ? vm_copysign(t > x ? t - 1.0f : t, x) : x;
}
DEV float vm_ceil(float x) {
    const int small = vm_abs(x) < 0x1p23f;
    const float t = (float)(i32)(small ? x : 0.0f);
    return small ? vm_copysign(t < x ? t + 1.0f : t, x) : x;
}
DEV float vm_min(float a, float b) {
    return a == a && (b < a || b != b) ? b : a;
}
DEV float vm_max(float a, float b) {
    return a == a && (b > a || b != b) ? b : a;
}

/* -- exp, exp2: x = k ln 2 + r, then 2^k times a polynomial of r ------------------------------- */

/* p * 2^n for n in -300..254 by two factors, rounded once. */
DEV float vm_scale(float p, i32 n) {
    const i32 half = n >> 1;
    const float a = vm_float(((u32)half + 127u) << 23);
    const float b = vm_float(((u32)n - (u32)half + 127u) << 23);
    return p * a * b;
}
DEV float vm_exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float t = x * 0x1.715476p+0f + VM_ROUND;
    const float k = t - VM_ROUND;
    const float r = x - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
    float p = 0x1.6a41e4p-10f;
    p = p * r + 0x1.1238e0p-7f;
    p = p * r + 0x1.5558c0p-5f;
    p = p * r + 0x1.555494p-3f;
    p = p * r + 0x1.fffffcp-2f;
    return vm_scale(1.0f + (r + r * r * p), vm_wrap(vm_bits(t) - vm_bits(VM_ROUND)));
}
DEV float vm_exp2(float x) {
    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    const float t = x + VM_ROUND;
    const float r = x - (t - VM_ROUND);
    float p = 0x1.42082ep-13f;
    p = p * r + 0x1.5f3cd4p-10f;
    p = p * r + 0x1.3b2d38p-7f;
    p = p * r + 0x1.c6aeecp-5f;
    p = p * r + 0x1.ebfbdcp-3f;
    p = p * r + 0x1.62e430p-1f;
    return vm_scale(1.0f + r * p, vm_wrap(vm_bits(t) - vm_bits(VM_ROUND)));
}

/* -- log, log2: x = 2^k (1 + f) with 1 + f in [sqrt 1/2, sqrt 2), s = f / (2 + f) -------------- */

typedef struct vm_log_parts {
    float k, f, s, tail; /* log(1 + f) = f - f^2/2 + s (f^2/2 + tail) */
} vm_log_parts;

DEV vm_log_parts vm_log_split(float x) {
    const int tiny = x < 0x1p-126f;
    const u32 u = vm_bits(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
    const float k = (float)((vm_wrap(u) >> 23) - (tiny ? 23 : 0));
    const float f = vm_float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    const float s = div_near(f, 2.0f + f), z = s * s;
    float p = 0x1.e2f996p-3f;
    p = p * z + 0x1.2438c4p-2f;
    p = p * z + 0x1.999a7ap-2f;
    p = p * z + 0x1.555554p-1f;
    const vm_log_parts parts = {k, f, s, p * z};
    return parts;
}
/* y where x has a logarithm, else what stands in its place. */
DEV float vm_log_edge(float x, float y) {
    const float end = x == 0.0f ? -VM_INF : VM_NAN;
    return x > 0.0f ? (x < VM_INF ? y : x) : end;
}
DEV float vm_log(float x) {
    const vm_log_parts t = vm_log_split(x);
    const float half = 0.5f * t.f * t.f;
    const float low = t.s * (half + t.tail) + t.k * 0x1.7f7d1cp-20f;
    return vm_log_edge(x, t.k * 0x1.62e4p-1f - ((half - low) - t.f));
}
/* The head has 12 bits and so has the head of 1/ln 2: their product is exact. */
DEV float vm_log2(float x) {
    const vm_log_parts t = vm_log_split(x);
    const float half = 0.5f * t.f * t.f;
    const float head = vm_float(vm_bits(t.f - half) & 0xfffff000u);
    const float rest = ((t.f - head) - half) + t.s * (half + t.tail);
    const float y = ((rest + head) * -0x1.7135a8p-13f + rest * 0x1.716p+0f) + head * 0x1.716p+0f;
    return vm_log_edge(x, y + t.k);
}

/* m / (m + 2) with m = e^(2|x|) - 1 = 2^k (e^r - 1) + (2^k - 1), where 2 |x| = k ln 2 + r: a small
   x has k = 0 and r = 2 |x|, and nothing cancels. From 9.5 on the result is 1. */
DEV float vm_tanh(float x) {
    const float size = vm_abs(x), a = size > 9.5f ? 9.5f : size;
    const float t = a * 0x1.715476p+1f + VM_ROUND;
    const float k = t - VM_ROUND;
    const float r = (a + a) - k * 0x1.62e4p-1f - k * 0x1.7f7d1cp-20f;
    float p = 0x1.6bec04p-10f;
    p = p * r + 0x1.122768p-7f;
    p = p * r + 0x1.555674p-5f;
    p = p * r + 0x1.5554b0p-3f;
    p = p * r + 0x1.fffffep-2f;
    const float power = vm_float((vm_bits(t) << 23) + vm_bits(1.0f));
    const float m = power * (r + r * r * p) + (power - 1.0f);
    return vm_copysign(div_near(m, m + 2.0f), x);
}
/* |x| <= 0.35: x + x^3 times the polynomial of x^2 that core/near.h has, without fused operations,
   so that -0 stays. */
DEV int vm_tanh_far(float x) {
    return !(vm_abs(x) <= 0.35f);
}
DEV float vm_tanh_fast(float x) {
    const float z = x * x;
    const float p = z * (z * -0x1.929fdep-5f + 0x1.106164p-3f) - 0x1.555394p-2f;
    return x * (z * p + 1.0f);
}

/* -- sin, cos, pow: in double, rounded once ---------------------------------------------------- */

/* sin(q pi/2 + r) for |r| <= pi/4. */
DEV float vm_sin_part(u64 q, double r) {
    const double z = r * r;
    double s = 0x1.6cd824f0fffa3p-19;
    s = s * z - 0x1.a00f9cd0b6ddap-13;
    s = s * z + 0x1.11110895446e6p-7;
    s = s * z - 0x1.5555554cb8825p-3;
    s = r + r * (z * s);
    double c = -0x1.23d7d4ef5c8bdp-22;
    c = c * z + 0x1.a00f109241761p-16;
    c = c * z - 0x1.6c16b3fe8a328p-10;
    c = c * z + 0x1.55555546f1b12p-5;
    c = c * z - 0x1.ffffffffebf79p-2;
    c = 1.0 + z * c;
    const u64 odd = 0 - (q & 1);
    const u64 u = (vm_bits64(s) & ~odd) | (vm_bits64(c) & odd);
    return (float)vm_double(u ^ (q & 2) << 62);
}
/* sin(x + quarter pi/2) for |x| <= 2^20: pi/2 in two parts, the first of 33 bits. */
DEV float vm_sin_fast(float x, u64 quarter) {
    const double t = (double)x * 0x1.45f306dc9c883p-1 + VM_ROUND64;
    const double k = t - VM_ROUND64;
    const double r = ((double)x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a626331p-34;
    return vm_sin_part(vm_bits64(t) + quarter, r);
}
/* Any x: x = m 2^e with a whole m, and only those 96 bits of 2/pi count that the product with m
   leaves below 4 and above 2^-94 (Payne and Hanek 1983). */
DEV float vm_sin_slow(float x, u64 quarter) {
    static const u32 two_over_pi[] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                           0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    const u32 u = vm_bits(x) & 0x7fffffffu;
    if (u >= 0x7f800000u) {
        return VM_NAN;
    }
    const u32 m = (u & 0x7fffffu) | 0x800000u;
    const int skip = (int)(u >> 23) - 150 - 2 + 32; /* bits of the table above 4 / 2^e */
    u32 w[3];
    for (int i = 0; i < 3; i++) {
        const int at = skip / 32 + i;
        const u64 pair = (u64)two_over_pi[at] << 32 | two_over_pi[at + 1];
        w[i] = (u32)(pair << (skip % 32) >> 32);
    }
    /* The product's place value 2^62 is one quarter; what overflows is whole turns. */
    const u64 turn =
        ((u64)(m * w[0]) << 32) + (u64)m * w[1] + ((u64)m * w[2] >> 32);
    const u64 q = (turn + ((u64)1 << 61)) >> 62;
    const double r = (double)(i64)(turn - (q << 62)) * 0x1.921fb54442d18p-62;
    const u64 sign = vm_bits(x) >> 31; /* sin is odd, cos even */
    return vm_sin_part((sign ? 0 - q : q) + quarter, sign ? -r : r);
}
DEV int vm_sin_far(float x) {
    return !(vm_abs(x) <= 0x1p20f);
}

/* x to the y as 2^(y log2 |x|). */
DEV float vm_pow(float x, float y) {
    const double a = (double)vm_abs(x);
    const u64 u = vm_bits64(a) - 0x3fe6a09e00000000u + 0x3ff0000000000000u;
    const double k = vm_double(u >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
    const double m = vm_double((u & 0xfffffffffffffu) + 0x3fe6a09e00000000u);
    const double s = (m - 1) / (m + 1), z = s * s;
    double l = 0x1.f18dda8751070p-3;
    l = l * z + 0x1.0bb75bf3d9505p-2;
    l = l * z + 0x1.484faf36c2df5p-2;
    l = l * z + 0x1.a617566bab51dp-2;
    l = l * z + 0x1.2776c516b2d91p-1;
    l = l * z + 0x1.ec709dc39c988p-1;
    l = l * z + 0x1.71547652b82ffp+1;
    l = l * s + k;
    l = a < (double)VM_INF ? (a > 0 ? l : -(double)VM_INF) : a;
    double v = (double)y * l;
    v = v > 200 ? 200 : v;
    v = v < -200 ? -200 : v;
    const double t = v + VM_ROUND64;
    const double r = v - (t - VM_ROUND64);
    double p = 0x1.b3f00fd574828p-24;
    p = p * r + 0x1.63e5d742dfea0p-20;
    p = p * r + 0x1.ffce18cf54d6cp-17;
    p = p * r + 0x1.430898b4c2588p-13;
    p = p * r + 0x1.5d87fd9db3eafp-10;
    p = p * r + 0x1.3b2ab72398de6p-7;
    p = p * r + 0x1.c6b08d70c16fdp-5;
    p = p * r + 0x1.ebfbdff81c3b0p-3;
    p = p * r + 0x1.62e42fefa3801p-1;
    p = (1 + r * p) * vm_double((vm_bits64(t) << 52) + 0x3ff0000000000000u);
    const float size = a == 1 && y == y ? 1.0f : (float)p;
    const int wide = vm_abs(y) >= 0x1p24f; /* even */
    const i32 n = (i32)(vm_abs(y) < 0x1p24f ? y : 0.0f);
    const int whole = wide || (float)n == y;
    const u32 sign = vm_bits(x) & (u32)n << 31;
    const float signed_size = vm_float(vm_bits(size) ^ sign);
    return y == 0.0f || x == 1.0f ? 1.0f : x < 0.0f && !whole ? VM_NAN : signed_size;
}

/* -- f32 remainders: exact, in double while the quotient is below 2^29, else in whole numbers -- */

DEV int vm_fmod_far(float x, float y) {
    return !((double)vm_abs(x) < (double)vm_abs(y) * 0x1p29 && vm_abs(y) < VM_INF);
}
DEV float vm_fmod_fast(float x, float y) {
    const double a = (double)vm_abs(x), d = (double)vm_abs(y), q = a / d;
    const double k = (double)(i32)(q <= 0x1p29 ? q : 0);
    const double r = a - k * d; /* the quotient may have been rounded up to k */
    return vm_copysign((float)(r < 0 ? r + d : r), x);
}
DEV float vm_fmod_slow(float x, float y) {
    const u32 a = vm_bits(x) & 0x7fffffffu, d = vm_bits(y) & 0x7fffffffu;
    if (d == 0 || a >= 0x7f800000u || d > 0x7f800000u) {
        return d == 0 ? 0.0f : VM_NAN;
    }
    if (a < d) {
        return x;
    }
    /* Whole numbers: x = mx 2^ex, y = my 2^ey, both in units of 2^-150. */
    const u32 my = d >> 23 ? (d & 0x7fffffu) | 0x800000u : d;
    const i32 ey = d >> 23 ? (i32)(d >> 23) : 1;
    u32 r = (a >> 23 ? (a & 0x7fffffu) | 0x800000u : a) % my;
    for (i32 up = (a >> 23 ? (i32)(a >> 23) : 1) - ey; up > 0; up -= 32) {
        r = (u32)(((u64)r << (up < 32 ? up : 32)) % my);
    }
    const float unit = vm_float(ey < 24 ? 1u << (ey - 1) : (u32)(ey - 23) << 23);
    return vm_copysign((float)r * unit, x);
}
/* The remainder r of fmod(x, y) moved to the side of y. */
DEV float vm_to_mod(float r, float y) {
    const float zero = y == 0.0f ? 0.0f : vm_copysign(0.0f, y);
    return r == 0.0f ? zero : (r < 0.0f) != (y < 0.0f) ? r + y : r;
}

/* -- The rules --------------------------------------------------------------------------------- */

/* X(op, argument type, result, argument, value): `f` and `i` say whether f32 or i32 is meant; the
   arguments are a, b, c. Bools follow the i32 rule. select moves bits.
   Y(op, argument type, result, argument, far, fast, slow): slow where far, else fast. */
// clang-format off
#define VM_RULES(X, Y)                                                                             \
    X(neg, F32, f, f, -a)                                                                          \
    X(neg, I32, i, i, vm_wrap(0u - (u32)a))                                                   \
    X(abs, F32, f, f, vm_abs(a))                                                                   \
    X(abs, I32, i, i, a < 0 ? vm_wrap(0u - (u32)a) : a)                                       \
    X(add, F32, f, f, a + b)                                                                       \
    X(add, I32, i, i, vm_wrap((u32)a + (u32)b))                                          \
    X(sub, F32, f, f, a - b)                                                                       \
    X(sub, I32, i, i, vm_wrap((u32)a - (u32)b))                                          \
    X(mul, F32, f, f, a * b)                                                                       \
    X(mul, I32, i, i, vm_wrap((u32)a * (u32)b))                                          \
    X(div, F32, f, f, a / b)                                                                       \
    X(floordiv, I32, i, i, vm_floordiv(a, b))                                                      \
    Y(mod, F32, f, f, vm_fmod_far(a, b), vm_to_mod(vm_fmod_fast(a, b), b),                         \
      vm_to_mod(vm_fmod_slow(a, b), b))                                                            \
    X(mod, I32, i, i, vm_mod_i(a, b))                                                              \
    Y(fmod, F32, f, f, vm_fmod_far(a, b), vm_fmod_fast(a, b), vm_fmod_slow(a, b))                  \
    X(fmod, I32, i, i, vm_fmod_i(a, b))                                                            \
    X(pow, F32, f, f, vm_pow(a, b))                                                                \
    X(min, F32, f, f, vm_min(a, b))                                                                \
    X(min, I32, i, i, b < a ? b : a)                                                               \
    X(max, F32, f, f, vm_max(a, b))                                                                \
    X(max, I32, i, i, b > a ? b : a)                                                               \
    X(exp, F32, f, f, vm_exp(a))                                                                   \
    X(exp2, F32, f, f, vm_exp2(a))                                                                 \
    X(log, F32, f, f, vm_log(a))                                                                   \
    X(log2, F32, f, f, vm_log2(a))                                                                 \
    Y(tanh, F32, f, f, vm_tanh_far(a), vm_tanh_fast(a), vm_tanh(a))                                \
    X(sqrt, F32, f, f, sqrt_f32(a))                                                                \
    Y(sin, F32, f, f, vm_sin_far(a), vm_sin_fast(a, 0), vm_sin_slow(a, 0))                         \
    Y(cos, F32, f, f, vm_sin_far(a), vm_sin_fast(a, 1), vm_sin_slow(a, 1))                         \
    X(floor, F32, f, f, vm_floor(a))                                                               \
    X(ceil, F32, f, f, vm_ceil(a))                                                                 \
    X(band, I32, i, i, a & b)                                                                      \
    X(bor, I32, i, i, a | b)                                                                       \
    X(bxor, I32, i, i, a ^ b)                                                                      \
    X(bnot, I32, i, i, ~a)                                                                         \
    X(shl, I32, i, i, vm_wrap((u32)a << (b & 31)))                                            \
    X(shr, I32, i, i, vm_wrap((u32)a >> (b & 31)))                                            \
    X(sar, I32, i, i, a >> (b & 31))                                                               \
    X(lt, F32, i, f, a < b)                                                                        \
    X(lt, I32, i, i, a < b)                                                                        \
    X(le, F32, i, f, a <= b)                                                                       \
    X(le, I32, i, i, a <= b)                                                                       \
    X(eq, F32, i, f, a == b)                                                                       \
    X(eq, I32, i, i, a == b)                                                                       \
    X(ne, F32, i, f, a != b)                                                                       \
    X(ne, I32, i, i, a != b)                                                                       \
    X(and, I32, i, i, a & b)                                                                       \
    X(or, I32, i, i, a | b)                                                                        \
    X(not, I32, i, i, a ^ 1)                                                                       \
    X(select, I32, i, i, a ? b : c)                                                                \
    X(float, I32, f, i, (float)a)                                                                  \
    X(int, F32, i, f, vm_int(a))
// clang-format on

#endif
