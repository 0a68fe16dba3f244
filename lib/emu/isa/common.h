/* common.h: the part of the models of isa/ that all chips share: names that ptx.h and gcn.h of
   hip_kernels/isa/ have both, in the emulator's meaning.

   Who includes it: isa/ptx.h and isa/gcn.h beside it, hence compiled kernels; lib/emu/ for the table.
   A compiled kernel is a shared object with one function more than its kernels, attn_emu_bind, by
   which the library hands it a table of functions; they do the work (lib/emu/). */
#ifndef ATTN_EMU_COMMON_H
#define ATTN_EMU_COMMON_H

typedef struct b128 {
    unsigned w[4];
} __attribute__((aligned(16))) b128;

/* What every chip has. A family's own table begins with it. */
typedef struct attn_emu_common {
    int (*thread)(void);
    long long (*block)(void), (*grid)(void);
    void (*block_sync)(void), (*warp_sync)(void);
    float (*lane_xor)(float x, int mask);
    unsigned long long (*warp_ballot)(int x);
    float (*max_nan)(float a, float b), (*max_num)(float a, float b);
    float (*exp2_fast)(float x), (*rcp_fast)(float x);
    unsigned (*pack_f16)(float lo, float hi), (*pack_bf16)(float lo, float hi);
    float (*float_of_f16)(unsigned x);
    void (*load)(void *to, unsigned long long at, unsigned bytes);
    void (*store)(unsigned long long at, const void *from, unsigned bytes);
    void (*shared_load)(void *to, unsigned at, unsigned bytes);
    void (*shared_store)(unsigned at, const void *from, unsigned bytes);
} attn_emu_common;

#endif
