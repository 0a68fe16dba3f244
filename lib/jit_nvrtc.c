/* jit_nvrtc.c: kernel text -> machine code for NVIDIA's chips, by NVRTC, found at run time.

   Who calls it: jit.c, through the table attn__nvrtc. No GPU and no header of the vendor is needed.
   The library is what the environment variable ATTN_NVRTC names, or else the first of these that is
   here, those of the driver's CUDA or older before newer ones, whose code it would not load:

       libnvrtc.so.13  libnvrtc.so.12  libnvrtc.so.11.2  libnvrtc.so  and in /usr/local/cuda/lib64 */
#include "jit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LOG = 3000 };

#define ENTRIES(X)                                                                                 \
    X(version, nvrtcVersion, (int *, int *))                                                       \
    X(create, nvrtcCreateProgram,                                                                  \
      (void **, const char *, const char *, int, const char *const *, const char *const *))        \
    X(destroy, nvrtcDestroyProgram, (void **))                                                     \
    X(compile, nvrtcCompileProgram, (void *, int, const char *const *))                            \
    X(log_size, nvrtcGetProgramLogSize, (void *, size_t *))                                        \
    X(log, nvrtcGetProgramLog, (void *, char *))                                                   \
    X(code_size, nvrtcGetCUBINSize, (void *, size_t *))                                            \
    X(code, nvrtcGetCUBIN, (void *, char *))

static struct nvrtc {
#define MEMBER(name, symbol, arguments) int(*name) arguments;
    ENTRIES(MEMBER)
#undef MEMBER
    const char *(*error)(int);
    int major, minor;
    char missing[192];
} rtc;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int load_entries(const char *path) {
    void *const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(rtc.missing, sizeof rtc.missing, "%.180s", dlerror());
        return 0;
    }
    const struct {
        const char *symbol;
        void *at;
    } entry[] = {
#define ENTRY(name, symbol, arguments) {#symbol, &rtc.name},
        ENTRIES(ENTRY)
#undef ENTRY
            {"nvrtcGetErrorString", &rtc.error},
    };
    for (size_t i = 0; i < sizeof entry / sizeof entry[0]; i++) {
        void *const f = dlsym(library, entry[i].symbol);
        if (!f) {
            snprintf(rtc.missing, sizeof rtc.missing, "%.80s has no %s", path, entry[i].symbol);
            return 0;
        }
        memcpy(entry[i].at, &f, sizeof f);
    }
    if (rtc.version(&rtc.major, &rtc.minor) != 0) {
        snprintf(rtc.missing, sizeof rtc.missing, "%.80s does not tell its version", path);
        return 0;
    }
    rtc.missing[0] = 0;
    return 1;
}

static void find(void) {
    static const struct {
        const char *path;
        int major; /* 0: any */
    } places[] = {{"libnvrtc.so.13", 13},   {"/usr/local/cuda/lib64/libnvrtc.so.13", 13},
                  {"libnvrtc.so.12", 12},   {"/usr/local/cuda/lib64/libnvrtc.so.12", 12},
                  {"libnvrtc.so.11.2", 11}, {"libnvrtc.so", 0}};
    const int n = (int)(sizeof places / sizeof places[0]);
    const char *const named = getenv("ATTN_NVRTC");
    const int driver = attn__cuda_version() / 1000;
    if (named && *named) {
        load_entries(named);
        return;
    }
    for (int newer = 0; newer < 2; newer++) {
        for (int i = 0; i < n; i++) {
            if ((driver != 0 && places[i].major > driver) == newer &&
                load_entries(places[i].path)) {
                return;
            }
        }
    }
    snprintf(rtc.missing, sizeof rtc.missing,
             "no libnvrtc.so of CUDA 11.2 to 13 was found; ATTN_NVRTC may name one");
}

static int here(void) {
    pthread_once(&once, find);
    return rtc.missing[0] ? attn__fail(ATTN_DRIVER, "device",
                                       "NVRTC, the compiler for NVIDIA's chips, is "
                                       "missing: %s",
                                       rtc.missing)
                          : ATTN_OK;
}

/* Products and sums stay apart; division, root and subnormals are exact. */
#define OPTIONS "--std=c++17", "-default-device", "-fmad=false", "-ftz=false", "-prec-div=true"

static int nvrtc_identity(const attn__target *target, char *text, size_t capacity) {
    static const char *const options[] = {OPTIONS};
    ATTN_TRY(here());
    int at = snprintf(text, capacity, "nvrtc %d.%d %s", rtc.major, rtc.minor, target->name);
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        at += snprintf(text + at, (size_t)at < capacity ? capacity - (size_t)at : 0, " %s",
                       options[i]);
        at = (size_t)at < capacity ? at : (int)capacity;
    }
    return ATTN_OK;
}

static int fail(int code, const char *what) {
    return attn__fail(ATTN_DRIVER, "device", "%s failed: NVRTC %d.%d answers %s", what, rtc.major,
                      rtc.minor, rtc.error(code));
}

/* What the compiler says of text that it refuses. */
static int refused(void *program, const attn__job *job, int code) {
    size_t bytes = 0;
    char *log = NULL;
    if (rtc.log_size(program, &bytes) == 0 && bytes > 0 && (log = malloc(bytes)) != NULL) {
        log[0] = 0;
        rtc.log(program, log);
    }
    const int status = attn__fail(
        ATTN_DRIVER, "variant", "NVRTC %d.%d cannot compile %s for %s (%s):\n%.*s", rtc.major,
        rtc.minor, job->entry, job->target->name, rtc.error(code), MOST_LOG, log ? log : "");
    free(log);
    return status;
}

static int code_of(void *program, void **code, size_t *bytes) {
    int error = rtc.code_size(program, bytes);
    if (error) {
        return fail(error, "reading the compiled code's size");
    }
    char *const at = attn__alloc(*bytes, "compiled code");
    if (!at) {
        return ATTN_MEMORY;
    }
    error = rtc.code(program, at);
    if (error) {
        free(at);
        return fail(error, "reading compiled code");
    }
    *code = at;
    return ATTN_OK;
}

static int nvrtc_compile(const attn__job *job, void **code, size_t *bytes) {
    char arch[48], define[ATTN__MOST_DEFINES][ATTN__DEFINE + 2];
    const char *options[ATTN__MOST_DEFINES + 8] = {arch, OPTIONS};
    const char *name[ATTN__MOST_FILES], *text[ATTN__MOST_FILES], *entry = NULL;
    int n = 0;
    *code = NULL;
    ATTN_TRY(here());
    snprintf(arch, sizeof arch, "--gpu-architecture=%.20s", job->target->name);
    while (options[n]) {
        n++;
    }
    for (int i = 0; i < job->n_defines; i++) {
        snprintf(define[i], sizeof define[i], "-D%s", job->define[i]);
        options[n++] = define[i];
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
    int error = rtc.create(&program, entry, job->entry, job->n_files, text, name);
    if (error) {
        return fail(error, "making a program");
    }
    error = rtc.compile(program, n, options);
    const int status = error ? refused(program, job, error) : code_of(program, code, bytes);
    rtc.destroy(&program);
    return status;
}

const attn__compiler attn__nvrtc = {"nvrtc", nvrtc_identity, nvrtc_compile};
