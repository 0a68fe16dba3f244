/* target.h: the tables of target_*.c.

   Who includes it: target.c and they. */
#ifndef ATTN_TARGETS_H
#define ATTN_TARGETS_H

#include "gpu.h"

/* For elements of so many bytes and head sizes up to `size`; in order of size, up to 256. */
struct attn__tile_row {
    int bytes, size;
    attn__tile_size tile;
};

typedef struct attn__grad_row {
    int bytes, size;
    attn__grad_size of;
} attn__grad_row;

/* Fused, of 16-bit elements, by groups of warps. */
typedef struct attn__group_row {
    int size;
    attn__tile_size fused;
    int split;
} attn__group_row;

extern const attn__target attn__sm80, attn__compute80, attn__sm90a, attn__gfx90a, attn__gfx942;

#endif
