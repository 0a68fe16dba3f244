/* cpu_fwd.h: what the files of forward share.

   Who includes it: cpu_fwd.c (work items, tiles), cpu_softmax.c (rows), cpu_strips.c (whole tiles,
   where there are tile registers), cpu_narrow.c (tiles of few rows), cpu_split.c (the list of
   items, states). */
#ifndef ATTN_CPU_FWD_H
#define ATTN_CPU_FWD_H

#include "cpu.h"

enum {
    NARROW = 32,         /* most rows that are worked on as few */
    P_SPLIT = 3 * BN / 2 /* floats of a row of split p */
};
#define AGAIN 0x1p-32f /* there are fewer keys than 2^32, so l times this is below 1 */

/* The keys of a tile whose v has elements that are not finite. */
typedef struct attn__wild_keys {
    int n;
    uint8_t list[BN];
} attn__wild_keys;

/* -- cpu_fwd.c --------------------------------------------------------------------------------- */
/* Makes `r` the tile's rows; their scores stand at s. */
void attn__choose_part(attn__tile *t, attn__part *r, float *s);
/* What the rows' sums are multiplied by, once their maxima are known. */
void attn__scale_sums(const attn__tile *t, const attn__part *r, int begin, int end,
                      const float *corr);

/* -- cpu_softmax.c ----------------------------------------------------------------------------- */
/* Lists the keys of x.v, which has pairs or not, and takes what is not finite out of it. */
void attn__find_wild(attn__tile *t, attn__wild_keys *wild, int pairs);
/* The scores of rows begin..end become p; corr[row]: what its o is to be multiplied by. The queue
   goes on beside them; NULL: there is none. */
void attn__forward_rows(attn__tile *t, attn__part *r, int begin, int end,
                        const attn__wild_keys *wild, float *corr, attn__queue *queue);
/* All rows of parts that follow one another, where all of the tile counts. 0, and nothing is done,
   unless nothing but scores decides and they are few. */
int attn__forward_parts(attn__tile *t, int first, int last, float *corr);

/* -- cpu_strips.c ------------------------------------------------------------------------------ */
/* What a part leaves to the next: a product with v that is still to be made, and whether the first
   strip's scores are there. Zeros before the first part. */
typedef struct attn__strips {
    attn__queue before;
    int has_dots;
} attn__strips;

/* q of a part, and k and v of the tile, split where the plan wants it, if they are tame; k and v
   straight from memory. */
void attn__split_rows(const attn__tile *t, attn__part *r);
void attn__split_keys(attn__tile *t);
/* Whether the part's rows and the tile's keys fill tile registers. */
int attn__has_strips(const attn__tile *t, const attn__part *r);
/* All of a part's work on the tile, but for its last strip's product with v. next: the part after
   it, if all its columns count, or NULL. */
void attn__forward_strips(attn__tile *t, attn__part *r, const attn__part *next, attn__strips *x,
                          const attn__wild_keys *wild);
void attn__end_strips(const attn__tile *t, attn__strips *x);

/* -- cpu_narrow.c ------------------------------------------------------------------------------ */
/* The state of one row of head h of the tile's sequence and key head, with o times AGAIN. */
void attn__forward_again(attn__tile *t, int64_t h, int row, const attn__state *to);
/* An item whose parts have so many rows together, NARROW at most; and a tile of it. */
void attn__begin_narrow(attn__tile *t, int rows);
void attn__forward_narrow(attn__tile *t, int n, int c0, const int *next, const int *class_);

/* -- cpu_split.c ------------------------------------------------------------------------------- */
/* Rows from `at` of a segment's state among `states` of one chunk with `rows` rows. */
attn__state attn__state_at(const attn__cpu_plan *plan, float *states, int segment, int rows,
                           int at);
/* Row i of a state into the same of another. */
void attn__fold_row(const attn__cpu_plan *plan, const attn__state *to, const attn__state *from,
                    int i);
/* The results of local row `row` of head h from row i of a state, whose o is lost. */
void attn__finish_row(attn__tile *t, int64_t h, int64_t row, const attn__state *state, int i,
                      const attn__state *spare); /* room for a row */

/* Rows of all its parts. */
int attn__chunk_rows(const attn__chunk *x, int32_t nq);

#endif
