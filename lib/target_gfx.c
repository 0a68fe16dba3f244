/* target_gfx.c: AMD's chips: MI200 (gfx90a: a die of an MI250 or the one of an MI210; a die of an
   MI250X has 110 CUs) and MI300 (gfx942).

   Who calls it: target.c. Rows of a wave: 32. LDS has K and V, stages times:
   stages * bn * (D + DV) * bytes; q lies in registers. Loads pass through registers, so a second
   stage would hide nothing more: one. Two blocks share the 64 KB of a CU where registers, of which
   tools/budget.txt tells every kernel's, leave room for two waves of a SIMD unit: D and DV together
   up to 256, and 192 128, which 64 keys would take it from. f16 of gfx90a has a few more bytes of
   LDS (gfx9_lift.h), so that 64 keys of 256 columns do not fit. */
#include "target.h"

static const attn__tile_row gfx90a_tiles[] = {
    {2, 32, {128, 128, 4, 1}},
    {2, 128, {128, 64, 4, 1}},
    {2, 256, {128, 32, 4, 1}},
    {4, 256, {128, 32, 4, 1}},
};
static const attn__tile_row gfx942_tiles[] = {
    {2, 32, {128, 128, 4, 1}},
    {2, 128, {128, 64, 4, 1}},
    {2, 192, {128, 32, 4, 1}},
    {2, 256, {128, 64, 4, 1}},
    {4, 256, {128, 32, 4, 1}},
};

/* Backward: LDS has what passes by, as rows and (16 bits) turned, at most four tiles of bn * D. */
static const attn__grad_row gfx9_grads[] = {
    {2, 128, {{128, 32, 4, 1}, 0, {0}, 0}},
    {2, 256, {{128, 32, 4, 1}, 1, {0}, 0}},
    {4, 128, {{128, 32, 4, 1}, 0, {0}, 0}},
    {4, 256, {{128, 32, 4, 1}, 1, {0}, 0}},
};

const attn__target attn__gfx90a = {.name = "gfx90a",
                                   .compiler = "hiprtc",
                                   .lanes = 64,
                                   .units = 104,
                                   .xcds = 1,
                                   .shared = 64 << 10,
                                   .tiles = gfx90a_tiles,
                                   .grads = gfx9_grads};
const attn__target attn__gfx942 = {.name = "gfx942",
                                   .compiler = "hiprtc",
                                   .lanes = 64,
                                   .units = 304,
                                   .xcds = 8,
                                   .shared = 64 << 10,
                                   .tiles = gfx942_tiles,
                                   .grads = gfx9_grads};
