/* cpu_score.c: a tile's scores and which of its pairs are visible, the same for every pass.

   Who calls it: cpu_fwd, cpu_bwd and cpu_walk. Forward and both passes of backward take a row of
   dot products through attn__tile_row, so they see the same bits:

       x.s  q . k_j --- row_scale, key_scale ---> s --- the variant's program ---> score, ds, mask
                                                  |                                         |
                                 -inf: masked ----+---------- block lists ------------------+--> on

   A pair's visibility is an exact flag, never a large negative number. */
#include "cpu.h"

#include <math.h>
#include <string.h>

/* -- Scratch ----------------------------------------------------------------------------------- */

typedef struct layer {
    char *base; /* NULL: only count */
    size_t at;
} layer;

static void *take(layer *l, size_t bytes) {
    void *const p = l->base ? l->base + l->at : NULL;
    l->at += (bytes + 63) / 64 * 64;
    return p;
}

static float *floats(layer *l, int64_t n) {
    return (float *)take(l, (size_t)n * sizeof(float));
}

void attn__scratch_lay(const attn__cpu_plan *plan, const attn__problem *p, char *base,
                       attn__scratch *x, size_t *bytes) {
    const int64_t ldd = plan->ldd, ldv = plan->ldv;
    const int backward = p->direction == ATTN_BACKWARD;
    const int64_t rows = backward ? BM : plan->wide * BM;
    layer l = {base, 0};
    memset(x, 0, sizeof *x);
    for (int i = 0; i < PROGRAMS; i++) {
        x->vm[i] = take(&l, plan->vm_bytes[i]);
    }
    x->out = (const void **)take(&l, (size_t)plan->queries[PROGRAM_PART].n * sizeof *x->out);
    x->strip = floats(&l, LANES * (ldd > ldv ? ldd : ldv));
    x->q = floats(&l, rows * ldd);
    x->kt = floats(&l, ldd * BN);
    x->v = floats(&l, BN * ldv);
    x->s = floats(&l, BM * LDS);
    x->block = (int32_t *)take(&l, p->block_m ? BM * BN * sizeof *x->block : 0);
    if (backward) {
        x->o = floats(&l, BM * ldv);
        x->q_panels = floats(&l, BM * ldd);
        x->o_panels = floats(&l, BM * ldv);
        x->vt = floats(&l, ldv * BN);
        x->k = floats(&l, BN * ldd);
        x->kb = floats(&l, BN * ldd);
        x->dq = floats(&l, BM * ldd);
        x->g = floats(&l, plan->pairs_grad ? BM * BN / 2 : 0);
        x->dp = floats(&l, BM * LDS);
        x->q_pairs = plan->pairs ? floats(&l, BM * ldd / 2) : x->q;
        x->dout_pairs = plan->pairs_grad ? floats(&l, BM * ldv / 2) : x->o;
    } else {
        x->part = (attn__part *)take(&l, (size_t)plan->parts * sizeof *x->part);
        for (int i = 0; i < 2; i++) {
            x->state[i] = (attn__state){floats(&l, rows * ldv), floats(&l, rows), floats(&l, rows)};
        }
        x->row_scale = floats(&l, rows);
        x->wild = floats(&l, rows * ldv);
        x->sum = floats(&l, BM * ldv);
        x->q_columns = floats(&l, plan->pairs ? 2 * LANES * ldd / 2 : 0);
        if (plan->split) {
            x->q_split = floats(&l, rows * 3 * ldd / 2);
            x->kt_split = floats(&l, 3 * BN * ldd / 2);
            x->v_split = floats(&l, 3 * BN * ldv / 2);
            x->p_split = floats(&l, BM * 3 * BN / 2);
        }
    }
    *bytes = l.at;
}

/* -- The tile, from the outside in ------------------------------------------------------------- */

void attn__tile_open(attn__tile *t, const attn__cpu_run *run, const attn__program *program,
                     int thread, int64_t b) {
    size_t bytes;
    t->run = run;
    t->program = program;
    t->b = b;
    t->h = -1;
    t->row_scale = t->own_scale;
    t->bounded = 0;
    t->down = 1;
    t->ahead.rows = 0;
    t->seq = attn__sequence(run->p, b);
    attn__scratch_lay(run->plan, run->p, run->threads + (size_t)thread * run->plan->thread_bytes,
                      &t->x, &bytes);
    t->s = t->x.s;
    t->form = run->plan->pairs ? FORM_PAIRS : FORM_F32;
    t->tame = 0;
    if ((run->plan->pairs || run->plan->split) && run->plan->ops->begin) {
        run->plan->ops->begin();
    }
}

void attn__tile_close(const attn__tile *t) {
    if ((t->run->plan->pairs || t->run->plan->split) && t->run->plan->ops->end) {
        t->run->plan->ops->end();
    }
}

void attn__tile_head(attn__tile *t, int64_t h) {
    const attn__problem *const p = t->run->p;
    attn__env env;
    memset(&env, 0, sizeof env);
    env.leaf[LEAF_b] = t->seq.b;
    env.leaf[LEAF_h] = (int32_t)(p->h0 + h);
    env.leaf[LEAF_nq] = t->seq.nq_all;
    env.leaf[LEAF_nk] = t->seq.nk_all;
    env.leaf[LEAF_nh] = (int32_t)p->nh;
    env.leaf[LEAF_hk] = (int32_t)p->hk;
    env.leaf[LEAF_batch] = (int32_t)p->batch;
    for (int i = 0; i < PROGRAMS; i++) {
        if (t->program[i].vm) {
            attn__vm_begin(t->program[i].vm, t->x.vm[i], &env, p->bound);
        }
        t->columns[i] = 0;
    }
    t->h = h;
    t->hk = h / (p->H / p->HK);
}

void attn__tile_rows(attn__tile *t, int r0, int rows) {
    const attn__problem *const p = t->run->p;
    t->r0 = r0;
    t->rows = rows;
    for (int i = 0; i < rows; i++) {
        t->row_scale[i] =
            (float)p->scale * attn__scale_at(&p->q_scale, p->q_scale_heads, p, t->b, t->h, r0 + i);
    }
}

void attn__tile_keys(attn__tile *t, int c0, int n) {
    const attn__problem *const p = t->run->p;
    t->c0 = c0;
    t->n = n;
    t->has_key_scale = p->k_scale.type != 0;
    t->has_value_scale = p->v_scale.type != 0;
    for (int j = 0; j < n && t->has_key_scale; j++) {
        t->key_scale[j] = attn__scale_at(&p->k_scale, p->k_scale_heads, p, t->b, t->h, c0 + j);
    }
    for (int j = 0; j < n && t->has_value_scale; j++) {
        t->value_scale[j] = attn__scale_at(&p->v_scale, p->v_scale_heads, p, t->b, t->h, c0 + j);
    }
    for (int j = n; j < attn__round_lanes(n); j++) {
        t->key_scale[j] = t->value_scale[j] = 0;
    }
    t->columns[PROGRAM_FULL] = t->columns[PROGRAM_PART] = 0;
}

/* Marks the tile's columns that row `block` of the block lists names; 1 if there are any. */
static int block_row(const attn__tile *t, int64_t block, int32_t *mark) {
    const attn__problem *const p = t->run->p;
    const attn__view *const c = &p->block_counts, *const x = &p->block_indices;
    const int64_t b = c->n[0] == 1 ? 0 : t->b, h = c->n[1] == 1 ? 0 : t->h;
    const char *const at = attn__at(x, x->n[0] == 1 ? 0 : t->b, x->n[1] == 1 ? 0 : t->h, block);
    int32_t count, index;
    int any = 0;
    memcpy(&count, attn__at(c, b, h, block), sizeof count);
    memset(mark, 0, (size_t)attn__round_lanes(t->n) * sizeof *mark);
    for (int64_t i = 0; i < count && i < p->block_most; i++) {
        memcpy(&index, at + i * x->st[3] * x->bytes, sizeof index);
        const int64_t begin = index * p->block_n - t->c0, end = begin + p->block_n;
        for (int64_t j = begin > 0 ? begin : 0; j < end && j < t->n; j++) {
            mark[j] = 1;
            any = 1;
        }
    }
    return any;
}

/* The tile's columns that the limits leave to its rows. A strip's begin at a multiple of the terms
   that a product takes together. */
static void bound_rows(attn__tile *t) {
    const int step = t->run->plan->pairs || t->run->plan->split ? 2 * LANES : LANES;
    int64_t begins[BM], ends[BM];
    attn__limits_rows(t, t->r0, t->rows, begins, ends);
    for (int i = 0; i < t->rows; i++) {
        const int64_t begin = begins[i] - t->c0 > 0 ? begins[i] - t->c0 : 0;
        const int64_t end = ends[i] - t->c0 < t->n ? ends[i] - t->c0 : t->n;
        t->first[i] = (uint8_t)(begin < end ? begin : 0);
        t->last[i] = (uint8_t)(begin < end ? end : 0);
        uint8_t *const first = &t->group_first[i / LANES], *const last = &t->group_last[i / LANES];
        if (i % LANES == 0) {
            *first = BN;
            *last = 0;
        }
        if (begin < end) {
            *first = *first < begin ? *first : (uint8_t)(begin / step * step);
            *last = *last > end ? *last : (uint8_t)attn__round_lanes(end);
        }
    }
}

void attn__clear_outside(const attn__tile *t, void *x, int from, int to) {
    const int lanes = attn__round_lanes(t->n);
    memset(x, 0, (size_t)from * sizeof(float));
    memset((float *)x + to, 0, (size_t)(lanes - to) * sizeof(float));
}

int attn__tile_pairs(attn__tile *t, int class_) {
    const attn__problem *const p = t->run->p;
    t->which = class_ == CLASS_FULL ? PROGRAM_FULL : PROGRAM_PART;
    t->bounded = class_ == CLASS_PART && t->run->plan->limits.n > 0;
    if (t->bounded) {
        bound_rows(t);
    }
    t->block_rows = 0;
    if (p->block_m) {
        const int64_t first = t->r0 / p->block_m, last = (t->r0 + t->rows - 1) / p->block_m;
        int any = 0;
        for (int64_t block = first; block <= last; block++) {
            any |= block_row(t, block, t->x.block + (block - first) * BN);
        }
        if (!any) {
            return 0;
        }
        t->block_rows = (int)(last - first + 1);
    }
    const attn__vm *const vm = t->program[t->which].vm;
    void *const scratch = t->x.vm[t->which];
    if (vm && !t->columns[t->which]) {
        attn__vm_columns(vm, scratch, t->seq.k0 + t->c0, t->n);
        t->columns[t->which] = 1;
    }
    if (vm) {
        attn__vm_rows(vm, scratch, t->seq.i0 + t->r0, t->seq.q0 + t->r0, t->rows);
    }
    return 1;
}

void attn__tile_row(attn__tile *t, int i) {
    const attn__problem *const p = t->run->p;
    const attn__tile_ops *const ops = t->run->plan->ops;
    const attn__program *const program = &t->program[t->which];
    const int row = t->r0 + i, lanes = attn__round_lanes(t->n);
    float *const s = t->s + i * LDS;
    const void **const out = t->x.out;
    int wild = 1; /* some s may be -inf, which masks */
    t->begin = t->bounded ? t->first[i] : 0;
    t->end = t->bounded ? t->last[i] : t->n;
    t->by = t->row_scale[i];
    t->on = NULL;
    if (t->begin == t->end) {
        return;
    }
    if (t->has_key_scale) {
        ops->scale(s, t->key_scale, t->by, lanes);
        t->by = 1;
    }
    if (program->vm) {
        wild = attn__vm_row(program->vm, t->x.vm[t->which], i, s, t->by, t->begin, t->end, out) ||
               !program->reads_s;
    }
    t->score = program->score >= 0 ? (const float *)out[program->score] : s;
    t->ds = program->ds >= 0 ? (const float *)out[program->ds] : NULL;
    const int32_t *const mask = program->mask >= 0 ? (const int32_t *)out[program->mask] : NULL;
    const int32_t *const block =
        t->block_rows ? t->x.block + (row / p->block_m - t->r0 / p->block_m) * BN : NULL;
    const int other = t->score != s;
    t->on = mask;
    if (other && wild && t->by != 1) {
        ops->scale(s, NULL, t->by, lanes);
    }
    if (block || (other && wild)) {
        ops->visible(t->on_buffer, mask, block, other && wild ? s : NULL, lanes);
        t->on = t->on_buffer;
    }
    if (other) {
        t->by = 1;
    }
}

const float *attn__tile_weights(attn__tile *t, int i) {
    const attn__problem *const p = t->run->p;
    const int lanes = attn__round_lanes(t->n);
    if (!p->drop_threshold) {
        return t->has_value_scale ? t->value_scale : NULL;
    }
    uint8_t keep[BN] = {0};
    attn__dropout_row(p, (uint32_t)(t->seq.b * p->nh + p->h0 + t->h),
                      (uint32_t)(t->seq.i0 + t->r0 + i), (int64_t)t->seq.k0 + t->c0, t->n, keep);
    for (int j = 0; j < lanes; j++) {
        t->w[j] = keep[j] ? p->drop_factor * (t->has_value_scale ? t->value_scale[j] : 1) : 0;
    }
    return t->w;
}

void attn__tile_box(const attn__tile *t, int r0, int rows, attn__box *box) {
    const attn__problem *const p = t->run->p;
    const attn__seq *const seq = &t->seq;
    const struct {
        int leaf;
        int64_t value;
    } points[] = {{LEAF_b, seq->b},      {LEAF_h, p->h0 + t->h}, {LEAF_nq, seq->nq_all},
                  {LEAF_nh, p->nh},      {LEAF_hk, p->hk},       {LEAF_nk, seq->nk_all},
                  {LEAF_batch, p->batch}};
    attn__box_init(box, p->bound);
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        attn__box_set(box, points[i].leaf, (double)points[i].value, (double)points[i].value);
    }
    const double q = (double)seq->q0 + r0, i = (double)seq->i0 + r0;
    attn__box_set(box, LEAF_q, q, q + rows - 1);
    attn__box_set(box, LEAF_i, i, i + rows - 1);
}
