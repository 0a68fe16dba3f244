/* ptx_mma.c: the model of mma.sync (PTX ISA 9.0, 9.7.14.5): D (16 x 8, f32) += A (16 x k) B (k x 8).

   Who calls it: ptx.c's table. Lane l has g = l / 4 and t = l % 4; k is 16 elements of 16 bits, two a
   register, or 8 of tf32, one a register:

       A   register   rows      columns          B   register   rows (k)        column
           a0         g         2t, 2t+1 | t         b0         2t, 2t+1 | t    g
           a1         g + 8     2t, 2t+1 | t         b1         + 8      | + 4  g
           a2         g         + 8      | + 4   D   d0, d1     row g           2t, 2t+1
           a3         g + 8     + 8      | + 4       d2, d3     row g + 8       2t, 2t+1

   Products of such numbers are exact in f32. The hardware's order of the sum is not documented; here
   the k products are summed in order, then added to D. */
#include "ptx_int.h"

#include "../attn_int.h"

#include <string.h>

enum { M = 16, N = 8, LANES = 32 };

typedef struct operands {
    float *d[4];
    const unsigned *a;
    unsigned b[2];
} operands;

typedef float vec __attribute__((vector_size(32), aligned(4)));
typedef uint32_t bits __attribute__((vector_size(32), aligned(4)));
typedef enum kind { F16, BF16, TF32 } kind;

#define INLINE static inline __attribute__((always_inline))

/* 8 numbers of `kind`: 16 bits wide in the low halves, or words. */
INLINE void widen(vec *to, const bits *from, kind k) {
    bits x = *from;
    if (k == BF16) {
        x <<= 16;
    } else if (k == TF32) {
        x &= 0xffffe000u;
    } else { /* the exponent's bias grows by 112: by a product, which is exact for subnormals, too */
        const bits sign = (x & 0x8000u) << 16, rest = (x & 0x7fffu) << 13;
        const bits special = (bits)(rest >= 0x0f800000u);
        vec y;
        memcpy(&y, &rest, sizeof y);
        y *= 0x1p112f;
        memcpy(&x, &y, sizeof x);
        x |= (special & 0x7f800000u) | sign;
    }
    memcpy(to, &x, sizeof x);
}

/* Two rows of registers, 4 words each, to 16 (or 8) numbers in the order of k. */
INLINE void unpack(float *to, const uint32_t *words, kind k, int n) {
    for (int i = 0; i < n; i += 8) {
        bits x;
        for (int j = 0; j < 8; j++) {
            x[j] = k == TF32 ? words[i + j] : words[(i + j) / 2] >> 16 * (j & 1) & 0xffffu;
        }
        vec y;
        widen(&y, &x, k);
        memcpy(to + i, &y, sizeof y);
    }
}

INLINE void multiply(void *const *lane, kind k) {
    const int depth = k == TF32 ? 8 : 16;
    uint32_t a_words[M][8], b_words[N][8];
    float a[M][16], b[16][N], d[M][N];
    for (int l = 0; l < LANES; l++) {
        const operands *const o = lane[l];
        const int g = l / 4, t = l % 4;
        for (int e = 0; e < 4; e++) {
            a_words[g + (e & 1) * 8][t + (e >> 1) * 4] = o->a[e];
        }
        b_words[g][t] = o->b[0];
        b_words[g][t + 4] = o->b[1];
    }
    for (int i = 0; i < M; i++) {
        unpack(a[i], a_words[i], k, depth);
    }
    for (int j = 0; j < N; j++) {
        float column[16];
        unpack(column, b_words[j], k, depth);
        for (int i = 0; i < depth; i++) {
            b[i][j] = column[i];
        }
    }
    for (int i = 0; i < M; i++) {
        vec sum = {0}, row;
        for (int j = 0; j < depth; j++) {
            memcpy(&row, b[j], sizeof row);
            sum += row * a[i][j];
        }
        memcpy(d[i], &sum, sizeof sum);
    }
    for (int l = 0; l < LANES; l++) {
        const operands *const o = lane[l];
        for (int r = 0; r < 4; r++) {
            *o->d[r] += d[l / 4 + (r >> 1) * 8][l % 4 * 2 + (r & 1)];
        }
    }
    attn__emu_matrix(2ull * M * N * (unsigned)depth);
}

/* One function a kind; with AVX2 where the processor has it: the same operations, the same bits. */
#if defined(__x86_64__)
#define FAST(name, k)                                                                              \
    __attribute__((target("avx2"))) static void name##_avx2(void *const *lane) {                   \
        multiply(lane, k);                                                                         \
    }
#define HAS_FAST           __builtin_cpu_supports("avx2")
#define WORK(name)         (HAS_FAST ? name##_avx2 : name)
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
