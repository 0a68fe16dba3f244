/* tensor.c: one attn_tensor, checked and read into a view.

   Who calls it: problem.c and merge.c for the tensors of a call, copy.c for any. Extents are
   compared with each other by the caller; here a tensor is judged alone. */
#include "attn_int.h"

#include <stdio.h>
#include <string.h>

enum { HOST = 1 }; /* DLPack's number */

int64_t attn__stride(const attn_tensor *t, int axis) {
    if (t->strides) {
        return t->strides[axis];
    }
    int64_t compact = 1;
    for (int i = axis + 1; i < t->ndim; i++) {
        compact *= t->shape[i];
    }
    return compact;
}

static uint64_t magnitude(int64_t x) {
    return x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
}

/* Every extent in 0..2^31-1, every offset within 2^62 bytes. */
static int check_extents(const attn_tensor *t, const char *name, int bytes) {
    int64_t reach = 0, count = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0 || t->shape[i] > INT32_MAX) {
            return attn__fail(ATTN_SHAPE, name,
                              "%s has extent %lld on axis %d; 0 to 2^31 - 1 is allowed", name,
                              (long long)t->shape[i], i);
        }
        if (t->shape[i] && __builtin_mul_overflow(count, t->shape[i], &count)) {
            return attn__fail(ATTN_SHAPE, name, "%s has more than 2^62 bytes", name);
        }
    }
    int64_t total = 0;
    int bad = __builtin_mul_overflow(count, bytes, &total) || total > INT64_MAX / 2;
    for (int i = 0; i < t->ndim && !bad; i++) {
        int64_t span = 0;
        bad = t->shape[i] > 1 &&
              (__builtin_mul_overflow(t->shape[i] - 1, magnitude(attn__stride(t, i)), &span) ||
               __builtin_add_overflow(reach, span, &reach) || reach > INT64_MAX / 2 / bytes);
    }
    return bad ? attn__fail(ATTN_LAYOUT, name, "%s reaches further than 2^62 bytes", name)
               : ATTN_OK;
}

int attn__tensor_check(const attn_device *device, const attn_tensor *t, const char *name,
                       int planning) {
    if (!t) {
        return attn__fail(ATTN_INVALID, name, "%s is NULL; a tensor is wanted", name);
    }
    const int bytes = attn__type_bytes(attn__type_of(t));
    if (bytes == 0 || t->dtype.lanes > 1) {
        return attn__fail(ATTN_DTYPE, name,
                          "%s has dtype code %d with %d bits and %d lanes, which is no "
                          "attn_type",
                          name, t->dtype.code, t->dtype.bits, t->dtype.lanes);
    }
    if (t->ndim < 0 || (t->ndim > 0 && !t->shape)) {
        return attn__fail(ATTN_SHAPE, name, "%s has rank %d and %s", name, t->ndim,
                          t->shape ? "a shape; 0 or more is allowed" : "no shape");
    }
    const int type = (int)t->device.device_type, id = (int)t->device.device_id;
    const int kind = device ? device->kind : HOST, index = device ? device->index : 0;
    if (type != 0 && (type != kind || id != index)) {
        return attn__fail(ATTN_DEVICE, name, "%s is on DLPack device %d:%d; %s is %d:%d", name,
                          type, id, device ? device->name : "host memory", kind, index);
    }
    ATTN_TRY(check_extents(t, name, bytes));
    int empty = 0;
    for (int i = 0; i < t->ndim; i++) {
        empty |= t->shape[i] == 0;
    }
    if (!planning && !t->data && !empty) {
        return attn__fail(ATTN_INVALID, name, "%s has no memory: its data is NULL", name);
    }
    return ATTN_OK;
}

int attn__check_steps(const char *name, int rank, const int64_t *n, const int64_t *st) {
    uint64_t reach = 0, last = 0;
    int done = 0;
    for (int i = 0; i < rank; i++) {
        if (n[i] == 0) {
            return ATTN_OK;
        }
    }
    while (done < rank) { /* the axes of the next larger stride */
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < rank; i++) {
            const uint64_t step = magnitude(st[i]);
            next = (step > last || done == 0) && step < next ? step : next;
        }
        for (int i = 0; i < rank; i++) {
            if (magnitude(st[i]) == next) {
                if (n[i] > 1 && next <= reach) {
                    return attn__fail(ATTN_LAYOUT, name,
                                      "%s is written, and its strides may put two elements in one "
                                      "place: stride %lld must step over the %llu that smaller "
                                      "strides reach",
                                      name, (long long)st[i], (unsigned long long)reach);
                }
                reach += next * (uint64_t)(n[i] - 1);
                done++;
            }
        }
        last = next;
    }
    return ATTN_OK;
}

static int check_type(const attn_tensor *t, const attn__want *want) {
    const int type = attn__type_of(t);
    char allowed[96] = "";
    size_t n = 0;
    for (const int *a = want->types; *a; a++) {
        if (*a == type) {
            return ATTN_OK;
        }
        n += (size_t)snprintf(allowed + n, sizeof allowed - n, "%s%s", n ? ", " : "",
                              attn__type_name(*a));
    }
    return attn__fail(ATTN_DTYPE, want->name, "%s is %s; %s %s allowed here", want->name,
                      attn__type_name(type), allowed, want->types[1] ? "are" : "is");
}

int attn__tensor_view(const attn_device *device, const attn_tensor *t, const attn__want *want,
                      int planning, attn__view *view) {
    const char *const name = want->name;
    ATTN_TRY(attn__tensor_check(device, t, name, planning));
    ATTN_TRY(check_type(t, want));
    const int rank = (int)strlen(want->axes);
    if (t->ndim != rank) {
        return attn__fail(ATTN_SHAPE, name, "%s has rank %d; %s is wanted", name, t->ndim,
                          want->shape);
    }
    *view = (attn__view){.type = attn__type_of(t), .n = {1, 1, 1, 1}};
    view->bytes = attn__type_bytes(view->type);
    int empty = 0;
    for (int i = 0; i < rank; i++) {
        const int axis = (int)(strchr("bhnd", want->axes[i]) - "bhnd");
        view->n[axis] = t->shape[i];
        view->st[axis] = attn__stride(t, i);
        empty |= t->shape[i] == 0;
    }
    if (rank > 0 && t->shape[rank - 1] > 1 && attn__stride(t, rank - 1) != 1) {
        return attn__fail(ATTN_LAYOUT, name, "%s has stride %lld on its last axis; 1 is allowed",
                          name, (long long)attn__stride(t, rank - 1));
    }
    if (want->output) {
        ATTN_TRY(attn__check_steps(name, 4, view->n, view->st));
    }
    if (!planning && !empty) {
        view->data = (char *)t->data + t->byte_offset;
        if ((uintptr_t)view->data % (unsigned)view->bytes) {
            return attn__fail(ATTN_LAYOUT, name, "%s lies at %p; a multiple of %d bytes is allowed",
                              name, (void *)view->data, view->bytes);
        }
    }
    return ATTN_OK;
}

int attn__next_row(const attn_tensor *t, int64_t *index, char **at) {
    const int bytes = attn__type_bytes(attn__type_of(t));
    for (int i = t->ndim - 2; i >= 0; i--) {
        const int64_t st = attn__stride(t, i) * bytes;
        if (++index[i] < t->shape[i]) {
            *at += st;
            return 1;
        }
        *at -= st * (t->shape[i] - 1);
        index[i] = 0;
    }
    return 0;
}
