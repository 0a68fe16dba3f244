/* sequence.h: where one sequence lies: lengths and offsets, clamped to what memory holds.

   Who calls it: work.h, attn_combine.hip. The host's twin is lib/sequence.c: whatever stands in
   memory, both take the same rows, and none outside.

       packed rows    0 .... offsets[b] ........ + used[b] ..... offsets[b+1] .... T
                             | used rows: 0..n  | spare rows     |
       padded rows           0 ................. used[b] ....... N                     */
#ifndef ATTN_SEQUENCE_H
#define ATTN_SEQUENCE_H

/* Local row r of q stands at memory row q_row + r. */
typedef struct attn_seq {
    i64 q_row, k_row;
    i32 nq, nk;         /* used rows and keys here */
    i32 nq_all, nk_all; /* leaves nq, nk */
    i32 q0;             /* leaf q of local row 0 */
} attn_seq;

DEV i64 clamp_i64(i64 x, i64 lo, i64 hi) {
    return x < lo ? lo : x > hi ? hi : x;
}
DEV i64 load_i32(u64 at) {
    return (i64)(i32)load_u32(at);
}

/* T rows in memory, at most `most` in a sequence; offsets and used are addresses or 0. */
DEV i64 seq_rows(u64 offsets, i64 offsets_n, u64 used, i64 used_n, i64 b, i64 T, i64 most,
                 i64 *row) {
    i64 n = T;
    *row = 0;
    if (!offsets && !used) {
        return most;
    }
    if (offsets) {
        *row = clamp_i64(load_i32(offsets + (u64)(b * offsets_n)), 0, T);
        n = clamp_i64(load_i32(offsets + (u64)((b + 1) * offsets_n)), *row, T) - *row;
    }
    most = n < most ? n : most;
    return used ? clamp_i64(load_i32(used + (u64)(b * used_n)), 0, most) : most;
}

DEV attn_seq seq_of(const attn_params *p, i64 b) {
    attn_seq s;
    s.nq = (i32)seq_rows(p->q_offsets, p->q_offsets_n, p->q_used, p->q_used_n, b, p->TQ,
                         p->q_most, &s.q_row);
    s.nk = (i32)seq_rows(p->k_offsets, p->k_offsets_n, p->k_used, p->k_used_n, b, p->TK,
                         p->k_most, &s.k_row);
    s.nq_all = p->nq_all ? (i32)p->nq_all : s.nq;
    s.nk_all = p->nk_all ? (i32)p->nk_all : s.nk;
    s.q0 = (i32)p->i0 + (p->flags & ATTN_P_TOP_LEFT ? 0 : s.nk_all - s.nq_all);
    return s;
}

#endif
