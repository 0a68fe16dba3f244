/* cpu_amx.c: products of pairs of bf16 in tile registers (AMX).

   Who calls it: the engine, through the table attn__ops_amx of cpu_bf16.c, whose other loops are
   those of AVX512-BF16; cpu_base.c asks whether the processor and the system have it.

   A tile register holds 16 rows of 64 bytes, and one instruction multiplies 16 rows of 16 pairs by
   16 pairs of 16 columns. Rows of a left factor are its rows as they lie; a panel of a right factor
   holds [pair][16 columns], which is the order that the instruction wants. Two panels are worked on
   together, and while their sums are made those before are stored:

                    panels 6 7   panels 6 7   panels 6 7   ...     registers: 4 left, 6 and 7 right,
       rows 4      | sums 0 1 | | sums 2 3 | | sums 0 1 |           0 .. 3 sums

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
    /* head dimensions of 512; keys and rows of a tile are fewer */
    MOST_PAIRS = 256,
    MOST_PANELS = 32,
    MOST_STRIPS = ATTN__BN / SIDE
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

/* A left factor's registers, rows 16 i.. and pairs 16 l.., are at + i * strip + l * block, `step`
   bytes from row to row; a right one's, pairs 16 l.. of panel j, at + j * strip + l * block. */
typedef struct factor {
    const char *at;
    int64_t step, block, strip;
} factor;

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

/* -- What fills registers ---------------------------------------------------------------------- */

#define LOAD(n, x, strip_at, l)                                                                    \
    _tile_loadd(n, (x)->at + (strip_at) * (x)->strip + (l) * (x)->block, (x)->step)
#define BEGIN(n, at)                                                                               \
    if (set) {                                                                                     \
        _tile_zero(n);                                                                             \
    } else {                                                                                       \
        _tile_loadd(n, at, c_step);                                                                \
    }
#define MULTIPLY(first, second)                                                                    \
    BEGIN(first, at)                                                                               \
    BEGIN(second, at + ROW)                                                                        \
    for (int l = 0; l < blocks; l++) {                                                             \
        LOAD(4, a, i, l);                                                                          \
        LOAD(6, b, j, l);                                                                          \
        LOAD(7, b, j + 1, l);                                                                      \
        _tile_dpbf16ps(first, 4, 6);                                                               \
        _tile_dpbf16ps(second, 4, 7);                                                              \
    }
#define STORE(first, second)                                                                       \
    _tile_stored(first, before, c_step);                                                           \
    _tile_stored(second, before + ROW, c_step)

/* Strips of 16 rows by panels of 16 columns. */
static void multiply(char *c, int64_t c_step, const factor *a, const factor *b, int strips,
                     int panels, int blocks, int set) {
    char *before = NULL;
    int turn = 0;
    /* The compiler does not know that registers are loaded from memory. */
    __asm__ volatile("" ::: "memory");
    int j = 0;
    for (; j + 1 < panels; j += 2) { /* two panels stay in the first cache */
        for (int i = 0; i < strips; i++, turn = !turn) {
            char *const at = c + i * SIDE * c_step + j * ROW;
            if (turn) {
                MULTIPLY(2, 3)
                STORE(0, 1);
            } else {
                MULTIPLY(0, 1)
                if (before) {
                    STORE(2, 3);
                }
            }
            before = at;
        }
    }
    for (int i = 0; i < strips && j < panels; i++) {
        char *const at = c + i * SIDE * c_step + j * ROW;
        BEGIN(5, at)
        for (int l = 0; l < blocks; l++) {
            LOAD(4, a, i, l);
            LOAD(6, b, j, l);
            _tile_dpbf16ps(5, 4, 6);
        }
        _tile_stored(5, at, c_step);
    }
    if (before && turn) {
        STORE(0, 1);
    } else if (before) {
        STORE(2, 3);
    }
}

/* -- What does not ----------------------------------------------------------------------------- */

/* Pairs k.. of both, fewer than 16, beside zeros. */
static void multiply_rest(char *c, int64_t c_step, const factor *a, attn__right b, int strips,
                          int n, int k, int rest, int set) {
    _Alignas(ROW) char left[MOST_STRIPS][TILE], right[MOST_PANELS][TILE];
    const factor rest_a = {left[0], ROW, 0, TILE}, rest_b = {right[0], ROW, 0, TILE};
    for (int i = 0; i < strips; i++) {
        fill(left[i], (const float *)(a->at + i * a->strip + k / SIDE * a->block),
             a->step / (int64_t)sizeof(float), SIDE, rest);
    }
    for (int j = 0; j < n / SIDE; j++) {
        fill(right[j], (const float *)b.at + j * b.panel + (int64_t)k * b.row, b.row, rest, SIDE);
    }
    multiply(c, c_step, &rest_a, &rest_b, strips, n / SIDE, 1, set);
}

static void multiply_all(char *c, int64_t c_step, const factor *a, attn__right b, int strips, int n,
                         int k, int set) {
    const int64_t step = b.row * (int64_t)sizeof(float);
    const factor right = {(const char *)b.at, step, step * SIDE, b.panel * (int64_t)sizeof(float)};
    const int whole = k / SIDE * SIDE;
    if (whole) {
        multiply(c, c_step, a, &right, strips, n / SIDE, k / SIDE, set);
    }
    if (whole < k) {
        multiply_rest(c, c_step, a, b, strips, n, whole, k - whole, set && !whole);
    }
}

/* Up to 16 rows of a left factor, copied or transposed: [k / SIDE] registers. */
static void copy_strip(char *to, attn__left a, int rows, int k) {
    for (int l = 0; l < k; l += SIDE, to += TILE) {
        const float *const at = a.at + (int64_t)l * a.col;
        const int64_t step = a.col * (int64_t)sizeof *at;
        const int pairs = least(k - l, SIDE);
        if (a.col == 1) {
            fill(to, at, a.row, rows, pairs);
        } else if (rows == SIDE && pairs == SIDE) {
            attn__ops_bf16.transpose((float *)to, (const char *)at, step, SIDE, 0, NULL);
        } else {
            char columns[TILE];
            fill(columns, at, a.col, pairs, rows);
            attn__ops_bf16.transpose((float *)to, columns, ROW, SIDE, 0, NULL);
        }
    }
}

/* Up to 16 rows, neither of which need lie as a register wants it. */
static void multiply_strip(float *c, int c_ld, attn__left a, attn__right b, int rows, int n, int k,
                           int set) {
    _Alignas(ROW) char left[MOST_PAIRS / SIDE][TILE], more[MOST_PANELS * TILE];
    const factor strip = {left[0], ROW, TILE, 0};
    const size_t bytes = (size_t)n * sizeof *c;
    copy_strip(left[0], a, rows, k);
    if (rows == SIDE) {
        multiply_all((char *)c, c_ld * (int64_t)sizeof *c, &strip, b, 1, n, k, set);
        return;
    }
    for (int i = 0; i < rows && !set; i++) {
        memcpy(more + (size_t)i * bytes, c + (int64_t)i * c_ld, bytes);
    }
    multiply_all(more, (int64_t)bytes, &strip, b, 1, n, k, set);
    for (int i = 0; i < rows; i++) {
        memcpy(c + (int64_t)i * c_ld, more + (size_t)i * bytes, bytes);
    }
}

void attn__mul_amx(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                   enum attn__mul how) {
    const int64_t step = a.row * (int64_t)sizeof(float);
    const factor left = {(const char *)a.at, step, ROW, step * SIDE};
    const int whole = a.col == 1 ? m / SIDE * SIDE : 0, set = how == MUL_SET;
    if (whole) {
        multiply_all((char *)c, c_ld * (int64_t)sizeof *c, &left, b, whole / SIDE, n, k, set);
    }
    for (int i = whole; i < m; i += SIDE) {
        const attn__left rows = {a.at + (int64_t)i * a.row, a.row, a.col};
        multiply_strip(c + (int64_t)i * c_ld, c_ld, rows, b, least(m - i, SIDE), n, k, set);
    }
}

void attn__begin_amx(void) {
    _tile_loadconfig(&all_whole);
}

void attn__end_amx(void) {
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
