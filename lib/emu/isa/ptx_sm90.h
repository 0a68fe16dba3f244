/* ptx_sm90.h: the emulator's model of hip_kernels/isa/ptx_sm90.h: the same names, types and
   meaning.

   Who includes it: target.h of kernels for sm_90a that the host's compiler builds with ATTN_EMU;
   behind ptx.h, whose table has these functions, too. */
#ifndef ATTN_PTX_SM90_H
#define ATTN_PTX_SM90_H

/* -- Groups ------------------------------------------------------------------------------------ */
DEV int group_id(void) { return (int)EMU_PTX->warp_from((u32)(thread_id() / 128), 0); }
DEV u32 warp_from(u32 x, int lane) { return EMU_PTX->warp_from(x, lane); }
DEV u32 warp_same(u32 x) { return warp_from(x, 0); }
#define regs_more(n) EMU_PTX->registers(n, 1)
#define regs_less(n) EMU_PTX->registers(n, 0)
DEV void named_sync(int id, int threads) { EMU_PTX->named_sync(id, threads); }
DEV void named_arrive(int id, int threads) { EMU_PTX->named_arrive(id, threads); }
DEV void proxy_fence(void) { EMU_PTX->proxy_fence(); }

#define EMU_SPOIL(name, exponent)                                                                  \
    DEV u32 name(u32 w, u32 bad) {                                                                \
        const u32 low = (w & (exponent)) == (exponent) ? 0x7fffu : 0;                              \
        const u32 high = (w >> 16 & (exponent)) == (exponent) ? 0x7fffu : 0;                       \
        return bad | high << 16 | low;                                                             \
    }
EMU_SPOIL(spoil_bf16, 0x7f80u)
EMU_SPOIL(spoil_f16, 0x7c00u)

/* -- mbarrier ---------------------------------------------------------------------------------- */
DEV void mbarrier_init(u32 at, int count) { EMU_PTX->mbarrier_init(at, count); }
DEV void mbarrier_init_fence(void) { EMU_PTX->mbarrier_init_fence(); }
DEV void mbarrier_arrive(u32 at) { EMU_PTX->mbarrier_arrive(at); }
DEV void mbarrier_expect(u32 at, int bytes) { EMU_PTX->mbarrier_expect(at, bytes); }
DEV int mbarrier_try_wait(u32 at, u32 parity) { return EMU_PTX->mbarrier_try_wait(at, parity); }
DEV void mbarrier_wait(u32 at, u32 parity) {
    while (!mbarrier_try_wait(at, parity)) {
    }
}

/* -- TMA --------------------------------------------------------------------------------------- */
DEV void tensor_prefetch(const tensor_map *map) { (void)map; }
DEV void tensor_load_4d(u32 to, const tensor_map *map, u32 barrier, i32 c0, i32 c1, i32 c2,
                        i32 c3) {
    const i32 from[4] = {c0, c1, c2, c3};
    EMU_PTX->tensor_load(to, map, barrier, from);
}
DEV void tensor_store_4d(const tensor_map *map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3) {
    const i32 to[4] = {c0, c1, c2, c3};
    EMU_PTX->tensor_store(map, from, to);
}
DEV void store_commit(void) { EMU_PTX->store_commit(); }
DEV void store_wait_read(void) { EMU_PTX->store_wait_read(); }

/* -- wgmma ------------------------------------------------------------------------------------- */
DEV void wgmma_fence(void) { EMU_PTX->wgmma_fence(); }
DEV void wgmma_commit(void) { EMU_PTX->wgmma_commit(); }
#define wgmma_wait(n) EMU_PTX->wgmma_wait(n)
DEV void pin(float *x) { (void)x; }
DEV u64 wgmma_desc(u32 at, u32 leading, u32 stride) {
    return (u64)1 << 62 | (u64)(stride >> 4) << 32 | (u64)(leading >> 4) << 16 |
           (u64)((at & 0x3ffffu) >> 4);
}

#define EMU_WGMMA_SS(n_, type, is_bf16)                                                            \
    DEV void wgmma_64x##n_##x16_ss_##type(float *x, float *y, u64 a, u64 b, int add) {             \
        const attn_emu_wgmma w = {                                                                 \
            .n = n_, .bf16 = is_bf16, .add = add, .x = x, .y = y, .a = a, .b = b};                 \
        EMU_PTX->wgmma(&w);                                                                        \
    }
#define EMU_WGMMA_RS(n_, type, is_bf16)                                                            \
    DEV void wgmma_64x##n_##x16_rs_##type(float *x, float *y, const u32 a[4], u64 b) {             \
        const attn_emu_wgmma w = {.n = n_, .bf16 = is_bf16, .add = 1, .across = 1, .x = x,         \
                                  .y = y, .registers = a, .b = b};                                 \
        EMU_PTX->wgmma(&w);                                                                        \
    }
#define EMU_WGMMA_TT(n_, type, is_bf16)                                                            \
    DEV void wgmma_64x##n_##x16_tt_##type(float *x, float *y, u64 a, u64 b, int add) {             \
        const attn_emu_wgmma w = {.n = n_, .bf16 = is_bf16, .add = add, .across = 1,               \
                                  .a_across = 1, .x = x, .y = y, .a = a, .b = b};                  \
        EMU_PTX->wgmma(&w);                                                                        \
    }
#define EMU_WGMMA_KEYS(n)                                                                          \
    EMU_WGMMA_SS(n, f16, 0)                                                                        \
    EMU_WGMMA_SS(n, bf16, 1)
#define EMU_WGMMA_COLUMNS(n)                                                                       \
    EMU_WGMMA_RS(n, f16, 0)                                                                        \
    EMU_WGMMA_RS(n, bf16, 1)
#define EMU_WGMMA_TURNED(n)                                                                        \
    EMU_WGMMA_TT(n, f16, 0)                                                                        \
    EMU_WGMMA_TT(n, bf16, 1)
EMU_WGMMA_KEYS(32)
EMU_WGMMA_KEYS(48)
EMU_WGMMA_KEYS(64)
EMU_WGMMA_KEYS(80)
EMU_WGMMA_KEYS(96)
EMU_WGMMA_KEYS(112)
EMU_WGMMA_KEYS(128)
EMU_WGMMA_KEYS(160)
EMU_WGMMA_KEYS(176)
EMU_WGMMA_KEYS(192)
EMU_WGMMA_COLUMNS(32)
EMU_WGMMA_COLUMNS(64)
EMU_WGMMA_COLUMNS(96)
EMU_WGMMA_COLUMNS(128)
EMU_WGMMA_COLUMNS(192)
EMU_WGMMA_COLUMNS(256)
EMU_WGMMA_TURNED(32)
EMU_WGMMA_TURNED(64)

#endif
