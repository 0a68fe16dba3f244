/* gcn_mfma.c: the matrix instructions of gfx90a and gfx942: who holds what, and how sums are
   rounded.

   Who calls it: gcn.c, when the last lane of a wave has arrived.

   The layouts are those of AMD's matrix instruction calculator. What 16-bit products do on the way
   to their sum is in no manual; it was measured, and is modelled as published (Xie et al., "Bit-
   accurate modeling of GPU matrix multiply-accumulate units", arXiv 2511.10909):

       gfx90a  16 bits   four products at a time: c + ((p0 + p1) + (p2 + p3)), each step rounded to
                         nearest even; subnormals, of a, b, c and of every step, are 0 (AMD's MIOpen
                         documents that they are)
       gfx942  16 bits   eight products at a time as a sum of fixed point: each is cut to 24 bits
                         below the largest's leading one and they are added exactly; that sum and c
                         are floored to 31 and 24 bits below the larger one's, added, and rounded
                         once, to nearest even; subnormals count
       both    f32       fma in the order of k; subnormals count */
#include "gcn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../attn_int.h"

enum { MOST_N = 32, MOST_K = 16 };

/* An operand as rows of numbers: a as [k][row], b as [k][column]. Of gfx942's 16 bits, m 2^(e - 10)
   is the number; f is the number as such. */
typedef struct gcn_operand {
    float f[MOST_K][MOST_N];
    int32_t m[MOST_K][MOST_N], e[MOST_K][MOST_N];
    uint8_t odd[MOST_N]; /* NaN or infinity in this row or column */
} gcn_operand;

/* -- Reading operands -------------------------------------------------------------------------- */
/* A subnormal number's sign alone. */
static inline float flushed(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    u &= (u & 0x7f800000u) == 0 ? 0x80000000u : 0xffffffffu;
    memcpy(&x, &u, 4);
    return x;
}

/* A 16-bit number; its significand has 10 fractional bits. Zero has no exponent of its own: the
   smallest there is, so that it never is the largest of a sum. */
static void read_16(gcn_operand *to, int k, int i, uint16_t x, int type, int flush) {
    int bits = type == GCN_F16 ? 10 : 7, bias = type == GCN_F16 ? 15 : 127;
    int field = x >> bits & (2 * bias + 1);
    int32_t part = x & ((1 << bits) - 1);

    if (field == 0 && flush) {
        part = 0;
    }
    to->f[k][i] = type == GCN_F16 ? attn__f16_to_f32(x) : attn__bf16_to_f32(x);
    if (field == 0 && part == 0) {
        to->f[k][i] = 0;
    }
    to->odd[i] |= field == 2 * bias + 1;
    part = (part | (field != 0) << bits) << (10 - bits);
    to->m[k][i] = x >> 15 ? -part : part;
    to->e[k][i] = part == 0 ? -126 : (field == 0 ? 1 : field) - bias;
}

static void read_operand(gcn_operand *to, const gcn_mfma *x, const uint32_t *const *lane) {
    int wide = x->type == GCN_F32 ? 1 : 4;

    memset(to, 0, sizeof *to); /* columns that there are not, too */
    for (int l = 0; l < GCN_LANES; l++) {
        int i = l % x->n, k = l / x->n * wide;

        if (x->type == GCN_F32) {
            memcpy(&to->f[k][i], lane[l], 4);
            continue;
        }
        for (int w = 0; w < wide; w++) {
            read_16(to, k + w, i, (uint16_t)(lane[l][w / 2] >> w % 2 * 16), x->type,
                    x->chip == GCN_90A);
        }
    }
}

/* -- Sums: c[j] += a[k][i] b[k][j] over k, for all columns j of a row i ------------------------ */
/* All that the emulator computes is here: loops of a fixed number of columns, for vectors. */
#if defined(__x86_64__) && defined(__gnu_linux__)
#define VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define VECTORS
#endif

VECTORS static void sum_f32(float *c, const gcn_operand *a, const gcn_operand *b, int i, int k) {
    for (int t = 0; t < k; t++) {
        for (int j = 0; j < MOST_N; j++) {
            c[j] = fmaf(a->f[t][i], b->f[t][j], c[j]);
        }
    }
}

VECTORS static void sum_pairs(float *c, const gcn_operand *a, const gcn_operand *b, int i, int k) {
    for (int j = 0; j < MOST_N; j++) {
        c[j] = flushed(c[j]);
    }
    for (int t = 0; t < k; t += 4) {
        for (int j = 0; j < MOST_N; j++) {
            float p0 = flushed(a->f[t][i] * b->f[t][j]);
            float p1 = flushed(a->f[t + 1][i] * b->f[t + 1][j]);
            float p2 = flushed(a->f[t + 2][i] * b->f[t + 2][j]);
            float p3 = flushed(a->f[t + 3][i] * b->f[t + 3][j]);
            float left = flushed(p0 + p1), right = flushed(p2 + p3);

            c[j] = flushed(c[j] + flushed(left + right));
        }
    }
}

/* Where NaN or infinity comes in, or a product leaves the range of f32: eight products. */
static float sum_unusual(float c, const gcn_operand *a, const gcn_operand *b, int i, int j, int t) {
    double sum = c;

    for (int s = t; s < t + 8; s++) {
        double p = (double)a->f[s][i] * b->f[s][j];

        sum += fabs(p) >= 0x1p128 ? copysign(INFINITY, p) : p;
    }
    return (float)sum;
}

/* The sums of eight products each, in units of 2^(top - 24). */
VECTORS static void sum_cut(int32_t *sum, int32_t *top, const gcn_operand *a, const gcn_operand *b,
                            int i, int t) {
    for (int j = 0; j < MOST_N; j++) {
        top[j] = -1000;
        sum[j] = 0;
    }
    for (int s = t; s < t + 8; s++) {
        for (int j = 0; j < MOST_N; j++) {
            int32_t e = a->e[s][i] + b->e[s][j];
            top[j] = e > top[j] ? e : top[j];
        }
    }
    for (int s = t; s < t + 8; s++) {
        for (int j = 0; j < MOST_N; j++) {
            int32_t p = a->m[s][i] * b->m[s][j]; /* 20 fractional bits, below 4 */
            int32_t shift = top[j] - a->e[s][i] - b->e[s][j];
            int32_t size = (p < 0 ? -p : p) * 16 >> (shift > 31 ? 31 : shift);
            sum[j] += p < 0 ? -size : size;
        }
    }
}

static inline double power_of_2(int64_t e) {
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double x;

    memcpy(&x, &bits, 8);
    return x;
}

/* c += sum 2^(top - 24), both cut to below the larger one's leading bit, rounded once. */
VECTORS static void add_cut(float *c, const int32_t *sum, const int32_t *top) {
    for (int j = 0; j < MOST_N; j++) {
        uint32_t u;
        memcpy(&u, &c[j], 4);
        int32_t field = (int32_t)(u >> 23 & 255), e = (field == 0 ? 1 : field) - 127;
        int32_t most = top[j] > e ? top[j] : e;
        double total = floor(sum[j] * power_of_2(top[j] - most + 7)) +
                       floor(c[j] * power_of_2(24 - most)) * 128;
        c[j] = (float)(total * power_of_2(most - 31));
    }
}

static void sum_fixed(float *c, const gcn_operand *a, const gcn_operand *b, int i, int k) {
    for (int t = 0; t < k; t += 8) {
        int32_t top[MOST_N], sum[MOST_N];
        float old[MOST_N];

        memcpy(old, c, sizeof old);
        sum_cut(sum, top, a, b, i, t);
        add_cut(c, sum, top);
        for (int j = 0; j < MOST_N; j++) {
            if (a->odd[i] | b->odd[j] | !isfinite(old[j]) | (top[j] >= 126)) {
                c[j] = sum_unusual(old[j], a, b, i, j, t);
            }
        }
    }
}

/* -- The instruction --------------------------------------------------------------------------- */
void attn__gcn_mfma(const gcn_mfma *x) {
    void (*const sum)(float *, const gcn_operand *, const gcn_operand *, int, int) =
        x->type == GCN_F32 ? sum_f32 : x->chip == GCN_90A ? sum_pairs : sum_fixed;
    gcn_operand a, b;
    int groups = GCN_LANES / x->n, k = groups * (x->type == GCN_F32 ? 1 : 4);

    read_operand(&a, x, x->a);
    read_operand(&b, x, x->b);
    for (int i = 0; i < x->n; i++) {
        int r = i / (4 * groups) * 4 + i % 4;
        float *const *lane = x->d + i / 4 % groups * x->n;
        float c[MOST_N] = {0};

        for (int j = 0; j < x->n; j++) {
            c[j] = lane[j][r];
        }
        sum(c, &a, &b, i, k);
        for (int j = 0; j < x->n; j++) {
            lane[j][r] = c[j];
        }
    }
}
