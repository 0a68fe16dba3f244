/* status.c: the last failure of a thread, public structs and their sizes, checked malloc, the log.

   Who calls it: every file that refuses something (attn__fail) or allocates (attn__alloc); plan.c
   and jit_cache.c write the log. A message belongs to its thread and lives until the thread's next
   failure. */
#define _POSIX_C_SOURCE 200809L
#include "attn_int.h"
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A thread's last failure. It is large, as a compiler's words stand in it, and lies on the heap: a
   library that is loaded by dlopen gets little thread-local memory. */
typedef struct failure {
    char message[4096], arg[80];
} failure;
static pthread_once_t failures_once = PTHREAD_ONCE_INIT;
static pthread_key_t failures;
static int has_failures; /* there was a key left */

static void make_failures(void) {
    has_failures = pthread_key_create(&failures, free) == 0;
}

static failure *last_failure(void) {
    pthread_once(&failures_once, make_failures);
    return has_failures ? pthread_getspecific(failures) : NULL;
}

const char *attn_error(void) {
    const failure *const last = last_failure();
    return last ? last->message : "";
}
const char *attn_error_arg(void) {
    const failure *const last = last_failure();
    return last ? last->arg : "";
}

int attn__fail(int status, const char *arg, const char *format, ...) {
    failure *last = last_failure();
    if (!last && has_failures && (last = malloc(sizeof *last)) != NULL &&
        pthread_setspecific(failures, last)) {
        free(last);
        last = NULL;
    }
    if (last) { /* without memory the status alone tells */
        va_list values;
        va_start(values, format);
        vsnprintf(last->message, sizeof last->message, format, values);
        va_end(values);
        snprintf(last->arg, sizeof last->arg, "%s", arg);
    }
    return status;
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
const char *attn_version(void) {
    return TEXT(ATTN_VERSION_MAJOR) "." TEXT(ATTN_VERSION_MINOR) "." TEXT(ATTN_VERSION_PATCH);
}

const char *attn_status_name(int status) {
    switch (status) {
#define X(name, number, meaning)                                                                   \
    case number: return #name;
        ATTN_STATUSES(X)
#undef X
    default: return "unknown";
    }
}

size_t attn_sizeof(const char *struct_name) {
    static const struct {
        const char *name;
        size_t size;
    } table[] = {
#define ROW(name) {#name, sizeof(name)}
        ROW(attn_blocks),    ROW(attn_call),           ROW(attn_capture), ROW(attn_device_info),
        ROW(attn_device_id), ROW(attn_device_options), ROW(attn_dtype),   ROW(attn_node),
        ROW(attn_plan_info), ROW(attn_symbol),         ROW(attn_tensor),  ROW(attn_window),
#undef ROW
    };
    for (size_t i = 0; struct_name && i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].name, struct_name) == 0) {
            return table[i].size;
        }
    }
    return 0;
}

void *attn__alloc(size_t bytes, const char *what) {
    void *const p = malloc(bytes ? bytes : 1);
    if (!p) {
        attn__fail(ATTN_MEMORY, "", "out of memory: %zu bytes for %s", bytes, what);
    }
    return p;
}

static int check_size(const void *theirs, size_t known, const char *name) {
    if (!theirs) {
        return attn__fail(ATTN_INVALID, name, "the %s is NULL", name);
    }
    uint32_t size;
    memcpy(&size, theirs, sizeof size);
    if (size != known) {
        return attn__fail(ATTN_INVALID, name, "the size of the %s is %u; sizeof(%s) is %zu here",
                          name, size, name, known);
    }
    return ATTN_OK;
}

int attn__struct_in(void *to, size_t known, const void *from, const char *name) {
    ATTN_TRY(check_size(from, known, name));
    memcpy(to, from, known);
    return ATTN_OK;
}

int attn__struct_out(void *to, const void *from, size_t known, const char *name) {
    ATTN_TRY(check_size(to, known, name));
    memcpy(to, from, known);
    return ATTN_OK;
}

/* -- The log: one JSON object a line, written by one call of write ----------------------------- */

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static int log_file = -1;
static atomic_int log_level;

static int log_to(const char *path, int level) {
    int file = -1;
    if (level > 0) {
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (file < 0) {
            return attn__fail(ATTN_IO, "path", "cannot append to %s: %s", path, strerror(errno));
        }
    }
    attn__lock(ATTN__LOG);
    const int old = log_file;
    log_file = file;
    atomic_store(&log_level, level);
    attn__unlock(ATTN__LOG);
    if (old >= 0) {
        close(old);
    }
    return ATTN_OK;
}

void attn__make_folder(const char *path) {
    char part[4096];
    for (size_t n = 1; path[n - 1] && n < sizeof part; n++) {
        if (path[n] == '/' || path[n] == 0) {
            snprintf(part, n + 1, "%s", path);
            mkdir(part, 0700);
        }
    }
}

/* ATTN_DEBUG names a folder for plans.json and more (jit_debug.c). */
static void log_begin(void) {
    const char *const folder = getenv("ATTN_DEBUG");
    char path[4096];
    if (folder && *folder && snprintf(path, sizeof path, "%s/plans.json", folder) < 4096) {
        attn__make_folder(folder);
        log_to(path, 1);
    }
}

int attn__log_level(void) {
    pthread_once(&log_once, log_begin);
    return atomic_load_explicit(&log_level, memory_order_relaxed);
}

int attn_log(const char *path, int level) {
    if (level < 0 || level > 2) {
        return attn__fail(ATTN_INVALID, "level", "level is %d; 0, 1 and 2 are allowed", level);
    }
    if (level > 0 && !path) {
        return attn__fail(ATTN_INVALID, "path", "path is NULL; level %d needs a file", level);
    }
    pthread_once(&log_once, log_begin);
    return log_to(path, level);
}

char *attn__json_text(const char *text) {
    char *const out = malloc(6 * strlen(text) + 1);
    char *at = out;
    for (const char *c = text; out && *c; c++) {
        if (*c == '"' || *c == '\\') {
            *at++ = '\\';
            *at++ = *c;
        } else if ((unsigned char)*c < 0x20) {
            at += sprintf(at, "\\u%04x", *c);
        } else {
            *at++ = *c;
        }
    }
    if (out) {
        *at = 0;
    }
    return out;
}

/* A line that cannot be formed or written is lost: the log never fails the work it reports. */
void attn__log_write(int level, const char *format, ...) {
    if (level > attn__log_level()) {
        return;
    }
    char small[1024];
    char *line = small;
    va_list values;
    va_start(values, format);
    int n = vsnprintf(small, sizeof small - 1, format, values);
    va_end(values);
    if (n >= (int)sizeof small - 1) {
        line = malloc((size_t)n + 2);
        va_start(values, format);
        n = line ? vsnprintf(line, (size_t)n + 1, format, values) : -1;
        va_end(values);
    }
    if (n >= 0) {
        line[n++] = '\n';
        attn__lock(ATTN__LOG);
        const ssize_t written = log_file >= 0 ? write(log_file, line, (size_t)n) : 0;
        (void)written;
        attn__unlock(ATTN__LOG);
    }
    if (line != small) {
        free(line);
    }
}
