/* sm90.h: tile.h's names with wgmma, TMA and mbarriers (H100, H200), for sched/producer.h, f16 and
   bf16: who holds what as the contract says; ring and products as that schedule wants them.

   Who includes it: core/tile.h, where ATTN_PRODUCER is 1. A group (four warps) that multiplies has
   64 rows of the tile, each of its warps 16; lanes hold what they hold of mma.sync (sm.h). The last
   group of the block loads.

   Shared memory: places of q, K, V, then barriers and messages. A place holds 64 columns of all
   rows, then the next 64, ... ; a row of 64 has 128 bytes, its 16-byte chunk c at c ^ (r % 8). So
   TMA brings it and wgmma reads it, q and K with k in the rows, V with n:

       columns 0..63    row 0 | row 1 | ... | row 7 |   1024 bytes, 8 rows: a core
                        row 8 ...
       columns 64..127  row 0 | row 1 ...

   A place is full when its loads have landed (barrier full) and free when all warps that multiply
   have read it (barrier free), a place of q besides when o has left it. Of a column group that D or
   DV only begins, the rest is 0.

   Message of a place of K: its block of keys, to each group. Messages of the warp that looks ahead
   (sched/ahead.h): items, and parts, which are 32 blocks of an item. */
#ifndef ATTN_SM90_H
#define ATTN_SM90_H

#include "arch/sm.h"

enum {
    STAGES = ATTN_STAGES,
    GROUPS = ATTN_BM / 64,          /* that multiply */
    CHUNKS_K = (ATTN_D + 63) / 64 * 8, /* of a row of q or k in shared memory */
    CHUNKS_V = (ATTN_DV + 63) / 64 * 8,
    STAGE_Q = ATTN_BM * CHUNKS_K * 16,
    STAGE_K = ATTN_BN * CHUNKS_K * 16,
    STAGE_V = ATTN_BN * CHUNKS_V * 16,
    SHARED_MOST = 227 << 10,        /* of a block */
    SHARED_SMALL = 1024,            /* barriers and messages, at most */
    SHARED_STAGES = STAGES * (STAGE_K + STAGE_V),
    STAGES_Q = 2 * STAGE_Q + SHARED_STAGES + SHARED_SMALL <= SHARED_MOST ? 2 : 1,
    SHARED_Q = 0,
    SHARED_K = SHARED_Q + STAGES_Q * STAGE_Q,
    SHARED_V = SHARED_K + STAGES * STAGE_K,
    SHARED_FULL = SHARED_V + STAGES * STAGE_V, /* barriers: of q, of K, of V */
    BARRIERS = STAGES_Q + 2 * STAGES,
    SHARED_FREE = SHARED_FULL + BARRIERS * 8,
    SHARED_LAND = SHARED_FREE + BARRIERS * 8, /* barrier of loads that are mended, and its parity */
    SHARED_TOLD = SHARED_LAND + 16, /* barriers of parts: one is told, the next one is wanted */
    SHARED_PART = SHARED_TOLD + 16, /* two places */
    PART_BYTES = (4 + 2 * GROUPS) * 4,
    SHARED_BLOCK = SHARED_PART + 2 * PART_BYTES, /* a word a place of K and group */
    ITEM_BYTES = 80,
    ITEMS = 8, /* at least STAGES_Q + 3: an item is read after its place of q is free */
    SHARED_ITEM = (SHARED_BLOCK + STAGES * GROUPS * 4 + 15) / 16 * 16,
    SHARED_BATON = SHARED_ITEM + ITEMS * ITEM_BYTES /* a barrier a place of q and group */
};
#define ATTN_SHARED_BYTES (SHARED_BATON + STAGES_Q * GROUPS * 8)

/* Registers of a thread. A block has as many as at its entry: 504 for one thread of each of three
   groups, 512 of four. Two groups have enough as they are. */
#if ATTN_BM == 64
#define GROUP_LOADS()
#define GROUP_MULTIPLIES()
#elif ATTN_BM == 128 && ATTN_DV > 192
#define GROUP_LOADS()      regs_less(40)
#define GROUP_MULTIPLIES() regs_more(232)
#elif ATTN_BM == 128
#define GROUP_LOADS()      regs_less(56)
#define GROUP_MULTIPLIES() regs_more(224)
#elif ATTN_DV <= 32
#define GROUP_LOADS()      regs_less(56)
#define GROUP_MULTIPLIES() regs_more(152)
#else
#define GROUP_LOADS()      regs_less(32)
#define GROUP_MULTIPLIES() regs_more(160)
#endif

/* -- Places and their turns -------------------------------------------------------------------- */

/* Which place comes next, and the parity of the phase in which it is filled. */
typedef struct ring_turn {
    int stage;
    u32 parity;
} ring_turn;

/* Of load number n. */
DEV ring_turn ring_turn_of(u32 n, u32 stages) {
    const ring_turn t = {(int)(n % stages), n / stages & 1};
    return t;
}

DEV void ring_next(ring_turn *t, int stages) {
    t->stage++;
    if (t->stage == stages) {
        t->stage = 0;
        t->parity ^= 1;
    }
}

DEV u32 stage_at(int what, int stage) {
    return what == RING_Q   ? (u32)(SHARED_Q + stage * STAGE_Q)
           : what == RING_K ? (u32)(SHARED_K + stage * STAGE_K)
                            : (u32)(SHARED_V + stage * STAGE_V);
}
DEV u32 barrier_of(int what, int stage) {
    const int n = what == RING_Q ? stage : what == RING_K ? STAGES_Q + stage
                                                          : STAGES_Q + STAGES + stage;
    return (u32)(8 * n);
}

/* loaders: warps that load. */
DEV void ring_begin(int loaders) {
    if (thread_id() == 0) {
        for (int n = 0; n < BARRIERS; n++) {
            mbarrier_init((u32)(SHARED_FULL + 8 * n), loaders);
            mbarrier_init((u32)(SHARED_FREE + 8 * n), ATTN_WARPS);
        }
        for (int n = 0; n < STAGES_Q * GROUPS; n++) {
            mbarrier_init((u32)(SHARED_BATON + 8 * n), 4);
        }
        mbarrier_init(SHARED_TOLD, 1);
        mbarrier_init(SHARED_TOLD + 8, loaders);
        mbarrier_init(SHARED_LAND, 1);
        shared_store_u32(SHARED_LAND + 8, 0);
        mbarrier_init_fence();
    }
    block_sync();
}
DEV void ring_wait_full(int what, const ring_turn *t) {
    mbarrier_wait(SHARED_FULL + barrier_of(what, t->stage), t->parity);
}
/* A place that was never filled is free. */
DEV void ring_wait_free(int what, const ring_turn *t) {
    mbarrier_wait(SHARED_FREE + barrier_of(what, t->stage), t->parity ^ 1);
}
/* This warp has read the place. */
DEV void ring_free(int what, const ring_turn *t) {
    if (lane_id() == 0) {
        mbarrier_arrive(SHARED_FREE + barrier_of(what, t->stage));
    }
}

/* In turn: a group waits until the one before has passed the baton of the item whose q has this
   place, which each passes once an item. None comes twice before the next one waited: it would
   need the place of q that this one still holds. */
DEV u32 baton_of(int group, const ring_turn *q) {
    return (u32)(SHARED_BATON + 8 * (q->stage * GROUPS + group));
}
DEV void baton_wait(int group, const ring_turn *q) {
    if (group > 0) {
        mbarrier_wait(baton_of(group - 1, q), q->parity);
    }
}
DEV void baton_pass(int group, const ring_turn *q) {
    if (group < GROUPS - 1 && lane_id() == 0) {
        mbarrier_arrive(baton_of(group, q));
    }
}

/* -- Loading ----------------------------------------------------------------------------------- */

/* This warp has done its part of a load. */
DEV void ring_arrive(int what, const ring_turn *t) {
    warp_sync();
    if (lane_id() == 0) {
        mbarrier_arrive(SHARED_FULL + barrier_of(what, t->stage));
    }
}

DEV int ring_height(int what) {
    return what == RING_Q ? ATTN_BM : ATTN_BN;
}
DEV int ring_chunks(int what) {
    return what == RING_V ? CHUNKS_V : CHUNKS_K;
}

/* Chunk c of row r of a place: n elements from memory, one after the other or, vec, at once; 0.
   proxy_fence makes it visible to products. */
DEV void ring_put(int what, u32 to, u32 r, u32 c, u64 from, int n, int vec) {
    const u32 place = to + (c / 8 * (u32)ring_height(what) + r) * 128 + (c ^ r) % 8 * 16;
    if (vec && n) {
        shared_store_b128(place, load_b128(from));
        return;
    }
    ROLLED for (int e = 0; e < CHUNK; e += 2) {
        const u32 low = e < n ? load_u16(from + (u64)e * 2) : 0;
        const u32 high = e + 1 < n ? load_u16(from + (u64)e * 2 + 2) : 0;
        shared_store_u32(place + (u32)e * 2, low | high << 16);
    }
}

/* By one warp: a load for this barrier has landed. */
DEV void ring_wait_land(void) {
    const u32 parity = shared_load_u32(SHARED_LAND + 8);
    mbarrier_wait(SHARED_LAND, parity);
    warp_sync();
    if (lane_id() == 0) {
        shared_store_u32(SHARED_LAND + 8, parity ^ 1);
    }
    warp_sync();
}

/* Coordinates of a place's first element, in the axes of its map. */
typedef struct ring_box {
    i32 head, row, batch;
} ring_box;

/* By one lane: all boxes of a place, for the barrier. */
DEV void ring_boxes(int what, u32 to, u32 barrier, const tensor_map *map, const ring_box *at) {
    const int groups = ring_chunks(what) / 8, bytes = ring_height(what) * 128;
    mbarrier_expect(barrier, groups * bytes);
    for (int g = 0; g < groups; g++) {
        tensor_load_4d(to + (u32)(g * bytes), map, barrier, g * 64, at->head, at->row, at->batch);
    }
}

/* -- Messages ---------------------------------------------------------------------------------- */

/* By the first warp that loads: lane g has group g's word. Written by the lane that arrives, so
   that its arrival is behind the writing. */
DEV void block_tell(const ring_turn *t, i32 block) {
    UNROLL for (int g = 0; g < GROUPS; g++) {
        const u32 word = warp_from((u32)block, g);
        if (lane_id() == 0) {
            shared_store_u32((u32)(SHARED_BLOCK + 4 * (t->stage * GROUPS + g)), word);
        }
    }
}
/* Read by the lane that arrives at the end, so that its arrival is behind the reading. */
DEV i32 block_told(const ring_turn *t, int group) {
    u32 told = 0;
    if (lane_id() == 0) {
        told = shared_load_u32((u32)(SHARED_BLOCK + 4 * (t->stage * GROUPS + group)));
    }
    return (i32)warp_same(told);
}

/* -- Multiplying ------------------------------------------------------------------------------- */

#define WGMMA_NAME_(n, kind, type) wgmma_64x##n##x16_##kind##_##type
#define WGMMA_NAME(n, kind, type)  WGMMA_NAME_(n, kind, type)
#if ATTN_TYPE == ATTN_F16
#define WGMMA_KEYS    WGMMA_NAME(ATTN_BN, ss, f16)
#define WGMMA_COLUMNS WGMMA_NAME(ATTN_DV, rs, f16)
#define PACK_TWO      pack_f16
#define SPOIL_TWO     spoil_f16
#else
#define WGMMA_KEYS    WGMMA_NAME(ATTN_BN, ss, bf16)
#define WGMMA_COLUMNS WGMMA_NAME(ATTN_DV, rs, bf16)
#define PACK_TWO      pack_bf16
#define SPOIL_TWO     spoil_bf16
#endif

#define TILE_FLIES 1

typedef struct tile_p {
    u32 a[ATTN_BN / 16][4];
} tile_p;

DEV void tile_pin_p(tile_p *p) {
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        UNROLL for (int i = 0; i < 4; i++) {
            p->a[k][i] = forget(p->a[k][i]);
        }
    }
}

/* Begins s = q . k of this group's rows. */
DEV void tile_qk(tile_s *s, int group, int stage_q, int stage_k) {
    const u64 q = wgmma_desc(stage_at(RING_Q, stage_q) + (u32)(group * 64 * 128), 0, 1024);
    const u64 k = wgmma_desc(stage_at(RING_K, stage_k), 0, 1024);
    wgmma_fence();
    UNROLL for (int d = 0; d < ATTN_D / 16; d++) {
        WGMMA_KEYS(s->x[0], s->x[1], q + (u64)((d / 4 * ATTN_BM * 128 + d % 4 * 32) / 16),
                   k + (u64)((d / 4 * ATTN_BN * 128 + d % 4 * 32) / 16), d > 0);
    }
    wgmma_commit();
}

DEV void tile_p_of(tile_p *p, const tile_s *s) {
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        /* i: keys 2t and 2t + 1 of rows g and g + 8, then keys 8 further on of both */
        UNROLL for (int i = 0; i < 4; i++) {
            const float *const x = &s->x[i % 2][4 * k + i / 2 * 2];
            p->a[k][i] = PACK_TWO(x[0], x[1]);
        }
    }
}

/* Begins o += p . v. */
DEV void tile_pv(tile_o *o, const tile_p *p, int stage_v) {
    const u64 v = wgmma_desc(stage_at(RING_V, stage_v), ATTN_BN * 128, 1024);
    wgmma_fence();
    UNROLL for (int k = 0; k < ATTN_BN / 16; k++) {
        WGMMA_COLUMNS(o->x[0], o->x[1], p->a[k], v + (u64)(k * 2048 / 16));
    }
    wgmma_commit();
}

/* All but the n youngest products that this group began have ended; n is a constant. */
#define tile_wait(n) wgmma_wait(n)

/* -- Storing ----------------------------------------------------------------------------------- */

/* o may take the place of q. */
#define TILE_STORES (STAGES_Q == 2 && CHUNKS_V <= CHUNKS_K)

/* Where the warp's rows stand in a place of q, which its group has read. */
DEV u32 tile_own_rows(int stage) {
    return stage_at(RING_Q, stage) + (u32)warp_row() * 128;
}
/* Puts them there, times their factors; 0: all are finite. */
DEV u32 tile_put(const tile_o *o, const float *factor, int stage) {
    u32 bad[2] = {0, 0};
    const u32 lane = (u32)(lane_id() / 4 * (128 + 16) + lane_id() % 4 * 4); /* of chunk 0 */
    UNROLL for (int c = 0; c < ATTN_DV / 8; c++) {
        const u32 at = tile_own_rows(stage) + (lane ^ (u32)(c % 8 * 16));
        UNROLL for (int r = 0; r < 2; r++) {
            const float *const x = &o->x[r][2 * c];
            const u32 two = PACK_TWO(x[0] * factor[r], x[1] * factor[r]);
            shared_store_u32(at + (u32)(c / 8 * ATTN_BM * 128 + r * 1024), two);
            bad[r] = SPOIL_TWO(two, bad[r]);
        }
    }
    proxy_fence();
    return bad[0] | bad[1];
}
/* Sends them from there to o, whose row has these coordinates; on their way until
   store_wait_read. */
DEV void tile_send(int stage, const tensor_map *map, const ring_box *at) {
    warp_sync();
    if (lane_id() == 0) {
        UNROLL for (int g = 0; g < CHUNKS_V / 8; g++) {
            tensor_store_4d(map, tile_own_rows(stage) + (u32)(g * ATTN_BM * 128), g * 64, at->head,
                            at->row, at->batch);
        }
        store_commit();
    }
}

#endif
