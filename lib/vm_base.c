/* vm_base.c: the vector machine's loops for any processor, and the choice among the tables. */
#include "vm_loops.h"

const attn__lane_table *attn__lanes_at(int i) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && i-- == 0) {
        return &attn__lanes_avx512;
    }
    if (__builtin_cpu_supports("avx2") && i-- == 0) {
        return &attn__lanes_avx2;
    }
#endif
    return i == 0 ? &attn__lanes_base : NULL;
}

#define VM_TABLE attn__lanes_base
#include "vm_lanes.h"
