/* cpu_loops.h: the loops of a tile table, written with vectors of VL floats.

   Who includes it: cpu_base, cpu_avx2 and cpu_avx512, once each, after they have set

       VL       floats of a vector: 4, 8 or 16
       MR, NV   a product's block: MR rows by NV vectors stay in registers
       OPS      the table's symbol, and OPS_NAME its name

   The vectors are the ones of GCC and clang, so the text is the same for every instruction set; see
   cpu_tile.h for the order of sums that makes the bits the same, too. */
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

enum { GROUPS = ATTN__LANES / VL }; /* vectors that hold the 16 lanes of a sum */

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
INLINE vf larger(vf a, vf b) {
    return choose(a > b, a, b);
}

/* Lanes j, j + 1, ... that are below n. */
INLINE vi below(int j, int n) {
    vi at;
    UNROLL for (int e = 0; e < VL; e++) {
        at[e] = j + e;
    }
    return at < n;
}

/* e^x for x <= 0, error about 1 ulp, subnormal results included; NaN stays. 2^n e^r with n whole
   and |r| <= log(2)/2; e^r = 1 + r + r^2 P(r), P the interpolation of degree 4 at Chebyshev's
   points (relative error 1e-8). Adding 1.5 * 2^23 rounds to a whole number and leaves it in the
   low bits; 2^n comes in two halves, as it may be below every normal number. */
INLINE vf exp_down(vf x) {
    const float whole = 12582912.0f;
    const vf t = x * 1.44269502f + whole;
    const vf n = t - whole;
    const vf r = (x - n * 0.693359375f) - n * -0.000212194442f; /* log(2) in two parts */
    const vf P =
        (((r * 0x1.6d10fcp-10f + 0x1.120b62p-7f) * r + 0x1.55551ap-5f) * r + 0x1.5554dep-3f) * r +
        0.5f;
    const vf y = 1.0f + (r + r * r * P);
    const vi power = (vi)((vu)t - 0x4b400000u), half = power >> 1;
    const vf a = (vf)((vu)(half + 127) << 23), b = (vf)((vu)(power - half + 127) << 23);
    return choose(x < -104.0f, splat(0), y * a * b);
}

/* The same for any x; infinity above 88.37. */
INLINE vf exp_of(vf x) {
    return choose(x > 88.37f, splat(__builtin_inff()), exp_down(x));
}

/* The 16 lanes joined as a tree: lane e with lane e + 8, then + 4, + 2, + 1. */
#define LANE_TREE(x, join)                                                                         \
    float lane[ATTN__LANES];                                                                       \
    LOOP_LANES {                                                                                   \
        store(lane + g * VL, x[g]);                                                                \
    }                                                                                              \
    UNROLL for (int half = ATTN__LANES / 2; half > 0; half /= 2) {                                 \
        UNROLL for (int e = 0; e < half; e++) {                                                    \
            lane[e] = join(lane[e], lane[e + half]);                                               \
        }                                                                                          \
    }                                                                                              \
    return lane[0]
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SUM(a, b)    ((a) + (b))
INLINE float max_of(const vf x[GROUPS]) {
    LANE_TREE(x, LARGER);
}
INLINE float sum_of(const vf x[GROUPS]) {
    LANE_TREE(x, SUM);
}

INLINE int any_of(vi x) {
    int32_t any = 0;
    UNROLL for (int e = 0; e < VL; e++) {
        any |= x[e];
    }
    return any != 0;
}

/* -- Products ---------------------------------------------------------------------------------- */

INLINE void mul_block(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                      int b_ld, int k, int add, const int rows, const int vecs) {
    vf sum[MR][NV];
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vecs; j++) {
            sum[i][j] = splat(0);
        }
    }
    for (int l = 0; l < k; l++) {
        vf y[NV];
        UNROLL for (int j = 0; j < vecs; j++) {
            y[j] = load(b + (int64_t)l * b_ld + j * VL);
        }
        UNROLL for (int i = 0; i < rows; i++) {
            const float x = a[(int64_t)i * a_row + (int64_t)l * a_col];
            UNROLL for (int j = 0; j < vecs; j++) {
                sum[i][j] += x * y[j];
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vecs; j++) {
            float *const at = c + (int64_t)i * c_ld + j * VL;
            store(at, add ? load(at) + sum[i][j] : sum[i][j]);
        }
    }
}

/* All rows of a column block of `vecs` vectors, which is small enough for the first cache. */
INLINE void mul_columns(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                        int b_ld, int m, int k, int add, const int vecs) {
    int i = 0;
    for (; i + MR <= m; i += MR) {
        mul_block(c + (int64_t)i * c_ld, c_ld, a + (int64_t)i * a_row, a_row, a_col, b, b_ld, k,
                  add, MR, vecs);
    }
    for (; i < m; i++) {
        mul_block(c + (int64_t)i * c_ld, c_ld, a + (int64_t)i * a_row, a_row, a_col, b, b_ld, k,
                  add, 1, vecs);
    }
}

static void ops_mul(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                    int b_ld, int m, int n, int k, int add) {
    int j = 0;
    for (; j + NV * VL <= n; j += NV * VL) {
        mul_columns(c + j, c_ld, a, a_row, a_col, b + j, b_ld, m, k, add, NV);
    }
    for (; j < n; j += ATTN__LANES) {
        mul_columns(c + j, c_ld, a, a_row, a_col, b + j, b_ld, m, k, add, GROUPS);
    }
}

/* -- Layout ------------------------------------------------------------------------------------ */

typedef float v4 __attribute__((vector_size(16)));

INLINE v4 load4(const float *p) {
    v4 x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* In blocks of 4 by 4: rows a b c d become columns. */
static void ops_transpose(float *to, int to_ld, const float *from, int from_ld, int cols) {
    for (int j = 0; j < cols; j += 4) {
        for (int i = 0; i < ATTN__LANES; i += 4) {
            const float *const at = from + (int64_t)i * from_ld + j;
            const v4 a = load4(at), b = load4(at + from_ld), c = load4(at + 2 * (int64_t)from_ld),
                     d = load4(at + 3 * (int64_t)from_ld);
            const v4 ab = {a[0], b[0], a[1], b[1]}, ab2 = {a[2], b[2], a[3], b[3]};
            const v4 cd = {c[0], d[0], c[1], d[1]}, cd2 = {c[2], d[2], c[3], d[3]};
            const v4 row[4] = {{ab[0], ab[1], cd[0], cd[1]},
                               {ab[2], ab[3], cd[2], cd[3]},
                               {ab2[0], ab2[1], cd2[0], cd2[1]},
                               {ab2[2], ab2[3], cd2[2], cd2[3]}};
            UNROLL for (int e = 0; e < 4; e++) {
                memcpy(to + (int64_t)(j + e) * to_ld + i, &row[e], sizeof row[e]);
            }
        }
    }
}

static int ops_finite(const float *x, int ld, int rows, int n) {
    const int32_t top = 0x7f800000;
    vi bad = {0};
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < n; j += VL) {
            bad |= ((vi)load(x + (int64_t)i * ld + j) & top) == top;
        }
    }
    return !any_of(bad);
}

static void ops_scale(float *x, const float *by_each, float by, int n) {
    for (int j = 0; j < n; j += VL) {
        const vf y = load(x + j);
        store(x + j, (by_each ? y * load(by_each + j) : y) * by);
    }
}

/* -- Rows -------------------------------------------------------------------------------------- */

static void ops_visible(int32_t *on, const int32_t *mask, const int32_t *block, const float *s,
                        int n) {
    for (int j = 0; j < n; j += VL) {
        vi x = load(s + j) != -__builtin_inff();
        if (mask) {
            x &= load_i(mask + j) != 0;
        }
        if (block) {
            x &= load_i(block + j) != 0;
        }
        store_i(on + j, x);
    }
}

/* Which of the lanes j.. count: below n, on, and not -inf. */
INLINE vi lanes_on(const int32_t *on, vf score, int j, int n) {
    const vi x = below(j, n) & (score != -__builtin_inff());
    return on ? x & load_i(on + j) : x;
}

/* all: every one of the n columns counts, n a multiple of LANES. */
INLINE int softmax_of(float *p, const float *score, const int32_t *on, int n, float *m, float *l,
                      float *corr, int32_t *on_out, const int all) {
    const vf none = splat(-__builtin_inff());
    vf most[GROUPS], sum[GROUPS];
    vi bad = {0};
    LOOP_LANES {
        most[g] = none, sum[g] = splat(0);
    }
    for (int j = 0; j < n; j += ATTN__LANES) {
        LOOP_LANES {
            const vf x = load(score + j + g * VL);
            const vi yes = all ? x != none : lanes_on(on, x, j + g * VL, n);
            bad |= all ? ~(x < __builtin_inff()) : yes & ~(x < __builtin_inff());
            most[g] = larger(all ? x : choose(yes, x, none), most[g]);
            store_i(on_out + j + g * VL, yes);
        }
    }
    const float here = max_of(most);
    const int state = any_of(bad) ? ROW_NAN : here == -__builtin_inff() ? ROW_EMPTY : ROW_VISIBLE;
    if (state != ROW_VISIBLE) {
        memset(p, 0, (size_t)attn__round_lanes(n) * sizeof *p);
        return state;
    }
    const float old = *m;
    *m = here > old ? here : old;
    for (int j = 0; j < n; j += ATTN__LANES) {
        LOOP_LANES {
            const vf e = exp_down(load(score + j + g * VL) - *m);
            const vf x = all ? e : choose(load_i(on_out + j + g * VL), e, splat(0));
            sum[g] += x;
            store(p + j + g * VL, x);
        }
    }
    /* old - old is 0, or NaN for a sink of infinity, with which every visible row is NaN. */
    *corr = here > old ? exp_down(splat(old - *m))[0] : 1 + (old - old);
    *l = *l * *corr + sum_of(sum);
    return state;
}

static int ops_softmax(float *p, const float *score, const int32_t *on, int n, float *m, float *l,
                       float *corr, int32_t *on_out) {
    return on || n % ATTN__LANES ? softmax_of(p, score, on, n, m, l, corr, on_out, 0)
                                 : softmax_of(p, score, on, n, m, l, corr, on_out, 1);
}

static void ops_grad(float *p_out, float *g_dot, float *g_score, const float *score,
                     const float *dp, const int32_t *on, int n, const attn__grad_row *row,
                     int32_t *on_out) {
    const vf zero = splat(0);
    for (int j = 0; j < n; j += VL) {
        const vf s = load(score + j);
        const vi yes = lanes_on(on, s, j, n);
        const vf p = exp_of(s - row->lse);
        vf pw = p, wdp = load(dp + j);
        if (row->w) {
            const vf w = load(row->w + j);
            pw = choose(w == 0, zero, p * w);
            wdp = choose(w == 0, zero, wdp * w);
        }
        const vf g = p * (wdp - row->c);
        vf gd = row->ds ? g * load(row->ds + j) : g;
        gd = (row->key_scale ? gd * load(row->key_scale + j) : gd) * row->row_scale;
        store(p_out + j, choose(yes, pw, zero));
        store(g_score + j, choose(yes, g, zero));
        store(g_dot + j, choose(yes, gd, zero));
        store_i(on_out + j, yes);
    }
}

const attn__tile_ops OPS = {.name = OPS_NAME,
                            .mul = ops_mul,
                            .transpose = ops_transpose,
                            .finite = ops_finite,
                            .scale = ops_scale,
                            .visible = ops_visible,
                            .softmax = ops_softmax,
                            .grad = ops_grad};
