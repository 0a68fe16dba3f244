/* gpu.c: the engine of chips with kernels, emulated or not.

   Who calls it: plan.c, through the table attn__gpu.

       plan   refuse what kernels cannot do -> tile, pack, splits -> defines, variant's text
              -> compile or find (gpu_module.c) -> workspace
       run    attn_params -> attn_clear, if some rows belong to no sequence
                          -> attn_fwd   -> attn_combine, if keys are split     one stream, in order

   A run allocates nothing, compiles nothing and waits for nothing. */
#include "gpu_module.h"
#include "gpu_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A split has so many steps of keys at least; attn_clear and attn_combine have so many warps; heads
   are packed into so many rows at most, which are counted in 32 bits. */
enum { SPLIT_STEPS = 2, ALONE_WARPS = 4, MOST_PACKED = 1 << 30 };

/* A kernel that a run launches. */
typedef struct kernel {
    attn__kernel_code *code;
    const char *name;
    int threads, shared, spilled;
} kernel;

typedef struct gpu_plan {
    attn__grid grid;
    kernel forward, combine, clear;
} gpu_plan;

/* -- What is refused --------------------------------------------------------------------------- */

static int compiled_size(int64_t d) {
    static const int sizes[] = {32, 64, 96, 128, 192, 256};
    int i = 0;
    while (i < 5 && sizes[i] < d) {
        i++;
    }
    return sizes[i];
}

static int refuse(const attn_plan *plan) {
    const attn__problem *const p = &plan->problem;
    const char *const device = plan->device->name;
    const int type = p->q.type;
    int32_t word[ATTN__MAX_SYMBOLS];
    if (p->direction != ATTN_FORWARD) {
        return attn__fail(ATTN_UNSUPPORTED, "direction",
                          "device %s has no backward kernels in this version; cpu has", device);
    }
    if (type != ATTN_F32 && type != ATTN_F16 && type != ATTN_BF16) {
        return attn__fail(ATTN_UNSUPPORTED, "q",
                          "q is %s; device %s computes f32, f16 and bf16 in this version",
                          attn__type_name(type), device);
    }
    if (p->D > 256 || p->DV > 256) {
        return attn__fail(ATTN_UNSUPPORTED, p->D > 256 ? "q" : "v",
                          "%s has head dimension %lld; device %s allows 1 to 256",
                          p->D > 256 ? "q" : "v", (long long)(p->D > 256 ? p->D : p->DV), device);
    }
    const int words = attn__variant_words(&p->variant->graph, word);
    if (words > ATTN_WORDS) {
        return attn__fail(ATTN_UNSUPPORTED, "variant",
                          "the variant reads %d tensors and parameters, which take %d words; "
                          "device %s allows %d",
                          (int)p->variant->graph.n_symbols, words, device, ATTN_WORDS);
    }
    return ATTN_OK;
}

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
    const int d = compiled_size(p->D), dv = compiled_size(p->DV);
    const attn__tile_size most = attn__target_tile(target, p->q.type, d, dv, INT64_MAX);
    grid->pack = choose_pack(p, most.bm);
    grid->tile = attn__target_tile(target, p->q.type, d, dv, p->NQ * grid->pack);
    grid->xcds = target->xcds;
}

/* -- Compiling --------------------------------------------------------------------------------- */

/* Numbers of core/config.h. */
static void define_sizes(attn__job *job, const attn__problem *p, const attn__grid *grid) {
    const int type = p->q.type;
    attn__job_define(job, "ATTN_TYPE", type == ATTN_F16 ? 1 : type == ATTN_BF16 ? 2 : 3);
    attn__job_define(job, "ATTN_D", compiled_size(p->D));
    attn__job_define(job, "ATTN_DV", compiled_size(p->DV));
    attn__job_define(job, "ATTN_BM", grid->tile.bm);
    attn__job_define(job, "ATTN_BN", grid->tile.bn);
    attn__job_define(job, "ATTN_WARPS", grid->tile.warps);
    attn__job_define(job, "ATTN_STAGES", grid->tile.stages);
}

static void define_features(attn__job *job, const attn__problem *p) {
    int32_t word[ATTN__MAX_SYMBOLS];
    const int words = attn__variant_words(&p->variant->graph, word);
    const int scales = p->q_scale.type || p->k_scale.type || p->v_scale.type;
    attn__job_define(job, "ATTN_HAS_SCORE", attn__has_score(p->variant));
    attn__job_define(job, "ATTN_HAS_MASK", attn__has_mask(p->variant));
    attn__job_define(job, "ATTN_HAS_DROPOUT", p->drop_threshold > 0);
    attn__job_define(job, "ATTN_HAS_BLOCKS", p->block_m > 0);
    attn__job_define(job, "ATTN_HAS_SCALES", scales);
    attn__job_define(job, "ATTN_WORDS", words ? words : 1);
}

static int get(const attn_plan *plan, const attn__job *job, kernel *k, const char *name,
               const char *shared) {
    const attn_device *const device = plan->device;
    int32_t bytes = 0;
    ATTN_TRY(attn__code_get(device, job, &k->code));
    attn__module *const module = attn__code_module(k->code);
    if (shared) {
        ATTN_TRY(device->driver->number(device->chip, module, shared, &bytes));
    }
    k->name = name;
    k->shared = bytes;
    k->spilled = 0;
    return device->driver->prepare
               ? device->driver->prepare(device->chip, module, name, bytes, &k->spilled)
               : ATTN_OK;
}

static int compile_tile(const attn_plan *plan, attn__job *job, const attn__grid *grid, kernel *k) {
    const attn__problem *const p = &plan->problem;
    const attn__target *const target = job->target;
    char *source = NULL;
    attn__job_begin(job, target, "attn_fwd.hip");
    define_sizes(job, p, grid);
    define_features(job, p);
    if (attn__has_score(p->variant) || attn__has_mask(p->variant)) {
        ATTN_TRY(attn__variant_source(p->variant, plan->bound, &source));
        job->file[job->n_files++] = (attn__file){"variant.h", source};
    }
    k->threads = grid->tile.warps * target->lanes;
    const int status = get(plan, job, k, "attn_fwd", "attn_fwd_shared");
    free(source);
    return status;
}

/* A variant that would spill gets the next smaller tile; if all would, the one that spills least
   is taken. */
static int compile_forward(const attn_plan *plan, attn__job *job, gpu_plan *g) {
    gpu_plan other = *g;
    ATTN_TRY(compile_tile(plan, job, &g->grid, &g->forward));
    while (g->forward.spilled && attn__tile_smaller(&other.grid.tile)) {
        other.forward.code = NULL;
        const int status = compile_tile(plan, job, &other.grid, &other.forward);
        const int better = status >= 0 && other.forward.spilled < g->forward.spilled;
        attn__code_put(better ? g->forward.code : other.forward.code);
        ATTN_TRY(status);
        if (better) {
            *g = other;
        }
    }
    return ATTN_OK;
}

/* A kernel that stands alone, core/alone.h. */
static int compile_alone(const attn_plan *plan, attn__job *job, kernel *k, const char *entry,
                         const char *name) {
    attn__job_begin(job, job->target, entry);
    attn__job_define(job, "ATTN_WARPS", ALONE_WARPS);
    k->threads = ALONE_WARPS * job->target->lanes;
    return get(plan, job, k, name, NULL);
}

/* Some rows of o may belong to no sequence. */
static int has_spare_rows(const attn__problem *p) {
    return p->q_packed || p->has_q_used;
}

static int compile_all(const attn_plan *plan, gpu_plan *g) {
    attn__job *const job = attn__alloc(sizeof *job, "a plan");
    if (!job) {
        return ATTN_MEMORY;
    }
    job->target = plan->device->driver->target(plan->device->chip);
    int status = compile_forward(plan, job, g);
    choose_splits(&plan->problem, job->target, &g->grid);
    if (status >= 0 && g->grid.splits > 1) {
        status = compile_alone(plan, job, &g->combine, "attn_combine.hip", "attn_combine");
    }
    if (status >= 0 && has_spare_rows(&plan->problem)) {
        status = compile_alone(plan, job, &g->clear, "attn_clear.hip", "attn_clear");
    }
    free(job);
    return status;
}

static int gpu_plan_new(attn_plan *to) {
    ATTN_TRY(refuse(to));
    gpu_plan *const g = attn__alloc(sizeof *g, "a plan");
    if (!g) {
        return ATTN_MEMORY;
    }
    memset(g, 0, sizeof *g);
    to->state = g; /* from here on attn_plan_release frees it */
    const attn__problem *const p = &to->problem;
    const attn__target *const target = to->device->driver->target(to->device->chip);
    choose(p, target, &g->grid);
    ATTN_TRY(compile_all(to, g));
    to->workspace = attn__part_bytes(p, &g->grid);
    snprintf(to->kernel, sizeof to->kernel, "%s %s %dx%d of %dx%d pack %d splits %d", target->name,
             attn__type_name(p->q.type), g->grid.tile.bm, g->grid.tile.bn, compiled_size(p->D),
             compiled_size(p->DV), g->grid.pack, g->grid.splits);
    return ATTN_OK;
}

static void gpu_release(attn_plan *to) {
    gpu_plan *const g = to->state;
    attn__code_put(g->forward.code);
    attn__code_put(g->combine.code);
    attn__code_put(g->clear.code);
    free(g);
}

/* -- Run --------------------------------------------------------------------------------------- */

static int launch(const attn_plan *of, const kernel *k, int64_t blocks, const attn_params *params,
                  size_t bytes, void *stream) {
    const attn_device *const d = of->device;
    return d->driver->launch(d->chip, attn__code_module(k->code), k->name, blocks, k->threads,
                             k->shared, params, bytes, stream);
}

/* A block an item, rounded up to the chiplets (work.h); a launch has at most 2^31 threads. */
static int launch_items(const attn_plan *of, const kernel *k, attn_params *params, size_t bytes,
                        void *stream) {
    const int64_t numbers = attn__ceil_div(params->items, params->xcds) * params->xcds;
    const int64_t most = ((int64_t)1 << 31) / k->threads;
    for (int64_t first = 0; first < numbers; first += most) {
        const int64_t rest = numbers - first;
        params->first = first;
        ATTN_TRY(launch(of, k, rest < most ? rest : most, params, bytes, stream));
    }
    return ATTN_OK;
}

/* Blocks that step through rows, a warp a row: what fills the chip. */
static int64_t few(const attn_plan *of, int64_t rows) {
    const attn_device *const d = of->device;
    const int64_t most = 8 * (int64_t)d->driver->target(d->chip)->units;
    const int64_t blocks = attn__ceil_div(rows, ALONE_WARPS);
    return blocks < most ? blocks : most;
}

static int gpu_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream) {
    const gpu_plan *const g = of->state;
    attn_params params;
    const size_t bytes = attn__params_fill(&params, p, &g->grid, workspace);
    const int64_t o_rows = p->o.n[0] * p->H * p->TQ, rows = p->B * p->H * p->NQ;
    if (g->clear.code && o_rows) {
        ATTN_TRY(launch(of, &g->clear, few(of, o_rows), &params, bytes, stream));
    }
    if (params.items) {
        ATTN_TRY(launch_items(of, &g->forward, &params, bytes, stream));
    }
    if (g->combine.code && rows) {
        ATTN_TRY(launch(of, &g->combine, few(of, rows), &params, bytes, stream));
    }
    return ATTN_OK;
}

const attn__engine attn__gpu = {"gpu", gpu_plan_new, gpu_run, gpu_release};
