/* dropout.h: which pairs dropout keeps: Philox4x32-7 (Salmon et al., SC 2011).

   Who calls it: weights.h, grad.h, careful.h. The host's twin, lib/dropout.c, says what is drawn
   for a pair. One call of the generator serves the eight keys 32 G + 8 j + 2 t + (0, 1), j = 0..3,
   of a row:

       keys of a group of 32:   t:  0 0 1 1 2 2 3 3 | 0 0 1 1 2 2 3 3 | ...
                                j:  0 0 0 0 0 0 0 0 | 1 1 1 1 1 1 1 1 | ...

   A lane holds all keys of TILE_DROP_CALLS calls of each group, its column c those of call
   TILE_DROP_CALL(c) (arch/). A shard of the keys that does not begin at a multiple of 32 draws for
   each pair of its own. */
#ifndef ATTN_DROPOUT_H
#define ATTN_DROPOUT_H

#include "core/score.h"

typedef struct attn_draw {
    u32 w[4];
} attn_draw;

DEV attn_draw philox(u64 key, u32 c0, u32 c1, u32 c2, u32 c3) {
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    UNROLL for (int round = 0; round < 7; round++) {
        const u32 high_a = mul_high(0xD2511F53u, c0), low_a = 0xD2511F53u * c0;
        const u32 high_b = mul_high(0xCD9E8D57u, c2), low_b = 0xCD9E8D57u * c2;
        c0 = high_b ^ c1 ^ k0;
        c1 = low_b;
        c2 = high_a ^ c3 ^ k1;
        c3 = low_a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const attn_draw draw = {{c0, c1, c2, c3}};
    return draw;
}

/* Two words: with one of 64 bits NVRTC 13.0 takes more than five minutes for a kernel. */
DEV u64 dropout_seed(const attn_params *p) {
    const u64 at = p->seed_at;
    return at ? load_u32(at) | (u64)load_u32(at + 4) << 32 : p->seed;
}

/* The call that serves global key k of a row. */
DEV attn_draw dropout_call(const attn_params *p, const attn_item *w, const attn_row *row, u64 seed,
                           i32 k) {
    const u32 bh = (u32)(p->b0 + w->b) * (u32)p->nh + (u32)(p->h0 + row->h);
    const u32 call = 4 * ((u32)k / 32) + (u32)k % 8 / 2;
    return philox(seed, bh, (u32)p->i0 + (u32)row->i, call, p->drop_offset);
}
DEV int dropout_keeps(const attn_params *p, const attn_draw *draw, i32 k) {
    const int j = k % 32 / 8;
    const u32 word = j < 2 ? (j ? draw->w[1] : draw->w[0]) : j == 2 ? draw->w[2] : draw->w[3];
    return (k % 2 ? word >> 16 : word & 0xffff) >= p->drop_threshold;
}

DEV int dropout_pair(const attn_params *p, const attn_item *w, const attn_row *row, u64 seed,
                     i32 k) {
    const i32 global = (i32)p->k0 + k;
    const attn_draw draw = dropout_call(p, w, row, seed, global);
    return dropout_keeps(p, &draw, global);
}

/* Bit r of the lane's column: its key tile_row(r) is kept, rows being keys from row0 on. Keys of
   one call follow one another where the chip has it so; of others each draws. */
DEV u32 dropout_keys(const attn_params *p, const attn_item *w, const attn_row *row, u64 seed,
                     i32 row0) {
    attn_draw draw;
    u32 kept = 0;
    i32 last = -1;
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const i32 k = (i32)p->k0 + row0 + tile_row(r), call = k / 32 * 4 + k % 8 / 2;
        if (call != last) {
            draw = dropout_call(p, w, row, seed, k);
        }
        last = call;
        kept |= (u32)dropout_keeps(p, &draw, k) << r;
    }
    return kept;
}

/* Keys of a group that a step has. */
enum { DROP_KEYS = ATTN_BN < 32 ? ATTN_BN : 32 };

/* Of keys that do not begin at a multiple of 32: a draw for each pair, of a group at a time. The
   loops stay loops: unrolled, they would be most of the kernel's text. */
DEV void dropout_shard(const attn_params *p, const attn_item *w, u64 seed, i32 k0, tile_s *s) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        UNROLL for (int g = 0; g < ATTN_BN / DROP_KEYS; g++) {
            u32 kept = 0;
            ROLLED for (int e = 0; e < TILE_COLS(DROP_KEYS); e++) {
                const i32 k = k0 + g * DROP_KEYS + tile_col(e);
                kept |= (u32)dropout_pair(p, w, &row, seed, k) << e;
            }
            UNROLL for (int e = 0; e < TILE_COLS(DROP_KEYS); e++) {
                float *const x = &s->x[r][g * TILE_COLS(DROP_KEYS) + e];
                *x = kept >> e & 1 ? *x : 0;
            }
        }
    }
}

/* p of dropped pairs becomes 0; the factor of kept ones is the epilogue's. */
DEV void dropout_tile(const attn_params *p, const attn_item *w, u64 seed, i32 k0, tile_s *s) {
    const int at = DROP_KEYS < 32 ? k0 % 32 : 0;
    if (p->k0 % 32) {
        dropout_shard(p, w, seed, k0, s);
        return;
    }
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        const attn_row row = score_lane_row(p, w, r);
        UNROLL for (int g = 0; g < ATTN_BN / DROP_KEYS; g++) {
            UNROLL for (int call = 0; call < TILE_DROP_CALLS; call++) {
                attn_draw draw;
                int drawn = 0;
                UNROLL for (int e = 0; e < TILE_COLS(DROP_KEYS); e++) {
                    const int c = g * TILE_COLS(DROP_KEYS) + e;
                    if (TILE_DROP_CALL(e) != call) {
                        continue;
                    }
                    if (!drawn) {
                        draw = dropout_call(p, w, &row, seed, (i32)p->k0 + k0 + tile_col(c));
                        drawn = 1;
                    }
                    s->x[r][c] = dropout_keeps(p, &draw, at + tile_col(c)) ? s->x[r][c] : 0;
                }
            }
        }
    }
}

#endif
