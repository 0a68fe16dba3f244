/* blocks.h: explicit lists of visible key blocks, in the user's own block size.

   Who calls it: range.h (whole tiles), score.h and careful.h (pairs). For each block of block_m
   rows there is a list of numbers of blocks of block_n keys, in any order; numbers out of range and
   repeated ones mean nothing. */
#ifndef ATTN_BLOCKS_H
#define ATTN_BLOCKS_H

/* 1 if the list of (b, h, row block) has key block `kb`; local row and key numbers. */
DEV int blocks_list_has(const attn_params *p, i64 b, i64 h, i64 row_block, i32 kb) {
    const i32 count = (i32)load_u32(rows_at(&p->counts, b, h, row_block));
    const i32 n = count < p->block_most ? count : p->block_most;
    const u64 list = rows_at(&p->indices, b, h, row_block);
    for (i32 e = 0; e < n; e++) {
        if ((i32)load_u32(list + (u64)e * 4) == kb) {
            return 1;
        }
    }
    return 0;
}

/* Keys k0..k1 for rows i0..i1 of heads h0..h1, all inclusive: 0 none is listed, 2 all, 1 some. */
DEV int blocks_class(const attn_params *p, i64 b, i32 h0, i32 h1, i32 i0, i32 i1, i32 k0, i32 k1) {
    int some = 0, all = 1;
    for (i32 h = h0; h <= h1; h++) {
        for (i32 r = i0 / p->block_m; r <= i1 / p->block_m; r++) {
            for (i32 k = k0 / p->block_n; k <= k1 / p->block_n; k++) {
                const int has = blocks_list_has(p, b, h, r, k);
                some |= has;
                all &= has;
            }
        }
    }
    return all ? 2 : some;
}

DEV int blocks_pair(const attn_params *p, i64 b, i64 h, i32 i, i32 k) {
    return blocks_list_has(p, b, h, i / p->block_m, k / p->block_n);
}

#endif
