/* cpu_few.c: few rows by bf16 rows of k and v where they lie, in tile registers (AMX).

   Who calls it: the engine, through the table attn__ops_amx of cpu_bf16.c. Memory gives a line in
   some 12 cycles, which is what reading, turning and multiplying one may take. Both ask for the 16
   rows after those at hand, in one go: asking further ahead, for another tensor's rows or line by
   line leaves memory idle more often.

       dots   16 rows of k, as they lie, are the left factor, few rows of q, turned once per item,
              the right one; what is turned for each tile is the sums, once all are made

                 k  16 rows  x  q' [pairs][16 rows]  =  [key][16 rows]  ->  s [row][key]

       sums   few rows of p are the left factor; rows of v are joined two by two into the right
              one, a block ahead of the block that is multiplied; columns beyond 64 wait:

                 v  row 2l    | 0..3 | 4..7 | 8..11 | 12..15 | 16..  |     32 columns, a line
                    row 2l+1  |      |      |       |        |       |
                 low          pairs of 0..3, 8..11, 16..19, 24..27         one instruction each,
                 high         pairs of 4..7, 12..15, 20..23, 28..31        which wants this order

   An element's terms and their order are those of mul_pairs. */
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
    HALF = 4, /* panels whose sums are in registers at a time */
    STRIPS = ATTN__BN / SIDE,
    BLOCKS = ATTN__BN / 2 / SIDE
};

#define INLINE inline __attribute__((always_inline))

static int least(int a, int b) {
    return a < b ? a : b;
}

/* The compiler does not know that registers are loaded from memory and stored to it. */
#define REGISTERS_MOVE __asm__ volatile("" ::: "memory")

/* A line of each of 16 rows is asked for, as many as a product has just read. */
static inline void ask(const char *at, int64_t step) {
    for (int i = 0; i < SIDE; i++) {
        __builtin_prefetch(at + i * step, 0, 3);
    }
}

/* -- q k --------------------------------------------------------------------------------------- */

/* sum[16 keys][16 rows]; `then`: 16 rows that are read after these. */
static inline void dots_of_strip(char sum[TILE], const char *right, attn__rows b, attn__rows then,
                                 int k) {
    _tile_zero(0);
    for (int l = 0; l < k; l += SIDE, b.at += ROW, then.at += ROW, right += TILE) {
        _tile_loadd(6, right, ROW);
        _tile_loadd(4, b.at, b.step);
        _tile_dpbf16ps(0, 4, 6);
        ask(then.at, then.step);
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
        attn__rows strip = b;
        REGISTERS_MOVE;
        for (int j = 0; j < n; j += SIDE, strip.at += SIDE * b.step) {
            const attn__rows then = {strip.at + SIDE * b.step, b.step};
            dots_of_strip(sums[j / SIDE], (const char *)turned, strip, j + SIDE < n ? then : next,
                          k);
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

/* 32 columns from their order in sums, and to it; the same exchange of four groups. */
static void reorder(__m512 *a, __m512 *b, int back) {
    if (back) {
        const __m512 x = _mm512_shuffle_f32x4(*a, *b, 0x44), y = _mm512_shuffle_f32x4(*a, *b, 0xee);
        *a = _mm512_shuffle_f32x4(x, x, 0xd8);
        *b = _mm512_shuffle_f32x4(y, y, 0xd8);
    } else {
        const __m512 x = _mm512_shuffle_f32x4(*a, *b, 0x88), y = _mm512_shuffle_f32x4(*a, *b, 0xdd);
        *a = x;
        *b = y;
    }
}

/* Rows of up to 128 columns to registers' memory, or back. Of 16 columns alone only the low halves
   of lines were joined: their sums are halves of two registers. */
static void move_sums(char sums[2 * HALF][TILE], float *at, int ld, int rows, int columns,
                      int back) {
    for (int i = 0; i < rows; i++, at += ld) {
        for (int j = 0; j < columns; j += 2 * SIDE) {
            float *const low = (float *)(sums[j / SIDE] + i * ROW);
            float *const high = (float *)(sums[j / SIDE + 1] + i * ROW);
            const int whole = columns - j > SIDE;
            __m512 a = _mm512_loadu_ps(back ? low : at + j), b = _mm512_setzero_ps();
            if (back || whole) {
                b = _mm512_loadu_ps(back ? high : at + j + SIDE);
            }
            reorder(&a, &b, back);
            _mm512_storeu_ps(back ? at + j : low, a);
            if (!back || whole) {
                _mm512_storeu_ps(back ? at + j + SIDE : high, b);
            }
        }
    }
}

/* 32 rows of v, of up to 128 columns, joined two by two: 64 columns to rows of `right`, the others
   to those of `late`. next: 16 rows that are read after these. */
static INLINE void join(char right[SIDE][HALF * ROW], char late[SIDE][HALF * ROW], attn__rows v,
                        attn__rows next, const int columns) {
    const __mmask32 last = columns % 32 ? 0xffff : ~(__mmask32)0;
    for (int l = 0; l < SIDE; l++, v.at += 2 * v.step) {
        const attn__rows then = l ? next : (attn__rows){v.at + SIDE * v.step, v.step};
        for (int j = 0; j < columns && l % (SIDE / 2) == 0; j += 2 * SIDE) {
            ask(then.at + 2 * j, then.step);
        }
        _Pragma("GCC unroll 4") for (int j = 0; j < columns; j += 2 * SIDE) {
            char *const to = j < HALF * SIDE ? right[l] + 4 * j : late[l] + 4 * j - HALF * ROW;
            const __mmask32 in = j + 2 * SIDE < columns ? ~(__mmask32)0 : last;
            const __m512i a = _mm512_maskz_loadu_epi16(in, v.at + 2 * j);
            const __m512i b = _mm512_maskz_loadu_epi16(in, v.at + 2 * j + v.step);
            _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512(to + ROW, _mm512_unpackhi_epi16(a, b));
        }
    }
}

/* Sums of up to 64 columns; two: of more than 32. */
static inline void begin_sums(char sums[HALF][TILE], int two) {
    _tile_loadd(0, sums[0], ROW);
    _tile_loadd(1, sums[1], ROW);
    if (two) {
        _tile_loadd(2, sums[2], ROW);
        _tile_loadd(3, sums[3], ROW);
    }
}

static inline void add_block(const float *p, int64_t p_row, char right[SIDE][HALF * ROW], int two) {
    enum { STEP = HALF * ROW };
    REGISTERS_MOVE;
    _tile_loadd(4, p, p_row);
    _tile_loadd(6, right[0], STEP);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, right[0] + ROW, STEP);
    _tile_dpbf16ps(1, 4, 7);
    if (two) {
        _tile_loadd(6, right[0] + 2 * ROW, STEP);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(7, right[0] + 3 * ROW, STEP);
        _tile_dpbf16ps(3, 4, 7);
    }
    REGISTERS_MOVE;
}

static inline void end_sums(char sums[HALF][TILE], int two) {
    _tile_stored(0, sums[0], ROW);
    _tile_stored(1, sums[1], ROW);
    if (two) {
        _tile_stored(2, sums[2], ROW);
        _tile_stored(3, sums[3], ROW);
    }
    REGISTERS_MOVE;
}

/* Sums of up to 128 columns: rows of v are read once. */
static INLINE void sums_of(char sums[2 * HALF][TILE], const float *p, int64_t p_row, attn__rows v,
                           attn__rows next, const int columns, int k) {
    _Alignas(ROW) char right[2][SIDE][HALF * ROW], late[BLOCKS][SIDE][HALF * ROW];
    const int two = columns > 2 * SIDE, rest = columns - HALF * SIDE;
    for (int l = 0; l <= k / SIDE; l++) {
        if (l < k / SIDE) {
            const attn__rows then = {v.at + 2 * SIDE * v.step, v.step};
            join(right[l % 2], late[l], v, l + 1 < k / SIDE ? then : next, columns);
            v = then;
        }
        if (l == 0) {
            begin_sums(sums, two);
        } else {
            add_block(p + (l - 1) * SIDE, p_row, right[(l - 1) % 2], two);
        }
    }
    end_sums(sums, two);
    if (rest > 0) {
        begin_sums(sums + HALF, rest > 2 * SIDE);
        for (int l = 0; l < k / SIDE; l++) {
            add_block(p + l * SIDE, p_row, late[l], rest > 2 * SIDE);
        }
        end_sums(sums + HALF, rest > 2 * SIDE);
    }
}

void attn__sums_amx(float *to, int ld, attn__left p, attn__rows v, attn__rows next, int m, int n,
                    int k) {
    enum { MOST = 2 * HALF * SIDE };
    _Alignas(ROW) char sums[2 * HALF][TILE];
    for (int i = 0; i < m; i += SIDE) {
        const float *const at = p.at + (int64_t)i * p.row;
        const int rows = least(m - i, SIDE);
        for (int j = 0; j < n; j += MOST) {
            const attn__rows from = {v.at + 2 * j, v.step}, then = {next.at + 2 * j, next.step};
            const int columns = least(n - j, MOST);
            float *const out = to + (int64_t)i * ld + j;
            move_sums(sums, out, ld, rows, columns, 0);
            if (columns == MOST) {
                sums_of(sums, at, p.row * (int64_t)sizeof *at, from, then, MOST, k);
            } else if (columns == MOST / 2) {
                sums_of(sums, at, p.row * (int64_t)sizeof *at, from, then, MOST / 2, k);
            } else {
                sums_of(sums, at, p.row * (int64_t)sizeof *at, from, then, columns, k);
            }
            move_sums(sums, out, ld, rows, columns, 1);
        }
    }
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
