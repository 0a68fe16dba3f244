/* gpu_fwd.c: forward on chips with kernels.

   Who calls it: gpu.c.

       plan   tile, pack, splits -> defines, variant's text -> compile or find -> workspace
       run    attn_params -> attn_clear, if some rows belong to no sequence
                          -> attn_fwd -> attn_combine, if keys are split     one stream, in order */
#include "gpu_kernel.h"

#include <stdio.h>

enum { FORWARD, COMBINE, CLEAR };

/* A split has so many steps of keys at least; heads are packed into so many rows at most, which are
   counted in 32 bits. */
enum { SPLIT_STEPS = 2, MOST_PACKED = 1 << 30 };

/* -- How the work is cut ----------------------------------------------------------------------- */

/* A group's heads share a block's rows where one head would leave most of them empty. */
static int choose_pack(const attn__problem *p, int rows) {
    const int64_t group = p->H / p->HK;
    return p->NQ * 2 <= rows && p->NQ * group <= MOST_PACKED ? (int)group : 1;
}

/* Keys are split where there are too few items to fill the chip. A plan that promises the same
   bits whatever the batch does not look at it. */
static void choose_splits(const attn__problem *p, const attn__target *target, attn__grid *grid) {
    const int64_t tiles = attn__ceil_div(p->NQ * grid->pack, grid->tile.bm);
    const int64_t items = p->B * (p->H / grid->pack) * tiles;
    const int64_t steps = attn__ceil_div(p->NK, grid->tile.bn);
    int64_t parts = items ? target->units / items : 1;
    parts = parts > steps / SPLIT_STEPS ? steps / SPLIT_STEPS : parts;
    if (p->flags & ATTN_BATCH_INVARIANT || parts < 2) {
        grid->splits = 1;
        grid->split_keys = (int)(steps * grid->tile.bn);
        return;
    }
    const int64_t each = attn__ceil_div(steps, parts);
    grid->split_keys = (int)(each * grid->tile.bn);
    grid->splits = (int)attn__ceil_div(steps, each);
}

static void choose(const attn__problem *p, const attn__target *target, attn__grid *grid) {
    const int d = attn__compiled_size(p->D), dv = attn__compiled_size(p->DV);
    const attn__tile_size most = attn__target_tile(target, p->q.type, d, dv, INT64_MAX);
    grid->pack = choose_pack(p, most.bm);
    grid->tile = attn__target_tile(target, p->q.type, d, dv, p->NQ * grid->pack);
    grid->xcds = target->xcds;
}

/* -- Plan -------------------------------------------------------------------------------------- */

/* Some rows of o may belong to no sequence. */
static int has_spare_rows(const attn__problem *p) {
    return p->q_packed || p->has_q_used;
}

static int compile_tile(const attn_plan *plan, attn__job *job, attn__kernel *k) {
    const attn__problem *const p = &plan->problem;
    int32_t word[ATTN__MAX_SYMBOLS];
    attn__job_begin(job, job->target, "attn_fwd.hip");
    attn__define_sizes(job, p, attn__compiled_size(p->D), attn__compiled_size(p->DV),
                       &k->grid.tile);
    attn__define_features(job, p, attn__variant_words(&p->variant->graph, word));
    k->threads = k->grid.tile.warps * job->target->lanes;
    return attn__kernel_get_variant(plan, job, k, "attn_fwd", "attn_fwd_shared");
}

/* A variant that would spill gets the next smaller tile; if all would, what spills least. Without a
   compiler few rows take the tile of many, which a bundle may have. */
static int compile(const attn_plan *plan, attn__job *job, attn__kernel *k) {
    const attn__problem *const p = &plan->problem;
    int status = compile_tile(plan, job, k);
    if (status == ATTN_DEVICE) {
        k->grid.tile = attn__target_tile(job->target, p->q.type, attn__compiled_size(p->D),
                                         attn__compiled_size(p->DV), INT64_MAX);
        status = compile_tile(plan, job, k);
    }
    ATTN_TRY(status);
    attn__kernel other = *k;
    while (k->spilled && attn__tile_smaller(&other.grid.tile)) {
        other.code = NULL;
        status = compile_tile(plan, job, &other);
        const int better = status >= 0 && other.spilled < k->spilled;
        attn__code_put(better ? k->code : other.code);
        ATTN_TRY(status);
        if (better) {
            *k = other;
        }
    }
    return ATTN_OK;
}

int attn__forward_plan(attn_plan *plan, attn__job *job) {
    const attn__problem *const p = &plan->problem;
    attn__kernel *const kernel = ((attn__gpu_plan *)plan->state)->kernel;
    attn__grid *const grid = &kernel[FORWARD].grid;
    choose(p, job->target, grid);
    ATTN_TRY(compile(plan, job, &kernel[FORWARD]));
    choose_splits(p, job->target, grid);
    plan->workspace = attn__part_bytes(p, grid);
    if (grid->splits > 1) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[COMBINE], "attn_combine.hip",
                                    "attn_combine", ATTN__ALONE_WARPS));
    }
    if (has_spare_rows(p)) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[CLEAR], "attn_clear.hip", "attn_clear",
                                    ATTN__ALONE_WARPS));
    }
    snprintf(plan->kernel, sizeof plan->kernel, "%s %s %dx%d of %dx%d pack %d splits %d",
             job->target->name, attn__type_name(p->q.type), grid->tile.bm, grid->tile.bn,
             attn__compiled_size(p->D), attn__compiled_size(p->DV), grid->pack, grid->splits);
    return ATTN_OK;
}

/* -- Run --------------------------------------------------------------------------------------- */

int attn__forward_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream) {
    const attn__kernel *const kernel = ((const attn__gpu_plan *)of->state)->kernel;
    attn_params params;
    const size_t bytes = attn__params_fill(&params, p, &kernel[FORWARD].grid, workspace);
    if (kernel[CLEAR].code) {
        ATTN_TRY(attn__launch_rows(of, &kernel[CLEAR], p->o.n[0] * p->H * p->TQ, &params, bytes,
                                   stream));
    }
    if (params.items) {
        ATTN_TRY(attn__launch_items(of, &kernel[FORWARD], &params, bytes, stream));
    }
    if (kernel[COMBINE].code) {
        ATTN_TRY(attn__launch_rows(of, &kernel[COMBINE], p->B * p->H * p->NQ, &params, bytes,
                                   stream));
    }
    return ATTN_OK;
}
