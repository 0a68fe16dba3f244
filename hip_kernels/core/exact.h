/* exact.h: sums that do not depend on the order of what is added, for gradients of what a variant
   reads.

   Who calls it: the text of a variant (lib/gpu_text_grad.c), attn_bwd_grads.hip.

   A f32 is m 2^(e - 150), m of 24 bits. An element has a whole number for every 8 exponents e, to
   which m is added, moved by e % 8; whole numbers add up to the same in any order, and 2^32 of them
   fit. What is not finite leaves a bit.

       element   | bin 0: e 0..7 | bin 1: e 8..15 | ... | bin 31 | bits |       264 bytes */
#ifndef ATTN_EXACT_H
#define ATTN_EXACT_H

#include "core/math.h"

enum { EXACT_BINS = 32, EXACT_BYTES = 8 * EXACT_BINS + 8 };
enum { EXACT_NAN = 1, EXACT_PLUS = 2, EXACT_MINUS = 4 }; /* infinities */

DEV void exact_add(u64 at, float x) {
    const u32 u = bits_of(x), e = u >> 23 & 255, part = u & 0x7fffffu;
    if (e == 255) {
        atomic_or_u32(at + 8 * EXACT_BINS,
                      part ? EXACT_NAN : u >> 31 ? EXACT_MINUS : EXACT_PLUS);
        return;
    }
    const u32 from = e ? e : 1;
    const u64 m = (u64)(e ? part | 0x800000u : part) << from % 8;
    if (m) {
        atomic_add_u64(at + from / 8 * 8, u >> 31 ? 0 - m : m);
    }
}

DEV float exact_sum(u64 at) {
    const u32 bits = load_u32(at + 8 * EXACT_BINS);
    double sum = 0;
    for (int b = EXACT_BINS - 1; b >= 0; b--) {
        const double unit = vm_double((u64)(1023 + 8 * b - 150) << 52);
        sum += (double)(i64)load_u64(at + (u64)b * 8) * unit;
    }
    return bits & EXACT_NAN || (bits & EXACT_PLUS && bits & EXACT_MINUS) ? VM_NAN
           : bits & EXACT_PLUS                                          ? VM_INF
           : bits & EXACT_MINUS                                         ? -VM_INF
                                                                        : (float)sum;
}

/* An element that one pair alone adds to. */
DEV void alone_add(u64 at, float x) {
    store_u32(at, bits_of(float_of(load_u32(at)) + x));
}

#endif
