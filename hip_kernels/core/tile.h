/* tile.h: the contract between the algorithm and the chips.

   Who calls what: sched/ and core/ are written in these names; arch/ has one header per kind of
   chip that fulfils them, from isa/. The check at the end says what an arch header lacks. A
   schedule of one chip, sched/producer.h, calls its header (arch/sm90.h), whose ring and products
   have arguments of their own.

   -- Who holds what ----------------------------------------------------------------------------
   A warp owns ATTN_BM / ATTN_WARPS query rows, all keys of a step and all columns of the output, so
   softmax needs no other warp. A lane holds TILE_ROWS rows of it, and of each row every
   TILE_COLS(n)-th part of n columns:

                      keys (ATTN_BN), or columns of o (ATTN_DV)
                  +--------------------------------------------+
       rows of    |      lane's element x[r][c] stands in      |
       the warp   |      row tile_row(r), column tile_col(c)   |
                  +--------------------------------------------+

   tile_row and tile_col are the same for scores and output, but for tile_out. A chip that computes
   the transposed product (keys x rows) shows it through the same names. Of the warp's rows and of
   the columns (ATTN_SPLIT 1) lane l has, n, m, j any:

       sm_80, sm_90a       columns  8 n + 2 t    8 n + 2 t + 1       l = 4 g + t
            row 16 m + g            x[2m][2n]    x[2m][2n + 1]       one 16 x 8 result of mma
            row 16 m + g + 8        x[2m+1][2n]  x[2m+1][2n + 1]

       gfx90a, gfx942      columns  8 j + 4 g ..... 8 j + 4 g + 3    l = 32 g + i
            row 32 r + i            x[r][4j] ...... x[r][4j + 3]     of a 32 x 32 result, turned

       TILE_LANES     lanes of a warp                               (target.h)
       TILE_ROWS      rows of the block's tile that a lane holds
       TILE_COLS(n)   columns of n that it holds of each
       int tile_row(int r)    0..ATTN_BM: row in the block's tile; warp w has those from
                              w * ATTN_BM / ATTN_WARPS on
       int tile_out(int c)    the column of the output, where it is not tile_col(c)
       int tile_col(int c)    0..n: column; increasing in c; for even c, tile_col(c) is even and
                              tile_col(c + 1) the next

       tile_s { float x[TILE_ROWS][TILE_COLS(ATTN_BN)]; }   scores, then p
       tile_o { float x[TILE_ROWS][TILE_COLS(ATTN_DV)]; }   output being summed
       tile_q    this warp's rows of q as an operand: registers, or where they lie in shared memory
       tile_p    p as an operand, rounded to the type of v (f32: not rounded)

   -- Multiplying -------------------------------------------------------------------------------
       void tile_qk(tile_s *s, const tile_q *q, int what, int stage)   s = q . k of the stage
       void tile_p_of(tile_p *p, const tile_s *s)                      rounds and arranges
       void tile_pv(tile_o *o, const tile_p *p, int what, int stage)   o += p . v of the stage
       what: RING_K in tile_qk, RING_V in tile_pv; in backward, where D is DV, either in both

       tile_qk           d               d                   key
                    +---------+     +---------+         +-----------+
              row   | q       |     | k       | key     | s       * | row    s begins at 0
                    +---------+     +---------+         +-----------+

       tile_pv          key            column              column
                    +---------+     +---------+         +-----------+
              row   | p       |     | v       | key     | o +=    * | row
                    +---------+     +---------+         +-----------+

       One instruction, a times b:  sm_80            sm_90a              gfx90a, gfx942 (turned)
            tile_qk  a              q 16 rows x 16   q 64 rows x 16      k 32 keys x 8
                     b              k 8 keys x 16    k ATTN_BN keys x 16 q 32 rows x 8
            tile_pv  a              p 16 rows x 16   p 64 rows x 16      v 32 columns x 8 keys
                     b              v 8 columns      v ATTN_DV columns   p 32 rows x 8 keys
       Backward by wgmma has these shapes, too (arch/sm90_grad.h); f32: 16 x 8 x 8, three times, of
       tf32 (sm_80), and 32 x 32 x 2 (gfx).

       tile_p_of: p needs no other lane's numbers. 16 bits, two numbers a word (f32: p is x):

            sm    x[2m][4k], [4k+1]      a[m][k][0]  | a[m][k][2]    x[2m][4k+2], [4k+3]
                  x[2m+1][4k], [4k+1]    a[m][k][1]  | a[m][k][3]    x[2m+1][4k+2], [4k+3]
                        keys 16 k + 2 t, + 1         |     keys 16 k + 8 + 2 t, + 1
            gfx   x[r][4j], [4j+1], [4j+2], [4j+3]   w[r][2j], w[r][2j+1]   keys 8 j + 4 g, .. + 3

       TILE_CHAINS    sums of a row's p that a lane keeps, 1 where registers are few, or 2
       TILE_LATE      1: m need not be a maximum (softmax.h)
       TILE_P_SCALE   p, at most 2^8 (softmax.h), is multiplied by this power of two before it is
                      rounded (1, or 2^k on chips that flush 16-bit subnormals); core/ multiplies
                      and divides
       TILE_O_SCALE   what tile_pv multiplies o by besides, where it is not 1; core/ divides

       TILE_WILD      1: a product of what is infinite may be NaN. Scores and masks that would make
                      something else of it let it pass, and the row is done once more (careful.h)
       TILE_DOWN(r)   tile_row(r) less tile_row(0), if it is a constant
       TILE_COUNTS    1: i32 tile_count(i32 right): how many of a lane's columns lie at most `right`
                      behind its first one
       TILE_SPREADS   1: a warp has all columns, lanes of a row others: lane L looks at columns
                      tile_own(0 .. TILE_OWN - 1) for all, and tile_spread(own, c) is what was found
                      at tile_col(c)
       TILE_TURNS     1: void tile_turn(u32 w[4]): of four chunks of 8 columns, 16 bits each, the
                      lanes of a row have a word each, in order; then a whole chunk each, in order.
                      a.n is word n of chunk a:

                        lane of the row    0    1    2    3              0    1    2    3
                            w[0]          0.0  0.1  0.2  0.3            0.0  1.0  2.0  3.0
                            w[1]          1.0  1.1  1.2  1.3     ->     0.1  1.1  2.1  3.1
                            w[2]          2.0  2.1  2.2  2.3            0.2  1.2  2.2  3.2
                            w[3]          3.0  3.1  3.2  3.3            0.3  1.3  2.3  3.3

   -- Backward whose blocks of keys give their parts of dq (ATTN_FUSED: sm_80, sm_90a) ----------
   ATTN_SPLIT warps have the same rows; each has every ATTN_SPLIT-th 16 columns of them (by wgmma
   one of ATTN_SPLIT parts), of scores and of sums. p and g go through shared memory: to the warps
   that sum other columns, and to the product that sums over keys. ATTN_SPLIT 2, warps A and B:

               queries, 16 each                       queries
            +----+----+----+----+                +---------------+
       keys | A  | B  | A  | B  |  tile_share    |               |  tile_shared    p, g of all
            |    |    |    |    | ------------>  | p, g, shared  | ------------->  queries, as an
            +----+----+----+----+                |               |  (a warp's keys) operand
              g and p, in registers              +---------------+
                                                         | tile_dq: g read turned
                                                         v
            d (queries x columns of the pass)  =  g' (queries x keys) . own K (keys x columns)

       void tile_share(int what, const tile_p *p)   SHARE_P, SHARE_G: the warp's part
       void tile_shared(tile_p *p, int what)        all columns of its rows: after ring_sync, where
                                                    ATTN_SPLIT > 1
       void tile_dq(tile_d *d, int pass)            d = g' . the rows of RING_Q's stage 0: after
                                                    ring_sync; of the columns that the pass has
       tile_d { float x[DQ_ROWS][DQ_COLS]; }    of ATTN_BN queries and ATTN_D / DQ_PASSES
                                                    columns those of the lane
       int dq_row(int r), dq_col(int c, int pass)    as tile_row, tile_col

   TILE_FULL       1: the tiles of backward leave nothing of shared memory, and the statistics of
                   queries are read where they lie
   TILE_FLIES      1, by arch/sm90_grad.h: tile_qk, tile_pv and tile_dq begin a product, whose
                   operands and result stay untouched until

       tile_wait(n)    all products have ended but the n youngest, a constant
       tile_pin_s, tile_pin_o, tile_pin_d      of a result: it is there now

   TILE_LEAN       1: in backward's loop registers are few, and what can be read or computed again
                   stays in none

   -- Dropout ----------------------------------------------------------------------------------
       TILE_DROP_CALLS     calls of the generator (dropout.h) whose keys a lane holds, for each row
                           and group of 32 keys
       TILE_DROP_CALL(c)   0..TILE_DROP_CALLS: the call that serves column c, a constant

            of 8 keys        0 1 | 2 3 | 4 5 | 6 7       and so of each 8 of the 32
            call of dropout.h  0 |  1  |  2  |  3
            sm: lane t has     t = 0, 1, 2, 3            1 call: number t
            gfx: half g has  g = 0 ... | g = 1 ...       2 calls: 2 g of c % 4 = 0, 1; 2 g + 1

   -- Across lanes ------------------------------------------------------------------------------
       float row_max(float x), row_sum(float x)   over the lanes that share a row; same bits in each
       TILE_SHARE                      so many lanes share a row; 1: each does for all of them
       int row_lane(void)              0..TILE_SHARE: which of them this lane is
       float row_from(float x, int i)  x of the i-th of them

            sm: lanes 4 g + t of row g     t:  0     1     2     3
                                               '--+--'     '--+--'      with lane l ^ 1
                                                  '-----+-----'         with lane l ^ 2
            gfx: lanes i, 32 + i of row i      i .......... 32 + i      with lane l ^ 32

   -- The ring: tiles on their way from device memory to shared memory --------------------------
   Stage j of K and of V are places of their own, ATTN_STAGES of each; q has one, in backward two.

       ring_hold                     what a lane keeps of a load under way (may be empty)
       void ring_load(ring_hold *h, int what, int stage, const tile_rows *from, int row)
                                     begins: all threads of the block; rows row.. of `from`, as many
                                     as the tile has; rows from->rows and later, columns from->cols
                                     and later become 0
       void ring_land(ring_hold *h, int what, int stage)
                                     lanes hand over what they hold; a load's last act
       void ring_wait(int younger)   this thread's loads have landed but for the `younger` youngest
       void ring_sync(void)          all threads of the block; what landed before it is seen by all,
                                     and what was read before it may be overwritten
       void tile_q_of(tile_q *q, const ring_hold *h, int stage)
                                     takes q from the ring (after its wait and sync), or from h, the
                                     hold of its load, where q goes to registers at once
       what: RING_Q, RING_K, RING_V
       RING_HOLDS                    1: loads touch no shared memory before they land

   What ring_load brings, and where from there:

          from: cols                    the place: ATTN_D or ATTN_DV
         +----------+                  +----------+-----+
         | row ..   |                  |          |     |      gfx: by way of ring_hold; tile_q_of
         |          |    ------>       |          |  0  |           takes q from there
         +----------+ from->rows       +----------+     |      sm_80: by cp.async
           others'                     |       0        |      sm_90a, producer: by TMA
                                       +----------------+

   One load makes its way like this; a chip with copies past the registers does nothing in land, and
   waits for some of its loads, the oldest:

       load ....(memory to registers).... land (registers to shared) wait sync | qk or pv | sync
       load ....(memory to shared).......                            wait sync | qk or pv | sync
                                                                                 the place is free:
       ring_wait(2)     load 1  load 2 | load 3  load 4    a thread's,                 its next load
                        have landed    | may be under way  oldest first

   arch/sm90.h, for sched/producer.h alone: who loads does not multiply. So instead of ring_sync, a
   place has two barriers, full and free:

       loads       ring_wait_free | boxes .... land: full |          ring_wait_free | boxes ...
       multiplies                         ring_wait_full | qk or pv | ring_free

       ATTN_SHARED_BYTES   bytes of shared memory of a block
       TILE_ITEM           1: an item stands there (core/item.h), from SHARED_ITEM on
       TILE_PARKS          1: maxima and sums stand there during products, from SHARED_SOFT on,
                           where K and V begin, at SHARED_SOURCES, and ranges, from SHARED_RANGE on
                           (sched/multistage.h) */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

enum { RING_Q, RING_K, RING_V };
enum { SHARE_G, SHARE_P };

/* Where rows come from. With pack > 1, row r of the tile is row r / pack of head r % pack. */
typedef struct tile_rows {
    u64 data;  /* row 0 of the sequence, of the first head */
    i64 n, h;  /* bytes from row to row, from head to head of the group */
    i32 rows;  /* rows that there are (packed: times pack) */
    i32 cols;  /* elements of a row */
    i32 pack;
    i32 vec;   /* 16 bytes at a time; otherwise element by element */
} tile_rows;

#include "core/lanes.h"

#include ATTN_ARCH_H

#ifndef TILE_ITEM
#define TILE_ITEM 0
#endif
#ifndef TILE_SHARE
#define TILE_SHARE 1
DEV int row_lane(void) {
    return 0;
}
DEV float row_from(float x, int i) {
    (void)i;
    return x;
}
#endif
#ifndef TILE_OUT
DEV int tile_out(int c) {
    return tile_col(c);
}
#endif
#ifndef TILE_FULL
#define TILE_FULL 0
#endif
#ifndef TILE_LEAN
#define TILE_LEAN ATTN_FUSED
#endif
#ifndef TILE_FLIES
#define tile_wait(n)     ((void)0)
#define tile_pin_s(s)    ((void)0)
#define tile_pin_o(o)    ((void)0)
#endif
#ifndef TILE_O_SCALE
#define TILE_O_SCALE 1.0f
#endif
#ifndef TILE_WILD
#define TILE_WILD 0
#endif
#ifndef TILE_COUNTS
#define TILE_COUNTS 0
#endif

/* What the arch header lacks, by name: a macro by #error, a function by the compiler's own. */
#ifndef TILE_ROWS
#error "the arch header lacks TILE_ROWS"
#endif
#ifndef TILE_COLS
#error "the arch header lacks TILE_COLS"
#endif
#ifndef TILE_CHAINS
#error "the arch header lacks TILE_CHAINS"
#endif
#ifndef TILE_P_SCALE
#error "the arch header lacks TILE_P_SCALE"
#endif
#ifndef TILE_DROP_CALLS
#error "the arch header lacks TILE_DROP_CALLS"
#endif
#ifndef TILE_DROP_CALL
#error "the arch header lacks TILE_DROP_CALL"
#endif
#ifndef ATTN_SHARED_BYTES
#error "the arch header lacks ATTN_SHARED_BYTES"
#endif
#if !ATTN_PRODUCER && !defined(RING_HOLDS)
#error "the arch header lacks RING_HOLDS"
#endif
enum {
    TILE_HAS = sizeof(&tile_row) + sizeof(&tile_col) + sizeof(&tile_out) + sizeof(&row_max) +
               sizeof(&row_sum) + sizeof(&row_lane) + sizeof(&row_from) + sizeof(&tile_qk) +
               sizeof(&tile_p_of) + sizeof(&tile_pv) + sizeof(tile_s) + sizeof(tile_o) +
               sizeof(tile_p),
#if !ATTN_PRODUCER
    TILE_HAS_RING = sizeof(tile_q) + sizeof(ring_hold) + sizeof(&ring_load) + sizeof(&ring_land) +
                    sizeof(&ring_wait) + sizeof(&ring_sync) + sizeof(&tile_q_of),
#endif
#if ATTN_FUSED
    TILE_HAS_DQ = sizeof(&tile_share) + sizeof(&tile_shared) + sizeof(&tile_dq) + sizeof(tile_d) +
                  sizeof(&dq_row) + sizeof(&dq_col),
#endif
#if TILE_TURNS
    TILE_HAS_TURN = sizeof(&tile_turn)
#endif
};

#endif
