/* gcn.h: the emulator's model of hip_kernels/isa/gcn.h: the same names, types and meaning.

   Who includes it: target.h of kernels that the host's compiler builds with ATTN_EMU (this folder
   is found before hip_kernels/); lib/emu/gcn.c for the table, whose functions do the work. */
#ifndef ATTN_GCN_H
#define ATTN_GCN_H

#include "common.h"

typedef struct b64 {
    unsigned w[2];
} __attribute__((aligned(8))) b64;

typedef struct attn_emu_gcn {
    attn_emu_common common;
    unsigned (*lane_read)(unsigned x, int lane), (*uniform)(unsigned x);
    unsigned (*perm_b32)(unsigned high, unsigned low, unsigned select);
    void (*buffer_load)(void *to, unsigned long long base, unsigned end, unsigned at,
                        unsigned bytes);
    /* type: GCN_F16, GCN_BF16, GCN_F32 of gcn.h in lib/emu/ */
    void (*mfma_32)(int type, float *d, const unsigned *a, const unsigned *b);
} attn_emu_gcn;

#ifdef ATTN_EMU /* in a kernel */

#define EMU_GCN ((const attn_emu_gcn *)(const void *)attn_emu)

DEV u32 uniform(u32 x) { return EMU_GCN->uniform(x); }
DEV u32 opaque(u32 x) { return x; }
DEV u32 lane_read(u32 x, int lane) { return EMU_GCN->lane_read(x, lane); }

/* -- Bytes ------------------------------------------------------------------------------------- */
DEV u32 perm_b32(u32 high, u32 low, u32 select) { return EMU_GCN->perm_b32(high, low, select); }
#define PERM_LOW  0x05040100u
#define PERM_HIGH 0x07060302u
DEV u32 pack_bf16_away(float lo, float hi) {
    return perm_b32(bits_of(hi) + 0x8000, bits_of(lo) + 0x8000, PERM_HIGH);
}

/* -- Two numbers of 16 bits to a word --------------------------------------------------------- */
#define EMU_PAIR(name, expression)                                                                 \
    DEV u32 name(u32 a, u32 b) {                                                                   \
        u32 to = 0;                                                                                \
        for (int shift = 0; shift < 32; shift += 16) {                                             \
            const u16 x = (u16)(a >> shift), y = (u16)(b >> shift);                                \
            to |= (u32)(u16)(expression) << shift;                                                 \
        }                                                                                          \
        return to;                                                                                 \
    }
EMU_PAIR(pk_max_u16, x > y ? x : y)
EMU_PAIR(pk_min_u16, x < y ? x : y)
EMU_PAIR(pk_sub_u16, x - y)
EMU_PAIR(pk_mul_f16, pack_f16(float_of_f16(x) * float_of_f16(y), 0))

/* -- Memory ------------------------------------------------------------------------------------ */
#define BUFFER_NOWHERE 0x80000000u
DEV b128 buffer_load_b128(u64 base, u32 bytes, u32 at) {
    b128 x;
    EMU_GCN->buffer_load(&x, base, bytes, at, sizeof x);
    return x;
}
DEV b64 buffer_load_b64(u64 base, u32 bytes, u32 at) {
    b64 x;
    EMU_GCN->buffer_load(&x, base, bytes, at, sizeof x);
    return x;
}
EMU_LOAD(shared_load_b64, shared_load, u32, b64, b64)
DEV void shared_store_b64(u32 at, b64 x) { attn_emu->shared_store(at, &x, sizeof x); }

/* -- Matrix products --------------------------------------------------------------------------- */
DEV void mfma_32x32x8_f16(float d[16], const u32 a[2], const u32 b[2]) {
    EMU_GCN->mfma_32(0, d, a, b);
}
DEV void mfma_32x32x8_bf16(float d[16], const u32 a[2], const u32 b[2]) {
    EMU_GCN->mfma_32(1, d, a, b);
}
DEV void mfma_32x32x2_f32(float d[16], float a, float b) {
    const u32 x = bits_of(a), y = bits_of(b);
    EMU_GCN->mfma_32(2, d, &x, &y);
}

/* -- Order: all that it changes is speed ------------------------------------------------------- */
#define wave_priority(n)      ((void)(n))
#define wait_loads()          ((void)0)
#define order_here()          ((void)0)

#endif
#endif
