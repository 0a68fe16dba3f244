/* gpu_params.c: a run's attn_params, and the partial results that split keys need.

   Who calls it: gpu_fwd.c, gpu_bwd.c. Tensors become address and strides in bytes; a stride is 0
   where the extent is 1, so that a kernel may index with any number there.

       workspace   | o [split][B][H][NQ][DV] f32 | lse [split][B][H][NQ] f32 |            */
#include "gpu_params.h"

#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(attn_params) <= 4096, "what a launch carries");

attn_rows attn__param_rows(const attn__view *t) {
    attn_rows r = {.data = (u64)(uintptr_t)t->data};
    if (t->type && t->data) {
        r.b = t->n[0] > 1 ? t->st[0] * t->bytes : 0;
        r.h = t->n[1] > 1 ? t->st[1] * t->bytes : 0;
        r.n = t->n[2] > 1 ? t->st[2] * t->bytes : 0;
    }
    return r;
}

int attn__is_vector(const attn__view *t) {
    const attn_rows r = attn__param_rows(t);
    return ((r.data | (u64)r.b | (u64)r.h | (u64)r.n | (u64)(t->n[3] * t->bytes)) & 15) == 0;
}

i32 attn__type_number(int type) {
    return type == ATTN_F16 ? 1 : type == ATTN_BF16 ? 2 : 3;
}

static void fill_tensors(attn_params *a, const attn__problem *p) {
    a->q = attn__param_rows(&p->q);
    a->k = attn__param_rows(&p->k);
    a->v = attn__param_rows(&p->v);
    a->o = attn__param_rows(&p->o);
    a->lse = attn__param_rows(&p->lse);
    a->q_scale = attn__param_rows(&p->q_scale);
    a->k_scale = attn__param_rows(&p->k_scale);
    a->v_scale = attn__param_rows(&p->v_scale);
    a->counts = attn__param_rows(&p->block_counts);
    a->indices = attn__param_rows(&p->block_indices);
    a->sink = attn__param_rows(&p->sink).data;
    a->sink_h = attn__param_rows(&p->sink).h;
    a->o_type = attn__type_number(p->o.type);
    a->block_m = (i32)p->block_m;
    a->block_n = (i32)p->block_n;
    a->block_most = (i32)p->block_most;
    a->flags = (p->flags & ATTN_TOP_LEFT ? ATTN_P_TOP_LEFT : 0) |
               (attn__is_vector(&p->q) ? ATTN_P_VEC_Q : 0) |
               (attn__is_vector(&p->k) ? ATTN_P_VEC_K : 0) |
               (attn__is_vector(&p->v) ? ATTN_P_VEC_V : 0) |
               (attn__is_vector(&p->o) ? ATTN_P_VEC_O : 0);
}

static i32 most(int64_t n, int64_t rows, int64_t all, int64_t origin) {
    n = n < rows ? n : rows;
    return (i32)(all && all - origin < n ? all - origin : n);
}

static void fill_lengths(attn_params *a, const attn__problem *p) {
    a->q_offsets = (u64)(uintptr_t)p->q_offsets;
    a->k_offsets = (u64)(uintptr_t)p->k_offsets;
    a->q_used = (u64)(uintptr_t)p->q_used;
    a->k_used = (u64)(uintptr_t)p->k_used;
    a->q_offsets_n = p->q_offsets_st * (i64)sizeof(int32_t);
    a->k_offsets_n = p->k_offsets_st * (i64)sizeof(int32_t);
    a->q_used_n = p->q_used_st * (i64)sizeof(int32_t);
    a->k_used_n = p->k_used_st * (i64)sizeof(int32_t);
    a->TQ = p->TQ;
    a->TK = p->TK;
    a->i0 = p->i0;
    a->k0 = p->k0;
    a->nq_all = p->nq_all;
    a->nk_all = p->nk_all;
    a->q_most = most(p->NQ, p->TQ, p->nq_all, p->i0);
    a->k_most = most(p->NK, p->TK, p->nk_all, p->k0);
}

static void fill_numbers(attn_params *a, const attn__problem *p) {
    const i32 group = (i32)(p->H / p->HK);
    a->B = (i32)p->B;
    a->H = (i32)p->H;
    a->HK = (i32)p->HK;
    a->NQ = (i32)p->NQ;
    a->NK = (i32)p->NK;
    a->D = (i32)p->D;
    a->DV = (i32)p->DV;
    a->group = group;
    a->q_scale_group = p->q_scale_heads == p->H ? 1 : group;
    a->k_scale_group = p->k_scale_heads == p->H ? 1 : group;
    a->v_scale_group = p->v_scale_heads == p->H ? 1 : group;
    a->b0 = (i32)p->b0;
    a->h0 = (i32)p->h0;
    a->nh = (i32)p->nh;
    a->hk = (i32)p->hk;
    a->batch = (i32)p->batch;
    a->scale = (float)p->scale;
    a->factor = (float)((double)a->scale * 1.4426950408889634);
    a->seed = p->seed;
    a->seed_at = (u64)(uintptr_t)p->seed_at;
    a->drop_threshold = p->drop_threshold;
    a->drop_offset = p->offset;
    a->drop_factor = p->drop_factor;
}

static void fill_grid(attn_params *a, const attn__problem *p, const attn__grid *grid, char *part) {
    const int64_t rows = p->B * p->H * p->NQ;
    a->pack = grid->pack;
    a->q_tiles = (i32)attn__ceil_div(p->NQ * grid->pack, grid->tile.bm);
    a->splits = grid->splits;
    a->split_keys = grid->split_keys;
    a->items = p->B * (p->H / grid->pack) * a->q_tiles * grid->splits;
    a->xcds = grid->xcds;
    a->near = grid->near ? grid->near : 1;
    a->counter = grid->counter ? (u64)(uintptr_t)part : 0;
    part += grid->counter;
    if (grid->splits > 1) {
        a->part_o = (u64)(uintptr_t)part;
        a->part_lse = a->part_o + (u64)(grid->splits * rows * p->DV) * sizeof(float);
    }
}

/* Axes: columns, heads, rows, batch entries. What stands still has no axis; packed rows are heads
   of a row one after the other, then the next row. */
static int fill_map(tensor_map *map, const attn_device *device, const attn__view *t,
                    const attn_rows *r, int pack, int rows) {
    attn__boxes box = {.type = t->type, .data = t->data};
    const int64_t n[4] = {t->n[3], r->h ? t->n[1] : 1, t->n[2], r->b ? t->n[0] : 1};
    const int64_t st[3] = {r->h, r->n, r->b};
    const int32_t size[4] = {64, pack, rows / pack, 1};
    uint64_t word[16];
    memcpy(box.n, n, sizeof n);
    memcpy(box.st, st, sizeof st);
    memcpy(box.box, size, sizeof size);
    if (rows % pack || (pack > 1 && !r->h) || (t->n[2] > 1 && !r->n) || !device->driver->describe ||
        !device->driver->describe(device->chip, &box, word)) {
        return 0;
    }
    memcpy(map->w, word, sizeof word);
    return 1;
}

enum { WARP_ROWS = 16 }; /* that a warp stores at once */

void attn__params_maps(attn_params *a, const attn_device *device, const attn__problem *p,
                       const attn__grid *grid) {
    const attn__tile_size *const tile = &grid->tile;
    const int last_full = attn__has_mask(p->variant) && !(p->flags & ATTN_BATCH_INVARIANT);
    a->flags |= last_full ? ATTN_P_LAST_FULL : 0;
    a->flags |= fill_map(&a->map[0], device, &p->q, &a->q, grid->pack, tile->bm) ? ATTN_P_MAP_Q : 0;
    a->flags |= fill_map(&a->map[1], device, &p->k, &a->k, 1, tile->bn) ? ATTN_P_MAP_K : 0;
    a->flags |= fill_map(&a->map[2], device, &p->v, &a->v, 1, tile->bn) ? ATTN_P_MAP_V : 0;
    if (grid->splits == 1 && grid->pack == 1 && p->o.type == p->q.type) {
        a->flags |= fill_map(&a->map[3], device, &p->o, &a->o, 1, WARP_ROWS) ? ATTN_P_MAP_O : 0;
    }
}

void attn__words_fill(const attn_graph *g, const attn__bound *bound, i64 *word) {
    const i64 most = (i64)INT32_MAX + 1; /* which no index passes */
    for (int i = 0; i < g->n_symbols; i++) {
        const attn__bound *const b = &bound[i];
        attn__val32 bits = {.i = b->i};
        if (g->symbol[i].rank == 0) {
            if (g->symbol[i].type == VT_F32) {
                bits.f = b->f;
            }
            *word++ = (i64)(u32)bits.i;
            continue;
        }
        *word++ = (i64)(uintptr_t)b->data;
        for (int axis = 0; axis < g->symbol[i].rank; axis++) {
            *word++ = b->n[axis] < most ? b->n[axis] : most;
            *word++ = b->st[axis] * attn__type_bytes(b->type);
        }
        *word++ = 0; /* its table: gpu_spans.c */
    }
}

size_t attn__params_fill(attn_params *params, const attn__problem *p, const attn__grid *grid,
                         char *part) {
    int32_t begin[ATTN__MAX_SYMBOLS];
    const int words = attn__variant_words(&p->variant->graph, begin);
    const size_t bytes =
        offsetof(attn_params, word) + (size_t)(words ? words : 1) * sizeof params->word[0];
    memset(params, 0, bytes);
    fill_tensors(params, p);
    fill_lengths(params, p);
    fill_numbers(params, p);
    fill_grid(params, p, grid, part);
    attn__words_fill(&p->variant->graph, p->bound, params->word);
    return bytes;
}

uint64_t attn__part_bytes(const attn__problem *p, const attn__grid *grid) {
    const uint64_t rows = (uint64_t)(p->B * p->H * p->NQ);
    return (uint64_t)grid->counter +
           (grid->splits > 1 ? (uint64_t)grid->splits * rows * (uint64_t)(p->DV + 1) * sizeof(float)
                             : 0);
}
