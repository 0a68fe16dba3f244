/* alone.h: config.h's numbers for kernels that multiply no tiles: only ATTN_WARPS means something.

   Who includes it: attn_combine.hip, attn_clear.hip, attn_bwd_rows.hip, attn_bwd_sink.hip and
   attn_bwd_grads.hip, before target.h. */
#ifndef ATTN_TYPE
#define ATTN_TYPE   1
#define ATTN_D      32
#define ATTN_DV     32
#define ATTN_BM     16
#define ATTN_BN     32
#define ATTN_STAGES 1
#endif
