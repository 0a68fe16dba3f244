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
static float flushed(float x) { return fabsf(x) < 0x1p-126f ? x * 0 : x; }

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

    memset(to->odd, 0, sizeof to->odd);
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

/* -- Sums: c[j] += a[k][i] b[k][j] over k, for all columns j of a row i ------------------------- */
static void sum_f32(float *c, const gcn_operand *a, const gcn_operand *b, int i, int n, int k) {
    for (int t = 0; t < k; t++) {
        for (int j = 0; j < n; j++) {
            c[j] = fmaf(a->f[t][i], b->f[t][j], c[j]);
        }
    }
}

static void sum_pairs(float *c, const gcn_operand *a, const gcn_operand *b, int i, int n, int k) {
    for (int j = 0; j < n; j++) {
        c[j] = flushed(c[j]);
    }
    for (int t = 0; t < k; t += 4) {
        for (int j = 0; j < n; j++) {
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

/* x 2^shift for shift <= 0, toward minus infinity; 2^shift for a double. */
static int64_t floored(int64_t x, int shift) { return x >> (shift < -63 ? 63 : -shift); }
static double power(int shift) {
    uint64_t bits = (uint64_t)(shift + 1023) << 52;
    double x;

    memcpy(&x, &bits, 8);
    return x;
}

/* sum 2^(top - 24) + c, both cut to below the larger one's leading bit, rounded once. */
static float add_fixed(int32_t sum, int top, float c) {
    uint32_t bits;
    memcpy(&bits, &c, 4);
    int field = bits >> 23 & 255, e = (field == 0 ? 1 : field) - 127;
    int64_t part = (bits & 0x7fffff) | (uint32_t)(field != 0) << 23;
    int most = top > e ? top : e;
    int64_t total = floored((int64_t)sum * 128, top - most);

    part = bits >> 31 ? -part : part;
    total += floored(part * 2, e - most) * 128;
    return total == 0 ? 0 : (float)((double)total * power(most - 31));
}

static void sum_fixed(float *c, const gcn_operand *a, const gcn_operand *b, int i, int n, int k) {
    int32_t top[MOST_N], sum[MOST_N];

    for (int t = 0; t < k; t += 8) {
        for (int j = 0; j < n; j++) {
            top[j] = -1000;
            sum[j] = 0;
        }
        for (int s = t; s < t + 8; s++) {
            for (int j = 0; j < n; j++) {
                int32_t e = a->e[s][i] + b->e[s][j];
                top[j] = e > top[j] ? e : top[j];
            }
        }
        for (int s = t; s < t + 8; s++) {
            for (int j = 0; j < n; j++) {
                int32_t p = a->m[s][i] * b->m[s][j]; /* 20 fractional bits, below 4 */
                int32_t shift = top[j] - a->e[s][i] - b->e[s][j];
                int32_t size = (p < 0 ? -p : p) * 16 >> (shift > 31 ? 31 : shift);
                sum[j] += p < 0 ? -size : size;
            }
        }
        for (int j = 0; j < n; j++) {
            int odd = a->odd[i] | b->odd[j] | !isfinite(c[j]) | (top[j] >= 126);
            c[j] = odd ? sum_unusual(c[j], a, b, i, j, t) : add_fixed(sum[j], top[j], c[j]);
        }
    }
}

/* -- The instruction --------------------------------------------------------------------------- */
void attn__gcn_mfma(const gcn_mfma *x) {
    void (*const sum)(float *, const gcn_operand *, const gcn_operand *, int, int, int) =
        x->type == GCN_F32 ? sum_f32 : x->chip == GCN_90A ? sum_pairs : sum_fixed;
    gcn_operand a, b;
    int groups = GCN_LANES / x->n, k = groups * (x->type == GCN_F32 ? 1 : 4);

    read_operand(&a, x, x->a);
    read_operand(&b, x, x->b);
    for (int i = 0; i < x->n; i++) {
        int r = i / (4 * groups) * 4 + i % 4;
        float *const *lane = x->d + i / 4 % groups * x->n;
        float c[MOST_N];

        for (int j = 0; j < x->n; j++) {
            c[j] = lane[j][r];
        }
        sum(c, &a, &b, i, x->n, k);
        for (int j = 0; j < x->n; j++) {
            lane[j][r] = c[j];
        }
    }
}
