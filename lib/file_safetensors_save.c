/* file_safetensors_save.c: writes .safetensors; file_safetensors.c draws the format.

   Who calls it: users. The header is padded with spaces so that the data begins at a multiple of
   64, and tensors with larger elements come first: so each is aligned, with no gap between them. */
#include "file.h"

#include <stdlib.h>
#include <string.h>

/* Appends to a growing text; `text` NULL: out of memory. */
typedef struct buffer {
    char *text;
    size_t n, room;
} buffer;

static void put(buffer *t, const char *s, size_t n) {
    if (t->text && t->n + n > t->room) {
        const size_t room = 2 * (t->n + n);
        char *const more = realloc(t->text, room);
        if (!more) {
            free(t->text);
        }
        t->text = more;
        t->room = room;
    }
    if (t->text) {
        memcpy(t->text + t->n, s, n);
        t->n += n;
    }
}

static void put_number(buffer *t, const char *before, uint64_t x) {
    char s[32];
    put(t, s, (size_t)snprintf(s, sizeof s, "%s%llu", before, (unsigned long long)x));
}

static void put_string(buffer *t, const char *s) {
    put(t, "\"", 1);
    for (; *s; s++) {
        char e[8];
        if (*s == '"' || *s == '\\') {
            put(t, e, (size_t)snprintf(e, sizeof e, "\\%c", *s));
        } else if ((unsigned char)*s < 0x20) {
            put(t, e, (size_t)snprintf(e, sizeof e, "\\u%04x", *s));
        } else {
            put(t, s, 1);
        }
    }
    put(t, "\"", 1);
}

static const char *type_name(int type) {
    for (int i = 0; attn__st_types[i].name; i++) {
        if (attn__st_types[i].type == type) {
            return attn__st_types[i].name;
        }
    }
    return NULL;
}

static uint64_t bytes_of(const attn_tensor *t) {
    return (uint64_t)attn__file_bytes(t->ndim, t->shape, attn__type_bytes(attn__type_of(t)));
}

static int check_names(int64_t n, const char *const *names, const attn_tensor *const *tensors) {
    for (int64_t i = 0; i < n; i++) {
        if (!names[i] || !names[i][0] || strcmp(names[i], "__metadata__") == 0 ||
            !attn__utf8((const unsigned char *)names[i], strlen(names[i]))) {
            return attn__fail(ATTN_INVALID, "names",
                              "name %lld is \"%.80s\"; UTF-8 other than \"\" and "
                              "\"__metadata__\" is allowed",
                              (long long)i, names[i] ? names[i] : "NULL");
        }
        ATTN_TRY(attn__save_check(tensors[i], names[i]));
    }
    return ATTN_OK;
}

typedef struct item {
    const char *name;
    const attn_tensor *tensor;
} item;

static int item_by_name(const void *a, const void *b) {
    return strcmp(((const item *)a)->name, ((const item *)b)->name);
}

/* Larger elements first, so that every tensor is aligned in a data section without gaps. */
static int item_by_size(const void *a, const void *b) {
    const item *const x = a, *const y = b;
    const int d = y->tensor->dtype.bits - x->tensor->dtype.bits;
    return d ? d : strcmp(x->name, y->name);
}

static buffer make_header(int64_t n, const item *items) {
    buffer t = {attn__alloc(4096, "a header"), 0, 4096};
    uint64_t at = 0;
    put(&t, "\0\0\0\0\0\0\0\0{", 9);
    for (int64_t i = 0; i < n; i++) {
        const attn_tensor *const x = items[i].tensor;
        const char *const type = type_name(attn__type_of(x));
        put(&t, ",", i > 0);
        put_string(&t, items[i].name);
        put(&t, ":{\"dtype\":\"", 11);
        put(&t, type, strlen(type));
        put(&t, "\",\"shape\":[", 11);
        for (int k = 0; k < x->ndim; k++) {
            put_number(&t, k ? "," : "", (uint64_t)x->shape[k]);
        }
        put_number(&t, "],\"data_offsets\":[", at);
        at += bytes_of(x);
        put_number(&t, ",", at);
        put(&t, "]}", 2);
    }
    put(&t, "}", 1);
    while (t.text && t.n % 64) {
        put(&t, " ", 1);
    }
    for (int i = 0; i < 8 && t.text; i++) {
        t.text[i] = (char)((uint64_t)(t.n - 8) >> 8 * i);
    }
    return t;
}

static int save_items(const char *path, int64_t n, const item *items) {
    const buffer head = make_header(n, items);
    if (!head.text) {
        return attn__fail(ATTN_MEMORY, "", "out of memory for the header of %s", path);
    }
    attn__save save;
    int status = attn__save_begin(&save, path);
    if (status == ATTN_OK) {
        fwrite(head.text, 1, head.n, save.stream);
        for (int64_t i = 0; i < n; i++) {
            attn__save_tensor(&save, items[i].tensor);
        }
        status = attn__save_end(&save);
    }
    free(head.text);
    return status;
}

int attn_file_save_safetensors(const char *path, int64_t n, const char *const *names,
                               const attn_tensor *const *tensors) {
    if (!path || n < 0 || (n > 0 && (!names || !tensors))) {
        return attn__fail(ATTN_INVALID,
                          !path   ? "path"
                          : n < 0 ? "n"
                                  : "names",
                          "%s; a path, n >= 0, n names and n tensors are wanted",
                          !path   ? "path is NULL"
                          : n < 0 ? "n is negative"
                                  : "names or tensors is NULL");
    }
    ATTN_TRY(check_names(n, names, tensors));
    item *const items = attn__alloc((size_t)n * sizeof *items, "a list of tensors");
    if (!items) {
        return ATTN_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        items[i] = (item){names[i], tensors[i]};
    }
    qsort(items, (size_t)n, sizeof *items, item_by_name);
    int status = ATTN_OK;
    for (int64_t i = 1; i < n && status == ATTN_OK; i++) {
        if (strcmp(items[i - 1].name, items[i].name) == 0) {
            status = attn__fail(ATTN_INVALID, "names", "name \"%.80s\" comes twice", items[i].name);
        }
    }
    qsort(items, (size_t)n, sizeof *items, item_by_size);
    status = status ? status : save_items(path, n, items);
    free(items);
    return status;
}
