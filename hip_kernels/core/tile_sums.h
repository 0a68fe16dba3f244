/* tile_sums.h: what a lane holds of a tile in f32, the same for all chips (core/tile.h draws it).

   Who includes it: the headers of arch/, behind TILE_ROWS and TILE_COLS. */
#ifndef ATTN_TILE_SUMS_H
#define ATTN_TILE_SUMS_H

/* Scores, then p. */
typedef struct tile_s {
    float x[TILE_ROWS][TILE_COLS(ATTN_BN)];
} tile_s;
/* The output being summed. */
typedef struct tile_o {
    float x[TILE_ROWS][TILE_COLS(ATTN_DV)];
} tile_o;

#endif
