/* file.h: what the readers and writers of files share.

   Who includes it: file.c, file_npy.c, file_safetensors*.c. */
#ifndef ATTN_FILE_H
#define ATTN_FILE_H

#include "attn_int.h"

#include <stdio.h>

enum { ATTN__FILE_RANK = 16, ATTN__FILE_DTYPE = 24 };

/* One tensor of a file. `type` 0: a type attn has not; it is listed and refused when asked for. */
typedef struct attn__entry {
    char *name;   /* malloc'ed, UTF-8 */
    int32_t type; /* attn_type */
    int32_t ndim;
    int64_t shape[ATTN__FILE_RANK];
    int64_t strides[ATTN__FILE_RANK]; /* where has_strides; otherwise compact */
    int32_t has_strides;
    char dtype[ATTN__FILE_DTYPE]; /* as the file names it */
    const unsigned char *data;
    uint64_t bytes;
} attn__entry;

struct attn_file {
    const char *label;          /* for sentences: the path, or "bytes" */
    const char *arg;            /* the argument that is blamed: "path" or "bytes" */
    const unsigned char *bytes; /* the whole file */
    size_t size;
    void *map;           /* NULL: the bytes are the caller's */
    unsigned char *copy; /* tensors that are not aligned in the file */
    attn__entry *entry;
    int64_t n;
};

/* They fill entry and n; what they leave behind on failure attn_file_release frees. */
int attn__npy_parse(attn_file *file);
int attn__safetensors_parse(attn_file *file);

/* The dtypes of .safetensors; type 0: attn has it not. The last name is NULL. */
typedef struct attn__st_type {
    const char *name;
    int type, bytes;
} attn__st_type;
extern const attn__st_type attn__st_types[];

/* file.c. Bytes of a compact tensor, or -1 if they do not fit in an int64_t. */
int64_t attn__file_bytes(int ndim, const int64_t *shape, int64_t element);
/* Room for one more entry, zeroed; NULL with a sentence. */
attn__entry *attn__file_add(attn_file *file);
/* 1 if the n bytes are UTF-8 without a zero. */
int attn__utf8(const unsigned char *s, size_t n);

/* A place in the text of a header. */
typedef struct attn__cursor {
    const unsigned char *p, *end;
    attn_file *file;
} attn__cursor;
void attn__space(attn__cursor *c); /* passes over spaces, tabs and line ends */
int attn__take(attn__cursor *c, char x); /* the same and x; 0: x is not next */
int attn__whole(attn__cursor *c, int64_t *x); /* the same and digits; 0: none, or too many */

/* Writing: to a temporary name beside `path`, renamed by attn__save_end. */
typedef struct attn__save {
    FILE *stream;
    const char *path;
    char *temporary; /* malloc'ed */
} attn__save;
/* Host memory of any strides. */
int attn__save_check(const attn_tensor *tensor, const char *name);
int attn__save_begin(attn__save *save, const char *path);
void attn__save_tensor(attn__save *save, const attn_tensor *tensor); /* errors show at the end */
int attn__save_end(attn__save *save);

#endif
