/* cpu.c: the CPU engine: what a plan prepares, what lies in the workspace, how a run is divided.

   Who calls it: plan.c, through attn__cpu. The workspace:

       q_start, k_start, item_start   [B+1] each
       c          [B][H][TQ]                    dO.O - dLSE
       dq         [threads][H / HK][NQ][ldd]    backward in one pass
       dsink      [H * query tiles]
       sums       [chunks][size]                captured gradients
       states     [chunks][segments][rows][DV]  forward of few rows: sums over segments of keys
       threads    [threads]                     attn__scratch each

   A run clears what no sequence uses and then works through lists of items on the pool:

       forward                 (b, hk, some of its heads' query tiles[, segments of keys])
       backward   queries      (b, h, query tile), or chunks of them to sum captured gradients
                  keys         (b, hk, key tile)
                  or instead   (b, h, query tile) for c and dsink, then (b, hk) with all its
                               keys, if there are enough of these for the threads

   An item's results depend on the item alone, so neither the number of threads nor their order
   shows in any bit. */
#include "cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


/* -- Plan -------------------------------------------------------------------------------------- */

static int is_s(const attn_graph *g, int node) {
    return g->node[node].op == OP_leaf && g->node[node].sym == LEAF_s;
}

static int is_one(const attn_graph *g, int node) {
    return g->node[node].op == OP_const && g->node[node].u.value.f == 1;
}

static int is_true(const attn_graph *g, int node) {
    return g->node[node].op == OP_const && g->node[node].u.value.i != 0;
}

/* Roots of a program: its fixed ones and the sites'. The sites learn where their results stand. */
static int compile(attn__program *program, const attn_graph *g, int score, int mask, int ds,
                   const attn__site *all, attn__cpu_site *site, int n_sites) {
    uint8_t need[ATTN__MAX_NODES];
    int most = 3;
    for (int i = 0; i < n_sites; i++) {
        most += 1 + site[i].rank;
    }
    int32_t *const roots = (int32_t *)attn__alloc((size_t)most * sizeof *roots, "a plan");
    if (!roots) {
        return ATTN_MEMORY;
    }
    *program = (attn__program){.score = -1, .mask = -1, .ds = -1};
    for (int i = 0; i < n_sites; i++) {
        const attn__site *const from = &all[site[i].from];
        site[i].at = program->n;
        roots[program->n++] = from->d;
        for (int r = 0; r < from->n; r++) {
            roots[program->n++] = from->index[r];
        }
    }
    if (!is_s(g, score)) {
        program->score = program->n;
        roots[program->n++] = score;
    }
    if (ds >= 0 && !is_one(g, ds)) {
        program->ds = program->n;
        roots[program->n++] = ds;
    }
    if (mask >= 0 && !is_true(g, mask)) {
        program->mask = program->n;
        roots[program->n++] = mask;
    }
    attn__need(g, roots, program->n, need);
    for (int node = 0; node < g->n; node++) {
        program->reads_s |= need[node] && is_s(g, node);
    }
    const int status = program->n ? attn__vm_new(g, roots, program->n, &program->vm) : ATTN_OK;
    free(roots);
    return status;
}

static int compile_all(attn__cpu_plan *plan, const attn__problem *p) {
    const attn_variant *const v = p->variant;
    const attn__adjoint *a;
    attn__limits_plan(&v->graph, v->mask, &plan->limits);
    if (p->direction == ATTN_FORWARD) {
        const int mask = plan->limits.all ? -1 : v->mask;
        ATTN_TRY(compile(&plan->queries[PROGRAM_FULL], &v->graph, v->score, -1, -1, NULL, NULL, 0));
        return compile(&plan->queries[PROGRAM_PART], &v->graph, v->score, mask, -1, NULL, NULL, 0);
    }
    ATTN_TRY(attn__adjoint_new(v, &plan->adjoint));
    ATTN_TRY(attn__grads_plan(plan, p));
    a = plan->adjoint;
    for (int i = 0; i < PROGRAMS; i++) {
        const int mask = i == PROGRAM_PART && !plan->limits.all ? a->mask : -1;
        ATTN_TRY(compile(&plan->queries[i], &a->graph, a->score, mask, a->ds, a->site,
                         plan->grads.site, plan->grads.n_sites));
        ATTN_TRY(compile(&plan->keys[i], &a->graph, a->score, mask, a->ds, NULL, NULL, 0));
    }
    return ATTN_OK;
}

/* What the parts of a forward item may take of the second cache: half of it. It shows in no bit.
   Asking takes long on virtual machines, so it is done once. */
static int64_t parts_bytes(void) {
    static _Atomic int64_t half;
    if (!half) {
        int64_t cache = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE)
        cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        half = cache / 2 > 384 << 10 ? cache / 2 : 384 << 10;
    }
    return half;
}

/* Most tiles of all sequences: those of padded ones, or of packed rows and a rest per sequence. */
static int64_t most_tiles(int64_t B, int packed, int64_t rows, int64_t longest, int size) {
    return packed ? rows / size + B : B * ((longest + size - 1) / size);
}

static size_t place(uint64_t *at, int64_t n, size_t bytes) {
    const size_t here = (size_t)*at;
    *at += ((uint64_t)n * bytes + 63) / 64 * 64;
    return here;
}

/* Backward with an item for each key head: s and dp are made once, 5 products instead of 7, but a
   thread may have no item left. Which way is taken shows in no bit. */
static int can_one_pass(const attn__cpu_plan *plan, const attn__problem *p, int threads) {
    const int64_t items = p->B * p->HK, rounds = (items + threads - 1) / threads;
    return p->dq.type && (p->dk.type || p->dv.type) && !plan->grads.n_sites &&
           5 * rounds * threads <= 7 * items;
}

static void lay_out(attn_plan *to, attn__cpu_plan *plan) {
    const attn__problem *const p = &to->problem;
    const int backward = p->direction == ATTN_BACKWARD;
    attn__scratch x;
    for (int i = 0; i < PROGRAMS; i++) {
        const attn__vm *const vm[] = {plan->queries[i].vm, plan->keys[i].vm};
        for (int pass = 0; pass < 2; pass++) {
            const size_t bytes = vm[pass] ? attn__vm_scratch(vm[pass]) : 0;
            plan->vm_bytes[i] = bytes > plan->vm_bytes[i] ? bytes : plan->vm_bytes[i];
        }
    }
    plan->ldd = attn__round_lanes(p->D);
    plan->ldv = attn__round_lanes(p->DV);
    plan->q_tiles = most_tiles(p->B, p->q_packed, p->TQ, p->NQ, BM);
    plan->k_tiles = most_tiles(p->B, p->k_packed, p->TK, p->NK, BN);
    const int64_t part_bytes = (int64_t)sizeof(float) * BM * (plan->ldd + plan->ldv);
    const int64_t fit = parts_bytes() / part_bytes;
    plan->wide = (int)(fit < 1 ? 1 : fit > PARTS ? PARTS : fit);
    const int narrow = attn__narrow_parts(p->H / p->HK, 1);
    plan->parts = narrow > plan->wide ? narrow : plan->wide;
    attn__scratch_lay(plan, p, NULL, &x, &plan->thread_bytes);
    const int64_t rows = (p->q_packed ? 1 : p->B) * p->H * p->TQ;
    uint64_t at = 0;
    plan->at_q_start = place(&at, p->B + 1, sizeof(int64_t));
    plan->at_k_start = place(&at, p->B + 1, sizeof(int64_t));
    plan->at_item_start = place(&at, p->B + 1, sizeof(int64_t));
    plan->at_c = place(&at, backward ? rows : 0, sizeof(float));
    plan->one_pass = can_one_pass(plan, p, to->device->threads);
    plan->at_dq = place(&at, plan->one_pass ? to->device->threads * (p->H / p->HK) * p->NQ : 0,
                        (size_t)plan->ldd * sizeof(float));
    plan->at_dsink = place(&at, p->dsink.type ? p->H * plan->q_tiles : 0, sizeof(double));
    plan->at_sums = place(&at, plan->grads.chunks * plan->grads.size, sizeof(double));
    plan->state_floats = backward ? 0 : attn__state_floats(plan, p, to->device->threads);
    plan->at_states = place(&at, plan->state_floats, sizeof(float));
    plan->at_threads = place(&at, to->device->threads, plan->thread_bytes);
    to->workspace = at;
}

static int cpu_plan(attn_plan *to) {
    attn__cpu_plan *const plan = (attn__cpu_plan *)attn__alloc(sizeof *plan, "a plan");
    if (!plan) {
        return ATTN_MEMORY;
    }
    memset(plan, 0, sizeof *plan);
    to->state = plan; /* from here on attn_plan_release frees it */
    const attn__problem *const p = &to->problem;
    plan->ops = to->device->ops;
    plan->pairs = plan->ops->mul_pairs && p->q.type == ATTN_BF16 && p->k.type == ATTN_BF16 &&
                  p->v.type == ATTN_BF16;
    plan->split = plan->ops->go_on && !plan->pairs && p->direction == ATTN_FORWARD &&
                  !(p->flags & ATTN_BATCH_INVARIANT) && p->NQ >= BM && p->D % (2 * LANES) == 0;
    plan->pairs_grad = plan->pairs && p->dout.type == ATTN_BF16;
    ATTN_TRY(compile_all(plan, &to->problem));
    lay_out(to, plan);
    snprintf(to->kernel, sizeof to->kernel, "%s %dx%d", plan->ops->name, BM, BN);
    return ATTN_OK;
}

static void cpu_release(attn_plan *to) {
    attn__cpu_plan *const plan = (attn__cpu_plan *)to->state;
    for (int i = 0; i < PROGRAMS; i++) {
        attn__vm_free(plan->queries[i].vm);
        attn__vm_free(plan->keys[i].vm);
    }
    if (plan->adjoint) {
        attn__adjoint_free(plan->adjoint);
    }
    free(plan->grads.site);
    free(plan);
}

/* -- Items ------------------------------------------------------------------------------------- */

/* start[b]: tiles before sequence b. Offsets that overlap, which are not allowed, could make more
   tiles than there is room for: what comes then has none. */
static void count_tiles(const attn__problem *p, int is_q, int size, int64_t most, int64_t *start) {
    start[0] = 0;
    for (int64_t b = 0; b < p->B; b++) {
        const attn__seq s = attn__sequence(p, b);
        const int64_t n = ((int64_t)(is_q ? s.nq : s.nk) + size - 1) / size;
        start[b + 1] = start[b] + n < most ? start[b] + n : most;
    }
}

attn__item attn__find_item(const int64_t *start, int64_t B, int64_t heads, int64_t at) {
    int64_t low = 0, high = B; /* start[low] <= at / heads < start[high] */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        *(start[middle] <= at / heads ? &low : &high) = middle;
    }
    const int64_t tiles = start[low + 1] - start[low], rest = at - start[low] * heads;
    return (attn__item){low, rest / tiles, (int)(rest % tiles), (int)tiles};
}

static void keys_item(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const attn__item x = attn__find_item(run->k_start, run->p->B, run->p->HK, at);
    attn__cpu_keys(run, thread, x.b, x.h, x.tile);
}

static void group_item(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    attn__cpu_group(run, thread, at / run->p->HK, at % run->p->HK);
}

/* Heads that are items of their own; the others are taken in turn. */
static int64_t item_heads(const attn__cpu_run *run) {
    return run->plan->grads.inner_h ? 1 : run->p->H;
}

static int64_t query_items(const attn__cpu_run *run) {
    int64_t n = run->q_start[run->p->B];
    if (run->plan->grads.inner_b) {
        n = 0;
        for (int64_t b = 0; b < run->p->B; b++) {
            const int64_t tiles = run->q_start[b + 1] - run->q_start[b];
            n = tiles > n ? tiles : n;
        }
    }
    return n * item_heads(run);
}

static void query_item(const attn__cpu_run *run, int64_t at, int thread, int constants_only,
                       double *sums) {
    const attn__problem *const p = run->p;
    const int64_t heads = item_heads(run);
    const int inner_b = run->plan->grads.inner_b;
    const attn__item x = inner_b ? (attn__item){.h = at % heads, .tile = (int)(at / heads)}
                                 : attn__find_item(run->q_start, p->B, heads, at);
    const int64_t b_end = inner_b ? p->B : x.b + 1, h_end = heads == 1 ? p->H : x.h + 1;
    for (int64_t b = x.b; b < b_end; b++) {
        for (int64_t h = x.h; h < h_end && x.tile < run->q_start[b + 1] - run->q_start[b]; h++) {
            attn__cpu_queries(run, thread, b, h, x.tile, constants_only, sums);
        }
    }
}

static void query_alone(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const int wanted = run->p->dq.type || run->plan->grads.n_sites;
    query_item(run, at, thread, run->one_pass || !wanted, NULL);
}

static void query_chunk(void *arg, int64_t chunk, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const attn__cpu_grads *const g = &run->plan->grads;
    const int64_t n = query_items(run);
    double *const sums = run->sums + chunk * g->size;
    memset(sums, 0, (size_t)g->size * sizeof *sums);
    for (int64_t at = n * chunk / g->chunks; at < n * (chunk + 1) / g->chunks; at++) {
        query_item(run, at, thread, 0, sums);
    }
}

/* -- Run --------------------------------------------------------------------------------------- */

static void finish_dsink(const attn__cpu_run *run) {
    const attn__problem *const p = run->p;
    for (int64_t h = 0; h < p->H; h++) {
        double sum = 0;
        for (int64_t b = 0; b < p->B; b++) {
            const int64_t tiles = run->q_start[b + 1] - run->q_start[b];
            for (int64_t i = 0; i < tiles; i++) {
                sum += run->dsink[run->q_start[b] * p->H + h * tiles + i];
            }
        }
        attn__set(attn__at(&p->dsink, 0, h, 0), p->dsink.type, sum);
    }
}

static void backward(attn__cpu_run *run) {
    const attn__problem *const p = run->p;
    if (run->plan->grads.chunks) {
        attn__pool_run(run->pool, run->plan->grads.chunks, query_chunk, run);
        attn__grads_finish(run);
    } else {
        attn__pool_run(run->pool, query_items(run), query_alone, run);
    }
    if (p->dsink.type) {
        finish_dsink(run);
    }
    if (run->one_pass) {
        attn__pool_run(run->pool, p->B * p->HK, group_item, run);
    } else if (p->dk.type || p->dv.type) {
        attn__pool_run(run->pool, run->k_start[p->B] * p->HK, keys_item, run);
    }
}

/* Waking a thread takes as long as some 100,000 multiply-adds: less is left to the caller. What
   runs where shows in no bit. */
static int is_small(const attn__problem *p) {
    const double pairs = (double)p->B * (double)p->H * (double)p->NQ * (double)p->NK;
    return pairs * (double)(p->D + p->DV) < 3e5;
}

static int cpu_run(const attn_plan *of, const attn__problem *p, char *workspace, void *stream) {
    (void)stream; /* NULL */
    const attn__cpu_plan *const plan = (const attn__cpu_plan *)of->state;
    attn__cpu_run run = {.plan = plan,
                         .p = p,
                         .pool = is_small(p) ? NULL : of->device->pool,
                         .q_start = (int64_t *)(workspace + plan->at_q_start),
                         .k_start = (int64_t *)(workspace + plan->at_k_start),
                         .item_start = (int64_t *)(workspace + plan->at_item_start),
                         .c = (float *)(workspace + plan->at_c),
                         .dq = (float *)(workspace + plan->at_dq),
                         .one_pass = plan->one_pass && can_one_pass(plan, p, of->device->threads),
                         .dsink = (double *)(workspace + plan->at_dsink),
                         .sums = (double *)(workspace + plan->at_sums),
                         .states = (float *)(workspace + plan->at_states),
                         .threads = workspace + plan->at_threads};
    if (p->direction == ATTN_BACKWARD) {
        ATTN_TRY(attn__grads_check(plan, p));
    }
    attn__clear_unused(p);
    count_tiles(p, 1, BM, plan->q_tiles, run.q_start);
    count_tiles(p, 0, BN, plan->k_tiles, run.k_start);
    if (p->direction == ATTN_FORWARD) {
        attn__cpu_forward_all(&run, of->device->threads);
    } else {
        backward(&run);
    }
    return ATTN_OK;
}

const attn__engine attn__cpu = {"cpu", cpu_plan, cpu_run, cpu_release};
