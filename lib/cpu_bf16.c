/* cpu_bf16.c: the tile table for processors that multiply bf16 two by two (AVX512-BF16).

   DOT2(x, y, sum) is sum + x0 y0 + x1 y1 in every lane, the lanes of x and y being pairs of bf16. A
   pair lies in an f32's place, so one text serves both kinds of products. STORE_NARROW(to, x, n)
   stores n vectors as bf16. The table for AMX differs by one function. */
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16")
#endif

/* Two vectors take one conversion, which takes as long as one's. */
static inline __attribute__((always_inline)) void store_narrow(char *to, const __m512 *x,
                                                               const int n) {
    for (int e = 0; e + 1 < n; e += 2) {
        const __m512bh y = _mm512_cvtne2ps_pbh(x[e + 1], x[e]);
        memcpy(to + 32 * e, &y, sizeof y);
    }
    if (n % 2) {
        const __m256bh y = _mm512_cvtneps_pbh(x[n - 1]);
        memcpy(to + 32 * (n - 1), &y, sizeof y);
    }
}

static void ops_narrow(float *to, const float *x, int n) {
    for (int j = 0; j < n; j += 16) {
        const __m512 y = _mm512_loadu_ps(x + j);
        store_narrow((char *)to + 2 * j, &y, 1);
    }
}

static int ops_zip(float *to, const void *a, const void *b, int n, int64_t panel) {
    const __m512i top = _mm512_set1_epi16(0x7f80);
    __mmask32 bad = 0;
    for (int j = 0; j < n; j += 16, to += panel) {
        const __m256i *const x = (const __m256i *)((const char *)a + 2 * j);
        const __m256i *const y = (const __m256i *)((const char *)b + 2 * j);
        const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x));
        const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256(y));
        const __m512i both = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(both, top), top);
        _mm512_storeu_si512(to, both);
    }
    return bad == 0;
}

#include "cpu_avx512.h"

#define DOT2(x, y, sum)    _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))
#define STORE_NARROW(to, x, n) store_narrow(to, (const __m512 *)(x), n)
#define OPS                attn__ops_bf16
#define OPS_NAME           "avx512bf16"
#include "cpu_loops.h"

const attn__tile_ops attn__ops_amx = TABLE("amx", attn__mul_amx, attn__begin_amx, attn__end_amx);

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
