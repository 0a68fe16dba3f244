/* sm80_f32.h: the products of sm80.h for f32: three tf32 products, mma m16n8k8.

   Who includes it: sm80.h. A tensor core reads 11 of the 24 bits of an f32. So x = high + low, high
   rounded to 11 bits, low the exact rest, and a b = ah bh + (al bh + ah bl); al bl is below f32's
   own rounding. Where x is not finite neither is low, so the sum is not finite; it may be NaN,
   since high and low, of different signs, are both multiplied by what is infinite.

   A tensor core also cuts what it adds to its sum instead of rounding it, so a long sum would drift
   towards 0. Sums are therefore begun anew for each 32 columns of q.k, or 32 keys (at most) of p.v,
   the small products apart from the large ones, and then added to the long one, rounded:

       d += (ah bh of 4 mma, from 0) + (al bh, ah bl of 8 mma, from 0)

   mma's first operand wants of 8 keys t and t + 4 in a lane, its result gave it keys 2t and 2t + 1.
   A sum over keys may take them in any order: k index t stands for key 2t, t + 4 for key 2t + 1, in
   p and in v alike, and p stays where it is. */
#ifndef ATTN_SM80_F32_H
#define ATTN_SM80_F32_H

#define TILE_WILD 1

typedef struct tile_q {
    int stage; /* q is read again each step */
} tile_q;
typedef struct tile_p {
    float x[TILE_ROWS][TILE_COLS(ATTN_BN)];
} tile_p;

DEV void tile_q_of(tile_q *q, const ring_hold *h, int stage) {
    (void)h;
    q->stage = stage;
}

DEV u32 high_of(float x) {
    return (bits_of(x) + 0x1000u) & 0xffffe000u;
}
DEV u32 low_of(float x) {
    return bits_of(x - float_of(high_of(x)));
}

/* A lane's part of an operand, split. */
typedef struct split_a {
    u32 high[4], low[4];
} split_a;
DEV split_a split_of(float x0, float x1, float x2, float x3) {
    const float x[4] = {x0, x1, x2, x3};
    split_a a;
    UNROLL for (int i = 0; i < 4; i++) {
        a.high[i] = high_of(x[i]);
        a.low[i] = low_of(x[i]);
    }
    return a;
}

/* Sums of one 16 x 8 tile that begin at 0: of the large products and of the small ones. */
typedef struct split_sum {
    float large[4], small[4];
} split_sum;

DEV void mma_split(split_sum *d, const split_a *a, float b0, float b1) {
    const u32 h0 = high_of(b0), h1 = high_of(b1);
    float *const x = d->large, *const y = d->small;
    mma_16x8x8_tf32(&y[0], &y[1], &y[2], &y[3], a->low, h0, h1);
    mma_16x8x8_tf32(&y[0], &y[1], &y[2], &y[3], a->high, low_of(b0), low_of(b1));
    mma_16x8x8_tf32(&x[0], &x[1], &x[2], &x[3], a->high, h0, h1);
}
/* To the long sums: rows x, y of the tile. */
DEV void add_split(float *x, float *y, const split_sum *d) {
    x[0] += d->large[0] + d->small[0];
    x[1] += d->large[1] + d->small[1];
    y[0] += d->large[2] + d->small[2];
    y[1] += d->large[3] + d->small[3];
}

/* mma's of a sum that begins anew: over columns, over keys. */
enum { SHORT = 4, SHORT_V = ATTN_BN / 8 < 4 ? ATTN_BN / 8 : 4 };
/* Where sums take most registers there are none for what a compiler would do ahead. */
#if ATTN_BACKWARD || ATTN_D > 128
#define UNROLL_D ROLLED
#else
#define UNROLL_D UNROLL
#endif

DEV float word_at(u32 at) {
    return float_of(shared_load_u32(at));
}
/* Word t of chunk c of a row; from there chunk_after leads on, and whole groups of 8 rows. */
DEV u32 word_of(u32 from, u32 row, u32 c, u32 t, u32 chunks) {
    return forget(from + chunk_at(row, c, chunks) + t * 4);
}

DEV void tile_qk(tile_s *s, const tile_q *q, int what, int stage) {
    const u32 g = (u32)lane_id() / 4, t = (u32)lane_id() % 4;
    const u32 from = stage_at(what, stage);
    const u32 row = (u32)warp_row() + g;
    const u32 q0 = word_of(stage_at(RING_Q, q->stage), row, 0, t, CHUNKS_K), q4 = q0 ^ 16;
    const u32 k0 = word_of(from, g, 0, t, CHUNKS_K), k4 = k0 ^ 16;
    const u32 eight = 8 * CHUNKS_K * 16; /* rows */
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = 0;
        }
    }
    UNROLL_D for (u32 at = 0; at < CHUNKS_K * 16; at += 2 * SHORT * 16) { /* bytes of a row */
        UNROLL for (int m = 0; m < M_TILES; m++) {
            split_a a[SHORT];
            UNROLL for (int j = 0; j < SHORT; j++) {
                const u32 x = chunk_after(q0, 2 * j, CHUNKS_K) + at + (u32)(2 * m) * eight;
                const u32 y = chunk_after(q4, 2 * j, CHUNKS_K) + at + (u32)(2 * m) * eight;
                a[j] = split_of(word_at(x), word_at(x + eight), word_at(y), word_at(y + eight));
            }
            UNROLL for (int n = 0; n < ATTN_BN / 8; n++) {
                split_sum sum = {{0, 0, 0, 0}, {0, 0, 0, 0}};
                UNROLL for (int j = 0; j < SHORT; j++) {
                    const u32 x = chunk_after(k0, 2 * j, CHUNKS_K) + at + (u32)n * eight;
                    const u32 y = chunk_after(k4, 2 * j, CHUNKS_K) + at + (u32)n * eight;
                    mma_split(&sum, &a[j], word_at(x), word_at(y));
                }
                add_split(&s->x[2 * m][2 * n], &s->x[2 * m + 1][2 * n], &sum);
            }
        }
    }
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            p->x[r][c] = s->x[r][c];
        }
    }
}

DEV void tile_pv(tile_o *o, const tile_p *p, int what, int stage) {
    const u32 g = (u32)lane_id() / 4, t = (u32)lane_id() % 4;
    const u32 from = stage_at(what, stage);
    const u32 v0 = word_of(from, 2 * t, g / 4, g % 4, CHUNKS_V);
    const u32 v1 = word_of(from, 2 * t + 1, g / 4, g % 4, CHUNKS_V);
    const u32 eight = 8 * CHUNKS_V * 16; /* keys */
    UNROLL for (int k = 0; k < ATTN_BN / 8; k += SHORT_V) {
        UNROLL for (int m = 0; m < M_TILES; m++) {
            split_a a[SHORT_V];
            UNROLL for (int j = 0; j < SHORT_V; j++) {
                const float *const x = &p->x[2 * m][2 * (k + j)];
                const float *const y = &p->x[2 * m + 1][2 * (k + j)];
                a[j] = split_of(x[0], y[0], x[1], y[1]);
            }
            UNROLL for (int n = 0; n < ATTN_DV / 8; n++) {
                split_sum sum = {{0, 0, 0, 0}, {0, 0, 0, 0}};
                UNROLL for (int j = 0; j < SHORT_V; j++) {
                    const u32 x = chunk_after(v0, 2 * n, CHUNKS_V) + (u32)(k + j) * eight;
                    const u32 y = chunk_after(v1, 2 * n, CHUNKS_V) + (u32)(k + j) * eight;
                    mma_split(&sum, &a[j], word_at(x), word_at(y));
                }
                add_split(&o->x[2 * m][2 * n], &o->x[2 * m + 1][2 * n], &sum);
            }
        }
    }
}

#endif
