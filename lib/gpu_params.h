/* gpu_params.h: the parameters of a launch on the host's side, and the shape of the grid that they
   need.

   Who includes it: gpu_kernel.h, tests. */
#ifndef ATTN_GPU_PARAMS_H
#define ATTN_GPU_PARAMS_H

#include "../hip_kernels/core/types.h"
#include "gpu.h"
#include "gpu_text.h"

/* Most words that a launch carries: parameters have at most 4,096 bytes. */
#define ATTN_WORDS 344
#include "../hip_kernels/core/params.h"

/* How a plan cuts the work; decided by gpu_fwd.c, gpu_bwd.c. */
typedef struct attn__grid {
    attn__tile_size tile;
    int producer;   /* 1: the schedule of that name */
    int ordered;    /* of backward: 1: parts of dq are added in one order (ATTN_ORDERED) */
    int groups;     /* of backward: 1: products of groups of warps (ATTN_WGMMA) */
    int pack;       /* 1, or H / HK: a group's heads share the rows of a block */
    int splits;     /* parts of the keys, each a work item; 1: none */
    int split_keys; /* keys of a part: a multiple of tile.bn */
    int xcds;
    int near;       /* heads of a section: work.h */
    int counter;    /* bytes of the workspace before the partial results: a counter, or 0 */
} attn__grid;

static inline int64_t attn__ceil_div(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

attn_rows attn__param_rows(const attn__view *t); /* absent: data 0 */
/* Every row may be read or written 16 bytes at a time, and ends at a multiple of 16 bytes. */
int attn__is_vector(const attn__view *t);
i32 attn__type_number(int type); /* the kernels' number of an element type: core/config.h */
/* part: the workspace, for splits > 1. Returns the bytes of params that count. */
size_t attn__params_fill(attn_params *params, const attn__problem *p, const attn__grid *grid,
                         char *part);
/* Boxes of q, k, v for the producer schedule, and the flags that say which there are. */
void attn__params_maps(attn_params *params, const attn_device *device, const attn__problem *p,
                       const attn__grid *grid);
/* The words of what a variant reads; score.h's order. */
void attn__words_fill(const attn_graph *g, const attn__bound *bound, i64 *word);
/* Bytes of the partial results in the workspace: o, then lse. */
uint64_t attn__part_bytes(const attn__problem *p, const attn__grid *grid);

#endif
