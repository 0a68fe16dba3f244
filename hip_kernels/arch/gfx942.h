/* gfx942.h: what MI300 chips have of their own. Who includes it: core/tile.h. */
#ifndef ATTN_GFX942_H
#define ATTN_GFX942_H

#define GFX9_LIFTS   0
#define GFX9_AHEAD   (ATTN_BACKWARD ? 2 : 4) /* a product takes 32 clocks; registers are few */
#define TILE_P_SCALE 1.0f
#define TILE_O_SCALE 1.0f

#include "arch/gfx9.h"

#endif
