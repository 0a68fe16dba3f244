/* bind.c: gives every tensor and parameter that a variant reads its value.

   Who calls it: problem.c for a plan and a run, sample.c. Every symbol needs exactly one capture of
   its name, and every capture a symbol. What fits:

       symbol   value                      rank               gradient
       f32      f32, f16, bf16             that of the        f32, the shape of value, no two
       i32      i32                        symbol; for a      elements in one place
       bool     bool, u8 (not 0: true)     parameter one      none
                                           element or number                                      */
#include "expr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct place {
    char arg[ATTN__NAME + 16]; /* "captures.slopes" */
    const attn__symbol *symbol;
} place;

static int fits(int vt, int type) {
    switch (vt) {
    case VT_F32:
        return type == ATTN_F32 || type == ATTN_F16 || type == ATTN_BF16;
    case VT_I32:
        return type == ATTN_I32;
    default:
        return type == ATTN_BOOL || type == ATTN_U8;
    }
}

static const char *wanted(int vt) {
    return vt == VT_F32 ? "f32, f16 and bf16" : vt == VT_I32 ? "i32" : "bool and u8";
}

/* Strides of a tensor, the compact ones written out; fails if an offset passes 2^62 bytes. */
static int strides_of(const char *arg, const attn_tensor *t, int64_t *st) {
    int64_t compact = 1, reach = 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        st[i] = t->strides ? t->strides[i] : compact;
        int64_t span;
        if (t->shape[i] < 0) {
            return attn__fail(ATTN_SHAPE, arg, "%s has extent %lld on axis %d; 0 or more is allowed",
                              arg, (long long)t->shape[i], i);
        }
        const int64_t steps = t->shape[i] > 0 ? t->shape[i] - 1 : 0;
        const int64_t step = st[i] == INT64_MIN ? INT64_MAX : st[i] < 0 ? -st[i] : st[i];
        if (__builtin_mul_overflow(steps, step, &span) ||
            __builtin_add_overflow(reach, span, &reach) || reach > INT64_MAX / 16 ||
            __builtin_mul_overflow(compact, t->shape[i], &compact)) {
            return attn__fail(ATTN_LAYOUT, arg, "%s spans more than 2^62 bytes", arg);
        }
    }
    return ATTN_OK;
}

/* Sorted by stride, each must step over everything that the smaller ones reach. */
static int overlaps(const attn_tensor *t, const int64_t *st) {
    int64_t reach = 0;
    int done[ATTN__MAX_RANK] = {0};
    for (int round = 0; round < t->ndim; round++) {
        int next = -1;
        for (int i = 0; i < t->ndim; i++) {
            if (!done[i] && (next < 0 || llabs(st[i]) < llabs(st[next]))) {
                next = i;
            }
        }
        done[next] = 1;
        if (t->shape[next] == 0) {
            return 0;
        }
        if (t->shape[next] > 1) {
            if (llabs(st[next]) <= reach) {
                return 1;
            }
            reach += llabs(st[next]) * (t->shape[next] - 1);
        }
    }
    return 0;
}

static int on_host(const char *arg, const attn_tensor *t) {
    if (t->device.device_type > 1) {
        return attn__fail(ATTN_DEVICE, arg, "%s is on device %d:%d; host memory is wanted", arg,
                          t->device.device_type, t->device.device_id);
    }
    return ATTN_OK;
}

static int bind_grad(const place *at, const attn_capture *c, int planning, attn__bound *to) {
    const attn_tensor *const g = c->grad, *const v = c->value;
    char arg[sizeof at->arg + 8];
    snprintf(arg, sizeof arg, "%s.grad", at->arg);
    if (at->symbol->type != VT_F32) {
        return attn__fail(ATTN_DTYPE, arg, "%s is given, but %s is no f32 symbol and has no gradient",
                          arg, at->symbol->name);
    }
    if (attn__type_of(g) != ATTN_F32 || g->dtype.lanes > 1) {
        return attn__fail(ATTN_DTYPE, arg, "%s is %s; f32 is allowed", arg,
                          attn__type_name(attn__type_of(g)));
    }
    const int rank = v ? v->ndim : g->ndim;
    int same = g->ndim == rank && rank >= 0 && rank <= ATTN__MAX_RANK;
    for (int i = 0; same && i < rank; i++) {
        same = g->shape[i] == (v ? v->shape[i] : 1);
    }
    if (!same) {
        return attn__fail(ATTN_SHAPE, arg, "%s has not the shape of %s", arg,
                          v ? "its value" : "a parameter: one element");
    }
    ATTN_TRY(on_host(arg, g));
    int64_t st[ATTN__MAX_RANK];
    ATTN_TRY(strides_of(arg, g, st));
    if (overlaps(g, st)) {
        return attn__fail(ATTN_LAYOUT, arg, "%s has strides that put two elements in one place", arg);
    }
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= g->shape[i];
        to->gst[i] = st[i];
    }
    to->has_grad = 1;
    if (planning || count == 0) {
        return ATTN_OK;
    }
    if (!g->data) {
        return attn__fail(ATTN_INVALID, arg, "%s.data is NULL", arg);
    }
    to->grad = (float *)((char *)g->data + g->byte_offset);
    return ATTN_OK;
}

static int bind_number(const place *at, double number, attn__bound *to) {
    to->type = at->symbol->type == VT_F32 ? ATTN_F32 : ATTN_I32;
    to->f = (float)number;
    if (at->symbol->type == VT_BOOL) {
        to->type = ATTN_BOOL;
        to->i = number != 0;
    } else if (at->symbol->type == VT_I32) {
        if (!(number >= INT32_MIN && number <= INT32_MAX) || number != floor(number)) {
            return attn__fail(ATTN_CAPTURE, at->arg, "%s is %g; %s is an i32 parameter", at->arg,
                              number, at->symbol->name);
        }
        to->i = (int32_t)number;
    }
    return ATTN_OK;
}

static int bind_tensor(const place *at, const attn_tensor *t, int planning, attn__bound *to) {
    const attn__symbol *const s = at->symbol;
    const int type = attn__type_of(t);
    if (!fits(s->type, type) || t->dtype.lanes > 1) {
        return attn__fail(ATTN_DTYPE, at->arg, "%s is %s; for this symbol %s are allowed", at->arg,
                          attn__type_name(type), wanted(s->type));
    }
    if (t->ndim < 0 || t->ndim > ATTN__MAX_RANK || (s->rank && t->ndim != s->rank)) {
        return attn__fail(ATTN_SHAPE, at->arg, "%s has rank %d; the variant reads it with %d indices",
                          at->arg, t->ndim, s->rank);
    }
    if (t->ndim && !t->shape) {
        return attn__fail(ATTN_INVALID, at->arg, "%s.shape is NULL", at->arg);
    }
    ATTN_TRY(on_host(at->arg, t));
    int64_t st[ATTN__MAX_RANK], count = 1;
    ATTN_TRY(strides_of(at->arg, t, st));
    for (int i = 0; i < t->ndim; i++) {
        count *= t->shape[i];
    }
    if (s->rank == 0 && count != 1) {
        return attn__fail(ATTN_SHAPE, at->arg, "%s has %lld elements; a parameter has one", at->arg,
                          (long long)count);
    }
    const char *const data = (const char *)t->data + (t->data ? t->byte_offset : 0);
    if (!planning && !t->data && count) {
        return attn__fail(ATTN_INVALID, at->arg, "%s.data is NULL", at->arg);
    }
    if (s->rank == 0) {
        return planning ? ATTN_OK : bind_number(at, attn__get(data, type), to);
    }
    to->type = type;
    to->data = planning ? NULL : data;
    for (int i = 0; i < t->ndim; i++) {
        to->n[i] = t->shape[i];
        to->st[i] = st[i];
    }
    return ATTN_OK;
}

static int bind_one(const place *at, const attn_capture *c, int planning, attn__bound *to) {
    if (c->value) {
        ATTN_TRY(bind_tensor(at, c->value, planning, to));
    } else if (at->symbol->rank) {
        return attn__fail(ATTN_CAPTURE, at->arg, "%s has no value; the variant reads a tensor of "
                          "rank %d", at->arg, at->symbol->rank);
    } else {
        ATTN_TRY(bind_number(at, c->number, to));
    }
    return c->grad ? bind_grad(at, c, planning, to) : ATTN_OK;
}

int attn__bind(const attn_variant *v, const attn_capture *captures, int64_t n, int planning,
               attn__bound *bound) {
    const attn_graph *const g = &v->graph;
    if (n < 0 || (n > 0 && !captures)) {
        return attn__fail(ATTN_INVALID, "captures", "captures is %s with n_captures %lld",
                          captures ? "given" : "NULL", (long long)n);
    }
    uint8_t found[ATTN__MAX_SYMBOLS] = {0};
    if (g->n_symbols) {
        memset(bound, 0, (size_t)g->n_symbols * sizeof *bound);
    }
    for (int64_t i = 0; i < n; i++) {
        const char *const name = captures[i].name;
        const int symbol = name ? attn__symbol_find(g, name) : -1;
        place at;
        snprintf(at.arg, sizeof at.arg, "captures.%s", name ? name : "");
        if (symbol < 0) {
            return attn__fail(ATTN_CAPTURE, at.arg, "captures[%lld] is named \"%s\"; the variant "
                              "reads nothing of that name", (long long)i, name ? name : "");
        }
        if (found[symbol]) {
            return attn__fail(ATTN_CAPTURE, at.arg, "%s is given twice; once is allowed", at.arg);
        }
        found[symbol] = 1;
        at.symbol = &g->symbol[symbol];
        ATTN_TRY(bind_one(&at, &captures[i], planning, &bound[symbol]));
    }
    for (int i = 0; i < g->n_symbols; i++) {
        if (!found[i]) {
            char arg[ATTN__NAME + 16];
            snprintf(arg, sizeof arg, "captures.%s", g->symbol[i].name);
            return attn__fail(ATTN_CAPTURE, arg, "%s is missing; the variant reads it as a %s", arg,
                              g->symbol[i].rank ? "tensor" : "parameter");
        }
    }
    return ATTN_OK;
}
