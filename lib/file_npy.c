/* file_npy.c: numpy's .npy format, versions 1 to 3: one tensor.

   Who calls it: file.c for a file that begins with the magic; users to save.

       0      6        8                     10 or 12
       +------+--+--+--+---------------------+---------------------------------------+------+
       |\x93NUMPY |1 |0 | length u16, or u32  | {'descr': '<f4', 'fortran_order':     | data |
       |          |  |  | from version 2 on   |  False, 'shape': (2, 3), }    \n      |      |
       +----------+--+--+---------------------+---------------------------------------+------+

   The header is a Python literal with these three keys in any order. Big-endian data is refused,
   and so is anything after the data. Fortran order becomes strides. */
#include "file.h"

#include <stdlib.h>
#include <string.h>

static int damaged(const attn_file *file, const char *what) {
    return attn__fail(ATTN_PARSE, file->arg, "%s is no sound .npy file: %s", file->label, what);
}

/* -- Reading the header ------------------------------------------------------------------------ */

static int take_word(attn__cursor *c, const char *word) {
    const size_t n = strlen(word);
    attn__space(c);
    if ((size_t)(c->end - c->p) >= n && memcmp(c->p, word, n) == 0) {
        c->p += n;
        return 1;
    }
    return 0;
}

/* A quoted string without escapes, at most n - 1 characters. */
static int string(attn__cursor *c, char *to, size_t n) {
    attn__space(c);
    if (c->p == c->end || (*c->p != '\'' && *c->p != '"')) {
        return 0;
    }
    const unsigned char quote = *c->p++;
    size_t length = 0;
    while (c->p < c->end && *c->p != quote) {
        if (*c->p < 0x20 || *c->p == '\\' || length + 1 >= n) {
            return 0;
        }
        to[length++] = (char)*c->p++;
    }
    to[length] = 0;
    return attn__take(c, (char)quote);
}

/* An extent; Python 2 wrote an L after long ones. */
static int extent(attn__cursor *c, int64_t *x) {
    const int good = attn__whole(c, x);
    if (good && c->p < c->end && *c->p == 'L') {
        c->p++;
    }
    return good;
}

static int shape(attn__cursor *c, attn__entry *e) {
    if (!attn__take(c, '(')) {
        return 0;
    }
    int comma = 1;
    while (!attn__take(c, ')')) {
        if (!comma || e->ndim == ATTN__FILE_RANK || !extent(c, &e->shape[e->ndim])) {
            return 0;
        }
        e->ndim++;
        comma = attn__take(c, ',');
    }
    return e->ndim != 1 || comma; /* (3) is a number in Python, (3,) a tuple */
}

/* The three keys, each once. */
static int header(attn__cursor *c, attn__entry *e, int *fortran) {
    int seen = 0, comma = 1;
    if (!attn__take(c, '{')) {
        return damaged(c->file, "its header is no dictionary");
    }
    while (!attn__take(c, '}')) {
        char key[16];
        int bit = 0, good = 0;
        if (!comma || !string(c, key, sizeof key) || !attn__take(c, ':')) {
            return damaged(c->file, "a key of its header is misspelt");
        }
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            attn__space(c);
            if (c->p < c->end && *c->p == '[') {
                return attn__fail(ATTN_DTYPE, c->file->arg, "%s holds records; numbers are allowed",
                                  c->file->label);
            }
            good = string(c, e->dtype, sizeof e->dtype);
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            *fortran = take_word(c, "True");
            good = *fortran || take_word(c, "False");
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            e->ndim = 0;
            good = shape(c, e);
        }
        if (!good || seen & bit) {
            return damaged(c->file, "descr, fortran_order or shape is misspelt or comes twice");
        }
        seen |= bit;
        comma = attn__take(c, ',');
    }
    attn__space(c);
    if (seen != 7 || c->p != c->end) {
        return damaged(c->file, "its header lacks a key or has more after its end");
    }
    return ATTN_OK;
}

/* -- Types ------------------------------------------------------------------------------------- */

/* numpy has no bf16 and no 8-bit floats. The first character of a descr is the byte order. */
static const struct {
    const char *name;
    int type;
} npy_types[] = {{"f8", ATTN_F64}, {"f4", ATTN_F32}, {"f2", ATTN_F16},
                 {"i4", ATTN_I32}, {"u1", ATTN_U8},  {"b1", ATTN_BOOL}};
enum { N_TYPES = sizeof npy_types / sizeof npy_types[0] };

/* Sets e->type, 0 for one that attn has not. */
static int find_type(const attn_file *file, attn__entry *e) {
    const char order = e->dtype[0];
    for (int i = 0; i < N_TYPES && order; i++) {
        if (strcmp(e->dtype + 1, npy_types[i].name) == 0) {
            e->type = npy_types[i].type;
        }
    }
    if (e->type && order == '>' && attn__type_bytes(e->type) > 1) {
        return attn__fail(ATTN_DTYPE, file->arg, "%s is big-endian (%s); little-endian is allowed",
                          file->label, e->dtype);
    }
    if (!order || !strchr("<>|=", order)) {
        return damaged(file, "descr does not begin with a byte order");
    }
    return ATTN_OK;
}

static void fortran_strides(attn__entry *e) {
    int64_t step = 1;
    for (int i = 0; i < e->ndim; i++) {
        e->strides[i] = step;
        step *= e->shape[i] ? e->shape[i] : 1;
    }
    e->has_strides = 1;
}

int attn__npy_parse(attn_file *file) {
    const unsigned char *const b = file->bytes;
    if (file->size < 10 || memcmp(b, "\x93NUMPY", 6) != 0) {
        return damaged(file, "it does not begin with \\x93NUMPY, a version and a length");
    }
    if (b[6] < 1 || b[6] > 3 || b[7] != 0) {
        return attn__fail(ATTN_PARSE, file->arg,
                          "%s has .npy version %d.%d; 1.0, 2.0 and 3.0 are allowed", file->label,
                          b[6], b[7]);
    }
    const size_t start = b[6] == 1 ? 10 : 12;
    if (file->size < start) {
        return damaged(file, "it ends within the length of the header");
    }
    const size_t length =
        b[6] == 1 ? b[8] | (size_t)b[9] << 8
                  : b[8] | (size_t)b[9] << 8 | (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > file->size - start) {
        return damaged(file, "its header is longer than the file");
    }
    attn__entry *const e = attn__file_add(file);
    if (!e || !(e->name = calloc(1, 1))) {
        return e ? attn__fail(ATTN_MEMORY, file->arg, "out of memory for a name") : ATTN_MEMORY;
    }
    attn__cursor c = {b + start, b + start + length, file};
    int fortran = 0;
    ATTN_TRY(header(&c, e, &fortran));
    ATTN_TRY(find_type(file, e));
    e->data = b + start + length;
    e->bytes = file->size - start - length;
    if (!e->type) {
        return ATTN_OK; /* listed; its element's size is not known here */
    }
    const int64_t wanted = attn__file_bytes(e->ndim, e->shape, attn__type_bytes(e->type));
    if (wanted < 0 || (uint64_t)wanted != e->bytes) {
        return attn__fail(ATTN_PARSE, file->arg,
                          "%s has %llu bytes of data; its shape and type need %lld%s", file->label,
                          (unsigned long long)e->bytes, (long long)wanted,
                          wanted < 0 ? " (more than 2^63)" : "");
    }
    if (fortran) {
        fortran_strides(e);
    }
    return ATTN_OK;
}

/* -- Saving ------------------------------------------------------------------------------------ */

/* Magic, version 1.0, length and header, padded so that the data begins at a multiple of 64. */
static size_t make_header(const attn_tensor *t, const char *descr, char *to, size_t room) {
    size_t n =
        (size_t)snprintf(to + 10, room - 10, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                         attn__type_bytes(attn__type_of(t)) == 1 ? '|' : '<', descr) +
        10;
    for (int i = 0; i < t->ndim; i++) {
        n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    }
    n += (size_t)snprintf(to + n, room - n, "%s), }", t->ndim == 1 ? "," : "");
    const size_t end = (n + 1 + 63) / 64 * 64;
    memset(to + n, ' ', end - n);
    to[end - 1] = '\n';
    memcpy(to, "\x93NUMPY\x01", 8); /* with the zero of version 1.0 */
    to[8] = (char)((end - 10) & 255);
    to[9] = (char)((end - 10) >> 8);
    return end;
}

int attn_file_save_npy(const char *path, const attn_tensor *tensor) {
    if (!path) {
        return attn__fail(ATTN_INVALID, "path", "path is NULL");
    }
    ATTN_TRY(attn__save_check(tensor, "tensor"));
    const char *descr = NULL;
    for (int i = 0; i < N_TYPES; i++) {
        descr = npy_types[i].type == attn__type_of(tensor) ? npy_types[i].name : descr;
    }
    if (!descr) {
        return attn__fail(
            ATTN_DTYPE, "tensor",
            "tensor is %s, which .npy files cannot hold: convert it to f32, or save it as "
            ".safetensors",
            attn__type_name(attn__type_of(tensor)));
    }
    char head[1024]; /* 16 extents of at most 12 characters */
    const size_t n = make_header(tensor, descr, head, sizeof head);
    attn__save save;
    ATTN_TRY(attn__save_begin(&save, path));
    fwrite(head, 1, n, save.stream);
    attn__save_tensor(&save, tensor);
    return attn__save_end(&save);
}
