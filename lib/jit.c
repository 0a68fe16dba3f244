/* jit.c: text to code objects, and the cache of them on disk.

   Who calls it: gpu.c. An entry is one file:

       64 digits of the key .code       8 bytes "attncod1" | size | SHA-256 of what follows | code

   It is written beside under another name and renamed, so any number of processes may race: each
   sees a whole entry or none. What another user owns or may write, or whose sum is wrong, does not
   count; it is made anew. */
#define _GNU_SOURCE
#include "jit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDENTITY = 4096, PATH = 4096 };

static const attn__compiler *const compilers[] = {&attn__cc, &attn__nvrtc, &attn__hiprtc};

static const attn__compiler *compiler_of(const attn__target *target) {
    for (size_t i = 0; i < sizeof compilers / sizeof compilers[0]; i++) {
        if (strcmp(compilers[i]->name, target->compiler) == 0) {
            return compilers[i];
        }
    }
    return NULL;
}

/* -- Jobs -------------------------------------------------------------------------------------- */

void attn__job_begin(attn__job *job, const attn__target *target, const char *entry) {
    job->target = target;
    job->entry = entry;
    job->n_files = job->n_defines = 0;
    for (int i = 0; i < attn__n_kernel_files; i++) {
        const int who = attn__kernel_files[i].who;
        if (who == FOR_ALL || who == (target->emulated ? FOR_EMULATED : FOR_CHIPS)) {
            job->file[job->n_files++] = attn__kernel_files[i].file;
        }
    }
}

void attn__job_define(attn__job *job, const char *name, int value) {
    snprintf(job->define[job->n_defines++], ATTN__DEFINE, "%s=%d", name, value);
}

/* -- Keys -------------------------------------------------------------------------------------- */

/* With its closing zero, so that no two lists of strings are the same bytes. */
static void add(attn__sha256 *sum, const char *text) {
    attn__sha256_add(sum, text, strlen(text) + 1);
}

int attn__jit_key(const attn__job *job, char key[ATTN__KEY]) {
    const attn__compiler *const compiler = compiler_of(job->target);
    char identity[IDENTITY];
    attn__sha256 sum;
    uint8_t digest[32];
    if (!compiler) {
        return attn__fail(ATTN_UNSUPPORTED, "device", "%s needs %s, which this build does not know",
                          job->target->name, job->target->compiler);
    }
    ATTN_TRY(compiler->identity(job->target, identity, sizeof identity));
    attn__sha256_begin(&sum);
    add(&sum, attn_version());
    add(&sum, compiler->name);
    add(&sum, identity);
    add(&sum, job->target->name);
    add(&sum, job->target->emulated ? "emulated" : "chip");
    add(&sum, job->entry);
    for (int i = 0; i < job->n_defines; i++) {
        add(&sum, job->define[i]);
    }
    for (int i = 0; i < job->n_files; i++) {
        add(&sum, job->file[i].name);
        add(&sum, job->file[i].text);
    }
    attn__sha256_end(&sum, digest);
    for (int i = 0; i < 32; i++) {
        snprintf(key + 2 * i, 3, "%02x", digest[i]);
    }
    return ATTN_OK;
}

/* -- The directory ----------------------------------------------------------------------------- */

/* Makes every folder of a path; 0 if it is there and nobody else may write to it. */
static int make_folder(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0700);
            *at = '/';
        }
    }
    struct stat s;
    mkdir(path, 0700);
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
                   (s.st_mode & 022) == 0
               ? 0
               : -1;
}

/* The cache's folder; -1 where there is none. */
static int folder(char path[PATH]) {
    const char *const own = getenv("ATTN_CACHE"), *const xdg = getenv("XDG_CACHE_HOME");
    const char *const home = getenv("HOME");
    int n = -1;
    if (own && *own) {
        n = strcmp(own, "none") == 0 ? -1 : snprintf(path, PATH, "%s", own);
    } else if (xdg && *xdg == '/') {
        n = snprintf(path, PATH, "%s/attn", xdg);
    } else if (home && *home == '/') {
        n = snprintf(path, PATH, "%s/.cache/attn", home);
    }
    return n < 1 || n > PATH - 128 ? -1 : make_folder(path);
}

/* -- Entries ----------------------------------------------------------------------------------- */

typedef struct head {
    char magic[8];
    uint64_t size;
    uint8_t sum[32];
} head;

static head head_of(const void *code, size_t bytes) {
    head h = {.magic = "attncod1", .size = bytes};
    attn__sha256 sum;
    attn__sha256_begin(&sum);
    attn__sha256_add(&sum, code, bytes);
    attn__sha256_end(&sum, h.sum);
    return h;
}

static int read_all(int file, void *to, size_t n) {
    char *at = to;
    while (n) {
        const ssize_t some = read(file, at, n);
        if (some < 0 && errno == EINTR) {
            continue;
        }
        if (some <= 0) {
            return -1;
        }
        at += some;
        n -= (size_t)some;
    }
    return 0;
}

static int write_all(int file, const void *from, size_t n) {
    const char *at = from;
    while (n) {
        const ssize_t some = write(file, at, n);
        if (some < 0 && errno == EINTR) {
            continue;
        }
        if (some < 0) {
            return -1;
        }
        at += some;
        n -= (size_t)some;
    }
    return 0;
}

/* 0 and *code, if the entry is ours and whole. */
static int read_entry(const char *path, void **code, size_t *bytes) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat s;
    head h;
    if (file < 0) {
        return -1;
    }
    int found = fstat(file, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
                (s.st_mode & 022) == 0 && s.st_size > (off_t)sizeof h &&
                read_all(file, &h, sizeof h) == 0 && h.size == (uint64_t)s.st_size - sizeof h;
    *code = found ? malloc((size_t)h.size) : NULL;
    found = *code && read_all(file, *code, (size_t)h.size) == 0;
    close(file);
    if (found) {
        const head want = head_of(*code, (size_t)h.size);
        found = memcmp(&want, &h, sizeof h) == 0;
    }
    if (!found) {
        free(*code);
        *code = NULL;
        return -1;
    }
    *bytes = (size_t)h.size;
    return 0;
}

/* A cache that cannot be written is no error: the code is there. */
static void write_entry(const char *folder_path, const char *path, const void *code, size_t bytes) {
    char name[PATH + 16];
    snprintf(name, sizeof name, "%s/.new-XXXXXX", folder_path);
    const int file = mkostemp(name, O_CLOEXEC);
    if (file < 0) {
        return;
    }
    const head h = head_of(code, bytes);
    const int good = write_all(file, &h, sizeof h) == 0 && write_all(file, code, bytes) == 0;
    if (close(file) != 0 || !good || rename(name, path) != 0) {
        unlink(name);
    }
}

int attn__jit(const attn__job *job, const char *key, void **code, size_t *bytes) {
    char path[PATH], entry[PATH + ATTN__KEY + 16];
    const int cached = folder(path) == 0;
    *code = NULL;
    if (cached) {
        snprintf(entry, sizeof entry, "%s/%s.code", path, key);
        if (read_entry(entry, code, bytes) == 0) {
            return ATTN_OK;
        }
    }
    ATTN_TRY(compiler_of(job->target)->compile(job, code, bytes));
    if (cached) {
        write_entry(path, entry, *code, *bytes);
    }
    return ATTN_OK;
}
