/* cpu_avx512.h: the vectors of AVX-512 in cpu_loops.h's names.

   Who includes it: cpu_avx512.c and cpu_bf16.c, before cpu_loops.h. */
#ifndef ATTN_CPU_AVX512_H
#define ATTN_CPU_AVX512_H

#define VL                 16
#define MR                 6
#define NV                 4
#define FMA(a, b, c)       _mm512_fmadd_ps(a, b, c)
#define LARGER(a, b)       _mm512_max_ps(a, b)
#define TIMES_2_TO(y, n)   _mm512_scalef_ps(y, n)
#define ABOVE_FLOOR(x)         _mm512_reduce_ps(x, 1)
#define TIMES_2_TO_FLOOR(y, x) _mm512_scalef_ps(y, x)
#define WIDENED(at) ((vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(at))))

#endif
