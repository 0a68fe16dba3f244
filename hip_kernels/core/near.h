/* near.h: how scores are computed besides math.h's rules: what lib/gpu_text_score.c makes of nodes
   that the score depends on continuously, where half an ulp more or less is no other result.

   Who includes it: the text of a variant with a score. tanh is a polynomial up to NEAR_TANH, worst
   error 1.2 ulp, and vm_tanh above; a tile all of whose arguments are that small asks for the
   polynomial alone, and has the same bits. */
#ifndef ATTN_NEAR_H
#define ATTN_NEAR_H

#include "core/math.h"

#define NEAR_TANH 0.35f

/* |x| <= NEAR_TANH: x + x^3 times a polynomial of x^2. */
DEV float tanh_near(float x) {
    const float z = x * x;
    const float p = fma_f32(z, fma_f32(z, -0x1.929fdep-5f, 0x1.106164p-3f), -0x1.555394p-2f);
    return fma_f32(x * z, p, x);
}
DEV float tanh_any(float x) {
    const float far = vm_tanh(x), close = tanh_near(x);
    return vm_abs(x) <= NEAR_TANH ? close : far;
}

/* cap tanh(t), t = x scale gain, |t| <= NEAR_TANH: the same polynomial, of x itself, by x. */
DEV float cap_near(float x, float scale, float gain, float cap) {
    const float by = scale * gain, all = by * cap, k = by * by, z = x * x;
    const float a = all * (k * -0x1.555394p-2f), b = all * (k * k * 0x1.106164p-3f);
    const float c = all * (k * k * k * -0x1.929fdep-5f);
    return x * fma_f32(z, fma_f32(z, fma_f32(z, c, b), a), all);
}
DEV float cap_any(float x, float scale, float gain, float cap, float t) {
    const float far = cap * vm_tanh(t), close = cap_near(x, scale, gain, cap);
    return vm_abs(t) <= NEAR_TANH ? close : far;
}

/* (x scale) / by, of which `inverse` is 1 / by rounded. */
DEV float div_scaled(float x, float scale, float by, float inverse) {
    (void)by;
    return x * (scale * inverse);
}

#endif
