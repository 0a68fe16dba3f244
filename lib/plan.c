/* plan.c: plans and runs.

   Who calls it: the public API. A plan is a checked problem without pointers, the engine's state
   and a workspace size; a run is the same check with pointers, compared with the plan, then the
   engine:

       attn_plan_new   attn__problem_new (planning) -> engine->plan
       attn_run        attn__problem_new -> within_plan -> engine->run      allocates nothing */
#define _POSIX_C_SOURCE 200809L
#include "expr.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOST = 1 }; /* DLPack's number */

static const char *direction_name(const attn__problem *p) {
    return p->direction == ATTN_FORWARD ? "forward" : "backward";
}

/* -- The log ----------------------------------------------------------------------------------- */

#define SIZES "\"B\":%lld,\"H\":%lld,\"HK\":%lld,\"NQ\":%lld,\"NK\":%lld,\"D\":%lld,\"DV\":%lld"
#define SIZES_OF(p)                                                                                \
    (long long)(p)->B, (long long)(p)->H, (long long)(p)->HK, (long long)(p)->NQ,                  \
        (long long)(p)->NK, (long long)(p)->D, (long long)(p)->DV

static void log_plan(const attn_plan *plan) {
    const attn__problem *const p = &plan->problem;
    char *const text = attn__json_text(attn_variant_text(plan->variant));
    attn__log_write(1,
                    "{\"event\":\"plan\",\"version\":\"%s\",\"device\":\"%s\",\"kernel\":\"%s\","
                    "\"direction\":\"%s\",\"type\":\"%s\"," SIZES ",\"workspace\":%llu,"
                    "\"variant\":\"%s\"}",
                    attn_version(), plan->device->name, plan->kernel, direction_name(p),
                    attn__type_name(p->q.type), SIZES_OF(p), (unsigned long long)plan->workspace,
                    text ? text : "");
    free(text);
}

static void log_run(const attn_plan *plan, const attn__problem *p, double seconds, int status) {
    attn__log_write(2,
                    "{\"event\":\"run\",\"device\":\"%s\",\"kernel\":\"%s\",\"direction\":\"%s\","
                    "\"type\":\"%s\"," SIZES ",\"seconds\":%.9f,\"status\":\"%s\"}",
                    plan->device->name, plan->kernel, direction_name(p), attn__type_name(p->q.type),
                    SIZES_OF(p), seconds, attn_status_name(status));
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- Plans ------------------------------------------------------------------------------------- */

static int plan_fill(attn_plan *plan, int direction, const attn_call *shapes,
                     const attn_variant *variant) {
    if (variant) {
        /* Counting is no change that anyone sees. */
        plan->variant = attn_variant_retain((attn_variant *)variant);
    } else {
        ATTN_TRY(attn_variant_compose(NULL, 0, &plan->variant));
    }
    const size_t symbols = (size_t)plan->variant->graph.n_symbols;
    plan->bound = attn__alloc(symbols * sizeof *plan->bound, "a plan");
    if (!plan->bound) {
        return ATTN_MEMORY;
    }
    const size_t bytes = attn__overflow_scratch(&plan->variant->graph);
    void *const scratch = attn__alloc(bytes, "a plan");
    if (!scratch) {
        return ATTN_MEMORY;
    }
    int status = attn__problem_new(plan->device, direction, shapes, plan->variant, 1, plan->bound,
                                   scratch, &plan->problem);
    free(scratch);
    if (status >= 0) {
        status = plan->engine->plan(plan);
    }
    /* A run's check is over before its engine begins. */
    if (plan->device->kind == HOST && attn__checks_overflow(plan->variant) &&
        plan->workspace < bytes) {
        plan->workspace = bytes;
    }
    return status;
}

int attn_plan_new(attn_device *device, int direction, const attn_call *shapes,
                  const attn_variant *variant, attn_plan **plan) {
    if (!plan) {
        return attn__fail(ATTN_INVALID, "plan", "plan is NULL; a place for the handle is wanted");
    }
    *plan = NULL;
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__settings_check());
    attn_plan *const made = attn__alloc(sizeof *made, "a plan");
    if (!made) {
        return ATTN_MEMORY;
    }
    *made = (attn_plan){.refs = 1, .device = attn_device_retain(device), .engine = device->engine};
    const int status = plan_fill(made, direction, shapes, variant);
    if (status < 0) {
        attn_plan_release(made);
        return status;
    }
    if (attn__log_level() >= 1) {
        log_plan(made);
    }
    *plan = made;
    return ATTN_OK;
}

attn_plan *attn_plan_retain(attn_plan *plan) {
    if (plan) {
        __atomic_fetch_add(&plan->refs, 1, __ATOMIC_RELAXED);
    }
    return plan;
}

void attn_plan_release(attn_plan *plan) {
    if (plan && __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        if (plan->state) {
            plan->engine->release(plan);
        }
        free(plan->bound);
        attn_variant_release(plan->variant);
        attn_device_release(plan->device);
        free(plan);
    }
}

/* -- Runs -------------------------------------------------------------------------------------- */

static int same_tensors(const attn__problem *plan, const attn__problem *run) {
#define ROW(name)                                                                                  \
    { #name, offsetof(attn__problem, name) }
    static const struct {
        const char *name;
        size_t at;
    } views[] = {ROW(q),       ROW(k),
                 ROW(v),       ROW(o),
                 ROW(lse),     ROW(dout),
                 ROW(dlse),    ROW(dq),
                 ROW(dk),      ROW(dv),
                 ROW(sink),    ROW(dsink),
                 ROW(q_scale), ROW(k_scale),
                 ROW(v_scale), {"blocks", offsetof(attn__problem, block_counts)}};
#undef ROW
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        const int a = ((const attn__view *)((const char *)plan + views[i].at))->type;
        const int b = ((const attn__view *)((const char *)run + views[i].at))->type;
        if (a != b) {
            return attn__fail(ATTN_MISMATCH, views[i].name, "%s is %s; the plan was made with %s",
                              views[i].name, b ? attn__type_name(b) : "NULL",
                              a ? attn__type_name(a) : "NULL");
        }
    }
    const struct {
        const char *name;
        int plan, run;
    } lengths[] = {{"q_offsets", plan->has_q_offsets, run->has_q_offsets},
                   {"k_offsets", plan->has_k_offsets, run->has_k_offsets},
                   {"q_used", plan->has_q_used, run->has_q_used},
                   {"k_used", plan->has_k_used, run->has_k_used},
                   {"dropout", plan->drop_threshold > 0, run->drop_threshold > 0},
                   {"seed_at", plan->has_seed_at, run->has_seed_at}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        if (lengths[i].plan != lengths[i].run) {
            return attn__fail(ATTN_MISMATCH, lengths[i].name, "%s is %s; the plan was made %s it",
                              lengths[i].name, lengths[i].run ? "given" : "not given",
                              lengths[i].plan ? "with" : "without");
        }
    }
    return ATTN_OK;
}

/* What the variant reads: the plan's types and gradients, and extents up to the plan's. */
static int same_captures(const attn__problem *planned, const attn__bound *run) {
    const attn_variant *const v = planned->variant;
    const attn__bound *const plan = planned->bound;
    for (int i = 0; i < v->graph.n_symbols; i++) {
        const attn__symbol *const symbol = &v->graph.symbol[i];
        char arg[ATTN__NAME + 16];
        snprintf(arg, sizeof arg, "captures.%s", symbol->name);
        if (symbol->rank > 0 && plan[i].type != run[i].type) {
            return attn__fail(ATTN_MISMATCH, arg, "%s is %s; the plan was made with %s", arg,
                              attn__type_name(run[i].type), attn__type_name(plan[i].type));
        }
        if (planned->direction == ATTN_BACKWARD && plan[i].has_grad != run[i].has_grad) {
            return attn__fail(ATTN_MISMATCH, arg, "%s has %s gradient; the plan was made %s", arg,
                              run[i].has_grad ? "a" : "no",
                              plan[i].has_grad ? "with one" : "without");
        }
        for (int axis = 0; axis < symbol->rank; axis++) {
            if (run[i].n[axis] > plan[i].n[axis]) {
                return attn__fail(ATTN_MISMATCH, arg,
                                  "%s has extent %lld on axis %d; the plan allows up to %lld", arg,
                                  (long long)run[i].n[axis], axis, (long long)plan[i].n[axis]);
            }
        }
    }
    return ATTN_OK;
}

static int64_t whole(int64_t total, int64_t here) {
    return total ? total : here;
}

/* Some numbers are the plan's, others at most the plan's. */
static int within_plan(const attn__problem *plan, const attn__problem *run) {
    ATTN_TRY(same_tensors(plan, run));
    ATTN_TRY(same_captures(plan, run->bound));
    const struct {
        const char *arg, *name;
        int64_t plan, run;
        int equal;
    } sizes[] = {
        {"flags", "flags", plan->flags, run->flags, 1},
        {"q", "heads of q", plan->H, run->H, 1},
        {"k", "heads of k", plan->HK, run->HK, 1},
        {"q", "head dimension of q", plan->D, run->D, 1},
        {"v", "head dimension of v", plan->DV, run->DV, 1},
        {"q_scale", "rank of q_scale", plan->q_scale_rank, run->q_scale_rank, 1},
        {"k_scale", "rank of k_scale", plan->k_scale_rank, run->k_scale_rank, 1},
        {"v_scale", "rank of v_scale", plan->v_scale_rank, run->v_scale_rank, 1},
        {"q_scale", "heads of q_scale", plan->q_scale_heads, run->q_scale_heads, 1},
        {"k_scale", "heads of k_scale", plan->k_scale_heads, run->k_scale_heads, 1},
        {"v_scale", "heads of v_scale", plan->v_scale_heads, run->v_scale_heads, 1},
        {"blocks.bm", "blocks.bm", plan->block_m, run->block_m, 1},
        {"blocks.bn", "blocks.bn", plan->block_n, run->block_n, 1},
        {"q", "batch", plan->B, run->B, 0},
        {"q", "rows of q", plan->TQ, run->TQ, 0},
        {"k", "rows of k", plan->TK, run->TK, 0},
        {"q_longest", "longest sequence of q", plan->NQ, run->NQ, 0},
        {"k_longest", "longest sequence of k", plan->NK, run->NK, 0},
        {"blocks.indices", "last extent of blocks.indices", plan->block_most, run->block_most, 0},
        {"batch", "total batch", plan->batch, run->batch, 0},
        {"nh", "total nh", plan->nh, run->nh, 0},
        {"hk", "total hk", plan->hk, run->hk, 0},
        {"nq", "total nq", whole(plan->nq_all, plan->NQ), whole(run->nq_all, run->NQ), 0},
        {"nk", "total nk", whole(plan->nk_all, plan->NK), whole(run->nk_all, run->NK), 0},
    };
    if (run->alignment < plan->alignment) {
        return attn__fail(ATTN_MISMATCH, "alignment",
                          "this run promises an alignment of %u bytes; the plan needs %u",
                          (unsigned)run->alignment, (unsigned)plan->alignment);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t a = sizes[i].plan, b = sizes[i].run;
        if (sizes[i].equal ? a != b : b > a) {
            return attn__fail(ATTN_MISMATCH, sizes[i].arg,
                              "this run has %s %lld; the plan allows %s%lld", sizes[i].name,
                              (long long)b, sizes[i].equal ? "" : "up to ", (long long)a);
        }
    }
    return ATTN_OK;
}

/* The host computes in the workspace where it can reach it. */
static int check_run(const attn_plan *plan, const attn_call *call, void *workspace,
                     attn__bound *bound, attn__problem *problem) {
    void *scratch = workspace;
    const int own = plan->device->kind != HOST && attn__checks_overflow(plan->variant);
    if (own) {
        scratch = attn__alloc(attn__overflow_scratch(&plan->variant->graph), "a run");
        if (!scratch) {
            return ATTN_MEMORY;
        }
    }
    const int status = attn__problem_new(plan->device, plan->problem.direction, call, plan->variant,
                                         0, bound, scratch, problem);
    if (own) {
        free(scratch);
    }
    return status;
}

int attn_run(const attn_plan *plan, const attn_call *call, void *workspace, void *stream) {
    if (!plan) {
        return attn__fail(ATTN_INVALID, "plan", "plan is NULL; a handle is wanted");
    }
    ATTN_TRY(attn__stream_check(plan->device, stream));
    if (plan->workspace > 0 && !workspace) {
        return attn__fail(ATTN_INVALID, "workspace", "workspace is NULL; the plan needs %llu bytes",
                          (unsigned long long)plan->workspace);
    }
    if ((uintptr_t)workspace % 64) {
        return attn__fail(ATTN_LAYOUT, "workspace",
                          "workspace lies at %p; a multiple of 64 is allowed", workspace);
    }
    attn__problem problem;
    attn__bound bound[ATTN__MAX_SYMBOLS];
    ATTN_TRY(check_run(plan, call, workspace, bound, &problem));
    ATTN_TRY(within_plan(&plan->problem, &problem));
    const int timed = attn__log_level() >= 2;
    const double begin = timed ? now() : 0;
    const int status = plan->engine->run(plan, &problem, workspace, stream);
    if (timed) {
        log_run(plan, &problem, now() - begin, status);
    }
    return status;
}
