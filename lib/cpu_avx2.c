/* cpu_avx2.c: the tile table for vectors of eight floats. */
#include "cpu_tile.h"

#if defined(__x86_64__)
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define VL       8
#define MR       4
#define NV       2
#define OPS      attn__ops_avx2
#define OPS_NAME "avx2"
#include "cpu_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
