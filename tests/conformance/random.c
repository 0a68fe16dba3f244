/* random.c: from classes to numbers; see random.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "random.h"

/* -- What goes together ------------------------------------------------------------------------ */
static int is_shard(int check) {
    return check == C_HEADS || check == C_BATCHES || check == C_ROWS;
}

static void settle_check(uint8_t *c) {
    const int check = c[F_CHECK];
    const int packed_ok[] = {1, 1, 1, 1, 0, 1, 0, 0, 0, 1};
    if (!packed_ok[check]) {
        c[F_PACKED] = PACKED_NONE;
    }
    if (check == C_MERGE) {
        c[F_DIR] = DIR_FWD;
        c[F_NOLSE] = c[F_KUSED] = c[F_BLOCKS] = 0;
        c[F_QUSED] = c[F_SINK] ? 0 : c[F_QUSED]; /* a row that is not there has no sink */
        c[F_KS] = c[F_KS] >= SCALES_BLOCK ? 0 : c[F_KS];
        c[F_VS] = c[F_VS] >= SCALES_BLOCK ? 0 : c[F_VS];
    }
    if (check == C_ROWS) {
        c[F_QUSED] = c[F_BLOCKS] = 0;
        c[F_QS] = c[F_QS] >= SCALES_BLOCK ? 0 : c[F_QS];
    }
    if (is_shard(check) || check == C_MERGE || check == C_BATCH) {
        c[F_LARGER] = c[F_STALE] = c[F_GRADS] = 0; /* parts decide which gradients there are */
    }
    if (check == C_DROPOUT && c[F_DROPOUT] == 0) {
        c[F_DROPOUT] = 1;
    }
    if (check == C_ISOLATE) {
        c[F_LK] = c[F_LK] >= LAYOUT_SAME_BATCH - 1 ? 0 : c[F_LK];
        c[F_LV] = c[F_LV] >= LAYOUT_SAME_BATCH - 1 ? 0 : c[F_LV];
        c[F_PLANT] = 0;
    }
    if (check == C_BATCH) {
        c[F_INV] = 1;
    }
    if (c[F_DIR] == DIR_BWD &&
        (check == C_REPEAT || check == C_BATCH || check == C_THREADS || check == C_ISOLATE)) {
        c[F_DET] = 1;
    }
}

/* Where a product of an infinity and a number near 0 would decide, nothing is planted; scores that
   grow fast are not fed with huge logits. */
static void settle_numbers(uint8_t *c) {
    const int v = c[F_VARIANT];
    if (v == V_SCORE || v == V_COMPOSED || v == V_NUMBERS) {
        c[F_MUL] = c[F_SHIFT] = c[F_PLANT] = 0;
    }
    if (c[F_SCALE] == 2) {
        c[F_MUL] = c[F_SHIFT] = 0;
    }
    if (c[F_PLANT]) {
        c[F_MUL] = c[F_SHIFT] = 0;
        c[F_SCALE] = 0;
        if (v == V_ALIBI || v == V_SLOPES) {
            c[F_NQ] = c[F_NQ] > 2 ? 2 : c[F_NQ];
            c[F_NK] = c[F_NK] > 2 ? 2 : c[F_NK];
        }
    } else {
        c[F_WHERE] = 0;
    }
}

static double work(const uint8_t *c) {
    static const int rows[] = {8, 8, 12, 64, 128, 1024}, dims[] = {8, 16, 40, 100, 210, 512},
                     groups[] = {1, 2, 3, 5, 6, 7, 8, 16};
    return (c[F_BATCH] == 2 ? 4.0 : c[F_BATCH] + 1.0) * (c[F_HEADS] + 1) * groups[c[F_GROUP]] *
           rows[c[F_NQ]] * rows[c[F_NK]] * (2 * dims[c[F_D]] + 30) *
           (c[F_CHECK] == C_REPEAT ? 3 : 1);
}

/* A case takes a few milliseconds, a rare one some ten: sizes that multiply to more are given up in
   this order. */
static void settle_sizes(uint8_t *c) {
    static const struct {
        feature f;
        uint8_t most;
    } order[] = {{F_BATCH, 1}, {F_HEADS, 0}, {F_D, 2}, {F_NK, 2}, {F_GROUP, 1},
                 {F_BATCH, 0}, {F_NQ, 4},    {F_D, 0}, {F_NK, 1}, {F_GROUP, 0}};
    for (size_t i = 0; i < sizeof order / sizeof *order && work(c) > 1e7; i++) {
        uint8_t *const x = &c[order[i].f];
        *x = *x > order[i].most ? order[i].most : *x;
    }
}

void settle(uint8_t c[FEATURE_COUNT]) {
    static const int q_like[] = {F_LQ, F_LDO}, k_like[] = {F_LK, F_LV};
    const int same_batch = LAYOUT_SAME_BATCH - 1; /* without huge */
    settle_check(c);
    settle_numbers(c);
    settle_sizes(c);
    if (c[F_DIR] == DIR_FWD) {
        c[F_LDO] = c[F_LG] = c[F_DLSE] = c[F_GRADS] = 0;
        if (c[F_WHERE] == WHERE_DOUT) {
            c[F_PLANT] = c[F_WHERE] = 0;
        }
    } else {
        c[F_NOLSE] = 0;
    }
    if (c[F_PACKED] == PACKED_NONE) {
        c[F_SPARE] = c[F_LONGEST] = 0;
    }
    for (int i = 0; i < 2; i++) {
        c[q_like[i]] = c[F_PACKED] & 1 && c[q_like[i]] == same_batch ? 0 : c[q_like[i]];
        c[k_like[i]] = c[F_PACKED] & 2 && c[k_like[i]] == same_batch ? 0 : c[k_like[i]];
    }
    if (!c[F_SPARE] && !c[F_QUSED] && !c[F_KUSED]) {
        c[F_ENDS] = 0;
    }
    if (!reads_tensors(c[F_VARIANT])) {
        c[F_LC] = 0;
    }
}

/* -- Numbers ----------------------------------------------------------------------------------- */
static int64_t pick(rng *r, const int64_t *list, int n) {
    return list[rng_below(r, n)];
}
#define PICK_OF(r, ...)                                                                            \
    pick(r, (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8))

static int64_t length_of(rng *r, int c) {
    switch (c) {
    case 0: return 0;
    case 1: return 1;
    case 2: return 2 + rng_below(r, 32);
    case 3: return PICK_OF(r, 63, 64, 65);
    case 4: return PICK_OF(r, 127, 128, 129);
    default: return PICK_OF(r, 1023, 1024, 1025);
    }
}

static int64_t dim_of(rng *r, int c) {
    switch (c) {
    case 0: return 1 + rng_below(r, 15);
    case 1: return 16;
    case 2: return PICK_OF(r, 24, 32, 40, 64);
    case 3: return PICK_OF(r, 72, 80, 96, 108, 112, 128);
    case 4: return PICK_OF(r, 160, 192, 224, 256);
    default: return 512;
    }
}

/* About as many pairs and products as a few milliseconds allow, as far as the classes let it. */
static void make_small(point *p, const uint8_t *c) {
    const int64_t group = p->H / p->HK;
    while (p->B * p->H * p->NQ * p->NK * (p->D + p->DV + 30) > 600000 &&
           p->B > 1 + (c[F_BATCH] > 0)) {
        p->B--;
    }
    while (p->B * p->H * p->NQ * p->NK * (p->D + p->DV + 30) > 600000 &&
           p->HK > 1 + (c[F_HEADS] > 0)) {
        p->HK--;
        p->H -= group;
    }
    while (p->B * p->H * p->NQ * p->NK > 20000 && c[F_NQ] == 2 && p->NQ > 2) {
        p->NQ = (p->NQ + 2) / 2;
    }
    while (p->B * p->H * p->NQ * p->NK > 20000 && c[F_NK] == 2 && p->NK > 2) {
        p->NK = (p->NK + 2) / 2;
    }
}

static void sizes(point *p, const uint8_t *c, rng *r) {
    p->B = c[F_BATCH] == 2 ? 3 + rng_below(r, 3) : c[F_BATCH] + 1;
    p->HK = 1 + c[F_HEADS];
    p->H = p->HK * (const int64_t[]){1, 2, 3, 5, 6, 7, 8, 16}[c[F_GROUP]];
    p->NQ = length_of(r, c[F_NQ]);
    p->NK = length_of(r, c[F_NK]);
    p->D = dim_of(r, c[F_D]);
    p->DV = c[F_DV] == 0               ? p->D
            : c[F_DV] == 1 && p->D > 1 ? 1 + rng_below(r, p->D - 1)
                                       : p->D + 1 + rng_below(r, 512 - p->D > 40 ? 40 : 1);
    p->DV = p->DV > 512 ? 511 : p->DV;
    make_small(p, c);
}

/* Used lengths: within, with zeros, or out of range on both sides. */
static void used(point_list *list, int64_t B, int64_t N, int c, rng *r) {
    list->n = c ? (int)(B < 4 ? B : 4) : 0;
    for (int i = 0; i < list->n; i++) {
        list->x[i] = (double)rng_below(r, N + 1);
        if (c == 2 && i % 2 == 0) {
            list->x[i] = 0;
        } else if (c == 3) {
            list->x[i] =
                i % 2 ? -1 - (double)rng_below(r, 9) : (double)(N + 1 + rng_below(r, 1000));
        }
    }
}

static void lengths(point *p, const uint8_t *c, rng *r) {
    p->packed = c[F_PACKED];
    p->spare = c[F_SPARE] ? 1 + rng_below(r, 4) : 0;
    p->longest = c[F_LONGEST];
    for (int side = 0; side < 2; side++) {
        point_list *const list = side ? &p->klens : &p->qlens;
        const int64_t N = side ? p->NK : p->NQ;
        list->n = p->packed >> side & 1 ? (int)(p->B < 5 ? p->B : 5) : 0;
        for (int i = 0; i < list->n; i++) {
            list->x[i] = i == 0 ? (double)N : (double)rng_below(r, N + 1);
        }
    }
    used(&p->qused, p->B, p->NQ, c[F_QUSED], r);
    used(&p->kused, p->B, p->NK, c[F_KUSED], r);
    p->ends = c[F_ENDS];
}

/* The choices of the point have huge before the layouts with shared entries. */
static int64_t layout(int c) {
    return c >= LAYOUT_HUGE ? c + 1 : c;
}

static void memory(point *p, const uint8_t *c, rng *r) {
    p->lq = layout(c[F_LQ]);
    p->lk = layout(c[F_LK]);
    p->lv = layout(c[F_LV]);
    p->lo = layout(c[F_LO]);
    p->ldo = layout(c[F_LDO]);
    p->lg = layout(c[F_LG]);
    p->lc = layout(c[F_LC]);
    p->nolse = c[F_NOLSE];
    p->dlse = c[F_DLSE];
    if (c[F_GRADS] == 1) {
        p->grads = 1 << rng_below(r, 3);
    } else if (c[F_GRADS] == 2) {
        p->grads = (1 + rng_below(r, 7)) | rng_below(r, 4) << 3;
    }
}

static void origins(point *p, int c, rng *r) {
    if (c & 1) {
        p->b0 = rng_below(r, 3);
        p->tb = p->b0 + p->B + rng_below(r, 2);
        p->h0 = p->H * rng_below(r, 2);
        p->th = p->h0 + p->H * (1 + rng_below(r, 2));
    }
    if (c & 2) {
        p->i0 = rng_below(r, 40);
        p->k0 = rng_below(r, 40);
        p->tq = p->i0 + side_q_rows(p) + 1 + rng_below(r, 40);
        p->tk = p->k0 + side_k_rows(p) + 1 + rng_below(r, 40);
    }
}

static void features_of(point *p, const uint8_t *c, rng *r) {
    static const double muls[] = {1, 50, 4400, 1e5}, shifts[] = {0, -120, -5e5};
    p->scale = c[F_SCALE] == 0   ? NAN
               : c[F_SCALE] == 1 ? 0.05 * (double)(1 + rng_below(r, 20))
               : c[F_SCALE] == 2 ? 0
                                 : -0.05 * (double)(1 + rng_below(r, 10));
    p->sink = c[F_SINK];
    if (c[F_DROPOUT]) {
        p->dropout = 0.05 * (double)(1 + rng_below(r, 18));
        p->dseed = (int64_t)rng_next(r);
        p->seedat = c[F_DROPOUT] == 2;
        p->offset = rng_below(r, 3) ? 0 : rng_below(r, 1000);
    }
    p->top_left = c[F_TOP_LEFT];
    p->det = c[F_DET];
    p->inv = c[F_INV];
    p->qs = c[F_QS];
    p->ks = c[F_KS];
    p->vs = c[F_VS];
    if (c[F_BLOCKS]) {
        p->bm = PICK_OF(r, 1, 3, 16, 64, 128);
        p->bn = PICK_OF(r, 2, 7, 16, 64, 128);
        p->dense = 10 + rng_below(r, 90);
        p->lists = c[F_BLOCKS] - 1;
    }
    p->mul = muls[c[F_MUL]];
    p->shift = shifts[c[F_SHIFT]];
    p->plant = c[F_PLANT];
    p->where = c[F_WHERE];
    p->align = c[F_ALIGN];
    p->larger = c[F_LARGER];
    p->stale = c[F_STALE];
}

static void checks(point *p, const uint8_t *c, rng *r) {
    static const int64_t check[] = {CHECK_VALUE,   CHECK_REPEAT, CHECK_BATCH, CHECK_THREADS,
                                    CHECK_MERGE,   CHECK_SHARD,  CHECK_SHARD, CHECK_SHARD,
                                    CHECK_DROPOUT, CHECK_ISOLATE};
    p->check = check[c[F_CHECK]];
    p->split = c[F_CHECK] == C_HEADS     ? SPLIT_HEADS
               : c[F_CHECK] == C_BATCHES ? SPLIT_BATCH
               : c[F_CHECK] == C_ROWS    ? SPLIT_ROWS
                                         : SPLIT_KEYS;
    p->parts = 2 + rng_below(r, 3);
    if (p->dir == DIR_BWD) {
        p->grads = c[F_CHECK] == C_HEADS     ? 15
                   : c[F_CHECK] == C_BATCHES ? 7
                   : c[F_CHECK] == C_ROWS    ? 1
                                             : p->grads;
        p->grads &= c[F_CHECK] == C_BATCH ? 15 : 31;
    }
}

void point_of_classes(point *p, const uint8_t c[FEATURE_COUNT], rng *r) {
    point_start(p);
    p->seed = 1 + rng_below(r, 1000000);
    p->dtype = c[F_DTYPE];
    p->otype = c[F_OTYPE];
    p->dir = c[F_DIR];
    sizes(p, c, r);
    lengths(p, c, r);
    memory(p, c, r);
    origins(p, c[F_ORIGIN], r);
    features_of(p, c, r);
    checks(p, c, r);
    variety_of(p, c[F_VARIANT], r);
}

/* -- Cases that share code --------------------------------------------------------------------- */

/* Present like p's: kept, taken from p, or taken away. */
static int64_t same_presence(int64_t own, int64_t other) {
    return own && other ? own : other;
}

void point_share(point *q, const point *p) {
    q->dtype = p->dtype;
    q->D = p->D;
    q->DV = p->DV;
    q->dropout = p->dropout > 0 && q->dropout > 0 ? q->dropout : p->dropout;
    q->qs = same_presence(q->qs, p->qs);
    q->ks = same_presence(q->ks, p->ks);
    q->vs = same_presence(q->vs, p->vs);
    q->bm = same_presence(q->bm, p->bm);
    q->bn = same_presence(q->bn, p->bn);
    q->stale = 0;
    q->check = q->check == CHECK_REPEAT ? CHECK_REPEAT : CHECK_VALUE;
    memcpy(q->variant, p->variant, sizeof q->variant);
    memcpy(q->caps, p->caps, sizeof q->caps);
}

/* -- What classes that suit a processor leave out ---------------------------------------------- */

void point_head(point *p, long number) {
    if (number % 8 == 3) {
        p->D = p->DV = 128;
    } else if (number % 8 == 7) {
        p->D = 192;
        p->DV = 128;
    }
}

static void lengthen(point *p) {
    const int64_t keys = p->NK + 600;
    const double pairs = (double)(p->B * p->H) * (double)(p->NQ * keys);
    if (p->packed == PACKED_NONE && p->check == CHECK_VALUE &&
        pairs * (double)(p->D + p->DV + 30) < 1e8) {
        p->NK = keys;
        p->tk += p->tk ? 600 : 0;
    }
}

void point_far(point *p, long number, long member) {
    int64_t *const of[] = {&p->lq, &p->lk, &p->lv, p->otype ? &p->lk : &p->lo};
    if (p->dtype == 0) { /* f32: twice the memory */
        return;
    }
    if (member % 2) {
        lengthen(p);
    } else {
        *of[number % 4] = LAYOUT_HUGE;
    }
}
