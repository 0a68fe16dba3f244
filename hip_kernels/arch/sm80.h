/* sm80.h: tile.h's contract with mma.sync, ldmatrix and cp.async (A100 and later).

   Who includes it: core/tile.h. Who holds what (docs/fragments.md draws it), g = lane / 4,
   t = lane % 4: of the 16 x 8 product of mma a lane has rows g, g + 8 and columns 2t, 2t + 1. Two
   such products side by side are, rounded, the first operand of the next product (16 x 16), so p
   never leaves the registers.

   Shared memory: q, then K's stages, then V's; rows one after the other, in chunks of 16 bytes
   whose places are permuted within the row, so that the eight rows that ldmatrix reads at once lie
   in different banks:

       chunks of a row a multiple of 8:   chunk c of row r at c ^ (r % 8)
       else a multiple of 4:              two rows fill the banks: c ^ (r / 2 % 4)

   ATTN_WGMMA: 64 columns of all rows, then the next 64; each row of 64 as above (sm90.h draws it).
   What D only begins of 64 columns is 0. */
#ifndef ATTN_SM80_H
#define ATTN_SM80_H

#include "arch/sm.h"

/* Registers of s and o. Where they are most of a lane's, or their products or weights take many
   (f32, scales), m and l lie in shared memory during products, and there stands where K and V
   begin. */
#define TILE_SUMS (ATTN_WARP_ROWS * (ATTN_BN + ATTN_DV) / 32)
#define TILE_MANY (ATTN_D > 64 && (ATTN_TYPE == ATTN_F32 || ATTN_HAS_SCALES))
#define TILE_PARKS (!ATTN_BACKWARD && (TILE_SUMS >= 192 || TILE_MANY))

enum {
    M_TILES = ATTN_WARP_ROWS / 16,         /* 16 rows each */
    CHUNKS_K = ATTN_WGMMA ? (ATTN_D + 63) / 64 * 8 : ATTN_D / CHUNK,   /* of a row of q or k */
    CHUNKS_V = ATTN_WGMMA ? (ATTN_DV + 63) / 64 * 8 : ATTN_DV / CHUNK, /* of a row of v */
    SHARED_Q = 0,                          /* bytes from the block's first */
    STAGE_Q = ATTN_BM * CHUNKS_K * 16,
    SHARED_K = SHARED_Q + (1 + ATTN_BACKWARD) * STAGE_Q,
    STAGE_K = ATTN_BN * CHUNKS_K * 16,
    SHARED_V = SHARED_K + ATTN_STAGES * STAGE_K,
    STAGE_V = ATTN_BN * CHUNKS_V * 16,
    SHARED_G = SHARED_V + ATTN_STAGES * STAGE_V, /* then p */
    SHARED_ITEM = SHARED_G,                      /* of forward, which has no g */
    ITEM_BYTES = ATTN_BACKWARD ? 0 : 80,
    SHARED_HELD = SHARED_ITEM + 52, /* two words that the item leaves free */
    SHARED_SOURCES = SHARED_ITEM + ITEM_BYTES,
    SHARED_RANGE = SHARED_SOURCES + 16 * TILE_PARKS,
    SHARED_SOFT = SHARED_RANGE + 16 * ATTN_THREADS * TILE_PARKS,
    SOFT_BYTES = TILE_PARKS * ATTN_WARP_ROWS * ATTN_THREADS
};
#define TILE_ITEM (!ATTN_BACKWARD)
#define ATTN_SHARED_BYTES                                                                          \
    (SHARED_SOFT + SOFT_BYTES +                                                                    \
     ATTN_FUSED * (ATTN_SPLIT > 1 ? 2 : 1) * ATTN_BM * ATTN_BN * ATTN_BYTES)

/* -- The ring ---------------------------------------------------------------------------------- */

/* cp.async keeps nothing in registers. */
#define RING_HOLDS 0
typedef struct ring_hold {
    int nothing;
} ring_hold;

DEV u32 stage_at(int what, int stage) {
    return what == RING_Q   ? (u32)(SHARED_Q + stage * STAGE_Q)
           : what == RING_K ? (u32)(SHARED_K + stage * STAGE_K)
                            : (u32)(SHARED_V + stage * STAGE_V);
}

/* Byte of chunk c of row r where a row has `chunks`. */
DEV u32 chunk_at(u32 r, u32 c, u32 chunks) {
    const u32 x = chunks % 8 == 0 ? r % 8 : r / 2 % 4;
    return (r * chunks + (c ^ x)) * 16;
}
/* The same of a place of the ring that has `rows`, and the bytes from one row to the next. */
#if ATTN_WGMMA
DEV u32 ring_at(u32 r, u32 c, u32 chunks, u32 rows) {
    (void)chunks;
    return (c / 8 * rows + r) * 128 + (c ^ r) % 8 * 16;
}
#define RING_ROW(chunks) 128u
#else
DEV u32 ring_at(u32 r, u32 c, u32 chunks, u32 rows) {
    (void)rows;
    return chunk_at(r, c, chunks);
}
#define RING_ROW(chunks) ((chunks) * 16)
#endif

/* The byte `further` chunks on from chunk 0 or 1 of a row, whose byte is `at`: what was permuted is
   the lowest bits of the chunk's number. `further` is an even constant. */
DEV u32 chunk_after(u32 at, int further, int chunks) {
    const int group = chunks % 8 == 0 ? 8 : 4;
    return (at ^ (u32)(further % group * 16)) + (u32)(further / group * group * 16);
}

/* Where registers are few, addresses are computed anew for each load. */
#define RING_FORGETS (ATTN_BACKWARD || ATTN_D > 64 || TILE_PARKS)

/* Rows that are all there, to shared memory at `to`. Of a row `across` threads take neighbouring
   chunks, then those `across` further on; each stays in its column, so that its addresses follow
   one another. */
DEV void ring_fast(u32 to, const tile_rows *from, int row, u32 rows, u32 chunks) {
    const u32 power = chunks & (0u - chunks), across = power < 32 ? power : 32;
    const u32 step = ATTN_THREADS / across;
    const u32 thread = RING_FORGETS ? forget((u32)thread_id()) : (u32)thread_id();
    const u32 r = thread / across;
    UNROLL for (u32 left = 0; left < chunks; left += across) {
        const u32 c = left + thread % across, place = to + ring_at(r, c, chunks, rows);
        const int there = (int)c * CHUNK < from->cols;
        u64 source = from->data + (u64)((i64)r * from->n) + (there ? c * 16 : 0);
        source += (u64)((i64)row * from->n);
        UNROLL for (u32 first = 0; first < rows; first += step) {
            if (rows % step == 0 || first + r < rows) {
                cp_async_16((place ^ first % 8 * 16) + first * RING_ROW(chunks), source,
                            there ? 16 : 0);
            }
            source += (u64)(step * from->n);
        }
    }
}

/* Any rows: past the end, of any alignment; packed: row r / pack of head r % pack. */
DEV void ring_slow(u32 to, const tile_rows *from, int row, u32 rows, u32 chunks) {
    ROLLED for (u32 i = forget((u32)thread_id()); i < rows * chunks; i += ATTN_THREADS) {
        const u32 r = i / chunks, c = i % chunks, place = to + ring_at(r, c, chunks, rows);
        const int at = row + (int)r, n = at < from->rows ? chunk_elements(from, c) : 0;
        const i64 n_at = from->pack > 1 ? at / from->pack : at;
        const i64 h_at = from->pack > 1 ? at % from->pack : 0;
        const u64 source = from->data + (u64)(n_at * from->n + h_at * from->h) + c * 16;
        if (from->vec) {
            cp_async_16(place, n ? source : from->data, n * ATTN_BYTES);
        } else {
            shared_store_b128(place, load_elements(source, n));
        }
    }
}

DEV void ring_rows(u32 to, const tile_rows *from, int row, int rows, int chunks) {
    if (from->vec && from->pack == 1 && from->cols % CHUNK == 0 && row + rows <= from->rows) {
        ring_fast(to, from, row, (u32)rows, (u32)chunks);
    } else {
        ring_slow(to, from, row, (u32)rows, (u32)chunks);
    }
    cp_async_commit();
}

DEV void ring_load(ring_hold *h, int what, int stage, const tile_rows *from, int row) {
    (void)h;
    if (what == RING_Q) {
        ring_rows(stage_at(what, stage), from, row, ATTN_BM, CHUNKS_K);
    } else {
        ring_rows(stage_at(what, stage), from, row, ATTN_BN, what == RING_K ? CHUNKS_K : CHUNKS_V);
    }
}
DEV void ring_land(ring_hold *h, int what, int stage) {
    (void)h, (void)what, (void)stage;
}
/* The number is a constant of the instruction: those that multistage.h and backward.h wait for. */
#if ATTN_STAGES > 4
#error "ring_wait knows at most 6 younger loads: ATTN_STAGES is 4 at most"
#endif
DEV void ring_wait(int younger) {
    switch (younger) {
    case 0: cp_async_wait(0); break;
    case 2: cp_async_wait(2); break;
    case 4: cp_async_wait(4); break;
    default: cp_async_wait(6); break;
    }
}
DEV void ring_sync(void) {
#if ATTN_WGMMA
    proxy_fence();
#endif
    block_sync();
}

#if ATTN_WGMMA
#include "arch/sm90_grad.h"
#elif ATTN_TYPE == ATTN_F32
#include "arch/sm80_f32.h"
#else
#include "arch/sm80_16.h"
#endif

#endif
