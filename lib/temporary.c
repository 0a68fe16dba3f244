/* temporary.c: a folder for the time of a compile or of a load, below $TMPDIR or else /tmp.

   Who calls it: jit_cc.c, emu/emu_driver.c. A process that is killed leaves its folder behind:

       attn-XXXXXX/            made by mkdtemp
         .attn-temporary       locked (flock) as long as its process works in it
         ...                   what is written there

   The first folder that a process makes is the occasion to remove those of its user whose file
   .attn-temporary has been there for a minute and is locked by nobody. */
#define _GNU_SOURCE
#include "temporary.h"
#include "attn_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MINUTE = 60 };
static const char mark[] = ".attn-temporary", prefix[] = "attn-";

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static void remove_all(const char *path) {
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* -- What killed processes left ---------------------------------------------------------------- */

/* Is it ours, older than a minute, and locked by nobody? Then it stays locked by *lock. */
static int is_left(const char *path, int *lock) {
    char file[ATTN__PATH_IN];
    struct stat s;
    if (lstat(path, &s) != 0 || !S_ISDIR(s.st_mode) || s.st_uid != geteuid()) {
        return 0;
    }
    snprintf(file, sizeof file, "%.*s/%s", ATTN__PATH, path, mark);
    *lock = open(file, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (*lock < 0) {
        return 0;
    }
    if (fstat(*lock, &s) == 0 && S_ISREG(s.st_mode) && time(NULL) - s.st_mtime > MINUTE &&
        flock(*lock, LOCK_EX | LOCK_NB) == 0) {
        return 1;
    }
    close(*lock);
    return 0;
}

static void sweep(const char *folder) {
    DIR *const dir = opendir(folder);
    const struct dirent *e;
    while (dir && (e = readdir(dir))) {
        char path[ATTN__PATH];
        int lock;
        if (strncmp(e->d_name, prefix, sizeof prefix - 1) == 0) {
            const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            if (n < (int)sizeof path && is_left(path, &lock)) {
                remove_all(path);
                close(lock);
            }
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* -- A folder ---------------------------------------------------------------------------------- */

int attn__temporary_new(attn__temporary *t) {
    static atomic_flag swept = ATOMIC_FLAG_INIT;
    const char *const named = getenv("TMPDIR"), *const from = named && *named ? named : "/tmp";
    char *const folder = realpath(from, NULL);
    if (!folder || strlen(folder) > ATTN__PATH - 64) {
        free(folder);
        return attn__fail(ATTN_IO, "device", "no temporary folder can be made in %s%s: %s", from,
                          from == named ? ", which TMPDIR names" : "", strerror(errno));
    }
    if (!atomic_flag_test_and_set(&swept)) {
        sweep(folder);
    }
    snprintf(t->path, sizeof t->path, "%s/%sXXXXXX", folder, prefix);
    free(folder);
    if (!mkdtemp(t->path)) {
        return attn__fail(ATTN_IO, "device", "no temporary folder %s can be made: %s", t->path,
                          strerror(errno));
    }
    char file[ATTN__PATH_IN];
    attn__temporary_path(t, mark, file);
    t->lock = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->lock < 0 || (flock(t->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) {
        const int why = errno;
        attn__temporary_remove(t);
        return attn__fail(ATTN_IO, "device", "%s cannot be made: %s", file, strerror(why));
    }
    return ATTN_OK;
}

void attn__temporary_remove(const attn__temporary *t) {
    remove_all(t->path);
    if (t->lock >= 0) {
        close(t->lock);
    }
}

void attn__temporary_path(const attn__temporary *t, const char *name, char path[ATTN__PATH_IN]) {
    snprintf(path, ATTN__PATH_IN, "%.*s/%.100s", ATTN__PATH, t->path, name);
}

int attn__temporary_write(const attn__temporary *t, const char *name, const void *bytes, size_t n) {
    char path[ATTN__PATH_IN];
    attn__temporary_path(t, name, path);
    for (char *at = path + strlen(t->path) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    FILE *const file = fopen(path, "we");
    const int good = file && fwrite(bytes, 1, n, file) == n;
    if ((file && fclose(file) != 0) || !good) {
        return attn__fail(ATTN_IO, "device", "%s could not be written: %s", path, strerror(errno));
    }
    return ATTN_OK;
}
