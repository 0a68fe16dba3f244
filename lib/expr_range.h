/* expr_range.h: the intervals of one node, shared by expr_range.c, which walks a graph once, and
   expr_class.c, which walks it with what conditions say. */
#ifndef ATTN_EXPR_RANGE_H
#define ATTN_EXPR_RANGE_H

#include "expr.h"

#include <math.h>

/* expr_interval.c: the result of an op on arguments of type `type`. An i32 result is the exact one,
   which may pass i32: attn__range_wrap tells. */
attn__range attn__interval(int op, int type, const attn__range *arg);
/* x moved by n places in the order of f32, not beyond the infinities. */
float attn__float_step(float x, int n);

/* expr_range.c: the same for any node; `arg` has the ranges of its arguments. */
attn__range attn__range_node(const attn_graph *g, int n, const attn__box *box,
                             const attn__range *arg);
attn__range attn__range_all(int type); /* every value of the type */

static inline int attn__range_fits(const attn__range *r) {
    return r->lo >= INT32_MIN && r->hi <= INT32_MAX;
}
/* What an i32 operation of that exact result leaves: anything if it may wrap. */
static inline attn__range attn__range_wrap(int type, attn__range r) {
    return type == VT_I32 && !attn__range_fits(&r) ? attn__range_all(VT_I32) : r;
}
static inline int attn__range_single(const attn__range *r) {
    return r->lo == r->hi && !r->nan;
}

#endif
