/* vm_avx512.c: the vector machine's lanes for vectors of 512 bits. */
#include "vm_loops.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))),        \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq")
#endif

#define VM_TABLE attn__lanes_avx512
#define VM_NAME  "avx512"
/* gcc leaves it out after a call with vectors; without it each later 128-bit instruction waits. */
#define VM_LEAVE __builtin_ia32_vzeroupper()
#define VM_ANY(x) (_mm512_test_epi32_mask((__m512i)(x), (__m512i)(x)) != 0)
#define VL       16
#include "vm_lanes.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
