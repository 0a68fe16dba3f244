/* dtype.c: element types: names, sizes, and conversion from and to f32 and double.

   Who calls it: everything that reads or writes tensors. Every conversion rounds once, to nearest
   even; out of range becomes infinity, or the largest value where the type has none. Memory may
   have any alignment.

   The types below 32 bits share one layout and one pair of conversions:

       sign | exponent | mantissa        value = 2^(exponent - bias) * 1.mantissa
                                                 2^(1 - bias) * 0.mantissa where exponent is 0
                  mantissa bits  bias  largest   infinity  NaN
       f16             10         15   65504     0x7c00    above infinity
       bf16             7        127   3.39e38   0x7f80    above infinity
       e5m2             2         15   57344     0x7c      above infinity
       e4m3fn           3          7   448       -         0x7f
       e5m2fnuz         2         16   57344     -         0x80, in place of -0
       e4m3fnuz         3          8   240       -         0x80, in place of -0 */
#include "attn_int.h"

/* gcc's -O2 vectorises no loop whose length it does not know. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("tree-loop-vectorize", "vect-cost-model=dynamic")
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

const char *attn__type_name(int type) {
    switch (type) {
#define X(NAME, name, code, bits)                                                                  \
    case ATTN_##NAME: return #name;
        ATTN_TYPES(X)
#undef X
    default: return "?";
    }
}

int attn__type_bytes(int type) {
    switch (type) {
#define X(NAME, name, code, bits)                                                                  \
    case ATTN_##NAME: return (bits) / 8;
        ATTN_TYPES(X)
#undef X
    default: return 0;
    }
}

static inline uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* -- Small floats: one decoder and one encoder; M mantissa bits, K the kind of specials -------- */

enum kind { IEEE, FN, FNUZ };

static inline float decode(uint32_t x, int bits, int M, int bias, enum kind K) {
    const uint32_t low = (1u << (bits - 1)) - 1;
    const uint32_t mag = x & low;
    const uint32_t sign = (x & ~low) << (32 - bits);
    const uint32_t inf = low & ~((1u << M) - 1);
    const int nan = K == IEEE ? mag > inf : K == FN ? mag == low : x == low + 1;
    const float tiny = float_of((uint32_t)(128 - bias - M) << 23); /* the smallest subnormal */
    const uint32_t normal = (mag << (23 - M)) + ((uint32_t)(127 - bias) << 23);
    const uint32_t subnormal = bits_of((float)(int32_t)mag * tiny);
    const uint32_t special = 0x7f800000u | (mag << (23 - M));
    uint32_t u = mag < 1u << M ? subnormal : normal;
    u = K == IEEE && mag >= inf ? special : u;
    u = K != IEEE && nan ? 0x7fc00000u : u;
    return float_of(u | sign);
}

static inline uint32_t encode(float x, int bits, int M, int bias, enum kind K) {
    const uint32_t u = bits_of(x);
    const uint32_t mag = u & 0x7fffffffu;
    const uint32_t low = (1u << (bits - 1)) - 1;
    const uint32_t inf = low & ~((1u << M) - 1);
    const uint32_t most = K == IEEE ? inf : K == FN ? low - 1 : low; /* what overflow becomes */
    const uint32_t first = (uint32_t)(128 - bias) << 23;             /* the smallest normal */
    /* Normal: add half of the last place, one less where the last bit is even. */
    const uint32_t half = (1u << (22 - M)) - 1 + (mag >> (23 - M) & 1);
    const uint32_t normal = ((mag + half) >> (23 - M)) - ((uint32_t)(127 - bias) << M);
    /* Subnormal: adding 2^23 of its units lets f32 round it. */
    const uint32_t magic = (uint32_t)(151 - bias - M) << 23;
    const uint32_t subnormal = bits_of(float_of(mag) + float_of(magic)) - magic;
    uint32_t r = mag < first ? subnormal : normal;
    r = mag >= 0x7f800000u || r > most ? most : r;
    const uint32_t quiet = inf | 1u << (M - 1) | (mag >> (23 - M) & ((1u << M) - 1));
    const int nan = mag > 0x7f800000u;
    r = nan ? (K == IEEE ? quiet : K == FN ? low : 0) : r;
    const int negative = K == FNUZ ? (r != 0) & (u >> 31) : u >> 31;
    return nan && K == FNUZ ? low + 1 : r | (negative ? low + 1 : 0);
}

/* bf16 is the upper half of an f32. */
float attn__bf16_to_f32(uint16_t x) {
    return float_of((uint32_t)x << 16);
}

uint16_t attn__f32_to_bf16(float x) {
    const uint32_t u = bits_of(x);
    const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40 : rounded);
}

float attn__f16_to_f32(uint16_t x) {
    return decode(x, 16, 10, 15, IEEE);
}
uint16_t attn__f32_to_f16(float x) {
    return (uint16_t)encode(x, 16, 10, 15, IEEE);
}

#define e4m3fn_to_f32(x)   decode(x, 8, 3, 7, FN)
#define e4m3fnuz_to_f32(x) decode(x, 8, 3, 8, FNUZ)
#define e5m2_to_f32(x)     decode(x, 8, 2, 15, IEEE)
#define e5m2fnuz_to_f32(x) decode(x, 8, 2, 16, FNUZ)
#define f32_to_e4m3fn(x)   (uint8_t) encode(x, 8, 3, 7, FN)
#define f32_to_e4m3fnuz(x) (uint8_t) encode(x, 8, 3, 8, FNUZ)
#define f32_to_e5m2(x)     (uint8_t) encode(x, 8, 2, 15, IEEE)
#define f32_to_e5m2fnuz(x) (uint8_t) encode(x, 8, 2, 16, FNUZ)

/* -- Integers: to nearest even, saturating; NaN gives 0 ---------------------------------------- */

static inline double clamp(double x, double lo, double hi) {
    return x >= lo ? (x <= hi ? rint(x) : hi) : x < lo ? lo : 0;
}
static inline int32_t to_i32(double x) {
    return (int32_t)clamp(x, INT32_MIN, INT32_MAX);
}
static inline uint8_t to_u8(double x) {
    return (uint8_t)clamp(x, 0, 255);
}

/* -- n elements -------------------------------------------------------------------------------- */

/* X(NAME, C type, to f32, from f32) */
#define CONVERSIONS(X)                                                                             \
    X(F64, double, (float), (double))                                                              \
    X(F32, float, , )                                                                              \
    X(F16, uint16_t, attn__f16_to_f32, attn__f32_to_f16)                                           \
    X(BF16, uint16_t, attn__bf16_to_f32, attn__f32_to_bf16)                                        \
    X(I32, int32_t, (float), to_i32)                                                               \
    X(U8, uint8_t, , to_u8)                                                                        \
    X(BOOL, uint8_t, !!, 0 !=)                                                                     \
    X(E4M3FN, uint8_t, e4m3fn_to_f32, f32_to_e4m3fn)                                               \
    X(E4M3FNUZ, uint8_t, e4m3fnuz_to_f32, f32_to_e4m3fnuz)                                         \
    X(E5M2, uint8_t, e5m2_to_f32, f32_to_e5m2)                                                     \
    X(E5M2FNUZ, uint8_t, e5m2fnuz_to_f32, f32_to_e5m2fnuz)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 vectorises these loops from there on */
#endif

/* A loop for each type; the one with step 1 is the one that compilers vectorise. */
#define X(NAME, T, to_f32, from_f32)                                                               \
    static inline void load_##NAME(float *to, const char *from, int64_t n, int64_t step) {         \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T x;                                                                                   \
            memcpy(&x, from + i * step * (int64_t)sizeof x, sizeof x);                             \
            to[i] = to_f32(x);                                                                     \
        }                                                                                          \
    }                                                                                              \
    static inline void store_##NAME(char *to, int64_t step, const float *from, int64_t n) {        \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const T x = from_f32(from[i]);                                                         \
            memcpy(to + i * step * (int64_t)sizeof x, &x, sizeof x);                               \
        }                                                                                          \
    }
CONVERSIONS(X)
#undef X

/* n halves side by side, by the processor's own conversion, which is exact. Returns how many. */
#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static int64_t convert_f16(float *to, const char *from,
                                                               int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + 2 * i))));
    }
    return i;
}
/* Asking takes long on virtual machines, so it is done once. */
static int has_f16c(void) {
    static _Atomic int known; /* 1: no, 2: yes */
    unsigned a, b, c = 0, d;
    if (!known) {
        const int yes =
            __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
        known = 1 + yes;
    }
    return known == 2;
}
static int64_t load_halves(float *to, const char *from, int64_t n) {
    return has_f16c() ? convert_f16(to, from, n) : 0;
}
#else
static int64_t load_halves(float *to, const char *from, int64_t n) {
    (void)to, (void)from, (void)n;
    return 0;
}
#endif

void attn__load_f32(float *to, const void *from, int type, int64_t n, int64_t step) {
    const char *p = from;
    if (type == ATTN_F16 && step == 1) {
        const int64_t done = load_halves(to, p, n);
        to += done;
        p += 2 * done;
        n -= done;
    }
    switch (type) {
#define X(NAME, T, to_f32, from_f32)                                                               \
    case ATTN_##NAME:                                                                              \
        if (step == 1) {                                                                           \
            load_##NAME(to, p, n, 1);                                                              \
        } else {                                                                                   \
            load_##NAME(to, p, n, step);                                                           \
        }                                                                                          \
        break;
        CONVERSIONS(X)
#undef X
    }
}

void attn__store_f32(void *to, int type, int64_t step, const float *from, int64_t n) {
    char *const p = to;
    switch (type) {
#define X(NAME, T, to_f32, from_f32)                                                               \
    case ATTN_##NAME:                                                                              \
        if (step == 1) {                                                                           \
            store_##NAME(p, 1, from, n);                                                           \
        } else {                                                                                   \
            store_##NAME(p, step, from, n);                                                        \
        }                                                                                          \
        break;
        CONVERSIONS(X)
#undef X
    }
}

/* -- One element ------------------------------------------------------------------------------- */

double attn__get(const void *at, int type) {
    if (type == ATTN_F64) {
        double x;
        memcpy(&x, at, sizeof x);
        return x;
    }
    if (type == ATTN_I32) {
        int32_t x;
        memcpy(&x, at, sizeof x);
        return x;
    }
    float x = 0;
    attn__load_f32(&x, at, type, 1, 1);
    return (double)x;
}

/* The f32 next to x toward zero, its last bit set unless it is x: a second rounding, to a type with
   at least two bits less, then gives what one rounding of x gives. */
static float round_to_odd(double x) {
    float f = (float)x;
    if (isnan(x) || (double)f == x) {
        return f;
    }
    const uint32_t away = fabs((double)f) > fabs(x);
    return float_of((bits_of(f) - away) | 1);
}

void attn__set(void *at, int type, double x) {
    if (type == ATTN_F64) {
        memcpy(at, &x, sizeof x);
    } else if (type == ATTN_F32) {
        const float f = (float)x;
        memcpy(at, &f, sizeof f);
    } else if (type == ATTN_I32) {
        const int32_t i = to_i32(x);
        memcpy(at, &i, sizeof i);
    } else {
        const float f = round_to_odd(x);
        attn__store_f32(at, type, 1, &f, 1);
    }
}
