/* grads.h: the parameters of attn_bwd_grads.hip, one struct for host and device.

   Who includes it: attn_bwd_grads.hip, lib/gpu_grads.c. */
#ifndef ATTN_GRADS_H
#define ATTN_GRADS_H

enum { GRADS_CLEAR, GRADS_CLEAR_SUMS, GRADS_FINISH };

typedef struct attn_grads_params {
    u64 grad, sums; /* f32; elements of exact.h in row-major order */
    i64 n[4], st[4]; /* extents; bytes from one to the next */
    i32 what, unused;
} attn_grads_params;

#endif
