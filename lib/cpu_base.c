/* cpu_base.c: the tile table for vectors of four floats, which every processor has, and the choice
   among the tables. */
#include "cpu_tile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const attn__tile_ops *attn__tile_ops_at(int i) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const int avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    const int bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
    if (bf16 && attn__has_amx() && i-- == 0) {
        return &attn__ops_amx;
    }
    if (bf16 && i-- == 0) {
        return &attn__ops_bf16;
    }
    if (avx512 && i-- == 0) {
        return &attn__ops_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && i-- == 0) {
        return &attn__ops_avx2;
    }
#endif
    return i == 0 ? &attn__ops_base : NULL;
}

int attn__cpu_choose(const attn__tile_ops **ops) {
    const char *const name = getenv("ATTN_CPU");
    char all[64] = "";
    for (int i = 0; (*ops = attn__tile_ops_at(i)); i++) {
        if (!name || !*name || strcmp(name, (*ops)->name) == 0) {
            return ATTN_OK;
        }
        const size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", (*ops)->name);
    }
    return attn__fail(ATTN_DEVICE, "ATTN_CPU",
                      "the environment variable ATTN_CPU is \"%s\"; this processor allows %s", name,
                      all);
}

#if defined(__aarch64__)
#include <arm_neon.h>
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define MR           6
#define NV           4
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#define MR           4
#define NV           2
#endif
#define LARGER(a, b)       choose((a) > (b), a, b)
#define TIMES_2_TO(y, n)   times_2_to(y, n)
#define ABOVE_FLOOR(x)         above_floor(x)
#define TIMES_2_TO_FLOOR(y, x) times_2_to_floor(y, x)
#define VL                 4
#define OPS                attn__ops_base
#define OPS_NAME           "base"
#include "cpu_loops.h"
