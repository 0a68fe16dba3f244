/* gfx90a.h: what MI200 chips have of their own. Who includes it: core/tile.h.

   Their matrix instructions take 16-bit subnormals for 0. Those of f16 matter: p is scaled, and q,
   k and v are lifted (gfx9_lift.h). Of bf16 they are numbers below 2^-126, and count as 0. */
#ifndef ATTN_GFX90A_H
#define ATTN_GFX90A_H

#define GFX9_LIFTS (ATTN_TYPE == ATTN_F16)
#define GFX9_AHEAD 2 /* a product takes 64 clocks */

/* p, at most 2^8 (softmax.h), becomes at most 2^15 as f16, and 0 below 2^-21. */
#define TILE_P_SCALE (GFX9_LIFTS && !ATTN_BACKWARD ? 128.0f : 1.0f)
#define TILE_O_SCALE (GFX9_LIFTS && !ATTN_BACKWARD ? 1024.0f : 1.0f)

#include "arch/gfx9.h"

#endif
