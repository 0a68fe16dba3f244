/* cpu_avx512.c: the tile table for vectors of sixteen floats. */
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))),        \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#endif

#define VL                 16
#define MR                 4
#define NV                 4
#define FMA(a, b, c)       _mm512_fmadd_ps(a, b, c)
#define LARGER(a, b)       _mm512_max_ps(a, b)
#define TIMES_2_TO(y, n)   _mm512_scalef_ps(y, n)
#define TIMES_2_DOWN(y, n) _mm512_scalef_ps(y, (n)-12582912.0f)
#define OPS                attn__ops_avx512
#define OPS_NAME           "avx512"
#include "cpu_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
