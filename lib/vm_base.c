/* vm_base.c: the vector machine's lanes for any processor, and the choice among the tables. */
#include "vm_loops.h"

#include <stdlib.h>
#include <string.h>

const attn__lanes *attn__lanes_at(int i) {
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

const attn__lanes *attn__lanes_chosen(void) {
    const char *const name = getenv("ATTN_CPU");
    const attn__lanes *lanes;
    for (int i = 0; name && (lanes = attn__lanes_at(i)); i++) {
        if (strcmp(name, lanes->name) == 0) {
            return lanes;
        }
    }
    return attn__lanes_at(0);
}

#define VM_TABLE attn__lanes_base
#define VM_NAME  "base"
#define VL       4
#define VM_LEAVE (void)0
#define VM_ANY(x) any_of(&(x))
static inline int any_of(const void *vector) {
    uint64_t x[2];
    memcpy(x, vector, sizeof x);
    return (x[0] | x[1]) != 0;
}
#include "vm_lanes.h"
