/* vm_avx2.c: the vector machine's lanes for vectors of 256 bits. */
#include "vm_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define VM_TABLE attn__lanes_avx2
#define VM_NAME  "avx2"
/* gcc leaves it out after a call with vectors; without it each later 128-bit instruction waits. */
#define VM_LEAVE __builtin_ia32_vzeroupper()
#define VM_ANY(x) (!_mm256_testz_si256((__m256i)(x), (__m256i)(x)))
#define VL       8
#include "vm_lanes.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
