/* cpu_few.c: few rows by bf16 rows of k and v where they lie, in tile registers (AMX).

   Who calls it: the engine, through the table attn__ops_amx of cpu_bf16.c. Memory gives a line in
   some 14 cycles, which is what reading, turning and multiplying one may take:

       dots   16 rows of k, as they lie, are the left factor, few rows of q, turned once per item,
              the right one; what is turned for each tile is the sums, once all are made

                 k  16 rows  x  q' [pairs][16 rows]  =  [key][16 rows]  ->  s [row][key]

       sums   few rows of p are the left factor; rows of v are joined two by two into the right
              one, a block ahead of the block that is multiplied:

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
    PANELS = 4, /* whose sums are in registers at a time */
    STRIPS = ATTN__BN / SIDE
};

static int least(int a, int b) {
    return a < b ? a : b;
}

/* The compiler does not know that registers are loaded from memory and stored to it. */
#define REGISTERS_MOVE __asm__ volatile("" ::: "memory")

/* -- q k --------------------------------------------------------------------------------------- */

/* sums[key / 16][key % 16][16 rows] of up to 64 keys. */
static void dots_of_strips(char sums[PANELS][TILE], const char *right, const char *b, int64_t step,
                           int strips, int k, attn__ahead *ahead) {
    const int64_t strip = SIDE * step;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int l = 0; l < k; l += SIDE, b += ROW, right += TILE) {
        _tile_loadd(6, right, ROW);
        _tile_loadd(4, b, step);
        _tile_dpbf16ps(0, 4, 6);
        attn__ask(ahead, 1);
        if (strips > 1) {
            _tile_loadd(5, b + strip, step);
            _tile_dpbf16ps(1, 5, 6);
            attn__ask(ahead, 1);
        }
        if (strips > 2) {
            _tile_loadd(4, b + 2 * strip, step);
            _tile_dpbf16ps(2, 4, 6);
            attn__ask(ahead, 1);
        }
        if (strips > 3) {
            _tile_loadd(5, b + 3 * strip, step);
            _tile_dpbf16ps(3, 5, 6);
            attn__ask(ahead, 1);
        }
    }
    _tile_stored(0, sums[0], ROW);
    _tile_stored(1, sums[1], ROW);
    _tile_stored(2, sums[2], ROW);
    _tile_stored(3, sums[3], ROW);
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

void attn__dots_amx(float *to, int ld, const float *turned, const char *b, int64_t step, int m,
                    int n, int k, attn__ahead *ahead) {
    _Alignas(ROW) char sums[STRIPS][TILE];
    attn__ahead here = *ahead;
    for (int i = 0; i < m; i += SIDE, turned += k * SIDE) {
        REGISTERS_MOVE;
        for (int j = 0; j < n; j += PANELS * SIDE) {
            dots_of_strips(sums + j / SIDE, (const char *)turned, b + j * step, step,
                           least((n - j) / SIDE, PANELS), k, &here);
        }
        REGISTERS_MOVE;
        for (int j = 0; j < n; j += SIDE) {
            for (int x = 0; x < SIDE && i + x < m; x += 4) {
                turn(to + (int64_t)(i + x) * ld + j, ld, sums[j / SIDE] + 4 * x, m - i - x);
            }
        }
    }
    *ahead = here;
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

/* Rows of up to 64 columns to registers' memory, or back. Of 16 columns alone only the low halves
   of lines were joined: their sums are halves of two registers. */
static void move_sums(char sums[PANELS][TILE], float *at, int ld, int rows, int columns, int back) {
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

/* 32 rows of v, of up to 64 columns, joined two by two. */
static void join(char right[PANELS][TILE], const char *v, int64_t step, int columns,
                 attn__ahead *ahead) {
    const __mmask32 last = columns % 32 ? 0xffff : ~(__mmask32)0;
    for (int l = 0; l < SIDE; l++, v += 2 * step) {
        for (int j = 0; j < columns; j += 2 * SIDE) {
            const __mmask32 in = j + 2 * SIDE < columns ? ~(__mmask32)0 : last;
            const __m512i a = _mm512_maskz_loadu_epi16(in, v + 2 * j);
            const __m512i b = _mm512_maskz_loadu_epi16(in, v + 2 * j + step);
            _mm512_store_si512(right[j / SIDE] + l * ROW, _mm512_unpacklo_epi16(a, b));
            _mm512_store_si512(right[j / SIDE + 1] + l * ROW, _mm512_unpackhi_epi16(a, b));
        }
        attn__ask(ahead, 1);
    }
}

/* Sums of up to 64 columns; two: of more than 32. */
static inline __attribute__((always_inline)) void sums_of(char sums[PANELS][TILE], const float *p,
                                                          int64_t p_row, const char *v,
                                                          int64_t step, int columns, int k,
                                                          attn__ahead *ahead, const int two) {
    _Alignas(ROW) char right[2][PANELS][TILE];
    join(right[0], v, step, columns, ahead);
    REGISTERS_MOVE;
    _tile_loadd(0, sums[0], ROW);
    _tile_loadd(1, sums[1], ROW);
    if (two) {
        _tile_loadd(2, sums[2], ROW);
        _tile_loadd(3, sums[3], ROW);
    }
    for (int l = 0; l < k; l += SIDE) {
        const char(*const b)[TILE] = right[l / SIDE % 2];
        if (l + SIDE < k) {
            v += 2 * SIDE * step;
            join(right[(l / SIDE + 1) % 2], v, step, columns, ahead);
        }
        REGISTERS_MOVE;
        _tile_loadd(4, p + l, p_row);
        _tile_loadd(6, b[0], ROW);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b[1], ROW);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(6, b[2], ROW);
            _tile_dpbf16ps(2, 4, 6);
            _tile_loadd(7, b[3], ROW);
            _tile_dpbf16ps(3, 4, 7);
        }
        REGISTERS_MOVE;
    }
    _tile_stored(0, sums[0], ROW);
    _tile_stored(1, sums[1], ROW);
    if (two) {
        _tile_stored(2, sums[2], ROW);
        _tile_stored(3, sums[3], ROW);
    }
    REGISTERS_MOVE;
}

void attn__sums_amx(float *to, int ld, attn__left p, const char *v, int64_t step, int m, int n,
                    int k, attn__ahead *ahead) {
    _Alignas(ROW) char sums[PANELS][TILE];
    attn__ahead here = *ahead;
    for (int i = 0; i < m; i += SIDE) {
        const float *const at = p.at + (int64_t)i * p.row;
        const int rows = least(m - i, SIDE);
        for (int j = 0; j < n; j += PANELS * SIDE) {
            const int columns = least(n - j, PANELS * SIDE);
            float *const out = to + (int64_t)i * ld + j;
            move_sums(sums, out, ld, rows, columns, 0);
            if (columns > 2 * SIDE) {
                sums_of(sums, at, p.row * (int64_t)sizeof *at, v + 2 * j, step, columns, k, &here,
                        1);
            } else {
                sums_of(sums, at, p.row * (int64_t)sizeof *at, v + 2 * j, step, columns, k, &here,
                        0);
            }
            move_sums(sums, out, ld, rows, columns, 1);
        }
    }
    *ahead = here;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
