/* gfx90a.h: what MI200 chips have of their own. Who includes it: core/tile.h.

   The matrix instructions take 16-bit subnormals for 0. */
#ifndef ATTN_GFX90A_H
#define ATTN_GFX90A_H

/* p, at most 2^8 (softmax.h), becomes at most 2^15 as f16, and 0 below 2^-21. */
#define TILE_P_SCALE (ATTN_TYPE == ATTN_F16 ? 128.0f : 1.0f)

#include "arch/gfx9.h"

#endif
