/* types.h: names of fixed sizes, for kernels and for the host's files that share text with them.

   Who includes it: target.h; of the host lib/gpu_params.h and lib/vm_math.h. */
#ifndef ATTN_TYPES_H
#define ATTN_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

/* A tensor for copies of whole boxes, as the chip wants it described; the host fills it. */
typedef struct tensor_map {
    u64 w[16];
} __attribute__((aligned(64))) tensor_map;

#endif
