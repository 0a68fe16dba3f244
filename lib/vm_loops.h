/* vm_loops.h: the tables of loops that the vector machine runs.

   Who calls it: vm.c picks a table; vm_base.c, vm_avx2.c and vm_avx512.c fill one each by vm_lanes.h.
   A unary loop gets its argument for the unused ones too. */
#ifndef ATTN_VM_LOOPS_H
#define ATTN_VM_LOOPS_H

#include "expr.h"

typedef void (*attn__lane_fn)(void *restrict to, const void *x, const void *y, const void *z,
                              int n);

/* [op][argument type]; bools and every select stand under VT_I32. */
extern const attn__lane_fn attn__lanes_base[OP_leaf][3];

#endif
