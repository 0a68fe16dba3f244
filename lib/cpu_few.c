/* cpu_few.c: few rows by bf16 rows of k and v where they lie, in tile registers (AMX).

   Who calls it: the engine, through the table attn__ops_amx of cpu_bf16.c. Memory gives a line in
   some 12 cycles, which is what reading and multiplying one may take. Both ask for the rows AHEAD
   of those at hand, of which the last ones are those of `next`, into the second cache.

       dots   16 rows of k, as they lie, are the left factor, few rows of q, turned once per item,
              the right one; what is turned for each tile is the sums, once all are made

                 k  16 rows  x  q' [pairs][16 rows]  =  [key][16 rows]  ->  s [row][key]

       sums   v, as it lies, is the right factor: 16 even rows, or the 16 odd ones, of 32, whose
              pairs are neighbours in a row, not in a column. So each row of p stands twice in the
              left factor, its numbers beside zeros:

                 p   row i      p0 0   p2 0   ..  p30 0      x  v 0, 2, .. 30  =  columns 0, 2, ..
                     row i + 8  0 p0   0 p2   ..  0 p30                           columns 1, 3, ..

              and p1, p3, .. p31 by v's odd rows are added to that, 8 rows of p at a time.

   An element's terms and their order are those of mul_pairs: 16 even terms, plus 16 odd ones, are
   added to the sum; what zeros add is 0. */
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16"))),               \
    apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,amx-tile,amx-bf16")
#endif

enum {
    SIDE = 16, /* rows of a register, pairs and columns */
    ROW = 64,  /* bytes of its row, or a line of memory */
    TILE = SIDE * ROW,
    AHEAD = 2 * SIDE, /* rows of k and v */
    STRIPS = ATTN__BN / SIDE,
    BLOCKS = ATTN__BN / 2 / SIDE,
    FEW = SIDE / 2,     /* rows of p in a register */
    COLUMNS = 2 * SIDE, /* of v */
    GROUPS = 4          /* of so many, whose sums are in registers at a time */
};

#define INLINE inline __attribute__((always_inline))

static int least(int a, int b) {
    return a < b ? a : b;
}

/* The compiler does not know that registers are loaded from memory and stored to it. */
#define REGISTERS_MOVE __asm__ volatile("" ::: "memory")

/* What is AHEAD of row `at` of n, whose first one is rows.at. */
static INLINE attn__rows ahead_of(attn__rows rows, attn__rows next, int at, int n) {
    const int beyond = at + AHEAD - n;
    return beyond < 0 ? (attn__rows){rows.at + (at + AHEAD) * rows.step, rows.step}
                      : (attn__rows){next.at + beyond * next.step, next.step};
}

/* -- q k --------------------------------------------------------------------------------------- */

/* sum[16 keys][16 rows]; a line of each of 16 rows ahead is asked for at a time. */
static INLINE void dots_of_strip(char sum[TILE], const char *right, attn__rows b, attn__rows ahead,
                                 int k) {
    _tile_zero(0);
    for (int l = 0; l < k; l += SIDE, b.at += ROW, ahead.at += ROW, right += TILE) {
        _tile_loadd(6, right, ROW);
        _tile_loadd(4, b.at, b.step);
        _tile_dpbf16ps(0, 4, 6);
        for (int i = 0; i < SIDE; i++) {
            __builtin_prefetch(ahead.at + i * ahead.step, 0, 2);
        }
    }
    _tile_stored(0, sum, ROW);
}

/* Columns 4 x .. 4 x + 3 of a register's rows become rows of 16. */
static void turn(float *to, int ld, const char *from, int rows) {
    __m512 row[4];
    for (int i = 0; i < 4; i++) { /* rows i, i + 4, i + 8, i + 12 of the register */
        const float *const at = (const float *)(from + i * ROW);
        row[i] = _mm512_castps128_ps512(_mm_loadu_ps(at));
        row[i] = _mm512_insertf32x4(row[i], _mm_loadu_ps(at + 4 * SIDE), 1);
        row[i] = _mm512_insertf32x4(row[i], _mm_loadu_ps(at + 8 * SIDE), 2);
        row[i] = _mm512_insertf32x4(row[i], _mm_loadu_ps(at + 12 * SIDE), 3);
    }
    const __m512d a = (__m512d)_mm512_unpacklo_ps(row[0], row[1]);
    const __m512d b = (__m512d)_mm512_unpacklo_ps(row[2], row[3]);
    const __m512d c = (__m512d)_mm512_unpackhi_ps(row[0], row[1]);
    const __m512d d = (__m512d)_mm512_unpackhi_ps(row[2], row[3]);
    const __m512d out[4] = {_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b),
                            _mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d)};
    for (int i = 0; i < 4 && i < rows; i++) {
        memcpy(to + (int64_t)i * ld, &out[i], sizeof out[i]);
    }
}

void attn__dots_amx(float *to, int ld, const float *turned, attn__rows b, attn__rows next, int m,
                    int n, int k) {
    _Alignas(ROW) char sums[STRIPS][TILE];
    for (int i = 0; i < m; i += SIDE, turned += k * SIDE) {
        REGISTERS_MOVE;
        for (int j = 0; j < n; j += SIDE) {
            const attn__rows strip = {b.at + j * b.step, b.step};
            dots_of_strip(sums[j / SIDE], (const char *)turned, strip, ahead_of(b, next, j, n), k);
        }
        REGISTERS_MOVE;
        for (int j = 0; j < n; j += SIDE) {
            for (int x = 0; x < SIDE && i + x < m; x += 4) {
                turn(to + (int64_t)(i + x) * ld + j, ld, sums[j / SIDE] + 4 * x, m - i - x);
            }
        }
    }
}

/* -- p v --------------------------------------------------------------------------------------- */

/* FEW rows of k pairs as left factors: [block][even keys, odd keys]. */
static void spread(char left[BLOCKS][2][TILE], const float *p, int64_t ld, int k) {
    const __m512i low = _mm512_set1_epi32(0xffff);
    for (int l = 0; l < k / SIDE; l++) {
        for (int i = 0; i < FEW; i++) {
            char *const even = left[l][0] + i * ROW, *const odd = left[l][1] + i * ROW;
            const __m512i x = _mm512_loadu_si512(p + i * ld + l * SIDE);
            _mm512_store_si512(even, _mm512_and_si512(x, low));
            _mm512_store_si512(even + FEW * ROW, _mm512_slli_epi32(x, 16));
            _mm512_store_si512(odd, _mm512_srli_epi32(x, 16));
            _mm512_store_si512(odd + FEW * ROW, _mm512_andnot_si512(low, x));
        }
    }
}

/* The first column of group g of so many columns: the last group ends with them, and its first half
   is the half before it once more where half a group is left. */
static INLINE int group_at(int g, int columns) {
    return least(g * COLUMNS, columns - COLUMNS);
}

/* Rows of sums, even columns and odd ones, to their places. */
static void add_sums(float *to, int ld, char sums[GROUPS][TILE], int m, int columns) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(FEW));
    for (int i = 0; i < m; i++, to += ld) {
        for (int g = 0; g * COLUMNS < columns; g++) {
            const __m512 a = _mm512_load_ps(sums[g] + i * ROW);
            const __m512 b = _mm512_load_ps(sums[g] + (FEW + i) * ROW);
            float *const at = to + group_at(g, columns);
            if (group_at(g, columns) == g * COLUMNS) {
                _mm512_storeu_ps(at, _mm512_loadu_ps(at) + _mm512_permutex2var_ps(a, low, b));
            }
            _mm512_storeu_ps(at + SIDE, _mm512_loadu_ps(at + SIDE) +
                                            _mm512_permutex2var_ps(a, high, b));
        }
    }
}

/* The at-th SIDE lines of AHEAD rows of so many lines: in the order of memory where rows follow one
   another, else one of each of SIDE rows. */
static INLINE void ask(attn__rows ahead, const int at, const int lines) {
    const int whole = ahead.step == lines * ROW;
    const int64_t step = whole ? ROW : ahead.step;
    const char *const from = whole ? ahead.at + at * TILE
                                   : ahead.at + at / lines * SIDE * step + at % lines * ROW;
    for (int i = 0; i < SIDE; i++) {
        __builtin_prefetch(from + i * step, 0, 2);
    }
}

/* Registers: sums 0 .. 3, p 4 and 5, v 6 and 7. */
#define SUM_GROUP(g)                                                                               \
    if (g < groups) {                                                                              \
        const char *const at = v.at + 2 * group_at(g, columns);                                    \
        _tile_zero(g);                                                                             \
        _tile_loadd(6, at, 2 * v.step);                                                            \
        _tile_dpbf16ps(g, 4, 6);                                                                   \
        ask(ahead, 2 * g, groups);                                                                 \
        _tile_loadd(7, at + v.step, 2 * v.step);                                                   \
        _tile_dpbf16ps(g, 5, 7);                                                                   \
        ask(ahead, 2 * g + 1, groups);                                                             \
    }
#define STORE_GROUP(g)                                                                             \
    if (g < groups) {                                                                              \
        _tile_stored(g, sums[g], ROW);                                                             \
    }

/* m rows by a block, 32 rows of v, of up to 128 columns. */
static INLINE void add_block(float *to, int ld, char left[2][TILE], attn__rows v, attn__rows ahead,
                             int m, const int columns) {
    _Alignas(ROW) char sums[GROUPS][TILE];
    const int groups = (columns + COLUMNS - 1) / COLUMNS;
    REGISTERS_MOVE;
    _tile_loadd(4, left[0], ROW);
    _tile_loadd(5, left[1], ROW);
    SUM_GROUP(0)
    SUM_GROUP(1)
    SUM_GROUP(2)
    SUM_GROUP(3)
    STORE_GROUP(0)
    STORE_GROUP(1)
    STORE_GROUP(2)
    STORE_GROUP(3)
    REGISTERS_MOVE;
    add_sums(to, ld, sums, m, columns);
}

void attn__sums_amx(float *to, int ld, attn__left p, attn__rows v, attn__rows next, int m, int n,
                    int k) {
    enum { MOST = GROUPS * COLUMNS };
    _Alignas(ROW) char left[BLOCKS][2][TILE];
    for (int i = 0; i < m; i += FEW, to += (int64_t)FEW * ld) {
        const int rows = least(m - i, FEW);
        spread(left, p.at + (int64_t)i * p.row, p.row, k);
        for (int j = 0; j < n; j += MOST) {
            const int columns = least(n - j, MOST);
            const attn__rows from = {v.at + 2 * j, v.step}, then = {next.at + 2 * j, next.step};
            for (int l = 0; l < k / SIDE; l++) {
                const attn__rows at = {from.at + 2 * SIDE * l * v.step, v.step};
                const attn__rows ahead = ahead_of(from, then, 2 * SIDE * l, 2 * k);
                if (columns == MOST) {
                    add_block(to + j, ld, left[l], at, ahead, rows, MOST);
                } else if (columns == MOST / 2) {
                    add_block(to + j, ld, left[l], at, ahead, rows, MOST / 2);
                } else {
                    add_block(to + j, ld, left[l], at, ahead, rows, columns);
                }
            }
        }
    }
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
