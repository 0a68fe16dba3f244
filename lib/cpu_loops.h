/* cpu_loops.h: the loops of a tile table, written with vectors of VL floats.

   Who includes it: the table files cpu_base, cpu_avx2, cpu_avx512 and cpu_bf16, once each, after
   they have set

       VL             floats of a vector: 4, 8 or 16
       MR, NV         a product's block: MR rows by NV vectors stay in registers
       FMA(a, b, c)   a * b + c, rounded once where the processor can
       LARGER(a, b)   a > b ? a : b
       TIMES_2_TO(y, n)  y * 2^n for whole n; times_2_to of cpu_vec.h where there is no better
       TIMES_2_DOWN(y, n + 1.5 * 2^23)  the same for n <= 0; times_2_down
       OPS, OPS_NAME  the table's symbol and its name

   and perhaps DOT2, which cpu_bf16.c explains. The vectors are the ones of GCC and clang. */
#include "cpu_vec.h"

/* -- Products ---------------------------------------------------------------------------------- */

/* What the elements of the factors are: f32; f32 on the left and bf16 on the right; pairs. */
enum kind { KIND_F32, KIND_BF16, KIND_PAIRS };

#ifdef DOT2
#define TERM(kind, x, y, sum) ((kind) == KIND_PAIRS ? DOT2(x, y, sum) : FMA(x, y, sum))
#else
#define TERM(kind, x, y, sum) ((void)(kind), FMA(x, y, sum))
#endif

enum {
    MOST = 4 * NV > GROUPS ? 4 * NV : GROUPS, /* vectors across a block */
    TERMS = ATTN__TERMS
};

/* VL elements of the right factor, `at` elements from its beginning. */
INLINE vf load_right(const void *b, int64_t at, const enum kind kind) {
    if (kind != KIND_BF16) {
        return load((const float *)b + at);
    }
    typedef uint16_t vh __attribute__((vector_size(VL * 2)));
    vh x;
    memcpy(&x, (const char *)b + 2 * at, sizeof x);
    return (vf)(__builtin_convertvector(x, vu) << 16);
}

/* Into the second cache. */
INLINE void ask_ahead(attn__ahead *x) {
    for (int e = 0; e < x->lines && x->rows > 0; e++) {
        __builtin_prefetch(x->at + x->done, 0, 2);
        x->done += 64;
        if (x->done >= x->row_bytes) {
            x->done = 0;
            x->at += x->step;
            x->rows--;
        }
    }
}

/* b begins at the block's first column. ahead: NULL, or for few rows. */
INLINE void mul_block(float *c, int c_ld, attn__left a, attn__right b, int k, enum attn__mul how,
                      const int rows, const int vecs, const enum kind kind, attn__ahead *ahead) {
    vf sum[MR][MOST];
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vecs; j++) {
            sum[i][j] = how == MUL_CONTINUE ? load(c + (int64_t)i * c_ld + j * VL) : splat(0);
        }
    }
    for (int l = 0; l < k;) {
        const int stop = ahead && k - l > TERMS ? l + TERMS : k;
        if (ahead) {
            ask_ahead(ahead);
        }
        for (; l < stop; l++) {
            vf y[MOST];
            UNROLL for (int j = 0; j < vecs; j++) {
                const int64_t at = j * VL / ATTN__LANES * b.panel + j * VL % ATTN__LANES;
                y[j] = load_right(b.at, (int64_t)l * b.row + at, kind);
            }
            UNROLL for (int i = 0; i < rows; i++) {
                const vf x = splat(a.at[(int64_t)i * a.row + (int64_t)l * a.col]);
                UNROLL for (int j = 0; j < vecs; j++) {
                    sum[i][j] = TERM(kind, x, y[j], sum[i][j]);
                }
            }
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < vecs; j++) {
            float *const at = c + (int64_t)i * c_ld + j * VL;
            store(at, how == MUL_ADD ? load(at) + sum[i][j] : sum[i][j]);
        }
    }
}

/* All rows of a column block of `vecs` vectors, which is small enough for the first cache; the last
   two blocks share their rows, lest one be too low to keep the multipliers busy. */
INLINE void mul_columns(float *c, int c_ld, attn__left a, attn__right b, int m, int k,
                        enum attn__mul how, const int vecs, const enum kind kind,
                        attn__ahead *ahead) {
    for (int i = 0, rows; i < m; i += rows, c += (int64_t)rows * c_ld, a.at += rows * a.row) {
        const int rest = m - i;
        rows = rest >= 2 * MR ? MR : rest > MR ? (rest + 1) / 2 : rest;
        switch (rows) {
#define ROWS(n)                                                                                    \
    case n: mul_block(c, c_ld, a, b, k, how, (n) <= MR ? (n) : 1, vecs, kind, ahead); break
            ROWS(1);
            ROWS(2);
            ROWS(3);
            ROWS(4);
#if MR > 4
            ROWS(5);
            ROWS(6);
#endif
#undef ROWS
        }
    }
}

INLINE attn__right from_column(attn__right b, int j, const enum kind kind) {
    const int64_t at = j / ATTN__LANES * b.panel + j % ATTN__LANES;
    b.at = (const char *)b.at + at * (kind == KIND_BF16 ? 2 : 4);
    return b;
}

/* Few rows take more columns at a time: a sum waits for its last term. */
INLINE void mul_all(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                    enum attn__mul how, const enum kind kind, attn__ahead *ahead) {
    int j = 0;
    for (; m == 1 && j + 4 * NV * VL <= n; j += 4 * NV * VL) {
        mul_block(c + j, c_ld, a, from_column(b, j, kind), k, how, 1, 4 * NV, kind, ahead);
    }
    for (; m == 1 && j + 2 * NV * VL <= n; j += 2 * NV * VL) {
        mul_block(c + j, c_ld, a, from_column(b, j, kind), k, how, 1, 2 * NV, kind, ahead);
    }
    for (; m == 2 && j + 2 * NV * VL <= n; j += 2 * NV * VL) {
        mul_block(c + j, c_ld, a, from_column(b, j, kind), k, how, 2, 2 * NV, kind, ahead);
    }
    for (; j + NV * VL <= n; j += NV * VL) {
        mul_columns(c + j, c_ld, a, from_column(b, j, kind), m, k, how, NV, kind, ahead);
    }
    for (; NV / 2 >= GROUPS && j + NV / 2 * VL <= n; j += NV / 2 * VL) {
        mul_columns(c + j, c_ld, a, from_column(b, j, kind), m, k, how, NV > 1 ? NV / 2 : 1, kind,
                    ahead);
    }
    for (; j < n; j += ATTN__LANES) {
        mul_columns(c + j, c_ld, a, from_column(b, j, kind), m, k, how, GROUPS, kind, ahead);
    }
}

static void ops_mul(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                    enum attn__mul how) {
    mul_all(c, c_ld, a, b, m, n, k, how, KIND_F32, NULL);
}

static void ops_mul_few(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                        enum attn__mul how, int bf16, attn__ahead *ahead) {
    attn__ahead here = *ahead;
    if (bf16) {
        mul_all(c, c_ld, a, b, m, n, k, how, KIND_BF16, &here);
    } else {
        mul_all(c, c_ld, a, b, m, n, k, how, KIND_F32, &here);
    }
    *ahead = here;
}

#ifdef DOT2
static void ops_mul_pairs(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                          enum attn__mul how) {
    mul_all(c, c_ld, a, b, m, n, k, how, KIND_PAIRS, NULL);
}
#endif

/* -- Layout ------------------------------------------------------------------------------------ */

enum { TV = VL < 8 ? VL : 8 }; /* rows that are transposed at a time */
typedef float v4 __attribute__((vector_size(16)));
typedef float tv __attribute__((vector_size(TV * 4)));
typedef uint32_t tu __attribute__((vector_size(TV * 4)));

#if VL >= 8
#define BOTH(a, b)     __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7)
#define LOW(a, b)      __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b)     __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_TWO(a, b)  __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_TWO(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define BOTH(a, b)     (a)
#define LOW(a, b)      __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b)     __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_TWO(a, b)  __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define HIGH_TWO(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#endif

INLINE v4 load4(const char *at) {
    v4 x;
    memcpy(&x, at, sizeof x);
    return x;
}

/* Columns j .. j + 3 of a row, and of the row four below it. */
INLINE tv load_rows(const char *at, int64_t step) {
    const v4 first = load4(at), second = TV > 4 ? load4(at + 4 * step) : first;
    (void)second;
    return BOTH(first, second);
}

/* In blocks of TV by 4: rows a b c d become columns, and with them the four rows below. */
INLINE void transpose_all(float *to, const char *from, int64_t step, int cols, const int bf16) {
    for (int j = 0; j < cols; j += 4) {
        UNROLL for (int i = 0; i < ATTN__LANES; i += TV) {
            const char *const at = from + i * step + 4 * (int64_t)j;
            const tv a = load_rows(at, step), b = load_rows(at + step, step),
                     c = load_rows(at + 2 * step, step), d = load_rows(at + 3 * step, step);
            const tv ab = LOW(a, b), ab2 = HIGH(a, b), cd = LOW(c, d), cd2 = HIGH(c, d);
            const tv row[4] = {LOW_TWO(ab, cd), HIGH_TWO(ab, cd), LOW_TWO(ab2, cd2),
                               HIGH_TWO(ab2, cd2)};
            UNROLL for (int e = 0; e < 4; e++) {
                if (bf16) {
                    float *const two = to + (j + e) * 2 * ATTN__LANES + i;
                    const tu first = (tu)row[e] << 16, second = (tu)row[e] & 0xffff0000u;
                    memcpy(two, &first, sizeof first);
                    memcpy(two + ATTN__LANES, &second, sizeof second);
                } else {
                    memcpy(to + (j + e) * ATTN__LANES + i, &row[e], sizeof row[e]);
                }
            }
        }
    }
}

static void ops_transpose(float *to, const char *from, int64_t step, int cols, int bf16) {
    bf16 ? transpose_all(to, from, step, cols, 1) : transpose_all(to, from, step, cols, 0);
}

static int ops_finite(const float *x, int64_t n) {
    const int32_t top = 0x7f800000;
    vi bad = {0};
    for (int64_t j = 0; j < n; j += VL) {
        bad |= ((vi)load(x + j) & top) == top;
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

/* Lanes j.. that count: in begin..n, on, and not -inf. */
INLINE vi lanes_on(const int32_t *on, vf score, int j, int begin, int n) {
    const vi x = within(j, begin, n) & (score != -__builtin_inff());
    return on ? x & (load_i(on + j) != 0) : x;
}

/* A row without a score above -inf: whether a visible one is NaN; p holds -inf elsewhere. */
static int row_without_max(const float *p, int n) {
    vi bad = {0};
    for (int j = 0; j < n; j += VL) {
        const vf x = load(p + j);
        bad |= x != x;
    }
    return any_of(bad) ? ROW_NAN : ROW_EMPTY;
}

/* p = the row's scores, -inf where a column does not count; returns the maximum. LANES columns that
   all count need no look at each. A visible NaN passes the maximum by and shows in the sum. */
INLINE float row_scores(float *p, const float *score, float by, const int32_t *on, int begin, int n,
                        int32_t *on_out) {
    const vf none = splat(-__builtin_inff());
    vf most[GROUPS];
    LOOP_LANES {
        most[g] = none;
    }
    for (int j = 0; j < n; j += ATTN__LANES) {
        const int all = j >= begin && j + ATTN__LANES <= n && !on && !on_out;
        LOOP_LANES {
            const int at = j + g * VL;
            vf x = load(score + at) * by;
            if (!all) {
                const vi yes = lanes_on(on, x, at, begin, n);
                x = choose(yes, x, none);
                if (on_out) {
                    store_i(on_out + at, yes);
                }
            }
            most[g] = LARGER(x, most[g]);
            store(p + at, x);
        }
    }
    return max_of(most);
}

/* p = e^(p - top), 0 for -inf, which lanes' sums take in. */
INLINE void row_exp(float *p, float top, vf sum[GROUPS], const int n_vecs) {
    vf x[SIDE];
    EACH x[e] = load(p + e * VL) - top;
    exp_down(x, n_vecs);
    EACH sum[e % GROUPS] += x[e];
    EACH store(p + e * VL, x[e]);
}

static int ops_softmax(float *p, const float *score, float by, const int32_t *on, int begin, int n,
                       float *m, float *l, float *corr, int32_t *on_out) {
    const float here = row_scores(p, score, by, on, begin, n, on_out), old = *m;
    const float top = here > old ? here : old;
    int state = here == __builtin_inff()    ? ROW_NAN
                : here == -__builtin_inff() ? row_without_max(p, n)
                                            : ROW_VISIBLE;
    vf sum[GROUPS];
    LOOP_LANES {
        sum[g] = splat(0);
    }
    int j = state == ROW_VISIBLE ? 0 : n;
    for (; j + SIDE * VL <= n; j += SIDE * VL) {
        row_exp(p + j, top, sum, SIDE);
    }
    for (; j < n; j += ATTN__LANES) {
        row_exp(p + j, top, sum, GROUPS);
    }
    const float more = sum_of(sum);
    if (state == ROW_VISIBLE && more != more) {
        state = ROW_NAN;
    }
    if (state != ROW_VISIBLE) {
        memset(p, 0, (size_t)attn__round_lanes(n) * sizeof *p);
        return state;
    }
    *m = top;
    vf down = splat(old - top);
    exp_down(&down, 1);
    *corr = here > old ? down[0] : 1;
    *l = *l * *corr + more;
    return state;
}

/* to = to * by_to + from * by_from */
static void ops_fold(float *to, float by_to, const float *from, float by_from, int n) {
    for (int j = 0; j < n; j += VL) {
        store(to + j, FMA(load(from + j), splat(by_from), load(to + j) * by_to));
    }
}

/* plain: nothing but scores and dp counts, and only p_out and g_dot are wanted. */
INLINE void grad_of(float *p_out, float *g_dot, float *g_score, const float *score, const float *dp,
                    const int32_t *on, int begin, int n, const attn__grad_row *row, int32_t *on_out,
                    const int plain) {
    const vf zero = splat(0);
    for (int j = 0; j < attn__round_lanes(n); j += VL) {
        const vf s = load(score + j) * row->by;
        const vi yes = plain ? s != -__builtin_inff() : lanes_on(on, s, j, begin, n);
        vf p = s - row->lse;
        exp_of(&p, 1);
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
                     const float *dp, const int32_t *on, int begin, int n,
                     const attn__grad_row *row, int32_t *on_out) {
    if (on || g_score || on_out || row->w || row->ds || row->key_scale || begin ||
        n % ATTN__LANES) {
        grad_of(p_out, g_dot, g_score, score, dp, on, begin, n, row, on_out, 0);
    } else {
        grad_of(p_out, g_dot, NULL, score, dp, NULL, 0, n, row, NULL, 1);
    }
}

const attn__tile_ops OPS = {.name = OPS_NAME,
                            .mul = ops_mul,
                            .mul_few = ops_mul_few,
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
                            .fold = ops_fold,
                            .grad = ops_grad};
