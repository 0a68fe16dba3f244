/* vm_math.h: the arithmetic of variants on the host: hip_kernels/core/math.h, in the host's C.

   Who calls it: expr_eval.c (attn__op32: folding) and vm_lanes.h (a row at a time). */
#ifndef ATTN_VM_MATH_H
#define ATTN_VM_MATH_H

#include "../hip_kernels/core/types.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define DEV static inline

DEV u32 bits_of(float x) {
    u32 u;
    memcpy(&u, &x, sizeof u);
    return u;
}
DEV float float_of(u32 u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
DEV float sqrt_f32(float x) {
    return sqrtf(x);
}
DEV float div_near(float a, float b) {
    return a / b;
}

#include "../hip_kernels/core/math.h"

#undef DEV

#endif
