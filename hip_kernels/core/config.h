/* config.h: what the host defines for a compile, each with its meaning, and what follows from it.

   Who includes it: target.h. Who defines: lib/gpu_kernel.c, gpu_fwd.c and gpu_bwd.c for a plan,
   tools/kernel_job.c by them for the standard list. All else (true sizes, strides, lengths, scale,
   sink, output type, packing, splits) is run-time and stands in params.h: a change of it compiles
   nothing. */
#ifndef ATTN_CONFIG_H
#define ATTN_CONFIG_H

/* Element type of q, k, v: their numbers. */
#define ATTN_F16 1
#define ATTN_BF16 2
#define ATTN_F32 3

#ifndef ATTN_TYPE
#error "ATTN_TYPE: ATTN_F16, ATTN_BF16 or ATTN_F32"
#endif
#ifndef ATTN_D /* compiled sizes of a row of q and k, of v and o: 32 64 96 128 192 256 */
#error "ATTN_D"
#endif
#ifndef ATTN_DV
#error "ATTN_DV"
#endif
/* Rows of a block: a multiple of 16 * warps (32 * waves). Where they are keys it divides 128, so
   that a block has one scale. */
#ifndef ATTN_BM
#error "ATTN_BM"
#endif
#ifndef ATTN_BN /* keys of a step: 32, 64 or 128; f32 by arch/sm80.h also 16; by
                   arch/sm90.h a multiple of 16 */
#error "ATTN_BN"
#endif
#ifndef ATTN_WARPS /* warps (waves) of a block that multiply */
#error "ATTN_WARPS"
#endif
#ifndef ATTN_STAGES /* K and V tiles that shared memory holds each: 1, 2, ... */
#error "ATTN_STAGES"
#endif

/* 1: the file "variant.h" defines attn_score, attn_mask, attn_class (core/score.h says how). */
#ifndef ATTN_HAS_SCORE
#define ATTN_HAS_SCORE 0
#endif
#ifndef ATTN_HAS_MASK
#define ATTN_HAS_MASK 0
#endif
#ifndef ATTN_HAS_DROPOUT
#define ATTN_HAS_DROPOUT 0
#endif
#ifndef ATTN_HAS_BLOCKS /* lists of visible key blocks */
#define ATTN_HAS_BLOCKS 0
#endif
#ifndef ATTN_HAS_SCALES /* q_scale, k_scale, v_scale */
#define ATTN_HAS_SCALES 0
#endif
#ifndef ATTN_PRODUCER /* 1: sched/producer.h, of sm_90a and 16-bit types; ATTN_BM is 64 a group */
#define ATTN_PRODUCER 0
#endif
/* Backward, attn_bwd.hip: rows of a block are queries (0) or keys (1), its steps the other; which
   sums it has: 1 dq or dk, 2 dv, 3 dk and dv. D and DV are compiled as the larger one. */
#ifndef ATTN_BACKWARD
#define ATTN_BACKWARD 0
#endif
#ifndef ATTN_KEY_ROWS
#define ATTN_KEY_ROWS 0
#endif
#ifndef ATTN_SUMS
#define ATTN_SUMS 1
#endif
/* 1: key rows (and 3 sums) give their parts of dq, too, which attn_bwd_dq.hip completes. */
#ifndef ATTN_FUSED
#define ATTN_FUSED 0
#endif
#ifndef ATTN_SPLIT /* warps that share rows and part their columns; more than 1: ATTN_FUSED alone */
#define ATTN_SPLIT 1
#endif
#ifndef ATTN_WGMMA /* fused: 1: products of groups of four warps, arch/sm90_grad.h; ATTN_BM is 64 a
                      group that shares no rows, ATTN_BN a multiple of 64 */
#define ATTN_WGMMA 0
#endif
#ifndef ATTN_ORDERED /* fused: 1: parts of dq are added in one order, core/order.h */
#define ATTN_ORDERED 0
#endif
#ifndef ATTN_HAS_GRADS /* of query rows, or fused: gradients of what the variant reads */
#define ATTN_HAS_GRADS 0
#endif
#ifndef ATTN_WORDS /* words of params.word */
#define ATTN_WORDS 1
#endif

#define ATTN_THREADS ((ATTN_WARPS + 4 * ATTN_PRODUCER) * TILE_LANES)
#define ATTN_WARP_ROWS (ATTN_BM / ATTN_WARPS * ATTN_SPLIT)
#define ATTN_BYTES (ATTN_TYPE == ATTN_F32 ? 4 : 2)

#endif
