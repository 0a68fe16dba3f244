/* cpu_tile.h: the loops on tiles that an instruction set can speed up, as a table of functions.

   Who calls it: a device picks a table when it is opened; cpu_score, cpu_fwd and cpu_bwd work
   through it. cpu_loops.h and cpu_rows.h have the loops; cpu_base, cpu_avx2, cpu_avx512 and
   cpu_bf16 compile them. A new instruction set is a new table. In every table:

   - An element of a product is a sum over k = 0, 1, 2, ... (pairs of them in mul_pairs, or blocks
     of 16 pairs from the first): never a sum of parts that a tile's edge or height would choose.
   - A sum along a row has 16 lanes, column j in lane j % 16, added as a tree at the end.
   - What is fused is written down (FMA), nothing else is.

   Tiles are f32 and 64-byte aligned, in one of two layouts:

       rows      x[row][ld]              q, dO, o, S, P, g; ld a multiple of LANES, ends 0
       panels    x[n / LANES][rows][LANES]   the second factor of a product: LANES columns lie
                                         together, so that a loop down a panel reads memory in
                                         order. k stands transposed, as panels of LANES keys.

                BN keys
              +---------+                S has LDS columns, a little more than BN, so that its
           BM | S, P    |  BM query      columns do not all fall into the same few sets of a cache
              +---------+  rows          */
#ifndef ATTN_CPU_TILE_H
#define ATTN_CPU_TILE_H

#include "attn_int.h"

enum { ATTN__BM = 64, ATTN__BN = 128, ATTN__LANES = 16, ATTN__LDS = ATTN__BN + ATTN__LANES };

static inline int attn__round_lanes(int64_t n) {
    return (int)((n + ATTN__LANES - 1) / ATTN__LANES * ATTN__LANES);
}

enum attn__row_state {
    ROW_EMPTY,   /* no visible pair in this row of the tile */
    ROW_VISIBLE, /* at least one */
    ROW_NAN      /* a visible score is NaN or +inf */
};

/* What one row of a backward tile needs besides its scores. */
typedef struct attn__grad_row {
    float lse, c;           /* c = dO.O - dLSE */
    float by;               /* scores are to be multiplied by it */
    float row_scale;        /* of s = row_scale * key_scale[j] * (q . k_j) */
    const float *key_scale; /* [n] or NULL: 1 */
    const float *w;         /* [n] or NULL: 1; weight of p in the output, 0 where dropped */
    const float *ds;        /* [n] or NULL: 1; d score / d s */
} attn__grad_row;

/* The factors of a product: element (i, l) is at[i * row + l * col]; element (l, j) is
   at[j / LANES * panel + l * row + j % LANES], so panel is LANES where whole rows lie in memory. */
typedef struct attn__left {
    const float *at;
    int row, col;
} attn__left;
typedef struct attn__right {
    const void *at;
    int row;
    int64_t panel;
} attn__right;

/* Rows of bf16 where they lie, `step` bytes apart. */
typedef struct attn__rows {
    const char *at;
    int64_t step;
} attn__rows;

/* Rows that will be read soon: how far the asking for them has come. It is spread over some other
   work, evenly: a processor holds few such requests, and waits with the next. */
enum { ATTN__PLACES = 8, ATTN__WORK = 256 };
typedef struct attn__ahead {
    const char *at;
    int64_t apart;       /* bytes from place to place: memory is faster at several at a time */
    int64_t step;        /* bytes from row to row */
    int row_bytes, rows; /* of a row; rows left */
    int done;            /* bytes of the row at hand */
    int each, due;       /* WORK-ths of work for a line at each place; what is done of it */
} attn__ahead;

/* So much work is done: asks for memory, into the second cache. */
static inline void attn__ask(attn__ahead *x, int work) {
    for (x->due += work * ATTN__WORK; x->due >= x->each && x->rows > 0; x->due -= x->each) {
        for (int place = 0; place < ATTN__PLACES; place++) {
            __builtin_prefetch(x->at + x->done + place * x->apart, 0, 2);
        }
        x->done += 64;
        if (x->done >= x->row_bytes) {
            x->done = 0;
            x->at += x->step;
            x->rows--;
        }
    }
}

/* Until the state is restored results below 2^-126 become 0, as products of such numbers take some
   processors a hundred times as long; numbers that are read stay as they are. aarch64 has no such
   choice. What works so is called through a table: a compiler knows nothing of this state. */
static inline unsigned attn__flush_small(void) {
#if defined(__SSE__)
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 1u << 15);
    return before;
#else
    return 0;
#endif
}
static inline void attn__restore(unsigned before) {
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(before);
#else
    (void)before;
#endif
}

/* c = the sum; c = c + the sum; the sum's first term is c. */
enum attn__mul { MUL_SET, MUL_ADD, MUL_CONTINUE };

/* Softmax counts scores and their maximum m in this unit, of scores that are to be multiplied by
   `by`: p = 2^((score - m) unit log2(e)), which is exactly 1 for the maximum. It is `by` itself
   unless that is so unusual that differences of scores could overflow. */
#define ATTN__UNIT(by) ((by) >= 0x1p-20f && (by) <= 0x1p100f ? (by) : 1)

/* Where tile registers multiply bf16 alone, an f32 x is split into three, x0 + x1 + x2, each
   the nearest to what the ones before it leave; 3 * 8 bits hold all 24 of x. A product of x and y
   is x0 y0 + x0 y1 + x1 y0 + x1 y1 + x0 y2 + x2 y0, 2^-24 |x y| beside it at most. That holds for
   numbers from 2^-80 to 2^56 and 0, which are called tame: no part of theirs, nor a product of two,
   comes near the ends of bf16. */
enum attn__form { FORM_F32, FORM_PAIRS, FORM_SPLIT };

/* A product that fills tile registers: sums of 16 pairs (a block) after the other; 16 rows of a
   left factor are a strip, 16 columns of a right one a panel. What lies from one to the next, and
   between parts of a split factor, is in bytes. */
typedef struct attn__product {
    char *c;
    const char *a, *b;
    int64_t c_row, a_row, a_block, a_strip, a_part, b_row, b_block, b_panel, b_part;
    int strips, panels, blocks;
    int split;
    int set; /* c = the sum, else c + the sum */
} attn__product;

/* Products that are made step by step, one after the other, while rows are worked on. */
typedef struct attn__queue {
    attn__product product[2];
    int n, at;            /* products, the one at hand */
    int i, j, l;          /* its strip, panel and block at hand */
    int steps, rows, due; /* all steps, all rows; what is due at the next row */
    attn__ahead *ahead;   /* [2]: asked for at each row, the first, then the other; or NULL */
} attn__queue;

typedef struct attn__tile_ops {
    const char *name; /* what the variable ATTN_CPU calls it */
    /* c[m][n] and a[m][k] b[k][n]; n a multiple of LANES. */
    void (*mul)(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                enum attn__mul how);
    /* The same for few rows: while it multiplies it asks for memory that comes next. bf16: the
       right factor is. */
    void (*mul_few)(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                    enum attn__mul how, int bf16, attn__ahead *ahead);
    /* The same for bf16 on both sides, two by two along k: an element of a is a[i][2l],
       a[i][2l + 1], one of b is b[2l][j], b[2l + 1][j], the first in the low half; k counts pairs.
       Sums are f32; numbers and sums below 2^-126 count as 0. NULL where the processor cannot. */
    void (*mul_pairs)(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                      enum attn__mul how);
    /* The queue's steps that are due after one more row; all: all that are left. NULL where a
       product keeps the processor from other work. */
    void (*go_on)(attn__queue *queue, int all);
    /* Few rows by bf16 rows where they lie, the same bits as mul_pairs makes of these in panels;
       NULL where that is no slower, both or neither. What a product reads is asked for 32 rows
       ahead: `next` is what is read after it, as many lines of a row.
       dots: to[m][n] = dot products of m rows of pairs and n rows; the m rows are given transposed,
       as panels of LANES rows (what fills the last one is anything); n and k, pairs, multiples of
       LANES.
       sums: to[m][n] += p v, with p[m][k] pairs along v's 2 k rows of n numbers, 2 LANES or more; n
       and k multiples of LANES. LANES / 2 rows of p may be read. */
    void (*dots)(float *to, int ld, const float *a, attn__rows b, attn__rows next, int m, int n,
                 int k);
    void (*sums)(float *to, int ld, attn__left p, attn__rows v, attn__rows next, int m, int n,
                 int k);
    /* What a thread does before its first mul_pairs and after its last; NULL: nothing. */
    void (*begin)(void);
    void (*end)(void);
    /* to[n] = bf16 of x[n], to nearest even; `to` may be x; n a multiple of LANES. NULL together
       with mul_pairs, like zip. */
    void (*narrow)(float *to, const float *x, int n);
    /* to[n] = the pairs (a[j], b[j]) of two rows of bf16, LANES of them in each panel; returns 1 if
       all are finite. n a multiple of LANES. */
    int (*zip)(float *to, const void *a, const void *b, int n, int64_t panel);
    /* x[n] split, as to[part][n] of bf16; and n times LANES pairs (a[j], b[j]), as to[part][j] of
       LANES pairs. Each LANES follow after a step; `part` and steps in floats. Both return 1 if all
       are tame. NULL together with mul_pairs. */
    int (*split_row)(float *to, int64_t part, const float *x, int n);
    int (*split_pairs)(float *to, int64_t part, int64_t to_step, const float *a, const float *b,
                       int64_t step, int n);
    /* to[cols][LANES] = transpose of LANES rows that lie `step` bytes apart; cols a multiple of 4.
       bf16: the rows hold pairs of these, and to[2 cols][LANES] gets them as f32. */
    void (*transpose)(float *to, const char *from, int64_t step, int cols, int bf16,
                      attn__ahead *ahead);
    /* 1 if every one of x[n] is finite; n a multiple of LANES. */
    int (*finite)(const float *x, int64_t n);
    /* x[n] = (x * by_each[j]) * by; by_each may be NULL. n a multiple of LANES. */
    void (*scale)(float *x, const float *by_each, float by, int n);
    /* on[j] = -1 where mask[j] and block[j] are not 0 and s[j] is not -inf, else 0; each may be
       NULL: so everywhere. */
    void (*visible)(int32_t *on, const int32_t *mask, const int32_t *block, const float *s, int n);
    /* to[n] = score * by where on[j] is not 0 (NULL: everywhere), else -inf; n a multiple of
       LANES. */
    void (*settle)(float *to, const float *score, float by, const int32_t *on, int n);
    /* A step of the online softmax over score[n] * by. Columns begin..n count whose on[j] is not 0
       (NULL: all) and whose score is not -inf; on_out[0..n) says which (NULL: nobody asks).
       ROW_VISIBLE: m, in ATTN__UNIT(by), and l take them in, p has e^(score - m), 0 elsewhere, and
       corr is what older sums are to be multiplied by. Otherwise p is 0 and m, l stay. p may be
       score; p is written from 0 up to n rounded up to LANES. */
    int (*softmax)(float *p, const float *score, float by, const int32_t *on, int begin, int n,
                   float *m, float *l, float *corr, int32_t *on_out);
    /* The same for up to LANES rows of s, `ld` floats apart, with a `by` each, where all columns
       count but those of -inf; n a multiple of LANES. A row that is NaN sets its nan. p's rows are
       p_ld floats apart and in the form, where there is such; of split ones, parts are p_ld / 3
       apart. p may be s but for those. Returns 0, having done nothing, if it is not so simple: a
       maximum is infinite, a row has no score but a NaN, or a `by` is not its unit. A queue goes on
       after each row. */
    int (*softmax_rows)(float *p, int p_ld, enum attn__form form, const float *s, int ld, int rows,
                        int n, const float *by, float *m, float *l, float *corr, uint8_t *nan,
                        attn__queue *queue);
    /* to[n] = to * by_to + from * by_from; n a multiple of LANES. */
    void (*fold)(float *to, float by_to, const float *from, float by_from, int n);
    /* Backward of a row: p = exp(score - lse) where visible, as above; on entry dp[n] = dO . v_j;
         g_score = p (w dp - c)                          d loss / d score, what captures need
         g_dot   = g_score ds key_scale row_scale        d loss / d (q . k_j)
         p_out   = p w                                   d out / d v_j
       all 0 where not visible, up to n rounded up to LANES. g_dot may be dp, p_out may be score;
       g_score and on_out may be NULL. */
    void (*grad)(float *p_out, float *g_dot, float *g_score, const float *score, const float *dp,
                 const int32_t *on, int begin, int n, const attn__grad_row *row, int32_t *on_out);
} attn__tile_ops;

/* The i-th table that this processor can run, the fastest first; NULL past the end. */
const attn__tile_ops *attn__tile_ops_at(int i);

extern const attn__tile_ops attn__ops_base;
#if defined(__x86_64__)
extern const attn__tile_ops attn__ops_avx2, attn__ops_avx512, attn__ops_bf16, attn__ops_amx;

/* -- cpu_amx.c --------------------------------------------------------------------------------- */
/* Whether this process may use AMX: asks the system for it. */
int attn__has_amx(void);
/* A table's begin, end, mul_pairs and go_on. */
void attn__begin_amx(void);
void attn__end_amx(void);
void attn__mul_amx(float *c, int c_ld, attn__left a, attn__right b, int m, int n, int k,
                   enum attn__mul how);
void attn__go_on_amx(attn__queue *queue, int all);

/* -- cpu_few.c --------------------------------------------------------------------------------- */
void attn__dots_amx(float *to, int ld, const float *a, attn__rows b, attn__rows next, int m, int n,
                    int k);
void attn__sums_amx(float *to, int ld, attn__left p, attn__rows v, attn__rows next, int m, int n,
                    int k);
#endif

#endif
