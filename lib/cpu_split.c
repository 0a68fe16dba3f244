/* cpu_split.c: forward's work: the list of items, and the merging of what they leave.

   Who calls it: cpu.c. Query tiles of the heads that share a key head are taken together as a
   chunk, so that a tile of keys is loaded once for all of them:

       many rows     |tile|tile|tile|...        up to `wide` tiles
       few rows      |head|head|head|head|      of so many heads that their rows fit a tile
                                                |
       keys        segment 0 | segment 1 | segment 2 | ...     (o, m, l) each, begun anew
                   ---------------------------------------
       result      ((0 merged with 1) merged with 2) ... , then the sink

   A segment is SEGMENT keys, counted from the sequence's first one, whatever the other sizes.
   Where there are chunks enough for the threads, an item is a chunk with all its segments, which it
   merges as it goes. Otherwise segments are items too: they leave their states in the workspace,
   and a second list of items merges them, in the same order. So which way is taken shows in no bit.
   If the states of all chunks do not fit, some chunks are done after the others. */
#include "cpu_fwd.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops below scalar */
#endif

#include <math.h>
#include <string.h>

enum {
    PER_THREAD = 4, /* items that each thread is to have at least */
    MERGE_ROWS = 4  /* rows of an item that merges */
};
static const int64_t most_state_floats = 8 << 20; /* 32 MiB */

/* -- States ------------------------------------------------------------------------------------ */

static int64_t state_floats(const attn__cpu_plan *plan, int64_t rows) {
    return rows * (plan->ldv + 2);
}

attn__state attn__state_at(const attn__cpu_plan *plan, float *states, int segment, int rows,
                           int at) {
    float *const o = states + segment * state_floats(plan, rows);
    float *const m = o + (int64_t)rows * plan->ldv;
    return (attn__state){o + (int64_t)at * plan->ldv, m + at, m + rows + at};
}

static float exp_f32(float x) {
    return (float)exp((double)x);
}

/* The larger m stays; what is not finite in o stays so. */
void attn__fold_row(const attn__cpu_plan *plan, const attn__state *to, const attn__state *from,
                    int i) {
    const int ldv = plan->ldv;
    float *const o = to->o + (int64_t)i * ldv;
    const float *const x = from->o + (int64_t)i * ldv;
    if (from->m[i] == -INFINITY) {
        return;
    }
    if (to->m[i] == -INFINITY) {
        to->m[i] = from->m[i];
        to->l[i] = from->l[i];
        memcpy(o, x, (size_t)ldv * sizeof *o);
        return;
    }
    const float top = to->m[i] > from->m[i] ? to->m[i] : from->m[i];
    const float by_to = exp_f32(to->m[i] - top), by_from = exp_f32(from->m[i] - top);
    to->m[i] = top;
    to->l[i] = to->l[i] * by_to + from->l[i] * by_from;
    if (plan->ops->finite(o, ldv) && plan->ops->finite(x, ldv)) {
        plan->ops->fold(o, by_to, x, by_from, ldv);
        return;
    }
    for (int d = 0; d < ldv; d++) {
        const int a = isfinite(o[d]), b = isfinite(x[d]);
        o[d] = a && b ? o[d] * by_to + x[d] * by_from : a ? x[d] : b ? o[d] : o[d] + x[d];
    }
}

/* What a row's state comes to with its sink: out = o by. */
typedef struct ends {
    int empty, nan;
    float by;
    double lse;
} ends;

/* A row that saw nothing has its sink as LSE, also if the sink is no number. */
static ends ends_of(const attn__tile *t, int64_t h, const attn__state *state, int i) {
    const attn__problem *const p = t->run->p;
    const double sink =
        p->sink.type ? attn__get(attn__at(&p->sink, 0, h, 0), p->sink.type) : -INFINITY;
    const double m = (double)state->m[i], l = (double)state->l[i];
    const double top = m > sink ? m : sink, by = sink == -INFINITY ? 1 : exp(m - top);
    const double sum = sink == -INFINITY ? l : l * by + exp(sink - top);
    const int empty = m == -INFINITY;
    return (ends){empty, isnan(sum), (float)(by / sum), empty ? sink : top + log(sum)};
}

/* Elements of out that are not finite, once more: the sums may have passed f32. */
static void finish_again(attn__tile *t, int64_t h, int64_t row, float *out,
                         const attn__state *spare) {
    attn__forward_again(t, h, (int)row, spare);
    const ends e = ends_of(t, h, spare, 0);
    for (int d = 0; d < t->run->plan->ldv; d++) {
        const float x = spare->o[d];
        out[d] = isfinite(out[d]) ? out[d] : isfinite(x) ? x * e.by * (1 / AGAIN) + 0.0f : x;
    }
}

/* A row that saw nothing has out 0. Adding 0 makes +0 of -0, which depends on what was masked
   beside the row. */
void attn__finish_row(attn__tile *t, int64_t h, int64_t row, const attn__state *state, int i,
                      const attn__state *spare) {
    const attn__problem *const p = t->run->p;
    const int ldv = t->run->plan->ldv;
    const int64_t at = t->seq.q_row + row;
    const ends e = ends_of(t, h, state, i);
    float *const o = state->o + (int64_t)i * ldv;
    if (!e.empty && !e.nan && t->run->plan->ops->finite(o, ldv)) {
        for (int d = 0; d < ldv; d++) {
            o[d] = o[d] * e.by + 0.0f;
        }
    } else {
        for (int d = 0; d < ldv; d++) {
            o[d] = e.empty ? 0 : e.nan ? NAN : isfinite(o[d]) ? o[d] * e.by + 0.0f : o[d];
        }
        if (!e.empty && !e.nan) {
            finish_again(t, h, row, o, spare);
        }
    }
    if (p->lse.type) {
        attn__set(attn__at(&p->lse, t->seq.qb, h, at), p->lse.type, e.lse);
    }
    attn__store_rows(&p->o, t->seq.qb, h, at, o, 1);
}

/* -- Chunks ------------------------------------------------------------------------------------ */

static int64_t tiles_of(const attn__cpu_run *run, int64_t b) {
    return (run->q_start[b + 1] - run->q_start[b]) * (run->p->H / run->p->HK);
}

/* The last tiles come first: under a causal mask they have most to do. */
static attn__chunk chunk_at(const attn__cpu_run *run, int64_t at) {
    const attn__item x = attn__find_item(run->item_start, run->p->B, run->p->HK, at);
    const int64_t all = tiles_of(run, x.b);
    const int first = (x.tiles - 1 - x.tile) * run->parts;
    const int64_t n = all - first < run->parts ? all - first : run->parts;
    return (attn__chunk){x.b, x.h, first, (int)n};
}

static void whole_item(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const attn__chunk chunk = chunk_at(run, at);
    const int32_t nk = attn__sequence(run->p, chunk.b).nk;
    attn__cpu_forward(run, thread, chunk, 0, nk ? (nk + SEGMENT - 1) / SEGMENT : 1, NULL);
}

/* Most rows of a chunk of a run that is split: one part, or several with few rows each. */
static int64_t most_rows(const attn__cpu_run *run) {
    const int64_t rows = run->parts * run->p->NQ;
    return rows < BM ? rows : BM;
}

static float *states_of(const attn__cpu_run *run, int64_t chunk) {
    return run->states +
           (chunk - run->first_chunk) * run->segments * state_floats(run->plan, most_rows(run));
}

static void piece_item(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const int64_t chunk = run->first_chunk + at / run->pieces;
    const int piece = (int)(at % run->pieces), n = run->segments;
    const int begin = (int)((int64_t)n * piece / run->pieces);
    const int end = (int)((int64_t)n * (piece + 1) / run->pieces);
    const attn__chunk x = chunk_at(run, chunk);
    const int32_t nq = attn__sequence(run->p, x.b).nq;
    const int rows = attn__chunk_rows(&x, nq);
    attn__cpu_forward(run, thread, x, begin, end,
                      attn__state_at(run->plan, states_of(run, chunk), begin, rows, 0).o);
}

/* MERGE_ROWS rows of a chunk, counted over its parts. */
static void merge_item(void *arg, int64_t at, int thread) {
    const attn__cpu_run *const run = (const attn__cpu_run *)arg;
    const attn__problem *const p = run->p;
    const int64_t each = (most_rows(run) + MERGE_ROWS - 1) / MERGE_ROWS;
    const int64_t chunk = run->first_chunk + at / each;
    const attn__chunk x = chunk_at(run, chunk);
    attn__tile t;
    attn__tile_open(&t, run, run->plan->queries, thread, x.b);
    t.hk = x.hk;
    const int tiles = (t.seq.nq + BM - 1) / BM, rows = attn__chunk_rows(&x, t.seq.nq);
    const int from = (int)(at % each) * MERGE_ROWS;
    const int to = from + MERGE_ROWS < rows ? from + MERGE_ROWS : rows;
    for (int i = from; i < to; i++) {
        const int part = i / (tiles == 1 ? t.seq.nq : BM), in = i - part * t.seq.nq;
        const int64_t h = x.hk * (p->H / p->HK) + (x.first + part) / tiles;
        const int64_t row = tiles == 1 ? in : (int64_t)(x.first % tiles) * BM + i;
        const attn__state all = attn__state_at(run->plan, states_of(run, chunk), 0, rows, 0);
        for (int e = 1; e < run->segments; e++) {
            const attn__state more = attn__state_at(run->plan, states_of(run, chunk), e, rows, 0);
            attn__fold_row(run->plan, &all, &more, i);
        }
        attn__finish_row(&t, h, row, &all, i, &t.x.state[0]);
    }
    attn__tile_close(&t);
}

int attn__chunk_rows(const attn__chunk *x, int32_t nq) {
    const int tiles = (nq + BM - 1) / BM;
    int rows = 0;
    for (int e = 0; e < x->n; e++) {
        const int r0 = (x->first + e) % tiles * BM;
        rows += nq - r0 < BM ? nq - r0 : BM;
    }
    return rows;
}

/* -- Sizes ------------------------------------------------------------------------------------- */

int attn__narrow_parts(int64_t group, int64_t NQ) {
    const int64_t fit = NQ > 0 ? NARROW / NQ : 1;
    return (int)(fit < 1 ? 1 : fit < group ? fit : group);
}

int64_t attn__state_floats(const attn__cpu_plan *plan, const attn__problem *p, int threads) {
    const int64_t segments = (p->NK + SEGMENT - 1) / SEGMENT;
    const int64_t all = p->B * p->H * p->NQ, split = (int64_t)PER_THREAD * threads * BM;
    const int64_t rows = all < split ? all : split;
    const int64_t least = segments * state_floats(plan, BM);
    const int64_t n = segments * state_floats(plan, rows);
    const int64_t most = least > most_state_floats ? least : most_state_floats;
    return segments < 2 ? 0 : n < most ? n : most;
}

static int64_t count_chunks(attn__cpu_run *run) {
    const attn__problem *const p = run->p;
    run->item_start[0] = 0;
    for (int64_t b = 0; b < p->B; b++) {
        run->item_start[b + 1] =
            run->item_start[b] + (tiles_of(run, b) + run->parts - 1) / run->parts;
    }
    return run->item_start[p->B] * p->HK;
}

/* As many parts as leave each thread several chunks. What a chunk holds shows in no bit. */
void attn__cpu_forward_all(attn__cpu_run *run, int threads) {
    const attn__problem *const p = run->p;
    const int64_t want = (int64_t)PER_THREAD * threads;
    const int64_t each = run->q_start[p->B] * p->H / want;
    const int narrow = attn__narrow_parts(p->H / p->HK, p->NQ);
    run->parts = narrow < run->plan->parts ? narrow : run->plan->parts;
    if (narrow == 1) {
        run->parts = (int)(each < 1 ? 1 : each > run->plan->wide ? run->plan->wide : each);
    }
    const int64_t chunks = count_chunks(run);
    run->segments = (int)((p->NK + SEGMENT - 1) / SEGMENT);
    const int64_t floats = run->segments * state_floats(run->plan, most_rows(run));
    const int64_t fit = floats > 0 ? run->plan->state_floats / floats : 0;
    if (chunks >= want || run->segments < 2 || fit < 1) {
        attn__pool_run(run->pool, chunks, whole_item, run);
        return;
    }
    const int64_t pieces = (want + chunks - 1) / (chunks > 0 ? chunks : 1);
    run->pieces = (int)(pieces < run->segments ? pieces : run->segments);
    const int64_t merges = (most_rows(run) + MERGE_ROWS - 1) / MERGE_ROWS;
    for (int64_t at = 0; at < chunks; at += fit) {
        const int64_t n = chunks - at < fit ? chunks - at : fit;
        run->first_chunk = at;
        attn__pool_run(run->pool, n * run->pieces, piece_item, run);
        attn__pool_run(run->pool, n * merges, merge_item, run);
    }
}
