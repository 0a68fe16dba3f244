/* cpu_loops.h: the loops of a tile table, written with vectors of VL floats.

   Who includes it: the table files cpu_base, cpu_avx2, cpu_avx512 and cpu_bf16, once each, after
   they have set

       VL             floats of a vector: 4, 8 or 16
       MR, NV         a product's block: MR rows by NV vectors stay in registers
       FMA(a, b, c)   a * b + c, rounded once where the processor can
       LARGER(a, b)   a > b ? a : b
       TIMES_2_TO(y, n)  y * 2^n for whole n; times_2_to below where there is no better
       OPS, OPS_NAME  the table's symbol and its name

   and perhaps DOT2, which cpu_bf16.c explains. The vectors are the ones of GCC and clang. */
#include "cpu_vec.h"

/* -- Products ---------------------------------------------------------------------------------- */

#ifdef DOT2
#define TERM(two, x, y, sum) ((two) ? DOT2(x, y, sum) : FMA(x, y, sum))
#else
#define TERM(two, x, y, sum) ((void)(two), FMA(x, y, sum))
#endif

/* two: elements of a and b are pairs of bf16. */
INLINE void mul_block(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                      int b_ld, int k, int add, const int rows, const int vecs, const int two) {
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
            const vf x = splat(a[(int64_t)i * a_row + (int64_t)l * a_col]);
            UNROLL for (int j = 0; j < vecs; j++) {
                sum[i][j] = TERM(two, x, y[j], sum[i][j]);
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
                        int b_ld, int m, int k, int add, const int vecs, const int two) {
    int i = 0;
    for (; i + MR <= m; i += MR) {
        mul_block(c + (int64_t)i * c_ld, c_ld, a + (int64_t)i * a_row, a_row, a_col, b, b_ld, k,
                  add, MR, vecs, two);
    }
    for (; i < m; i++) {
        mul_block(c + (int64_t)i * c_ld, c_ld, a + (int64_t)i * a_row, a_row, a_col, b, b_ld, k,
                  add, 1, vecs, two);
    }
}

INLINE void mul_all(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                    int b_ld, int m, int n, int k, int add, const int two) {
    int j = 0;
    for (; j + NV * VL <= n; j += NV * VL) {
        mul_columns(c + j, c_ld, a, a_row, a_col, b + j, b_ld, m, k, add, NV, two);
    }
    for (; j < n; j += ATTN__LANES) {
        mul_columns(c + j, c_ld, a, a_row, a_col, b + j, b_ld, m, k, add, GROUPS, two);
    }
}

static void ops_mul(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                    int b_ld, int m, int n, int k, int add) {
    mul_all(c, c_ld, a, a_row, a_col, b, b_ld, m, n, k, add, 0);
}

#ifdef DOT2
static void ops_mul_pairs(float *c, int c_ld, const float *a, int a_row, int a_col, const float *b,
                          int b_ld, int m, int n, int k, int add) {
    mul_all(c, c_ld, a, a_row, a_col, b, b_ld, m, n, k, add, 1);
}
#endif

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
        vi x = mask ? load_i(mask + j) != 0 : ~(vi){0};
        if (s) {
            x &= load(s + j) != -__builtin_inff();
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
    return on ? x & (load_i(on + j) != 0) : x;
}

/* A row without a score above -inf: whether a visible one is NaN. */
static int row_without_max(const float *p, const int32_t *on, int n) {
    vi bad = {0};
    for (int j = 0; j < n; j += VL) {
        const vf x = load(p + j);
        bad |= lanes_on(on, x, j, n) & (x != x);
    }
    return any_of(bad) ? ROW_NAN : ROW_EMPTY;
}

/* all: every one of the n columns counts, n a multiple of LANES. A visible NaN passes the maximum
   by and shows in the sum. */
INLINE int softmax_of(float *p, const float *score, float by, const int32_t *on, int n, float *m,
                      float *l, float *corr, int32_t *on_out, const int all) {
    const vf none = splat(-__builtin_inff());
    int32_t own[ATTN__BN], *const seen = on_out ? on_out : own;
    vf most[GROUPS], sum[GROUPS];
    LOOP_LANES {
        most[g] = none, sum[g] = splat(0);
    }
    for (int j = 0; j < n; j += ATTN__LANES) {
        LOOP_LANES {
            const int at = j + g * VL;
            const vf x = load(score + at) * by;
            store(p + at, x);
            if (all) {
                most[g] = LARGER(x, most[g]);
            } else {
                const vi yes = lanes_on(on, x, at, n);
                most[g] = LARGER(choose(yes, x, none), most[g]);
                store_i(seen + at, yes);
            }
        }
    }
    const float here = max_of(most), old = *m, top = here > old ? here : old;
    int state = here == __builtin_inff()    ? ROW_NAN
                : here == -__builtin_inff() ? row_without_max(p, on, n)
                                            : ROW_VISIBLE;
    for (int j = 0; j < n; j += ATTN__LANES) {
        LOOP_LANES {
            const int at = j + g * VL;
            const vf e = exp_down(load(p + at) - top);
            const vf x = all ? e : choose(load_i(seen + at), e, splat(0));
            sum[g] += x;
            store(p + at, x);
        }
    }
    const float more = sum_of(sum);
    if (state == ROW_VISIBLE && more != more) {
        state = ROW_NAN;
    }
    if (state != ROW_VISIBLE) {
        memset(p, 0, (size_t)attn__round_lanes(n) * sizeof *p);
        return state;
    }
    /* old - old is 0, or NaN for a sink of infinity, with which every visible row is NaN. */
    *m = top;
    *corr = here > old ? exp_down(splat(old - top))[0] : 1 + (old - old);
    *l = *l * *corr + more;
    return state;
}

static int ops_softmax(float *p, const float *score, float by, const int32_t *on, int n, float *m,
                       float *l, float *corr, int32_t *on_out) {
    return on || on_out || n % ATTN__LANES ? softmax_of(p, score, by, on, n, m, l, corr, on_out, 0)
                                           : softmax_of(p, score, by, NULL, n, m, l, corr, NULL, 1);
}

/* plain: nothing but scores and dp counts, and only p_out and g_dot are wanted. */
INLINE void grad_of(float *p_out, float *g_dot, float *g_score, const float *score, const float *dp,
                    const int32_t *on, int n, const attn__grad_row *row, int32_t *on_out,
                    const int plain) {
    const vf zero = splat(0);
    for (int j = 0; j < n; j += VL) {
        const vf s = load(score + j) * row->by;
        const vi yes = plain ? s != -__builtin_inff() : lanes_on(on, s, j, n);
        const vf p = exp_of(s - row->lse);
        vf pw = p, wdp = load(dp + j);
        if (!plain && row->w) {
            const vf w = load(row->w + j);
            pw = choose(w == 0, zero, p * w);
            wdp = choose(w == 0, zero, wdp * w);
        }
        const vf g = p * (wdp - row->c);
        vf gd = !plain && row->ds ? g * load(row->ds + j) : g;
        gd = (!plain && row->key_scale ? gd * load(row->key_scale + j) : gd) * row->row_scale;
        store(p_out + j, choose(yes, pw, zero));
        store(g_dot + j, choose(yes, gd, zero));
        if (!plain && g_score) {
            store(g_score + j, choose(yes, g, zero));
        }
        if (!plain && on_out) {
            store_i(on_out + j, yes);
        }
    }
}

static void ops_grad(float *p_out, float *g_dot, float *g_score, const float *score,
                     const float *dp, const int32_t *on, int n, const attn__grad_row *row,
                     int32_t *on_out) {
    if (on || g_score || on_out || row->w || row->ds || row->key_scale || n % ATTN__LANES) {
        grad_of(p_out, g_dot, g_score, score, dp, on, n, row, on_out, 0);
    } else {
        grad_of(p_out, g_dot, NULL, score, dp, NULL, n, row, NULL, 1);
    }
}

const attn__tile_ops OPS = {.name = OPS_NAME,
                            .mul = ops_mul,
#ifdef DOT2
                            .mul_pairs = ops_mul_pairs,
                            .narrow = ops_narrow,
                            .zip = ops_zip,
#endif
                            .transpose = ops_transpose,
                            .finite = ops_finite,
                            .scale = ops_scale,
                            .visible = ops_visible,
                            .softmax = ops_softmax,
                            .grad = ops_grad};
