/* jit_bundle.c: kernels that were compiled elsewhere, for machines without a compiler, in one file:

       8 bytes "attnbnd1" | n | n entries | code ...
       entry: 64 digits of the job's key (jit.h) | first byte, bytes of its code | SHA-256 of it

   The key is a hash of all text, so code of another version of the library is never found.

   Who calls it: jit.c, which asks opened bundles before anything else; gpu_make.c, which fills one;
   programs, to open more than the environment variable ATTN_BUNDLE names. An opened bundle stays
   until the library is unloaded. */
#define _GNU_SOURCE
#include "fork.h"
#include "gpu_make.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UNKNOWN = 2 };
static const char magic[8] = {'a', 't', 't', 'n', 'b', 'n', 'd', '1'};

typedef struct entry {
    char job[ATTN__KEY - 1];
    uint64_t at, bytes;
    uint8_t sum[32];
} entry;

struct attn__bundle {
    attn__bundle *next;
    char *file;  /* of an opened one, all of it */
    char *sound; /* of an opened one, by entry: 1 or 0, its sum is right or wrong; UNKNOWN */
    void **code; /* of a new one, by entry */
    entry *entry;
    uint64_t n;
};

/* -- A new one --------------------------------------------------------------------------------- */

int attn__bundle_new(attn__bundle **bundle) {
    *bundle = attn__alloc(sizeof **bundle, "a bundle");
    if (!*bundle) {
        return ATTN_MEMORY;
    }
    **bundle = (attn__bundle){0};
    return ATTN_OK;
}

void attn__bundle_free(attn__bundle *bundle) {
    if (bundle) {
        for (uint64_t i = 0; bundle->code && i < bundle->n; i++) {
            free(bundle->code[i]);
        }
        if (!bundle->file) {
            free(bundle->entry);
        }
        free(bundle->code);
        free(bundle->sound);
        free(bundle->file);
        free(bundle);
    }
}

int attn__bundle_add(attn__bundle *bundle, const char *job, const void *code, size_t bytes) {
    const uint64_t n = bundle->n;
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp(bundle->entry[i].job, job, sizeof bundle->entry[i].job) == 0) {
            return ATTN_OK;
        }
    }
    void *const copy = malloc(bytes ? bytes : 1);
    entry *const entries = realloc(bundle->entry, (size_t)(n + 1) * sizeof *entries);
    bundle->entry = entries ? entries : bundle->entry;
    void **const codes = realloc(bundle->code, (size_t)(n + 1) * sizeof *codes);
    bundle->code = codes ? codes : bundle->code;
    if (!copy || !entries || !codes) {
        free(copy);
        return attn__fail(ATTN_MEMORY, "device", "out of memory for a bundle's kernel");
    }
    memcpy(copy, code, bytes);
    memcpy(entries[n].job, job, sizeof entries[n].job);
    entries[n].bytes = bytes;
    attn__sha256_of(code, bytes, entries[n].sum);
    codes[n] = copy;
    bundle->n = n + 1;
    return ATTN_OK;
}

static int write_to(FILE *file, const attn__bundle *b) {
    uint64_t at = sizeof magic + sizeof b->n + b->n * sizeof *b->entry;
    int good =
        fwrite(magic, sizeof magic, 1, file) == 1 && fwrite(&b->n, sizeof b->n, 1, file) == 1;
    for (uint64_t i = 0; i < b->n && good; i++) {
        b->entry[i].at = at;
        at += b->entry[i].bytes;
        good = fwrite(&b->entry[i], sizeof b->entry[i], 1, file) == 1;
    }
    for (uint64_t i = 0; i < b->n && good; i++) {
        good = fwrite(b->code[i], 1, (size_t)b->entry[i].bytes, file) == b->entry[i].bytes;
    }
    return good;
}

/* Beside and renamed, so that who opens it sees a whole one. */
static int write_bundle(const attn__bundle *b, const char *path) {
    char beside[4096];
    snprintf(beside, sizeof beside, "%.4000s.new-%d", path, (int)getpid());
    FILE *const file = fopen(beside, "wbe");
    const int good = file && write_to(file, b);
    if ((file && fclose(file) != 0) || !good || rename(beside, path) != 0) {
        const int status = attn__fail(ATTN_IO, "path", "the bundle %s could not be written: %s",
                                      path, strerror(errno));
        unlink(beside);
        return status;
    }
    return ATTN_OK;
}

int attn_bundle_write(const attn_device *device, const char *path) {
    ATTN_TRY(attn__device_check(device));
    if (device->driver != &attn__make) {
        return attn__fail(ATTN_INVALID, "device",
                          "device %s computes; a device \"make:CHIP\" has kernels for a bundle",
                          device->name);
    }
    if (!path) {
        return attn__fail(ATTN_INVALID, "path", "path is NULL; the name of a file is wanted");
    }
    const attn__bundle *const bundle = attn__make_begin(device->chip);
    const int status = write_bundle(bundle, path);
    attn__make_end(device->chip);
    return status;
}

/* -- Opened ones ------------------------------------------------------------------------------- */

static attn__bundle *opened;
static int asked;          /* 1: ATTN_BUNDLE was read */
static char unopened[512]; /* why the first of those that it names could not be opened */

__attribute__((destructor)) static void close_all(void) {
    while (opened) {
        attn__bundle *const next = opened->next;
        attn__bundle_free(opened);
        opened = next;
    }
}

static int check(attn__bundle *b, uint64_t size) {
    const uint64_t head = sizeof magic + sizeof b->n;
    if (size < head || memcmp(b->file, magic, sizeof magic) != 0) {
        return 0;
    }
    memcpy(&b->n, b->file + sizeof magic, sizeof b->n);
    b->entry = (entry *)(b->file + head); /* at a multiple of 8 bytes */
    if (b->n > (size - head) / sizeof *b->entry) {
        return 0;
    }
    for (uint64_t i = 0; i < b->n; i++) {
        if (b->entry[i].at > size || b->entry[i].bytes > size - b->entry[i].at) {
            return 0;
        }
    }
    return (b->sound = malloc((size_t)b->n + 1)) && memset(b->sound, UNKNOWN, (size_t)b->n + 1);
}

static int open_bundle(const char *path) {
    FILE *const file = fopen(path, "rbe");
    long size = -1;
    if (!file || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        const int status = attn__fail(ATTN_IO, "path", "the bundle %s could not be read: %s", path,
                                      strerror(errno));
        if (file) {
            fclose(file);
        }
        return status;
    }
    attn__bundle *const b = attn__alloc(sizeof *b, "a bundle");
    if (b) {
        *b = (attn__bundle){.file = malloc((size_t)size + 1)};
    }
    rewind(file);
    const int there = b && b->file && fread(b->file, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (!there || !check(b, (uint64_t)size)) {
        attn__bundle_free(b);
        return there ? attn__fail(ATTN_IO, "path", "%s is no bundle, or not all of one", path)
                     : attn__fail(ATTN_MEMORY, "path", "out of memory for the bundle %s", path);
    }
    b->next = opened;
    opened = b;
    return ATTN_OK;
}

/* The bundles that ATTN_BUNDLE names, with colons between them. One that cannot be opened is not
   there, which is told where a kernel is missing. */
static void open_named(void) {
    const char *const names = asked ? NULL : getenv("ATTN_BUNDLE");
    char *const copy = names ? strdup(names) : NULL;
    char *rest = NULL;
    asked = 1;
    for (char *name = copy ? strtok_r(copy, ":", &rest) : NULL; name;
         name = strtok_r(NULL, ":", &rest)) {
        if (open_bundle(name) < 0 && !unopened[0]) {
            snprintf(unopened, sizeof unopened, "%s", attn_error());
        }
    }
    free(copy);
}

int attn_bundle_open(const char *path) {
    if (!path) {
        return attn__fail(ATTN_INVALID, "path", "path is NULL; the name of a file is wanted");
    }
    attn__lock(ATTN__BUNDLES);
    open_named();
    const int status = open_bundle(path);
    attn__unlock(ATTN__BUNDLES);
    return status;
}

/* The sum is computed when it is asked for, once. */
static int is_sound(attn__bundle *b, uint64_t i) {
    const entry *const e = &b->entry[i];
    if (b->sound[i] == UNKNOWN) {
        uint8_t sum[32];
        attn__sha256_of(b->file + e->at, (size_t)e->bytes, sum);
        b->sound[i] = memcmp(sum, e->sum, sizeof sum) == 0;
    }
    return b->sound[i];
}

static const char *find(const char *job, size_t *bytes) {
    for (attn__bundle *b = opened; b; b = b->next) {
        for (uint64_t i = 0; i < b->n; i++) {
            if (memcmp(b->entry[i].job, job, sizeof b->entry[i].job) == 0 && is_sound(b, i)) {
                *bytes = (size_t)b->entry[i].bytes;
                return b->file + b->entry[i].at;
            }
        }
    }
    return NULL;
}

int attn__bundle_find(const char *job, void **code, size_t *bytes) {
    size_t n = 0;
    attn__lock(ATTN__BUNDLES);
    open_named();
    const char *const found = find(job, &n);
    attn__unlock(ATTN__BUNDLES); /* what was found stays */
    if (found && code) {
        *code = malloc(n + 1);
        if (*code) {
            memcpy(*code, found, n);
            *bytes = n;
        }
        return *code != NULL;
    }
    return found != NULL;
}

int attn__bundle_blame(int status, const char *entry) {
    char why[ATTN__REASON];
    attn__lock(ATTN__BUNDLES);
    snprintf(why, sizeof why, "%s", attn_error());
    if (unopened[0]) {
        attn__fail(status, "device", "%s; of ATTN_BUNDLE, %s", why, unopened);
    } else if (opened) {
        attn__fail(status, "device", "%s; no opened bundle has this %s", why, entry);
    }
    attn__unlock(ATTN__BUNDLES);
    return status;
}
