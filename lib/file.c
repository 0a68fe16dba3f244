/* file.c: attn_file_*: opens a file of tensors, hands them out, and writes files safely.

   Who calls it: users; the formats themselves are in file_npy.c and file_safetensors.c. A file is
   mapped privately: its tensors may be written to, which changes memory, never the file. A tensor
   that does not lie at a multiple of its element's size is copied when the file is opened.

       open, parse -> attn__npy_parse, attn__safetensors_parse: entries, every range in the bytes
                   -> align: what is misaligned moves to `copy` */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- Helpers of the readers -------------------------------------------------------------------- */

int64_t attn__file_bytes(int ndim, const int64_t *shape, int64_t element) {
    int64_t bytes = element;
    int empty = 0;
    for (int i = 0; i < ndim; i++) {
        empty |= shape[i] == 0;
        if (shape[i] > 0 && __builtin_mul_overflow(bytes, shape[i], &bytes)) {
            return -1;
        }
    }
    return empty ? 0 : bytes;
}

attn__entry *attn__file_add(attn_file *file) {
    if ((file->n & (file->n - 1)) == 0) { /* full: room for 1, 2, 4, 8 ... */
        const size_t room = file->n ? 2 * (size_t)file->n : 1;
        attn__entry *const more = realloc(file->entry, room * sizeof *more);
        if (!more) {
            attn__fail(ATTN_MEMORY, "", "out of memory for the list of %zu tensors", room);
            return NULL;
        }
        file->entry = more;
    }
    attn__entry *const e = &file->entry[file->n++];
    memset(e, 0, sizeof *e);
    return e;
}

int attn__utf8(const unsigned char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        const unsigned char c = s[i++];
        const int more = c < 0x80                ? 0
                         : c >= 0xc2 && c < 0xe0 ? 1
                         : c >= 0xe0 && c < 0xf0 ? 2
                         : c >= 0xf0 && c < 0xf5 ? 3
                                                 : -1;
        if (c == 0 || more < 0 || (size_t)more > n - i) {
            return 0;
        }
        /* The second byte also rules out long forms, surrogates and what is past U+10FFFF. */
        const unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        const unsigned high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        for (int k = 0; k < more; k++) {
            const unsigned char d = s[i++];
            if (d < (k == 0 ? low : 0x80) || d > (k == 0 ? high : 0xbf)) {
                return 0;
            }
        }
    }
    return 1;
}

void attn__space(attn__cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) {
        c->p++;
    }
}

int attn__take(attn__cursor *c, char x) {
    attn__space(c);
    const int found = c->p < c->end && *c->p == (unsigned char)x;
    c->p += found;
    return found;
}

int attn__whole(attn__cursor *c, int64_t *x) {
    attn__space(c);
    const unsigned char *const first = c->p;
    *x = 0;
    while (c->p < c->end && *c->p >= '0' && *c->p <= '9') {
        if (__builtin_mul_overflow(*x, 10, x) || __builtin_add_overflow(*x, *c->p - '0', x)) {
            return 0;
        }
        c->p++;
    }
    return c->p > first;
}

/* -- Open -------------------------------------------------------------------------------------- */

/* Copies tensors that lie at odd addresses, each to a multiple of 64 bytes. */
static int align(attn_file *file) {
    uint64_t total = 0;
    for (int64_t i = 0; i < file->n; i++) {
        const attn__entry *const e = &file->entry[i];
        if (e->type && (uintptr_t)e->data % (unsigned)attn__type_bytes(e->type)) {
            total += (e->bytes + 63) / 64 * 64;
        }
    }
    if (total == 0) {
        return ATTN_OK;
    }
    file->copy = aligned_alloc(64, total);
    if (!file->copy) {
        return attn__fail(ATTN_MEMORY, file->arg,
                          "out of memory: %llu bytes for the tensors that are not aligned in %s",
                          (unsigned long long)total, file->label);
    }
    unsigned char *to = file->copy;
    for (int64_t i = 0; i < file->n; i++) {
        attn__entry *const e = &file->entry[i];
        if (e->type && (uintptr_t)e->data % (unsigned)attn__type_bytes(e->type)) {
            memcpy(to, e->data, e->bytes);
            e->data = to;
            to += (e->bytes + 63) / 64 * 64;
        }
    }
    return ATTN_OK;
}

static int read_all(attn_file *file, int npy) {
    ATTN_TRY(npy ? attn__npy_parse(file) : attn__safetensors_parse(file));
    return align(file);
}

static int map(attn_file *file, const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return attn__fail(ATTN_IO, "path", "%s cannot be opened: %s", path, strerror(error));
    }
    const int regular = S_ISREG(info.st_mode);
    if (!regular || info.st_size == 0) {
        close(fd);
        return attn__fail(regular ? ATTN_PARSE : ATTN_IO, "path", "%s is %s", path,
                          regular ? "empty" : "not a regular file");
    }
    file->size = (size_t)info.st_size;
    void *const at =
        mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    const int error = errno;
    close(fd);
    if (at == MAP_FAILED) {
        return attn__fail(ATTN_IO, "path", "%s cannot be mapped: %s", path, strerror(error));
    }
    file->map = at;
    file->bytes = at;
    return ATTN_OK;
}

static attn_file *file_new(const char *label, const char *arg) {
    attn_file *const file = attn__alloc(sizeof *file, "a file");
    if (file) {
        *file = (attn_file){.label = label, .arg = arg};
    }
    return file;
}

int attn_file_open(const char *path, attn_file **out) {
    if (out) {
        *out = NULL;
    }
    if (!path || !out) {
        return attn__fail(ATTN_INVALID, path ? "file" : "path", "%s is NULL",
                          path ? "file" : "path");
    }
    attn_file *const file = file_new(path, "path");
    if (!file) {
        return ATTN_MEMORY;
    }
    int status = map(file, path);
    if (status == ATTN_OK) {
        status = read_all(file, file->size >= 6 && memcmp(file->bytes, "\x93NUMPY", 6) == 0);
    }
    file->label = NULL; /* the path is the caller's */
    if (status != ATTN_OK) {
        attn_file_release(file);
        return status;
    }
    *out = file;
    return ATTN_OK;
}

int attn_file_parse(const char *kind, const void *bytes, size_t n, attn_file **out) {
    if (out) {
        *out = NULL;
    }
    const int npy = kind && strcmp(kind, "npy") == 0;
    if (!npy && !(kind && strcmp(kind, "safetensors") == 0)) {
        return attn__fail(ATTN_INVALID, "kind",
                          "kind is %s%s%s; \"npy\" and \"safetensors\" are allowed",
                          kind ? "\"" : "", kind ? kind : "NULL", kind ? "\"" : "");
    }
    if ((!bytes && n > 0) || !out) {
        return attn__fail(ATTN_INVALID, out ? "bytes" : "file", "%s is NULL",
                          out ? "bytes" : "file");
    }
    attn_file *const file = file_new("bytes", "bytes");
    if (!file) {
        return ATTN_MEMORY;
    }
    file->bytes = n ? bytes : (const void *)"";
    file->size = n;
    const int status = read_all(file, npy);
    if (status != ATTN_OK) {
        attn_file_release(file);
        return status;
    }
    *out = file;
    return ATTN_OK;
}

int64_t attn_file_count(const attn_file *file) {
    return file ? file->n : 0;
}

int attn_file_tensor(const attn_file *file, int64_t i, const char **name, attn_tensor *tensor) {
    if (!file || !tensor) {
        return attn__fail(ATTN_INVALID, file ? "tensor" : "file", "%s is NULL",
                          file ? "tensor" : "file");
    }
    if (i < 0 || i >= file->n) {
        return attn__fail(ATTN_INVALID, "i", "i is %lld; the file has %lld tensors", (long long)i,
                          (long long)file->n);
    }
    attn__entry *const e = &file->entry[i];
    if (name) {
        *name = e->name;
    }
    if (!e->type) {
        return attn__fail(ATTN_DTYPE, "i", "%s%.80s has type %s, which attn does not read",
                          e->name[0] ? "tensor " : "the tensor", e->name, e->dtype);
    }
    *tensor = (attn_tensor){
        .data = (void *)(uintptr_t)e->data,
        .device = {1, 0},
        .ndim = e->ndim,
        .dtype = {(uint8_t)(e->type & 255), (uint8_t)(e->type >> 8), 1},
        .shape = e->shape,
        .strides = e->has_strides ? e->strides : NULL,
    };
    return ATTN_OK;
}

void attn_file_release(attn_file *file) {
    if (!file) {
        return;
    }
    for (int64_t i = 0; i < file->n; i++) {
        free(file->entry[i].name);
    }
    free(file->entry);
    free(file->copy);
    if (file->map) {
        munmap(file->map, file->size);
    }
    free(file);
}

/* -- Save -------------------------------------------------------------------------------------- */

int attn__save_check(const attn_tensor *tensor, const char *name) {
    if (!tensor) {
        return attn__fail(ATTN_INVALID, name, "%s is NULL", name);
    }
    if (tensor->ndim > ATTN__FILE_RANK) {
        return attn__fail(ATTN_SHAPE, name, "%s has rank %d; 0 to %d is allowed", name,
                          tensor->ndim, ATTN__FILE_RANK);
    }
    return attn__tensor_check(NULL, tensor, name, 0);
}

static int io_error(const char *path, const char *verb) {
    return attn__fail(ATTN_IO, "path", "%s cannot be %s: %s", path, verb, strerror(errno));
}

int attn__save_begin(attn__save *save, const char *path) {
    static atomic_uint counter;
    *save = (attn__save){.path = path};
    const size_t room = strlen(path) + 40;
    save->temporary = attn__alloc(room, "a file name");
    if (!save->temporary) {
        return ATTN_MEMORY;
    }
    int fd = -1;
    do {
        snprintf(save->temporary, room, "%s.%ld-%u.tmp", path, (long)getpid(),
                 atomic_fetch_add(&counter, 1));
        fd = open(save->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EEXIST);
    save->stream = fd < 0 ? NULL : fdopen(fd, "wb");
    if (save->stream) {
        return ATTN_OK;
    }
    const int status = io_error(path, "written");
    if (fd >= 0) {
        close(fd);
        unlink(save->temporary);
    }
    free(save->temporary);
    return status;
}

static void save_row(attn__save *save, const char *from, int64_t n, int64_t step, int bytes) {
    if (step == bytes) {
        fwrite(from, (size_t)bytes, (size_t)n, save->stream);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        fwrite(from + i * step, (size_t)bytes, 1, save->stream);
    }
}

void attn__save_tensor(attn__save *save, const attn_tensor *t) {
    const int bytes = attn__type_bytes(attn__type_of(t));
    const int last = t->ndim - 1;
    const int64_t n = last < 0 ? 1 : t->shape[last];
    const int64_t step = last < 0 || n < 2 ? bytes : attn__stride(t, last) * bytes;
    if (attn__file_bytes(t->ndim, t->shape, bytes) == 0) {
        return;
    }
    int64_t index[ATTN__FILE_RANK] = {0};
    char *at = (char *)t->data + t->byte_offset;
    do {
        save_row(save, at, n, step, bytes);
    } while (attn__next_row(t, index, &at));
}

int attn__save_end(attn__save *save) {
    int failed =
        ferror(save->stream) || fflush(save->stream) != 0 || fsync(fileno(save->stream)) != 0;
    int status = failed ? io_error(save->path, "written") : ATTN_OK;
    failed |= fclose(save->stream) != 0;
    if (!failed && rename(save->temporary, save->path) != 0) {
        failed = 1;
    }
    if (failed) {
        status = status ? status : io_error(save->path, "written");
        unlink(save->temporary);
    }
    free(save->temporary);
    return status;
}
