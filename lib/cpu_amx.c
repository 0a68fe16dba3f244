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

#define BEGIN(n, at)                                                                               \
    if (x->set) {                                                                                  \
        _tile_zero(n);                                                                             \
    } else {                                                                                       \
        _tile_loadd(n, at, x->c_row);                                                              \
    }

/* The left or right factor's registers, of one or both strips or panels, of a part. */
#define LEFT(part)                                                                                 \
    _tile_loadd(4, a + (part) * x->a_part, x->a_row);                                              \
    if (two_i) {                                                                                   \
        _tile_loadd(5, a + (part) * x->a_part + x->a_strip, x->a_row);                             \
    }
#define RIGHT(part)                                                                                \
    _tile_loadd(6, b + (part) * x->b_part, x->b_row);                                              \
    if (two_j) {                                                                                   \
        _tile_loadd(7, b + (part) * x->b_part + x->b_panel, x->b_row);                             \
    }
#define MULTIPLY                                                                                   \
    _tile_dpbf16ps(0, 4, 6);                                                                       \
    if (two_j) {                                                                                   \
        _tile_dpbf16ps(1, 4, 7);                                                                   \
    }                                                                                              \
    if (two_i) {                                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
    }                                                                                              \
    if (two_i && two_j) {                                                                          \
        _tile_dpbf16ps(3, 5, 7);                                                                   \
    }

/* A block of the sums of two strips and two panels, or of one. Of split factors the six products
   come in an order in which one side's registers stay. */
static inline __attribute__((always_inline)) void step(const attn__product *x, int i, int j, int l,
                                                       const int two_i, const int two_j) {
    char *const c = x->c + i * SIDE * x->c_row + j * ROW, *const c2 = c + SIDE * x->c_row;
    const char *const a = x->a + i * x->a_strip + l * x->a_block;
    const char *const b = x->b + j * x->b_panel + l * x->b_block;
    /* The compiler does not know that registers are loaded from memory. */
    __asm__ volatile("" ::: "memory");
    if (l == 0) {
        BEGIN(0, c)
        if (two_j) {
            BEGIN(1, c + ROW)
        }
        if (two_i) {
            BEGIN(2, c2)
        }
        if (two_i && two_j) {
            BEGIN(3, c2 + ROW)
        }
    }
    LEFT(0)
    if (x->split) {
        RIGHT(2)
        MULTIPLY
        RIGHT(1)
        MULTIPLY
        LEFT(1)
        MULTIPLY
        RIGHT(0)
        MULTIPLY
        LEFT(2)
        MULTIPLY
        LEFT(0)
        MULTIPLY
    } else {
        RIGHT(0)
        MULTIPLY
    }
    if (l + 1 == x->blocks) {
        _tile_stored(0, c, x->c_row);
        if (two_j) {
            _tile_stored(1, c + ROW, x->c_row);
        }
        if (two_i) {
            _tile_stored(2, c2, x->c_row);
        }
        if (two_i && two_j) {
            _tile_stored(3, c2 + ROW, x->c_row);
        }
    }
}

/* Down two panels, which stay in the first cache, then the next two. */
static void go_on(attn__queue *q) {
    const attn__product *const x = &q->product[q->at];
    const int two_i = q->i + 1 < x->strips, two_j = q->j + 1 < x->panels;
    if (two_i && two_j) {
        step(x, q->i, q->j, q->l, 1, 1);
    } else if (two_i) {
        step(x, q->i, q->j, q->l, 1, 0);
    } else if (two_j) {
        step(x, q->i, q->j, q->l, 0, 1);
    } else {
        step(x, q->i, q->j, q->l, 0, 0);
    }
    if (++q->l < x->blocks) {
        return;
    }
    q->l = 0;
    q->i += 2;
    if (q->i >= x->strips) {
        q->i = 0;
        q->j += 2;
    }
    if (q->j >= x->panels) {
        q->j = 0;
        q->at++;
    }
}

void attn__go_on_amx(attn__queue *q, int all) {
    if (q->ahead && !all) {
        attn__ask(&q->ahead[q->ahead->rows == 0], 1);
    }
    q->due += q->steps;
    while (q->at < q->n && (all || q->due >= q->rows)) {
        go_on(q);
        q->due -= q->rows;
    }
}

static void multiply(const attn__product *x) {
    attn__queue q = {.n = 1};
    q.product[0] = *x;
    attn__go_on_amx(&q, 1);
}

/* -- What does not ----------------------------------------------------------------------------- */

/* Pairs k.. of both, fewer than 16, beside zeros. */
static void multiply_rest(const attn__product *whole, attn__right b, int k, int rest) {
    _Alignas(ROW) char left[MOST_STRIPS][TILE], right[MOST_PANELS][TILE];
    attn__product x = *whole;
    for (int i = 0; i < x.strips; i++) {
        fill(left[i], (const float *)(x.a + i * x.a_strip + k / SIDE * x.a_block),
             x.a_row / (int64_t)sizeof(float), SIDE, rest);
    }
    for (int j = 0; j < x.panels; j++) {
        fill(right[j], (const float *)b.at + j * b.panel + (int64_t)k * b.row, b.row, rest, SIDE);
    }
    x.a = left[0];
    x.b = right[0];
    x.a_row = x.b_row = ROW;
    x.a_strip = x.b_panel = TILE;
    x.blocks = 1;
    multiply(&x);
}

/* The product of whole strips of `a`; all but b's place and what follows from k are set. */
static void multiply_all(attn__product x, attn__right b, int k) {
    const int rest = k % SIDE;
    x.b = (const char *)b.at;
    x.b_row = b.row * (int64_t)sizeof(float);
    x.b_block = x.b_row * SIDE;
    x.b_panel = b.panel * (int64_t)sizeof(float);
    x.blocks = k / SIDE;
    if (x.blocks) {
        multiply(&x);
    }
    x.set = x.set && !x.blocks;
    if (rest) {
        multiply_rest(&x, b, k - rest, rest);
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
    const size_t bytes = (size_t)n * sizeof *c;
    attn__product x = {.c = (char *)c,
                       .c_row = c_ld * (int64_t)sizeof *c,
                       .a = left[0],
                       .a_row = ROW,
                       .a_block = TILE,
                       .strips = 1,
                       .panels = n / SIDE,
                       .set = set};
    copy_strip(left[0], a, rows, k);
    if (rows == SIDE) {
        multiply_all(x, b, k);
        return;
    }
    for (int i = 0; i < rows && !set; i++) {
        memcpy(more + (size_t)i * bytes, c + (int64_t)i * c_ld, bytes);
    }
    x.c = more;
    x.c_row = (int64_t)bytes;
    multiply_all(x, b, k);
    for (int i = 0; i < rows; i++) {
        memcpy(c + (int64_t)i * c_ld, more + (size_t)i * bytes, bytes);
    }
}

void attn__mul_amx(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                   enum attn__mul how) {
    const int64_t row = a.row * (int64_t)sizeof(float);
    const int whole = a.col == 1 ? m / SIDE * SIDE : 0, set = how == MUL_SET;
    if (whole) {
        const attn__product x = {.c = (char *)c,
                                 .c_row = c_ld * (int64_t)sizeof *c,
                                 .a = (const char *)a.at,
                                 .a_row = row,
                                 .a_block = ROW,
                                 .a_strip = row * SIDE,
                                 .strips = whole / SIDE,
                                 .panels = n / SIDE,
                                 .set = set};
        multiply_all(x, b, k);
    }
    for (int i = whole; i < m; i += SIDE) {
        const attn__left rows = {a.at + (int64_t)i * a.row, a.row, a.col};
        multiply_strip(c + (int64_t)i * c_ld, c_ld, rows, b, least(m - i, SIDE), n, k, set);
    }
}

/* -- The registers ----------------------------------------------------------------------------- */

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
