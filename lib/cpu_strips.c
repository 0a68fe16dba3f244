/* cpu_strips.c: forward of whole tiles where tile registers multiply beside the other work.

   Who calls it: cpu_fwd.c. A strip of rows goes through softmax while the strip after it is
   multiplied by k and the one before it by v:

       q k     strip 1 | strip 2 | strip 3 | ...         parts follow one another; the first strip
       softmax           strip 1 | strip 2 | strip 3     of a part whose columns are not known yet
       p v                         strip 1 | strip 2     waits for no softmax

   The steps of a product are spread over the rows of a softmax, whose instructions a processor
   takes up while registers multiply. An element's terms and their order are those of any tile. */
#include "cpu_fwd.h"

#include <math.h>

enum { STRIP = 32, REGISTER_ROW = 64 /* bytes */ };

/* -- What is split ----------------------------------------------------------------------------- */

/* A scale above 2^60 would make scores of what products lost. */
void attn__split_rows(const attn__tile *t, attn__part *r) {
    const attn__tile_ops *const ops = t->run->plan->ops;
    const int ldd = t->run->plan->ldd, row = 3 * ldd / 2;
    r->tame = r->rows == BM;
    for (int i = 0; i < r->rows && r->tame; i++) {
        r->tame = ops->split_row(r->q_split + i * row, ldd / 2, r->q + i * ldd, ldd) &&
                  fabsf(r->row_scale[i]) < 0x1p60f;
    }
}

/* LANES keys are transposed, in x.kt, and split while they are in the first cache. */
static int split_k(attn__tile *t) {
    const attn__cpu_plan *const plan = t->run->plan;
    const int64_t panel = plan->ldd / 2 * LANES;
    int tame = 1;
    for (int j = 0; j < BN && tame; j += LANES) {
        attn__load_columns(t, t->x.kt, &t->run->p->k, t->seq.kb, t->hk, t->seq.k_row + t->c0 + j,
                           LANES, 0);
        tame = plan->ops->split_pairs(t->x.kt_split + j / LANES * panel, BN / LANES * panel, LANES,
                                      t->x.kt, t->x.kt + LANES, 2 * LANES, plan->ldd / 2);
    }
    return tame;
}

/* From where it lies, or by way of the strip. */
static int split_v(attn__tile *t) {
    const attn__cpu_plan *const plan = t->run->plan;
    const attn__view *const v = &t->run->p->v;
    const int ldv = plan->ldv;
    int tame = 1;
    for (int j = 0; j < BN && tame; j += 2) {
        const int64_t row = t->seq.k_row + t->c0 + j;
        const float *a = (const float *)attn__direct(v, t->seq.kb, t->hk, row, ATTN_F32, LANES);
        const float *b = a ? (const float *)attn__at(v, t->seq.kb, t->hk, row + 1) : NULL;
        if (!a) {
            attn__load_rows(t->x.strip, v, t->seq.kb, t->hk, row, 2);
            a = t->x.strip;
            b = a + ldv;
        }
        tame = plan->ops->split_pairs(t->x.v_split + j / 2 * LANES, BN / 2 * ldv, BN / 2 * LANES, a,
                                      b, LANES, ldv / LANES);
    }
    return tame;
}

void attn__split_keys(attn__tile *t) {
    t->tame = t->run->plan->split && t->n == BN && split_k(t) && split_v(t);
}

/* -- Products ---------------------------------------------------------------------------------- */

/* Only what fills whole registers. */
int attn__has_strips(const attn__tile *t, const attn__part *r) {
    const attn__cpu_plan *const plan = t->run->plan;
    return plan->ops->go_on && r->rows == BM && t->n == BN && t->run->p->D % (2 * LANES) == 0 &&
           (plan->pairs || (t->tame && r->tame));
}

/* The columns that rows i .. i + STRIP of the tile may see. */
static void strip_columns(const attn__tile *t, int i, int *from, int *end) {
    *from = 0;
    *end = t->n;
    if (t->bounded) {
        const uint8_t *const first = t->group_first + i / LANES;
        const uint8_t *const last = t->group_last + i / LANES;
        *from = first[0] < first[1] ? first[0] : first[1];
        *end = last[0] > last[1] ? last[0] : last[1];
    }
}

static void add_product(attn__queue *queue, attn__product x) {
    queue->steps += (x.strips + 1) / 2 * ((x.panels + 1) / 2) * x.blocks;
    queue->product[queue->n++] = x;
}

/* Adds the strip's products with columns from..end of k. */
static void add_dots(attn__queue *queue, const attn__tile *t, const attn__part *r, int i, int from,
                     int end) {
    const int split = t->run->plan->split;
    const int64_t part = t->run->plan->ldd * 2, row = split ? 3 * part : part;
    const char *const q = (const char *)(split ? r->q_split : r->q);
    const char *const k = (const char *)(split ? t->x.kt_split : t->x.kt);
    if (from < end) {
        add_product(queue, (attn__product){.c = (char *)(t->x.s + i * LDS + from),
                                           .c_row = LDS * sizeof(float),
                                           .a = q + i * row,
                                           .a_row = row,
                                           .a_block = REGISTER_ROW,
                                           .a_strip = LANES * row,
                                           .a_part = part,
                                           .b = k + from * part,
                                           .b_row = REGISTER_ROW,
                                           .b_block = LANES * REGISTER_ROW,
                                           .b_panel = LANES * part,
                                           .b_part = BN * part,
                                           .strips = STRIP / LANES,
                                           .panels = (end - from) / LANES,
                                           .blocks = (int)t->run->p->D / (2 * LANES),
                                           .set = 1,
                                           .split = split});
    }
}

/* Adds the product of the strip's p and v of columns from..end, of pairs that fill a block. */
static void add_sums(attn__queue *queue, const attn__tile *t, const attn__part *r, int i, int from,
                     int end) {
    const int split = t->run->plan->split;
    const int64_t ldv = t->run->plan->ldv * (int64_t)sizeof(float);
    const int64_t row = (split ? P_SPLIT : LDS) * (int64_t)sizeof(float);
    const char *const p = (const char *)(split ? t->x.p_split : t->x.s);
    const char *const v = (const char *)(split ? t->x.v_split : t->x.v);
    end = (end + 2 * LANES - 1) / (2 * LANES) * (2 * LANES);
    if (from < end) {
        add_product(queue, (attn__product){.c = (char *)r->now.o + i * ldv,
                                           .c_row = ldv,
                                           .a = p + i * row + from * 2,
                                           .a_row = row,
                                           .a_block = REGISTER_ROW,
                                           .a_strip = LANES * row,
                                           .a_part = row / 3,
                                           .b = v + from / 2 * REGISTER_ROW,
                                           .b_row = REGISTER_ROW,
                                           .b_block = LANES * REGISTER_ROW,
                                           .b_panel = BN / 2 * REGISTER_ROW,
                                           .b_part = BN / 2 * ldv,
                                           .strips = STRIP / LANES,
                                           .panels = t->run->plan->ldv / LANES,
                                           .blocks = (end - from) / (2 * LANES),
                                           .split = split});
    }
}

/* -- Strips ------------------------------------------------------------------------------------ */

void attn__forward_strips(attn__tile *t, attn__part *r, const attn__part *next, attn__strips *x,
                          const attn__wild_keys *wild) {
    float corr[BM];
    t->form = t->run->plan->split ? FORM_SPLIT : FORM_PAIRS;
    for (int i = 0; i < BM; i += STRIP) {
        int from, end;
        strip_columns(t, i, &from, &end);
        x->before.rows = STRIP;
        x->before.ahead = t->next;
        if (!x->has_dots) {
            add_dots(&x->before, t, r, i, from, end);
            t->run->plan->ops->go_on(&x->before, 1);
            x->before = (attn__queue){.rows = STRIP, .ahead = t->next};
        }
        x->has_dots = i + STRIP < BM || next;
        if (i + STRIP < BM) {
            int next_from, next_end;
            strip_columns(t, i + STRIP, &next_from, &next_end);
            add_dots(&x->before, t, r, i + STRIP, next_from, next_end);
        } else if (next) {
            add_dots(&x->before, t, next, 0, 0, BN);
        }
        attn__forward_rows(t, r, i, i + STRIP, wild, corr, &x->before);
        t->run->plan->ops->go_on(&x->before, 1);
        attn__scale_sums(t, r, i, i + STRIP, corr);
        x->before = (attn__queue){.rows = STRIP};
        add_sums(&x->before, t, r, i, from, end);
    }
}

void attn__end_strips(const attn__tile *t, attn__strips *x) {
    if (x->before.n) {
        t->run->plan->ops->go_on(&x->before, 1);
        x->before = (attn__queue){.n = 0};
    }
}
