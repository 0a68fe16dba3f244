/* sequence.c: where one sequence of a problem lies, and what becomes of the rows outside.

   Who calls it: the engines, once per work item.
   Lengths and offsets lie in memory that anyone may have written: they are clamped, so that a bad
   one gives wrong rows and never an access outside.

       packed rows    0 .... offsets[b] ........ + used[b] ..... offsets[b+1] .... T
                             | used rows: 0..nq | spare rows    |
       padded rows           0 ................. used[b] ....... N                     */
#include "expr.h"

#include <math.h>
#include <string.h>

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

typedef struct span {
    int64_t row, n;
} span;

/* T rows in memory, at most N in a sequence, at most `room` because the whole ends there. */
static span used_rows(const int32_t *offsets, int64_t o_st, const int32_t *used, int64_t u_st,
                      int64_t b, int64_t T, int64_t N, int64_t room) {
    span s = {0, T};
    if (offsets) {
        s.row = clamp(offsets[b * o_st], 0, T);
        s.n = clamp(offsets[(b + 1) * o_st], s.row, T) - s.row;
    }
    s.n = clamp(used ? used[b * u_st] : s.n, 0, s.n < N ? s.n : N);
    s.n = s.n < room ? s.n : room;
    return s;
}

attn__seq attn__sequence(const attn__problem *p, int64_t b) {
    const int64_t q_room = p->nq_all ? p->nq_all - p->i0 : p->NQ;
    const int64_t k_room = p->nk_all ? p->nk_all - p->k0 : p->NK;
    const span q =
        used_rows(p->q_offsets, p->q_offsets_st, p->q_used, p->q_used_st, b, p->TQ, p->NQ, q_room);
    const span k =
        used_rows(p->k_offsets, p->k_offsets_st, p->k_used, p->k_used_st, b, p->TK, p->NK, k_room);
    attn__seq s = {.qb = p->q_packed ? 0 : b, .kb = p->k_packed ? 0 : b};
    s.q_row = q.row;
    s.k_row = k.row;
    s.nq = (int32_t)q.n;
    s.nk = (int32_t)k.n;
    s.i0 = (int32_t)p->i0;
    s.k0 = (int32_t)p->k0;
    s.b = (int32_t)(p->b0 + b);
    s.nq_all = p->nq_all ? (int32_t)p->nq_all : s.nq;
    s.nk_all = p->nk_all ? (int32_t)p->nk_all : s.nk;
    s.q0 = s.i0 + (p->flags & ATTN_TOP_LEFT ? 0 : s.nk_all - s.nq_all);
    return s;
}

float attn__scale_at(const attn__view *t, int heads, const attn__problem *p, int64_t b, int64_t h,
                     int64_t row) {
    if (!t->type) {
        return 1;
    }
    const int64_t head = heads == 1 ? 0 : heads == p->H ? h : h / (p->H / p->HK);
    float x;
    memcpy(&x, attn__at(t, t->n[0] == 1 ? 0 : b, head, t->n[2] == 1 ? 0 : row / 128), sizeof x);
    return x;
}

/* -- Rows that no sequence uses ---------------------------------------------------------------- */

/* Rows [row, end) of batch entry b, every head. */
static void clear(const attn__view *t, int64_t b, int64_t row, int64_t end, double value) {
    for (int64_t h = 0; t->type && h < t->n[1]; h++) {
        for (int64_t r = row; r < end; r++) {
            char *const at = attn__at(t, b, h, r);
            if (value == 0) {
                memset(at, 0, (size_t)(t->n[3] * t->bytes));
            } else {
                attn__set(at, t->type, value);
            }
        }
    }
}

/* The q-like results (is_q) or the k-like ones. */
static void clear_rows(const attn__problem *p, int is_q, int64_t b, int64_t row, int64_t end) {
    if (p->direction == ATTN_FORWARD && is_q) {
        clear(&p->o, b, row, end, 0);
        clear(&p->lse, b, row, end, -INFINITY);
    } else if (p->direction == ATTN_BACKWARD && is_q) {
        clear(&p->dq, b, row, end, 0);
    } else if (p->direction == ATTN_BACKWARD) {
        clear(&p->dk, b, row, end, 0);
        clear(&p->dv, b, row, end, 0);
    }
}

static void clear_side(const attn__problem *p, int is_q) {
    const int packed = is_q ? p->q_packed : p->k_packed;
    const int64_t T = is_q ? p->TQ : p->TK;
    int64_t done = 0; /* packed: every row before it is used or cleared */
    for (int64_t b = 0; b < p->B; b++) {
        const attn__seq s = attn__sequence(p, b);
        const int64_t row = is_q ? s.q_row : s.k_row, end = row + (is_q ? s.nq : s.nk);
        if (packed) {
            clear_rows(p, is_q, 0, done, row);
            done = end > done ? end : done;
        } else {
            clear_rows(p, is_q, b, end, T);
        }
    }
    if (packed) {
        clear_rows(p, is_q, 0, done, T);
    }
}

/* A parameter's gradient is one element. */
static void clear_grad(const attn__bound *t, int rank) {
    int64_t n[ATTN__MAX_RANK] = {1, 1, 1, 1}, st[ATTN__MAX_RANK] = {0};
    for (int i = 0; i < rank; i++) {
        n[i] = t->n[i];
        st[i] = t->gst[i];
    }
    for (int64_t a = 0; t->grad && a < n[0]; a++) {
        for (int64_t b = 0; b < n[1]; b++) {
            for (int64_t c = 0; c < n[2]; c++) {
                for (int64_t d = 0; d < n[3]; d++) {
                    t->grad[a * st[0] + b * st[1] + c * st[2] + d * st[3]] = 0;
                }
            }
        }
    }
}

void attn__clear_unused(const attn__problem *p) {
    clear_side(p, 1);
    if (p->direction == ATTN_BACKWARD) {
        clear_side(p, 0);
        clear(&p->dsink, 0, 0, 1, 0);
        const attn_graph *const g = &p->variant->graph;
        for (int i = 0; i < g->n_symbols; i++) {
            clear_grad(&p->bound[i], g->symbol[i].rank);
        }
    }
}
