/* cpu_base.c: the tile table for vectors of four floats, which every processor has, and the choice
   among the tables. */
#include "cpu_tile.h"

const attn__tile_ops *attn__tile_ops_at(int i) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && i-- == 0) {
        return &attn__ops_avx512;
    }
    if (__builtin_cpu_supports("avx2") && i-- == 0) {
        return &attn__ops_avx2;
    }
#endif
    return i == 0 ? &attn__ops_base : NULL;
}

#define VL       4
#define MR       4
#define NV       2
#define OPS      attn__ops_base
#define OPS_NAME "base"
#include "cpu_loops.h"
