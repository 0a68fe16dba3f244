/* stage.c: parts of tensors, and copies of them between the host's memory and a device's; see
   stage.h.

   A strided tensor becomes rows for the driver: axes are taken from the smallest stride up,

       run     bytes that follow each other on both sides: axes merged while they do
       rows    of the axes left, the one with most entries: one driver call
       loop    the others, a call for each of their entries */
#include "stage.h"

#include <stdlib.h>
#include <string.h>

#include "gpu.h"

enum { HOST = 1, FEW = 64 };

int attn__tensor_check_either(const attn_device *device, const attn_tensor *t, const char *name) {
    const int host = t && device->kind != HOST && (int)t->device.device_type == HOST;
    return attn__tensor_check(host ? NULL : device, t, name, 0);
}

/* -- Parts ------------------------------------------------------------------------------------- */

int attn__part_first(attn__part *part, int rank, const int64_t *shape, int64_t most) {
    int64_t inner = 1;
    *part = (attn__part){.rank = rank, .split = rank};
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            return 0;
        }
        part->whole[i] = shape[i];
        part->n[i] = 1;
    }
    while (part->split > 0 && inner <= most) {
        const int axis = --part->split;
        const int64_t fit = most / inner > 1 ? most / inner : 1;
        part->n[axis] = part->step = fit < shape[axis] ? fit : shape[axis];
        if (fit < shape[axis]) {
            break;
        }
        inner *= shape[axis];
    }
    return 1;
}

int attn__part_next(attn__part *part) {
    int64_t count = 1;
    for (int i = 0; i < part->rank; i++) {
        count *= part->n[i];
    }
    part->first += count;
    for (int i = part->split; i >= 0 && i < part->rank; i--) {
        const int64_t step = i == part->split ? part->step : 1;
        part->at[i] += step;
        if (part->at[i] >= part->whole[i]) {
            part->at[i] = 0;
        }
        const int64_t left = part->whole[i] - part->at[i];
        part->n[i] = left < step ? left : step;
        if (part->at[i] > 0) {
            return 1;
        }
    }
    return 0;
}

void attn__part_of(const attn__part *part, const attn_tensor *t, attn__own *of) {
    const int64_t bytes = attn__type_bytes(attn__type_of(t));
    char *at = (char *)t->data + t->byte_offset;
    of->t = *t;
    for (int i = 0; i < t->ndim; i++) {
        of->strides[i] = attn__stride(t, i);
        of->shape[i] = part->n[i];
        at += part->at[i] * of->strides[i] * bytes;
    }
    of->t.data = at;
    of->t.byte_offset = 0;
    of->t.shape = of->shape;
    of->t.strides = of->strides;
}

/* -- Strides to rows --------------------------------------------------------------------------- */

/* Strides and pitches in bytes, all of them positive. */
typedef struct axis {
    int64_t n, to, from;
} axis;
typedef struct rows {
    char *to, *from;
    int to_is_host, from_is_host;
    int64_t run;
    axis rows, loop[ATTN__AXES];
    int loops;
    int64_t calls;
} rows;

/* Axes with more than one entry, from the smallest stride of `to` up; -1 where a stride is 0 or
   runs against the other one. */
static int sorted_axes(const attn_tensor *to, const attn_tensor *from, rows *r, axis *axes) {
    const int64_t bytes = attn__type_bytes(attn__type_of(to));
    int m = 0;
    for (int i = 0; i < to->ndim; i++) {
        axis a = {to->shape[i], attn__stride(to, i) * bytes, attn__stride(from, i) * bytes};
        if (a.n == 1) {
            continue;
        }
        if (a.to < 0 && a.from < 0) {
            r->to += (a.n - 1) * a.to;
            r->from += (a.n - 1) * a.from;
            a.to = -a.to;
            a.from = -a.from;
        }
        if (a.to <= 0 || a.from <= 0) {
            return -1;
        }
        int at = m++;
        for (; at > 0 && axes[at - 1].to > a.to; at--) {
            axes[at] = axes[at - 1];
        }
        axes[at] = a;
    }
    return m;
}

/* 0: these strides are no rows. */
static int rows_of(const attn_device *device, const attn_tensor *to, const attn_tensor *from,
                   rows *r) {
    axis axes[ATTN__AXES];
    *r = (rows){.to = (char *)to->data + to->byte_offset,
                .from = (char *)from->data + from->byte_offset,
                .to_is_host = !attn__is_far(device, to),
                .from_is_host = !attn__is_far(device, from),
                .run = attn__type_bytes(attn__type_of(to)),
                .calls = 1};
    const int m = sorted_axes(to, from, r, axes);
    if (m < 0) {
        return 0;
    }
    int i = 0;
    for (; i < m && axes[i].to == r->run && axes[i].from == r->run; i++) {
        r->run *= axes[i].n;
    }
    r->rows = (axis){1, r->run, r->run};
    for (; i < m; i++) {
        const axis a = axes[i];
        if (a.to < r->run || a.from < r->run) {
            return 0;
        }
        const int pitched = a.to <= INT32_MAX && a.from <= INT32_MAX && r->run <= INT32_MAX;
        if (pitched && a.n > r->rows.n) {
            if (r->rows.n > 1) {
                r->loop[r->loops++] = r->rows;
            }
            r->rows = a;
        } else {
            r->loop[r->loops++] = a;
        }
    }
    for (int l = 0; l < r->loops; l++) {
        r->calls *= r->loop[l].n;
    }
    return 1;
}

static int copy_rows(attn_device *device, const rows *r, void *stream) {
    int64_t index[ATTN__AXES] = {0};
    attn__rows to = {r->to, r->rows.to, r->to_is_host};
    attn__rows from = {r->from, r->rows.from, r->from_is_host};
    char *t = r->to, *f = r->from;
    for (;;) {
        int l = 0;
        to.at = t;
        from.at = f;
        ATTN_TRY(device->driver->copy_rows(device->chip, &to, &from, (uint64_t)r->run,
                                           (uint64_t)r->rows.n, stream));
        for (; l < r->loops; l++) {
            const axis *const a = &r->loop[l];
            t += a->to;
            f += a->from;
            if (++index[l] < a->n) {
                break;
            }
            index[l] = 0;
            t -= a->n * a->to;
            f -= a->n * a->from;
        }
        if (l == r->loops) {
            return ATTN_OK;
        }
    }
}

int attn__stage_direct(attn_device *device, const attn_tensor *to, const attn_tensor *from,
                       void *stream) {
    rows r;
    if (!rows_of(device, to, from, &r) || r.calls > FEW ||
        (r.run < FEW && r.rows.n * r.calls > FEW)) {
        return 0;
    }
    const int status = copy_rows(device, &r, stream);
    return status < 0 ? status : 1;
}

/* -- Stages ------------------------------------------------------------------------------------ */

/* Gives `near` the far tensor's order, without its gaps; or, where elements share memory, its very
   strides. Returns the elements of memory; *first is where element 0 stands. */
static int64_t arrange(const attn_tensor *far, attn__own *near, int64_t *first, int *shared) {
    int order[ATTN__AXES], m = 0;
    int64_t reach = 0, dense = 1;
    *shared = 0;
    for (int i = 0; i < far->ndim; i++) {
        near->shape[i] = far->shape[i];
        near->strides[i] = attn__stride(far, i);
        if (near->shape[i] > 1 && near->strides[i] != 0) {
            int at = m++;
            for (; at > 0 && llabs(near->strides[order[at - 1]]) > llabs(near->strides[i]); at--) {
                order[at] = order[at - 1];
            }
            order[at] = i;
        }
    }
    for (int j = 0; j < m; j++) {
        const int64_t step = llabs(near->strides[order[j]]);
        *shared |= step <= reach;
        reach += step * (near->shape[order[j]] - 1);
    }
    *first = 0;
    for (int j = 0; j < m; j++) {
        const int i = order[j];
        const int backwards = near->strides[i] < 0;
        if (!*shared) {
            near->strides[i] = backwards ? -dense : dense;
            dense *= near->shape[i];
        }
        *first += backwards ? (near->shape[i] - 1) * -near->strides[i] : 0;
    }
    return *shared ? reach + 1 : dense;
}

/* The far tensor and its stage as the driver copies them: an axis that stays in place has one
   entry, and shared elements are one run. */
static void as_rows(const attn_tensor *t, const attn_tensor *far, int64_t elements, int64_t first,
                    int shared, attn__own *of) {
    const int64_t bytes = attn__type_bytes(attn__type_of(t));
    of->t = *t;
    for (int i = 0; i < t->ndim; i++) {
        of->shape[i] = attn__stride(far, i) == 0 ? 1 : t->shape[i];
        of->strides[i] = attn__stride(t, i);
    }
    of->t.shape = of->shape;
    of->t.strides = of->strides;
    if (shared) {
        of->t.ndim = 1;
        of->t.data = (char *)t->data + t->byte_offset - first * bytes;
        of->t.byte_offset = 0;
        of->shape[0] = elements;
        of->strides[0] = 1;
    }
}

static int move(attn_device *device, const attn_tensor *far, const attn__near *near, int out,
                void *stream) {
    attn__own a, b;
    rows r;
    as_rows(far, far, near->elements, near->first, near->shared, &a);
    as_rows(&near->own.t, far, near->elements, near->first, near->shared, &b);
    if (!rows_of(device, out ? &a.t : &b.t, out ? &b.t : &a.t, &r)) {
        return attn__fail(ATTN_LAYOUT, "tensor", "its strides cannot be copied");
    }
    return copy_rows(device, &r, stream);
}

int attn__stage_in(attn_device *device, const attn_tensor *t, int fetch, void *stream,
                   attn__near *near) {
    near->memory = NULL;
    near->own.t = *t;
    if (!attn__is_far(device, t)) {
        return ATTN_OK;
    }
    const int64_t bytes = attn__type_bytes(attn__type_of(t));
    near->elements = arrange(t, &near->own, &near->first, &near->shared);
    near->memory = attn__alloc((size_t)(near->elements * bytes), "a stage in host memory");
    if (!near->memory) {
        return ATTN_MEMORY;
    }
    near->own.t.data = (char *)near->memory + near->first * bytes;
    near->own.t.byte_offset = 0;
    near->own.t.device.device_type = HOST;
    near->own.t.device.device_id = 0;
    near->own.t.shape = near->own.shape;
    near->own.t.strides = near->own.strides;
    const int status = fetch ? move(device, t, near, 0, stream) : ATTN_OK;
    if (status < 0) {
        attn__stage_drop(near);
    }
    return status;
}

int attn__stage_out(attn_device *device, const attn_tensor *t, void *stream, attn__near *near) {
    const int status = near->memory ? move(device, t, near, 1, stream) : ATTN_OK;
    attn__stage_drop(near);
    return status;
}

void attn__stage_drop(attn__near *near) {
    free(near->memory);
    near->memory = NULL;
}
