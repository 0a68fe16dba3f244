/* gfx9.h: the contract of core/tile.h by 32x32 matrix instructions of waves of 64 lanes.

   Who includes it: gfx90a.h and gfx942.h, which say what the chips do not share: TILE_P_SCALE,
   GFX9_LIFTS, which is 1 where 16-bit products take subnormals for 0, and GFX9_AHEAD, how many
   reads of shared memory run ahead of the products that want them.

       gfx9.h        who holds what, where chunks lie        gfx9_lift.h   f16 subnormals
       gfx9_ring.h   loads and landings                      gfx9_mul.h    products

   Scores are computed transposed, S' = K Q', so that all scores of a lane belong to one query row:

                         32 rows                      lane l: row l % 32, g = l / 32
                   +-----------------+                element c: key 8 (c / 4) + 4 g + c % 4
       32 keys     | S' accumulator  |
                   +-----------------+                P' needs no move: elements 4j..4j+3, rounded,
                         |  rounded                   are keys 8j + 4g + 0..3, which is what the
                         v                            product with 8 keys wants of lane l
                   +-----------------+
       DV columns  | O' += V' P'     |                element c: column 8 (c / 4) + 4 g + c % 4
                   +-----------------+

   A product with 8 (f32: 2) of D, or of the keys, takes of either half g of the lanes 4 (1) of
   them; which, is free as long as both operands agree. So that one read of 16 bytes serves:

       K  [key][D], f32 and 16 bits   lane: key l % 32, 16-byte chunk 2i + g of the row: the next
                                      two (16 bits) or four (f32) products; q alike, in registers
       V  16 bits: [column][keys], transposed on its way in; 16 keys lie in the order
                   0-3 8-11 4-7 12-15, so that chunk 2i + g has keys 16i + 4g + 0..3 and + 8
          f32:     [key][column], a read of one element each

   Chunks are swizzled: a row's chunk c stands at c ^ swizzle(row), so that eight lanes that read
   chunk c of eight rows meet in no bank.

   q goes from memory to registers; k and v through registers (ring_hold) to shared memory. Rows
   that may not be read 16 bytes at a time are copied element by element when they should land. */
#ifndef ATTN_GFX9_H
#define ATTN_GFX9_H

#define TILE_ROWS    (ATTN_BM / ATTN_WARPS / 32)
#define TILE_COLS(n) ((n) / 2)
#define TILE_CHAINS  2
#define TILE_LATE    0

/* Of 8 keys a lane has 4: those of two calls of dropout's generator. */
#define TILE_DROP_CALLS   2
#define TILE_DROP_CALL(c) ((c) / 2 % 2)

#if ATTN_BM % (32 * ATTN_WARPS) || ATTN_BN % 32 || ATTN_D % 32 || ATTN_DV % 32
#error "ATTN_BM: a multiple of 32 times ATTN_WARPS; ATTN_BN, ATTN_D, ATTN_DV: of 32"
#endif

enum {
    CHUNK = 16 / ATTN_BYTES,           /* elements of 16 bytes */
    K_CHUNKS = ATTN_D / CHUNK,         /* of a row of k (and q) */
    K_BYTES = ATTN_BN * ATTN_D * ATTN_BYTES,
    V_BYTES = ATTN_BN * ATTN_DV * ATTN_BYTES,
    /* Backward: what rings K and V have is an operand twice: as rows, and turned where it is of 16
       bits. */
    HAS_V = !ATTN_BACKWARD || ATTN_SUMS & 1 || ATTN_TYPE == ATTN_F32,
    TURNS = ATTN_BACKWARD && ATTN_TYPE != ATTN_F32,
    V_AT = ATTN_STAGES * K_BYTES,
    K_TURNED_AT = V_AT + HAS_V * ATTN_STAGES * V_BYTES,
    V_TURNED_AT = K_TURNED_AT + (TURNS && ATTN_SUMS & 1) * ATTN_STAGES * K_BYTES,
    LIFT_AT = V_TURNED_AT + (TURNS && ATTN_SUMS & 2) * ATTN_STAGES * V_BYTES,
    LIFT_BYTES = GFX9_LIFTS ? 2 * ATTN_STAGES * ATTN_WARPS * 4 : 0,
    /* A lane takes units of v: 4 keys of V_WIDTH columns (16 bits), a chunk (f32). */
    V_WIDE = ATTN_BN / 4 * (ATTN_DV / 8) >= ATTN_THREADS,
    V_WIDTH = ATTN_TYPE == ATTN_F32 || !V_WIDE ? 4 : 8,
    V_UNITS = ATTN_BN * ATTN_DV / V_WIDTH / (ATTN_TYPE == ATTN_F32 ? 1 : 4),
    V_WORDS = ATTN_TYPE == ATTN_F32 ? 4 : 2 * V_WIDTH, /* of a unit */
    Q_EACH = TILE_ROWS * K_CHUNKS / 2, /* chunks of q, of k, units of v that a lane takes */
    K_EACH = (ATTN_BN * K_CHUNKS + ATTN_THREADS - 1) / ATTN_THREADS,
    V_EACH = (V_UNITS + ATTN_THREADS - 1) / ATTN_THREADS,
    HOLD_QK = 4 * (Q_EACH > K_EACH ? Q_EACH : K_EACH),
    HOLD = HOLD_QK > V_EACH * V_WORDS ? HOLD_QK : V_EACH * V_WORDS
};
/* Where subnormals are lost, backward sums in f32: its g may be as small as it likes. */
#define GFX9_SUMS_F32 (GFX9_LIFTS && ATTN_BACKWARD)
#define P_BYTES       (GFX9_SUMS_F32 ? 4 : ATTN_BYTES)
#define ATTN_SHARED_BYTES (LIFT_AT + LIFT_BYTES)
#define TILE_FULL         (ATTN_TYPE == ATTN_F32 && ATTN_BN * (ATTN_D + ATTN_DV) * 4 == 64 << 10)

#include "core/tile_sums.h"

typedef struct tile_q {
    u32 w[TILE_ROWS][K_CHUNKS * 2]; /* chunk 2i + g at 4i */
    int how;                        /* gfx9_lift.h */
} tile_q;
typedef struct tile_p {
    u32 w[TILE_ROWS][TILE_COLS(ATTN_BN) * P_BYTES / 4];
} tile_p;
#define RING_HOLDS 1
typedef struct ring_hold {
    u32 w[HOLD];
    tile_rows from; /* of rows that are read element by element, in ring_land */
    int row;
} ring_hold;

/* -- Who holds what ---------------------------------------------------------------------------- */
DEV int tile_row(int r) {
    return (warp_id() * TILE_ROWS + r) * 32 + lane_id() % 32;
}
DEV int tile_col(int c) {
    return c / 4 * 8 + lane_id() / 32 * 4 + c % 4;
}

/* The two lanes of a row are l and l ^ 32. */
DEV float row_max(float x) {
    return max_num(x, lane_xor(x, 32));
}
DEV float row_sum(float x) {
    return x + lane_xor(x, 32);
}

DEV u32 stage_at(int what, int stage) {
    return (u32)(what == RING_K ? stage * K_BYTES : V_AT + stage * V_BYTES);
}
DEV u32 turned_at(int what, int stage) {
    return !TURNS           ? stage_at(what, stage)
           : what == RING_K ? (u32)(K_TURNED_AT + stage * K_BYTES)
                            : (u32)(V_TURNED_AT + stage * V_BYTES);
}

/* -- Where a chunk of a row lies --------------------------------------------------------------- */
/* Eight rows of 128 bytes or a multiple differ in row % 8; of 64 bytes or an odd multiple, pairs of
   rows fill 128 bytes and differ in row / 2 % 4. */
DEV u32 chunk_at(int row, int chunk, int chunks) {
    const int swizzle = chunks % 8 == 0 ? row % 8 : row / 2 % 4;
    return (u32)(row * chunks + (chunk ^ swizzle)) * 16;
}
/* Element (key, column) of v in f32; backward reads it where rows of k lie. */
DEV u32 v_element_at(int row, int col) {
    return ATTN_BACKWARD ? chunk_at(row, col / CHUNK, K_CHUNKS) + (u32)(col % CHUNK * 4)
                         : (u32)(row * ATTN_DV + col) * 4;
}
/* Chunk 2i + g of row 32n + l % 32: what lane l reads. The lane's part is apart from the constants,
   so that few registers hold all places. */
DEV u32 read_at(int n, int i, int chunks) {
    const int period = chunks % 8 == 0 ? 4 : 2, row = lane_id() % 32, half = lane_id() / 32;
    return chunk_at(row, i % period * 2 + half, chunks) +
           (u32)(n * 32 * chunks + i / period * period * 2) * 16;
}

#include "arch/gfx9_lift.h"
#include "arch/gfx9_mul.h"
#include "arch/gfx9_ring.h"

#endif
