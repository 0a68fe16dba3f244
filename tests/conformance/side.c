/* side.c: the tensors of a call, made as a point says; see suite.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

const char *role_name(role r) {
    static const char *const names[ROLES] = {
#define X(ROLE, member) [ROLE_##ROLE] = #member,
        ROLES_WITH_MEMBER(X)
#undef X
            [ROLE_COUNTS] = "blocks.counts",
        [ROLE_INDICES] = "blocks.indices", [ROLE_SEED] = "seed_at"};
    return names[r];
}

/* -- Sizes ------------------------------------------------------------------------------------- */
static int64_t rows_packed(const point *p, const point_list *lens, int64_t otherwise) {
    int64_t rows = 2 * p->spare;
    for (int64_t b = 0; b < p->B; b++) {
        rows += (int64_t)point_number(lens, b, (double)otherwise);
    }
    return rows;
}

static int64_t longest(const point *p, const point_list *lens, int64_t otherwise) {
    int64_t most = 0;
    for (int64_t b = 0; b < p->B; b++) {
        const int64_t n = (int64_t)point_number(lens, b, (double)otherwise);
        most = n > most ? n : most;
    }
    return most;
}

int64_t side_q_rows(const point *p) {
    return point_q_packed(p) ? rows_packed(p, &p->qlens, p->NQ) : p->NQ;
}

int64_t side_k_rows(const point *p) {
    return point_k_packed(p) ? rows_packed(p, &p->klens, p->NK) : p->NK;
}

/* Rows of the longest sequence, as the plan sees them; a bound of 0 is none. */
static int64_t q_most(const point *p) {
    const int64_t most = point_q_packed(p) && p->longest ? longest(p, &p->qlens, p->NQ) : 0;
    return most ? most : side_q_rows(p);
}

static int64_t k_most(const point *p) {
    const int64_t most = point_k_packed(p) && p->longest ? longest(p, &p->klens, p->NK) : 0;
    return most ? most : side_k_rows(p);
}

static int wanted(const point *p, role r) {
    const int bwd = p->dir == DIR_BWD;
    switch (r) {
    case ROLE_SINK: return p->sink != 0;
    case ROLE_Q_OFFSETS: return point_q_packed(p);
    case ROLE_K_OFFSETS: return point_k_packed(p);
    case ROLE_Q_USED: return p->qused.n > 0;
    case ROLE_K_USED: return p->kused.n > 0;
    case ROLE_Q_SCALE: return p->qs != SCALES_NONE;
    case ROLE_K_SCALE: return p->ks != SCALES_NONE;
    case ROLE_V_SCALE: return p->vs != SCALES_NONE;
    case ROLE_LSE: return bwd || !p->nolse;
    case ROLE_DOUT: return bwd;
    case ROLE_DLSE: return bwd && p->dlse;
    case ROLE_DQ: return bwd && (p->grads & 1);
    case ROLE_DK: return bwd && (p->grads & 2);
    case ROLE_DV: return bwd && (p->grads & 4);
    case ROLE_DSINK: return bwd && p->sink && (p->grads & 8);
    case ROLE_COUNTS:
    case ROLE_INDICES: return p->bm > 0;
    case ROLE_SEED: return p->seedat != 0;
    default: return 1;
    }
}

static const char *rows_shape(int packed, int64_t B, int64_t heads, int64_t N, int64_t E,
                              int64_t shape[4]) {
    const int64_t padded[4] = {B, heads, N, E}, flat[3] = {N, heads, E};
    memcpy(shape, packed ? flat : padded, packed ? sizeof flat : sizeof padded);
    return packed ? "nhd" : "bhnd";
}

static const char *scale_shape(const point *p, int64_t kind, int64_t rows, int64_t shape[4]) {
    shape[0] = kind == SCALES_ONE ? 1 : p->B;
    shape[1] = kind == SCALES_QBLOCK ? p->H : point_HK(p);
    shape[2] = (rows + 127) / 128;
    return kind == SCALES_ONE ? "b" : kind == SCALES_HEAD ? "bh" : "bhn";
}

/* Axes and extents of a role. */
static const char *shape_of(const point *p, role r, int64_t shape[4]) {
    const int qp = point_q_packed(p), kp = point_k_packed(p);
    const int64_t TQ = side_q_rows(p), TK = side_k_rows(p), HK = point_HK(p), DV = point_DV(p);
    switch (r) {
    case ROLE_Q:
    case ROLE_DQ: return rows_shape(qp, p->B, p->H, TQ, p->D, shape);
    case ROLE_O:
    case ROLE_DOUT: return rows_shape(qp, p->B, p->H, TQ, DV, shape);
    case ROLE_K:
    case ROLE_DK: return rows_shape(kp, p->B, HK, TK, p->D, shape);
    case ROLE_V:
    case ROLE_DV: return rows_shape(kp, p->B, HK, TK, DV, shape);
    case ROLE_LSE:
    case ROLE_DLSE:
        shape[0] = qp ? p->H : p->B;
        shape[1] = qp ? TQ : p->H;
        shape[2] = TQ;
        return qp ? "hn" : "bhn";
    case ROLE_SINK:
    case ROLE_DSINK: shape[0] = p->H; return "h";
    case ROLE_Q_OFFSETS:
    case ROLE_K_OFFSETS: shape[0] = p->B + 1; return "b";
    case ROLE_Q_USED:
    case ROLE_K_USED: shape[0] = p->B; return "b";
    case ROLE_Q_SCALE: return scale_shape(p, p->qs, q_most(p), shape);
    case ROLE_K_SCALE: return scale_shape(p, p->ks, k_most(p), shape);
    case ROLE_V_SCALE: return scale_shape(p, p->vs, k_most(p), shape);
    case ROLE_SEED: shape[0] = 8; return "d";
    default: /* the block lists */
        shape[0] = p->lists == LISTS_BH || p->lists == LISTS_B1 ? p->B : 1;
        shape[1] = p->lists == LISTS_BH || p->lists == LISTS_1H ? p->H : 1;
        shape[2] = (q_most(p) + p->bm - 1) / p->bm;
        shape[3] = (k_most(p) + p->bn - 1) / p->bn + 2;
        return r == ROLE_COUNTS ? "bhn" : "bhnd";
    }
}

int point_otype(const point *p) {
    static const int types[] = {0, ATTN_F32, ATTN_F16, ATTN_BF16};
    const int type = point_type(p);
    return p->otype ? types[p->otype] : attn__type_bytes(type) == 1 ? ATTN_BF16 : type;
}

int point_type(const point *p) {
    static const int types[] = {ATTN_F32,  ATTN_F16,      ATTN_BF16,    ATTN_E4M3FN,
                                ATTN_E5M2, ATTN_E4M3FNUZ, ATTN_E5M2FNUZ};
    return types[p->dtype];
}

static int type_of(const point *p, role r, int oracle) {
    switch (r) {
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V: return point_type(p);
    case ROLE_DOUT: return point_otype(p);
    case ROLE_O:
    case ROLE_DQ:
    case ROLE_DK:
    case ROLE_DV: return oracle ? ATTN_F64 : point_otype(p);
    case ROLE_LSE: return oracle ? ATTN_F64 : ATTN_F32;
    case ROLE_Q_OFFSETS:
    case ROLE_K_OFFSETS:
    case ROLE_Q_USED:
    case ROLE_K_USED:
    case ROLE_COUNTS:
    case ROLE_INDICES: return ATTN_I32;
    case ROLE_SEED: return ATTN_U8;
    default: return ATTN_F32;
    }
}

static int layout_of(const point *p, role r) {
    switch (r) {
    case ROLE_Q: return (int)p->lq;
    case ROLE_K: return (int)p->lk;
    case ROLE_V: return (int)p->lv;
    case ROLE_O: return (int)p->lo;
    case ROLE_LSE: return (int)(p->lo == LAYOUT_HUGE ? LAYOUT_COMPACT : p->lo);
    case ROLE_DOUT: return (int)p->ldo;
    case ROLE_DLSE: return (int)(p->ldo == LAYOUT_HUGE ? LAYOUT_COMPACT : p->ldo);
    case ROLE_DQ:
    case ROLE_DK:
    case ROLE_DV: return (int)p->lg;
    default: return LAYOUT_COMPACT;
    }
}

/* What the layouts have: parts of a whole begin anywhere. */
static uint32_t alignment_of(const point *p) {
    const int64_t layouts[] = {p->lq, p->lk, p->lv, p->lo, p->ldo, p->lg};
    int any = p->check == CHECK_BATCH || p->check == CHECK_MERGE || p->check == CHECK_SHARD;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        any |=
            layouts[i] == LAYOUT_ODD || layouts[i] == LAYOUT_REVERSED || layouts[i] == LAYOUT_HUGE;
    }
    return p->align ? (uint32_t)p->align : (uint32_t)any;
}

/* -- The call ---------------------------------------------------------------------------------- */
static void set_scalars(attn_call *c, const point *p) {
    *c = (attn_call){.size = sizeof *c,
                     .dropout = p->dropout,
                     .seed = p->seedat ? 0 : (uint64_t)p->dseed,
                     .offset = (uint32_t)p->offset,
                     .alignment = alignment_of(p),
                     .b0 = p->b0,
                     .h0 = p->h0,
                     .i0 = p->i0,
                     .k0 = p->k0,
                     .batch = p->tb,
                     .nh = p->th,
                     .hk = p->th / (p->H / point_HK(p)),
                     .nq = p->tq,
                     .nk = p->tk};
    c->flags = (p->det ? ATTN_DETERMINISTIC : 0u) | (p->inv ? ATTN_BATCH_INVARIANT : 0u) |
               (p->top_left ? ATTN_TOP_LEFT : 0u);
    if (p->scale == p->scale) {
        c->flags |= ATTN_SCALE_GIVEN;
        c->scale = p->scale;
    }
    if (p->longest) {
        c->q_longest = point_q_packed(p) ? q_most(p) : 0;
        c->k_longest = point_k_packed(p) ? k_most(p) : 0;
    }
}

void side_wire(side *s) {
    attn_call *const c = &s->call;
#define X(ROLE, member) c->member = s->t[ROLE_##ROLE].device ? &s->t[ROLE_##ROLE].t : NULL;
    ROLES_WITH_MEMBER(X)
#undef X
    if (s->t[ROLE_COUNTS].device) {
        s->blocks.counts = &s->t[ROLE_COUNTS].t;
        s->blocks.indices = &s->t[ROLE_INDICES].t;
        c->blocks = &s->blocks;
    }
    if (s->t[ROLE_SEED].device) {
        static const uint64_t planned; /* a plan asks whether there is one */
        const void *const seed = s->t[ROLE_SEED].memory;
        c->seed_at = seed ? seed : &planned;
    }
    c->captures = s->capture;
}

static int build_captures(side *s, const point *p, const cap *caps, int n_caps, int oracle,
                          int memory, char *why) {
    static const char axes[] = "????";
    const int64_t one[1] = {1};
    int status = 0;
    s->call.n_captures = n_caps;
    for (int i = 0; i < n_caps && status == 0; i++) {
        const cap *const c = &caps[i];
        const int layout = oracle ? LAYOUT_COMPACT : (int)p->lc;
        const int same = layout >= LAYOUT_SAME_BATCH;
        attn_capture *const to = &s->capture[i];
        to->name = c->name;
        to->number = c->number;
        if (c->type) {
            status = tensor_build(&s->value[i], s->device, c->type, axes + 4 - c->rank, c->shape,
                                  layout, memory, why);
            to->value = &s->value[i].t;
        }
        if (status == 0 && c->graded && p->dir == DIR_BWD && (p->grads & 16)) {
            const int rank = c->type ? c->rank : 1;
            status =
                tensor_build(&s->grad[i], s->device, ATTN_F32, axes + 4 - rank,
                             c->type ? c->shape : one, same ? LAYOUT_PADDED : layout, memory, why);
            to->grad = &s->grad[i].t;
        }
    }
    return status;
}

int side_build(side *s, attn_device *device, const point *p, const cap *caps, int n_caps,
               int oracle, int memory, char *why) {
    memset(s, 0, sizeof *s);
    s->device = device;
    set_scalars(&s->call, p);
    s->blocks = (attn_blocks){.size = sizeof s->blocks, .bm = p->bm, .bn = p->bn};
    for (int r = 0; r < ROLES; r++) {
        int64_t shape[4];
        if (wanted(p, (role)r)) {
            const char *const axes = shape_of(p, (role)r, shape);
            if (tensor_build(&s->t[r], device, type_of(p, (role)r, oracle), axes, shape,
                             oracle ? LAYOUT_COMPACT : layout_of(p, (role)r), memory, why) < 0) {
                return -1;
            }
        }
    }
    if (build_captures(s, p, caps, n_caps, oracle, memory, why) < 0) {
        return -1;
    }
    side_wire(s);
    return 0;
}

void side_free(side *s) {
    for (int r = 0; r < ROLES; r++) {
        tensor_free(&s->t[r]);
    }
    for (int i = 0; i < CAPTURES; i++) {
        tensor_free(&s->value[i]);
        tensor_free(&s->grad[i]);
    }
}
