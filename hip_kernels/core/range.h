/* range.h: which key blocks a row block visits, in order, and whether it sees all of each; in
   backward, where rows are keys, which query blocks of which heads.

   Who calls it: sched/. Every lane of a warp looks at one block of ATTN_BN keys, and two ballots
   make bit sets of what they found; then stepping is "next bit". Blocks that nobody sees cost a
   lane's look, not a step:

       lane        0  1  2  3  4  5 ...       class of the block: mask, end of the sequence, list
       some        1  1  1  0  0  1           a pair may be visible
       full        1  1  0  0  0  0           all pairs are: no mask is computed
       visited     0  1  2        5

   Where blocks are more than lanes, each lane first looks at several together, and what nobody sees
   at both ends is cut off.

   All warps that step through blocks do this alike, so that no barrier is needed. */
#ifndef ATTN_RANGE_H
#define ATTN_RANGE_H

#include "core/blocks.h"

/* A bit per lane. */
#if TILE_LANES == 32
typedef u32 lane_bits;
#else
typedef u64 lane_bits;
#endif

typedef struct attn_range {
    lane_bits some, full; /* of the blocks base .. base + TILE_LANES - 1; some: not yet visited */
#if ATTN_ORDERED
    lane_bits before; /* of them: the item whose turn comes before sees some of the block, too */
#endif
    i32 base, end;        /* the number that lane 0 looks at; the one past the last */
} attn_range;

/* A block told, as range_next returns it: its number, doubled, plus 1 if all its pairs are visible;
   -1: no block is left. In turns (order.h), plus BLOCK_BEFORE if the neighbour whose turn comes
   before sees some of it, too, and BLOCK_DOWN if that is the one below. */
enum { BLOCK_BEFORE = 1 << 30, BLOCK_DOWN = 1 << 29 };
DEV i32 block_number(i32 told) {
    return (ATTN_ORDERED ? told & (BLOCK_DOWN - 1) : told) >> 1;
}
DEV int block_is_full(i32 told) {
    return told & 1;
}

/* Class (0 none, 1 part, 2 full) of rows i0..i1 of heads h0..h1 with keys k0..k1, all inclusive;
   `most` is the answer where nothing else is known. Nobody sees a box without keys, k1 < k0, for
   which intervals mean nothing; range_look asks for none, since it looks at blocks below `end`. */
DEV int range_box(const attn_params *p, const attn_item *w, i32 h0, i32 h1, i32 i0, i32 i1, i32 k0,
                  i32 k1, int most) {
    int class_ = most;
    (void)p, (void)w, (void)h0, (void)h1, (void)i0, (void)i1;
#if ATTN_HAS_MASK
    attn_box box;
    box.b = p->b0 + w->b;
    box.h0 = p->h0 + h0;
    box.h1 = p->h0 + h1;
    box.q0 = w->seq.q0 + i0;
    box.q1 = w->seq.q0 + i1;
    box.i0 = (i32)p->i0 + i0;
    box.i1 = (i32)p->i0 + i1;
    box.k0 = (i32)p->k0 + k0;
    box.k1 = (i32)p->k0 + k1;
    box.nq = w->seq.nq_all;
    box.nk = w->seq.nk_all;
    box.nh = p->nh;
    box.hk = p->hk;
    box.batch = p->batch;
    const int of_mask = attn_class(p, &box);
    class_ = of_mask < class_ ? of_mask : class_;
#endif
#if ATTN_HAS_BLOCKS
    const int of_lists = class_ ? blocks_class(p, w->b, h0, h1, i0, i1, k0, k1) : 0;
    class_ = of_lists < class_ ? of_lists : class_;
#endif
    return k1 < k0 ? 0 : class_;
}

DEV i32 range_last(i32 past, i32 end) {
    return (past < end ? past : end) - 1;
}

#if ATTN_KEY_ROWS
/* Steps of one head; step n is block n % steps of head n / steps of the group. */
DEV i32 range_steps(const attn_item *w) {
    return (w->seq.nq + ATTN_BN - 1) / ATTN_BN;
}
DEV int range_class(const attn_params *p, const attn_item *w, i32 n) {
    const i32 steps = range_steps(w), head = w->hk * p->group + n / steps;
    const i32 i0 = n % steps * ATTN_BN, past = i0 + ATTN_BN;
    return range_box(p, w, head, head, i0, range_last(past, w->seq.nq), w->row0,
                     range_last(w->row0 + ATTN_BM, w->rows), past <= w->seq.nq ? 2 : 1);
}
#else
/* Rows row .. row + height - 1, as far as there are any, and `count` blocks together. */
DEV int range_rows(const attn_params *p, const attn_item *w, i32 row, i32 height, i32 n,
                   i32 count) {
    const i32 k0 = n * ATTN_BN, past = k0 + count * ATTN_BN;
    const i32 last = range_last(row + height, w->rows);
    return range_box(p, w, w->h, w->h + p->pack - 1, work_row(p, row), work_row(p, last), k0,
                     range_last(past, w->k_end), past <= w->k_end ? 2 : 1);
}
DEV int range_span(const attn_params *p, const attn_item *w, i32 n, i32 count) {
    return range_rows(p, w, w->row0, ATTN_BM, n, count);
}
DEV int range_class(const attn_params *p, const attn_item *w, i32 n) {
    return range_span(p, w, n, 1);
}
#endif

/* The block of number n: going down (work.h) numbers are below 0, and -1 is block 0. */
DEV i32 range_block(i32 n) {
    return ATTN_ORDERED && n < 0 ? -1 - n : n;
}

DEV void range_look(attn_range *it, const attn_params *p, const attn_item *w) {
    const i32 n = it->base + lane_id();
    const int class_ = n < it->end ? range_class(p, w, range_block(n)) : 0;
    it->some = (lane_bits)warp_ballot(class_ != 0);
    it->full = (lane_bits)warp_ballot(class_ == 2);
#if ATTN_ORDERED
    attn_item last = *w;
    last.row0 += it->base < 0 ? -ATTN_BM : ATTN_BM;
    it->before = (lane_bits)warp_ballot(n < it->end && last.row0 >= 0 &&
                                        range_class(p, &last, range_block(n)) != 0);
#endif
}

DEV i32 range_end(const attn_params *p, const attn_item *w) {
#if ATTN_KEY_ROWS
    return p->group * range_steps(w);
#else
    (void)p;
    return w->k_begin < w->k_end ? (w->k_end + ATTN_BN - 1) / ATTN_BN : 0;
#endif
}

/* Not of lists, which a lane would read once more for each of its blocks. */
#define RANGE_NARROWS (ATTN_HAS_MASK && !ATTN_HAS_BLOCKS && !ATTN_KEY_ROWS && !ATTN_ORDERED)
/* Of blocks from `base` on that were looked at `each` a lane: what nobody sees at both ends is cut
   off. */
DEV void range_cut(attn_range *it, lane_bits seen, i32 each) {
    const i32 first = seen ? first_bit(seen) : 0;
    while (seen & (seen - 1)) {
        seen &= seen - 1;
    }
    const i32 end = it->base + (seen ? first_bit(seen) + 1 : 0) * each;
    it->end = end < it->end ? end : it->end;
    it->base += first * each;
}

#if RANGE_NARROWS
DEV void range_narrow(attn_range *it, const attn_params *p, const attn_item *w) {
    const i32 each = (it->end - it->base + TILE_LANES - 1) / TILE_LANES;
    if (each <= 1) {
        return;
    }
    const i32 n = it->base + lane_id() * each;
    range_cut(it, (lane_bits)warp_ballot(n < it->end && range_span(p, w, n, each) != 0), each);
}
#endif

DEV void range_begin(attn_range *it, const attn_params *p, const attn_item *w) {
    it->base = ATTN_KEY_ROWS ? 0 : w->k_begin / ATTN_BN;
    it->end = range_end(p, w);
#if RANGE_NARROWS
    range_narrow(it, p, w);
#endif
    if (ATTN_ORDERED && w->down) {
        it->base = -it->end;
        it->end = 0;
    }
    range_look(it, p, w);
}

/* Looks on until there is a block in `some`; 0: none is left. */
DEV int range_find(attn_range *it, const attn_params *p, const attn_item *w) {
    while (!it->some) {
        if (it->end - it->base <= TILE_LANES) {
            return 0;
        }
        it->base += TILE_LANES;
        range_look(it, p, w);
    }
    return 1;
}

/* The next block, told as above. */
DEV i32 range_next(attn_range *it, const attn_params *p, const attn_item *w) {
    if (!range_find(it, p, w)) {
        return -1;
    }
    const int bit = first_bit(it->some);
    it->some &= it->some - 1;
    i32 block = range_block(it->base + bit) * 2 + (int)(it->full >> bit & 1);
#if ATTN_ORDERED
    block |= (it->before >> bit & 1 ? BLOCK_BEFORE : 0) | (it->base < 0 ? BLOCK_DOWN : 0);
#endif
    return block;
}

#endif
