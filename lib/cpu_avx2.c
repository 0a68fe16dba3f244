/* cpu_avx2.c: the tile table for vectors of eight floats, with fused multiply-add. */
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define VL                 8
#define MR                 6
#define NV                 2
#define FMA(a, b, c)       _mm256_fmadd_ps(a, b, c)
#define LARGER(a, b)       _mm256_max_ps(a, b)
#define TIMES_2_TO(y, n)   times_2_to(y, n)
#define ABOVE_FLOOR(x)         above_floor(x)
#define TIMES_2_TO_FLOOR(y, x) times_2_to_floor(y, x)
#define OPS                attn__ops_avx2
#define OPS_NAME           "avx2"
#include "cpu_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
