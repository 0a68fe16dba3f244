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

#include "cpu_avx512.h"

#define OPS                attn__ops_avx512
#define OPS_NAME           "avx512"
#include "cpu_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
