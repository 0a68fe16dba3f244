/* ptx_mma.c: the model of mma.sync, PTX ISA 9.0, 9.7.14.5: D (16 x 8, f32) += A (16 x k) B (k x 8)

   Who calls it: ptx.c's table. Lane l has g = l / 4, t = l % 4; k is 16 elements of 16 bits, two a
   register, or 8 of tf32, one a register:

       A   register   rows      columns          B   register   rows (k)        column
           a0         g         2t, 2t+1 | t         b0         2t, 2t+1 | t    g
           a1         g + 8     2t, 2t+1 | t         b1         + 8      | + 4  g
           a2         g         + 8      | + 4   D   d0, d1     row g           2t, 2t+1
           a3         g + 8     + 8      | + 4       d2, d3     row g + 8       2t, 2t+1

   Products of such numbers are exact in f32. In which order the hardware sums is nowhere written;
   here the products of even k are summed, those of odd k to them, all to D. */
#include "ptx_int.h"
#include "ptx_vec.h"

#include "../attn_int.h"

#include <string.h>

enum { M = 16, N = 8, LANES = 32 };

typedef struct operands {
    float *d[4];
    const unsigned *a;
    unsigned b[2];
} operands;

typedef enum kind { F16, BF16, TF32 } kind;

/* 8 numbers of `kind` in the low bits of 8 words. */
INLINE void widen(float *to, const bits *words, kind k) {
    bits x = *words;
    if (k == TF32) {
        x &= 0xffffe000u;
    } else {
        widen_16(&x, k == BF16);
    }
    memcpy(to, &x, sizeof x);
}

/* Words of registers to numbers: word i to to[i], or its halves to to[i] and to[i + 8]. */
INLINE void unpack(float *to, const uint32_t *words, kind k) {
    bits low, high;
    memcpy(&low, words, sizeof low);
    if (k != TF32) {
        high = low >> 16;
        low &= 0xffffu;
        widen(to + 8, &high, k);
    }
    widen(to, &low, k);
}

/* Four rows of A times B, in the order in which unpack leaves k. */
INLINE void four_rows(float d[4][N], float a[4][16], float b[16][N], int depth) {
    vec sum[4] = {{0}}, row;
    for (int j = 0; j < depth; j++) {
        memcpy(&row, b[j], sizeof row);
        for (int i = 0; i < 4; i++) {
            sum[i] += row * a[i][j];
        }
    }
    memcpy(d, sum, sizeof sum);
}

/* a + b, rounded as tensor cores do, toward zero (Fasi et al. 2021, section 4). What passes f32 is
   infinite: no text says that it stays at the end. */
INLINE float sum_of(float a, float b) {
    const double sum = (double)a + (double)b;
    float x = (float)sum;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits -= x - x == 0 && __builtin_fabs((double)x) > __builtin_fabs(sum);
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE void multiply(void *const *lane, kind k) {
    const int depth = k == TF32 ? 8 : 16;
    uint32_t a_words[M][8], b_words[8][N];
    float a[M][16], b[16][N], d[M][N];
    for (int l = 0; l < LANES; l++) {
        const operands *const o = lane[l];
        const int g = l / 4, t = l % 4;
        a_words[g][t] = o->a[0];
        a_words[g + 8][t] = o->a[1];
        a_words[g][t + 4] = o->a[2];
        a_words[g + 8][t + 4] = o->a[3];
        b_words[t][g] = o->b[0];
        b_words[t + 4][g] = o->b[1];
    }
    for (int i = 0; i < M; i++) {
        unpack(a[i], a_words[i], k);
    }
    for (int i = 0; i < 8; i++) {
        float two[16];
        unpack(two, b_words[i], k);
        memcpy(b[i], two, sizeof b[i]);
        if (k != TF32) {
            memcpy(b[i + 8], two + 8, sizeof b[i]);
        }
    }
    for (int i = 0; i < M; i += 4) {
        four_rows(&d[i], &a[i], b, depth);
    }
    for (int l = 0; l < LANES; l++) {
        const operands *const o = lane[l];
        const float *const upper = &d[l / 4][l % 4 * 2], *const lower = &d[l / 4 + 8][l % 4 * 2];
        *o->d[0] = sum_of(*o->d[0], upper[0]);
        *o->d[1] = sum_of(*o->d[1], upper[1]);
        *o->d[2] = sum_of(*o->d[2], lower[0]);
        *o->d[3] = sum_of(*o->d[3], lower[1]);
    }
    attn__emu_matrix(2ull * M * N * (unsigned)depth);
}

/* One function a kind; with AVX2 where the processor has it: the same operations, the same bits. */
#if defined(__x86_64__)
#define FAST(name, k)                                                                              \
    __attribute__((target("avx2"))) static void name##_avx2(void *const *lane) {                   \
        multiply(lane, k);                                                                         \
    }
#define HAS_FAST   __builtin_cpu_supports("avx2")
#define WORK(name) (HAS_FAST ? name##_avx2 : name)
#else
#define FAST(name, k)
#define WORK(name) (name)
#endif
#define MMA(call, title, name, k)                                                                  \
    static void name(void *const *lane) {                                                          \
        multiply(lane, k);                                                                         \
    }                                                                                              \
    FAST(name, k)                                                                                  \
    void call(float *d0, float *d1, float *d2, float *d3, const unsigned *a, unsigned b0,          \
              unsigned b1) {                                                                       \
        operands o = {.d = {d0, d1, d2, d3}, .a = a, .b = {b0, b1}};                               \
        attn__emu_meet(title, WORK(name), &o);                                                     \
    }
MMA(attn__ptx_mma_f16, "mma m16n8k16 f16", mma_f16, F16)
MMA(attn__ptx_mma_bf16, "mma m16n8k16 bf16", mma_bf16, BF16)
MMA(attn__ptx_mma_tf32, "mma m16n8k8 tf32", mma_tf32, TF32)
