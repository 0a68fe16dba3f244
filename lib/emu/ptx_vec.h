/* ptx_vec.h: eight numbers at once, for the models of products.

   Who includes it: ptx_mma.c, ptx_wgmma_sum.c. */
#ifndef ATTN_EMU_PTX_VEC_H
#define ATTN_EMU_PTX_VEC_H

#include <stdint.h>

typedef float vec __attribute__((vector_size(32)));
typedef uint32_t bits __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))

/* Numbers of 16 bits in the low halves of words become f32. */
INLINE void widen_16(bits *words, int bf16) {
    bits x = *words;
    if (bf16) {
        x <<= 16;
    } else { /* the exponent's bias grows by 112: by a product, which is exact for subnormals */
        const bits sign = (x & 0x8000u) << 16, rest = (x & 0x7fffu) << 13;
        const bits special = (bits)(rest >= 0x0f800000u);
        x = (bits)((vec)rest * 0x1p112f) | (special & 0x7f800000u) | sign;
    }
    *words = x;
}

#endif
