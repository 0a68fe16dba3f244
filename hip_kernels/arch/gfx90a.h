/* gfx90a.h: what MI200 chips have of their own. Who includes it: core/tile.h.

   The matrix instructions take 16-bit subnormals for 0. */
#ifndef ATTN_GFX90A_H
#define ATTN_GFX90A_H

/* p, at most 1, becomes at most 2^14 as f16, and 0 below 2^-28. */
#define TILE_P_SCALE (ATTN_TYPE == ATTN_F16 ? 16384.0f : 1.0f)

#include "arch/gfx9.h"

#endif
