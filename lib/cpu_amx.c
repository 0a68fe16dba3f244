/* cpu_amx.c: products of pairs of bf16 in tile registers (AMX).

   Who calls it: the engine, through the table attn__ops_amx of cpu_bf16.c, whose other loops are
   those of AVX512-BF16; cpu_base.c asks whether the processor and the system have it.

   A tile register holds 16 rows of 64 bytes, and one instruction multiplies 16 rows of 16 pairs by
   16 pairs of 16 columns. Rows of a left factor are its rows as they lie; a panel of a right factor
   holds [pair][16 columns], which is the order that the instruction wants. Four sums are in work:

                       panel j   panel j + 1          registers 0 .. 3: sums
                       6         7                    4, 5: left    6, 7: right
       rows i     4  |    0    |    1    |
       rows i+16  5  |    2    |    3    |

   The terms of an element are blocks of 16 pairs, counted from the product's first; each is summed
   from zero and then added. A block of zeros thus changes no bit. What does not fill a register is
   copied beside zeros; a left factor that lies column by column (dk, dv) is transposed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,amx-tile,amx-bf16"))),                 \
                             apply_to = function)
#else
#pragma GCC target("avx512f,amx-tile,amx-bf16")
#endif

enum {
    SIDE = 16, /* rows of a register, pairs and columns */
    ROW = 64,  /* bytes of its row */
    TILE = SIDE * ROW,
    MOST_PAIRS = 256 /* head dimensions of 512; keys and rows of a tile are fewer */
};

/* What _tile_loadconfig reads. */
typedef struct config {
    uint8_t palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config;
static const config all_whole = {.palette = 1,
                                 .row_bytes = {ROW, ROW, ROW, ROW, ROW, ROW, ROW, ROW},
                                 .rows = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE}};

/* A register for each block of a factor along k: block l is at + l * block, `step` bytes from row
   to row; after `whole` blocks comes one at `rest`, ROW bytes from row to row. */
typedef struct strip {
    const char *at;
    int64_t step, block;
    int whole;
    const char *rest;
} strip;

/* Where a register of sums is kept: in c, or in a copy with rows that c lacks. */
typedef struct sums {
    char *at;
    int64_t step;
} sums;

static int least(int a, int b) {
    return a < b ? a : b;
}

/* `rows` rows of `floats` floats and zeros. */
static void fill(char *to, const float *from, int64_t ld, int rows, int floats) {
    memset(to, 0, TILE);
    for (int i = 0; i < rows; i++) {
        memcpy(to + i * ROW, from + i * ld, (size_t)floats * sizeof *from);
    }
}

/* Rows i.. of the left factor, none if i >= m. room: [MOST_PAIRS / SIDE] registers. */
static strip left_strip(attn__left a, int i, int m, int k, char *room) {
    const int rows = least(m - i, SIDE), blocks = (k + SIDE - 1) / SIDE;
    const float *const at = a.at + (int64_t)i * a.row;
    const int in_place = rows == SIDE && a.col == 1;
    const strip s = {(const char *)at, a.row * (int64_t)sizeof *at, ROW, k / SIDE, room};
    for (int l = in_place ? k / SIDE : 0; l < blocks; l++) {
        char *const to = room + (in_place ? 0 : l * TILE);
        const int pairs = least(k - l * SIDE, SIDE);
        if (rows <= 0) {
            memset(to, 0, TILE);
        } else if (a.col == 1) {
            fill(to, at + l * SIDE, a.row, rows, pairs);
        } else {
            char columns[TILE];
            fill(columns, at + (int64_t)l * SIDE * a.col, a.col, pairs, rows);
            attn__ops_bf16.transpose((float *)to, columns, ROW, SIDE, 0, NULL);
        }
    }
    return in_place ? s : (strip){room, ROW, TILE, blocks, NULL};
}

/* The panel of columns j.., zeros if j >= n. room: a register. */
static strip right_strip(attn__right b, int j, int n, int k, char *room) {
    const float *const at = (const float *)b.at + j / SIDE * b.panel;
    const int whole = k / SIDE * SIDE;
    if (j >= n) {
        memset(room, 0, TILE);
        return (strip){room, ROW, 0, MOST_PAIRS, NULL};
    }
    if (whole < k) {
        fill(room, at + (int64_t)whole * b.row, b.row, k - whole, SIDE);
    }
    return (strip){(const char *)at, b.row * (int64_t)sizeof *at,
                   b.row * (int64_t)sizeof *at * SIDE, k / SIDE, room};
}

static sums open_sums(float *c, int c_ld, int rows, int columns, int set, char *room) {
    if (rows >= SIDE && columns > 0) {
        return (sums){(char *)c, c_ld * (int64_t)sizeof *c};
    }
    if (!set) {
        fill(room, c, c_ld, columns > 0 ? rows : 0, SIDE);
    }
    return (sums){room, ROW};
}

static void close_sums(float *c, int c_ld, int rows, int columns, const char *room) {
    for (int i = 0; i < rows && rows < SIDE && columns > 0; i++) {
        memcpy(c + (int64_t)i * c_ld, room + i * ROW, ROW);
    }
}

#define LOAD(n, x, l)                                                                              \
    _tile_loadd(n, (l) < (x).whole ? (x).at + (l) * (x).block : (x).rest,                          \
                (l) < (x).whole ? (x).step : ROW)
#define LOAD_SUMS(n, x)  _tile_loadd(n, (x).at, (x).step)
#define STORE_SUMS(n, x) _tile_stored(n, (x).at, (x).step)

static void multiply(const sums x[4], const strip a[2], const strip b[2], int blocks, int set) {
    /* The compiler does not know that registers are loaded from memory. */
    __asm__ volatile("" ::: "memory");
    if (set) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        LOAD_SUMS(0, x[0]);
        LOAD_SUMS(1, x[1]);
        LOAD_SUMS(2, x[2]);
        LOAD_SUMS(3, x[3]);
    }
    for (int l = 0; l < blocks; l++) {
        LOAD(4, a[0], l);
        LOAD(6, b[0], l);
        LOAD(7, b[1], l);
        LOAD(5, a[1], l);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    STORE_SUMS(0, x[0]);
    STORE_SUMS(1, x[1]);
    STORE_SUMS(2, x[2]);
    STORE_SUMS(3, x[3]);
}

void attn__mul_amx(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                   enum attn__mul how) {
    _Alignas(ROW) char left[2][MOST_PAIRS / SIDE * TILE], right[2][TILE], more[4][TILE];
    const int set = how == MUL_SET;
    _tile_loadconfig(&all_whole);
    for (int i = 0; i < m; i += 2 * SIDE) {
        const strip rows[2] = {left_strip(a, i, m, k, left[0]),
                               left_strip(a, i + SIDE, m, k, left[1])};
        for (int j = 0; j < n; j += 2 * SIDE) {
            const strip columns[2] = {right_strip(b, j, n, k, right[0]),
                                      right_strip(b, j + SIDE, n, k, right[1])};
            sums x[4];
            for (int e = 0; e < 4; e++) {
                const int i0 = i + e / 2 * SIDE, j0 = j + e % 2 * SIDE;
                x[e] = open_sums(c + (int64_t)i0 * c_ld + j0, c_ld, m - i0, n - j0, set, more[e]);
            }
            multiply(x, rows, columns, (k + SIDE - 1) / SIDE, set);
            for (int e = 0; e < 4; e++) {
                const int i0 = i + e / 2 * SIDE, j0 = j + e % 2 * SIDE;
                close_sums(c + (int64_t)i0 * c_ld + j0, c_ld, m - i0, n - j0, more[e]);
            }
        }
    }
    _tile_release();
}

/* -- Whether there is AMX ---------------------------------------------------------------------- */

/* Linux gives the registers to a process that asks for them: their state makes the frames of its
   signal handlers 8 KiB larger. */
int attn__has_amx(void) {
#if defined(__linux__)
    enum { ASK = 0x1023, TILE_DATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return 0;
#endif
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
