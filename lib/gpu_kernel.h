/* gpu_kernel.h: what forward and backward share of plans and runs on chips with kernels.

       gpu.c          the engine: refuse, then one of the two
       gpu_fwd.c      forward       tiles, splits -> attn_clear, attn_spans, attn_fwd, attn_combine
       gpu_spans.c    attn_spans
       gpu_bwd.c      backward      tiles -> attn_bwd_rows, attn_bwd_sink, attn_clear, attn_bwd,
                                    attn_bwd_dq
       gpu_grads.c    attn_bwd_grads, before and behind them
       gpu_kernel.c   a kernel: defines, compile or find, launch

   Who includes it: these files. */
#ifndef ATTN_GPU_KERNEL_H
#define ATTN_GPU_KERNEL_H

#include "gpu_grads.h"
#include "gpu_module.h"
#include "gpu_params.h"

/* A kernel that a run launches; without code: none. */
typedef struct attn__kernel {
    attn__kernel_code *code;
    const char *name;
    int threads, shared, spilled;
    attn__grid grid;
} attn__kernel;

/* The engine's part of a plan; each direction has its own kernels in it. */
enum { ATTN__KERNELS = 9 };
typedef struct attn__gpu_plan {
    attn__kernel kernel[ATTN__KERNELS];
    attn__gpu_grads grads; /* backward */
    uint64_t spans;        /* forward: bytes of the tables of gpu_spans.c */
} attn__gpu_plan;

/* -- gpu_kernel.c ------------------------------------------------------------------------------ */
int attn__compiled_size(int64_t d); /* the smallest of 32 64 96 128 192 256 that has room for d */
/* Numbers of core/config.h. */
void attn__define_sizes(attn__job *job, const attn__problem *p, int d, int dv,
                        const attn__tile_size *tile);
void attn__define_features(attn__job *job, const attn__problem *p, int words);
/* Compiles a job or finds its code; `shared` names the number of bytes of shared memory, NULL: 0.
   The names stay the caller's. */
int attn__kernel_get(const attn_plan *plan, const attn__job *job, attn__kernel *k,
                     const char *name, const char *shared);
/* The same with the text of the plan's variant. */
int attn__kernel_get_variant(const attn_plan *plan, attn__job *job, attn__kernel *k,
                             const char *name, const char *shared);
/* A kernel with the largest tile that suits it. */
typedef struct attn__fit {
    int (*compile)(attn_plan *plan, attn__job *job, attn__kernel *k, const void *what);
    const void *what; /* for compile, which takes the tile of k->grid */
    attn__grid many;  /* of many rows */
    int few, least;   /* bytes that a thread may spill; keys of the smallest step */
} attn__fit;
/* Compiles with k->grid. What spills more than a few bytes gets the next smaller tile; if all do,
   what spills least. Without a compiler few rows take the tile of many, which a bundle may have;
   what spills stays where no smaller one can be made. */
int attn__kernel_fit(attn_plan *plan, attn__job *job, attn__kernel *k, const attn__fit *fit);
/* A kernel that stands alone, core/alone.h: a warp takes a row, or a block has one warp. */
int attn__kernel_alone(const attn_plan *plan, attn__job *job, attn__kernel *k, const char *entry,
                       const char *name, int warps);
int attn__launch(const attn_plan *of, const attn__kernel *k, int64_t blocks, const void *params,
                 size_t bytes, void *stream);
/* A block for each of params->items. */
int attn__launch_items(const attn_plan *of, const attn__kernel *k, attn_params *params,
                       size_t bytes, void *stream);
/* Blocks of a kernel that stands alone and steps through rows: what fills the chip. */
enum { ATTN__ALONE_WARPS = 4 };
int attn__launch_rows(const attn_plan *of, const attn__kernel *k, int64_t rows,
                      const void *params, size_t bytes, void *stream);

/* -- gpu_grads.c ------------------------------------------------------------------------------- */
/* What a plan of backward does about them. */
int attn__grads_of(attn__gpu_grads *to, const attn_plan *plan);
/* A run's captures against the plan's. */
int attn__grads_fit(const attn__gpu_grads *of, const attn__problem *p);
/* Their words; sums: their part of the workspace. */
void attn__grads_words(const attn__gpu_grads *of, const attn__problem *p, char *sums, i64 *word);
/* Launches before the passes of attn_bwd.hip, or behind them. */
int attn__grads_run(const attn_plan *of, const attn__kernel *k, const attn__gpu_grads *grads,
                    const attn__problem *p, char *sums, int behind, void *stream);

/* -- gpu_spans.c: tables of what a mask reads -------------------------------------------------- */
/* bytes: of all tables; 0: there are none, and no kernel. */
int attn__spans_plan(attn_plan *plan, attn__job *job, attn__kernel *k, uint64_t *bytes);
/* Makes them at `to` and tells the words of a launch where they are. */
int attn__spans_run(const attn_plan *of, const attn__kernel *k, const attn__problem *p, char *to,
                    uint64_t bytes, i64 *word, void *stream);

/* -- gpu_fwd.c, gpu_bwd.c: they set the plan's kernels, workspace and name --------------------- */
int attn__forward_plan(attn_plan *plan, attn__job *job);
int attn__forward_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream);
int attn__backward_plan(attn_plan *plan, attn__job *job);
int attn__backward_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream);

#endif
