/* sm.h: what the products of all NVIDIA chips have in common: who holds what, and chunks of rows.

   Who includes it: sm80.h, sm90.h. A warp's tile is 16 rows high, once or twice; g = lane / 4 and
   t = lane % 4: a lane has rows g and g + 8 of each, and of 8 columns 2t and 2t + 1. */
#ifndef ATTN_SM_H
#define ATTN_SM_H

enum {
    CHUNK = 16 / ATTN_BYTES /* elements of 16 bytes */
};

#define TILE_ROWS         (ATTN_WARP_ROWS / 8)
#define TILE_COLS(n)      ((n) / (4 * ATTN_SPLIT))
#define TILE_LATE         (!ATTN_BACKWARD && ATTN_TYPE != ATTN_F32)
#define TILE_P_SCALE      1.0f
#define TILE_CHAINS       (ATTN_PRODUCER ? 2 : 1)
#define TILE_DROP_CALLS   1
#define TILE_DROP_CALL(c) 0

#include "core/tile_sums.h"

/* The first of the warp's rows; which columns it has of those that warps share. */
#if ATTN_WGMMA
/* A group's warps have rows that follow each other and the same columns: neighbouring ones. */
enum { WARPS_APART = ATTN_WARPS / ATTN_SPLIT };
DEV int warp_row(void) {
    return thread_id() / TILE_LANES % WARPS_APART * ATTN_WARP_ROWS;
}
DEV int warp_part(void) {
    return thread_id() / TILE_LANES / WARPS_APART;
}
#else
DEV int warp_row(void) {
    return thread_id() / (TILE_LANES * ATTN_SPLIT) * ATTN_WARP_ROWS;
}
DEV int warp_part(void) {
    return thread_id() / TILE_LANES % ATTN_SPLIT;
}
#endif
/* From the lane's first row to its row r. */
#define TILE_DOWN(r) ((r) / 2 * 16 + (r) % 2 * 8)
DEV int tile_row(int r) {
    return warp_row() + TILE_DOWN(r) + lane_id() / 4;
}
/* How many of a lane's columns lie at most `right` behind its first one. */
#define TILE_COUNTS (ATTN_SPLIT == 1)
DEV i32 tile_count(i32 right) {
    return right < 0 ? 0 : (right >> 3) * 2 + (right & 7 ? 2 : 1);
}
/* Column c of a lane whose warp has the columns of 16 from `first` on, every `each`-th. */
DEV int lane_col(int c, int first, int each) {
    return (c / 4 * each + first) * 16 + c / 2 % 2 * 8 + c % 2 + lane_id() % 4 * 2;
}
#if ATTN_WGMMA
#define TILE_OUT 1
DEV int tile_col(int c) {
    return lane_col(c, warp_part() * (ATTN_BN / 16 / ATTN_SPLIT), 1);
}
DEV int tile_out(int c) {
    return lane_col(c, warp_part() * (ATTN_DV / 16 / ATTN_SPLIT), 1);
}
#else
DEV int tile_col(int c) {
    return lane_col(c, warp_part(), ATTN_SPLIT);
}
#endif

/* -- Across lanes ------------------------------------------------------------------------------ */

/* Columns c of a warp, of which lanes 4 g .. 4 g + 3 each look at TILE_OWN for all: those that they
   have from g * TILE_OWN on. */
#define TILE_SPREADS 1
#define TILE_OWN     ((TILE_COLS(ATTN_BN) + 7) / 8)
DEV int tile_own(int n) {
    return tile_col(lane_id() / 4 * TILE_OWN + n);
}
DEV u32 tile_spread(const u32 own[TILE_OWN], int c) {
    return bits_of(lane_xor(float_of(own[c % TILE_OWN]), (lane_id() ^ c / TILE_OWN * 4) & 28));
}

DEV float row_max(float x) {
    x = max_nan(x, lane_xor(x, 1));
    return max_nan(x, lane_xor(x, 2));
}
DEV float row_sum(float x) {
    x += lane_xor(x, 1);
    return x + lane_xor(x, 2);
}

#define TILE_SHARE 4
DEV int row_lane(void) {
    return lane_id() % 4;
}
DEV float row_from(float x, int i) {
    return lane_xor(x, row_lane() ^ i);
}

/* Of four chunks of 8 columns a lane has word t each; turned: all four words of chunk t. */
#define TILE_TURNS 1
DEV void tile_turn(u32 w[4]) {
    const int t = lane_id() % 4;
    UNROLL for (int d = 1; d <= 2; d *= 2) {
        UNROLL for (int j = 0; j < 4; j++) {
            if (!(j & d)) {
                const u32 got = bits_of(lane_xor(float_of(t & d ? w[j] : w[j | d]), d));
                w[j] = t & d ? got : w[j];
                w[j | d] = t & d ? w[j | d] : got;
            }
        }
    }
}

/* -- Chunks ------------------------------------------------------------------------------------ */

/* Elements of chunk c of a row of `from`. */
DEV int chunk_elements(const tile_rows *from, u32 c) {
    const int n = from->cols - (int)c * CHUNK;
    return n < 0 ? 0 : n > CHUNK ? CHUNK : n;
}

/* n elements from device memory, the rest of the chunk 0. */
DEV b128 load_elements(u64 from, int n) {
    b128 x = {{0, 0, 0, 0}};
    UNROLL for (int e = 0; e < CHUNK; e++) {
        if (e < n) {
#if ATTN_TYPE == ATTN_F32
            x.w[e] = load_u32(from + (u64)e * 4);
#else
            x.w[e / 2] |= load_u16(from + (u64)e * 2) << e % 2 * 16;
#endif
        }
    }
    return x;
}

#if ATTN_PRODUCER || ATTN_WGMMA
/* wgmma: registers of a product before it begins and after it has ended. */
DEV void tile_pin_s(tile_s *s) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            pin(&s->x[r][c]);
        }
    }
}
DEV void tile_pin_o(tile_o *o) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_DV); c++) {
            pin(&o->x[r][c]);
        }
    }
}
#endif

#endif
