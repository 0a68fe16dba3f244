/* gpu_fwd.c: forward on chips with kernels.

   Who calls it: gpu.c.

       plan   tile, pack, splits -> defines, variant's text -> compile or find -> workspace
       run    attn_params -> attn_clear, if some rows belong to no sequence
                          -> attn_spans, of tensors that the mask reads
                          -> attn_fwd -> attn_combine, if keys are split     one stream, in order */
#include "gpu_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORWARD, COMBINE, CLEAR, SPANS };

/* A split has so many steps of keys at least; heads are packed into so many rows at most, which are
   counted in 32 bits; sequences with so many rows have a tile for plain attention, those with fewer
   one for masks. Up to that D core/cap.h has no registers beside the steps of the former. */
enum { SPLIT_STEPS = 2, MOST_PACKED = 1 << 30, PLAIN_ROWS = 2048, CAP_SIZE = 96 };

/* -- How the work is cut ----------------------------------------------------------------------- */

/* One comparison of positions, as a causal mask is: what a row sees ends, but does not begin. */
static int is_one_limit(const attn_variant *v) {
    const attn__node *const node = &v->graph.node[v->mask];
    return (node->op == OP_le || node->op == OP_lt) && v->graph.n_symbols == 0;
}

/* Which tiles of the producer schedule suit. Rows that shall not depend on how many there are have
   the same for all. */
static enum attn__tile_kind kind_of(const attn__problem *p, int64_t rows) {
    if (p->block_m > 0 || p->flags & ATTN_BATCH_INVARIANT) {
        return ATTN__TILE_ANY;
    }
    if (attn__has_mask(p->variant) && rows < PLAIN_ROWS) {
        return ATTN__TILE_FEW;
    }
    if (attn__has_mask(p->variant) && !is_one_limit(p->variant)) {
        return ATTN__TILE_ANY;
    }
    const enum attn__form form = attn__form_of(p->variant);
    const int pairwise = form == FORM_PAIRS || (form == FORM_CAP && p->D <= CAP_SIZE);
    return pairwise || p->NQ < PLAIN_ROWS ? ATTN__TILE_ANY : ATTN__TILE_PLAIN;
}

/* Of what a plan wants, the tile: that of the producer schedule where the chip has it, unless the
   environment variable ATTN_SCHEDULE says multistage. */
static void choose_tile(const attn__problem *p, const attn__target *target, int64_t rows,
                        attn__grid *grid) {
    const int d = attn__compiled_size(p->D), dv = attn__compiled_size(p->DV);
    /* Steps with one scale, steps of whole groups of dropout: core/score.h, core/dropout.h. */
    const int even = p->drop_threshold > 0 || p->q_scale.type || p->k_scale.type || p->v_scale.type;
    const attn__tile_size tile = attn__target_producer(target, p->q.type, d, dv, rows,
                                                 even ? ATTN__TILE_ANY : kind_of(p, rows));
    /* Items are counted in 32 bits; splits make no more of them than the chip has units. */
    const int is_few = p->B * p->H < INT32_MAX / 2 / (1 + p->NQ / 64);
    grid->producer = tile.bn && is_few && !attn__setting(ATTN__SET_MULTISTAGE);
    grid->tile = grid->producer ? tile : attn__target_tile(target, p->q.type, d, dv, rows);
    while (even && grid->tile.bn & (grid->tile.bn - 1)) {
        attn__tile_smaller(&grid->tile, ATTN__LEAST_KEYS);
    }
}

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
    choose_tile(p, target, INT64_MAX, grid);
    grid->pack = choose_pack(p, grid->tile.bm);
    choose_tile(p, target, p->NQ * grid->pack, grid);
    grid->xcds = target->xcds;
}

/* Heads whose K and V the second cache holds together go side by side. There are more of them where
   a mask reads tensors, since of documents a row sees few keys, and where they are two or three:
   the last items, which are short, shall be of many heads. Where items differ in length and there
   is much to do, blocks ask a counter for them: it costs a launch before. Where a call returns when
   its work has ended, that is, emulated, small calls have sections and a counter. */
enum { COUNTER = 256, READ_HEADS = 8 };
typedef struct order_limits {
    int64_t cached; /* bytes */
    double much;    /* operations */
} order_limits;
static order_limits limits_of(const attn_plan *plan) {
    return plan->device->driver->event_new ? (order_limits){17 << 20, 1e11}
                                           : (order_limits){1 << 17, 2e6};
}
static void choose_order(const attn_plan *plan, attn__grid *grid, int reads) {
    const attn__problem *const p = &plan->problem;
    const double work = 2.0 * (double)(p->B * p->H * p->NQ) * (double)(p->NK * (p->D + p->DV));
    const int64_t bytes = p->NK * (p->D + p->DV) * attn__type_bytes(p->q.type);
    const order_limits limits = limits_of(plan);
    const int64_t cached = limits.cached * (reads ? READ_HEADS : 1);
    const int64_t held = cached / (bytes + 1) * (grid->pack > 1 ? 1 : p->H / p->HK);
    const int64_t more = held == 2 || held == 3 ? 2 * held : held;
    const int64_t heads = p->B * p->H / grid->pack, near = more < heads ? more : heads;
    const int differ = attn__has_mask(p->variant) || p->block_m > 0 || p->has_q_used ||
                       p->has_k_used || p->q_packed || p->k_packed;
    if (grid->producer && differ && work > limits.much && plan->device->driver->zero) {
        grid->counter = COUNTER;
        grid->near = near < 1 ? 1 : near > 1024 ? 1024 : (int)near;
    }
}

/* -- Plan -------------------------------------------------------------------------------------- */

/* Some rows of o may belong to no sequence. */
static int has_spare_rows(const attn__problem *p) {
    return p->q_packed || p->has_q_used;
}

static int compile_tile(attn_plan *plan, attn__job *job, attn__kernel *k, const void *none) {
    (void)none;
    const attn__problem *const p = &plan->problem;
    int32_t word[ATTN__MAX_SYMBOLS];
    attn__job_begin(job, job->target, "attn_fwd.hip");
    attn__define_sizes(job, p, attn__compiled_size(p->D), attn__compiled_size(p->DV),
                       &k->grid.tile);
    attn__define_features(job, p, attn__variant_words(&p->variant->graph, word));
    if (k->grid.producer) {
        attn__job_define(job, "ATTN_PRODUCER", 1);
    }
    k->threads = (k->grid.tile.warps + (k->grid.producer ? 4 : 0)) * job->target->lanes;
    return attn__kernel_get_variant(plan, job, k, "attn_fwd", "attn_fwd_shared");
}

static int compile(attn_plan *plan, attn__job *job, attn__kernel *k) {
    attn__fit fit = {.compile = compile_tile, .many = k->grid, .least = ATTN__LEAST_KEYS};
    choose_tile(&plan->problem, job->target, INT64_MAX, &fit.many);
    return attn__kernel_fit(plan, job, k, &fit);
}

/* Bytes of the workspace before the tables of gpu_spans.c. */
static uint64_t parts_of(const attn__problem *p, const attn__grid *grid) {
    return (attn__part_bytes(p, grid) + 15) / 16 * 16;
}

int attn__forward_plan(attn_plan *plan, attn__job *job) {
    const attn__problem *const p = &plan->problem;
    attn__kernel *const kernel = ((attn__gpu_plan *)plan->state)->kernel;
    attn__grid *const grid = &kernel[FORWARD].grid;
    choose(p, job->target, grid);
    ATTN_TRY(compile(plan, job, &kernel[FORWARD]));
    choose_splits(p, job->target, grid);
    uint64_t *const spans = &((attn__gpu_plan *)plan->state)->spans;
    ATTN_TRY(attn__spans_plan(plan, job, &kernel[SPANS], spans));
    choose_order(plan, grid, *spans > 0);
    plan->workspace = parts_of(p, grid) + *spans;
    if (grid->splits > 1) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[COMBINE], "attn_combine.hip",
                                    "attn_combine", ATTN__ALONE_WARPS));
    }
    if (has_spare_rows(p)) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[CLEAR], "attn_clear.hip", "attn_clear",
                                    ATTN__ALONE_WARPS));
    }
    snprintf(plan->kernel, sizeof plan->kernel, "%s%s %s %dx%d of %dx%d pack %d splits %d",
             job->target->name, grid->producer ? " producer" : "",
             attn__type_name(p->q.type), grid->tile.bm, grid->tile.bn, attn__compiled_size(p->D),
             attn__compiled_size(p->DV), grid->pack, grid->splits);
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
    if (params.items && kernel[SPANS].code) {
        ATTN_TRY(attn__spans_run(of, &kernel[SPANS], p,
                                 workspace + parts_of(&of->problem, &kernel[FORWARD].grid),
                                 ((const attn__gpu_plan *)of->state)->spans, params.word, stream));
    }
    if (params.items && kernel[FORWARD].grid.producer) {
        const attn_device *const d = of->device;
        const int64_t units = d->driver->target(d->chip)->units;
        attn__params_maps(&params, d, p, &kernel[FORWARD].grid);
        if (kernel[FORWARD].grid.counter) {
            ATTN_TRY(d->driver->zero(d->chip, workspace, sizeof(u32), stream));
        }
        ATTN_TRY(attn__launch(of, &kernel[FORWARD], params.items < units ? params.items : units,
                              &params, bytes, stream));
    } else if (params.items) {
        ATTN_TRY(attn__launch_items(of, &kernel[FORWARD], &params, bytes, stream));
    }
    if (kernel[COMBINE].code) {
        ATTN_TRY(attn__launch_rows(of, &kernel[COMBINE], p->B * p->H * p->NQ, &params, bytes,
                                   stream));
    }
    return ATTN_OK;
}
