/* target_gfx.c: AMD's chips: MI200 (gfx90a, one of its two dies) and MI300 (gfx942).

   Who calls it: target.c. Rows of a wave: 32. LDS has K and V, stages times:
   stages * bn * (D + DV) * bytes, 64 KB at most; q lies in registers. */
#include "target.h"

static const attn__tile_row gfx9_tiles[] = {
    {2, 64, {128, 64, 4, 2}}, {2, 128, {128, 32, 4, 2}}, {2, 256, {128, 32, 4, 1}},
    {4, 64, {128, 32, 4, 2}}, {4, 128, {128, 32, 4, 1}}, {4, 256, {128, 32, 4, 1}},
};

const attn__target attn__gfx90a = {.name = "gfx90a",
                                   .compiler = "hiprtc",
                                   .lanes = 64,
                                   .units = 104,
                                   .xcds = 1,
                                   .shared = 64 << 10,
                                   .tiles = gfx9_tiles};
const attn__target attn__gfx942 = {.name = "gfx942",
                                   .compiler = "hiprtc",
                                   .lanes = 64,
                                   .units = 304,
                                   .xcds = 8,
                                   .shared = 64 << 10,
                                   .tiles = gfx9_tiles};
