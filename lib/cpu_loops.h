/* cpu_loops.h: the loops of a tile table, written with vectors of VL floats.

   Who includes it: the table files cpu_base, cpu_avx2, cpu_avx512 and cpu_bf16, once each, after
   they have set

       VL             floats of a vector: 4, 8 or 16
       MR, NV         a product's block: MR rows by NV vectors stay in registers
       FMA(a, b, c)   a * b + c, rounded once where the processor can
       LARGER(a, b)   a > b ? a : b
       TIMES_2_TO(y, n)  y * 2^n for whole n; times_2_to of cpu_vec.h where there is no better
       ABOVE_FLOOR(x)    x - floor(x) for x <= 1, any number where x < -152; above_floor
       TIMES_2_TO_FLOOR(y, x)  y * 2^floor(x), 0 where x < -152; times_2_to_floor
       OPS, OPS_NAME  the table's symbol and its name

   and perhaps DOT2, STORE_NARROW, STORE_SPLIT and GO_ON, which cpu_bf16.c explains. The vectors are
   the ones of GCC and clang. */
#include "cpu_rows.h"

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
    TERMS = 4 /* after so many terms memory is asked for */
};

/* VL numbers of 16 bits as numbers of 32. */
#ifndef WIDENED
#define WIDENED widened_at
INLINE vu widened_at(const char *at) {
    typedef uint16_t vh __attribute__((vector_size(VL * 2)));
    vh x;
    memcpy(&x, at, sizeof x);
    return __builtin_convertvector(x, vu);
}
#endif

/* VL elements of the right factor, `at` elements from its beginning. */
INLINE vf load_right(const void *b, int64_t at, const enum kind kind) {
    if (kind != KIND_BF16) {
        return load((const float *)b + at);
    }
    return (vf)(WIDENED((const char *)b + 2 * at) << 16);
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
            attn__ask(ahead, (stop - l) * (vecs / GROUPS));
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
typedef float tv __attribute__((vector_size(TV * 4)));
typedef uint32_t tu __attribute__((vector_size(TV * 4)));

#if VL >= 8
#define LOW(a, b)      __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b)     __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW_TWO(a, b)  __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH_TWO(a, b) __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define LOW(a, b)      __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b)     __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_TWO(a, b)  __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define HIGH_TWO(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#endif

/* Columns j .. j + 3 of a row, and of the row four below it. */
INLINE tv load_rows(const char *at, int64_t step) {
    tv x;
#if VL >= 8 /* an insertion from memory is no shuffle */
    const __m128 first = _mm_loadu_ps((const float *)at);
    const __m128 second = _mm_loadu_ps((const float *)(at + 4 * step));
    x = (tv)_mm256_insertf128_ps(_mm256_castps128_ps256(first), second, 1);
#else
    (void)step;
    memcpy(&x, at, sizeof x);
#endif
    return x;
}

/* In blocks of TV by 4: rows a b c d become columns, and with them the four rows below. */
INLINE void transpose_all(float *to, const char *from, int64_t step, int cols, const int bf16,
                          attn__ahead *ahead) {
    for (int j = 0; j < cols; j += 4) {
        attn__ask(ahead, 4);
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

static void ops_transpose(float *to, const char *from, int64_t step, int cols, int bf16,
                          attn__ahead *ahead) {
    attn__ahead here = {.rows = 0};
    here = ahead ? *ahead : here;
    bf16 ? transpose_all(to, from, step, cols, 1, &here)
         : transpose_all(to, from, step, cols, 0, &here);
    if (ahead) {
        *ahead = here;
    }
}

/* The table; pairs: its product of pairs of bf16, and what goes before and after. */
#ifdef DOT2
#define PAIRS(pairs, before, after, steps, few_dots, few_sums)                                     \
    .mul_pairs = (pairs), .go_on = (steps), .dots = (few_dots), .sums = (few_sums),                \
    .begin = (before), .end = (after), .narrow = ops_narrow, .zip = ops_zip,                       \
    .split_row = ops_split_row,                                                                    \
    .split_pairs = ops_split_pairs,
#else
#define PAIRS(pairs, before, after, steps, few_dots, few_sums)
#endif
#define TABLE(its_name, pairs, before, after, steps, few_dots, few_sums)                           \
    {                                                                                              \
        .name = its_name, .mul = ops_mul, .mul_few = ops_mul_few,                                  \
        PAIRS(pairs, before, after, steps, few_dots, few_sums)                                     \
        .transpose = ops_transpose, .finite = ops_finite, .scale = ops_scale,                      \
        .visible = ops_visible, .settle = ops_settle, .softmax = ops_softmax,                      \
        .softmax_rows = ops_softmax_rows, .fold = ops_fold, .grad = ops_grad                       \
    }

const attn__tile_ops OPS = TABLE(OPS_NAME, ops_mul_pairs, NULL, NULL, NULL, NULL, NULL);
