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
#include <string.h>

typedef struct place {
    const attn_device *device;
    char arg[ATTN__NAME + 16]; /* "captures.slopes" */
    const attn__symbol *symbol;
} place;

static int fits(int vt, int type) {
    switch (vt) {
    case VT_F32: return type == ATTN_F32 || type == ATTN_F16 || type == ATTN_BF16;
    case VT_I32: return type == ATTN_I32;
    default: return type == ATTN_BOOL || type == ATTN_U8;
    }
}

static const char *wanted(int vt) {
    return vt == VT_F32 ? "f32, f16 and bf16 are" : vt == VT_I32 ? "i32 is" : "bool and u8 are";
}

static int bind_grad(const place *at, const attn_capture *c, int planning, attn__bound *to) {
    const attn_tensor *const g = c->grad, *const v = c->value;
    char arg[sizeof at->arg + 8];
    snprintf(arg, sizeof arg, "%s.grad", at->arg);
    if (at->symbol->type != VT_F32) {
        return attn__fail(ATTN_DTYPE, arg,
                          "%s is given, but %s is no f32 symbol and has no gradient", arg,
                          at->symbol->name);
    }
    ATTN_TRY(attn__tensor_check(at->device, g, arg, planning));
    if (attn__type_of(g) != ATTN_F32) {
        return attn__fail(ATTN_DTYPE, arg, "%s is %s; f32 is allowed", arg,
                          attn__type_name(attn__type_of(g)));
    }
    int64_t count = 1;
    int same = g->ndim <= ATTN__MAX_RANK && (!v || g->ndim == v->ndim);
    for (int i = 0; same && i < g->ndim; i++) {
        same = g->shape[i] == (v ? v->shape[i] : 1);
        to->gst[i] = attn__stride(g, i);
        count *= g->shape[i];
    }
    if (!same) {
        return attn__fail(ATTN_SHAPE, arg, "%s does not have %s", arg,
                          v ? "the shape of its value" : "one element, as its parameter does");
    }
    ATTN_TRY(attn__check_steps(arg, g->ndim, g->shape, to->gst));
    to->has_grad = 1;
    if (!planning && count) {
        to->grad = (float *)((char *)g->data + g->byte_offset);
        if ((uintptr_t)to->grad % sizeof *to->grad) {
            return attn__fail(ATTN_LAYOUT, arg, "%s lies at %p; a multiple of 4 bytes is allowed",
                              arg, (void *)to->grad);
        }
    }
    return ATTN_OK;
}

static int bind_number(const place *at, double number, attn__bound *to) {
    to->type = at->symbol->type == VT_F32 ? ATTN_F32 : ATTN_I32;
    to->f = (float)number;
    if (at->symbol->type == VT_F32 && isfinite(number) && isinf(to->f)) {
        return attn__fail(ATTN_CAPTURE, at->arg, "%s is %g, which does not fit f32", at->arg,
                          number);
    }
    if (at->symbol->type == VT_BOOL) {
        to->type = ATTN_BOOL;
        to->i = number != 0;
    } else if (at->symbol->type == VT_I32) {
        if (!(number >= INT32_MIN && number <= INT32_MAX) || number != floor(number)) {
            return attn__fail(ATTN_CAPTURE, at->arg, "%s is %g; %s is an i32 parameter", at->arg,
                              number, at->symbol->name);
        }
        to->i = attn__clamp((int32_t)number, at->symbol);
    }
    return ATTN_OK;
}

static int bind_tensor(const place *at, const attn_tensor *t, int planning, attn__bound *to) {
    const attn__symbol *const s = at->symbol;
    const int type = attn__type_of(t);
    ATTN_TRY(attn__tensor_check(at->device, t, at->arg, planning));
    if (!fits(s->type, type)) {
        return attn__fail(ATTN_DTYPE, at->arg, "%s is %s; for this symbol %s allowed", at->arg,
                          attn__type_name(type), wanted(s->type));
    }
    if (t->ndim > ATTN__MAX_RANK || (s->rank && t->ndim != s->rank)) {
        return attn__fail(ATTN_SHAPE, at->arg,
                          "%s has rank %d; the variant reads it with %d indices", at->arg, t->ndim,
                          s->rank);
    }
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++) {
        to->n[i] = t->shape[i];
        to->st[i] = attn__stride(t, i);
        count *= t->shape[i];
    }
    if (s->rank == 0 && count != 1) {
        return attn__fail(ATTN_SHAPE, at->arg, "%s has %lld elements; a parameter has one", at->arg,
                          (long long)count);
    }
    const char *const data = planning || !count ? NULL : (const char *)t->data + t->byte_offset;
    if (s->rank == 0) {
        char element[8];
        if (planning) {
            return ATTN_OK;
        }
        if (at->device) { /* of a chip with its own memory this waits */
            ATTN_TRY(
                attn__device_read(at->device, element, data, (uint64_t)attn__type_bytes(type)));
        } else {
            memcpy(element, data, (size_t)attn__type_bytes(type));
        }
        return bind_number(at, attn__get(element, type), to);
    }
    if (at->device && at->device->driver && (uintptr_t)data % (unsigned)attn__type_bytes(type)) {
        return attn__fail(ATTN_LAYOUT, at->arg,
                          "%s lies at %p; device %s allows multiples of %d bytes", at->arg,
                          (const void *)data, at->device->name, attn__type_bytes(type));
    }
    to->type = type;
    to->data = data;
    return ATTN_OK;
}

static int bind_one(const place *at, const attn_capture *c, int planning, attn__bound *to) {
    if (c->value) {
        ATTN_TRY(bind_tensor(at, c->value, planning, to));
    } else if (at->symbol->rank) {
        return attn__fail(ATTN_CAPTURE, at->arg,
                          "%s has no value; the variant reads a tensor of "
                          "rank %d",
                          at->arg, at->symbol->rank);
    } else {
        ATTN_TRY(bind_number(at, c->number, to));
    }
    return c->grad ? bind_grad(at, c, planning, to) : ATTN_OK;
}

int attn__bind(const attn_device *device, const attn_variant *v, const attn_capture *captures,
               int64_t n, int planning, attn__bound *bound) {
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
        place at = {.device = device};
        snprintf(at.arg, sizeof at.arg, "captures.%s", name ? name : "");
        if (symbol < 0) {
            return attn__fail(ATTN_CAPTURE, at.arg,
                              "captures[%lld] is named \"%s\"; the variant "
                              "reads nothing of that name",
                              (long long)i, name ? name : "");
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
