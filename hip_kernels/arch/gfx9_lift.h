/* gfx9_lift.h: f16 on chips whose products take subnormals, numbers below 2^-14, for 0.

   Who includes it: gfx9.h; with GFX9_LIFTS 0 nothing of it stays. Times 2^10 a subnormal is normal,
   and that is exact for numbers below 64. So the lanes that bring a tile look at its numbers, tell
   the block through shared memory, and products are chosen by what they saw:

       all below 64                LIFT_UP     of x 2^10; the result is brought down (o at last)
       64 and more, no subnormal   LIFT_NONE   of x
       both (v: 64 and more)       LIFT_EXACT  in f32, four times as slow                         */
#ifndef ATTN_GFX9_LIFT_H
#define ATTN_GFX9_LIFT_H

enum { LIFT_NONE, LIFT_UP, LIFT_EXACT };

/* Of two halves: the largest |x|, the smallest |x| - 1 (0 becomes the largest), as bits. */
typedef struct lift_seen {
    u32 most, least;
} lift_seen;

DEV lift_seen lift_nothing(void) {
    const lift_seen seen = {0, 0xffffffffu};
    return seen;
}

DEV void lift_see(lift_seen *seen, const u32 *w, int words) {
    UNROLL
    for (int i = 0; GFX9_LIFTS && i < words; i++) {
        const u32 x = w[i] & 0x7fff7fffu;
        seen->most = pk_max_u16(seen->most, x);
        seen->least = pk_min_u16(seen->least, pk_sub_u16(x, 0x00010001u));
    }
}

/* Of a wave: 1 has 64 or more, 2 has subnormals. */
DEV u32 lift_bits(const lift_seen *seen) {
    const u32 most = seen->most, least = seen->least;
    const int large = (most & 0xffff) >= 0x5400 || most >> 16 >= 0x5400;
    const int small = (least & 0xffff) < 0x3ff || least >> 16 < 0x3ff;
    return GFX9_LIFTS ? (u32)warp_any(large) | (u32)warp_any(small) << 1 : 0;
}
DEV int lift_how(u32 bits) {
    return !GFX9_LIFTS ? LIFT_NONE : !(bits & 1) ? LIFT_UP : bits & 2 ? LIFT_EXACT : LIFT_NONE;
}

/* A wave's word of what was seen of a stage. */
DEV u32 lift_at(int what, int stage, int wave) {
    return (u32)(LIFT_AT + (((what == RING_V) * ATTN_STAGES + stage) * ATTN_WARPS + wave) * 4);
}
DEV void lift_tell(const lift_seen *seen, int what, int stage) {
    const u32 bits = lift_bits(seen);
    if (GFX9_LIFTS && lane_id() == 0) {
        shared_store_u32(lift_at(what, stage, warp_id()), bits);
    }
}
DEV int lift_told(int what, int stage) {
    u32 bits = 0;
    UNROLL
    for (int wave = 0; GFX9_LIFTS && wave < ATTN_WARPS; wave++) {
        bits |= shared_load_u32(lift_at(what, stage, wave));
    }
    return lift_how(uniform(bits));
}

/* Words of an operand: times 2^10, or times 1. */
DEV void lift_up(u32 *w, int words, int how) {
    UNROLL
    for (int i = 0; GFX9_LIFTS && i < words; i++) {
        w[i] = pk_mul_f16(w[i], how == LIFT_UP ? 0x64006400u : 0x3c003c00u);
    }
}
DEV float lift_down(int how) {
    return how == LIFT_UP ? 0x1p-10f : 1;
}

#endif
