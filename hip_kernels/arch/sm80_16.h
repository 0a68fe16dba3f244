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

/* q stays in registers where it takes at most 32 of them, and s and o leave as many; otherwise, and
   in backward, it is read again each step. */
#define Q_IN_REGISTERS                                                                             \
    (!ATTN_BACKWARD && ATTN_WARP_ROWS / 16 * ATTN_D <= 128 && TILE_SUMS < 160)

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
    const u32 row = (u32)(warp_row() + lane_id() % 16);
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
    const u32 from = forget(stage_at(what, stage) +
                            chunk_at((u32)warp_part() * 16 + row, half, CHUNKS_K));
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
        UNROLL for (int n = 0; n < ATTN_BN / 16 / ATTN_SPLIT; n++) {
            u32 b[4];
            ldmatrix_x4(b, at + (u32)(n * ATTN_SPLIT * 16 * CHUNKS_K * 16));
            UNROLL for (int m = 0; m < M_TILES; m++) {
                MMA_TILE(s->x, m, 2 * n, a[m], b[0], b[1]);
                MMA_TILE(s->x, m, 2 * n + 1, a[m], b[2], b[3]);
            }
        }
    }
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL for (int m = 0; m < M_TILES; m++) {
        UNROLL for (int k = 0; k < ATTN_BN / 16 / ATTN_SPLIT; k++) {
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
    const u32 from = forget(stage_at(what, stage) +
                            chunk_at(row, (u32)warp_part() * 2 + half, CHUNKS_V));
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        UNROLL for (int n = 0; n < ATTN_DV / 16 / ATTN_SPLIT; n++) {
            u32 b[4];
            ldmatrix_x4_trans(b, chunk_after(from, 2 * n * ATTN_SPLIT, CHUNKS_V) +
                                     (u32)(k * 16 * CHUNKS_V * 16));
            UNROLL for (int m = 0; m < M_TILES; m++) {
                MMA_TILE(o->x, m, 2 * n, p->a[m][k], b[0], b[1]);
                MMA_TILE(o->x, m, 2 * n + 1, p->a[m][k], b[2], b[3]);
            }
        }
    }
}

#if ATTN_FUSED
/* -- p and g for other warps ------------------------------------------------------------------- */

/* A row per key, of ATTN_BN queries. */
enum { CHUNKS_G = ATTN_BN / 8, SHARE_BYTES = ATTN_BM * ATTN_BN * 2 };
DEV u32 share_at(int what, u32 row, u32 chunk) {
    return (u32)SHARED_G + (u32)what * SHARE_BYTES + chunk_at(row, chunk, CHUNKS_G);
}

DEV void tile_share(int what, const tile_p *p) {
    const u32 row = (u32)(warp_row() + lane_id() / 4), t = (u32)lane_id() % 4;
    const u32 to = forget(share_at(what, row, (u32)warp_part() * 2) + t * 4);
    UNROLL for (int m = 0; m < M_TILES; m++) {
        UNROLL for (int k = 0; k < ATTN_BN / 16 / ATTN_SPLIT; k++) {
            const u32 at = chunk_after(to, 2 * k * ATTN_SPLIT, CHUNKS_G);
            UNROLL for (int i = 0; i < 4; i++) {
                shared_store_u32((at ^ (u32)(i / 2 * 16)) +
                                     (u32)((m * 16 + i % 2 * 8) * CHUNKS_G * 16),
                                 p->a[m][k][i]);
            }
        }
    }
}

DEV void tile_shared(tile_p *p, int what) {
    const u32 lane = forget((u32)lane_id()), row = (u32)warp_row() + lane % 16;
    const u32 from = forget(share_at(what, row, lane / 16));
    UNROLL for (int m = 0; m < M_TILES; m++) {
        UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
            ldmatrix_x4(p->a[m][k], chunk_after(from, 2 * k, CHUNKS_G) +
                                        (u32)(m * 16 * CHUNKS_G * 16));
        }
    }
}

/* -- dq = g k over the block's keys ------------------------------------------------------------ */

/* The block's warps part queries and columns: DQ_WARPS of them have the same queries, each every
   DQ_WARPS-th 16 columns. */
#define DQ_PASSES (ATTN_D > 192 ? 2 : 1) /* all columns' sums would take too many registers */
enum {
    DQ_MOST = ATTN_D % 64 == 0 && ATTN_D >= ATTN_BN ? 4 : 2,
    DQ_WARPS = ATTN_WARPS < DQ_MOST ? ATTN_WARPS : DQ_MOST,
    DQ_M = ATTN_BN * DQ_WARPS / ATTN_WARPS / 16, /* 16 queries each */
    DQ_N = ATTN_D / 16 / DQ_WARPS / DQ_PASSES  /* 16 columns each */
};
#define DQ_ROWS (2 * DQ_M)
#define DQ_COLS (4 * DQ_N)

typedef struct tile_d {
    float x[DQ_ROWS][DQ_COLS];
} tile_d;

DEV int dq_part(void) {
    return thread_id() / TILE_LANES % DQ_WARPS;
}
DEV int dq_first(void) {
    return thread_id() / (TILE_LANES * DQ_WARPS) * DQ_M * 16;
}
DEV int dq_row(int r) {
    return dq_first() + r / 2 * 16 + r % 2 * 8 + lane_id() / 4;
}
DEV int dq_col(int c, int pass) {
    const int n = pass * DQ_N + c / 4;
    return (n * DQ_WARPS + dq_part()) * 16 + c / 2 % 2 * 8 + c % 2 + lane_id() % 4 * 2;
}

/* g is read transposed: 16 keys of 16 queries, rows lane % 8 (+ 8: bit 4), the second 8 queries
   where bit 3 is set. */
DEV void tile_dq(tile_d *d, int pass) {
    const u32 lane = forget((u32)lane_id()), key = lane % 8 + lane / 16 * 8;
    const u32 g_at = forget(share_at(SHARE_G, key, (u32)dq_first() / 8 + lane / 8 % 2));
    const u32 k_at = forget(stage_at(RING_Q, 0) +
                            chunk_at(lane % 16, (u32)dq_part() * 2 + lane / 16, CHUNKS_K));
    UNROLL for (int r = 0; r < DQ_ROWS; r++) {
        UNROLL for (int c = 0; c < DQ_COLS; c++) {
            d->x[r][c] = 0;
        }
    }
    UNROLL for (int k = 0; k < ATTN_BM / 16; k++) {
        u32 a[DQ_M][4];
        UNROLL for (int m = 0; m < DQ_M; m++) {
            ldmatrix_x4_trans(a[m], chunk_after(g_at, 2 * m, CHUNKS_G) +
                                        (u32)(k * 16 * CHUNKS_G * 16));
        }
        UNROLL for (int n = 0; n < DQ_N; n++) {
            u32 b[4];
            ldmatrix_x4_trans(b, chunk_after(k_at, 2 * (pass * DQ_N + n) * DQ_WARPS, CHUNKS_K) +
                                     (u32)(k * 16 * CHUNKS_K * 16));
            UNROLL for (int m = 0; m < DQ_M; m++) {
                MMA_TILE(d->x, m, 2 * n, a[m], b[0], b[1]);
                MMA_TILE(d->x, m, 2 * n + 1, a[m], b[2], b[3]);
            }
        }
    }
}
#endif

#endif
