/* sm90_grad.h: the products of sm80.h by wgmma: fused backward in f16 and bf16, H100 and H200.

   Who includes it: sm80.h, whose ring it reads, where ATTN_WGMMA is 1. A group (four warps) has 64
   rows, each of its warps 16; lanes hold what they hold of mma.sync (sm.h). With ATTN_SPLIT 2 both
   groups have the same rows, each half of the columns. m, n of a product and how it reads them:

       s, dp   64 keys      x queries    own: k in the rows        ring: k in the rows
       dv, dk  64 keys      x columns    p, g: registers           ring: n in the rows
       dq      64 queries   x columns    g as shared, m in rows    own K: n in the rows

   p and g are shared as the ring's places lie: 64 queries of all keys, then the next 64.

   Products fly: each of these functions begins one set of them, and tile_wait(n) waits for all but
   the n youngest sets. */
#ifndef ATTN_SM90_GRAD_H
#define ATTN_SM90_GRAD_H

#define TILE_FLIES 1
#define TILE_LEAN  (ATTN_BN > 64 || ATTN_HAS_SCORE)

#define WGMMA_NAME_(n, kind, type) wgmma_64x##n##x16_##kind##_##type
#define WGMMA_NAME(n, kind, type)  WGMMA_NAME_(n, kind, type)
#if ATTN_TYPE == ATTN_F16
#define WGMMA(n, kind) WGMMA_NAME(n, kind, f16)
#define PACK_TWO       pack_f16
#else
#define WGMMA(n, kind) WGMMA_NAME(n, kind, bf16)
#define PACK_TWO       pack_bf16
#endif
/* Columns of a product, as the name of the instruction has them. */
#if ATTN_BN / ATTN_SPLIT == 32
#define N_QUERIES 32
#elif ATTN_BN / ATTN_SPLIT == 64
#define N_QUERIES 64
#else
#define N_QUERIES 128
#endif
#if ATTN_DV / ATTN_SPLIT == 32
#define N_COLUMNS 32
#elif ATTN_DV / ATTN_SPLIT == 64
#define N_COLUMNS 64
#elif ATTN_DV / ATTN_SPLIT == 96
#define N_COLUMNS 96
#else
#define N_COLUMNS 128
#endif

typedef struct tile_q {
    int stage;
} tile_q;
typedef struct tile_p {
    u32 a[ATTN_BN / 16][4];
} tile_p;

DEV void tile_q_of(tile_q *q, const ring_hold *h, int stage) {
    (void)h;
    q->stage = stage;
}

#define tile_wait(n) wgmma_wait(n)

/* 16 columns of a 64-column row further on: x / 4 groups of `rows` rows, in 16 bytes. */
#define K_STEP(k, rows) ((u64)(((k) / 4 * (rows) * 128 + (k) % 4 * 32) / 16))
/* 16 rows further on. */
#define ROW_STEP(k)     ((u64)((k) * 2048 / 16))

DEV void tile_qk(tile_s *s, const tile_q *q, int what, int stage) {
    const u32 row = (u32)(ATTN_SPLIT > 1 ? 0 : group_id() * 64);
    const u32 first = (u32)(ATTN_SPLIT > 1 ? group_id() * N_QUERIES : 0);
    const u64 a = wgmma_desc(stage_at(RING_Q, q->stage) + row * 128, 0, 1024);
    const u64 b = wgmma_desc(stage_at(what, stage) + first * 128, 0, 1024);
    wgmma_fence();
    UNROLL for (int k = 0; k < ATTN_D / 16; k++) {
        WGMMA(N_QUERIES, ss)(s->x[0], s->x[1], a + K_STEP(k, ATTN_BM), b + K_STEP(k, ATTN_BN),
                             k > 0);
    }
    wgmma_commit();
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL for (int k = 0; k < ATTN_BN / 16 / ATTN_SPLIT; k++) {
        /* i: queries 2t and 2t + 1 of rows g and g + 8, then queries 8 further on of both */
        UNROLL for (int i = 0; i < 4; i++) {
            const float *const x = &s->x[i % 2][4 * k + i / 2 * 2];
            p->a[k][i] = PACK_TWO(x[0], x[1]);
        }
    }
}

DEV void tile_pv(tile_o *o, tile_p *p, int what, int stage) {
    const u32 first = (u32)(ATTN_SPLIT > 1 ? group_id() * (N_COLUMNS / 64) : 0);
    const u64 b = wgmma_desc(stage_at(what, stage) + first * ATTN_BN * 128, ATTN_BN * 128, 1024);
    tile_pin_o(o);
    wgmma_fence();
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        WGMMA(N_COLUMNS, rs)(o->x[0], o->x[1], p->a[k], b + ROW_STEP(k));
    }
    wgmma_commit();
}

/* -- p and g for other groups ------------------------------------------------------------------ */

DEV u32 share_at(int what, u32 key, u32 chunk) {
    return (u32)(SHARED_G + what * ATTN_BM * ATTN_BN * 2) + ring_at(key, chunk, 0, ATTN_BM);
}

DEV void tile_share(int what, const tile_p *p) {
    const u32 lane = TILE_LEAN ? forget((u32)lane_id()) : (u32)lane_id();
    const u32 key = (u32)warp_row() + lane / 4, t = lane % 4;
    const u32 first = (u32)(warp_part() * (N_QUERIES / 8));
    const u32 to = forget(share_at(what, key, first) + t * 4);
    UNROLL for (int k = 0; k < N_QUERIES / 16; k++) {
        UNROLL for (int i = 0; i < 4; i++) {
            const u32 chunk = (u32)(2 * k + i / 2);
            shared_store_u32((to ^ chunk % 8 * 16) + chunk / 8 * ATTN_BM * 128 +
                                 (u32)(i % 2 * 8 * 128),
                             p->a[k][i]);
        }
    }
}

DEV void tile_shared(tile_p *p, int what) {
    const u32 key = (u32)(warp_row() + lane_id() % 16);
    const u32 from = forget(share_at(what, key, (u32)lane_id() / 16));
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        ldmatrix_x4(p->a[k], (from ^ (u32)(k % 4 * 32)) + (u32)(k / 4 * ATTN_BM * 128));
    }
}

/* -- dq = g k over the block's keys ------------------------------------------------------------ */

/* A group has 64 queries and, of its share of the columns, at most 64 a pass. */
#define DQ_BLOCKS (ATTN_BN / 64)               /* of queries */
#define DQ_PARTS  (ATTN_WARPS / 4 / DQ_BLOCKS) /* groups that have the same queries */
#if (ATTN_D + 63) / 64 < DQ_PARTS
#define DQ_N 32
#else
#define DQ_N 64
#endif
#define DQ_PASSES (CHUNKS_K * 8 / DQ_PARTS / DQ_N)
#define DQ_ROWS 2
#define DQ_COLS (DQ_N / 4)

typedef struct tile_d {
    float x[DQ_ROWS][DQ_COLS];
} tile_d;

/* Lanes may ask one by one, which they may not for group_id. */
DEV int dq_row(int r) {
    const int warp = thread_id() / TILE_LANES;
    return warp / 4 % DQ_BLOCKS * 64 + warp % 4 * 16 + r * 8 + lane_id() / 4;
}
DEV int dq_first(int group, int pass) {
    return (group / DQ_BLOCKS * DQ_PASSES + pass) * DQ_N;
}
DEV int dq_col(int c, int pass) {
    return lane_col(c, dq_first(thread_id() / 128, pass) / 16, 1);
}

DEV void tile_pin_d(tile_d *d) {
    UNROLL for (int r = 0; r < DQ_ROWS; r++) {
        UNROLL for (int c = 0; c < DQ_COLS; c++) {
            pin(&d->x[r][c]);
        }
    }
}

DEV void tile_dq(tile_d *d, int pass) {
    const u32 block = (u32)(group_id() % DQ_BLOCKS * ATTN_BM * 128);
    const u64 a = wgmma_desc(SHARED_G + block, 0, 1024);
    const u32 first = (u32)dq_first(group_id(), pass);
    const u32 column = first / 64 * ATTN_BM * 128 + first % 64 * 2;
    const u64 b = wgmma_desc(stage_at(RING_Q, 0) + column, 0, 1024);
    wgmma_fence();
    UNROLL for (int k = 0; k < ATTN_BM / 16; k++) {
        WGMMA(DQ_N, tt)(d->x[0], d->x[1], a + ROW_STEP(k), b + ROW_STEP(k), k > 0);
    }
    wgmma_commit();
}

#endif
