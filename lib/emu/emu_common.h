/* emu_common.h: the functions behind isa/common.h, where chips do not differ.

   Who includes it: ptx.c and gcn.c, whose tables begin with EMU_COMMON, and then
   exp2_fast and others of their own. */
#ifndef ATTN_EMU_COMMON_C_H
#define ATTN_EMU_COMMON_C_H

#include "emu.h"

#include "isa/common.h"

long long attn__emu_api_block(void);
long long attn__emu_api_grid(void);
void attn__emu_warp_sync(void);
float attn__emu_lane_xor(float x, int mask);
unsigned long long attn__emu_warp_ballot(int x);
void attn__emu_api_load(void *to, unsigned long long at, unsigned bytes);
void attn__emu_api_store(unsigned long long at, const void *from, unsigned bytes);
void attn__emu_atomic_add_u64(unsigned long long at, unsigned long long x);
void attn__emu_atomic_add_f32(unsigned long long at, const float *x, int n, int flush);
void attn__emu_atomic_or_u32(unsigned long long at, unsigned x);
void attn__emu_api_shared_load(void *to, unsigned at, unsigned bytes);
void attn__emu_api_shared_store(unsigned at, const void *from, unsigned bytes);

#define EMU_COMMON                                                                                 \
    .block = attn__emu_api_block, .grid = attn__emu_api_grid, .block_sync = attn__emu_block_sync,  \
    .warp_sync = attn__emu_warp_sync, .lane_xor = attn__emu_lane_xor,                              \
    .warp_ballot = attn__emu_warp_ballot, .load = attn__emu_api_load,                              \
    .store = attn__emu_api_store, .atomic_add_u64 = attn__emu_atomic_add_u64,                      \
    .atomic_add_f32 = attn__emu_atomic_add_f32, .atomic_or_u32 = attn__emu_atomic_or_u32,          \
    .shared_load = attn__emu_api_shared_load, .shared_store = attn__emu_api_shared_store

static inline uint32_t emu_bits(float x) {
    uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}
static inline float emu_float(uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}
/* A subnormal number's sign alone. */
static inline float emu_flush(float x) {
    const uint32_t u = emu_bits(x);
    return u & 0x7f800000u ? x : emu_float(u & 0x80000000u);
}

#endif
