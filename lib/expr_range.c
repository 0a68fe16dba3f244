/* expr_range.c: the interval of every node over a box of places, and the check that no i32
   operation overflows there.

   Who calls it: expr_compose (can this score be -inf?), problem.c (overflow), expr_class.c. What a
   load gives is known from its elements if they are bound and few, else from declared bounds. */
#include "expr_range.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 4096 }; /* that a load's range is looked up in */

attn__range attn__range_all(int type) {
    static const attn__range all[] = {[VT_BOOL] = {0, 1, 0},
                                      [VT_I32] = {INT32_MIN, INT32_MAX, 0},
                                      [VT_F32] = {-INFINITY, INFINITY, 1}};
    return all[type];
}

/* A plan may have up to 2^31 - 1 of everything, so q reaches as far below 0. */
void attn__box_init(attn__box *box, const attn__bound *bound) {
    for (int leaf = 0; leaf < LEAF_COUNT; leaf++) {
        attn__box_set(box, leaf, leaf == LEAF_q ? -(double)INT32_MAX : 0, INT32_MAX);
    }
    box->leaf[LEAF_s] = attn__range_all(VT_F32);
    box->bound = bound;
    box->no_overflow = 0;
}

static attn__range single(double x) {
    return isnan(x) ? attn__range_all(VT_F32) : (attn__range){x, x, 0};
}

static void include(attn__range *r, double x) {
    r->nan |= isnan(x);
    r->lo = x < r->lo ? x : r->lo;
    r->hi = x > r->hi ? x : r->hi;
}

/* -- Loads ------------------------------------------------------------------------------------- */

/* The indices that lie inside the tensor; `outside` is set where others are possible. Returns how
   many elements they reach. */
static double reach(const attn__bound *t, int n, const attn__range *index, int64_t *first,
                    int64_t *last, int *outside) {
    double count = 1;
    for (int i = 0; i < n; i++) {
        const double top = (double)t->n[i] - 1;
        *outside |= index[i].lo < 0 || index[i].hi > top;
        first[i] = (int64_t)fmax(index[i].lo, 0);
        last[i] = (int64_t)fmin(index[i].hi, top);
        count *= first[i] <= last[i] ? (double)(last[i] - first[i] + 1) : 0;
    }
    return count;
}

/* Includes count elements of a row, the first at `from`. */
static void include_row(attn__range *r, const attn__symbol *s, const attn__bound *t,
                        const char *from, int64_t count, int64_t stride) {
    enum { PIECE = 64 };
    float x[PIECE];
    for (int64_t done = 0; done < count && s->type != VT_I32; done += PIECE) {
        const int64_t n = count - done < PIECE ? count - done : PIECE;
        const int64_t at = done * stride * attn__type_bytes(t->type);
        attn__load_f32(x, from + at, t->type, n, stride);
        for (int64_t j = 0; j < n; j++) {
            include(r, s->type == VT_F32 ? (double)x[j] : x[j] != 0);
        }
    }
    if (s->type == VT_I32) {
        int32_t lo = INT32_MAX, hi = INT32_MIN, v;
        for (int64_t j = 0; j < count; j++) {
            memcpy(&v, from + j * stride * 4, sizeof v);
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        include(r, attn__clamp(lo, s));
        include(r, attn__clamp(hi, s));
    }
}

/* Rows along the longest axis, one for each place on the others. */
static attn__range look_up(const attn__symbol *s, const attn__bound *t, int n, const int64_t *first,
                           const int64_t *last) {
    attn__range r = {INFINITY, -INFINITY, 0};
    int64_t index[ATTN__MAX_RANK] = {0}, at = 0;
    int row = 0;
    for (int i = 0; i < n; i++) {
        row = last[i] - first[i] > last[row] - first[row] ? i : row;
        at += first[i] * t->st[i];
    }
    for (int axis = 0; axis >= 0;) {
        include_row(&r, s, t, t->data + at * attn__type_bytes(t->type), last[row] - first[row] + 1,
                    last[row] > first[row] ? t->st[row] : 0);
        for (axis = n - 1; axis >= 0; axis--) {
            if (axis != row && index[axis] < last[axis] - first[axis]) {
                index[axis]++;
                at += t->st[axis];
                break;
            }
            at -= index[axis] * t->st[axis];
            index[axis] = 0;
        }
    }
    return r.lo <= r.hi ? r : attn__range_all(VT_F32); /* nothing but NaN */
}

static attn__range declared(const attn__symbol *s) {
    return s->bounded ? (attn__range){s->lo, s->hi, 0} : attn__range_all(s->type);
}

static attn__range range_load(const attn_graph *g, const attn__node *node, const attn__box *box,
                              const attn__range *index) {
    const attn__symbol *const s = &g->symbol[node->sym];
    const attn__bound *const t = box->bound ? &box->bound[node->sym] : NULL;
    int64_t first[ATTN__MAX_RANK], last[ATTN__MAX_RANK];
    int outside = !t;
    attn__range r = declared(s);
    if (t) {
        const double count = reach(t, node->n, index, first, last, &outside);
        if (count == 0) {
            return single(0);
        }
        if (t->data && count <= MOST_ELEMENTS) {
            r = look_up(s, t, node->n, first, last);
        }
    }
    if (outside || !t->data) { /* a run may bring less than its plan says */
        include(&r, 0);
    }
    return r;
}

static attn__range range_param(const attn_graph *g, const attn__node *node, const attn__box *box) {
    const attn__bound *const p = box->bound ? &box->bound[node->sym] : NULL;
    if (!p || !p->type) {
        return declared(&g->symbol[node->sym]);
    }
    return single(node->type == VT_F32 ? (double)p->f : p->i);
}

/* -- Nodes ------------------------------------------------------------------------------------- */

attn__range attn__range_node(const attn_graph *g, int n, const attn__box *box,
                             const attn__range *arg) {
    const attn__node *const node = &g->node[n];
    switch (node->op) {
    case OP_leaf: return box->leaf[node->sym];
    case OP_const: return single(node->type == VT_F32 ? (double)node->u.value.f : node->u.value.i);
    case OP_param: return range_param(g, node, box);
    case OP_load: return range_load(g, node, box, arg);
    default: return attn__interval(node->op, g->node[node->u.arg[0]].type, arg);
    }
}

/* The exact range of one node from those of its arguments in `range`. */
static attn__range from_arguments(const attn_graph *g, int n, const attn__box *box,
                                  const attn__range *range) {
    const attn__node *const node = &g->node[n];
    attn__range arg[ATTN__MAX_RANK];
    for (int i = 0; attn__has_args(node) && i < node->n; i++) {
        arg[i] = range[node->u.arg[i]];
    }
    return attn__range_node(g, n, box, arg);
}

void attn__ranges(const attn_graph *g, int root, const attn__box *box, attn__range *range) {
    for (int i = 0; i <= root; i++) {
        attn__range r = from_arguments(g, i, box, range);
        if (box->no_overflow && g->node[i].type == VT_I32) {
            r.lo = fmin(fmax(r.lo, INT32_MIN), INT32_MAX);
            r.hi = fmin(fmax(r.hi, INT32_MIN), INT32_MAX);
        }
        range[i] = attn__range_wrap(g->node[i].type, r);
    }
}

/* How to compute the operation in f32: a constant with a fraction, or the promotion of an operand
   that is not one already. */
static int advise(const attn_graph *g, int n, char *advice, size_t capacity) {
    const attn__node *const node = &g->node[n];
    advice[0] = 0;
    for (int i = node->n - 1; attn__has_args(node) && node->op != OP_load && i >= 0; i--) {
        const attn__node *const arg = &g->node[node->u.arg[i]];
        char *text = NULL;
        ATTN_TRY(attn__print_node(g, node->u.arg[i], &text));
        if (arg->op == OP_const) {
            const char *const x = text + (node->op == OP_add && text[0] == '-'); /* x + -1: x - 1 */
            snprintf(advice, capacity, ": write %.20s.0 for %.20s", x, x);
            i = 0;
        } else if (i == 0) {
            snprintf(advice, capacity, ": write float(%.60s)%s", text,
                     strlen(text) > 60 ? " ..." : "");
        }
        free(text);
    }
    return ATTN_OK;
}

static int overflow(const attn_graph *g, int n, const attn__range *r) {
    char *text = NULL, advice[128];
    ATTN_TRY(advise(g, n, advice, sizeof advice));
    ATTN_TRY(attn__print_node(g, n, &text));
    const int status = attn__fail(ATTN_VARIANT, "variant",
                                  "the i32 expression `%.200s` may reach %.0f to %.0f, beyond i32; "
                                  "declare bounds for what it reads, or compute it in f32%s",
                                  text, r->lo, r->hi, advice);
    free(text);
    return status;
}

size_t attn__overflow_scratch(const attn_graph *g) {
    return (size_t)g->n * (sizeof(attn__range) + sizeof(uint8_t));
}

int attn__check_overflow(const attn_graph *g, int root, const attn__box *box, void *scratch) {
    attn__range *const range = (attn__range *)scratch;
    uint8_t *const need = (uint8_t *)(range + g->n);
    const int32_t roots[] = {root};
    attn__need(g, roots, 1, need);
    for (int i = 0; i <= root; i++) {
        const attn__range r = from_arguments(g, i, box, range);
        range[i] = attn__range_wrap(g->node[i].type, r);
        if (need[i] && g->node[i].type == VT_I32 && !attn__range_fits(&r)) {
            return overflow(g, i, &r);
        }
    }
    return ATTN_OK;
}
