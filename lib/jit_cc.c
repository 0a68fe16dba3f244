/* jit_cc.c: the host's C compiler makes the code of emulated targets: a shared object.

   Who calls it: jit.c. $CC names the compiler and may carry options; otherwise cc. It works in a
   temporary folder:

       core/...  isa/...  variant.h  attn_fwd.hip --cc--> code.so, log

   Its identity, part of the cache's keys, is what it says of itself (-v) and the options, not the
   name by which it was found. */
#define _GNU_SOURCE
#include "fork.h"
#include "jit.h"
#include "temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_WORDS = 96, LOG = 3000 };

/* Products and sums stay apart, as on the chip. A library with sanitizers has kernels with them. */
static const char *const options[] = {
    "-x",    "c",     "-std=gnu11",  "-Og",          "-g0",         "-w",
    "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing",
#if defined(__SANITIZE_ADDRESS__)
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
#endif
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* -- A command --------------------------------------------------------------------------------- */

typedef struct command {
    char words[ATTN__PATH]; /* of $CC, each with a zero */
    char *argv[MOST_WORDS];
    int n;
} command;

static void begin(command *c) {
    const char *const cc = getenv("CC");
    char *rest = NULL;
    c->n = 0;
    snprintf(c->words, sizeof c->words, "%s", cc && *cc ? cc : "cc");
    for (char *w = strtok_r(c->words, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
        if (c->n < MOST_WORDS / 2) {
            c->argv[c->n++] = w;
        }
    }
    if (c->n == 0) {
        c->argv[c->n++] = "cc";
    }
}

static void word(command *c, const char *w) {
    c->argv[c->n++] = (char *)w;
    c->argv[c->n] = NULL;
}

/* A program that ignores its children, or waits for them elsewhere, leaves no status here: 0, and
   what the command wrote tells. */
int attn__spawn(char *const argv[], const char *log) {
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    const int failed = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed) {
        return -1;
    }
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return 0;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* The whole file, a zero behind it. */
static int read_file(const char *path, void **bytes, size_t *n) {
    FILE *const file = fopen(path, "re");
    long size = -1;
    *bytes = NULL;
    if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0) {
        rewind(file);
        *bytes = calloc(1, (size_t)size + 1);
    }
    const int good = *bytes && fread(*bytes, 1, (size_t)size, file) == (size_t)size;
    if (file) {
        fclose(file);
    }
    if (!good) {
        free(*bytes);
        *bytes = NULL;
        return attn__fail(ATTN_IO, "device", "%s could not be read", path);
    }
    *n = (size_t)size;
    return ATTN_OK;
}

/* -- Which compiler ---------------------------------------------------------------------------- */

/* Asked once for each value of $CC, by -v: target, version and how it was built. */
static char asked_cc[ATTN__PATH], asked[LOG];

/* The lines of `text` but those that hold the compiler's name as it was called. */
static void keep_identity(const char *text) {
    size_t n = 0;
    while (*text) {
        const char *const end = strchrnul(text, '\n');
        if (strncmp(text, "COLLECT_GCC=", 12) != 0 && n < sizeof asked) {
            n += (size_t)snprintf(asked + n, sizeof asked - n, "%.*s\n", (int)(end - text), text);
        }
        text = *end ? end + 1 : end;
    }
}

static int ask(const command *c, const char *cc) {
    char log[ATTN__PATH_IN];
    attn__temporary folder;
    void *text = NULL;
    size_t n;
    command v = *c;
    word(&v, "-v");
    ATTN_TRY(attn__temporary_new(&folder));
    attn__temporary_path(&folder, "log", log);
    const int left = attn__spawn(v.argv, log);
    const int status =
        left == 0 ? read_file(log, &text, &n)
                  : attn__fail(ATTN_DEVICE, "device",
                               "emulated chips need a C compiler, and \"%s\" %s; CC names another "
                               "one",
                               cc, left < 0 ? "could not be started" : "does not know -v");
    attn__temporary_remove(&folder);
    if (text) {
        asked[0] = 0;
        keep_identity(text);
        snprintf(asked_cc, sizeof asked_cc, "%s", cc);
        free(text);
    }
    return status;
}

static int cc_identity(const attn__target *target, char *text, size_t capacity) {
    const char *const given = getenv("CC"), *const cc = given && *given ? given : "cc";
    int status = ATTN_OK;
    command c;
    (void)target;
    begin(&c);
    attn__lock(ATTN__COMPILER);
    if (strcmp(asked_cc, cc) != 0) {
        status = ask(&c, cc);
    }
    if (status >= 0) {
        size_t n = (size_t)snprintf(text, capacity, "%s", asked);
        for (int i = 1; i < c.n && n < capacity; i++) {
            n += (size_t)snprintf(text + n, capacity - n, " %s", c.argv[i]);
        }
        for (int i = 0; i < N_OPTIONS && n < capacity; i++) {
            n += (size_t)snprintf(text + n, capacity - n, " %s", options[i]);
        }
    }
    attn__unlock(ATTN__COMPILER);
    return status;
}

/* -- Compiling --------------------------------------------------------------------------------- */

static int compile_in(const attn__temporary *folder, const attn__job *job, void **code,
                      size_t *bytes) {
    char include[ATTN__PATH + 16], entry[ATTN__PATH_IN], out[ATTN__PATH_IN], log[ATTN__PATH_IN];
    char define[ATTN__MOST_DEFINES][ATTN__DEFINE + 4], chip[32];
    command c;
    for (int i = 0; i < job->n_files; i++) {
        const attn__file *const f = &job->file[i];
        ATTN_TRY(attn__temporary_write(folder, f->name, f->text, strlen(f->text)));
    }
    begin(&c);
    for (int i = 0; i < N_OPTIONS; i++) {
        word(&c, options[i]);
    }
    for (int i = 0; i < job->n_defines; i++) {
        snprintf(define[i], sizeof define[i], "-D%s", job->define[i]);
        word(&c, define[i]);
    }
    snprintf(chip, sizeof chip, "-DATTN_EMU=%d", job->target->emulated);
    snprintf(include, sizeof include, "-I%s", folder->path);
    attn__temporary_path(folder, job->entry, entry);
    attn__temporary_path(folder, "code.so", out);
    attn__temporary_path(folder, "log", log);
    word(&c, chip);
    word(&c, include);
    word(&c, entry);
    word(&c, "-o");
    word(&c, out);
    const int status = attn__spawn(c.argv, log);
    if (status != 0 || access(out, R_OK) != 0) {
        void *text = NULL;
        size_t n = 0;
        read_file(log, &text, &n);
        attn__fail(ATTN_DRIVER, "variant", "%s could not compile %s for %s: %.*s", c.argv[0],
                   job->entry, job->target->name, LOG, text ? (const char *)text : "");
        free(text);
        return ATTN_DRIVER;
    }
    return read_file(out, code, bytes);
}

static int cc_compile(const attn__job *job, void **code, size_t *bytes) {
    attn__temporary folder;
    ATTN_TRY(attn__temporary_new(&folder));
    const int status = compile_in(&folder, job, code, bytes);
    attn__temporary_remove(&folder);
    return status;
}

const attn__compiler attn__cc = {"cc", cc_identity, cc_compile};
