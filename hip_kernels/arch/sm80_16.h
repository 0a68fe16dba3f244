/* sm80_16.h: the products of sm80.h for f16 and bf16: mma m16n8k16.

   Who includes it: sm80.h. One ldmatrix brings four 8 x 8 matrices; a lane names one row:

       q   16 rows x 16 d      rows lane % 16,             d half lane / 16        -> a[0..3]
       k   16 keys x 16 d      rows lane % 8 (+8: bit 4),  d half bit 3            -> b of two mma
       v   16 keys x 16 d      rows lane % 16,             d half lane / 16, transposed          */
#ifndef ATTN_SM80_16_H
#define ATTN_SM80_16_H

#if ATTN_TYPE == ATTN_F16
#define MMA_16     mma_16x8x16_f16
#define PACK_TWO   pack_f16
#else
#define MMA_16     mma_16x8x16_bf16
#define PACK_TWO   pack_bf16
#endif

/* q stays in registers where it takes at most 32 of them; otherwise, and in backward, it is read
   again each step. */
#define Q_IN_REGISTERS (!ATTN_BACKWARD && ATTN_BM / ATTN_WARPS / 16 * ATTN_D <= 128)

typedef struct tile_q {
#if Q_IN_REGISTERS
    u32 a[M_TILES][ATTN_D / 16][4];
#else
    int stage;
#endif
} tile_q;

typedef struct tile_p {
    u32 a[M_TILES][ATTN_BN / 16][4];
} tile_p;

/* Where this lane's row of q lies. */
DEV u32 q_at(int stage) {
    const u32 row = (u32)(thread_id() / TILE_LANES * WARP_ROWS + lane_id() % 16);
    return stage_at(RING_Q, stage) + chunk_at(row, (u32)lane_id() / 16, CHUNKS_K);
}
/* Rows 16 m .. of the warp, d 16 k .. . */
DEV void load_q(u32 a[4], u32 at, int m, int k) {
    ldmatrix_x4(a, chunk_after(at, 2 * k, CHUNKS_K) + (u32)(m * 16 * CHUNKS_K * 16));
}

DEV void tile_q_of(tile_q *q, const ring_hold *h, int stage) {
    (void)h;
#if !Q_IN_REGISTERS
    q->stage = stage;
#else
    const u32 at = q_at(stage);
    UNROLL for (int m = 0; m < M_TILES; m++) {
        UNROLL for (int k = 0; k < ATTN_D / 16; k++) {
            load_q(q->a[m][k], at, m, k);
        }
    }
#endif
}

/* Columns 8 n .. 8 n + 7 of rows 16 m .. : x += a b. */
#define MMA_TILE(x, m, n, a, b0, b1)                                                               \
    MMA_16(&(x)[2 * (m)][2 * (n)], &(x)[2 * (m)][2 * (n) + 1], &(x)[2 * (m) + 1][2 * (n)],         \
           &(x)[2 * (m) + 1][2 * (n) + 1], a, b0, b1)

DEV void tile_qk(tile_s *s, const tile_q *q, int what, int stage) {
    const u32 lane = (u32)lane_id(), row = lane % 8 + lane / 16 * 8, half = lane / 8 % 2;
    const u32 from = forget(stage_at(what, stage) + chunk_at(row, half, CHUNKS_K));
#if !Q_IN_REGISTERS
    const u32 q_from = forget(q_at(q->stage));
#endif
    UNROLL for (int r = 0; r < TILE_ROWS; r++) {
        UNROLL for (int c = 0; c < TILE_COLS(ATTN_BN); c++) {
            s->x[r][c] = 0;
        }
    }
    UNROLL for (int k = 0; k < ATTN_D / 16; k++) {
        u32 a[M_TILES][4];
        UNROLL for (int m = 0; m < M_TILES; m++) {
#if Q_IN_REGISTERS
            UNROLL for (int i = 0; i < 4; i++) {
                a[m][i] = q->a[m][k][i];
            }
#else
            load_q(a[m], q_from, m, k);
#endif
        }
        const u32 at = chunk_after(from, 2 * k, CHUNKS_K);
        UNROLL for (int n = 0; n < ATTN_BN / 16; n++) {
            u32 b[4];
            ldmatrix_x4(b, at + (u32)(n * 16 * CHUNKS_K * 16));
            UNROLL for (int m = 0; m < M_TILES; m++) {
                MMA_TILE(s->x, m, 2 * n, a[m], b[0], b[1]);
                MMA_TILE(s->x, m, 2 * n + 1, a[m], b[2], b[3]);
            }
        }
    }
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL for (int m = 0; m < M_TILES; m++) {
        UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
            /* i: keys 2t and 2t + 1 of rows g and g + 8, then keys 8 further on of both */
            UNROLL for (int i = 0; i < 4; i++) {
                const float *const x = &s->x[2 * m + i % 2][4 * k + i / 2 * 2];
                p->a[m][k][i] = PACK_TWO(x[0], x[1]);
            }
        }
    }
}

DEV void tile_pv(tile_o *o, const tile_p *p, int what, int stage) {
    const u32 row = (u32)lane_id() % 16, half = (u32)lane_id() / 16;
    const u32 from = forget(stage_at(what, stage) + chunk_at(row, half, CHUNKS_V));
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        UNROLL for (int n = 0; n < ATTN_DV / 16; n++) {
            u32 b[4];
            ldmatrix_x4_trans(b, chunk_after(from, 2 * n, CHUNKS_V) +
                                     (u32)(k * 16 * CHUNKS_V * 16));
            UNROLL for (int m = 0; m < M_TILES; m++) {
                MMA_TILE(o->x, m, 2 * n, p->a[m][k], b[0], b[1]);
                MMA_TILE(o->x, m, 2 * n + 1, p->a[m][k], b[2], b[3]);
            }
        }
    }
}

#endif
