/* gpu_bwd.c: backward on chips with kernels.

   Who calls it: gpu.c.

       plan   tiles, which gradients -> defines, variant's text -> compile or find -> workspace
       run    attn_bwd_rows             of each query row LSE and dO.O - dLSE; dO in q's type; parts
                                        of dq begin at 0
              attn_bwd_sink             dsink, if wanted
              attn_clear                rows of dq, dk, dv that belong to no sequence
              attn_bwd                  fused: of key rows, dk, dv and parts of dq, which
              attn_bwd_dq               completes; or apart:
              attn_bwd of query rows    dq
              attn_bwd of key rows      dk and dv, where registers are few one after the other

   Fused there are five products instead of seven. The parts of dq are added in the order in which
   blocks come or, where the plan is deterministic, in one order (core/order.h). Apart each result
   has one writer, which sums in one order, whatever else is in the batch.

       workspace   | statistics [B][H][NQ] of 8 bytes | dO [B][H][NQ][DV], if of another type |
                   | parts of dq (core/dq.h), if fused |

   Packed rows take the place of [B] and [NQ]. In front stand the sums of gpu_grads.c. */
#include "gpu_kernel.h"

#include <stddef.h>
#include <stdio.h>

enum { ROWS, SINK, CLEAR, QUERIES, KEYS, VALUES, GRADS, FUSED, DQ };
enum { SUM = 1, SUM_V = 2 }; /* of ATTN_SUMS: dq or dk, dv */
/* Bytes that a thread of the fused kernel may spill, as a smaller step or, of groups of warps, the
   twin would cost more (docs/perf.md). */
enum { FEW = 64 };

/* -- Plan -------------------------------------------------------------------------------------- */

static int compiled_size(const attn__problem *p) {
    return attn__compiled_size(p->D > p->DV ? p->D : p->DV);
}
static attn__grad_size grad_size(const attn_plan *plan, const attn__job *job, int64_t rows,
                                 int groups) {
    const attn__problem *const p = &plan->problem;
    return attn__target_grad(job->target, p->q.type, compiled_size(p), rows, groups);
}

/* A pass's kernel with the tile of its grid. */
typedef struct a_pass {
    int pass, sums;
} a_pass;
static int compile_tile(attn_plan *plan, attn__job *job, attn__kernel *k, const void *what) {
    const int pass = ((const a_pass *)what)->pass, sums = ((const a_pass *)what)->sums;
    const attn__problem *const p = &plan->problem;
    const attn__gpu_grads *const grads = &((const attn__gpu_plan *)plan->state)->grads;
    const int d = compiled_size(p), is_fused = pass == FUSED || pass == DQ;
    k->threads = k->grid.tile.warps * job->target->lanes;
    attn__job_begin(job, job->target, pass == DQ ? "attn_bwd_dq.hip" : "attn_bwd.hip");
    attn__define_sizes(job, p, d, d, &k->grid.tile);
    attn__define_features(job, p, grads->words);
    attn__job_define(job, "ATTN_BACKWARD", 1);
    attn__job_define(job, "ATTN_KEY_ROWS", pass != QUERIES && pass != DQ);
    attn__job_define(job, "ATTN_SUMS", sums);
    attn__job_define(job, "ATTN_FUSED", is_fused);
    attn__job_define(job, "ATTN_SPLIT",
                     is_fused ? grad_size(plan, job, p->NK, k->grid.groups).split : 1);
    attn__job_define(job, "ATTN_WGMMA", k->grid.groups);
    attn__job_define(job, "ATTN_ORDERED", k->grid.ordered);
    attn__job_define(job, "ATTN_HAS_GRADS",
                     (pass == QUERIES || pass == FUSED) && grads->text.n_sites > 0);
    return pass == DQ ? attn__kernel_get_variant(plan, job, k, "attn_bwd_dq", "attn_bwd_dq_shared")
                      : attn__kernel_get_variant(plan, job, k, "attn_bwd", "attn_bwd_shared");
}

/* One pass of attn_bwd.hip. */
static int compile(attn_plan *plan, attn__job *job, attn__kernel *k, int pass, int sums) {
    const attn__problem *const p = &plan->problem;
    const int is_fused = pass == FUSED, groups = k->grid.groups;
    const attn__grad_size many = grad_size(plan, job, INT64_MAX, groups);
    const attn__grad_size size = grad_size(plan, job, pass == QUERIES ? p->NQ : p->NK, groups);
    const a_pass what = {pass, sums};
    k->grid.pack = k->grid.splits = 1;
    k->grid.xcds = job->target->xcds;
    attn__fit fit = {.compile = compile_tile,
                     .what = &what,
                     .many = k->grid,
                     .few = is_fused ? FEW : 0,
                     .least =
                         attn__grad_least(job->target, compiled_size(p), is_fused, groups)};
    k->grid.tile = is_fused ? size.fused : size.tile;
    fit.many.tile = is_fused ? many.fused : many.tile;
    if (groups && ((const attn__gpu_plan *)plan->state)->grads.uneven) {
        attn__tile_smaller(&k->grid.tile, fit.least); /* adds pair by pair: half of a long text */
        fit.many.tile = k->grid.tile;
    }
    return attn__kernel_fit(plan, job, k, &fit);
}

static int may_fuse(const attn_plan *plan, const attn__job *job) {
    const attn__problem *const p = &plan->problem;
    return grad_size(plan, job, p->NK, 0).fused.bm && p->dq.type && p->dk.type && p->dv.type &&
           !(p->flags & ATTN_BATCH_INVARIANT);
}

/* Where blocks of keys differ in length, heads whose q, dO and parts of dq the second cache holds
   together go side by side, so that short ones come last. In turns blocks of a head wait for each
   other, the more of them run at once: heads that have so many rows together go side by side, be
   there a mask or none (docs/schedules.md). */
enum { CACHED = 24 << 20, IN_TURNS = 16384 };
static int near_of(const attn__problem *p, int ordered) {
    const int differ =
        attn__has_mask(p->variant) || p->block_m > 0 || p->has_q_used || p->q_packed;
    const int64_t bytes =
        p->H / p->HK * p->NQ * (2 * p->D * p->q.bytes + compiled_size(p) * (int64_t)sizeof(float));
    const int64_t held = differ ? CACHED / (bytes + 1) : 1;
    const int64_t near = ordered ? IN_TURNS / (p->NQ + 1) + 1 : held;
    return near < 1 ? 1 : near > 1024 ? 1024 : (int)near;
}

/* By groups of warps, where the chip has them, else by its twin; without code if all tiles of both
   would spill. */
static int compile_fused(attn_plan *plan, attn__job *job, attn__kernel *kernel) {
    attn__kernel *const k = &kernel[FUSED];
    for (int groups = 1; groups >= 0; groups--) {
        if (!grad_size(plan, job, plan->problem.NK, groups).fused.bm) {
            continue;
        }
        k->grid.groups = groups;
        k->grid.ordered = (plan->problem.flags & ATTN_DETERMINISTIC) != 0;
        k->grid.near = near_of(&plan->problem, k->grid.ordered);
        ATTN_TRY(compile(plan, job, k, FUSED, SUM | SUM_V));
        if (k->spilled <= FEW) {
            kernel[DQ].grid = k->grid;
            return compile_tile(plan, job, &kernel[DQ], &(const a_pass){DQ, SUM});
        }
        attn__code_put(k->code);
        k->code = NULL;
    }
    return ATTN_OK;
}

static int compile_apart(attn_plan *plan, attn__job *job, attn__kernel *kernel) {
    const attn__problem *const p = &plan->problem;
    const int sums = (p->dk.type ? SUM : 0) | (p->dv.type ? SUM_V : 0);
    if (p->dq.type || ((const attn__gpu_plan *)plan->state)->grads.text.n_sites) {
        ATTN_TRY(compile(plan, job, &kernel[QUERIES], QUERIES, SUM));
    }
    if (sums == (SUM | SUM_V) && !grad_size(plan, job, p->NK, 0).apart) {
        return compile(plan, job, &kernel[KEYS], KEYS, sums);
    }
    if (sums & SUM) {
        ATTN_TRY(compile(plan, job, &kernel[KEYS], KEYS, SUM));
    }
    return sums & SUM_V ? compile(plan, job, &kernel[VALUES], VALUES, SUM_V) : ATTN_OK;
}

/* Some rows of dq, of dk and dv may belong to no sequence. */
static int has_spare_rows(const attn__problem *p) {
    return (p->dq.type && (p->q_packed || p->has_q_used)) ||
           ((p->dk.type || p->dv.type) && (p->k_packed || p->has_k_used));
}

/* Rows [B][H][NQ] in memory. */
static uint64_t rows_in_memory(const attn__problem *p) {
    return (uint64_t)(p->q.n[0] * p->H * p->TQ);
}
static uint64_t whole_lines(uint64_t bytes) {
    return (bytes + 255) / 256 * 256;
}
static uint64_t stats_bytes(const attn__problem *p) {
    return whole_lines(rows_in_memory(p) * 2 * sizeof(float));
}
static int has_copy(const attn__problem *p) {
    return p->dout.type != p->q.type;
}

static uint64_t copy_bytes(const attn__problem *p) {
    return has_copy(p) ? whole_lines(rows_in_memory(p) * (uint64_t)(p->DV * p->q.bytes)) : 0;
}

/* Parts of dq: blocks of a head, bytes of a block and of all. Where they are ordered a line follows
   each block, for its turn, and one follows all, for the counter of blocks that have begun. */
enum { LINE = 128 };
static int64_t part_blocks(const attn__problem *p, int bn) {
    return p->q_packed ? p->TQ / bn + p->B : attn__ceil_div(p->NQ, bn);
}
static int64_t part_block_bytes(const attn__problem *p, const attn__grid *grid) {
    const int64_t whole = grid->groups ? 64 : 1; /* columns that groups of warps have at least */
    const int64_t columns = (compiled_size(p) + whole - 1) / whole * whole;
    return (int64_t)grid->tile.bn * columns * (int64_t)sizeof(float) + grid->ordered * LINE;
}
static uint64_t part_bytes(const attn__problem *p, const attn__kernel *fused) {
    if (!fused->code) {
        return 0;
    }
    const int64_t blocks = (p->q_packed ? 1 : p->B) * p->H * part_blocks(p, fused->grid.tile.bn);
    return (uint64_t)(blocks * part_block_bytes(p, &fused->grid) + fused->grid.ordered * LINE);
}

int attn__backward_plan(attn_plan *plan, attn__job *job) {
    const attn__problem *const p = &plan->problem;
    attn__gpu_grads *const grads = &((attn__gpu_plan *)plan->state)->grads;
    attn__kernel *const kernel = ((attn__gpu_plan *)plan->state)->kernel;
    ATTN_TRY(attn__grads_of(grads, plan));
    if (grads->words > ATTN_WORDS) {
        return attn__fail(ATTN_UNSUPPORTED, "variant",
                          "what the variant reads takes %d words with gradients; device %s allows "
                          "%d",
                          grads->words, plan->device->name, ATTN_WORDS);
    }
    if (grads->any) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[GRADS], "attn_bwd_grads.hip",
                                    "attn_bwd_grads", ATTN__ALONE_WARPS));
    }
    ATTN_TRY(attn__kernel_alone(plan, job, &kernel[ROWS], "attn_bwd_rows.hip", "attn_bwd_rows",
                                ATTN__ALONE_WARPS));
    if (p->dsink.type) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[SINK], "attn_bwd_sink.hip",
                                    "attn_bwd_sink", 1));
    }
    if (has_spare_rows(p)) {
        ATTN_TRY(attn__kernel_alone(plan, job, &kernel[CLEAR], "attn_clear.hip", "attn_clear",
                                    ATTN__ALONE_WARPS));
    }
    if (may_fuse(plan, job)) {
        ATTN_TRY(compile_fused(plan, job, kernel));
    }
    const int fused = kernel[FUSED].code != NULL;
    if (!fused) {
        ATTN_TRY(compile_apart(plan, job, kernel));
    }
    plan->workspace =
        grads->bytes + stats_bytes(p) + copy_bytes(p) + part_bytes(p, &kernel[FUSED]);
    snprintf(plan->kernel, sizeof plan->kernel, "%s %s backward%s of %lldx%lld", job->target->name,
             attn__type_name(p->q.type), fused ? ", fused," : "", (long long)p->D,
             (long long)p->DV);
    return ATTN_OK;
}

/* -- Run --------------------------------------------------------------------------------------- */

/* Compact rows [B][H][NQ] of so many bytes; packed [H][T]. */
static attn_rows compact_rows(const attn__problem *p, char *at, int64_t bytes) {
    const attn_rows r = {.data = (u64)(uintptr_t)at,
                         .b = p->q.n[0] > 1 ? p->H * p->TQ * bytes : 0,
                         .h = p->TQ * bytes,
                         .n = bytes};
    return r;
}

static void fill_parts(attn_params *a, const attn__problem *p, const attn__kernel *fused,
                       char *at) {
    attn_back *const back = &a->back;
    const int64_t bytes = part_block_bytes(p, &fused->grid);
    const int64_t blocks = part_blocks(p, fused->grid.tile.bn);
    back->part_bytes = (i64)part_bytes(p, fused);
    back->part = (attn_rows){.data = (u64)(uintptr_t)at,
                             .b = (p->q_packed ? 1 : p->H * blocks) * bytes,
                             .h = blocks * bytes,
                             .n = bytes};
    a->counter = fused->grid.ordered ? back->part.data + (u64)back->part_bytes - LINE : 0;
}

/* What all kernels of a run share. */
static size_t fill(attn_params *a, const attn__problem *p, const attn__gpu_plan *g, char *sums,
                   char *workspace) {
    const attn__gpu_grads *const grads = &g->grads;
    const attn__grid none = {.tile = {.bm = 1}, .pack = 1, .splits = 1, .xcds = 1};
    attn__params_fill(a, p, &none, NULL);
    const size_t words = grads->words ? (size_t)grads->words : 1;
    attn_back *const back = &a->back;
    back->dout = attn__param_rows(&p->dout);
    a->flags |= attn__is_vector(&p->dout) ? ATTN_P_VEC_DOUT : 0;
    back->dout_type = attn__type_number(p->dout.type);
    back->dlse = attn__param_rows(&p->dlse);
    back->stats = compact_rows(p, workspace, 2 * sizeof(float));
    back->dsink = attn__param_rows(&p->dsink).data;
    back->dsink_h = attn__param_rows(&p->dsink).h;
    if (has_copy(p)) {
        back->copy = compact_rows(p, workspace + stats_bytes(p), p->DV * p->q.bytes);
        back->copy_type = attn__type_number(p->q.type);
    }
    if (g->kernel[FUSED].code) {
        fill_parts(a, p, &g->kernel[FUSED], workspace + stats_bytes(p) + copy_bytes(p));
    }
    attn__grads_words(grads, p, sums, a->word);
    return offsetof(attn_params, word) + words * sizeof a->word[0];
}

/* From here on dO is of q's type. */
static void use_copy(attn_params *a, const attn__problem *p) {
    if (has_copy(p)) {
        a->back.dout = a->back.copy;
        a->flags &= ~ATTN_P_VEC_DOUT;
        a->flags |= p->DV * p->q.bytes % 16 == 0 ? ATTN_P_VEC_DOUT : 0;
    }
}

/* Rows of `t` that belong to no sequence become 0: all of them do, before the used ones are
   written. */
static int clear(const attn_plan *of, const attn__problem *p, const attn__view *t, int is_q,
                 const attn_params *all, size_t bytes, void *stream) {
    const attn__gpu_plan *const g = of->state;
    if (!t->type || !(is_q ? p->q_packed || p->has_q_used : p->k_packed || p->has_k_used)) {
        return ATTN_OK;
    }
    attn_params a = *all;
    a.o = attn__param_rows(t);
    a.o_type = attn__type_number(t->type);
    a.lse.data = 0;
    a.DV = (i32)t->n[3];
    a.H = (i32)t->n[1];
    a.B = (i32)t->n[0];
    a.TQ = is_q ? p->TQ : p->TK;
    a.q_offsets = 0; /* B is 1 already where rows are packed */
    a.flags = attn__is_vector(t) ? ATTN_P_VEC_O : 0;
    return attn__launch_rows(of, &g->kernel[CLEAR], t->n[0] * t->n[1] * a.TQ, &a, bytes, stream);
}

/* A pass whose blocks are `rows` of key heads or query heads. */
static int launch(const attn_plan *of, const attn__problem *p, int pass, int rows,
                  const attn_params *all, size_t bytes, void *stream) {
    const attn__kernel *const k = &((const attn__gpu_plan *)of->state)->kernel[pass];
    const int of_keys = pass != QUERIES && pass != DQ;
    const attn__view *const to = of_keys ? &p->dk : &p->dq;
    if (!k->code) {
        return ATTN_OK;
    }
    attn_params a = *all;
    a.back.to = attn__param_rows(to);
    a.back.to_type = attn__type_number(to->type);
    a.back.to_v = attn__param_rows(&p->dv);
    a.back.to_v_type = attn__type_number(p->dv.type);
    a.flags |= (attn__is_vector(to) ? ATTN_P_VEC_TO : 0) |
               (attn__is_vector(&p->dv) ? ATTN_P_VEC_TO_V : 0);
    a.xcds = k->grid.xcds;
    a.near = k->grid.near ? k->grid.near : 1;
    a.q_tiles = (i32)attn__ceil_div(of_keys ? p->NK : p->NQ, rows);
    a.items = p->B * (of_keys ? p->HK : p->H) * a.q_tiles;
    return a.items ? attn__launch_items(of, k, &a, bytes, stream) : ATTN_OK;
}

static int launch_passes(const attn_plan *of, const attn__problem *p, const attn_params *a,
                         size_t bytes, void *stream) {
    const attn__kernel *const kernel = ((const attn__gpu_plan *)of->state)->kernel;
    for (int pass = QUERIES; pass <= VALUES; pass++) {
        ATTN_TRY(launch(of, p, pass, kernel[pass].grid.tile.bm, a, bytes, stream));
    }
    ATTN_TRY(launch(of, p, FUSED, kernel[FUSED].grid.tile.bm, a, bytes, stream));
    return launch(of, p, DQ, kernel[DQ].grid.tile.bn, a, bytes, stream);
}

int attn__backward_run(const attn_plan *of, const attn__problem *p, char *workspace,
                       void *stream) {
    const attn__gpu_plan *const g = of->state;
    const attn__kernel *const kernel = g->kernel;
    attn_params a;
    ATTN_TRY(attn__grads_fit(&g->grads, p));
    const size_t bytes = fill(&a, p, g, workspace, workspace + g->grads.bytes);
    ATTN_TRY(attn__grads_run(of, &kernel[GRADS], &g->grads, p, workspace, 0, stream));
    const int64_t rows = p->B * p->H * p->NQ; /* without any the counter begins at 0, too */
    const int64_t least = a.counter ? 1 : 0;
    ATTN_TRY(attn__launch_rows(of, &kernel[ROWS], rows > least ? rows : least, &a, bytes, stream));
    if (kernel[SINK].code && p->dsink.data) {
        ATTN_TRY(attn__launch(of, &kernel[SINK], p->H, &a, bytes, stream));
    }
    ATTN_TRY(clear(of, p, &p->dq, 1, &a, bytes, stream));
    ATTN_TRY(clear(of, p, &p->dk, 0, &a, bytes, stream));
    ATTN_TRY(clear(of, p, &p->dv, 0, &a, bytes, stream));
    use_copy(&a, p);
    ATTN_TRY(launch_passes(of, p, &a, bytes, stream));
    return attn__grads_run(of, &kernel[GRADS], &g->grads, p, workspace, 1, stream);
}
