/* copy.c: attn_tensor_copy, a strided copy with conversion.

   Who calls it: the public API; Lua's tensors for :to, :copy and every read and write of elements.
   Row by row: equal types by their bits, others by pieces of f32, or one by one in double where f32
   would not be exact. Memory may have any alignment. Memory that is not the host's comes by stage.h
   and goes back so, unless the driver can copy as it is. */
#include "stage.h"

#include <string.h>

enum { MOST_RANK = ATTN__AXES, PIECE = 256, PART = 8 << 20 };

typedef struct run {
    int to_type, from_type;
    int64_t n, to_step, from_step; /* elements */
} run;

static int exact_in_f32(int type) {
    return type != ATTN_F64 && type != ATTN_I32;
}

static void copy_bits(const run *r, char *to, const char *from) {
    const int64_t bytes = attn__type_bytes(r->to_type);
    if (r->to_step == 1 && r->from_step == 1) {
        memcpy(to, from, (size_t)(r->n * bytes));
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        memcpy(to + i * r->to_step * bytes, from + i * r->from_step * bytes, (size_t)bytes);
    }
}

static void copy_run(const run *r, char *to, const char *from) {
    const int64_t tb = attn__type_bytes(r->to_type), fb = attn__type_bytes(r->from_type);
    if (r->to_type == r->from_type) {
        copy_bits(r, to, from);
    } else if (exact_in_f32(r->from_type)) {
        float piece[PIECE];
        for (int64_t i = 0; i < r->n; i += PIECE) {
            const int64_t n = r->n - i < PIECE ? r->n - i : PIECE;
            attn__load_f32(piece, from + i * r->from_step * fb, r->from_type, n, r->from_step);
            attn__store_f32(to + i * r->to_step * tb, r->to_type, r->to_step, piece, n);
        }
    } else {
        for (int64_t i = 0; i < r->n; i++) {
            attn__set(to + i * r->to_step * tb, r->to_type,
                      attn__get(from + i * r->from_step * fb, r->from_type));
        }
    }
}

static int check_shapes(const attn_tensor *to, const attn_tensor *from) {
    if (to->ndim > MOST_RANK) {
        return attn__fail(ATTN_SHAPE, "to", "to has rank %d; 0 to %d is allowed", to->ndim,
                          MOST_RANK);
    }
    if (to->ndim != from->ndim) {
        return attn__fail(ATTN_SHAPE, "from", "from has rank %d; %d is wanted, as to has",
                          from->ndim, to->ndim);
    }
    int64_t st[MOST_RANK];
    for (int i = 0; i < to->ndim; i++) {
        st[i] = attn__stride(to, i);
        if (to->shape[i] != from->shape[i]) {
            return attn__fail(ATTN_SHAPE, "from",
                              "from has extent %lld on axis %d; %lld is wanted, as to has",
                              (long long)from->shape[i], i, (long long)to->shape[i]);
        }
    }
    return attn__check_steps("to", to->ndim, to->shape, st);
}

typedef struct span {
    char *first; /* the element with index 0 everywhere */
    char *lo, *hi;
} span;

static span span_of(const attn_tensor *t) {
    const int64_t bytes = attn__type_bytes(attn__type_of(t));
    span s;
    s.first = s.lo = (char *)t->data + t->byte_offset;
    s.hi = s.first + bytes;
    for (int i = 0; i < t->ndim; i++) {
        const int64_t step = (t->shape[i] - 1) * attn__stride(t, i) * bytes;
        *(step < 0 ? &s.lo : &s.hi) += step;
    }
    return s;
}

static int same_view(const attn_tensor *a, const attn_tensor *b) {
    int same = attn__type_of(a) == attn__type_of(b) && span_of(a).first == span_of(b).first;
    for (int i = 0; i < a->ndim; i++) {
        same &= a->shape[i] < 2 || attn__stride(a, i) == attn__stride(b, i);
    }
    return same;
}

/* Neither is empty. */
static int check_apart(const attn_tensor *to, const attn_tensor *from) {
    const span a = span_of(to), b = span_of(from);
    if (a.lo < b.hi && b.lo < a.hi) {
        return attn__fail(ATTN_LAYOUT, "to",
                          "to lies at %p to %p and from at %p to %p; apart or the same view is "
                          "allowed",
                          (void *)a.lo, (void *)a.hi, (void *)b.lo, (void *)b.hi);
    }
    return ATTN_OK;
}

/* All in host memory, not empty. */
static void copy_near(const attn_tensor *to, const attn_tensor *from) {
    run r = {attn__type_of(to), attn__type_of(from), 1, 1, 1};
    if (to->ndim > 0) {
        const int last = to->ndim - 1;
        r.n = to->shape[last];
        r.to_step = attn__stride(to, last);
        r.from_step = attn__stride(from, last);
    }
    char *t = span_of(to).first, *f = span_of(from).first;
    int64_t to_at[MOST_RANK] = {0}, from_at[MOST_RANK] = {0};
    do {
        copy_run(&r, t, f);
        attn__next_row(from, from_at, &f);
    } while (attn__next_row(to, to_at, &t));
}

static int copy_part(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                     void *stream) {
    attn__near t, f;
    ATTN_TRY(attn__stage_in(device, from, 1, stream, &f));
    int status = attn__stage_in(device, to, 0, stream, &t);
    if (status == ATTN_OK) {
        copy_near(&t.own.t, &f.own.t);
        status = attn__stage_out(device, to, stream, &t);
    }
    attn__stage_drop(&f);
    return status;
}

static int copy_far(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                    void *stream) {
    attn__part part;
    attn__own t, f;
    if (attn__type_of(to) == attn__type_of(from)) {
        const int status = attn__stage_direct(device, to, from, stream);
        if (status != 0) {
            return status < 0 ? status : ATTN_OK;
        }
    }
    attn__part_first(&part, to->ndim, to->shape, PART);
    do {
        attn__part_of(&part, to, &t);
        attn__part_of(&part, from, &f);
        ATTN_TRY(copy_part(device, &t.t, &f.t, stream));
    } while (attn__part_next(&part));
    return ATTN_OK;
}

int attn_tensor_copy(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                     void *stream) {
    ATTN_TRY(attn__device_check(device));
    ATTN_TRY(attn__stream_check(device, stream));
    ATTN_TRY(attn__tensor_check_either(device, to, "to"));
    ATTN_TRY(attn__tensor_check_either(device, from, "from"));
    ATTN_TRY(check_shapes(to, from));
    for (int i = 0; i < to->ndim; i++) {
        if (to->shape[i] == 0) {
            return ATTN_OK;
        }
    }
    const int to_far = attn__is_far(device, to), from_far = attn__is_far(device, from);
    if (to_far == from_far) {
        if (same_view(to, from)) {
            return ATTN_OK;
        }
        ATTN_TRY(check_apart(to, from));
    }
    if (to_far || from_far) {
        return copy_far(device, to, from, stream);
    }
    copy_near(to, from);
    return ATTN_OK;
}
