/* cpu_bf16.c: the tile table for processors that multiply bf16 two by two (AVX512-BF16).

   DOT2(x, y, sum) is sum + x0 y0 + x1 y1 in every lane, the lanes of x and y being pairs of bf16. A
   pair lies in an f32's place, so one text serves both kinds of products. STORE_NARROW(to, x, n)
   stores n vectors as bf16, STORE_SPLIT(to, part, x, n) as three of them each. GO_ON(queue) makes
   steps of products in tile registers, which run beside the vectors. The table for AMX differs by
   its products. */
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

/* f32 of the first or second 16 of 32 bf16. */
static inline __attribute__((always_inline)) __m512 widened(__m512bh x, const int second) {
    const __m512i all = (__m512i)x;
    const __m256i half = second ? _mm512_extracti64x4_epi64(all, 1) : _mm512_castsi512_si256(all);
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

static inline __attribute__((always_inline)) void store_split(float *to, int64_t part,
                                                              const __m512 *x, const int n) {
    for (int e = 0; e < n; e += 2) {
        __m512 a = x[e], b = e + 1 < n ? x[e + 1] : _mm512_setzero_ps();
        for (int i = 0; i < 3; i++) {
            const __m512bh y = _mm512_cvtne2ps_pbh(b, a);
            memcpy(to + i * part + 8 * e, &y, e + 1 < n ? sizeof y : sizeof y / 2);
            a -= widened(y, 0);
            b -= widened(y, 1);
        }
    }
}

/* Lanes that are not tame. */
static inline __attribute__((always_inline)) __mmask16 wild_of(__m512 x) {
    const __m512i most = _mm512_set1_epi32((127 + 56) << 23);
    const __m512i least = _mm512_set1_epi32((127 - 80) << 23);
    const __m512i size = _mm512_and_si512((__m512i)x, _mm512_set1_epi32(0x7fffffff));
    return _mm512_cmpgt_epi32_mask(size, most) |
           (_mm512_cmplt_epi32_mask(size, least) & _mm512_test_epi32_mask(size, size));
}

static int ops_split_row(float *to, int64_t part, const float *x, int n) {
    __mmask16 wild = 0;
    int j = 0;
    for (; j + 32 <= n; j += 32) {
        const __m512 y[2] = {_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16)};
        wild |= wild_of(y[0]) | wild_of(y[1]);
        store_split(to + j / 2, part, y, 2);
    }
    if (j < n) {
        const __m512 y = _mm512_loadu_ps(x + j);
        wild |= wild_of(y);
        store_split(to + j / 2, part, &y, 1);
    }
    return wild == 0;
}

static int ops_split_pairs(float *to, int64_t part, int64_t to_step, const float *first,
                           const float *second, int64_t step, int n) {
    const __m512i join = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                          8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16,
                                          0);
    const __m512i top = _mm512_set1_epi32((int)0xffff0000);
    __mmask16 wild = 0;
    for (int j = 0; j < n; j++, first += step, second += step, to += to_step) {
        __m512 a = _mm512_loadu_ps(first), b = _mm512_loadu_ps(second);
        wild |= wild_of(a) | wild_of(b);
        for (int i = 0; i < 3; i++) {
            const __m512i y = _mm512_permutexvar_epi16(join, (__m512i)_mm512_cvtne2ps_pbh(b, a));
            _mm512_storeu_si512(to + i * part, y);
            a -= (__m512)_mm512_slli_epi32(y, 16);
            b -= (__m512)_mm512_and_si512(y, top);
        }
    }
    return wild == 0;
}

static void ops_narrow(float *to, const float *x, int n) {
    for (int j = 0; j < n; j += 16) {
        const __m512 y = _mm512_loadu_ps(x + j);
        store_narrow((char *)to + 2 * j, &y, 1);
    }
}

static int ops_zip(float *to, const void *a, const void *b, int n, int64_t panel) {
    const __m512i top = _mm512_set1_epi16(0x7f80);
    const __m512i join = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                          8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32,
                                          0);
    const __m512i join2 = _mm512_add_epi16(join, _mm512_set1_epi16(16));
    __mmask32 bad = 0;
    int j = 0;
    for (; j + 32 <= n; j += 32, to += 2 * panel) {
        const __m512i x = _mm512_loadu_si512((const char *)a + 2 * j);
        const __m512i y = _mm512_loadu_si512((const char *)b + 2 * j);
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, top), top);
        bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(y, top), top);
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(x, join, y));
        _mm512_storeu_si512(to + panel, _mm512_permutex2var_epi16(x, join2, y));
    }
    for (; j < n; j += 16, to += panel) {
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
#define STORE_NARROW(to, x, n) store_narrow((char *)(to), (const __m512 *)(x), n)
#define STORE_SPLIT(to, part, x, n) store_split(to, part, (const __m512 *)(x), n)
#define GO_ON(queue)                                                                               \
    if (queue) {                                                                                   \
        attn__go_on_amx(queue, 0);                                                                 \
    }
#define OPS                attn__ops_bf16
#define OPS_NAME           "avx512bf16"
#include "cpu_loops.h"

const attn__tile_ops attn__ops_amx = TABLE("amx", attn__mul_amx, attn__begin_amx, attn__end_amx,
                                           attn__go_on_amx, attn__dots_amx, attn__sums_amx);

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
