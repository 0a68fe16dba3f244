/* work.h: what one block works on, and in which order.

   Who calls it: attn_fwd.hip, sched/producer.h, attn_bwd.hip, attn_bwd_dq.hip. A work item is
   (batch entry, head, row block, split); a head is a key head where rows are keys or a group is
   packed into them, else a query head. Heads of all batch entries are cut into sections of `near`
   (the last one may be smaller); items are numbered

       ((section * q_tiles + row block, last first) * near + head in the section) * splits + split

   so blocks that run at the same time share K and V in the second cache, and where a mask lets
   later rows see more keys the long ones begin first; keys as rows go from first to last, in turns
   the other way or, in a section that goes down, this way (order.h). Blocks b, b + xcds, ... run on
   one chiplet; they get items that follow each other:

       block  0 1 2 3 4 5 ...        chiplet 0: items 0 .. n      n = ceil(items / xcds) - 1
       xcd    0 1 0 1 0 1            chiplet 1: items n + 1 ..                              */
#ifndef ATTN_WORK_H
#define ATTN_WORK_H

#include "core/sequence.h"

typedef struct attn_item {
    attn_seq seq;
    i32 b, h, hk, split; /* h: query head, of a packed group the first, of key rows the step's */
    i32 row0, rows;      /* first row of the block, rows there are (packed: times pack) */
    i32 k_begin, k_end;  /* keys of the split */
    int down;            /* in turns: the section goes down */
} attn_item;

/* Rows of a block: of attn_bwd_dq.hip those of a step. */
#define WORK_ROWS (ATTN_FUSED && !ATTN_KEY_ROWS ? ATTN_BN : ATTN_BM)

/* Numbers of items. Under sched/producer.h they have 32 bits, since the warps that ask for them
   have few registers; lib/gpu_fwd.c takes that schedule where there are fewer than 2^31. */
#if ATTN_PRODUCER
typedef i32 work_number;
#else
typedef i64 work_number;
#endif

/* n / d, where `per` stands for d: 2^64 / d rounded up, 0 for 1. Exact where n d < 2^64: a d of 31
   bits allows 2^33 items. A division by what is not known takes many times as long. */
DEV work_number quotient(work_number n, i32 d, u64 per) {
#if ATTN_PRODUCER
    (void)per;
    return n / d;
#else
    (void)d;
    return per ? (i64)mul_high_u64((u64)n, per) : n;
#endif
}

/* Batch entry, heads, split of a block's number, and in row0 its row block; 0: there is none. */
DEV int work_place(const attn_params *p, work_number number, attn_item *w) {
    const work_number items = (work_number)p->items;
    const work_number turn = quotient(number, p->xcds, p->per_xcds);
    const work_number n = (number - turn * p->xcds) * (work_number)p->xcd_items + turn;
    if (n >= items) {
        return 0;
    }
    const int of_group = ATTN_KEY_ROWS || p->pack > 1;
    const work_number heads = of_group ? p->HK : p->H;
    const work_number block = quotient(n, p->splits, p->per_splits);
    const work_number section = quotient(block, p->near * p->q_tiles, p->per_section);
    const work_number first = section * p->near, left = p->B * heads - first;
    const work_number near = left < p->near ? left : p->near, in = block - first * p->q_tiles;
    const i32 tile = (i32)(near == 1 ? in : in / near);
    const work_number bh = first + (in - tile * near), b = quotient(bh, (i32)heads, p->per_heads);
    const i32 head = (i32)(bh - b * heads);
    w->split = (i32)(n - block * p->splits);
    w->b = (i32)b;
    w->h = of_group ? head * p->group : head;
    w->hk = of_group ? head : (i32)quotient(head, p->group, p->per_group);
    /* of sections every second one, and the last one unless it is the first, too */
    w->down = ATTN_ORDERED && first > 0 && (left - 1) / p->near % 2 == 0;
    w->row0 = (ATTN_KEY_ROWS && w->down == ATTN_ORDERED ? tile : p->q_tiles - 1 - tile) * WORK_ROWS;
    return 1;
}

/* Where a mask lets later rows see more keys, the block that has fewer rows than others shall be
   the first, not the last: rows before its end are its own, and all others begin so much
   earlier. */
DEV void work_last_full(attn_item *w) {
    const i32 over = w->rows % WORK_ROWS;
    if (over && w->row0 > 0) {
        w->row0 -= WORK_ROWS - over;
    } else if (over) {
        w->rows = over;
    }
}

/* Rows and keys, from the place and its sequence. */
DEV void work_rows(const attn_params *p, attn_item *w) {
    w->rows = ATTN_KEY_ROWS ? w->seq.nk : w->seq.nq * p->pack;
    if (ATTN_PRODUCER && p->flags & ATTN_P_LAST_FULL) {
        work_last_full(w);
    }
    w->k_begin = 0;
    w->k_end = w->seq.nk;
    if (p->splits > 1) {
        const i64 begin = (i64)w->split * p->split_keys, end = begin + p->split_keys;
        w->k_begin = begin < w->seq.nk ? (i32)begin : w->seq.nk;
        w->k_end = end < w->seq.nk ? (i32)end : w->seq.nk;
    }
}

/* Of a block's number; 0: nothing to do. */
DEV int work_item(const attn_params *p, work_number number, attn_item *w) {
    if (!work_place(p, number, w)) {
        return 0;
    }
    w->seq = seq_of(p, w->b);
    work_rows(p, w);
    return w->row0 < w->rows;
}

/* Local row and head of row r of the sequence (packed: r / pack, r % pack; backward never is). */
DEV i32 work_row(const attn_params *p, i32 r) {
    return !ATTN_BACKWARD && p->pack > 1 ? r / p->pack : r;
}
DEV i32 work_head(const attn_params *p, const attn_item *w, i32 r) {
    return !ATTN_BACKWARD && p->pack > 1 ? w->h + r % p->pack : w->h;
}

DEV u64 rows_at(const attn_rows *t, i64 b, i64 h, i64 row) {
    return t->data + (u64)(b * t->b + h * t->h + row * t->n);
}

#endif
