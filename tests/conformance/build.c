/* build.c: tensors in every layout, variants and captures from text; see suite.h.

       compact    b h n d              swapped   b n h d, so that heads are interleaved
       padded     8 elements behind every row, a row behind every head, ...
       odd        the same with 3 elements, and everything one element further
       reversed   all axes but the last run backwards
       huge       one axis steps so far that the last element lies past 2^31 elements
       same_x     stride 0 along batch, heads or rows (inputs only) */
#include "suite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int complain(char *why, const char *format, ...) {
    if (!why[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(why, WHY, format, args);
        va_end(args);
    }
    return -1;
}

/* -- Tensors ----------------------------------------------------------------------------------- */
int64_t tensor_count(const tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->t.ndim; i++) {
        n *= t->shape[i];
    }
    return n;
}

int64_t tensor_element(const tensor *t, int64_t n) {
    int64_t at = 0;
    for (int i = t->t.ndim - 1; i >= 0; i--) {
        at += n % t->shape[i] * t->strides[i];
        n /= t->shape[i];
    }
    return at;
}

/* order[]: the axes from the slowest to the fastest. Rows and heads change places; axes of captures
   have no letters and are turned round. */
static void storage_order(const tensor *t, int layout, int order[4]) {
    const int rank = t->t.ndim;
    const char *const h = strchr(t->axes, 'h'), *const n = strchr(t->axes, 'n');
    for (int i = 0; i < rank; i++) {
        order[i] = layout == LAYOUT_SWAPPED && t->axes[0] == '?' ? rank - 1 - i : i;
    }
    if (layout == LAYOUT_SWAPPED && h && n && strchr(t->axes, 'd')) {
        order[h - t->axes] = (int)(n - t->axes);
        order[n - t->axes] = (int)(h - t->axes);
    }
}

/* The axis that a huge tensor steps far along: the first with more than one entry, not the last. */
static int far_axis(const tensor *t) {
    for (int i = 0; i < t->t.ndim - 1; i++) {
        if (t->shape[i] > 1) {
            return i;
        }
    }
    return -1;
}

/* Sets strides and byte_offset; returns the elements of memory they need. */
static int64_t lay_out(tensor *t, int layout) {
    const int rank = t->t.ndim;
    const char *const same = layout == LAYOUT_SAME_BATCH  ? "b"
                             : layout == LAYOUT_SAME_HEAD ? "h"
                             : layout == LAYOUT_SAME_ROW  ? "n"
                                                          : "";
    int order[4];
    int64_t step = 1, first = layout == LAYOUT_ODD, reach = 0;
    storage_order(t, layout, order);
    for (int i = rank - 1; i >= 0; i--) {
        const int axis = order[i], fast = i == rank - 1;
        t->strides[axis] = step;
        const int pad = layout == LAYOUT_PADDED ? (fast ? 8 : 1)
                        : layout == LAYOUT_ODD  ? (fast ? 3 : 1)
                                                : 0;
        step *= (t->shape[axis] > 0 ? t->shape[axis] : 1) + pad;
    }
    if (layout == LAYOUT_HUGE) {
        const int axis = far_axis(t);
        if (axis >= 0) {
            t->strides[axis] = (((int64_t)1 << 31) / (t->shape[axis] - 1) | 1) + step;
        } else {
            first = ((int64_t)1 << 31) + 1;
        }
    }
    for (int i = 0; i < rank; i++) {
        const int captured = t->axes[i] == '?' && i == 0 && *same;
        if ((t->axes[i] == *same && i < rank - 1) || captured) {
            t->strides[i] = 0;
        }
        const int64_t span = t->shape[i] > 0 ? (t->shape[i] - 1) * t->strides[i] : 0;
        reach += span;
        if (layout == LAYOUT_REVERSED && (i < rank - 1 || t->axes[0] == '?')) {
            first += span;
            t->strides[i] = -t->strides[i];
        }
    }
    t->t.byte_offset = (uint64_t)first * (t->t.dtype.bits / 8u);
    return (layout == LAYOUT_REVERSED ? reach : first + reach) + 1 + (layout == LAYOUT_ODD ? 2 : 0);
}

int tensor_build(tensor *t, attn_device *device, int type, const char *axes, const int64_t *shape,
                 int layout, int memory, char *why) {
    memset(t, 0, sizeof *t);
    t->device = device;
    t->t.ndim = (int32_t)strlen(axes);
    t->t.dtype = (attn_dtype){(uint8_t)(type & 255), (uint8_t)(type >> 8), 1};
    t->t.shape = t->shape;
    t->t.strides = t->strides;
    snprintf(t->axes, sizeof t->axes, "%s", axes);
    memcpy(t->shape, shape, strlen(axes) * sizeof *shape);
    const int64_t elements = lay_out(t, layout);
    t->bytes = (uint64_t)elements * (t->t.dtype.bits / 8u);
    t->sparse = t->bytes > (uint64_t)1 << 30;
    if (memory) {
        if (attn_buffer_new(device, t->bytes, &t->memory) < 0) {
            return complain(why, "attn_buffer_new: %s", attn_error());
        }
        t->t.data = t->memory;
        return tensor_poison(t, why);
    }
    return 0;
}

void tensor_free(tensor *t) {
    if (t->memory) {
        attn_buffer_release(t->device, t->memory);
    }
    t->memory = NULL;
}

int tensor_copy(const tensor *to, const tensor *from, char *why) {
    attn_tensor source = from->t;
    if (from->device != to->device) {
        source.device = (attn_device_id){1, 0}; /* the oracle's memory is the host's */
    }
    return attn_tensor_copy(to->device, &to->t, &source, NULL) < 0
               ? complain(why, "attn_tensor_copy: %s", attn_error())
               : 0;
}

/* Between a device's bytes and the host's. */
static int raw_copy(const tensor *t, char *host, int to_device, char *why) {
    int64_t bytes = (int64_t)t->bytes;
    const attn_dtype u8 = {1, 8, 1};
    const attn_tensor on_host = {host, {1, 0}, 1, u8, &bytes, NULL, 0};
    const attn_tensor there = {t->memory, {0, 0}, 1, u8, &bytes, NULL, 0};
    const int status = attn_tensor_copy(t->device, to_device ? &there : &on_host,
                                        to_device ? &on_host : &there, NULL);
    if (status < 0 || attn_stream_sync(t->device, NULL) < 0) {
        return complain(why, "copying %lld bytes: %s", (long long)bytes, attn_error());
    }
    return 0;
}

/* What a sparse tensor gets is NaN in its elements alone. */
static int poison_elements(const tensor *t, char *why) {
    float nan = NAN;
    int64_t strides[4] = {0};
    attn_tensor source = t->t;
    source.data = &nan;
    source.device = (attn_device_id){1, 0};
    source.dtype = (attn_dtype){2, 32, 1};
    source.strides = strides;
    source.byte_offset = 0;
    return attn_tensor_copy(t->device, &t->t, &source, NULL) < 0
               ? complain(why, "attn_tensor_copy: %s", attn_error())
               : 0;
}

int tensor_poison(const tensor *t, char *why) {
    if (t->sparse) {
        return t->t.dtype.code == 0 || t->t.dtype.code == 6 ? 0 : poison_elements(t, why);
    }
    char *const bytes = malloc(t->bytes);
    memset(bytes, 0xff, t->bytes);
    const int status = raw_copy(t, bytes, 1, why);
    free(bytes);
    return status;
}

/* A compact host tensor of the same shape. */
static attn_tensor on_host(const tensor *t, void *data, attn_dtype dtype) {
    attn_tensor host = t->t;
    host.data = data;
    host.device = (attn_device_id){1, 0};
    host.dtype = dtype;
    host.strides = NULL;
    host.byte_offset = 0;
    return host;
}

static int read_as(const tensor *t, void *to, attn_dtype dtype, char *why) {
    const attn_tensor host = on_host(t, to, dtype);
    if (attn_tensor_copy(t->device, &host, &t->t, NULL) < 0 ||
        attn_stream_sync(t->device, NULL) < 0) {
        return complain(why, "attn_tensor_copy: %s", attn_error());
    }
    return 0;
}

int tensor_read(const tensor *t, double *values, char *why) {
    return read_as(t, values, (attn_dtype){2, 64, 1}, why);
}

int tensor_bits(const tensor *t, char *bits, char *why) {
    return read_as(t, bits, t->t.dtype, why);
}

int tensor_gaps(const tensor *t, const char *name, char *why) {
    const size_t size = t->t.dtype.bits / 8u;
    const int64_t count = tensor_count(t);
    if (t->sparse || !t->memory || t->bytes == (uint64_t)count * size) {
        return 0;
    }
    char *const raw = malloc(t->bytes);
    int status = raw_copy(t, raw, 0, why);
    for (int64_t i = 0; status == 0 && i < count; i++) {
        memset(raw + t->t.byte_offset + tensor_element(t, i) * (int64_t)size, 0xff, size);
    }
    for (uint64_t i = 0; status == 0 && i < t->bytes; i++) {
        if ((unsigned char)raw[i] != 0xff) {
            status = complain(why, "%s: byte %llu between its elements was written", name,
                              (unsigned long long)i);
        }
    }
    free(raw);
    return status;
}

/* -- Variants and captures --------------------------------------------------------------------- */
static int ready_of(const char *text, attn_variant **variant) {
    char name[48];
    double numbers[8];
    int n = 0, used = 0;
    sscanf(text, "@%47s%n", name, &used);
    text += used;
    for (char *end; n < 8; text = end) {
        numbers[n] = strtod(text, &end);
        if (end == text) {
            break;
        }
        n++;
    }
    return attn_variant_ready(name, numbers, n, variant);
}

int variant_of(const char *text, attn_variant **variant, char *why) {
    attn_variant *parts[16];
    int n = 0, any = 0, status = 0;
    char copy[POINT_TEXT];
    snprintf(copy, sizeof copy, "%s", text);
    char *next = copy;
    while (next && *next && n < 16 && status >= 0) {
        char *const part = next + strspn(next, " ");
        next = strchr(part, '~');
        if (next) {
            *next++ = 0;
        }
        if (strncmp(part, "any ", 4) == 0) {
            any = 1;
        } else {
            status = *part == '@' ? ready_of(part, &parts[n]) : attn_variant_parse(part, &parts[n]);
            n += status >= 0;
        }
    }
    if (status >= 0) {
        const attn_variant *const *const list = (const attn_variant *const *)parts;
        status = any ? attn_variant_any(list, n, variant) : attn_variant_compose(list, n, variant);
    }
    for (int i = 0; i < n; i++) {
        attn_variant_release(parts[i]);
    }
    if (status < 0) {
        complain(why, "variant: %s", attn_error());
    }
    return status < 0 ? status : 0;
}

static int type_named(const char *name) {
#define X(NAME, text, code, bits)                                                                  \
    if (strcmp(name, #text) == 0) {                                                                \
        return ATTN_##NAME;                                                                        \
    }
    ATTN_TYPES(X)
#undef X
    return 0;
}

static int cap_of(const char *word, cap *c) {
    char type[16] = "", extents[48] = "";
    memset(c, 0, sizeof *c);
    if (sscanf(word, "%47[^:=]=%lf", c->name, &c->number) == 2) {
        return 0;
    }
    if (sscanf(word, "%47[^:=]:%15[^:]:%47[^:]:%15s", c->name, type, extents, c->values) != 4) {
        return -1;
    }
    c->type = type_named(type);
    for (char *at = extents; *at && c->rank < 4; at += *at == 'x') {
        c->shape[c->rank++] = strtoll(at, &at, 10);
    }
    return c->type ? 0 : -1;
}

int caps_of(const point *p, const attn_variant *variant, cap caps[CAPTURES], int *n, char *why) {
    char copy[POINT_TEXT];
    snprintf(copy, sizeof copy, "%s", p->caps);
    *n = 0;
    for (char *save, *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        if (*n == CAPTURES || cap_of(word, &caps[*n]) < 0) {
            return complain(why, "caps: cannot read \"%s\"", word);
        }
        attn_symbol symbol = {.size = sizeof symbol};
        for (int i = 0; i < attn_variant_symbol(variant, i, &symbol); i++) {
            caps[*n].graded |= strcmp(symbol.name, caps[*n].name) == 0 && symbol.type == ATTN_F32;
        }
        ++*n;
    }
    return 0;
}
