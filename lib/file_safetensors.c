/* file_safetensors.c: reads .safetensors: named tensors behind a JSON header.

   Who calls it: file.c for every file that is not .npy. The writer is in file_safetensors_save.c.

       0            8                                              8 + n
       +------------+-----------------------------------------------+--------------------------+
       | n, u64     | {"name":{"dtype":"F32","shape":[2,3],         | data: the ranges cover   |
       |            |  "data_offsets":[0,24]}, ...}                 | it without gap or overlap|
       +------------+-----------------------------------------------+--------------------------+

   The header may also have "__metadata__", whose members are strings and are passed over. Only
   these shapes of JSON are read, so nothing nests deeper than they do. Numbers are plain whole
   numbers. */
#include "file.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER = 100000000 }; /* the limit of the format's own reader */

const attn__st_type attn__st_types[] = {
    {"F64", ATTN_F64, 8},
    {"F32", ATTN_F32, 4},
    {"F16", ATTN_F16, 2},
    {"BF16", ATTN_BF16, 2},
    {"I32", ATTN_I32, 4},
    {"U8", ATTN_U8, 1},
    {"BOOL", ATTN_BOOL, 1},
    {"F8_E4M3", ATTN_E4M3FN, 1},
    {"F8_E5M2", ATTN_E5M2, 1},
    {"F8_E4M3FNUZ", ATTN_E4M3FNUZ, 1},
    {"F8_E5M2FNUZ", ATTN_E5M2FNUZ, 1},
    {"I64", 0, 8}, /* from here on known, but not read */
    {"U64", 0, 8},
    {"U32", 0, 4},
    {"I16", 0, 2},
    {"U16", 0, 2},
    {"I8", 0, 1},
    {"C64", 0, 8},
    {"F8_E8M0", 0, 1},
    {"F6_E2M3", 0, 0}, /* less than a byte: the size is not checked */
    {"F6_E3M2", 0, 0},
    {"F4", 0, 0},
    {NULL, 0, 0},
};

static int damaged(const attn_file *file, const char *what) {
    return attn__fail(ATTN_PARSE, file->arg, "%s is no sound .safetensors file: %s", file->label,
                      what);
}

/* -- JSON -------------------------------------------------------------------------------------- */

static int hex4(attn__cursor *c, uint32_t *x) {
    *x = 0;
    for (int i = 0; i < 4; i++) {
        if (c->p == c->end) {
            return 0;
        }
        const unsigned char d = *c->p++;
        const int digit = d >= '0' && d <= '9'   ? d - '0'
                          : d >= 'a' && d <= 'f' ? d - 'a' + 10
                          : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                                 : -1;
        if (digit < 0) {
            return 0;
        }
        *x = *x << 4 | (uint32_t)digit;
    }
    return 1;
}

/* What follows a backslash, as UTF-8; returns its bytes, 0 if it is no escape. */
static int escape(attn__cursor *c, char to[4]) {
    static const char from[] = "\"\\/bfnrt", what[] = "\"\\/\b\f\n\r\t";
    if (c->p == c->end) {
        return 0;
    }
    const unsigned char x = *c->p++;
    const char *const simple = x ? strchr(from, x) : NULL;
    if (simple) {
        to[0] = what[simple - from];
        return 1;
    }
    uint32_t u, low;
    if (x != 'u' || !hex4(c, &u) || (u >= 0xdc00 && u < 0xe000)) {
        return 0;
    }
    if (u >= 0xd800 && u < 0xdc00) { /* the first half of a pair */
        if (c->end - c->p < 2 || c->p[0] != '\\' || c->p[1] != 'u') {
            return 0;
        }
        c->p += 2;
        if (!hex4(c, &low) || low < 0xdc00 || low > 0xdfff) {
            return 0;
        }
        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
    }
    const int n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--) {
        to[i] = (char)(0x80 | (u & 63));
        u >>= 6;
    }
    to[0] = (char)(lead[n] | u);
    return n;
}

/* A string, decoded and malloc'ed. */
static int string(attn__cursor *c, char **out) {
    if (!attn__take(c, '"')) {
        return damaged(c->file, "a string is missing in its header");
    }
    size_t most = 0; /* escapes only shrink */
    while (c->p + most < c->end && c->p[most] != '"') {
        most += c->p[most] == '\\' && c->p + most + 1 < c->end ? 2 : 1;
    }
    char *const to = attn__alloc(most + 1, "a name");
    if (!to) {
        return ATTN_MEMORY;
    }
    size_t n = 0;
    int good = 1;
    while (good && c->p < c->end && *c->p != '"') {
        char bytes[4] = {(char)*c->p++};
        const int k = bytes[0] == '\\' ? escape(c, bytes) : (unsigned char)bytes[0] >= 0x20;
        good = k > 0;
        memcpy(to + n, bytes, (size_t)k);
        n += (size_t)k;
    }
    if (!good || !attn__take(c, '"') || !attn__utf8((const unsigned char *)to, n)) {
        free(to);
        return damaged(c->file, "a string of its header is not closed, not UTF-8 or badly escaped");
    }
    to[n] = 0;
    *out = to;
    return ATTN_OK;
}

/* JSON's whole numbers begin with 0 only if they are 0. */
static int number(attn__cursor *c, int64_t *x) {
    attn__space(c);
    const unsigned char *const first = c->p;
    return attn__whole(c, x) && (*first != '0' || c->p == first + 1);
}

/* [1, 2, ...]: at most `most` numbers; returns how many, or -1. */
static int numbers(attn__cursor *c, int64_t *x, int most) {
    if (!attn__take(c, '[')) {
        return -1;
    }
    int n = 0;
    if (attn__take(c, ']')) {
        return 0;
    }
    do {
        if (n == most || !number(c, &x[n])) {
            return -1;
        }
        n++;
    } while (attn__take(c, ','));
    return attn__take(c, ']') ? n : -1;
}

/* -- The header -------------------------------------------------------------------------------- */

/* "name" and the colon behind it; the name is malloc'ed. */
static int label(attn__cursor *c, char **name) {
    ATTN_TRY(string(c, name));
    if (!attn__take(c, ':')) {
        free(*name);
        return damaged(c->file, "a colon is missing in its header");
    }
    return ATTN_OK;
}

static int metadata(attn__cursor *c) {
    if (!attn__take(c, '{')) {
        return damaged(c->file, "__metadata__ is no object");
    }
    if (attn__take(c, '}')) {
        return ATTN_OK;
    }
    do {
        char *text = NULL;
        ATTN_TRY(label(c, &text));
        free(text);
        ATTN_TRY(string(c, &text));
        free(text);
    } while (attn__take(c, ','));
    return attn__take(c, '}') ? ATTN_OK : damaged(c->file, "__metadata__ is not closed");
}

static int dtype(attn__cursor *c, attn__entry *e) {
    char *name = NULL;
    ATTN_TRY(string(c, &name));
    const int fits = strlen(name) < sizeof e->dtype;
    if (fits) {
        memcpy(e->dtype, name, strlen(name) + 1);
    }
    free(name);
    return fits ? ATTN_OK : damaged(c->file, "the name of a dtype is too long");
}

/* One member of a tensor's object; `seen` has a bit per key. */
static int member(attn__cursor *c, attn__entry *e, int64_t offsets[2], int *seen) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    char *key = NULL;
    ATTN_TRY(label(c, &key));
    int i = 0;
    while (i < 3 && strcmp(key, keys[i]) != 0) {
        i++;
    }
    free(key);
    if (i == 3 || *seen & 1 << i) {
        return damaged(c->file,
                       "a tensor has a member twice, or one that the format does not know");
    }
    *seen |= 1 << i;
    if (i == 0) {
        return dtype(c, e);
    }
    if (i == 1) {
        e->ndim = numbers(c, e->shape, ATTN__FILE_RANK);
        return e->ndim >= 0 ? ATTN_OK
                            : damaged(c->file, "a shape is no list of at most 16 whole numbers");
    }
    return numbers(c, offsets, 2) == 2 ? ATTN_OK
                                       : damaged(c->file, "data_offsets are not two whole numbers");
}

/* Type, range and size of one tensor against the `total` bytes of data. */
static int settle(const attn_file *file, attn__entry *e, const int64_t offsets[2], size_t total) {
    if (offsets[0] > offsets[1] || (uint64_t)offsets[1] > total) {
        return attn__fail(ATTN_PARSE, file->arg, "%s: tensor '%.80s' has bytes %lld to %lld of %zu",
                          file->label, e->name, (long long)offsets[0], (long long)offsets[1],
                          total);
    }
    e->data = file->bytes + (file->size - total) + offsets[0];
    e->bytes = (uint64_t)(offsets[1] - offsets[0]);
    const attn__st_type *known = attn__st_types;
    while (known->name && strcmp(e->dtype, known->name) != 0) {
        known++;
    }
    if (!known->name) {
        return attn__fail(ATTN_PARSE, file->arg,
                          "%s: tensor '%.80s' has type '%s', which the format does not know",
                          file->label, e->name, e->dtype);
    }
    e->type = known->type;
    const int64_t wanted = attn__file_bytes(e->ndim, e->shape, known->bytes);
    if (known->bytes && (wanted < 0 || (uint64_t)wanted != e->bytes)) {
        return attn__fail(ATTN_PARSE, file->arg,
                          "%s: tensor '%.80s' has %llu bytes, which its "
                          "shape and type %s do not fit",
                          file->label, e->name, (unsigned long long)e->bytes, e->dtype);
    }
    return ATTN_OK;
}

static int tensor(attn__cursor *c, char *name, size_t total) {
    attn__entry *const e = attn__file_add(c->file);
    if (!e) {
        free(name);
        return ATTN_MEMORY;
    }
    e->name = name;
    int64_t offsets[2] = {0, 0};
    int seen = 0;
    if (name[0] == 0 || !attn__take(c, '{')) {
        return damaged(c->file, "a tensor has an empty name or is no object");
    }
    do {
        ATTN_TRY(member(c, e, offsets, &seen));
    } while (attn__take(c, ','));
    if (seen != 7 || !attn__take(c, '}')) {
        return damaged(c->file, "a tensor lacks dtype, shape or data_offsets, or is not closed");
    }
    return settle(c->file, e, offsets, total);
}

static int header(attn__cursor *c, size_t total) {
    if (c->p == c->end || *c->p != '{') {
        return damaged(c->file, "its header does not begin with {");
    }
    c->p++;
    int n_metadata = 0, more = !attn__take(c, '}');
    while (more) {
        char *name = NULL;
        ATTN_TRY(label(c, &name));
        if (strcmp(name, "__metadata__") == 0) {
            free(name);
            if (n_metadata++) {
                return damaged(c->file, "__metadata__ comes twice");
            }
            ATTN_TRY(metadata(c));
        } else {
            ATTN_TRY(tensor(c, name, total));
        }
        more = attn__take(c, ',');
        if (!more && !attn__take(c, '}')) {
            return damaged(c->file, "its header is not closed");
        }
    }
    attn__space(c);
    return c->p == c->end ? ATTN_OK : damaged(c->file, "its header has more after its end");
}

/* -- The whole --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(const attn__entry *const *)a)->name, (*(const attn__entry *const *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const attn__entry *const x = *(const attn__entry *const *)a;
    const attn__entry *const y = *(const attn__entry *const *)b;
    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* No name twice; in the order of their places, each range begins where the one before ends. */
static int check_whole(const attn_file *file, const unsigned char *data) {
    const attn__entry **const order =
        attn__alloc((size_t)file->n * sizeof *order, "a list of tensors");
    if (!order) {
        return ATTN_MEMORY;
    }
    for (int64_t i = 0; i < file->n; i++) {
        order[i] = &file->entry[i];
    }
    int status = ATTN_OK;
    qsort(order, (size_t)file->n, sizeof *order, by_name);
    for (int64_t i = 1; i < file->n && status == ATTN_OK; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            status = attn__fail(ATTN_PARSE, file->arg, "%s has two tensors '%.80s'", file->label,
                                order[i]->name);
        }
    }
    qsort(order, (size_t)file->n, sizeof *order, by_place);
    const unsigned char *at = data;
    for (int64_t i = 0; i < file->n && status == ATTN_OK; i++) {
        if (order[i]->data != at) {
            status = attn__fail(ATTN_PARSE, file->arg, "%s: the bytes of tensor '%.80s' %s",
                                file->label, order[i]->name,
                                order[i]->data < at ? "overlap another's" : "begin after a gap");
        }
        at = order[i]->data + order[i]->bytes;
    }
    if (status == ATTN_OK && at != file->bytes + file->size) {
        status = damaged(file, "it has bytes that belong to no tensor");
    }
    free(order);
    return status;
}

int attn__safetensors_parse(attn_file *file) {
    if (file->size < 8) {
        return damaged(file, "it is shorter than 8 bytes");
    }
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | file->bytes[i];
    }
    if (n > MOST_HEADER || n > file->size - 8) {
        return attn__fail(
            ATTN_PARSE, file->arg,
            "%s is no sound .safetensors file: its header of %llu bytes is longer than %s",
            file->label, (unsigned long long)n,
            n > MOST_HEADER ? "the 100,000,000 that are allowed" : "the file");
    }
    const unsigned char *const data = file->bytes + 8 + n;
    attn__cursor c = {file->bytes + 8, data, file};
    ATTN_TRY(header(&c, file->size - 8 - (size_t)n));
    return check_whole(file, data);
}
