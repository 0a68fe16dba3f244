/* expr_runs.c: which keys a block of queries sees, as runs of one class.

   Who calls it: the CPU engine for every block of rows, plan.c for its counts. A range of keys that
   is all visible or all masked needs one look; any other is halved, down to `step` keys:

       [.........................|########################|=====|..........]
       none                      full                     part  none

   so a window among n keys costs about log2(n / step) classes, wherever it lies. */
#include "expr.h"

/* The end of a run that begins at `begin` and has one class; halves of [begin, *end) are left for
   later on the stack of ends. */
static int next_piece(const attn_graph *g, int mask, attn__box *box, int64_t k0, int32_t step,
                      int32_t begin, int32_t *stack, int *depth) {
    for (;;) {
        const int32_t end = stack[*depth - 1];
        box->leaf[LEAF_k] = (attn__range){(double)(k0 + begin), (double)(k0 + end - 1), 0};
        const int class_ = attn__class(g, mask, box);
        const int32_t steps = (int32_t)(((int64_t)end - begin + step - 1) / step);
        if (class_ != CLASS_PART || steps <= 1) {
            return class_;
        }
        stack[(*depth)++] = begin + steps / 2 * step;
    }
}

int attn__runs(const attn_graph *g, int mask, attn__box *box, int64_t k0, int32_t nk, int32_t step,
               int32_t *at, attn__run *runs, int cap) {
    int32_t stack[40] = {nk}; /* ends of what is not looked at yet, the nearest on top */
    int depth = 1, n = 0;
    while (*at < nk) {
        const int class_ = next_piece(g, mask, box, k0, step, *at, stack, &depth);
        const int32_t end = stack[--depth];
        if (class_ != CLASS_NONE) {
            if (n && runs[n - 1].end == *at && runs[n - 1].class_ == class_) {
                runs[n - 1].end = end;
            } else if (n == cap) {
                break;
            } else {
                runs[n++] = (attn__run){*at, end, class_};
            }
        }
        *at = end;
    }
    return n;
}
