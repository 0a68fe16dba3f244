/* target_sm.c: NVIDIA's chips: A100 (sm_80), H100 and H200 (sm_90a), and what newer ones can run:
   the same kernels as PTX (compute_80), from which the driver makes the chip's code.

   Who calls it: target.c. Rows of a warp: 16 or 32. Shared memory has q, and K and V stages times:
   (bm * D + stages * bn * (D + DV)) * bytes. */
#include "target.h"

static const attn__tile_row sm80_tiles[] = {
    {2, 64, {128, 96, 4, 1}}, {2, 128, {128, 64, 4, 1}}, {2, 256, {64, 64, 4, 1}},
    {4, 64, {64, 32, 4, 2}},  {4, 128, {64, 32, 4, 2}},  {4, 256, {64, 16, 4, 1}},
};
/* Measured on an H200 (bf16, 16,384 tokens, hidden 2048), TFLOP/s at 1024 and 4096 keys, full, then
   causal (docs/schedules.md has the others):
       D 64    128x96    277 319   209 290      128x64    264 307   201 267
       D 128   128x64    352 386   261 331
       D 256   64x64     305 335   243 296 */
static const attn__tile_row sm90_tiles[] = {
    {2, 64, {128, 96, 4, 1}}, {2, 128, {128, 64, 4, 1}}, {2, 256, {64, 64, 4, 1}},
    {4, 64, {64, 32, 4, 2}},  {4, 128, {64, 32, 4, 2}},  {4, 256, {64, 16, 4, 1}},
};

/* The producer schedule: 64 rows a group of warps. Shared memory has q once or twice, and K and V
   stages times, rows of 64 columns each: (bm + stages * bn) * D * 2 bytes and as much again. Few:
   sequences of so few rows that a mask leaves more of smaller tiles. */
static const attn__tile_row sm90_producer[] = {
    {2, 64, {192, 128, 12, 4}},
    {2, 128, {128, 128, 8, 2}},
    {2, 192, {128, 96, 8, 2}},
    {2, 256, {128, 80, 8, 2}},
};
static const attn__tile_row sm90_few[] = {
    {2, 64, {192, 128, 12, 4}},
    {2, 128, {128, 128, 8, 2}},
    {2, 192, {128, 96, 8, 2}},
    {2, 256, {128, 64, 8, 2}},
};
static const attn__tile_row sm90_plain[] = {
    {2, 64, {192, 128, 12, 4}},
    {2, 96, {192, 112, 12, 2}},
    {2, 128, {192, 80, 12, 2}},
    {2, 192, {128, 96, 8, 2}},
    {2, 256, {128, 80, 8, 2}},
};

/* Backward: rows, whose warps keep 16 each, and steps of bn. Two tiles of rows and, stages times,
   two of steps: 2 (bm + stages * bn) * D * bytes. Fused, two warps share the columns of 16 or 32
   rows, and p and g lie in shared memory, too. Measured on an H200 (bf16, 4096 keys, full and
   causal), TFLOP/s:
       D 64    128x128   254 221    128x64, rows not shared   203 182    64x64, likewise   216 199
       D 128   128x64    285 246    the same, not shared      260 223    64x64, likewise  252 229 */
static const attn__grad_row sm_grads[] = {
    {2, 64, {{64, 32, 4, 2}, 0, {128, 128, 8, 2}, 2}},
    {2, 128, {{64, 32, 4, 2}, 0, {128, 64, 8, 2}, 2}},
    {2, 256, {{64, 32, 4, 1}, 1, {64, 64, 8, 1}, 2}},
    {4, 64, {{64, 32, 4, 1}, 0, {0}, 0}},
    {4, 128, {{64, 32, 4, 1}, 1, {0}, 0}},
    {4, 256, {{32, 32, 2, 1}, 1, {0}, 0}},
};

/* Fused by wgmma: groups of 64 rows, or two groups that share 64, and steps of 64 or 128. On the
   same H200: D 64 400 334, D 128 441 360, D 256 331 294. */
static const attn__group_row sm90_groups[] = {
    {64, {128, 128, 8, 2}, 1},
    {128, {128, 64, 8, 2}, 1},
    {192, {0}, 0},
    {256, {64, 64, 8, 2}, 2},
};

#define A100                                                                       \
    .lanes = 32, .units = 108, .xcds = 1, .shared = 163 << 10, .tiles = sm80_tiles, \
    .grads = sm_grads
const attn__target attn__sm80 = {.name = "sm_80", .compiler = "nvrtc", A100};
const attn__target attn__compute80 = {.name = "compute_80", .compiler = "ptx", A100};
const attn__target attn__sm90a = {.name = "sm_90a",
                                  .compiler = "nvrtc",
                                  .lanes = 32,
                                  .units = 132,
                                  .xcds = 1,
                                  .shared = 227 << 10,
                                  .tiles = sm90_tiles,
                                  .producer = sm90_producer,
                                  .few = sm90_few,
                                  .plain = sm90_plain,
                                  .grads = sm_grads,
                                  .groups = sm90_groups};
