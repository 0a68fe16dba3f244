/* problem.c: a call, checked and resolved, for a plan (shapes only) and for a run (pointers too).

   Who calls it: plan.c. Everything that the host can see is honoured or refused here with a status
   and a sentence. Each step relies on those before it:

       scalars -> q k v: sizes -> lengths -> origins -> problem_tensors.c: the other tensors
       -> captures -> i32 overflow -> a run: alignment, overlaps; with ATTN_CHECK=1 memory, too */
#include "problem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HOST = 1 }; /* DLPack's number */
enum { MOST_ROWS = INT32_MAX - 4095 }; /* of a sequence: engines count to the end of a tile */

/* The oracle alone takes f64, which is why it comes first: others begin at the second. */
static const int input_types[] = {ATTN_F64,      ATTN_F32,  ATTN_F16,      ATTN_BF16, ATTN_E4M3FN,
                                  ATTN_E4M3FNUZ, ATTN_E5M2, ATTN_E5M2FNUZ, 0};
static const int i32_types[] = {ATTN_I32, 0};

int attn__read_view(const attn__reader *r, const attn_tensor *t, const attn__want *want,
                    attn__view *view) {
    return t ? attn__tensor_view(r->device, t, want, r->planning, view) : ATTN_OK;
}

int attn__read_need(const void *given, const char *name, const char *why) {
    return given ? ATTN_OK : attn__fail(ATTN_INVALID, name, "%s is NULL; %s", name, why);
}

int attn__read_fits(const char *name, const attn__view *t, int64_t b, int64_t h, int64_t n,
                    int64_t d) {
    static const char *const axis[] = {"batch entries", "heads", "rows",
                                       "elements on its last axis"};
    const int64_t want[] = {b, h, n, d};
    for (int i = 0; i < 4 && t->type; i++) {
        if (t->n[i] != want[i]) {
            return attn__fail(ATTN_SHAPE, name, "%s has %lld %s; %lld wanted", name,
                              (long long)t->n[i], axis[i], (long long)want[i]);
        }
    }
    return ATTN_OK;
}

/* -- Scalars ----------------------------------------------------------------------------------- */

int attn__check_flags(uint32_t flags) {
    const uint32_t known =
        ATTN_SCALE_GIVEN | ATTN_DETERMINISTIC | ATTN_BATCH_INVARIANT | ATTN_TOP_LEFT;
    return flags & ~known
               ? attn__fail(ATTN_INVALID, "flags", "flags has unknown bits 0x%x; 0x%x are known",
                            (unsigned)(flags & ~known), (unsigned)known)
               : ATTN_OK;
}

static int read_scalars(const attn__reader *r, int direction) {
    const attn_call *const c = r->call;
    attn__problem *const p = r->p;
    if (direction != ATTN_FORWARD && direction != ATTN_BACKWARD) {
        return attn__fail(ATTN_INVALID, "direction",
                          "direction is %d; ATTN_FORWARD and ATTN_BACKWARD are allowed", direction);
    }
    ATTN_TRY(attn__check_flags(c->flags));
    if (!(fabs(c->scale) <= (double)FLT_MAX)) {
        return attn__fail(ATTN_INVALID, "scale",
                          "scale is %g; any number that is finite in f32 is allowed", c->scale);
    }
    if (c->alignment & (c->alignment - 1)) {
        return attn__fail(ATTN_INVALID, "alignment",
                          "alignment is %u; 0 (which is 16) and powers of two are allowed",
                          (unsigned)c->alignment);
    }
    if (c->scale != 0 && !(c->flags & ATTN_SCALE_GIVEN)) {
        return attn__fail(ATTN_INVALID, "scale",
                          "scale is %g, but flags lacks ATTN_SCALE_GIVEN, so it would not count",
                          c->scale);
    }
    p->direction = direction;
    p->flags = c->flags;
    p->scale = c->scale;
    p->alignment = c->alignment ? c->alignment : 16;
    return attn__dropout_in(r->device, c, r->planning, p);
}

/* -- q, k, v: who is packed, and every size ---------------------------------------------------- */

static int read_input(const attn__reader *r, const attn_tensor *t, const char *name, int packed,
                      const attn_tensor *offsets, attn__view *view) {
    ATTN_TRY(attn__read_need(t, name, "q, k and v are always read"));
    const int is_q = name[0] == 'q';
    if (t->ndim == 3 && !offsets) {
        return attn__fail(ATTN_INVALID, is_q ? "q_offsets" : "k_offsets",
                          "%s is NULL, but %s has rank 3, which is packed",
                          is_q ? "q_offsets" : "k_offsets", name);
    }
    const attn__want want = {name, packed ? "nhd" : "bhnd",
                             packed ? "[T][H][D], as with offsets," : "[B][H][N][D]",
                             input_types + !r->ref, 0};
    return attn__read_view(r, t, &want, view);
}

/* Rows of the longest sequence: those of memory, or for packed tensors a given bound. */
static int read_longest(const char *name, int64_t longest, int packed, int64_t rows, int64_t *N) {
    if (longest < 0 || longest > MOST_ROWS || (longest > 0 && !packed)) {
        return attn__fail(ATTN_INVALID, name, "%s is %lld; %s", name, (long long)longest,
                          packed ? "0 to 2^31 - 4096 is allowed" : "0 is allowed without offsets");
    }
    *N = longest ? longest : rows;
    return *N <= MOST_ROWS
               ? ATTN_OK
               : attn__fail(ATTN_SHAPE, packed ? name : name[0] == 'q' ? "q" : "k",
                            "a sequence has up to %lld rows%s; 2^31 - 4096 are allowed",
                            (long long)*N, packed ? ", since no bound is given" : "");
}

static int read_inputs(const attn__reader *r) {
    const attn_call *const c = r->call;
    attn__problem *const p = r->p;
    p->q_packed = c->q_offsets != NULL;
    p->k_packed = c->k_offsets != NULL;
    ATTN_TRY(read_input(r, c->q, "q", p->q_packed, c->q_offsets, &p->q));
    ATTN_TRY(read_input(r, c->k, "k", p->k_packed, c->k_offsets, &p->k));
    ATTN_TRY(read_input(r, c->v, "v", p->k_packed, c->k_offsets, &p->v));
    if (p->k.type != p->q.type || p->v.type != p->q.type) {
        const int is_k = p->k.type != p->q.type;
        return attn__fail(ATTN_DTYPE, is_k ? "k" : "v", "%s is %s; %s is wanted, as q is",
                          is_k ? "k" : "v", attn__type_name(is_k ? p->k.type : p->v.type),
                          attn__type_name(p->q.type));
    }
    p->H = p->q.n[1];
    p->HK = p->k.n[1];
    p->TQ = p->q.n[2];
    p->TK = p->k.n[2];
    p->D = p->q.n[3];
    p->DV = p->v.n[3];
    const int64_t dims[] = {p->D, p->DV};
    for (int i = 0; i < 2; i++) {
        if (dims[i] < 1 || dims[i] > 512) {
            return attn__fail(ATTN_SHAPE, i ? "v" : "q",
                              "%s has head dimension %lld; 1 to 512 is allowed", i ? "v" : "q",
                              (long long)dims[i]);
        }
    }
    if (p->H < 1 || p->HK < 1 || p->H % p->HK) {
        return attn__fail(ATTN_SHAPE, "k",
                          "k has %lld heads and q %lld; q's must be a multiple of k's",
                          (long long)p->HK, (long long)p->H);
    }
    ATTN_TRY(attn__read_fits("k", &p->k, p->k.n[0], p->HK, p->TK, p->D));
    ATTN_TRY(attn__read_fits("v", &p->v, p->k.n[0], p->HK, p->TK, p->DV));
    ATTN_TRY(read_longest("q_longest", c->q_longest, p->q_packed, p->TQ, &p->NQ));
    ATTN_TRY(read_longest("k_longest", c->k_longest, p->k_packed, p->TK, &p->NK));
    if (!(c->flags & ATTN_SCALE_GIVEN)) {
        p->scale = 1 / sqrt((double)p->D);
    }
    return ATTN_OK;
}

/* -- Lengths ----------------------------------------------------------------------------------- */

/* Reads i32 [n], where n = -1 takes what is there (at least 1) and tells it. */
static int read_i32(const attn__reader *r, const attn_tensor *t, const char *name,
                    const char *shape, int64_t *n, const int32_t **data, int64_t *st,
                    int32_t *has) {
    attn__view view = {0};
    const attn__want want = {name, "d", shape, i32_types, 0};
    ATTN_TRY(attn__read_view(r, t, &want, &view));
    if (!t) {
        return ATTN_OK;
    }
    if (*n < 0 && view.n[3] < 1) {
        return attn__fail(ATTN_SHAPE, name, "%s has no elements; %s has at least 1", name, shape);
    }
    *n = *n < 0 ? view.n[3] : *n;
    ATTN_TRY(attn__read_fits(name, &view, 1, 1, 1, *n));
    *data = (const int32_t *)view.data;
    *st = view.st[3];
    *has = 1;
    return ATTN_OK;
}

static int read_lengths(const attn__reader *r) {
    const attn_call *const c = r->call;
    attn__problem *const p = r->p;
    int64_t n = p->q_packed ? -1 : p->q.n[0] + 1; /* B + 1 */
    ATTN_TRY(read_i32(r, c->q_offsets, "q_offsets", "i32 [B+1]", &n, &p->q_offsets,
                      &p->q_offsets_st, &p->has_q_offsets));
    ATTN_TRY(read_i32(r, c->k_offsets, "k_offsets", "i32 [B+1]", &n, &p->k_offsets,
                      &p->k_offsets_st, &p->has_k_offsets));
    p->B = n - 1;
    if (!p->k_packed) {
        ATTN_TRY(attn__read_fits("k", &p->k, p->B, p->HK, p->TK, p->D));
    }
    ATTN_TRY(read_i32(r, c->q_used, "q_used", "i32 [B]", &p->B, &p->q_used, &p->q_used_st,
                      &p->has_q_used));
    return read_i32(r, c->k_used, "k_used", "i32 [B]", &p->B, &p->k_used, &p->k_used_st,
                    &p->has_k_used);
}

/* -- Origins and totals ------------------------------------------------------------------------ */

/* `size` entries from `origin` on, of `total`; total 0: this call is the whole. */
static int read_total(const char *name, const char *total_name, int64_t origin, int64_t size,
                      int64_t total) {
    if (origin < 0 || origin > INT32_MAX) {
        return attn__fail(ATTN_INVALID, name, "%s is %lld; 0 to 2^31 - 1 is allowed", name,
                          (long long)origin);
    }
    if (total < 0 || total > INT32_MAX) {
        return attn__fail(ATTN_INVALID, total_name, "%s is %lld; 0 to 2^31 - 1 is allowed",
                          total_name, (long long)total);
    }
    if (total == 0 && origin > 0) {
        return attn__fail(ATTN_INVALID, total_name, "%s is 0, but this shard begins at %s = %lld",
                          total_name, name, (long long)origin);
    }
    if (total > 0 && origin + size > total) {
        return attn__fail(ATTN_INVALID, total_name,
                          "%s is %lld; a shard of %lld from %lld on passes it", total_name,
                          (long long)total, (long long)size, (long long)origin);
    }
    return ATTN_OK;
}

int attn__origins_in(const attn_call *c, attn__problem *p) {
    /* Lengths that lie in memory are clamped to the total by attn__sequence. */
    const int64_t nq = p->q_packed || p->has_q_used ? 0 : p->NQ;
    const int64_t nk = p->k_packed || p->has_k_used ? 0 : p->NK;
    ATTN_TRY(read_total("b0", "batch", c->b0, p->B, c->batch));
    ATTN_TRY(read_total("h0", "nh", c->h0, p->H, c->nh));
    ATTN_TRY(read_total("k", "hk", 0, p->HK, c->hk));
    ATTN_TRY(read_total("i0", "nq", c->i0, nq, c->nq));
    ATTN_TRY(read_total("k0", "nk", c->k0, nk, c->nk));
    p->b0 = c->b0;
    p->h0 = c->h0;
    p->i0 = c->i0;
    p->k0 = c->k0;
    p->batch = c->batch ? c->batch : p->B;
    p->nh = c->nh ? c->nh : p->H;
    p->hk = c->hk ? c->hk : p->HK;
    p->nq_all = c->nq;
    p->nk_all = c->nk;
    if (p->drop_threshold && (p->b0 + p->B) * p->nh > (int64_t)UINT32_MAX + 1) {
        return attn__fail(
            ATTN_INVALID, "dropout",
            "dropout counts batch entries times heads in 32 bits, and %lld x %lld pass them",
            (long long)(p->b0 + p->B), (long long)p->nh);
    }
    return ATTN_OK;
}

/* -- The variant ------------------------------------------------------------------------------- */

static attn__range upto(double lo, double hi) {
    return (attn__range){lo, hi < lo ? lo : hi, 0};
}

/* i32 overflow over every place that a run of this plan may have: its totals are within these. */
static int check_overflow(const attn_device *device, const attn__problem *p, void *scratch) {
    const attn_graph *const g = &p->variant->graph;
    attn__bound known[ATTN__MAX_SYMBOLS];
    const double nq = (double)(p->nq_all ? p->nq_all : p->NQ);
    const double nk = (double)(p->nk_all ? p->nk_all : p->NK);
    attn__box box;
    for (int i = 0; i < g->n_symbols; i++) { /* tables elsewhere have their declared bounds */
        known[i] = p->bound[i];
        known[i].data = device->kind == HOST ? known[i].data : NULL;
    }
    attn__box_init(&box, known);
    box.leaf[LEAF_b] = upto(0, (double)p->batch - 1);
    box.leaf[LEAF_h] = upto(0, (double)p->nh - 1);
    box.leaf[LEAF_q] = p->flags & ATTN_TOP_LEFT ? upto(0, nq - 1) : upto(fmin(1 - nq, 0), nk - 1);
    box.leaf[LEAF_k] = upto(0, nk - 1);
    box.leaf[LEAF_i] = upto(0, nq - 1);
    box.leaf[LEAF_nq] = upto(1, nq);
    box.leaf[LEAF_nk] = upto(1, nk);
    box.leaf[LEAF_nh] = upto(1, (double)p->nh);
    box.leaf[LEAF_hk] = upto(1, (double)p->hk);
    box.leaf[LEAF_batch] = upto(1, (double)p->batch);
    ATTN_TRY(attn__check_overflow(g, p->variant->score, &box, scratch));
    return attn__check_overflow(g, p->variant->mask, &box, scratch);
}

/* A run may bring another value than its plan. */
int attn__checks_overflow(const attn_variant *variant) {
    const attn_graph *const g = &variant->graph;
    int any = 0;
    for (int i = 0; i < g->n_symbols; i++) {
        any |= g->symbol[i].rank == 0 && g->symbol[i].type == VT_I32;
    }
    return any;
}

/* Where the tensors begin that kernels load many elements of at once. */
static int check_promise(const attn__problem *p) {
    const struct {
        const char *name;
        const attn__view *view;
    } rows[] = {{"q", &p->q},       {"k", &p->k},   {"v", &p->v},   {"o", &p->o},
                {"dout", &p->dout}, {"dq", &p->dq}, {"dk", &p->dk}, {"dv", &p->dv}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *const at = rows[i].view->data;
        if ((uintptr_t)at % p->alignment) {
            return attn__fail(ATTN_LAYOUT, rows[i].name,
                              "%s lies at %p; a multiple of %u bytes was promised: "
                              "see attn_call.alignment",
                              rows[i].name, (const void *)at, (unsigned)p->alignment);
        }
    }
    return ATTN_OK;
}

int attn__problem_new(const attn_device *device, int direction, const attn_call *call,
                      const attn_variant *variant, int planning, attn__bound *bound, void *scratch,
                      attn__problem *problem) {
    attn_call c;
    ATTN_TRY(attn__struct_in(&c, sizeof c, call, "attn_call"));
    const attn__reader r = {device, &c, problem, planning, device->engine == &attn__ref};
    memset(problem, 0, sizeof *problem);
    problem->variant = variant;
    problem->bound = bound;
    ATTN_TRY(read_scalars(&r, direction));
    ATTN_TRY(read_inputs(&r));
    ATTN_TRY(read_lengths(&r));
    ATTN_TRY(attn__origins_in(&c, problem));
    ATTN_TRY(attn__read_results(&r));
    ATTN_TRY(attn__read_sink(&r));
    ATTN_TRY(attn__read_scales(&r));
    ATTN_TRY(attn__read_blocks(&r));
    ATTN_TRY(attn__bind(device, variant, c.captures, c.n_captures, planning, bound));
    if (planning || attn__checks_overflow(variant)) {
        ATTN_TRY(check_overflow(device, problem, scratch));
    }
    if (planning) {
        return ATTN_OK;
    }
    ATTN_TRY(check_promise(problem));
    ATTN_TRY(attn__check_aliases(problem));
    ATTN_TRY(attn__setting_check(ATTN__SET_CHECK));
    return attn__setting(ATTN__SET_CHECK) ? attn__check_memory(device, problem) : ATTN_OK;
}
