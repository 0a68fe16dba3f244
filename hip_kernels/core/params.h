/* params.h: the parameters of a launch, one struct for host and device.

   Who fills it: lib/gpu_params.c, per run, by value. Who reads it: work.h, range.h, score.h, the
   loaders and the epilogue. Strides are in bytes; a stride is 0 where an extent is 1. Types are of
   fixed size, so that the host's compiler and the device's lay it out alike.

   Rows: a block of ATTN_BM rows belongs to one (batch entry, key head). With pack = 1 its rows are
   rows of one query head; with pack = H / HK its row r is row r / pack of head r % pack of the
   group, so that few queries of many heads share one pass over K and V. */
#ifndef ATTN_PARAMS_H
#define ATTN_PARAMS_H

typedef struct attn_rows { /* [batch][head][row][element] */
    u64 data;
    i64 b, h, n; /* bytes from one to the next */
} attn_rows;

/* Bits of flags. */
#define ATTN_P_TOP_LEFT 1u /* q = i */
#define ATTN_P_VEC_Q 2u    /* every row of q may be read 16 bytes at a time: D is whole chunks */
#define ATTN_P_VEC_K 4u
#define ATTN_P_VEC_V 8u
#define ATTN_P_VEC_O 16u   /* o may be written 16 bytes at a time */
#define ATTN_P_VEC_DOUT 32u
#define ATTN_P_VEC_TO 64u
#define ATTN_P_VEC_TO_V 128u
#define ATTN_P_MAP_Q 256u  /* map[0] is there */
#define ATTN_P_MAP_K 512u
#define ATTN_P_MAP_V 1024u
#define ATTN_P_MAP_O 4096u /* map[3] is there: o is of the kernel's type, its rows are plain */
#define ATTN_P_LAST_FULL 2048u /* work.h: a sequence's last rows fill their block */

/* Of backward alone. A launch of attn_bwd.hip has one or two results: of query rows dq, of key rows
   dk and dv, and then it may add to dq's parts. */
typedef struct attn_back {
    attn_rows dout, dlse;       /* dlse.data 0: absent */
    attn_rows to, to_v;         /* dq or dk; dv */
    attn_rows stats;            /* core/stats.h */
    attn_rows part;             /* core/dq.h: n is of a block */
    i64 part_bytes;             /* cleared before; 0: there is none */
    attn_rows copy;             /* dout in q's type, where it is of another; data 0: none */
    u64 dsink;                  /* f32 [H] */
    i64 dsink_h;                /* bytes from head to head */
    i32 dout_type, copy_type;   /* ATTN_F16, ATTN_BF16, ATTN_F32 */
    i32 to_type, to_v_type;
} attn_back;

typedef struct attn_params {
    union {
        /* Boxes of the tiles of q, k, v and of a warp's rows of o: axes are columns, heads, rows,
           batch entries; a stride of 0 has no axis. For the producer schedule, where flags say
           so. */
        tensor_map map[4];
        attn_back back;
    };
    attn_rows q, k, v, o, lse;         /* packed: b is 0 */
    attn_rows q_scale, k_scale, v_scale; /* f32; data 0: 1. n: from one 128 rows to the next */
    attn_rows counts, indices;         /* i32 block lists; n: from one row block to the next */
    u64 sink;                          /* f32 [H], 0: none */
    i64 sink_h;                        /* bytes from head to head */
    u64 q_offsets, k_offsets, q_used, k_used; /* i32, 0: absent */
    i64 q_offsets_n, k_offsets_n, q_used_n, k_used_n; /* bytes from one to the next */
    u64 seed_at;                       /* the dropout key in memory, 0: seed */
    u64 seed;
    u64 part_o, part_lse;              /* f32 [split][B][H][NQ][DV] and [split][B][H][NQ] */
    i64 items;                         /* work items in all */
    i64 xcd_items;                     /* of one chiplet, rounded up */
    u64 per_xcds, per_splits, per_section, per_heads, per_group; /* work.h: quotient() */
    i64 first;                         /* number of this launch's block 0 (work.h) */
    u64 counter;                       /* producer: a u32 of this launch, 0 before it; or 0 */
    i64 TQ, TK;                        /* rows of q and of k in memory (packed: all) */
    i64 i0, k0, nq_all, nk_all;        /* origins; totals, 0: the used length */
    i32 B, H, HK, NQ, NK, D, DV;       /* NQ, NK: longest sequence */
    i32 q_most, k_most;                /* rows that a sequence has at most: no more than there are
                                          in memory, or in the whole behind the origin */
    i32 group, pack;                   /* H / HK; 1 or group */
    i32 q_scale_group, k_scale_group, v_scale_group; /* query heads per head of it: 1 or group */
    i32 q_tiles, splits, split_keys;   /* row blocks of the longest sequence; keys of a split, a
                                          multiple of ATTN_BN */
    i32 o_type;                        /* ATTN_F16, ATTN_BF16, ATTN_F32 */
    i32 b0, h0, nh, hk, batch;         /* origins; leaves nh, hk, batch */
    i32 xcds;                          /* chiplets that items are dealt to; 1 elsewhere */
    i32 near;                          /* heads of a section (work.h) */
    i32 block_m, block_n, block_most;  /* block lists */
    u32 flags;
    u32 zero;                          /* 0: what is read where a tensor has no element */
    u32 drop_threshold, drop_offset;   /* keep iff u16 >= threshold */
    float drop_factor;
    float scale, factor; /* factor: scale log2 e, which score.h has where products stay products */
    /* What the variant reads, in the order of its symbols. A parameter: one word, its f32 or i32 in
       the low half. A tensor of rank r: its address, then (extent, stride in bytes) r times, then
       the address of its table (spans.h) or 0. */
    i64 word[ATTN_WORDS];
} attn_params;

#endif
