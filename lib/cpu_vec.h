/* cpu_vec.h: vectors of VL floats, 2^x, e^x, and sums and maxima along a row.

   Who includes it: cpu_loops.h, which tells what VL and the other macros are. */
#include "cpu_tile.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#pragma GCC optimize("O3")
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE     static inline __attribute__((always_inline))
#define LOOP_LANES UNROLL for (int g = 0; g < GROUPS; g++)

enum {
    GROUPS = ATTN__LANES / VL,     /* vectors that hold the 16 lanes of a sum */
    SIDE = GROUPS < 4 ? 4 : GROUPS /* most vectors that are worked on side by side */
};

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));

INLINE vf load(const float *p) {
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE vi load_i(const int32_t *p) {
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void store(float *p, vf x) {
    memcpy(p, &x, sizeof x);
}
INLINE void store_i(int32_t *p, vi x) {
    memcpy(p, &x, sizeof x);
}
INLINE vf splat(float x) {
    return x - (vf){0};
}
INLINE vf choose(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
/* Lanes j, j + 1, ... that are in begin..n. */
INLINE vi within(int j, int begin, int n) {
    vi at;
    UNROLL for (int e = 0; e < VL; e++) {
        at[e] = j + e;
    }
    return (at >= begin) & (at < n);
}

/* y * 2^n for whole n in -152..130: in two halves, as 2^n alone may be no normal number. The bits
   of n + 1.5 * 2^23 end in n. */
INLINE vf times_2_to(vf y, vf n) {
    const vi power = (vi)((vu)(n + 12582912.0f) - 0x4b400000u), half = power >> 1;
    const vf a = (vf)((vu)(half + 127) << 23), b = (vf)((vu)(power - half + 127) << 23);
    return y * a * b;
}

/* The largest whole number <= x, or -152 if that is larger; NaN stays. */
INLINE vf floor_of(vf x) {
    const vf near = (LARGER(splat(-152), x) + 12582912.0f) - 12582912.0f;
    return near - (vf)((vi)splat(1) & (near > x) & (near > -152));
}

INLINE vf above_floor(vf x) {
    return LARGER(splat(-152), x) - floor_of(x);
}

/* 2^(n + 64) is normal. */
INLINE vf times_2_to_floor(vf y, vf x) {
    const vf n = floor_of(x) + 12582912.0f;
    return y * (vf)(((vu)n << 23) + ((64u + 127) << 23)) * 0x1p-64f;
}

/* The vectors go side by side, as a chain of operations waits for each of its results. */
#define EACH UNROLL for (int e = 0; e < n_vecs; e++)

/* 2^x for x <= 1, error 1.8e-7 of it at most, subnormal results included; NaN stays. 2^n 2^r with n
   whole and 0 <= r <= 1; 2^r = 1 + r P(r), whose relative error, 8.3e-8, is the least that degree 4
   allows. */
INLINE void exp2_down(vf *x, const int n_vecs) {
    vf r[SIDE], P[SIDE];
    EACH r[e] = ABOVE_FLOOR(x[e]);
    EACH P[e] = FMA(splat(0x1.e974fcp-10f), r[e], splat(0x1.277854p-7f));
    EACH P[e] = FMA(P[e], r[e], splat(0x1.c91ce6p-5f));
    EACH P[e] = FMA(P[e], r[e], splat(0x1.ebdb56p-3f));
    EACH P[e] = FMA(P[e], r[e], splat(0x1.62e4bap-1f));
    EACH P[e] = FMA(P[e], r[e], splat(1));
    EACH x[e] = TIMES_2_TO_FLOOR(P[e], x[e]);
}

/* e^x, error about 1 ulp, subnormal results included; infinity above 88.73; NaN stays. 2^n e^r with
   n whole and |r| <= log(2)/2; e^r = 1 + r + r^2 P(r), P the interpolation of degree 4 at
   Chebyshev's points (relative error 1e-8). Adding 1.5 * 2^23 rounds to a whole number. The limits
   make n fit and leave 0 below and infinity above. */
INLINE void exp_of(vf *x, const int n_vecs) {
    const vf magic = splat(12582912.0f);
    vf whole[SIDE], r[SIDE], P[SIDE];
    EACH x[e] = -LARGER(splat(-89), -LARGER(splat(-105), x[e]));
    EACH whole[e] = FMA(x[e], splat(1.44269502f), magic);
    EACH r[e] = FMA(whole[e] - magic, splat(-0.693359375f), x[e]); /* log(2) in two parts */
    EACH r[e] = FMA(whole[e] - magic, splat(0.000212194442f), r[e]);
    EACH P[e] = FMA(splat(0x1.6d10fcp-10f), r[e], splat(0x1.120b62p-7f));
    EACH P[e] = FMA(P[e], r[e], splat(0x1.55551ap-5f));
    EACH P[e] = FMA(P[e], r[e], splat(0x1.5554dep-3f));
    EACH P[e] = FMA(P[e], r[e], splat(0.5f));
    EACH P[e] = FMA(r[e] * r[e], P[e], r[e]) + 1.0f;
    EACH x[e] = TIMES_2_TO(P[e], whole[e] - magic);
}

/* The 16 lanes joined as a tree: lane e with lane e + 8, then + 4, + 2, + 1. */
#if VL == 16
#define SHIFT8(x)                                                                                  \
    __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15)
#define SHIFT4(x) __builtin_shufflevector(x, x, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7)
#define SHIFT2(x) __builtin_shufflevector(x, x, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3)
#define SHIFT1(x) __builtin_shufflevector(x, x, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
#elif VL == 8
#define SHIFT4(x) __builtin_shufflevector(x, x, 4, 5, 6, 7, 4, 5, 6, 7)
#define SHIFT2(x) __builtin_shufflevector(x, x, 2, 3, 2, 3, 2, 3, 2, 3)
#define SHIFT1(x) __builtin_shufflevector(x, x, 1, 1, 1, 1, 1, 1, 1, 1)
#else
#define SHIFT2(x) __builtin_shufflevector(x, x, 2, 3, 2, 3)
#define SHIFT1(x) __builtin_shufflevector(x, x, 1, 1, 1, 1)
#endif
#if VL == 16
#define JOIN_TO_4(x, join)                                                                         \
    vf y = join(x[0], SHIFT8(x[0]));                                                               \
    y = join(y, SHIFT4(y))
#elif VL == 8
#define JOIN_TO_4(x, join)                                                                         \
    vf y = join(x[0], x[1]);                                                                       \
    y = join(y, SHIFT4(y))
#else
#define JOIN_TO_4(x, join) vf y = join(join(x[0], x[2]), join(x[1], x[3]))
#endif
#define LANE_TREE(x, join)                                                                         \
    JOIN_TO_4(x, join);                                                                            \
    y = join(y, SHIFT2(y));                                                                        \
    return join(y, SHIFT1(y))[0]
#define PLUS(a, b) ((a) + (b))
INLINE float max_of(const vf x[GROUPS]) {
    LANE_TREE(x, LARGER);
}
INLINE float sum_of(const vf x[GROUPS]) {
    LANE_TREE(x, PLUS);
}

INLINE int any_of(vi x) {
    int32_t any = 0;
    UNROLL for (int e = 0; e < VL; e++) {
        any |= x[e];
    }
    return any != 0;
}
