/* gpu_bwd.c: backward on chips with kernels.

   Who calls it: gpu.c.

       plan   tiles, which gradients -> defines, variant's text -> compile or find -> workspace
       run    attn_bwd_rows             of each query row LSE and dO.O - dLSE; dO in q's type
              attn_bwd_sink             dsink, if wanted
              attn_clear                rows of dq, dk, dv that belong to no sequence
              attn_bwd of query rows    dq
              attn_bwd of key rows      dk and dv, where registers are few one after the other

   Each result has one writer, which sums in one order: the same bits in each run.

       workspace   | statistics [B][H][NQ] of 8 bytes | dO [B][H][NQ][DV], if of another type |

   Packed rows take the place of [B] and [NQ]. In front stand the sums of gpu_grads.c. */
#include "gpu_kernel.h"
#include "target.h"

#include <stddef.h>
#include <stdio.h>

enum { ROWS, SINK, CLEAR, QUERIES, KEYS, VALUES, GRADS };
enum { SUM = 1, SUM_V = 2 }; /* of ATTN_SUMS: dq or dk, dv */

/* -- Plan -------------------------------------------------------------------------------------- */

static int compile_tile(attn_plan *plan, attn__job *job, attn__kernel *k, int key_rows, int sums,
                        int64_t rows) {
    const attn__problem *const p = &plan->problem;
    const attn__gpu_grads *const grads = &((const attn__gpu_plan *)plan->state)->grads;
    const int d = attn__compiled_size(p->D > p->DV ? p->D : p->DV);
    k->grid.pack = k->grid.splits = 1;
    k->grid.tile = attn__target_grad(job->target, p->q.type, d, rows).tile;
    k->grid.xcds = job->target->xcds;
    k->threads = k->grid.tile.warps * job->target->lanes;
    attn__job_begin(job, job->target, "attn_bwd.hip");
    attn__define_sizes(job, p, d, d, &k->grid.tile);
    attn__define_features(job, p, grads->words);
    attn__job_define(job, "ATTN_BACKWARD", 1);
    attn__job_define(job, "ATTN_KEY_ROWS", key_rows);
    attn__job_define(job, "ATTN_SUMS", sums);
    attn__job_define(job, "ATTN_HAS_GRADS", !key_rows && grads->text.n_sites > 0);
    return attn__kernel_get_variant(plan, job, k, "attn_bwd", "attn_bwd_shared");
}

/* One pass of attn_bwd.hip. Without a compiler few rows take the tile of many, which a bundle may
   have. */
static int compile(attn_plan *plan, attn__job *job, attn__kernel *k, int key_rows, int sums) {
    const attn__problem *const p = &plan->problem;
    const int status = compile_tile(plan, job, k, key_rows, sums, key_rows ? p->NK : p->NQ);
    return status == ATTN_DEVICE ? compile_tile(plan, job, k, key_rows, sums, INT64_MAX) : status;
}

static int compile_passes(attn_plan *plan, attn__job *job, attn__kernel *kernel) {
    const attn__problem *const p = &plan->problem;
    const int d = attn__compiled_size(p->D > p->DV ? p->D : p->DV);
    const int apart = attn__target_grad(job->target, p->q.type, d, p->NK).apart;
    const int sums = (p->dk.type ? SUM : 0) | (p->dv.type ? SUM_V : 0);
    if (p->dq.type || ((const attn__gpu_plan *)plan->state)->grads.text.n_sites) {
        ATTN_TRY(compile(plan, job, &kernel[QUERIES], 0, SUM));
    }
    if (sums == (SUM | SUM_V) && !apart) {
        return compile(plan, job, &kernel[KEYS], 1, sums);
    }
    if (sums & SUM) {
        ATTN_TRY(compile(plan, job, &kernel[KEYS], 1, SUM));
    }
    return sums & SUM_V ? compile(plan, job, &kernel[VALUES], 1, SUM_V) : ATTN_OK;
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
static uint64_t stats_bytes(const attn__problem *p) {
    return (rows_in_memory(p) * 2 * sizeof(float) + 255) / 256 * 256;
}
static int has_copy(const attn__problem *p) {
    return p->dout.type != p->q.type;
}

static uint64_t copy_bytes(const attn__problem *p) {
    return has_copy(p) ? rows_in_memory(p) * (uint64_t)(p->DV * p->q.bytes) : 0;
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
    plan->workspace = grads->bytes + stats_bytes(p) + copy_bytes(p);
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
    ATTN_TRY(compile_passes(plan, job, kernel));
    snprintf(plan->kernel, sizeof plan->kernel, "%s %s backward of %lldx%lld", job->target->name,
             attn__type_name(p->q.type), (long long)p->D, (long long)p->DV);
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

/* What all kernels of a run share. */
static size_t fill(attn_params *a, const attn__problem *p, const attn__gpu_grads *grads,
                   char *sums, char *workspace) {
    const attn__grid none = {.tile = {.bm = 1}, .pack = 1, .splits = 1, .xcds = 1};
    attn__params_fill(a, p, &none, NULL);
    const size_t words = grads->words ? (size_t)grads->words : 1;
    attn_back *const back = &a->back;
    back->dout = attn__param_rows(&p->dout);
    back->dout_type = attn__type_number(p->dout.type);
    back->dlse = attn__param_rows(&p->dlse);
    back->stats = compact_rows(p, workspace, 2 * sizeof(float));
    back->dsink = attn__param_rows(&p->dsink).data;
    back->dsink_h = attn__param_rows(&p->dsink).h;
    if (has_copy(p)) {
        back->copy = compact_rows(p, workspace + stats_bytes(p), p->DV * p->q.bytes);
        back->copy_type = attn__type_number(p->q.type);
    }
    attn__grads_words(grads, p, sums, a->word);
    return offsetof(attn_params, word) + words * sizeof a->word[0];
}

/* From here on dO is of q's type. */
static void use_copy(attn_params *a, const attn__problem *p) {
    const int vector = has_copy(p) ? p->DV * p->q.bytes % 16 == 0 : attn__is_vector(&p->dout);
    a->back.dout = has_copy(p) ? a->back.copy : a->back.dout;
    a->flags |= vector ? ATTN_P_VEC_DOUT : 0;
}

/* Rows of `t` that belong to no sequence become 0: all of them do, before the used ones are
   written. */
static int clear(const attn_plan *of, const attn__problem *p, const attn__view *t, int is_q,
                 attn_params a, size_t bytes, void *stream) {
    const attn__gpu_plan *const g = of->state;
    if (!t->type || !(is_q ? p->q_packed || p->has_q_used : p->k_packed || p->has_k_used)) {
        return ATTN_OK;
    }
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

static void to_sum(attn_params *a, const attn__view *t) {
    a->back.to = attn__param_rows(t);
    a->back.to_type = attn__type_number(t->type);
    a->flags |= attn__is_vector(t) ? ATTN_P_VEC_TO : 0;
}

static int pass(const attn_plan *of, const attn__problem *p, const attn__kernel *k, int key_rows,
                attn_params a, size_t bytes, void *stream) {
    if (!k->code) {
        return ATTN_OK;
    }
    to_sum(&a, key_rows ? &p->dk : &p->dq);
    a.back.to_v = attn__param_rows(&p->dv);
    a.back.to_v_type = attn__type_number(p->dv.type);
    a.flags |= attn__is_vector(&p->dv) ? ATTN_P_VEC_TO_V : 0;
    a.xcds = k->grid.xcds;
    a.q_tiles = (i32)attn__ceil_div(key_rows ? p->NK : p->NQ, k->grid.tile.bm);
    a.items = p->B * (key_rows ? p->HK : p->H) * a.q_tiles;
    return a.items ? attn__launch_items(of, k, &a, bytes, stream) : ATTN_OK;
}

int attn__backward_run(const attn_plan *of, const attn__problem *p, char *workspace,
                       void *stream) {
    const attn__gpu_plan *const g = of->state;
    const attn__kernel *const kernel = g->kernel;
    char *const rest = workspace + g->grads.bytes;
    attn_params a;
    ATTN_TRY(attn__grads_fit(&g->grads, p));
    const size_t bytes = fill(&a, p, &g->grads, workspace, rest);
    ATTN_TRY(attn__grads_run(of, &kernel[GRADS], &g->grads, p, workspace, 0, stream));
    ATTN_TRY(attn__launch_rows(of, &kernel[ROWS], p->B * p->H * p->NQ, &a, bytes, stream));
    if (kernel[SINK].code && p->dsink.data) {
        ATTN_TRY(attn__launch(of, &kernel[SINK], p->H, &a, bytes, stream));
    }
    ATTN_TRY(clear(of, p, &p->dq, 1, a, bytes, stream));
    ATTN_TRY(clear(of, p, &p->dk, 0, a, bytes, stream));
    ATTN_TRY(clear(of, p, &p->dv, 0, a, bytes, stream));
    use_copy(&a, p);
    ATTN_TRY(pass(of, p, &kernel[QUERIES], 0, a, bytes, stream));
    ATTN_TRY(pass(of, p, &kernel[KEYS], 1, a, bytes, stream));
    ATTN_TRY(pass(of, p, &kernel[VALUES], 1, a, bytes, stream));
    return attn__grads_run(of, &kernel[GRADS], &g->grads, p, workspace, 1, stream);
}
