/* ptx.h: the emulator's model of hip_kernels/isa/ptx.h: the same names, types and meaning.

   Who includes it: target.h of kernels that the host's compiler builds with ATTN_EMU (this folder
   is found before hip_kernels/); lib/emu/ptx.c for the table, whose functions do the work. */
#ifndef ATTN_PTX_H
#define ATTN_PTX_H

#include "common.h"

typedef void attn_emu_mma(float *d0, float *d1, float *d2, float *d3, const unsigned *a,
                          unsigned b0, unsigned b1);

/* A product of a group, lib/emu/ptx_wgmma.c: d (64 x n) = a b, or d + a b if `add`. */
typedef struct attn_emu_wgmma {
    int n, bf16, add;
    int across;                /* b: n in its rows, not k */
    int a_across;              /* a in shared memory: m in its rows, not k */
    float *x, *y;              /* d: rows g and g + 8 */
    const unsigned *registers; /* a; NULL: it is in shared memory */
    unsigned long long a, b;   /* descriptors */
} attn_emu_wgmma;

typedef struct attn_emu_ptx {
    attn_emu_common common;
    void (*wait_u32)(unsigned long long at, unsigned x);
    void (*cp_async_16)(unsigned to, unsigned long long from, int bytes);
    void (*cp_async_commit)(void);
    void (*cp_async_wait)(int n);
    void (*ldmatrix_x4)(unsigned *x, unsigned at), (*ldmatrix_x4_trans)(unsigned *x, unsigned at);
    attn_emu_mma *mma_f16, *mma_bf16, *mma_tf32;
    /* isa/ptx_sm90.h */
    unsigned (*warp_from)(unsigned x, int lane);
    void (*registers)(int n, int more);
    void (*named_sync)(int id, int threads), (*named_arrive)(int id, int threads);
    void (*proxy_fence)(void), (*mbarrier_init_fence)(void);
    void (*mbarrier_init)(unsigned at, int count), (*mbarrier_arrive)(unsigned at);
    void (*mbarrier_expect)(unsigned at, int bytes);
    int (*mbarrier_try_wait)(unsigned at, unsigned parity);
    void (*tensor_load)(unsigned to, const void *map, unsigned barrier, const int from[4]);
    void (*tensor_store)(const void *map, unsigned from, const int to[4]);
    void (*store_commit)(void), (*store_wait_read)(void);
    void (*wgmma_fence)(void), (*wgmma_commit)(void), (*wgmma_wait)(int n);
    void (*wgmma)(const attn_emu_wgmma *w);
} attn_emu_ptx;

#ifdef ATTN_EMU /* in a kernel */

#define EMU_PTX ((const attn_emu_ptx *)(const void *)attn_emu)

DEV int warp_id(void) { return (int)EMU_PTX->warp_from((u32)(thread_id() / TILE_LANES), 0); }
DEV u32 atomic_next_u32(u64 at) {
    return __atomic_fetch_add((u32 *)(unsigned long)at, 1u, __ATOMIC_RELAXED);
}
DEV void wait_u32(u64 at, u32 x) {
    EMU_PTX->wait_u32(at, x);
}
DEV void store_release_u32(u64 at, u32 x) {
    __atomic_store_n((u32 *)(unsigned long)at, x, __ATOMIC_RELEASE);
}
DEV void cp_async_16(u32 to, u64 from, int bytes) {
    EMU_PTX->cp_async_16(to, from, bytes);
}
DEV void cp_async_commit(void) {
    EMU_PTX->cp_async_commit();
}
#define cp_async_wait(n) EMU_PTX->cp_async_wait(n)

DEV void ldmatrix_x4(u32 x[4], u32 at) {
    EMU_PTX->ldmatrix_x4(x, at);
}
DEV void ldmatrix_x4_trans(u32 x[4], u32 at) {
    EMU_PTX->ldmatrix_x4_trans(x, at);
}

#define EMU_MMA(name, call)                                                                        \
    DEV void name(float *d0, float *d1, float *d2, float *d3, const u32 a[4], u32 b0, u32 b1) {    \
        EMU_PTX->call(d0, d1, d2, d3, a, b0, b1);                                                  \
    }
EMU_MMA(mma_16x8x16_f16, mma_f16)
EMU_MMA(mma_16x8x16_bf16, mma_bf16)
EMU_MMA(mma_16x8x8_tf32, mma_tf32)

#endif
#endif
