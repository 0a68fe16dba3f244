/* lanes.h: what all lanes of a warp say together.

   Who includes it: tile.h, results.h. */
#ifndef ATTN_LANES_H
#define ATTN_LANES_H

/* 1 if x is not 0 in a lane of the warp. */
DEV int warp_any(int x) {
    return warp_ballot(x) != 0;
}

/* Over all lanes; the same bits in each. */
DEV float warp_sum(float x) {
    UNROLL for (int mask = 1; mask < TILE_LANES; mask *= 2) {
        x += lane_xor(x, mask);
    }
    return x;
}

#endif
