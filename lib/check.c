/* check.c: ATTN_CHECK=1: what lies in memory is validated instead of clamped.

   Who calls it: problem.c at a run. Memory that is not the host's is waited for and copied. Without
   it a bad number gives wrong rows, never an access outside: attn__sequence clamps lengths, engines
   pass over blocks that are not there, and a load clamps an i32 to its declared bounds. */
#include "expr.h"
#include "gpu.h"
#include "stage.h"

#include <stdio.h>
#include <string.h>

/* One side: offsets rise within 0..T, no sequence is longer than N, none uses more than it has. */
static int check_side(const attn__problem *p, int is_q) {
    const int32_t *const offsets = is_q ? p->q_offsets : p->k_offsets;
    const int32_t *const used = is_q ? p->q_used : p->k_used;
    const int64_t o_st = is_q ? p->q_offsets_st : p->k_offsets_st;
    const int64_t u_st = is_q ? p->q_used_st : p->k_used_st;
    const int64_t T = is_q ? p->TQ : p->TK, N = is_q ? p->NQ : p->NK;
    const int64_t all = is_q ? p->nq_all : p->nk_all, origin = is_q ? p->i0 : p->k0;
    const char *const o_name = is_q ? "q_offsets" : "k_offsets";
    const char *const u_name = is_q ? "q_used" : "k_used";
    for (int64_t b = 0; b < p->B; b++) {
        const int64_t begin = offsets ? offsets[b * o_st] : 0;
        const int64_t end = offsets ? offsets[(b + 1) * o_st] : T;
        const int64_t most = all && all - origin < N ? all - origin : N;
        if (begin < 0 || end < begin || end > T) {
            return attn__fail(
                ATTN_INVALID, o_name,
                "%s has %lld and %lld at %lld; rising numbers from 0 to %lld are allowed", o_name,
                (long long)begin, (long long)end, (long long)b, (long long)T);
        }
        const int64_t n = used ? used[b * u_st] : end - begin;
        if (n < 0 || n > end - begin || n > most) {
            const int64_t room = end - begin < most ? end - begin : most;
            return attn__fail(ATTN_INVALID, used ? u_name : o_name,
                              "sequence %lld has %lld rows by %s; 0 to %lld is allowed",
                              (long long)b, (long long)n, used ? u_name : o_name, (long long)room);
        }
    }
    return ATTN_OK;
}

/* Element [b][h][block] of a block list's tensor, whose first two extents may be 1. */
static const char *listed(const attn__view *t, int64_t b, int64_t h, int64_t block) {
    return attn__at(t, t->n[0] == 1 ? 0 : b, t->n[1] == 1 ? 0 : h, block);
}

/* The indices that the count of one query block takes name blocks of keys. */
static int check_list(const attn__problem *p, int64_t b, int64_t h, int64_t block) {
    const attn__view *const x = &p->block_indices;
    const int64_t key_blocks = (p->NK + p->block_n - 1) / p->block_n;
    const double count = attn__get(listed(&p->block_counts, b, h, block), ATTN_I32);
    if (count < 0 || count > (double)p->block_most) {
        return attn__fail(ATTN_INVALID, "blocks.counts",
                          "blocks.counts has %.0f at [%lld][%lld][%lld]; 0 to %lld is allowed",
                          count, (long long)b, (long long)h, (long long)block,
                          (long long)p->block_most);
    }
    for (int64_t i = 0; i < (int64_t)count; i++) {
        const double key = attn__get(listed(x, b, h, block) + i * x->bytes, ATTN_I32);
        if (key < 0 || key >= (double)key_blocks) {
            return attn__fail(ATTN_INVALID, "blocks.indices",
                              "blocks.indices has %.0f at [%lld][%lld][%lld][%lld]; there are %lld "
                              "blocks of keys",
                              key, (long long)b, (long long)h, (long long)block, (long long)i,
                              (long long)key_blocks);
        }
    }
    return ATTN_OK;
}

static int check_blocks(const attn__problem *p) {
    const int64_t *const c = p->block_counts.n, *const x = p->block_indices.n;
    for (int64_t b = 0; b < (c[0] > x[0] ? c[0] : x[0]); b++) {
        for (int64_t h = 0; h < (c[1] > x[1] ? c[1] : x[1]); h++) {
            for (int64_t block = 0; block < c[2]; block++) {
                ATTN_TRY(check_list(p, b, h, block));
            }
        }
    }
    return ATTN_OK;
}

/* Every element of an i32 tensor against its declared bounds. */
static int check_bounds(const attn__symbol *symbol, const attn__bound *t) {
    int64_t count = 1;
    for (int i = 0; i < symbol->rank; i++) {
        count *= t->n[i];
    }
    for (int64_t e = 0; e < count; e++) {
        int64_t at = 0, left = e;
        for (int i = symbol->rank - 1; i >= 0; i--) {
            at += left % t->n[i] * t->st[i];
            left /= t->n[i];
        }
        const double x = attn__get(t->data + at * attn__type_bytes(t->type), t->type);
        if (x < symbol->lo || x > symbol->hi) {
            char arg[ATTN__NAME + 16];
            snprintf(arg, sizeof arg, "captures.%s", symbol->name);
            return attn__fail(ATTN_INVALID, arg,
                              "%s has %.0f as element %lld; %d to %d was declared", arg, x,
                              (long long)e, symbol->lo, symbol->hi);
        }
    }
    return ATTN_OK;
}

static int check_near(const attn__problem *p) {
    const attn_graph *const g = &p->variant->graph;
    ATTN_TRY(check_side(p, 1));
    ATTN_TRY(check_side(p, 0));
    ATTN_TRY(check_blocks(p));
    for (int i = 0; i < g->n_symbols; i++) {
        if (g->symbol[i].bounded && g->symbol[i].rank) {
            ATTN_TRY(check_bounds(&g->symbol[i], &p->bound[i]));
        }
    }
    return ATTN_OK;
}

/* -- Copies of what a device has --------------------------------------------------------------- */

enum { HOST = 1, MOST_COPIES = 6 + ATTN__MAX_SYMBOLS };
typedef struct copies {
    attn_device *device;
    attn__near near[MOST_COPIES];
    int n;
} copies;

/* A copy of a tensor in the device's memory; its strides come into st. NULL stays NULL. */
static int bring(copies *c, int type, int rank, const int64_t *n, int64_t *st, const void *data,
                 const char **to) {
    attn_tensor t = {.data = (void *)(uintptr_t)data,
                     .device = {c->device->kind, c->device->index},
                     .ndim = rank,
                     .dtype = {(uint8_t)(type & 255), (uint8_t)(type >> 8), 1},
                     .shape = (int64_t *)(uintptr_t)n,
                     .strides = st};
    attn__near *const near = &c->near[c->n];
    if (!data) {
        return ATTN_OK;
    }
    ATTN_TRY(attn__stage_in(c->device, &t, 1, NULL, near));
    c->n++;
    *to = near->own.t.data;
    for (int i = 0; i < rank; i++) {
        st[i] = near->own.strides[i];
    }
    return ATTN_OK;
}

static int bring_ints(copies *c, int64_t n, int64_t *st, const int32_t **data) {
    const char *to = NULL;
    ATTN_TRY(bring(c, ATTN_I32, 1, &n, st, *data, &to));
    *data = (const int32_t *)(const void *)to;
    return ATTN_OK;
}

static int bring_view(copies *c, attn__view *v) {
    const char *to = NULL;
    ATTN_TRY(bring(c, v->type, 4, v->n, v->st, v->data, &to));
    v->data = (char *)(uintptr_t)to;
    return ATTN_OK;
}

static int bring_all(copies *c, attn__problem *p) {
    const attn_graph *const g = &p->variant->graph;
    ATTN_TRY(c->device->driver->wait(c->device->chip));
    ATTN_TRY(bring_ints(c, p->B + 1, &p->q_offsets_st, &p->q_offsets));
    ATTN_TRY(bring_ints(c, p->B + 1, &p->k_offsets_st, &p->k_offsets));
    ATTN_TRY(bring_ints(c, p->B, &p->q_used_st, &p->q_used));
    ATTN_TRY(bring_ints(c, p->B, &p->k_used_st, &p->k_used));
    ATTN_TRY(bring_view(c, &p->block_counts));
    ATTN_TRY(bring_view(c, &p->block_indices));
    for (int i = 0; i < g->n_symbols; i++) {
        attn__bound *const b = &p->bound[i];
        if (g->symbol[i].bounded && g->symbol[i].rank) {
            ATTN_TRY(bring(c, b->type, g->symbol[i].rank, b->n, b->st, b->data, &b->data));
        }
    }
    return ATTN_OK;
}

int attn__check_memory(const attn_device *device, const attn__problem *p) {
    attn__problem near = *p;
    attn__bound bound[ATTN__MAX_SYMBOLS];
    copies c = {.device = (attn_device *)(uintptr_t)device};
    if (device->kind == HOST) {
        return check_near(p);
    }
    memcpy(bound, p->bound, (size_t)p->variant->graph.n_symbols * sizeof *bound);
    near.bound = bound;
    int status = bring_all(&c, &near);
    status = status < 0 ? status : check_near(&near);
    while (c.n > 0) {
        attn__stage_drop(&c.near[--c.n]);
    }
    return status;
}
