/* gcn.c: the model of the instructions of hip_kernels/isa/gcn.h: lanes meet here, and the work is
   that of gcn_lane.c and gcn_mfma.c.

   Who calls it: a compiled kernel through the table at the end (isa/gcn.h). */
#include "gcn.h"

#include <math.h>
#include <string.h>

#include "../attn_int.h"
#include "emu_common.h"
#include "isa/gcn.h"

/* -- Arithmetic of one lane -------------------------------------------------------------------- */
static float max_num(float a, float b) { return fmaxf(a, b); }
static float max_nan(float a, float b) { return isunordered(a, b) ? NAN : fmaxf(a, b); }

static unsigned pack_f16(float lo, float hi) {
    return attn__f32_to_f16(lo) | (unsigned)attn__f32_to_f16(hi) << 16;
}
static unsigned pack_bf16(float lo, float hi) {
    return attn__f32_to_bf16(lo) | (unsigned)attn__f32_to_bf16(hi) << 16;
}
static float float_of_f16(unsigned x) { return attn__f16_to_f32((uint16_t)x); }

/* -- Between lanes ----------------------------------------------------------------------------- */
typedef struct one_word {
    uint32_t x, at;
} one_word;

static void read_lanes(void *const *lane) {
    uint32_t to[GCN_LANES], at[GCN_LANES], x[GCN_LANES];

    for (int l = 0; l < GCN_LANES; l++) {
        x[l] = ((const one_word *)lane[l])->x;
        at[l] = ((const one_word *)lane[l])->at;
    }
    attn__gcn_bpermute(to, at, x);
    for (int l = 0; l < GCN_LANES; l++) {
        ((one_word *)lane[l])->x = to[l];
    }
}

static unsigned lane_read(unsigned x, int lane) {
    one_word mine = {x, (uint32_t)lane * 4};

    attn__emu_meet("ds_bpermute_b32", read_lanes, &mine);
    return mine.x;
}

/* v_readfirstlane_b32: what is said to be the same in all lanes must be. */
static void same_word(void *const *lane) {
    const uint32_t first = *(const unsigned *)lane[0];

    for (int l = 1; l < GCN_LANES; l++) {
        const uint32_t own = *(const unsigned *)lane[l];
        if (own != first) {
            attn__emu_fault(attn__emu_warp_first() + l, "has 0x%x as uniform, lane 0 has 0x%x", own,
                            first);
        }
    }
}

static unsigned uniform(unsigned x) {
    attn__emu_meet("v_readfirstlane_b32", same_word, &x);
    return x;
}

/* -- Buffers: the first lane's counts ---------------------------------------------------------- */
typedef struct buffer {
    unsigned long long base;
    unsigned end;
} buffer;

static void same_buffer(void *const *lane) {
    const buffer *const first = lane[0];

    for (int l = 1; l < GCN_LANES; l++) {
        const buffer *const own = lane[l];
        if (own->base != first->base || own->end != first->end) {
            attn__emu_fault(attn__emu_warp_first() + l,
                            "loads from a buffer of %u bytes at 0x%llx, lane 0 from one of %u at "
                            "0x%llx",
                            own->end, own->base, first->end, first->base);
        }
    }
}

static void buffer_load(void *to, unsigned long long base, unsigned end, unsigned at,
                        unsigned bytes) {
    buffer own = {base, end};

    attn__emu_meet("buffer_load", same_buffer, &own);
    if (at >= end) {
        memset(to, 0, bytes);
        return;
    }
    if (end < bytes || at > end - bytes) {
        attn__emu_fault(attn__emu_thread(), "loads %u bytes at 0x%x of a buffer of %u bytes", bytes,
                        at, end);
    }
    memcpy(to, attn__emu_load(base + at, bytes), bytes);
}

/* -- Matrix products --------------------------------------------------------------------------- */
typedef struct operands {
    int type;
    float *d;
    const uint32_t *a, *b;
} operands;

static void multiply(void *const *lane) {
    const operands *first = lane[0];
    gcn_mfma x = {.chip = attn__emu_chip(), .type = first->type, .n = 32};

    for (int l = 0; l < GCN_LANES; l++) {
        const operands *own = lane[l];
        x.a[l] = own->a;
        x.b[l] = own->b;
        x.d[l] = own->d;
    }
    attn__gcn_mfma(&x);
    attn__emu_matrix(2 * 32 * 32 * (x.type == GCN_F32 ? 2 : 8));
}

static void mfma_32(int type, float *d, const unsigned *a, const unsigned *b) {
    static const char *const names[] = {"mfma_32x32x8_f16", "mfma_32x32x8_bf16",
                                        "mfma_32x32x2_f32"};
    operands mine = {type, d, a, b};

    attn__emu_meet(names[type], multiply, &mine);
}

/* -- Shared memory ----------------------------------------------------------------------------- */
static void banks(const uint32_t *at, int n, int bytes, int write) {
    const int wide = bytes < 4 ? 4 : bytes, phase = 128 / wide;
    uint32_t in_turn[GCN_LANES];
    uint8_t order[GCN_LANES];
    int least = 0, cycles = 0;

    attn__gcn_phases(order, wide, write);
    for (int l = 0; l < GCN_LANES; l++) {
        in_turn[l] = order[l] < n ? at[order[l]] : (uint32_t)EMU_AWAY;
    }
    for (int l = 0; l < GCN_LANES; l += phase) {
        const int took = attn__emu_phase(in_turn + l, phase, bytes);
        least += took > 0;
        cycles += took;
    }
    attn__emu_access(least, cycles);
}

static const attn_emu_gcn table = {
    .common = {EMU_COMMON, .max_nan = max_nan, .max_num = max_num, .exp2_fast = attn__gcn_exp2,
               .rcp_fast = attn__gcn_rcp, .pack_f16 = pack_f16, .pack_bf16 = pack_bf16,
               .float_of_f16 = float_of_f16},
    .lane_read = lane_read,
    .uniform = uniform,
    .perm_b32 = attn__gcn_perm,
    .buffer_load = buffer_load,
    .mfma_32 = mfma_32,
};

const attn__emu_family attn__emu_gcn = {.lanes = GCN_LANES, .api = &table, .banks = banks};
