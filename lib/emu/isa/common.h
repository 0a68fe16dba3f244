/* common.h: the part of the models of isa/ that all chips share: names that ptx.h and gcn.h of
   hip_kernels/isa/ have both, in the emulator's meaning.

   Who includes it: ptx.h and gcn.h beside it, hence compiled kernels; lib/emu/ for the table alone.
   A compiled kernel is a shared object with one function more than its kernels, attn_emu_bind, by
   which the library hands it a table of functions; they do the work (lib/emu/). A family's own
   table begins with this one. */
#ifndef ATTN_EMU_COMMON_H
#define ATTN_EMU_COMMON_H

typedef struct b128 {
    unsigned w[4];
} __attribute__((aligned(16))) b128;

typedef struct attn_emu_common {
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
    void (*atomic_add_u64)(unsigned long long at, unsigned long long x);
    void (*atomic_add_f32)(unsigned long long at, const float *x, int n, int flush);
    void (*atomic_or_u32)(unsigned long long at, unsigned x);
    void (*shared_load)(void *to, unsigned at, unsigned bytes);
    void (*shared_store)(unsigned at, const void *from, unsigned bytes);
} attn_emu_common;

/* A thread's stack lies in a region that is aligned to all stacks' size: emu_core.h. */
#define EMU_STACK_BITS 18

#ifdef ATTN_EMU /* in a kernel */

static const attn_emu_common *attn_emu;
void attn_emu_bind(const void *table);
void attn_emu_bind(const void *table) { attn_emu = (const attn_emu_common *)table; }

/* -- Where am I -------------------------------------------------------------------------------- */
DEV int thread_id(void) {
    return (int)((unsigned long)__builtin_frame_address(0) >> EMU_STACK_BITS & 1023);
}
DEV int lane_id(void) { return thread_id() % TILE_LANES; }
#if TILE_LANES == 64 /* ptx.h has its own: there all lanes must ask */
DEV int warp_id(void) { return thread_id() / TILE_LANES; }
#endif
DEV i64 block_id(void) { return attn_emu->block(); }
DEV i64 grid_size(void) { return attn_emu->grid(); }

/* -- Meeting ----------------------------------------------------------------------------------- */
DEV void block_sync(void) { attn_emu->block_sync(); }
DEV void warp_sync(void) { attn_emu->warp_sync(); }
DEV float lane_xor(float x, int mask) { return attn_emu->lane_xor(x, mask); }
DEV u64 warp_ballot(int x) { return attn_emu->warp_ballot(x); }

/* -- Arithmetic -------------------------------------------------------------------------------- */
DEV u32 bits_of(float x) {
    u32 u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}
DEV float float_of(u32 u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}
DEV float fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float abs_f32(float x) { return __builtin_fabsf(x); }
DEV void fma_two(float x[2], float a, float b) {
    x[0] = fma_f32(x[0], a, b);
    x[1] = fma_f32(x[1], a, b);
}
DEV void add_two(float x[2], const float y[2]) {
    x[0] += y[0];
    x[1] += y[1];
}
DEV float max_nan(float a, float b) { return attn_emu->max_nan(a, b); }
DEV float max_num(float a, float b) { return attn_emu->max_num(a, b); }
DEV float exp2_fast(float x) { return attn_emu->exp2_fast(x); }
DEV float rcp_fast(float x) { return attn_emu->rcp_fast(x); }
DEV float sqrt_f32(float x) { return __builtin_sqrtf(x); }
DEV float div_f32(float a, float b) { return a / b; }
DEV float div_near(float a, float b) { return a / b; }
DEV float div_const(float a, float b, float y) {
    (void)y;
    return a / b;
}
DEV int first_bit(u64 x) { return __builtin_ctzll(x); }
#define ISA_FORGETS 1
DEV u32 forget(u32 x) { return x; }
DEV u32 mul_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEV u64 mul_high_u64(u64 a, u64 b) {
    const u64 low = (u64)(u32)a * (u32)b, one = (a >> 32) * (u32)b + (low >> 32);
    const u64 two = (u64)(u32)a * (b >> 32) + (u32)one;
    return (a >> 32) * (b >> 32) + (one >> 32) + (two >> 32);
}

/* -- Rounding ---------------------------------------------------------------------------------- */
DEV u32 pack_f16(float lo, float hi) { return attn_emu->pack_f16(lo, hi); }
DEV u32 pack_bf16(float lo, float hi) { return attn_emu->pack_bf16(lo, hi); }
DEV float float_of_f16(u32 x) { return attn_emu->float_of_f16(x); }
DEV float float_of_bf16(u32 x) { return float_of(x << 16); }

/* -- Memory ------------------------------------------------------------------------------------ */
#define EMU_LOAD(name, call, place, type, own)                                                     \
    DEV type name(place at) {                                                                      \
        own x;                                                                                     \
        attn_emu->call(&x, at, sizeof x);                                                          \
        return x;                                                                                  \
    }
#define EMU_STORE(name, call, place, type, own)                                                    \
    DEV void name(place at, type x) {                                                              \
        const own y = (own)x;                                                                      \
        attn_emu->call(at, &y, sizeof y);                                                          \
    }
/* A word that may be read where nothing is wanted; p: into the kernel's parameters. */
DEV u64 readable(const void *p) { return (u64)p; }
EMU_LOAD(load_u8, load, u64, u32, u8)
EMU_LOAD(load_u16, load, u64, u32, u16)
EMU_LOAD(load_u32, load, u64, u32, u32)
EMU_LOAD(load_u64, load, u64, u64, u64)
EMU_LOAD(load_b128, load, u64, b128, b128)
EMU_STORE(store_u16, store, u64, u32, u16)
EMU_STORE(store_u32, store, u64, u32, u32)
DEV void atomic_add_u64(u64 at, u64 x) { attn_emu->atomic_add_u64(at, x); }
#if ATTN_HAS_ADD_4
#define ISA_ADDS 4
#else
#define ISA_ADDS 1
#endif
/* gfx942 alone adds subnormals: PTX 9.7.13.6 red; what LLVM says of gfx90a. */
DEV void atomic_add_f32(u64 at, const float *x) {
    attn_emu->atomic_add_f32(at, x, ISA_ADDS, ATTN_CHIP != 0x942);
}
DEV void atomic_or_u32(u64 at, u32 x) { attn_emu->atomic_or_u32(at, x); }
DEV void store_b128(u64 at, b128 x) { attn_emu->store(at, &x, sizeof x); }
EMU_LOAD(shared_load_u32, shared_load, u32, u32, u32)
EMU_LOAD(shared_load_b128, shared_load, u32, b128, b128)
EMU_STORE(shared_store_u16, shared_store, u32, u32, u16)
EMU_STORE(shared_store_u32, shared_store, u32, u32, u32)
DEV void shared_store_b128(u32 at, b128 x) { attn_emu->shared_store(at, &x, sizeof x); }

#endif
#endif
