/* vm_loops.h: the tables of loops that the vector machine runs.

   Who calls it: vm.c picks a table; vm_base.c, vm_avx2.c and vm_avx512.c fill one each.
   A loop writes `to`, which is none of the others, from up to three arguments; what a rule does not
   want may be any readable row. Every table gives the same bits. */
#ifndef ATTN_VM_LOOPS_H
#define ATTN_VM_LOOPS_H

#include "expr.h"

typedef void (*attn__lane_fn)(void *to, const void *x, const void *y, const void *z, int n);

/* [op][argument type]; bools and every select stand under VT_I32, NULL where there is no rule. */
typedef attn__lane_fn attn__lane_table[OP_leaf][3];

/* The i-th table that this processor can run, the fastest first; NULL past the end. */
const attn__lane_table *attn__lanes_at(int i);

extern const attn__lane_table attn__lanes_base;
#if defined(__x86_64__)
extern const attn__lane_table attn__lanes_avx2, attn__lanes_avx512;
#endif

#endif
