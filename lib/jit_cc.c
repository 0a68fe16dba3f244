/* jit_cc.c: compilers that are programs: the host's C compiler makes the code of emulated targets,
   a shared object; nvcc and clang, where a variable names them, that of chips.

   Who calls it: jit.c. The variable may carry options. The program works in a temporary folder:

       core/...  isa/...  variant.h  attn_fwd.hip --cc--> code, log

   Its identity, part of the cache's keys, is what it says of itself and the options, not the name
   by which it was found. */
#define _GNU_SOURCE
#include "fork.h"
#include "jit.h"
#include "temporary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 96, LOG = 3000 };

typedef struct program {
    const char *variable, *otherwise; /* what names it; NULL: nothing else does */
    const char *ask;                  /* makes it say what it is */
    const char *arch;                 /* its option for the target's name, or number */
    const char *const *options;
    char asked_name[ATTN__PATH], asked[ATTN__KEY]; /* asked last, and the hash of what it said */
} program;

/* Products and sums stay apart, as on the chip. A library with sanitizers has kernels with them. */
static const char *const of_cc[] = {
    "-x",    "c",     "-std=gnu11",  "-Og",          "-g0",         "-w",
    "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing",
#if defined(__SANITIZE_ADDRESS__)
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
#endif
    NULL};
#define OF_NVCC(kind) {"-x", "cu", "-std=c++17", kind, "-O3", "-fmad=false", NULL}
static const char *const of_nvcc[] = OF_NVCC("-cubin"), *const of_nvcc_ptx[] = OF_NVCC("-ptx");
static const char *const of_clang[] = {
    "-x", "hip", "-std=c++17", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc",
    "-nogpulib", "-mcode-object-version=5", "-O3", "-ffp-contract=off", NULL};

static program cc = {"CC", "cc", "-v", "-DATTN_EMU=", of_cc, "", ""},
               nvcc = {"ATTN_NVCC", NULL, "--version", "-arch=", of_nvcc, "", ""},
               nvcc_ptx = {"ATTN_NVCC", NULL, "--version", "-arch=", of_nvcc_ptx, "", ""},
               clang = {"ATTN_CLANG", NULL, "-v", "--offload-arch=", of_clang, "", ""};

/* -- A command --------------------------------------------------------------------------------- */

typedef struct command {
    char words[ATTN__PATH]; /* of the variable, each with a zero */
    char *argv[MOST_WORDS];
    int n;
} command;

static const char *name_of(const program *p) {
    const char *const given = getenv(p->variable);
    return given && *given ? given : p->otherwise;
}

static void begin(command *c, const char *name) {
    char *rest = NULL;
    c->n = 0;
    snprintf(c->words, sizeof c->words, "%s", name);
    for (char *w = strtok_r(c->words, " \t", &rest); w; w = strtok_r(NULL, " \t", &rest)) {
        if (c->n < MOST_WORDS / 2) {
            c->argv[c->n++] = w;
        }
    }
    if (c->n == 0) {
        c->argv[c->n++] = "cc"; /* nothing but blanks */
    }
}

static void word(command *c, const char *w) {
    c->argv[c->n++] = (char *)w;
    c->argv[c->n] = NULL;
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

/* Of the lines of `text` but those that hold the compiler's name as it was called. */
static void hash_lines(const char *text, char hash[ATTN__KEY]) {
    attn__sha256 sum;
    attn__sha256_begin(&sum);
    while (*text) {
        const char *const end = strchrnul(text, '\n');
        if (strncmp(text, "COLLECT_GCC=", 12) != 0) {
            attn__sha256_add(&sum, text, (size_t)(end - text) + 1);
        }
        text = *end ? end + 1 : end;
    }
    attn__sha256_hex(&sum, hash);
}

/* Target, version and how it was built. */
static int ask(const program *p, const command *c, const char *name, char asked[ATTN__KEY]) {
    char log[ATTN__PATH_IN];
    attn__temporary folder;
    void *text = NULL;
    size_t n;
    command v = *c;
    word(&v, p->ask);
    ATTN_TRY(attn__temporary_new(&folder));
    attn__temporary_path(&folder, "log", log);
    const int left = attn__spawn(v.argv, log);
    const int status =
        left == 0 ? read_file(log, &text, &n)
                  : attn__fail(ATTN_DEVICE, "device",
                               "%s need a compiler, and \"%s\" %s%s; %s names another one",
                               p == &cc ? "emulated chips" : "kernels", name,
                               left == ATTN__NOT_STARTED ? "could not be started"
                               : left == ATTN__LATE      ? "does not answer "
                                                         : "does not know ",
                               left == ATTN__NOT_STARTED ? "" : p->ask, p->variable);
    attn__temporary_remove(&folder);
    if (text) {
        hash_lines(text, asked);
        free(text);
    }
    return status;
}

/* Asks once for each name, and holds no lock meanwhile: a fork would wait for the answer. */
static int ask_once(program *p, const command *c, const char *name, char asked[ATTN__KEY]) {
    attn__lock(ATTN__COMPILER);
    const int known = strcmp(p->asked_name, name) == 0;
    memcpy(asked, p->asked, ATTN__KEY);
    attn__unlock(ATTN__COMPILER);
    if (!known) {
        ATTN_TRY(ask(p, c, name, asked));
        attn__lock(ATTN__COMPILER);
        snprintf(p->asked_name, sizeof p->asked_name, "%s", name);
        memcpy(p->asked, asked, ATTN__KEY);
        attn__unlock(ATTN__COMPILER);
    }
    return ATTN_OK;
}

static int identity(program *p, char *text, size_t capacity) {
    const char *const name = name_of(p);
    char asked[ATTN__KEY] = "";
    command c;
    begin(&c, name);
    ATTN_TRY(ask_once(p, &c, name, asked));
    size_t n = (size_t)snprintf(text, capacity, "%s", asked);
    for (int i = 1; i < c.n && n < capacity; i++) {
        n += (size_t)snprintf(text + n, capacity - n, " %s", c.argv[i]);
    }
    for (int i = 0; p->options[i] && n < capacity; i++) {
        n += (size_t)snprintf(text + n, capacity - n, " %s", p->options[i]);
    }
    return ATTN_OK;
}

/* -- Compiling --------------------------------------------------------------------------------- */

static int compile_in(const program *p, const attn__temporary *folder, const attn__job *job,
                      void **code, size_t *bytes) {
    char include[ATTN__PATH + 16], entry[ATTN__PATH_IN], out[ATTN__PATH_IN], log[ATTN__PATH_IN];
    char define[ATTN__MOST_DEFINES][ATTN__DEFINE + 4], arch[64];
    command c;
    for (int i = 0; i < job->n_files; i++) {
        const attn__file *const f = &job->file[i];
        ATTN_TRY(attn__temporary_write(folder, f->name, f->text, strlen(f->text)));
    }
    begin(&c, name_of(p));
    for (int i = 0; p->options[i]; i++) {
        word(&c, p->options[i]);
    }
    for (int i = 0; i < job->n_defines; i++) {
        snprintf(define[i], sizeof define[i], "-D%s", job->define[i]);
        word(&c, define[i]);
    }
    if (p == &cc) {
        snprintf(arch, sizeof arch, "%s%d", p->arch, job->target->emulated);
    } else {
        snprintf(arch, sizeof arch, "%s%s", p->arch, job->target->name);
    }
    snprintf(include, sizeof include, "-I%s", folder->path);
    attn__temporary_path(folder, job->entry, entry);
    attn__temporary_path(folder, "code", out);
    attn__temporary_path(folder, "log", log);
    word(&c, arch);
    word(&c, include);
    word(&c, entry);
    word(&c, "-o");
    word(&c, out);
    const int status = attn__spawn(c.argv, log);
    if (status == ATTN__LATE) {
        return attn__fail(ATTN_DRIVER, "device",
                          "%s has not compiled %s for %s in %lld seconds; ATTN_COMPILE_SECONDS "
                          "may give it more",
                          c.argv[0], job->entry, job->target->name,
                          (long long)attn__setting(ATTN__SET_SECONDS));
    }
    if (status != 0 || access(out, R_OK) != 0) {
        void *text = NULL;
        size_t n = 0;
        read_file(log, &text, &n);
        attn__fail(ATTN_DRIVER, "variant", "%s could not compile %s for %s: %.*s", c.argv[0],
                   job->entry, job->target->name, LOG, text ? (const char *)text : "");
        free(text);
        return ATTN_DRIVER;
    }
    ATTN_TRY(read_file(out, code, bytes));
    *bytes += p == &nvcc_ptx; /* the driver takes a text with its zero */
    return ATTN_OK;
}

static int compile(const program *p, const attn__job *job, void **code, size_t *bytes) {
    attn__temporary folder;
    ATTN_TRY(attn__temporary_new(&folder));
    const int status = compile_in(p, &folder, job, code, bytes);
    attn__temporary_remove(&folder);
    return status;
}

/* -- The tables -------------------------------------------------------------------------------- */

#define COMPILER(name, program)                                                                    \
    static int name##_identity(const attn__target *target, char *text, size_t capacity) {          \
        (void)target;                                                                              \
        return identity(&name, text, capacity);                                                    \
    }                                                                                              \
    static int name##_compile(const attn__job *job, void **code, size_t *bytes) {                  \
        return compile(&name, job, code, bytes);                                                   \
    }                                                                                              \
    const attn__compiler attn__##name = {program, name##_identity, name##_compile};
COMPILER(cc, "cc")
COMPILER(nvcc, "nvcc")
COMPILER(nvcc_ptx, "nvcc")
COMPILER(clang, "clang")
