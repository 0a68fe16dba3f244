/* jit_nvrtc.c: kernel text -> machine code for NVIDIA's chips, by NVRTC, found at run time.

   Who calls it: jit.c, through the tables attn__nvrtc and attn__ptx. No GPU and no header of the
   vendor is needed. The library is what the environment variable ATTN_NVRTC names, or else the
   first of these that is here, those of the driver's CUDA or older (the first number counts)
   before newer ones, whose code it would not load:

       libnvrtc.so.13  libnvrtc.so.12  libnvrtc.so.11.2  libnvrtc.so;  /usr/local/cuda/lib64, too

   Opening it takes 8 ms. A key wants its version and its file's stamp alone, which a note in the
   cache tells while nothing has changed by which it is found. */
#include "jit_rtc.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn__rtc rtc = {.name = "NVRTC"}; /* its code: a chip's */
static int (*ptx_size)(void *, size_t *), (*ptx)(void *, char *);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static const attn__rtc_entry entries[] = {
    {"nvrtcVersion", &rtc.version},
    {"nvrtcCreateProgram", &rtc.create},
    {"nvrtcDestroyProgram", &rtc.destroy},
    {"nvrtcCompileProgram", &rtc.compile},
    {"nvrtcGetProgramLogSize", &rtc.log_size},
    {"nvrtcGetProgramLog", &rtc.log},
    {"nvrtcGetCUBINSize", &rtc.code_size},
    {"nvrtcGetCUBIN", &rtc.code},
    {"nvrtcGetPTXSize", &ptx_size},
    {"nvrtcGetPTX", &ptx},
    {"nvrtcGetErrorString", &rtc.error},
    {NULL, NULL},
};

/* Products and sums stay apart; division, root and subnormals are exact. */
static const char *const options[] = {"--std=c++17", "-default-device", "-fmad=false",
                                      "-ftz=false",  "-prec-div=true",  NULL};

static const struct {
    const char *path;
    int major; /* 0: any */
} places[] = {{"libnvrtc.so.13", 13},   {"/usr/local/cuda/lib64/libnvrtc.so.13", 13},
              {"libnvrtc.so.12", 12},   {"/usr/local/cuda/lib64/libnvrtc.so.12", 12},
              {"libnvrtc.so.11.2", 11}, {"libnvrtc.so", 0}};
enum { PLACES = sizeof places / sizeof places[0] };

static void find(void) {
    const int driver = attn__cuda_version() / 1000;
    if (attn__rtc_named(&rtc, "ATTN_NVRTC", entries)) {
        return;
    }
    for (int newer = 0; newer < 2; newer++) {
        for (int i = 0; i < PLACES; i++) {
            if ((driver != 0 && places[i].major > driver) == newer &&
                attn__rtc_load(&rtc, places[i].path, entries)) {
                return;
            }
        }
    }
    snprintf(rtc.missing, sizeof rtc.missing,
             "no libnvrtc.so of CUDA 11.2 to 13 was found; ATTN_NVRTC may name one");
}

/* -- Which version ----------------------------------------------------------------------------- */

static attn__rtc known = {.name = "NVRTC"}; /* its version, and no functions */
static pthread_once_t once_known = PTHREAD_ONCE_INIT;

/* What `find` and the loader go by; what a program names for the loader is known by its file. */
static void describe(char *text, size_t capacity) {
    const char *const named = getenv("ATTN_NVRTC"), *const folders = getenv("LD_LIBRARY_PATH");
    size_t at = (size_t)snprintf(text, capacity, "%s %s %d ", named ? named : "",
                                 folders ? folders : "", attn__cuda_version());
    for (int i = -2; i < PLACES && at < capacity; i++) {
        const char *const path = i == -2   ? "/proc/self/exe"
                                 : i == -1 ? "/etc/ld.so.cache"
                                           : places[i].path;
        if (path[0] == '/') {
            attn__rtc_stamp(path, text + at, capacity - at);
            at += strlen(text + at);
        }
    }
}

/* One that the process has already, a framework's, is taken; no note tells of it. */
static int is_loaded(void) {
    const char *const named = getenv("ATTN_NVRTC");
    int loaded = 0;
    for (int i = 0; i < PLACES && !loaded; i++) {
        loaded = attn__rtc_is_loaded(named && *named ? named : places[i].path);
    }
    return loaded;
}

static void know(void) {
    const int has_note = !is_loaded();
    char about[8192];
    describe(about, sizeof about);
    if (!has_note || !attn__rtc_recall(&known, about)) {
        pthread_once(&once, find);
        known = rtc;
        if (has_note && !known.missing[0]) {
            attn__rtc_remember(&known, about);
        }
    }
}

static int nvrtc_identity(const attn__target *target, char *text, size_t capacity) {
    pthread_once(&once_known, know);
    return attn__rtc_identity(&known, target, options, text, capacity);
}

/* -- Compiling --------------------------------------------------------------------------------- */

static int compile(const attn__rtc *from, const attn__job *job, void **code, size_t *bytes) {
    char arch[48];
    snprintf(arch, sizeof arch, "--gpu-architecture=%.20s", job->target->name);
    return attn__rtc_compile(from, job, arch, options, code, bytes);
}
static int nvrtc_compile(const attn__job *job, void **code, size_t *bytes) {
    pthread_once(&once, find);
    return compile(&rtc, job, code, bytes);
}
static int ptx_compile(const attn__job *job, void **code, size_t *bytes) {
    pthread_once(&once, find);
    attn__rtc as_ptx = rtc;
    as_ptx.code_size = ptx_size;
    as_ptx.code = ptx;
    return compile(&as_ptx, job, code, bytes);
}

const attn__compiler attn__nvrtc = {"nvrtc", nvrtc_identity, nvrtc_compile};
const attn__compiler attn__ptx = {"nvrtc", nvrtc_identity, ptx_compile};
