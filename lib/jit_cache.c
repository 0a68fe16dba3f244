/* jit_cache.c: code objects on disk.

   Who calls it: jit.c. An entry is one file:

       64 digits of the key .code       8 bytes "attncod1" | size | SHA-256 of what follows | code

   It is written beside under another name and renamed, so any number of processes may race: each
   sees a whole entry or none. What another user owns or may write, or whose sum is wrong, does not
   count; it is made anew. The log (attn_log, level 1) tells what could not be kept. An entry's time
   is that of its last use. Who writes one removes those used longest ago until the rest is at most
   $ATTN_CACHE_MIB, and what a killed writer left. */
#define _GNU_SOURCE
#include "jit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH = 4096, HOUR = 3600 };
#define NEW ".new-"

/* -- The directory ----------------------------------------------------------------------------- */

/* NULL: it is there, and nobody else may write to it. Otherwise why it holds nothing of ours. */
static const char *unsafe(const char *path) {
    struct stat s;
    attn__make_folder(path);
    return stat(path, &s) != 0 || !S_ISDIR(s.st_mode) ? "the folder is not there"
           : s.st_uid != geteuid()                    ? "the folder is another user's"
           : s.st_mode & 022 ? "others may write to the folder; chmod go-w closes it"
                             : NULL;
}

/* The cache's folder; otherwise why there is none. */
static const char *folder(char path[PATH]) {
    const char *const own = getenv("ATTN_CACHE"), *const xdg = getenv("XDG_CACHE_HOME");
    const char *const home = getenv("HOME");
    int n = -1;
    path[0] = 0;
    if (own && strcmp(own, "none") == 0) {
        return ""; /* as wanted */
    } else if (own && *own) {
        n = snprintf(path, PATH, "%s", own);
    } else if (xdg && *xdg == '/') {
        n = snprintf(path, PATH, "%s/attn", xdg);
    } else if (home && *home == '/') {
        n = snprintf(path, PATH, "%s/.cache/attn", home);
    }
    return n < 1            ? "no folder is named"
           : n > PATH - 128 ? "the folder's name is too long"
                            : unsafe(path);
}

/* -- Entries ----------------------------------------------------------------------------------- */

typedef struct head {
    char magic[8];
    uint64_t size;
    uint8_t sum[32];
} head;

static head head_of(const void *code, size_t bytes) {
    head h = {.size = bytes};
    memcpy(h.magic, "attncod1", sizeof h.magic);
    attn__sha256_of(code, bytes, h.sum);
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

/* 0 and *code, if the entry is ours and whole; it is used now. */
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
    if (found) {
        const head want = head_of(*code, (size_t)h.size);
        found = memcmp(&want, &h, sizeof h) == 0;
    }
    if (found) {
        futimens(file, NULL);
    }
    close(file);
    if (!found) {
        free(*code);
        *code = NULL;
        return -1;
    }
    *bytes = (size_t)h.size;
    return 0;
}

/* A cache that cannot be written is no error: the code is there. NULL, or why it is not kept. */
static const char *write_entry(const char *folder_path, const char *path, const void *code,
                               size_t bytes) {
    char name[PATH + 16];
    snprintf(name, sizeof name, "%s/" NEW "XXXXXX", folder_path);
    const int file = mkostemp(name, O_CLOEXEC);
    if (file < 0) {
        return "the folder cannot be written";
    }
    const head h = head_of(code, bytes);
    const int good = write_all(file, &h, sizeof h) == 0 && write_all(file, code, bytes) == 0;
    if (close(file) != 0 || !good || rename(name, path) != 0) {
        unlink(name);
        return "the file could not be written";
    }
    return NULL;
}

/* -- The bound --------------------------------------------------------------------------------- */

typedef struct entry {
    char name[ATTN__KEY + 8];
    int64_t bytes;
    struct timespec used;
} entry;

typedef struct entries {
    entry *at;
    size_t n, room;
    int64_t bytes;
} entries;

static int has_suffix(const char *name) {
    return strlen(name) == ATTN__KEY - 1 + 5 && strcmp(name + ATTN__KEY - 1, ".code") == 0;
}

static void note(entries *all, const char *name, const struct stat *s) {
    if (all->n == all->room) {
        const size_t more = all->room ? 2 * all->room : 256;
        entry *const larger = realloc(all->at, more * sizeof *larger);
        if (!larger) {
            return;
        }
        all->at = larger;
        all->room = more;
    }
    entry *const e = &all->at[all->n++];
    snprintf(e->name, sizeof e->name, "%s", name);
    e->bytes = s->st_size;
    e->used = s->st_mtim;
    all->bytes += s->st_size;
}

static int by_age(const void *a, const void *b) {
    const struct timespec x = ((const entry *)a)->used, y = ((const entry *)b)->used;
    return x.tv_sec != y.tv_sec ? (x.tv_sec > y.tv_sec) - (x.tv_sec < y.tv_sec)
                                : (x.tv_nsec > y.tv_nsec) - (x.tv_nsec < y.tv_nsec);
}

static void tidy(const char *folder_path) {
    const int64_t most = attn__setting(ATTN__SET_CACHE_MIB) << 20;
    entries all = {0};
    DIR *const dir = opendir(folder_path);
    const struct dirent *e;
    struct stat s;
    while (dir && (e = readdir(dir))) {
        if (fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode)) {
            continue;
        }
        if (has_suffix(e->d_name)) {
            note(&all, e->d_name, &s);
        } else if (strncmp(e->d_name, NEW, sizeof NEW - 1) == 0 && time(NULL) - s.st_mtime > HOUR) {
            unlinkat(dirfd(dir), e->d_name, 0);
        }
    }
    if (all.bytes > most) {
        qsort(all.at, all.n, sizeof *all.at, by_age);
        for (size_t i = 0; i + 1 < all.n && all.bytes > most; i++) { /* the newest one stays */
            unlinkat(dirfd(dir), all.at[i].name, 0);
            all.bytes -= all.at[i].bytes;
        }
    }
    free(all.at);
    if (dir) {
        closedir(dir);
    }
}

/* -- Reading and writing ----------------------------------------------------------------------- */

int attn__cache_read(const char *key, void **code, size_t *bytes) {
    char path[PATH], name[PATH + ATTN__KEY + 16];
    if (folder(path)) {
        return 0;
    }
    snprintf(name, sizeof name, "%s/%s.code", path, key);
    return read_entry(name, code, bytes) == 0;
}

static void log_loss(const char *key, const char *path, const char *why) {
    char *const text = attn__json_text(path);
    attn__log_write(1, "{\"event\":\"not kept\",\"key\":\"%s\",\"cache\":\"%s\",\"why\":\"%s\"}",
                    key, text ? text : "", why);
    free(text);
}

void attn__cache_write(const char *key, const void *code, size_t bytes) {
    char path[PATH], name[PATH + ATTN__KEY + 16];
    const char *why = folder(path);
    if (!why) {
        snprintf(name, sizeof name, "%s/%s.code", path, key);
        why = write_entry(path, name, code, bytes);
        tidy(path);
    }
    if (why && *why) {
        log_loss(key, path, why);
    }
}
