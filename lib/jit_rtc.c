/* jit_rtc.c: kernel text -> code object by a compiler that is a library; see jit_rtc.h. */
#define _GNU_SOURCE
#include "jit_rtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_LOG = 3000, NOTE = 4096 };

/* Its path, and the file's stamp. */
static const char *file_of(const attn__rtc *rtc, char stamp[ATTN__STAMP]) {
    Dl_info at;
    void *inside;
    memcpy(&inside, &rtc->version, sizeof inside);
    const char *const path = dladdr(inside, &at) ? at.dli_fname : "";
    attn__rtc_stamp(path, stamp, ATTN__STAMP);
    return path;
}

int attn__rtc_is_loaded(const char *path) {
    void *const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    return library && dlclose(library) == 0;
}

int attn__rtc_load(attn__rtc *rtc, const char *path, const attn__rtc_entry *entry) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(rtc->missing, sizeof rtc->missing, "%.180s", dlerror());
        return 0;
    }
    for (int i = 0; entry[i].symbol; i++) {
        void *const f = dlsym(library, entry[i].symbol);
        if (!f) {
            snprintf(rtc->missing, sizeof rtc->missing, "%.80s has no %s", path, entry[i].symbol);
            return 0;
        }
        memcpy(entry[i].at, &f, sizeof f);
    }
    if (rtc->version(&rtc->major, &rtc->minor) != 0) {
        snprintf(rtc->missing, sizeof rtc->missing, "%.80s does not tell its version", path);
        return 0;
    }
    file_of(rtc, rtc->stamp);
    rtc->missing[0] = 0;
    return 1;
}

int attn__rtc_named(attn__rtc *rtc, const char *variable, const attn__rtc_entry *entry) {
    const char *const path = getenv(variable);
    if (path && *path && !attn__rtc_load(rtc, path, entry)) {
        const size_t n = strlen(rtc->missing);
        snprintf(rtc->missing + n, sizeof rtc->missing - n, "; %s names it", variable);
    }
    return path && *path;
}

/* -- Its version without opening it ------------------------------------------------------------ */

void attn__rtc_stamp(const char *path, char *text, size_t capacity) {
    struct stat s;
    if (stat(path, &s) != 0) {
        snprintf(text, capacity, "- ");
        return;
    }
    snprintf(text, capacity, "%lld.%09ld %lld ", (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
             (long long)s.st_size);
}

static void note_key(const attn__rtc *rtc, const char *about, char key[ATTN__KEY]) {
    const char *const texts[] = {"note of a compiler", attn_version(), rtc->name, about};
    attn__sha256 sum;
    attn__sha256_begin(&sum);
    for (int i = 0; i < 4; i++) {
        attn__sha256_add(&sum, texts[i], strlen(texts[i]) + 1);
    }
    attn__sha256_hex(&sum, key);
}

/* A note: "13 0 STAMP PATH". */
void attn__rtc_remember(const attn__rtc *rtc, const char *about) {
    char key[ATTN__KEY], stamp[ATTN__STAMP], note[NOTE];
    const char *const path = file_of(rtc, stamp);
    const int n = snprintf(note, sizeof note, "%d %d %s%s", rtc->major, rtc->minor, stamp, path);
    if (path[0] == '/' && stamp[0] != '-' && n < (int)sizeof note) {
        note_key(rtc, about, key);
        attn__cache_write(key, note, (size_t)n + 1);
    }
}

int attn__rtc_recall(attn__rtc *rtc, const char *about) {
    char key[ATTN__KEY], stamp[ATTN__STAMP];
    int major, minor, at = 0, found = 0;
    void *note = NULL;
    size_t bytes;
    note_key(rtc, about, key);
    if (attn__cache_read(key, &note, &bytes) && bytes > 0 && ((char *)note)[bytes - 1] == 0 &&
        sscanf(note, "%d %d %n", &major, &minor, &at) == 2) {
        const char *const was = (char *)note + at, *const path = strchr(was, '/');
        attn__rtc_stamp(path ? path : "", stamp, sizeof stamp);
        found = path && strlen(stamp) == (size_t)(path - was) &&
                strncmp(stamp, was, strlen(stamp)) == 0;
    }
    if (found) {
        rtc->major = major;
        rtc->minor = minor;
        memcpy(rtc->stamp, stamp, sizeof stamp);
        rtc->missing[0] = 0;
    }
    free(note);
    return found;
}

/* -- Compiling --------------------------------------------------------------------------------- */

int attn__rtc_here(const attn__rtc *rtc) {
    return rtc->missing[0] ? attn__fail(ATTN_DEVICE, "device", "the compiler %s is missing: %s",
                                        rtc->name, rtc->missing)
                           : ATTN_OK;
}

int attn__rtc_identity(const attn__rtc *rtc, const attn__target *target, const char *const *options,
                       char *text, size_t capacity) {
    ATTN_TRY(attn__rtc_here(rtc));
    size_t at = (size_t)snprintf(text, capacity, "%s %d.%d %s%s", rtc->name, rtc->major, rtc->minor,
                                 rtc->stamp, target->name);
    for (int i = 0; options[i] && at < capacity; i++) {
        at += (size_t)snprintf(text + at, capacity - at, " %s", options[i]);
    }
    return ATTN_OK;
}

static int fail(const attn__rtc *rtc, int code, const char *what) {
    return attn__fail(ATTN_DRIVER, "device", "%s failed: %s %d.%d answers %s", what, rtc->name,
                      rtc->major, rtc->minor, rtc->error(code));
}

/* What the compiler says of text that it refuses. */
static int refused(const attn__rtc *rtc, void *program, const attn__job *job, int code) {
    size_t bytes = 0;
    char *log = NULL;
    if (rtc->log_size(program, &bytes) == 0 && bytes > 0 && (log = malloc(bytes)) != NULL) {
        log[0] = 0;
        rtc->log(program, log);
    }
    const int status =
        attn__fail(ATTN_DRIVER, "variant", "%s %d.%d cannot compile %s for %s (%s):\n%.*s",
                   rtc->name, rtc->major, rtc->minor, job->entry, job->target->name,
                   rtc->error(code), MOST_LOG, log ? log : "");
    free(log);
    return status;
}

static int code_of(const attn__rtc *rtc, void *program, void **code, size_t *bytes) {
    int error = rtc->code_size(program, bytes);
    if (error) {
        return fail(rtc, error, "reading the compiled code's size");
    }
    char *const at = attn__alloc(*bytes, "compiled code");
    if (!at) {
        return ATTN_MEMORY;
    }
    error = rtc->code(program, at);
    if (error) {
        free(at);
        return fail(rtc, error, "reading compiled code");
    }
    *code = at;
    return ATTN_OK;
}

int attn__rtc_compile(const attn__rtc *rtc, const attn__job *job, const char *arch,
                      const char *const *options, void **code, size_t *bytes) {
    char define[ATTN__MOST_DEFINES][ATTN__DEFINE + 2];
    const char *all[ATTN__MOST_DEFINES + ATTN__RTC_OPTIONS + 1] = {arch};
    const char *name[ATTN__MOST_FILES], *text[ATTN__MOST_FILES], *entry = NULL;
    int n = 1;
    *code = NULL;
    ATTN_TRY(attn__rtc_here(rtc));
    for (int i = 0; options[i]; i++) {
        all[n++] = options[i];
    }
    for (int i = 0; i < job->n_defines; i++) {
        snprintf(define[i], sizeof define[i], "-D%s", job->define[i]);
        all[n++] = define[i];
    }
    for (int i = 0; i < job->n_files; i++) {
        name[i] = job->file[i].name;
        text[i] = job->file[i].text;
        entry = strcmp(name[i], job->entry) == 0 ? text[i] : entry;
    }
    if (!entry) {
        return attn__fail(ATTN_DRIVER, "device", "there is no kernel file %s", job->entry);
    }
    void *program = NULL;
    int error = rtc->create(&program, entry, job->entry, job->n_files, text, name);
    if (error) {
        return fail(rtc, error, "making a program");
    }
    error = rtc->compile(program, n, all);
    const int status =
        error ? refused(rtc, program, job, error) : code_of(rtc, program, code, bytes);
    rtc->destroy(&program);
    return status;
}
